/* allocator.c: the registry of users' allocators (aclrtAllocator*).

   A descriptor collects five pointers.  Registering copies them into a map whose key is the raw
   stream handle.  As in the runtime, no call needs a device or a context, the handle is not
   checked, and an entry remains when its stream is destroyed or the device is reset.

   Registering requires the allocator object, alloc, free and getAddrFromBlock.  The runtime has two
   traps, which exist here too. First, allocAdvise may be missing, but is called: here the call
   prints a message and aborts.  Second, an entry outlives its stream.  The strict allocator mode
   refuses both: registering without allocAdvise (100000), and registering or looking up a stream
   that is not alive (107017).

   Thread rule: one mutex around the map, a leaf lock; it is never held over a user's function
   (nothing here calls one).  A descriptor belongs to the thread that fills it. */
#include <stdio.h>
#include <stdlib.h>

#include "tensors/allocator.h"
#include "base/core.h"
#include "generated/exports.h"
#include "base/soc.h"

typedef struct Descriptor {
    Allocator allocator;
} Descriptor;

typedef struct Entry {
    struct Entry *next;
    aclrtStream stream;
    Registration registration;
} Entry;

enum { BUCKETS = 1024 }; /* a power of two */

FILE_LOCK(registry_lock);
static Entry *registry[BUCKETS];

static void *unset_advise(aclrtAllocator allocator, size_t size, void *address)
{
    (void)allocator;
    (void)size;
    (void)address;
    fprintf(stderr,
            "acl.sim: an allocator's allocAdvise function was called but never set: in the runtime a "
            "new descriptor's function pointers are uninitialised, so set all five\n");
    abort();
}

static Entry **registry_slot(aclrtStream stream)
{
    uintptr_t bits = (uintptr_t)stream;
    Entry **slot = &registry[(bits ^ bits >> 6 ^ bits >> 16) & (BUCKETS - 1)];
    while (*slot != NULL && (*slot)->stream != stream) {
        slot = &(*slot)->next;
    }
    return slot;
}

bool allocator_find(aclrtStream stream, Registration *registration)
{
    pthread_mutex_lock(&registry_lock);
    const Entry *entry = *registry_slot(stream);
    if (entry != NULL) {
        *registration = entry->registration;
    }
    pthread_mutex_unlock(&registry_lock);
    return entry != NULL;
}

static aclError descriptor_require(aclrtAllocatorDesc handle, const char *function)
{
    if (!handle_is(handle, HANDLE_ALLOCATOR_DESC)) {
        return error_argument(function, ACL_ERROR_INVALID_PARAM,
                              "allocatorDesc is a live descriptor");
    }
    return ACL_SUCCESS;
}

aclrtAllocatorDesc sim_aclrtAllocatorCreateDesc(void)
{
    Descriptor *descriptor = handle_new(HANDLE_ALLOCATOR_DESC, sizeof(Descriptor));
    if (descriptor != NULL) {
        descriptor->allocator = (Allocator){.advise = unset_advise};
    }
    return descriptor;
}

aclError sim_aclrtAllocatorDestroyDesc(aclrtAllocatorDesc allocatorDesc)
{
    TRY(descriptor_require(allocatorDesc, __func__));
    handle_retire(allocatorDesc);
    return ACL_SUCCESS;
}

aclError sim_aclrtAllocatorSetObjToDesc(aclrtAllocatorDesc allocatorDesc, aclrtAllocator allocator)
{
    TRY(descriptor_require(allocatorDesc, __func__));
    REQUIRE(allocator);
    ((Descriptor *)allocatorDesc)->allocator.object = allocator;
    return ACL_SUCCESS;
}

aclError sim_aclrtAllocatorSetAllocFuncToDesc(aclrtAllocatorDesc allocatorDesc,
    aclrtAllocatorAllocFunc func)
{
    TRY(descriptor_require(allocatorDesc, __func__));
    REQUIRE(func);
    ((Descriptor *)allocatorDesc)->allocator.alloc = func;
    return ACL_SUCCESS;
}

aclError sim_aclrtAllocatorSetFreeFuncToDesc(aclrtAllocatorDesc allocatorDesc,
    aclrtAllocatorFreeFunc func)
{
    TRY(descriptor_require(allocatorDesc, __func__));
    REQUIRE(func);
    ((Descriptor *)allocatorDesc)->allocator.free = func;
    return ACL_SUCCESS;
}

