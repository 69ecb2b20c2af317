/* Virtual memory: which devices may access a mapping, and finding the memory behind an address. */
#include "memory/vmm.h"

#include "generated/exports.h"

#include <stdlib.h>
#include <sys/mman.h>

static bool access_known(aclrtMemAccessFlags flags)
{
    return flags == ACL_RT_MEM_ACCESS_FLAGS_NONE || flags == ACL_RT_MEM_ACCESS_FLAGS_READ ||
           flags == ACL_RT_MEM_ACCESS_FLAGS_READWRITE;
}

/* Returns the field of the mapping that has the access of a location (host or device). */
static aclrtMemAccessFlags *access_of(Mapping *mapping, const aclrtMemLocation *location)
{
    bool host = location->type != ACL_MEM_LOCATION_TYPE_DEVICE;
    if (host) {
        return mapping->memory->device == BOOK_HOST ? &mapping->access : &mapping->host_access;
    }
    return (int32_t)location->id == mapping->memory->device ? &mapping->access
                                                            : &mapping->peer_access[location->id];
}

static aclError location_check(const char *function, const aclrtMemLocation *location)
{
    if (location->type == ACL_MEM_LOCATION_TYPE_DEVICE) {
        return device_check((int32_t)location->id);
    }
    if (location->type != ACL_MEM_LOCATION_TYPE_HOST &&
        location->type != ACL_MEM_LOCATION_TYPE_HOST_NUMA) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "location.type = %d: expected HOST, DEVICE or HOST_NUMA",
                         (int)location->type);
    }
    return ACL_SUCCESS;
}

/* True if the addresses are covered by whole mappings without a gap; the lock is held. */
static bool mappings_tile(const Reservation *reservation, uintptr_t base, size_t bytes)
{
    uintptr_t end = base + bytes;
    bool inside = base % GRANULE == 0 && end > base && end <= reservation->end;
    while (inside && base < end) {
        const Mapping *mapping = mapping_at(reservation, base);
        inside = mapping != NULL;
        base += inside ? mapping->bytes : 0;
    }
    return inside && base == end;
}

static aclError access_change_locked(Reservation *reservation, uintptr_t base, size_t bytes,
                                     const aclrtMemAccessDesc *desc)
{
    for (uintptr_t at = base; at < base + bytes;) {
        Mapping *mapping = mapping_at(reservation, at);
        aclrtMemAccessFlags *access = access_of(mapping, &desc->location);
        *access = desc->flags;
        if (access == &mapping->access && !mapping_protect(mapping, reservation->alias)) {
            return kernel_refused("aclrtMemSetAccess", "change the access to", at);
        }
        at += mapping->bytes;
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtMemSetAccess(void *virPtr, size_t size, aclrtMemAccessDesc *desc, size_t count)
{
    REQUIRE_RT(virPtr);
    REQUIRE_RT(desc);
    REQUIRE_RT(size > 0);
    REQUIRE_RT(count > 0);
    for (size_t i = 0; i < count; i++) {
        REQUIRE_RT(access_known(desc[i].flags));
        TRY(location_check(__func__, &desc[i].location));
    }
    uintptr_t base = (uintptr_t)virPtr;
    Reservation *reservation = reservation_lock(base);
    bool tiled = reservation != NULL && mappings_tile(reservation, base, size);
    aclError status = ACL_SUCCESS;
    for (size_t i = 0; tiled && i < count && status == ACL_SUCCESS; i++) {
        status = access_change_locked(reservation, base, size, &desc[i]);
    }
    if (reservation != NULL) {
        pthread_mutex_unlock(&reservation->lock);
    }
    if (!tiled) {
        return fail(ACL_ERROR_RT_PARAM_INVALID,
                    "virPtr = %p, size = %zu: expected whole mappings, one after the other", virPtr,
                    size);
    }
    return status;
}

aclError sim_aclrtMemGetAccess(void *virPtr, aclrtMemLocation *location, uint64_t *flag)
{
    REQUIRE(virPtr);
    REQUIRE(location);
    REQUIRE(flag);
    TRY(location_check(__func__, location));
    Reservation *reservation = reservation_lock((uintptr_t)virPtr);
    Mapping *mapping = reservation == NULL ? NULL : *slot_of(reservation, (uintptr_t)virPtr);
    if (mapping != NULL) {
        *flag = (uint64_t)*access_of(mapping, location);
    }
    if (reservation != NULL) {
        pthread_mutex_unlock(&reservation->lock);
    }
    if (mapping == NULL) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "virPtr = %p: nothing is mapped there", virPtr);
    }
    return ACL_SUCCESS;
}

/* ---- from an address to its memory ---------------------------------------------- */
/* Returns the physical memory mapped at the address, with a reference, and in *base where the mapping begins; NULL if
 * nothing is mapped there. */
