/* aclInit and aclFinalize, their callbacks and the configuration file.
 *
 * As observed with the runtime, aclInit runs the registered callbacks part by part: the model part;
 * the op executor, only if there is a file; then DVPP and all other parts. The runtime's
 * aclFinalize runs the callbacks of the compiler, the model part and DVPP; the simulator's also
 * runs those of the other parts. If a callback fails, the call returns its error and has no other
 * effect. A callback that is registered after aclInit is called at once, with the file's text. A
 * second aclInit returns 100002; it only adds to the count of aclFinalizeReference. A process has
 * one configuration: after aclFinalize, aclInit refuses a file whose text differs from that of the
 * first one.
 *
 * Thread rule: `lock` guards the state, the texts and the callbacks; callbacks run outside it. */
#include "base/checks.h"
#include "base/json.h"
#include "generated/exports.h"
#include "streams/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CONFIG_MAX = 10 << 20, NESTING_MAX = 10, VALUE_MAX = 32 };

typedef struct Callback {
    struct Callback *next;
    aclRegisterCallbackType type;
    aclInitCallbackFunc init; /* either this or `finalize` is set, not both */
    aclFinalizeCallbackFunc finalize;
    void *argument;
} Callback;

FILE_LOCK(lock);
static pthread_cond_t settled = PTHREAD_COND_INITIALIZER;
static bool starting;    /* the first aclInit is under way, in the thread `starter` */
static pthread_t starter;
static uint64_t references;
static bool finalized;
static Callback *callbacks; /* list, in the order of registration */
static char *text_now;      /* configuration of the newest aclInit; "" if it had no file */
static char *text_first;    /* configuration of the first aclInit that succeeded */

bool acl_initialised(void)
{
    pthread_mutex_lock(&lock);
    bool initialised = references != 0;
    pthread_mutex_unlock(&lock);
    return initialised;
}

/* ---- callbacks ------------------------------------------------------------------------------- */

static bool callback_is_alike(const Callback *a, const Callback *b)
{
    return a->type == b->type && (a->init != NULL) == (b->init != NULL);
}

static aclError callback_add(const Callback *wanted, bool *is_late)
{
    Callback *made = malloc(sizeof *made);
    if (made == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "out of host memory");
    }
    *made = *wanted;
    made->next = NULL;
    pthread_mutex_lock(&lock);
    Callback **link = &callbacks;
    bool taken = false;
    for (; *link != NULL; link = &(*link)->next) {
        taken |= made->type != ACL_REG_TYPE_OTHER && callback_is_alike(*link, made);
    }
    if (!taken) {
        *link = made;
    }
    *is_late = references != 0;
    pthread_mutex_unlock(&lock);
    if (taken) {
        free(made);
        return fail(ACL_ERROR_INTERNAL_ERROR, "a callback is already registered for type %d", (int)wanted->type);
    }
    return ACL_SUCCESS;
}

static aclError callback_remove(const Callback *unwanted)
{
    pthread_mutex_lock(&lock);
    Callback **link = &callbacks;
    while (*link != NULL
           && ((*link)->type != unwanted->type || (*link)->init != unwanted->init
               || (*link)->finalize != unwanted->finalize)) {
        link = &(*link)->next;
    }
    Callback *found = *link;
    if (found != NULL) {
        *link = found->next;
    }
    pthread_mutex_unlock(&lock);
    free(found);
    return found != NULL ? ACL_SUCCESS
                         : fail(ACL_ERROR_INTERNAL_ERROR, "that callback is not registered");
}

aclError sim_aclInitCallbackRegister(aclRegisterCallbackType type, aclInitCallbackFunc cbFunc,
                                     void *userData)
{
    bool is_late;
    Callback wanted = {NULL, type, cbFunc, NULL, userData};
    REQUIRE(cbFunc != NULL);
    TRY(callback_add(&wanted, &is_late));
    if (is_late) {
        pthread_mutex_lock(&lock);
        char *text = strdup(text_now != NULL ? text_now : "");
        pthread_mutex_unlock(&lock);
        cbFunc(text != NULL ? text : "", text != NULL ? strlen(text) : 0, userData);
        free(text);
    }
    return ACL_SUCCESS;
}

aclError sim_aclInitCallbackUnRegister(aclRegisterCallbackType type, aclInitCallbackFunc cbFunc)
{
    Callback unwanted = {NULL, type, cbFunc, NULL, NULL};
    REQUIRE(cbFunc != NULL);
    return callback_remove(&unwanted);
}

