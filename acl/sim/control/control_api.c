/* control_api.c: the parts of the control door that are about settings, counters and handles.

   Thread rule: counters and handle counts are read without locks, so a reading is of one moment per
   number, not of all at once. */
#include "control/control_api.h"
#include "memory/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "streams/device.h"
#include "generated/exports.h"
#include "base/soc.h"

/* Settings that take effect when the library reads its configuration. */
static const char *const configured[] = {
    "ACL_SIM_DEVICES", "ACL_SIM_MEMORY",     "ACL_SIM_SOC",
    "ACL_SIM_VERSION", "ACL_SIM_STRICT",     "ACL_SIM_STRICT_ALLOCATORS",
    "ACL_SIM_ALLOCATORS", "ACL_SIM_DEVICE_CODE", "ACL_SIM_REUSE_HANDLES",
};

static bool is_configured(const char *variable)
{
    for (size_t i = 0; i < sizeof configured / sizeof configured[0]; i++) {
        if (strcmp(configured[i], variable) == 0) {
            return true;
        }
    }
    return false;
}

aclError acl_sim_set(const char *variable, const char *value)
{
    REQUIRE(variable);
    REQUIRE(value);
    if (strcmp(variable, "ACL_SIM_TRACE") == 0) {
        return trace_open(value, true);
    }
    if (strcmp(variable, "ACL_SIM_LATENCY") == 0) {
        return latency_choose(value);
    }
    if (!is_configured(variable)) {
        return fail(ACL_ERROR_INVALID_PARAM, "there is no setting %.64s", variable);
    }
    if (devices_in_use()) {
        return fail(ACL_ERROR_RELATIVE_RESOURCE_NOT_CLEARED,
                    "%s can be set only while no device is in use", variable);
    }
    TRY(setting_change(variable, value));
    memory_config_changed();
    return ACL_SUCCESS;
}

static size_t capacity_tell(char *value, size_t size)
{
    char sizes[DEVICE_MAX * 24] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < config.devices; i++) {
        used += (size_t)snprintf(sizes + used, sizeof sizes - used, "%s%zu", i ? "," : "",
                                 config.capacity[i]);
    }
    return (size_t)snprintf(value, size, "%s", sizes);
}

size_t acl_sim_get(const char *variable, char *value, size_t size)
{
    const struct {
        const char *variable;
        bool set;
    } flags[] = {
        {"ACL_SIM_STRICT", config.strict},
        {"ACL_SIM_STRICT_ALLOCATORS", config.strict_allocators},
        {"ACL_SIM_ALLOCATORS", config.allocators},
        {"ACL_SIM_REUSE_HANDLES", config.reuse_handles},
    };
    const struct {
        const char *variable, *text;
    } texts[] = {
        {"ACL_SIM_SOC", config.soc},
        {"ACL_SIM_VERSION", config.version},
        {"ACL_SIM_LATENCY", latency_chosen()},
        {"ACL_SIM_DEVICE_CODE", config.device_code == DEVICE_CODE_SKIP ? "skip" : "refuse"},
    };
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        if (strcmp(variable, flags[i].variable) == 0) {
            return (size_t)snprintf(value, size, "%d", flags[i].set);
        }
    }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (strcmp(variable, texts[i].variable) == 0) {
            return (size_t)snprintf(value, size, "%s", texts[i].text);
        }
    }
    if (strcmp(variable, "ACL_SIM_DEVICES") == 0) {
        return (size_t)snprintf(value, size, "%u", config.devices);
    }
    return strcmp(variable, "ACL_SIM_MEMORY") == 0 ? capacity_tell(value, size) : 0;
}

const char *acl_sim_message(void)
{
    return error_peek();
}

const char *acl_sim_function(size_t index)
{
    return index < FN_COUNT ? function_names[index] : NULL;
}

uint64_t acl_sim_calls(size_t index)
{
    return index < FN_COUNT ? atomic_load_explicit(&gate_calls[index], memory_order_relaxed) : 0;
}

void acl_sim_calls_clear(void)
{
    for (size_t i = 0; i < FN_COUNT; i++) {
        atomic_store_explicit(&gate_calls[i], 0, memory_order_relaxed);
    }
}

const char *acl_sim_kind(size_t index)
{
    return index < HANDLE_KINDS ? handle_kind_name((HandleKind)index) : NULL;
}

size_t acl_sim_live(size_t index)
{
    return index < HANDLE_KINDS ? handle_live((HandleKind)index) : 0;
}

const char *acl_sim_soc(size_t index)
{
    return soc_name_at(index);
}

/* ---- what the environment asks for ----------------------------------------------------------- */

static void complain(const char *variable)
{
    fprintf(stderr, "acl.sim: %s: %s", variable, sim_aclGetRecentErrMsg());
}

static void faults_from_environment(void)
{
    char copy[4096];
    const char *text = getenv("ACL_SIM_FAULTS");
    uint32_t number;
    if (text == NULL || *text == '\0') {
        return;
    }
    snprintf(copy, sizeof copy, "%s", text);
    char *rest = NULL;
    for (char *rule = strtok_r(copy, ",", &rest); rule != NULL; rule = strtok_r(NULL, ",", &rest)) {
        if (acl_sim_fault_add(rule, &number) != ACL_SUCCESS) {
            complain("ACL_SIM_FAULTS");
        }
    }
}

__attribute__((constructor(105))) static void environment_apply(void)
{
    const char *trace = getenv("ACL_SIM_TRACE");
    const char *latency = getenv("ACL_SIM_LATENCY");
    faults_from_environment();
    if (trace != NULL && *trace != '\0' && trace_open(trace, false) != ACL_SUCCESS) {
        complain("ACL_SIM_TRACE");
    }
    if (latency != NULL && *latency != '\0' && latency_choose(latency) != ACL_SUCCESS) {
        complain("ACL_SIM_LATENCY");
    }
}

/* A forked child counts its own calls. */
__attribute__((constructor(105))) static void counters_watch(void)
{
    pthread_atfork(NULL, NULL, acl_sim_calls_clear);
}

/* ACL_SIM_COUNTERS=FILE ('-': standard error): the counters as a line of JSON when the process
   ends.  Programs that this one started add a line each, or have a file each if FILE has a "%p". */
__attribute__((destructor)) static void counters_write(void)
{
    const char *path = getenv("ACL_SIM_COUNTERS");
    if (path == NULL || *path == '\0') {
        return;
    }
    bool to_stderr = strcmp(path, "-") == 0;
    char *line = NULL;
    size_t length = 0;
    int fd = to_stderr ? STDERR_FILENO : output_open(path, false);
    FILE *text = fd < 0 ? NULL : open_memstream(&line, &length);
    if (text == NULL) {
        fprintf(stderr, "acl.sim: ACL_SIM_COUNTERS: cannot write %s\n", path);
        return;
    }
    const char *separator = "{";
    for (size_t i = 0; i < FN_COUNT; i++) {
        if (acl_sim_calls(i) != 0) {
            fprintf(text, "%s\"%s\": %llu", separator, function_names[i],
                    (unsigned long long)acl_sim_calls(i));
            separator = ", ";
        }
    }
    fputs(*separator == '{' ? "{}\n" : "}\n", text);
    /* In one piece, so that the lines of two processes do not mix. */
    if (fclose(text) != 0 || write(fd, line, length) != (ssize_t)length) {
        fprintf(stderr, "acl.sim: ACL_SIM_COUNTERS: cannot write %s\n", path);
    }
    free(line);
    if (!to_stderr) {
        close(fd);
    }
}
