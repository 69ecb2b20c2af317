/* Managed memory: one address for the host and all devices.
 *
 * Pages do not move in the simulator. So advice and prefetches are only stored, for the allocation
 * as a whole, and returned when a program queries them.
 *
 * Thread rule: one mutex guards all stored data. */
#include "memory/managed.h"
#include "memory/memory.h"

#include "base/checks.h"
#include "generated/exports.h"

#include <stdlib.h>
#include <string.h>

enum { LOCATION_HOST = -1, LOCATION_NONE = -2 }; /* ids of locations that are not devices */

typedef struct Managed {
    bool read_mostly;
    aclrtMemManagedLocation preferred, prefetched;
    uint64_t accessed_by; /* bit d: the program advised that device d accesses the memory */
    bool host_accesses;
} Managed;

FILE_LOCK(lock);

static const aclrtMemManagedLocation NOWHERE = {ACL_MEM_LOCATIONTYPE_INVALID, LOCATION_NONE};

aclError sim_aclrtMemAllocManaged(void **ptr, uint64_t size, uint32_t flag)
{
    REQUIRE(ptr);
    REQUIRE(flag == ACL_RT_MEM_ATTACH_GLOBAL);
    REQUIRE_RT(size > 0);
    Context *context;
    TRY(context_require(&context));
    Arena *arena = arena_of(BOOK_HOST);
    if (arena == NULL) {
        return refusal_tell(__func__, "managed memory");
    }
    Managed *managed = calloc(1, sizeof *managed);
    BlockInfo info = {.size = size, .owner = managed, .kind = MEMORY_MANAGED, .page = PAGE_NORMAL};
    uintptr_t at = managed == NULL
                       ? 0
                       : arena_take(arena, size, PAGE_NORMAL, BOOK_MALLOC, &info);
    if (managed != NULL && at == 0 && books_free(BOOK_HOST) < size) {
        free(managed);
        return books_refuse(__func__, size, BOOK_HOST);
    }
    if (at == 0) {
        free(managed);
        return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "size: no address space for %llu bytes",
                    (unsigned long long)size);
    }
    managed->preferred = managed->prefetched = NOWHERE;
    *ptr = (void *)at;
    if (check_on(CHECK_ANY)) {
        checks.block_made(arena, at, size);
    }
    return ACL_SUCCESS;
}

void managed_freed(void *owner)
{
    free(owner);
}

/* ---- checks --------------------------------------------------------------------- */
static aclError managed_of(const char *function, const void *ptr, size_t size, Managed **managed)
{
    Memory memory;
    memory_find(ptr, &memory);
    if (memory.kind != MEMORY_MANAGED) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID, "ptr = %p is not managed memory",
                         ptr);
    }
    *managed = memory.owner;
    return memory_check(function, "ptr", ptr, size, false, NULL);
}

static aclError location_check(const char *function, const aclrtMemManagedLocation *location)
{
    if (location->type == ACL_MEM_LOCATIONTYPE_DEVICE &&
        (location->id < 0 || (uint32_t)location->id >= config.devices)) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "location.id = %d: expected a device, 0 to %u", location->id,
                         config.devices - 1);
    }
    if ((int)location->type < (int)ACL_MEM_LOCATIONTYPE_DEVICE ||
        (int)location->type > (int)ACL_MEM_LOCATIONTYPE_HOST_NUMA_CURRENT) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "location.type = %d: expected 1 to 4 (DEVICE to HOST_NUMA_CURRENT)",
                         (int)location->type);
    }
    return ACL_SUCCESS;
}

/* ---- advice --------------------------------------------------------------------- */
static void access_advise(Managed *managed, const aclrtMemManagedLocation *location, bool accesses)
{
    if (location->type != ACL_MEM_LOCATIONTYPE_DEVICE) {
        managed->host_accesses = accesses;
    } else if (accesses) {
        managed->accessed_by |= UINT64_C(1) << location->id;
    } else {
        managed->accessed_by &= ~(UINT64_C(1) << location->id);
    }
}