aclError sim_aclrtAllocatorSetAllocAdviseFuncToDesc(aclrtAllocatorDesc allocatorDesc,
    aclrtAllocatorAllocAdviseFunc func)
{
    TRY(descriptor_require(allocatorDesc, __func__));
    REQUIRE(func);
    ((Descriptor *)allocatorDesc)->allocator.advise = func;
    return ACL_SUCCESS;
}

aclError sim_aclrtAllocatorSetGetAddrFromBlockFuncToDesc(aclrtAllocatorDesc allocatorDesc,
    aclrtAllocatorGetAddrFromBlockFunc func)
{
    TRY(descriptor_require(allocatorDesc, __func__));
    REQUIRE(func);
    ((Descriptor *)allocatorDesc)->allocator.address = func;
    return ACL_SUCCESS;
}

/* Returns the name of a required function that was not set, or NULL.  allocAdvise is required in the strict mode
   only. */
static const char *function_missing(const Allocator *allocator)
{
    return allocator->alloc == NULL     ? "alloc"
           : allocator->free == NULL    ? "free"
           : allocator->address == NULL ? "getAddrFromBlock"
           : config.strict_allocators && allocator->advise == unset_advise ? "allocAdvise"
                                                                           : NULL;
}

/* Returns the status of the checks that only the strict mode makes. */
static aclError strict_check(aclrtStream stream, const char *function)
{
    if (!handle_is(stream, HANDLE_STREAM)) {
        return error_set(function, ACL_ERROR_RT_INVALID_HANDLE,
                         "strict allocators: %p is not a live stream; unregister an allocator before "
                         "its stream is destroyed", stream);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtAllocatorRegister(aclrtStream stream, aclrtAllocatorDesc allocatorDesc)
{
    REQUIRE(stream);
    TRY(descriptor_require(allocatorDesc, __func__));
    const Allocator *allocator = &((const Descriptor *)allocatorDesc)->allocator;
    REQUIRE(allocator->object);
    if (!config.allocators || !soc_current()->has_allocator) {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                    "%s does not support user-defined allocators", config.soc);
    }
    const char *missing = function_missing(allocator);
    if (missing != NULL) {
        return fail(ACL_ERROR_INVALID_PARAM, "the descriptor's %s function was never set", missing);
    }
    if (config.strict_allocators) {
        TRY(strict_check(stream, __func__));
    }
    Registration registration = {.descriptor = allocatorDesc, .allocator = *allocator};
    Entry *fresh = malloc(sizeof *fresh);
    if (fresh == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory for a registration");
    }
    pthread_mutex_lock(&registry_lock);
    Entry **slot = registry_slot(stream);
    if (*slot != NULL) {
        (*slot)->registration = registration;
    } else {
        *fresh = (Entry){.next = NULL, .stream = stream, .registration = registration};
        *slot = fresh;
        fresh = NULL;
    }
    pthread_mutex_unlock(&registry_lock);
    free(fresh);
    return ACL_SUCCESS;
}

aclError sim_aclrtAllocatorUnregister(aclrtStream stream)
{
    REQUIRE(stream);
    pthread_mutex_lock(&registry_lock);
    Entry **slot = registry_slot(stream);
    Entry *entry = *slot;
    if (entry != NULL) {
        *slot = entry->next;
    }
    pthread_mutex_unlock(&registry_lock);
    free(entry);
    return ACL_SUCCESS;
}

aclError sim_aclrtAllocatorGetByStream(aclrtStream stream, aclrtAllocatorDesc *allocatorDesc,
    aclrtAllocator *allocator, aclrtAllocatorAllocFunc *allocFunc,
    aclrtAllocatorFreeFunc *freeFunc, aclrtAllocatorAllocAdviseFunc *allocAdviseFunc,
    aclrtAllocatorGetAddrFromBlockFunc *getAddrFromBlockFunc)
{
    REQUIRE(stream);
    REQUIRE(allocatorDesc);
    Registration found;
    if (!allocator_find(stream, &found)) {
        return fail(ACL_ERROR_INVALID_PARAM, "no allocator is registered for stream %p", stream);
    }
    if (config.strict_allocators) {
        TRY(strict_check(stream, __func__));
    }
    *allocatorDesc = found.descriptor;
    if (allocator != NULL) {
        *allocator = found.allocator.object;
    }
    if (allocFunc != NULL) {
        *allocFunc = found.allocator.alloc;
    }
    if (freeFunc != NULL) {
        *freeFunc = found.allocator.free;
    }
    if (allocAdviseFunc != NULL) {
        *allocAdviseFunc = found.allocator.advise;
    }
    if (getAddrFromBlockFunc != NULL) {
        *getAddrFromBlockFunc = found.allocator.address;
    }
    return ACL_SUCCESS;
}
