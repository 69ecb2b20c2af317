/* limits.c: limits of the cores that a device, a stream or a thread may use, and sizes of device buffers.

   A query of cores returns the stream's limit.  If the stream has none, it returns the device's limit, and if
   the device has none, the number of cores that the chip has.  Kernels run on the host, so a limit changes only
   what queries return.

   Thread rule: `table_lock` guards the limits of streams; no other lock is taken while it is held.  The limits of
   devices are atomic.  Each thread has its own `in_use`. */
#include <stdlib.h>
#include <string.h>

#include "base/core.h"
#include "generated/exports.h"
#include "base/soc.h"

enum { KINDS = 2, LIMITS = 5 };

/* For each device and kind of core: the limit plus one; 0 if no limit is set. */
static _Atomic uint32_t device_limits[DEVICE_MAX][KINDS];

typedef struct StreamLimits {
    struct StreamLimits *next;
    const Stream *stream;
    uint32_t id; /* the stream's id; a later stream at the same address has a different id */
    uint32_t values[KINDS]; /* the limit plus one; 0: not set */
} StreamLimits;

FILE_LOCK(table_lock);
static StreamLimits *table;
/* The stream whose limits aclrtGetResInCurrentThread returns in this thread; NULL: none was chosen. */
static _Thread_local struct {
    const Stream *stream;
    uint32_t id;
} in_use;

static uint32_t chip_count(aclrtDevResLimitType type)
{
    const Soc *soc = soc_current();
    if (type == ACL_RT_DEV_RES_VECTOR_CORE) {
        return soc->vector_cores;
    }
    return soc->cube_cores != 0 ? soc->cube_cores : soc->ai_cores;
}

static uint32_t device_limit(int32_t device, aclrtDevResLimitType type)
{
    uint32_t kept = atomic_load(&device_limits[device][type]);
    return kept != 0 ? kept - 1 : chip_count(type);
}

static aclError type_check(aclrtDevResLimitType type, const char *function)
{
    if ((unsigned)type >= KINDS) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "type is %d, expected 0 (cube cores) or 1 (vector cores)", (int)type);
    }
    return ACL_SUCCESS;
}

static aclError value_check(aclrtDevResLimitType type, uint32_t value, const char *function)
{
    if (value > chip_count(type)) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "value is %u, expected at most the %u cores of %s", value,
                         chip_count(type), config.soc);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtGetDeviceResLimit(int32_t deviceId, aclrtDevResLimitType type, uint32_t *value)
{
    REQUIRE(value);
    TRY(device_check(deviceId));
    TRY(type_check(type, __func__));
    *value = device_limit(deviceId, type);
    return ACL_SUCCESS;
}

aclError sim_aclrtSetDeviceResLimit(int32_t deviceId, aclrtDevResLimitType type, uint32_t value)
{
    TRY(device_check(deviceId));
    TRY(type_check(type, __func__));
    TRY(value_check(type, value, __func__));
    atomic_store(&device_limits[deviceId][type], value + 1);
    return ACL_SUCCESS;
}

aclError sim_aclrtResetDeviceResLimit(int32_t deviceId)
{
    TRY(device_check(deviceId));
    for (size_t type = 0; type < KINDS; type++) {
        atomic_store(&device_limits[deviceId][type], 0);
    }
    return ACL_SUCCESS;
}

/* Returns the address of the pointer to the stream's entry; if the stream has no entry, the address of the NULL
   pointer at the list's end.  Removes entries of destroyed streams that it passes.  The lock is held. */
static StreamLimits **table_slot(const Stream *stream, uint32_t id)
{
    StreamLimits **slot = &table;
    while (*slot != NULL) {
        StreamLimits *entry = *slot;
        if (entry->stream == stream && entry->id == id) {
            break;
        }
        if (!handle_is(entry->stream, HANDLE_STREAM) || stream_id(entry->stream) != entry->id) {
            *slot = entry->next;
            free(entry);
        } else {
            slot = &entry->next;
        }
    }
    return slot;
}

/* Gives the stream's own limit; false if none is set. */
static bool stream_limit(const Stream *stream, uint32_t id, aclrtDevResLimitType type,
    uint32_t *value)
{
    pthread_mutex_lock(&table_lock);
    const StreamLimits *entry = *table_slot(stream, id);
    bool set = entry != NULL && entry->values[type] != 0;
    if (set) {
        *value = entry->values[type] - 1;
    }
    pthread_mutex_unlock(&table_lock);
    return set;
}

