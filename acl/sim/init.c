/* aclInit and aclFinalize, their callbacks and the configuration file.
 *
 * Observed with the runtime: aclInit calls the callbacks of the model part, of DVPP and the others,
 * aclFinalize those of the compiler, the model part and DVPP; an error of one is the result of the
 * call, which then has not happened.  A callback that is registered after aclInit is called at
 * once. A second aclInit gives 100002 and counts for aclFinalizeReference only.
 *
 * Thread rule: `lock` guards the state and the callbacks; they run outside it. */
#include "device.h"
#include "exports.h"
#include "json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_MAX = 1 << 20 };

typedef struct Callback {
    struct Callback *next;
    aclRegisterCallbackType type;
    aclInitCallbackFunc init; /* one of the two */
    aclFinalizeCallbackFunc finalize;
    void *argument;
} Callback;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t references;
static bool finalized;
static Callback *callbacks; /* in the order of registration */

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
        return fail(ACL_ERROR_INTERNAL_ERROR, "type %d has a callback already", (int)wanted->type);
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
        cbFunc("", 0, userData);
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

/* A copy of the `index`th callback of that type; false if there are fewer. */
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

static aclError callbacks_run_init(const char *text)
{
    static const aclRegisterCallbackType order[] = {ACL_REG_TYPE_ACL_MODEL, ACL_REG_TYPE_ACL_DVPP,
                                                    ACL_REG_TYPE_OTHER};
    Callback call;
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        for (size_t k = 0; callback_get(order[i], true, k, &call); k++) {
            TRY(call.init(text, strlen(text), call.argument));
        }
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

/* The file's text, to be freed. */
static aclError file_read(const char *path, char **text)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return fail(ACL_ERROR_INVALID_FILE, "cannot open %.200s", path);
    }
    char *buffer = malloc(CONFIG_MAX + 1);
    size_t length = buffer != NULL ? fread(buffer, 1, CONFIG_MAX + 1, file) : 0;
    fclose(file);
    if (buffer == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "out of host memory");
    }
    if (length > CONFIG_MAX) {
        free(buffer);
        return fail(ACL_ERROR_INVALID_FILE_SIZE, "%.200s is larger than 1 MiB", path);
    }
    buffer[length] = '\0';
    *text = buffer;
    return ACL_SUCCESS;
}

/* {"defaultDevice": {"default_device": "1"}}: for threads that set none. */
static aclError default_device_apply(const char *text)
{
    static const char *const path[] = {"defaultDevice", "default_device", NULL};
    char value[32];
    char *end;
    if (!json_find(text, path, value, sizeof value)) {
        return ACL_SUCCESS;
    }
    long device = strtol(value, &end, 10);
    if (end == value || *end != '\0' || device > INT32_MAX || device < INT32_MIN) {
        return fail(ACL_ERROR_INVALID_PARAM, "default_device is '%s', expected a number", value);
    }
    TRY(device_check((int32_t)device));
    device_set_default((int32_t)device);
    return ACL_SUCCESS;
}

static aclError init_with_text(const char *path, const char *text)
{
    if (*text != '\0' || path != NULL) {
        if (!json_is_valid(text)) {
            return fail(ACL_ERROR_PARSE_FILE, "%.200s is no valid JSON", path);
        }
        TRY(default_device_apply(text));
    }
    return callbacks_run_init(text);
}

static aclError init_first(const char *path)
{
    char *text = NULL;
    if (config.problem[0] != '\0') {
        return fail(ACL_ERROR_INVALID_PARAM, "%s", config.problem);
    }
    if (path == NULL || *path == '\0') {
        return init_with_text(NULL, "");
    }
    TRY(file_read(path, &text));
    aclError status = init_with_text(path, text);
    free(text);
    return status;
}

/* ---- init and finalize ----------------------------------------------------------------------- */

aclError sim_aclInit(const char *configPath)
{
    pthread_mutex_lock(&lock);
    bool again = references != 0;
    references += again;
    pthread_mutex_unlock(&lock);
    if (again) {
        return ACL_ERROR_REPEAT_INITIALIZE; /* no message: callers take it for success */
    }
    TRY(init_first(configPath));
    pthread_mutex_lock(&lock);
    references++;
    finalized = false;
    pthread_mutex_unlock(&lock);
    return ACL_SUCCESS;
}

static aclError finalize_last(void)
{
    TRY(callbacks_run_finalize());
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
    uint64_t left = before != 0 ? before - 1 : 0;
    if (refCount != NULL) {
        *refCount = left;
    }
    if (before == 0) {
        return fail(ACL_ERROR_REPEAT_FINALIZE, "aclInit was not called");
    }
    return left == 0 ? finalize_last() : ACL_SUCCESS;
}
