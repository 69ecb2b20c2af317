/* Callbacks for state changes of streams and devices, each registered under a name.
 *
 * Registering under a name that is in use gives 107000. A NULL callback removes the name; this
 * succeeds even if the name was never registered.
 *
 * Thread rule: `lock` guards the lists.  Callbacks run on the thread that caused the change,
 * outside the lock, from a copy of the list. */
#include "streams/state_callbacks.h"
#include "streams/callback.h"
#include "generated/exports.h"

#include <stdlib.h>
#include <string.h>

typedef union Function {
    aclrtStreamStateCallback stream;
    aclrtDeviceStateCallback device;
    aclrtDeviceTaskAbortCallback abort;
} Function;

typedef struct Entry {
    struct Entry *next;
    Function function;
    void *argument;
    char name[];
} Entry;

typedef struct Registry {
    Entry *first;    /* sorted by name */
    _Atomic size_t count;
} Registry;

FILE_LOCK(lock);
static Registry streams, devices, aborts;

static Entry *entry_make(const char *name, Function function, void *argument)
{
    Entry *made = malloc(sizeof *made + strlen(name) + 1);
    if (made != NULL) {
        made->function = function;
        made->argument = argument;
        strcpy(made->name, name);
    }
    return made;
}

/* Returns the link to the first entry whose name is equal to `name` or sorted after it; the lock
 * is held. */
static Entry **entry_place(Registry *registry, const char *name)
{
    Entry **link = &registry->first;
    while (*link != NULL && strcmp((*link)->name, name) < 0) {
        link = &(*link)->next;
    }
    return link;
}

static void registry_remove(Registry *registry, const char *name)
{
    pthread_mutex_lock(&lock);
    Entry **link = entry_place(registry, name);
    Entry *found = *link;
    if (found != NULL && strcmp(found->name, name) == 0) {
        *link = found->next;
        atomic_fetch_sub(&registry->count, 1);
        free(found);
    }
    pthread_mutex_unlock(&lock);
}

static aclError registry_add(Registry *registry, const char *name, Function function,
                             void *argument)
{
    Entry *made = entry_make(name, function, argument);
    if (made == NULL) {
        return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "out of host memory");
    }
    pthread_mutex_lock(&lock);
    Entry **link = entry_place(registry, name);
    bool taken = *link != NULL && strcmp((*link)->name, name) == 0;
    if (!taken) {
        made->next = *link;
        *link = made;
        atomic_fetch_add(&registry->count, 1);
    }
    pthread_mutex_unlock(&lock);
    if (taken) {
        free(made);
        return fail(ACL_ERROR_RT_PARAM_INVALID, "regName '%.64s' is taken", name);
    }
    return ACL_SUCCESS;
}

/* Returns a copy of the entries, which the caller frees; NULL if there are none. */
static Entry *registry_copy(const Registry *registry, size_t *count)
{
    if (SIM_LIKELY(atomic_load(&registry->count) == 0)) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    *count = atomic_load(&registry->count);
    Entry *copy = malloc(*count * sizeof *copy);
    size_t at = 0;
    for (const Entry *e = registry->first; e != NULL && copy != NULL; e = e->next) {
        copy[at].function = e->function;
        copy[at++].argument = e->argument;
    }
    pthread_mutex_unlock(&lock);
    return copy;
}

void stream_state_tell(Stream *stream, aclrtStreamState state)
{
    size_t count;
    Entry *copy = registry_copy(&streams, &count);
    for (size_t i = 0; copy != NULL && i < count && callback_begin(); i++) {
        copy[i].function.stream(stream, state, copy[i].argument);
        callback_end();
    }
    free(copy);
}

void device_state_tell(int32_t device, aclrtDeviceState state)
{
    size_t count;
    Entry *copy = registry_copy(&devices, &count);
    for (size_t i = 0; copy != NULL && i < count && callback_begin(); i++) {
        copy[i].function.device(device, state, copy[i].argument);
        callback_end();
    }
    free(copy);
}

int32_t device_abort_tell(int32_t device, aclrtDeviceTaskAbortStage stage, uint32_t timeout_ms)
{
    size_t count;
    int32_t first = 0;
    Entry *copy = registry_copy(&aborts, &count);
    for (size_t i = 0; copy != NULL && i < count && callback_begin(); i++) {
        int32_t result = copy[i].function.abort(device, stage, timeout_ms, copy[i].argument);
        first = first == 0 ? result : first;
        callback_end();
    }
    free(copy);
    return first;
}

aclError sim_aclrtRegStreamStateCallback(const char *regName, aclrtStreamStateCallback callback,
                                         void *args)
{
    REQUIRE(regName != NULL);
    if (callback == NULL) {
        registry_remove(&streams, regName);
        return ACL_SUCCESS;
    }
    return registry_add(&streams, regName, (Function){.stream = callback}, args);
}

aclError sim_aclrtRegDeviceStateCallback(const char *regName, aclrtDeviceStateCallback callback,
                                         void *args)
{
    REQUIRE(regName != NULL);
    if (callback == NULL) {
        registry_remove(&devices, regName);
        return ACL_SUCCESS;
    }
    return registry_add(&devices, regName, (Function){.device = callback}, args);
}

aclError sim_aclrtSetDeviceTaskAbortCallback(const char *regName,
                                             aclrtDeviceTaskAbortCallback callback, void *args)
{
    REQUIRE(regName != NULL);
    if (callback == NULL) {
        registry_remove(&aborts, regName);
        return ACL_SUCCESS;
    }
    return registry_add(&aborts, regName, (Function){.abort = callback}, args);
}