static void advise(Managed *managed, aclrtMemManagedAdviseType what,
                   const aclrtMemManagedLocation *location)
{
    switch (what) {
    case ACL_MEM_ADVISE_SET_READ_MOSTLY:
    case ACL_MEM_ADVISE_UNSET_READ_MOSTLY:
        managed->read_mostly = what == ACL_MEM_ADVISE_SET_READ_MOSTLY;
        break;
    case ACL_MEM_ADVISE_SET_PREFERRED_LOCATION:
        managed->preferred = *location;
        break;
    case ACL_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        managed->preferred = NOWHERE;
        break;
    default:
        access_advise(managed, location, what == ACL_MEM_ADVISE_SET_ACCESSED_BY);
    }
}

aclError sim_aclrtMemManagedAdvise(const void *const ptr, uint64_t size,
                                   aclrtMemManagedAdviseType advice,
                                   aclrtMemManagedLocation location)
{
    REQUIRE(ptr);
    REQUIRE(size > 0);
    REQUIRE_RT((int)advice >= 0 && (int)advice <= (int)ACL_MEM_ADVISE_UNSET_ACCESSED_BY);
    bool needs_location = advice == ACL_MEM_ADVISE_SET_PREFERRED_LOCATION ||
                          advice == ACL_MEM_ADVISE_SET_ACCESSED_BY ||
                          advice == ACL_MEM_ADVISE_UNSET_ACCESSED_BY;
    if (needs_location || location.type == ACL_MEM_LOCATIONTYPE_DEVICE) {
        TRY(location_check(__func__, &location));
    }
    Managed *managed;
    TRY(managed_of(__func__, ptr, size, &managed));
    pthread_mutex_lock(&lock);
    advise(managed, advice, &location);
    pthread_mutex_unlock(&lock);
    return ACL_SUCCESS;
}

/* ---- prefetching ---------------------------------------------------------------- */
typedef struct PrefetchTask {
    const void *address;
    size_t bytes;
    aclrtMemManagedLocation location;
} PrefetchTask;

static aclError prefetch_run(Stream *stream, const void *payload)
{
    const PrefetchTask *task = payload;
    Memory memory;
    memory_find(task->address, &memory);
    if (memory.kind != MEMORY_MANAGED) {
        return copy_fault(stream, "memory to prefetch", task->address, task->bytes);
    }
    pthread_mutex_lock(&lock);
    ((Managed *)memory.owner)->prefetched = task->location;
    pthread_mutex_unlock(&lock);
    return ACL_SUCCESS;
}

static const TaskClass prefetch_class = {.name = "prefetch", .run = prefetch_run};

static aclError prefetch(const char *function, const void *ptr, size_t size,
                         const aclrtMemManagedLocation *location, Stream *stream)
{
    Managed *managed;
    TRY(location_check(function, location));
    TRY(managed_of(function, ptr, size, &managed));
    PrefetchTask task = {ptr, size, *location};
    return stream_submit(stream, &prefetch_class, &task, sizeof task);
}

aclError sim_aclrtMemManagedPrefetchAsync(const void *ptr, size_t size,
                                          aclrtMemManagedLocation location, uint32_t flags,
                                          aclrtStream stream)
{
    REQUIRE(ptr);
    REQUIRE(size > 0);
    REQUIRE(flags == 0);
    STREAM_REF(queue);
    TRY(stream_resolve(stream, &queue));
    return prefetch(__func__, ptr, size, &location, queue);
}

aclError sim_aclrtMemManagedPrefetchBatchAsync(const void **ptrs, size_t *sizes, size_t count,
                                               aclrtMemManagedLocation *prefetchLocs,
                                               size_t *prefetchLocIdxs, size_t numPrefetchLocs,
                                               uint64_t flags, aclrtStream stream)
{
    REQUIRE(ptrs);
    REQUIRE(sizes);
    REQUIRE(count > 0);
    REQUIRE(prefetchLocs);
    REQUIRE(prefetchLocIdxs);
    REQUIRE(numPrefetchLocs > 0);
    REQUIRE(flags == 0);
    STREAM_REF(queue);
    TRY(stream_resolve(stream, &queue));
    REQUIRE_RT(numPrefetchLocs <= count && prefetchLocIdxs[0] == 0);
    size_t location = 0;
    for (size_t i = 0; i < count; i++) {
        if (location + 1 < numPrefetchLocs && i >= prefetchLocIdxs[location + 1]) {
            location++;
        }
        REQUIRE_RT(ptrs[i] != NULL && sizes[i] > 0);
        TRY(prefetch(__func__, ptrs[i], sizes[i], &prefetchLocs[location], queue));
    }
    return ACL_SUCCESS;
}