aclError sim_aclFinalizeCallbackRegister(aclRegisterCallbackType type,
                                         aclFinalizeCallbackFunc cbFunc, void *userData)
{
    bool is_late;
    Callback wanted = {NULL, type, NULL, cbFunc, userData};
    REQUIRE(cbFunc != NULL);
    return callback_add(&wanted, &is_late);
}

aclError sim_aclFinalizeCallbackUnRegister(aclRegisterCallbackType type,
                                           aclFinalizeCallbackFunc cbFunc)
{
    Callback unwanted = {NULL, type, NULL, cbFunc, NULL};
    REQUIRE(cbFunc != NULL);
    return callback_remove(&unwanted);
}

/* Copies the `index`th callback of that type; false if there are fewer. */
static bool callback_get(aclRegisterCallbackType type, bool at_init, size_t index, Callback *out)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (const Callback *c = callbacks; c != NULL && !found; c = c->next) {
        if (c->type == type && (c->init != NULL) == at_init && index-- == 0) {
            *out = *c;
            found = true;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static aclError callbacks_run_init(aclRegisterCallbackType type, const char *text)
{
    Callback call;
    for (size_t k = 0; callback_get(type, true, k, &call); k++) {
        TRY(call.init(text, strlen(text), call.argument));
    }
    return ACL_SUCCESS;
}

static aclError callbacks_run_finalize(void)
{
    static const aclRegisterCallbackType order[] = {ACL_REG_TYPE_ACL_OP_COMPILER,
                                                    ACL_REG_TYPE_ACL_MODEL, ACL_REG_TYPE_ACL_DVPP,
                                                    ACL_REG_TYPE_OTHER};
    Callback call;
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        for (size_t k = 0; callback_get(order[i], false, k, &call); k++) {
            TRY(call.finalize(call.argument));
        }
    }
    return ACL_SUCCESS;
}

/* ---- the configuration file ------------------------------------------------------------------ */

/* True if objects or arrays are nested deeper than the runtime accepts. Brackets inside quotes
 * count too, as in the runtime. */
static bool text_is_deep(const char *text)
{
    size_t objects = 0, arrays = 0;
    for (; *text != '\0'; text++) {
        objects += *text == '{';
        arrays += *text == '[';
        objects -= *text == '}' && objects != 0;
        arrays -= *text == ']' && arrays != 0;
        if (objects > NESTING_MAX || arrays > NESTING_MAX) {
            return true;
        }
    }
    return false;
}

/* Reads the file; the caller frees the text. */
static aclError file_read(const char *path, char **text)
{
    struct stat about;
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode) || about.st_size > CONFIG_MAX) {
        return fail(ACL_ERROR_INVALID_FILE, "%.200s is not a file of at most 10 MiB", path);
    }
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return fail(ACL_ERROR_INVALID_FILE, "cannot open %.200s", path);
    }
    char *buffer = malloc((size_t)about.st_size + 1);
    size_t length = buffer != NULL ? fread(buffer, 1, (size_t)about.st_size, file) : 0;
    fclose(file);
    if (buffer == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "out of host memory");
    }
    buffer[length] = '\0';
    *text = buffer;
    return ACL_SUCCESS;
}

/* True for "0", and for digits that do not begin with 0. */
static bool is_plain_number(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    return digits != 0 && text[digits] == '\0' && (text[0] != '0' || digits == 1);
}

/* Reads the device for threads that have set none: {"defaultDevice": {"default_device": "1"}}. */
static aclError default_device_apply(const char *text)
{
    static const char *const path[] = {"defaultDevice", "default_device", NULL};
    char value[VALUE_MAX];
    JsonSort sort = json_find(text, path, value, sizeof value);
    if (sort == JSON_ABSENT) {
        return ACL_SUCCESS;
    }
    if (sort != JSON_STRING || !is_plain_number(value)) {
        return fail(ACL_ERROR_FAILURE, "default_device is %s, expected digits in quotes", value);
    }
    unsigned long device = strtoul(value, NULL, 10);
    TRY(device_check(device <= INT32_MAX ? (int32_t)device : INT32_MAX));
    device_set_default((int32_t)device);
    return ACL_SUCCESS;
}

/* Checks the setting {"err_msg_mode": "0"} or "1". It says where messages are kept; the simulator
 * keeps them per thread in both modes. */
static aclError error_mode_check(const char *text)
{
    static const char *const path[] = {"err_msg_mode", NULL};
    char value[VALUE_MAX];
    JsonSort sort = json_find(text, path, value, sizeof value);
    bool known = sort == JSON_STRING && (strcmp(value, "0") == 0 || strcmp(value, "1") == 0);
    if (sort != JSON_ABSENT && !known) {
        return fail(ACL_ERROR_INVALID_PARAM, "err_msg_mode is %s, expected \"0\" or \"1\"", value);
    }
    return ACL_SUCCESS;
}