aclError sim_aclrtGetStreamResLimit(aclrtStream stream, aclrtDevResLimitType type, uint32_t *value)
{
    STREAM_REF(resolved);
    REQUIRE(value);
    TRY(stream_resolve_any(stream, &resolved));
    TRY(type_check(type, __func__));
    if (!stream_limit(resolved, stream_id(resolved), type, value)) {
        *value = device_limit(stream_device(resolved), type);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtSetStreamResLimit(aclrtStream stream, aclrtDevResLimitType type, uint32_t value)
{
    STREAM_REF(resolved);
    TRY(stream_resolve_any(stream, &resolved));
    TRY(type_check(type, __func__));
    TRY(value_check(type, value, __func__));
    StreamLimits *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory for a stream's limits");
    }
    uint32_t id = stream_id(resolved);
    pthread_mutex_lock(&table_lock);
    StreamLimits **slot = table_slot(resolved, id);
    if (*slot == NULL) {
        *fresh = (StreamLimits){.next = NULL, .stream = resolved, .id = id};
        *slot = fresh;
        fresh = NULL;
    }
    (*slot)->values[type] = value + 1;
    pthread_mutex_unlock(&table_lock);
    free(fresh);
    return ACL_SUCCESS;
}

aclError sim_aclrtResetStreamResLimit(aclrtStream stream)
{
    STREAM_REF(resolved);
    TRY(stream_resolve_any(stream, &resolved));
    pthread_mutex_lock(&table_lock);
    StreamLimits **slot = table_slot(resolved, stream_id(resolved));
    StreamLimits *entry = *slot;
    if (entry != NULL) {
        *slot = entry->next;
    }
    pthread_mutex_unlock(&table_lock);
    free(entry);
    return ACL_SUCCESS;
}

aclError sim_aclrtUseStreamResInCurrentThread(aclrtStream stream)
{
    STREAM_REF(resolved);
    TRY(stream_resolve_any(stream, &resolved));
    in_use.stream = resolved;
    in_use.id = stream_id(resolved);
    return ACL_SUCCESS;
}

aclError sim_aclrtUnuseStreamResInCurrentThread(aclrtStream stream)
{
    STREAM_REF(resolved);
    TRY(stream_resolve_any(stream, &resolved));
    in_use.stream = NULL;
    return ACL_SUCCESS;
}

aclError sim_aclrtGetResInCurrentThread(aclrtDevResLimitType type, uint32_t *value)
{
    Context *context;
    REQUIRE(value);
    TRY(type_check(type, __func__));
    TRY(context_require(&context));
    if (in_use.stream == NULL || !stream_limit(in_use.stream, in_use.id, type, value)) {
        *value = device_limit(context->device, type);
    }
    return ACL_SUCCESS;
}

/* ---- sizes of device buffers ----------------------------------------------------------------- */

static _Atomic uint32_t buffer_sizes[DEVICE_MAX][LIMITS];

/* Returns a buffer's default size in bytes; 0 if the chip has no such buffer. */
static uint32_t buffer_default(aclrtDeviceLimit limit)
{
    switch (limit) {
    case ACL_RT_DEV_LIMIT_SIMD_STACK_SIZE:
        return 32 * 1024;
    case ACL_RT_DEV_LIMIT_SIMD_PRINTF_FIFO_SIZE_PER_CORE:
        return 1024 * 1024;
    default:
        return 0;
    }
}

static aclError limit_check(aclrtDeviceLimit limit, const char *function)
{
    if (buffer_default(limit) == 0) {
        return error_set(function, ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                         "%s does not support limit %d: it has no SIMT cores",
                         config.soc, (int)limit);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtDeviceSetLimit(aclrtDeviceLimit limit, size_t value)
{
    Context *context;
    REQUIRE((unsigned)limit < LIMITS);
    REQUIRE(value <= UINT32_MAX);
    TRY(context_require(&context));
    TRY(limit_check(limit, __func__));
    atomic_store(&buffer_sizes[context->device][limit], (uint32_t)value);
    return ACL_SUCCESS;
}

aclError sim_aclrtDeviceGetLimit(aclrtDeviceLimit limit, size_t *value)
{
    Context *context;
    REQUIRE(value);
    REQUIRE((unsigned)limit < LIMITS);
    TRY(context_require(&context));
    TRY(limit_check(limit, __func__));
    uint32_t kept = atomic_load(&buffer_sizes[context->device][limit]);
    *value = kept != 0 ? kept : buffer_default(limit);
    return ACL_SUCCESS;
}

/* Only checks the arguments: simulated device memory is host memory, which has no cache of its own to flush. */
aclError sim_aclrtDeviceL2CacheFlush(void *rsv)
{
    Context *context;
    REQUIRE(rsv == NULL);
    TRY(context_require(&context));
    return ACL_SUCCESS;
}