static Physical *physical_at(uintptr_t address, uintptr_t *base)
{
    Physical *memory = NULL;
    Reservation *reservation = reservation_lock(address);
    if (reservation != NULL) {
        const Mapping *mapping = *slot_of(reservation, address);
        if (mapping != NULL && mapping->state == MAPPING_DONE) {
            memory = mapping->memory;
            *base = mapping->base;
            physical_ref(memory);
        }
        pthread_mutex_unlock(&reservation->lock);
    }
    return memory;
}

aclError sim_aclrtMemRetainAllocationHandle(void *virPtr, aclrtDrvMemHandle *handle)
{
    REQUIRE(virPtr);
    REQUIRE(handle);
    uintptr_t base;
    Physical *memory = physical_at((uintptr_t)virPtr, &base);
    if (memory == NULL) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "virPtr = %p: nothing is mapped there", virPtr);
    }
    PhysicalHandle *found = physical_retain(memory);
    physical_unref(memory);
    if (found == NULL) {
        return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "no handle left");
    }
    *handle = (aclrtDrvMemHandle)found;
    return ACL_SUCCESS;
}

/* Maps the memory at the source a second time at the destination, one mapping after another. `linkIdx`
 * chooses a link between devices; it has no effect in the simulator. */
aclError sim_aclrtMemMapSelectedLink(void *virPtrDst, size_t size, void *virPtrSrc,
                                     uint32_t linkIdx)
{
    REQUIRE(virPtrDst);
    REQUIRE(virPtrSrc);
    REQUIRE(size > 0);
    REQUIRE(linkIdx <= ACL_RT_MEM_LINK_IDX_1);
    for (size_t done = 0; done < size;) {
        uintptr_t source = (uintptr_t)virPtrSrc + done, base = 0;
        Physical *memory = physical_at(source, &base);
        if (memory == NULL || base != source) {
            if (memory != NULL) {
                physical_unref(memory);
            }
            return fail(ACL_ERROR_RT_PARAM_INVALID, "virPtrSrc + %zu is not the beginning of a "
                        "mapping", done);
        }
        Mapping *mapping = calloc(1, sizeof *mapping);
        if (mapping == NULL) {
            physical_unref(memory);
            return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "no host memory");
        }
        mapping->memory = memory;
        mapping->base = (uintptr_t)virPtrDst + done;
        mapping->bytes = memory->bytes;
        mapping->access = ACL_RT_MEM_ACCESS_FLAGS_READWRITE;
        done += memory->bytes;
        TRY(map_into(__func__, mapping));
    }
    return ACL_SUCCESS;
}

/* ---- for address_lookup.c --------------------------------------------------------------- */
bool reservation_find(const Range *range, uintptr_t address, Memory *memory)
{
    Reservation *reservation = range->object;
    *memory = (Memory){.kind = MEMORY_HOLE, .device = -1, .base = address};
    pthread_mutex_lock(&reservation->lock);
    if (address >= reservation->base && address < reservation->end) {
        const Mapping *mapping = *slot_of(reservation, address);
        if (mapping != NULL && mapping->state == MAPPING_DONE) {
            bool host = mapping->memory->device == BOOK_HOST;
            memory->kind = host ? MEMORY_MAPPED_HOST : MEMORY_MAPPED;
            memory->device = host ? -1 : mapping->memory->device;
            memory->base = mapping->base;
            memory->bytes = memory->size = mapping->bytes;
            memory->page = mapping->memory->page;
        }
    }
    pthread_mutex_unlock(&reservation->lock);
    return true;
}

bool reservation_covers(const Range *range, uintptr_t begin, uintptr_t end, bool write)
{
    Reservation *reservation = range->object;
    pthread_mutex_lock(&reservation->lock);
    bool inside = begin >= reservation->base && end <= reservation->end;
    while (inside && begin < end) {
        const Mapping *mapping = *slot_of(reservation, begin);
        inside = mapping != NULL && mapping->state == MAPPING_DONE &&
                 mapping->access != ACL_RT_MEM_ACCESS_FLAGS_NONE &&
                 (!write || mapping->access == ACL_RT_MEM_ACCESS_FLAGS_READWRITE);
        begin = inside ? mapping->base + mapping->bytes : begin;
    }
    pthread_mutex_unlock(&reservation->lock);
    return inside;
}

static void reservation_protect(Reservation *reservation, int32_t device, bool open)
{
    pthread_mutex_lock(&reservation->lock);
    bool hides = reservation->alias != 0;
    for (uintptr_t at = reservation->base; hides && at < reservation->end;) {
        const Mapping *mapping = *slot_of(reservation, at);
        if (mapping == NULL) {
            at += GRANULE;
            continue;
        }
        if (mapping->memory->device == device && mapping->state == MAPPING_DONE) {
            mprotect((void *)mapping->base, mapping->bytes,
                     open ? protection_of(mapping->access) : PROT_NONE);
        }
        at = mapping->base + mapping->bytes;
    }
    pthread_mutex_unlock(&reservation->lock);
}

void reservations_protect(int32_t device, bool open)
{
    for (Reservation *r = reservations_first(); r != NULL; r = r->all) {
        reservation_protect(r, device, open);
    }
}
