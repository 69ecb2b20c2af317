/* Configuration: the ACL_SIM_* environment variables, read once when the library is loaded. The value in
 * parentheses is the default.
 *
 * ACL_SIM_DEVICES       number of devices, 0 to 64 (2)
 * ACL_SIM_MEMORY        memory of each device: "32G" or "32GiB" is 32 * 1024^3 bytes, "32GB" is 32 * 1000^3;
 *                       or a list with a size for each device, "32G,16G" (the last size is repeated)
 * ACL_SIM_PINNED        the most pinned host memory of the process, as "8G" (unlimited)
 * ACL_SIM_SOC           the name that aclrtGetSocName gives (Ascend910B1)
 * ACL_SIM_VERSION       the version of CANN (9.0.0)
 * ACL_SIM_STRICT        1: the host must not touch device memory outside copies
 * ACL_SIM_ALLOCATORS    0: aclrtAllocatorRegister is not supported
 * ACL_SIM_STRICT_ALLOCATORS  1: refuse to register an allocator without allocAdvise, or for a dead stream
 * ACL_SIM_REUSE_HANDLES 1: the next object of a kind gets the value of the last destroyed handle of this kind
 * ACL_SIM_SHARED        a file: processes with the same file share the devices' capacity
 *                       (shared_capacity.c)
 * ACL_SIM_DEVICE_CODE   what a launch of code does that the host cannot run: refuse (default), the call fails;
 *                       skip, the task does nothing
 *
 * For an invalid value the default is used, and aclInit reports it and fails.
 * Thread rule: written before the simulator starts a thread, or by the control API while no device is in use. */
#include "base/checks.h"
#include "base/core.h"
#include "base/soc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Config config;

/* Settings made by acl_sim_set. They have priority over the variables of the environment. */
enum { OVERRIDES = 16, OVERRIDE_NAME = 32, OVERRIDE_VALUE = 256 };
static struct {
    char name[OVERRIDE_NAME];
    char value[OVERRIDE_VALUE];
} overrides[OVERRIDES];

const char *setting(const char *name)
{
    for (size_t i = 0; i < OVERRIDES; i++) {
        if (strcmp(overrides[i].name, name) == 0) {
            return overrides[i].value;
        }
    }
    return getenv(name);
}

unsigned kernel_threads(void)
{
    const char *text = setting("ACL_SIM_THREADS");
    long threads = text == NULL ? 1 : strtol(text, NULL, 10);
    return threads < 1 ? 1 : threads > 64 ? 64 : (unsigned)threads;
}

static void problem_note(const char *name, const char *value, const char *expected)
{
    if (config.problem[0] == '\0') {
        snprintf(config.problem, sizeof config.problem, "%s is '%.64s', expected %s", name, value,
                 expected);
    }
}

bool size_parse(const char *text, size_t *bytes)
{
    static const char units[] = "KMGT";
    char *end;
    if (*text < '0' || *text > '9') {
        return false;
    }
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    end += unit != NULL;
    bool thousands = unit != NULL && strcmp(end, "B") == 0; /* 8GB is 8 * 1000^3 bytes; 8G and 8GiB are 8 * 1024^3 */
    size_t factor = 1;
    for (const char *each = units; unit != NULL && each <= unit; each++) {
        factor *= thousands ? 1000 : 1024;
    }
    bool known = *end == '\0' || thousands || (unit != NULL && strcmp(end, "iB") == 0);
    if (errno != 0 || !known || number > SIZE_MAX / factor) {
        return false;
    }
    *bytes = (size_t)number * factor;
    return true;
}

static void text_read(const char *name, char *out, size_t size)
{
    const char *value = setting(name);
    if (value == NULL || *value == '\0') {
        return;
    }
    if (strlen(value) >= size) {
        problem_note(name, value, "a shorter text");
        return;
    }
    memcpy(out, value, strlen(value) + 1);
}

static void flag_read(const char *name, bool *out)
{
    const char *value = setting(name);
    if (value == NULL || *value == '\0') {
        return;
    }
    if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0) {
        problem_note(name, value, "0 or 1");
        return;
    }
    *out = value[0] == '1';
}

static void devices_read(void)
{
    const char *value = setting("ACL_SIM_DEVICES");
    size_t count;
    if (value == NULL || *value == '\0') {
        return;
    }
    if (!size_parse(value, &count) || count > DEVICE_MAX) {
        problem_note("ACL_SIM_DEVICES", value, "a number from 0 to 64");
        return;
    }
    config.devices = (uint32_t)count;
}