/* Keeps the text for later callbacks; refuses a text that differs from the first. */
static aclError text_take(char *text)
{
    pthread_mutex_lock(&lock);
    free(text_now);
    text_now = text;
    bool differs = text_first != NULL && strcmp(text_first, text) != 0;
    pthread_mutex_unlock(&lock);
    return differs ? fail(ACL_ERROR_INVALID_PARAM,
                          "the configuration differs from the one of this process's first aclInit")
                   : ACL_SUCCESS;
}

static aclError init_with_text(bool has_file, const char *text)
{
    if (*text != '\0' && (text_is_deep(text) || !json_is_valid(text))) {
        return fail(ACL_ERROR_PARSE_FILE, "the configuration file is not valid JSON");
    }
    TRY(error_mode_check(text));
    TRY(callbacks_run_init(ACL_REG_TYPE_ACL_MODEL, text));
    if (has_file) {
        TRY(callbacks_run_init(ACL_REG_TYPE_ACL_OP_EXECUTOR, text));
        TRY(default_device_apply(text));
    }
    TRY(callbacks_run_init(ACL_REG_TYPE_ACL_DVPP, text));
    return callbacks_run_init(ACL_REG_TYPE_OTHER, text);
}

/* Does the work of the first aclInit. Gives a copy of the configuration text, which the caller frees. */
static aclError init_first(const char *path, char **text)
{
    bool has_file = path != NULL && *path != '\0';
    char *kept = NULL;
    if (config.problem[0] != '\0') {
        return fail(ACL_ERROR_INVALID_PARAM, "%s", config.problem);
    }
    if (has_file) {
        TRY(file_read(path, &kept));
    } else {
        kept = strdup("");
    }
    *text = kept != NULL ? strdup(kept) : NULL;
    if (*text == NULL) {
        free(kept);
        return fail(ACL_ERROR_BAD_ALLOC, "out of host memory");
    }
    TRY(text_take(kept));
    return init_with_text(has_file, *text);
}

/* ---- init and finalize ----------------------------------------------------------------------- */

/* True if this call is not the first. If several threads call at the same time, one call is the
 * first, and the others wait for it. (A callback of the first call may call aclInit itself.) */
static bool init_again(void)
{
    pthread_mutex_lock(&lock);
    bool inside = starting && pthread_equal(starter, pthread_self());
    while (starting && !inside) {
        pthread_cond_wait(&settled, &lock);
    }
    bool again = inside || references != 0;
    references += references != 0;
    if (!again) {
        starting = true;
        starter = pthread_self();
    }
    pthread_mutex_unlock(&lock);
    return again;
}

aclError sim_aclInit(const char *configPath)
{
    if (init_again()) {
        return ACL_ERROR_REPEAT_INITIALIZE; /* no message: callers treat this status as success */
    }
    char *text = NULL;
    aclError status = init_first(configPath, &text);
    pthread_mutex_lock(&lock);
    starting = false;
    pthread_cond_broadcast(&settled);
    if (status == ACL_SUCCESS) {
        references++;
        finalized = false;
        if (text_first == NULL) {
            text_first = text;
            text = NULL;
        }
    }
    pthread_mutex_unlock(&lock);
    free(text);
    return status;
}

static aclError finalize_last(void)
{
    TRY(callbacks_run_finalize());
    if (check_on(CHECK_LEAK)) {
        checks.finalized();
    }
    pthread_mutex_lock(&lock);
    references = 0;
    finalized = true;
    pthread_mutex_unlock(&lock);
    return ACL_SUCCESS;
}

aclError sim_aclFinalize(void)
{
    pthread_mutex_lock(&lock);
    bool again = finalized;
    pthread_mutex_unlock(&lock);
    if (again) {
        return fail(ACL_ERROR_REPEAT_FINALIZE, "aclFinalize was called before");
    }
    return finalize_last();
}

aclError sim_aclFinalizeReference(uint64_t *refCount)
{
    pthread_mutex_lock(&lock);
    uint64_t before = references;
    references -= before > 1;
    pthread_mutex_unlock(&lock);
    aclError status = ACL_SUCCESS;
    if (before == 0) {
        status = fail(ACL_ERROR_REPEAT_FINALIZE, "aclInit was not called");
    } else if (before == 1) {
        status = finalize_last();
    }
    if (refCount != NULL) {
        pthread_mutex_lock(&lock);
        *refCount = references;
        pthread_mutex_unlock(&lock);
    }
    return status;
}