/* ---- attributes ----------------------------------------------------------------- */
/* Returns the id that queries give for a location: the device's id, LOCATION_HOST or LOCATION_NONE. */
static int32_t location_id(const aclrtMemManagedLocation *location)
{
    return location->type == ACL_MEM_LOCATIONTYPE_DEVICE    ? location->id
           : location->type == ACL_MEM_LOCATIONTYPE_INVALID ? LOCATION_NONE
                                                            : LOCATION_HOST;
}

/* Writes the ids of the locations (host, devices) that access the memory, and LOCATION_NONE to the
 * remaining entries of the array. */
static void accessors_tell(const Managed *managed, int32_t *data, size_t room)
{
    size_t told = 0;
    if (managed->host_accesses && told < room) {
        data[told++] = LOCATION_HOST;
    }
    for (int32_t device = 0; device < DEVICE_MAX && told < room; device++) {
        if (managed->accessed_by >> device & 1) {
            data[told++] = device;
        }
    }
    while (told < room) {
        data[told++] = LOCATION_NONE;
    }
}

static void attribute_tell(const Managed *managed, aclrtMemManagedRangeAttribute attribute,
                           int32_t *data, size_t room)
{
    switch (attribute) {
    case ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        *data = managed->read_mostly;
        break;
    case ACL_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        accessors_tell(managed, data, room);
        break;
    case ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        *data = (int32_t)managed->preferred.type;
        break;
    case ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        *data = managed->preferred.id;
        break;
    case ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        *data = (int32_t)managed->prefetched.type;
        break;
    case ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        *data = managed->prefetched.id;
        break;
    case ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        *data = location_id(&managed->preferred);
        break;
    default:
        *data = location_id(&managed->prefetched);
    }
}

static aclError attribute_get(const char *function, aclrtMemManagedRangeAttribute attribute,
                              const Managed *managed, void *data, size_t bytes)
{
    bool several = attribute == ACL_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
    bool fits = several ? bytes > 0 && bytes % sizeof(int32_t) == 0 : bytes == sizeof(int32_t);
    if ((int)attribute < (int)ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY ||
        (int)attribute > (int)ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID || data == NULL ||
        !fits) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "attribute = %d, dataSize = %zu: expected attribute 1 to 8, and 4 bytes "
                         "(for ACCESSED_BY a multiple)", (int)attribute, bytes);
    }
    pthread_mutex_lock(&lock);
    attribute_tell(managed, attribute, data, bytes / sizeof(int32_t));
    pthread_mutex_unlock(&lock);
    return ACL_SUCCESS;
}

aclError sim_aclrtMemManagedGetAttr(aclrtMemManagedRangeAttribute attribute, const void *ptr,
                                    size_t size, void *data, size_t dataSize)
{
    REQUIRE(ptr);
    REQUIRE(data);
    REQUIRE(size > 0);
    Managed *managed;
    TRY(managed_of(__func__, ptr, size, &managed));
    return attribute_get(__func__, attribute, managed, data, dataSize);
}

aclError sim_aclrtMemManagedGetAttrs(aclrtMemManagedRangeAttribute *attributes,
                                     size_t numAttributes, const void *ptr, size_t size,
                                     void **data, size_t *dataSizes)
{
    REQUIRE(ptr);
    REQUIRE(attributes);
    REQUIRE(data);
    REQUIRE(dataSizes);
    REQUIRE(size > 0);
    REQUIRE_RT(numAttributes > 0);
    Managed *managed;
    TRY(managed_of(__func__, ptr, size, &managed));
    for (size_t i = 0; i < numAttributes; i++) {
        TRY(attribute_get(__func__, attributes[i], managed, data[i], dataSizes[i]));
    }
    return ACL_SUCCESS;
}