static void capacity_read(void)
{
    const char *value = setting("ACL_SIM_MEMORY");
    char copy[256];
    if (value == NULL || *value == '\0') {
        return;
    }
    snprintf(copy, sizeof copy, "%s", value);
    char *rest = NULL;
    char *word = strtok_r(copy, ",", &rest);
    size_t bytes = 0;
    for (size_t i = 0; i < DEVICE_MAX; i++) {
        if (word != NULL && (!size_parse(word, &bytes) || bytes == 0)) {
            problem_note("ACL_SIM_MEMORY", value, "sizes such as 32G or 32G,16G");
            return;
        }
        config.capacity[i] = bytes;
        word = word != NULL ? strtok_r(NULL, ",", &rest) : NULL;
    }
}

static void pinned_read(void)
{
    const char *value = setting("ACL_SIM_PINNED");
    config.pinned = SIZE_MAX;
    if (value == NULL || *value == '\0' || strcmp(value, "unlimited") == 0) {
        return;
    }
    if (!size_parse(value, &config.pinned)) {
        problem_note("ACL_SIM_PINNED", value, "a size such as 8G, or unlimited");
    }
}

/* Reads ASCEND_RT_VISIBLE_DEVICES: the process can use only the listed devices, which it knows as 0, 1 and so
 * on. Reading stops at the first number that is repeated or that no device has. */
static void visible_read(void)
{
    const char *value = getenv("ASCEND_RT_VISIBLE_DEVICES");
    size_t capacity[DEVICE_MAX];
    bool seen[DEVICE_MAX] = {false};
    uint32_t count = 0;
    if (value == NULL || *value == '\0') {
        return;
    }
    memcpy(capacity, config.capacity, sizeof capacity);
    for (;;) {
        char *end = NULL;
        unsigned long device = *value >= '0' && *value <= '9' ? strtoul(value, &end, 10) : DEVICE_MAX;
        if (device >= config.devices || seen[device] || (*end != ',' && *end != '\0')) {
            break;
        }
        seen[device] = true;
        config.card[count] = (int32_t)device;
        config.capacity[count++] = capacity[device];
        if (*end == '\0') {
            break;
        }
        value = end + 1;
    }
    config.devices = count;
}

static void device_code_read(void)
{
    const char *value = setting("ACL_SIM_DEVICE_CODE");
    if (value == NULL || *value == '\0' || strcmp(value, "refuse") == 0) {
        return;
    }
    if (strcmp(value, "skip") != 0) {
        problem_note("ACL_SIM_DEVICE_CODE", value, "refuse or skip");
        return;
    }
    config.device_code = DEVICE_CODE_SKIP;
}

static void soc_read(void)
{
    char name[sizeof config.soc] = "Ascend910B1";
    text_read("ACL_SIM_SOC", name, sizeof name);
    if (soc_find(name) == NULL) {
        problem_note("ACL_SIM_SOC", name, "a chip of a known family, as Ascend910B1");
        return;
    }
    strcpy(config.soc, name);
}

/* Reads all settings anew. */
static void config_fill(void)
{
    memset(&config, 0, sizeof config);
    config.devices = 2;
    for (size_t i = 0; i < DEVICE_MAX; i++) {
        config.capacity[i] = (size_t)32 << 30;
        config.card[i] = (int32_t)i;
    }
    strcpy(config.soc, "Ascend910B1");
    strcpy(config.version, "9.0.0");
    config.allocators = true;
    devices_read();
    capacity_read();
    pinned_read();
    config.cards = config.devices;
    visible_read();
    soc_read();
    text_read("ACL_SIM_VERSION", config.version, sizeof config.version);
    flag_read("ACL_SIM_STRICT", &config.strict);
    config.strict = config.strict || check_on(CHECK_MEM);
    flag_read("ACL_SIM_ALLOCATORS", &config.allocators);
    flag_read("ACL_SIM_STRICT_ALLOCATORS", &config.strict_allocators);
    flag_read("ACL_SIM_REUSE_HANDLES", &config.reuse_handles);
    device_code_read();
}

__attribute__((constructor(103))) static void config_read(void)
{
    config_fill();
}

aclError setting_change(const char *name, const char *value)
{
    size_t slot = 0;
    while (slot < OVERRIDES && overrides[slot].name[0] != '\0' &&
           strcmp(overrides[slot].name, name) != 0) {
        slot++;
    }
    if (slot == OVERRIDES || strlen(name) >= OVERRIDE_NAME || strlen(value) >= OVERRIDE_VALUE) {
        return fail(ACL_ERROR_INVALID_PARAM, "%.64s: too many settings, or too long", name);
    }
    char before[OVERRIDE_VALUE];
    bool was_set = overrides[slot].name[0] != '\0';
    memcpy(before, overrides[slot].value, sizeof before);
    strcpy(overrides[slot].name, name);
    strcpy(overrides[slot].value, value);
    config_fill();
    if (config.problem[0] == '\0') {
        return ACL_SUCCESS;
    }
    aclError status = fail(ACL_ERROR_INVALID_PARAM, "%s", config.problem);
    memcpy(overrides[slot].value, before, sizeof before);
    if (!was_set) {
        overrides[slot].name[0] = '\0';
    }
    config_fill();
    return status;
}
