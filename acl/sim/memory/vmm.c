/* Virtual memory: reserving, mapping, unmapping; see vmm.h. As with the runtime, the memory of a handle
 * can be mapped only as a whole. */
#include "memory/vmm.h"

#include "generated/exports.h"
#include "races/race.h"
#include "base/soc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

FILE_LOCK(lists_lock);
static Reservation *reservations_unused;
static _Atomic(Reservation *) reservations_all;

Reservation *reservations_first(void)
{
    return atomic_load(&reservations_all);
}

/* ---- reserving ------------------------------------------------------------------ */
static Reservation *reservation_blank(void)
{
    pthread_mutex_lock(&lists_lock);
    Reservation *reservation = reservations_unused;
    if (reservation != NULL) {
        reservations_unused = reservation->unused;
    } else {
        reservation = calloc(1, sizeof *reservation);
        if (reservation != NULL) {
            pthread_mutex_init(&reservation->lock, NULL);
            reservation->all = atomic_load(&reservations_all);
            atomic_store(&reservations_all, reservation);
        }
    }
    pthread_mutex_unlock(&lists_lock);
    return reservation;
}

static void reservation_unuse(Reservation *reservation)
{
    pthread_mutex_lock(&lists_lock);
    reservation->unused = reservations_unused;
    reservations_unused = reservation;
    pthread_mutex_unlock(&lists_lock);
}

/* Reserves inaccessible address space, aligned to a granule: at `wanted` if these addresses are free,
 * else anywhere. Returns its address; 0 if the kernel refuses it. */
static uintptr_t span_reserve(size_t bytes, uintptr_t wanted)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (wanted != 0 && wanted % GRANULE == 0) {
        void *there = mmap((void *)wanted, bytes, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
        if (there == (void *)wanted) {
            return wanted;
        }
        if (there != MAP_FAILED) {
            munmap(there, bytes); /* an old kernel ignores MAP_FIXED_NOREPLACE and may choose another address */
        }
    }
    char *memory = mmap(NULL, bytes + GRANULE, PROT_NONE, flags, -1, 0);
    if (memory == MAP_FAILED) {
        return 0;
    }
    size_t skip = (GRANULE - (uintptr_t)memory % GRANULE) % GRANULE;
    if (skip != 0) {
        munmap(memory, skip);
    }
    munmap(memory + skip + bytes, GRANULE - skip);
    return (uintptr_t)memory + skip;
}

static void spare_make(void);

static bool reservation_open(Reservation *reservation, size_t bytes, uintptr_t wanted)
{
    spare_make();
    uintptr_t inner = 0;
    Mapping **slots = calloc(bytes / GRANULE, sizeof *slots);
    uintptr_t base = slots == NULL ? 0 : span_reserve(bytes, wanted);
    if (base != 0 && memory_strict()) {
        inner = span_reserve(bytes, 0);
    }
    if (base == 0 || (memory_strict() && inner == 0)) {
        if (base != 0) {
            munmap((void *)base, bytes);
        }
        free(slots);
        return false;
    }
    pthread_mutex_lock(&reservation->lock);
    reservation->base = base;
    reservation->end = base + bytes;
    reservation->alias = inner == 0 ? 0 : (ptrdiff_t)(inner - base);
    reservation->slots = slots;
    reservation->mappings = 0;
    reservation->home = NULL;
    pthread_mutex_unlock(&reservation->lock);
    return true;
}

/* Closes a reservation in which nothing is mapped: frees its addresses and removes it from the address
 * table, so that no other thread finds it. The lock is held. */
static void reservation_close_locked(Reservation *reservation)
{
    size_t bytes = reservation->end - reservation->base;
    range_remove(reservation->base, RANGE_RESERVATION, NULL);
    munmap((void *)reservation->base, bytes);
    if (reservation->alias != 0) {
        munmap((void *)(reservation->base + (uintptr_t)reservation->alias), bytes);
    }
    free(reservation->slots);
    home_unref(reservation->home);
    reservation->slots = NULL;
    reservation->home = NULL;
    reservation->end = reservation->base;
}

static aclError reserve(const char *function, void **out, size_t size, size_t alignment,
                        void *wanted)
{
    if (!soc_current()->has_virtual_memory) {
        return error_set(function, ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "%s has no virtual memory",
                         config.soc);
    }
    if (alignment != 0) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID, "alignment = %zu: expected 0",
                         alignment);
    }
    size_t bytes = size > SIZE_MAX - GRANULE ? 0 : (size + GRANULE - 1) / GRANULE * GRANULE;
    Reservation *reservation = reservation_blank();
    if (bytes == 0 || reservation == NULL ||
        !reservation_open(reservation, bytes, (uintptr_t)wanted)) {
        if (reservation != NULL) {
            reservation_unuse(reservation);
        }
        return error_set(function, ACL_ERROR_RT_MEMORY_ALLOCATION,
                         "size: no address space for %zu bytes", size);
    }
    Range range = {.begin = reservation->base, .end = reservation->end, .object = reservation,
                   .alias = reservation->alias, .kind = RANGE_RESERVATION, .device = -1};
    range_add(&range, NULL);
    *out = (void *)reservation->base;
    return ACL_SUCCESS;
}

aclError sim_aclrtReserveMemAddress(void **virPtr, size_t size, size_t alignment, void *expectPtr,
                                    uint64_t flags)
{
    REQUIRE(virPtr);
    REQUIRE(size > 0);
    REQUIRE(flags == 0 || flags == 1);
    return reserve(__func__, virPtr, size, alignment, expectPtr);
}

aclError sim_aclrtReserveMemAddressNoUCMemory(void **virPtr, size_t size, size_t alignment,
                                              void *expectPtr, uint64_t flags)
{
    REQUIRE(virPtr);
    REQUIRE(size > 0);
    REQUIRE(flags == 0 || flags == 1);
    return reserve(__func__, virPtr, size, alignment, expectPtr);
}

Reservation *reservation_lock(uintptr_t address)
{
    Range range;
    if (!range_find(address, &range) || range.kind != RANGE_RESERVATION) {
        return NULL;
    }
    Reservation *reservation = range.object;
    pthread_mutex_lock(&reservation->lock);
    if (address >= reservation->base && address < reservation->end) {
        return reservation;
    }
    pthread_mutex_unlock(&reservation->lock);
    return NULL;
}

aclError sim_aclrtReleaseMemAddress(void *virPtr)
{
    REQUIRE(virPtr);
    Reservation *reservation = reservation_lock((uintptr_t)virPtr);
    bool begins = reservation != NULL && reservation->base == (uintptr_t)virPtr;
    size_t mappings = begins ? reservation->mappings : 0;
    if (begins && mappings == 0) {
        reservation_close_locked(reservation);
    }
    if (reservation != NULL) {
        pthread_mutex_unlock(&reservation->lock);
    }
    if (!begins) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "virPtr = %p is not the beginning of a reservation",
                    virPtr);
    }
    if (mappings != 0) {
        return fail(ACL_ERROR_RT_PARAM_INVALID,
                    "virPtr = %p: %zu mappings are in it; expected them unmapped first", virPtr,
                    mappings);
    }
    reservation_unuse(reservation);
    return ACL_SUCCESS;
}

/* ---- slots (V1) ----------------------------------------------------------------- */
Mapping **slot_of(const Reservation *reservation, uintptr_t address)
{
    return &reservation->slots[(address - reservation->base) / GRANULE];
}

static void slots_fill(Reservation *reservation, const Mapping *mapping, Mapping *value)
{
    Mapping **slot = slot_of(reservation, mapping->base);
    for (size_t i = 0; i < mapping->bytes / GRANULE; i++) {
        slot[i] = value;
    }
}

static bool slots_empty(const Reservation *reservation, uintptr_t base, size_t bytes)
{
    Mapping **slot = slot_of(reservation, base);
    for (size_t i = 0; i < bytes / GRANULE; i++) {
        if (slot[i] != NULL) {
            return false;
        }
    }
    return true;
}

Mapping *mapping_at(const Reservation *reservation, uintptr_t base)
{
    Mapping *mapping = *slot_of(reservation, base);
    bool begins = mapping != NULL && mapping->base == base && mapping->state == MAPPING_DONE;
    return begins ? mapping : NULL;
}

/* ---- the kernel's side ---------------------------------------------------------- */
aclError kernel_refused(const char *function, const char *what, uintptr_t base)
{
    int reason = errno;
    long limit = 0;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
    if (file != NULL) {
        if (fscanf(file, "%ld", &limit) != 1) {
            limit = 0;
        }
        fclose(file);
    }
    if (reason == ENOMEM) {
        return error_set(function, ACL_ERROR_RT_RESOURCE_ALLOC_FAIL,
                         "cannot %s %p: this process has as many mappings as the system allows "
                         "(vm.max_map_count = %ld)", what, (void *)base, limit);
    }
    return error_set(function, ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "cannot %s %p (errno %d)", what,
                     (void *)base, reason);
}

int protection_of(aclrtMemAccessFlags access)
{
    return access == ACL_RT_MEM_ACCESS_FLAGS_READWRITE ? PROT_READ | PROT_WRITE
           : access == ACL_RT_MEM_ACCESS_FLAGS_READ    ? PROT_READ
                                                       : PROT_NONE;
}

/* Returns the protection of a mapping at the user's addresses. A reservation made before strict mode was
 * switched on has no second mapping (`alias` 0), so it remains accessible. */
static int user_protection(const Mapping *mapping, ptrdiff_t alias)
{
    bool hidden = alias != 0 && memory_strict() && mapping->memory->device != BOOK_HOST;
    return hidden ? PROT_NONE : protection_of(mapping->access);
}

static bool file_map(uintptr_t at, const Mapping *mapping, int protection)
{
    return mmap((void *)at, mapping->bytes, protection, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                mapping->memory->fd, (off_t)mapping->memory->offset) != MAP_FAILED;
}

/* ---- unmapping at the kernel's limit of mappings ---------------------------------
 * To unmap a part of a kernel mapping splits it in two, which fails at the limit. Then the spare mappings are unmapped
 * first. */
enum { SPARE_PAGES = 8 };
FILE_LOCK(spare_lock);
static char *spare; /* pages that are unmapped to get below the limit; each page is one kernel mapping, because its
                       protection differs from that of the pages beside it */

static void spare_make_locked(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *memory = spare != NULL ? MAP_FAILED
                                 : mmap(NULL, SPARE_PAGES * page, PROT_NONE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return;
    }
    spare = memory;
    for (size_t i = 1; i < SPARE_PAGES; i += 2) {
        mprotect(spare + i * page, page, PROT_READ);
    }
}

static void spare_make(void)
{
    pthread_mutex_lock(&spare_lock);
    spare_make_locked();
    pthread_mutex_unlock(&spare_lock);
}

static bool file_unmap_once(uintptr_t at, size_t bytes)
{
    return mmap((void *)at, bytes, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

static bool file_unmap(uintptr_t at, size_t bytes)
{
    if (file_unmap_once(at, bytes)) {
        return true;
    }
    pthread_mutex_lock(&spare_lock);
    if (spare != NULL) {
        munmap(spare, SPARE_PAGES * (size_t)sysconf(_SC_PAGESIZE));
        spare = NULL;
    }
    bool done = file_unmap_once(at, bytes);
    spare_make_locked();
    pthread_mutex_unlock(&spare_lock);
    return done;
}

static bool mapping_enter(const Mapping *mapping, ptrdiff_t alias)
{
    if (!file_map(mapping->base, mapping, user_protection(mapping, alias))) {
        return false;
    }
    if (alias != 0 && !file_map(mapping->base + (uintptr_t)alias, mapping,
                                protection_of(mapping->access))) {
        int reason = errno;
        file_unmap(mapping->base, mapping->bytes);
        errno = reason;
        return false;
    }
    return true;
}

static bool mapping_leave(const Mapping *mapping, ptrdiff_t alias)
{
    return file_unmap(mapping->base, mapping->bytes) &&
           (alias == 0 || file_unmap(mapping->base + (uintptr_t)alias, mapping->bytes));
}

bool mapping_protect(const Mapping *mapping, ptrdiff_t alias)
{
    int user = user_protection(mapping, alias);
    bool done = mprotect((void *)mapping->base, mapping->bytes, user) == 0;
    if (done && alias != 0) {
        done = mprotect((void *)(mapping->base + (uintptr_t)alias), mapping->bytes,
                        protection_of(mapping->access)) == 0;
    }
    return done;
}

/* ---- mapping -------------------------------------------------------------------- */
/* Returns the reason why the mapping cannot be made in the reservation, as text for a message; NULL if it can. The lock
 * is held. */
static const char *mapping_objection(const Reservation *reservation, const Mapping *mapping)
{
    const Physical *memory = mapping->memory;
    if (mapping->base % GRANULE != 0 || mapping->bytes % GRANULE != 0) {
        return "not a multiple of 2 MiB";
    }
    if (mapping->bytes > reservation->end - mapping->base) {
        return "longer than the rest of the reservation";
    }
    if (!slots_empty(reservation, mapping->base, mapping->bytes)) {
        return "something is mapped there";
    }
    if (reservation->mappings != 0 && (reservation->device != memory->device ||
                                       reservation->imported != memory->imported)) {
        return "the reservation has memory of another device or origin";
    }
    return NULL;
}

/* Enters the mapping into the reservation's slots as BUSY. Makes a home for the reservation if it has none on the
 * memory's device. The lock is held. */
static void mapping_begin_locked(Reservation *reservation, Mapping *mapping)
{
    if (reservation->mappings == 0) {
        reservation->device = mapping->memory->device;
        reservation->imported = mapping->memory->imported;
    }
    bool wants_home = !mapping->memory->imported &&
                      (reservation->home == NULL ||
                       reservation->home->device != mapping->memory->device);
    if (wants_home) {
        home_unref(reservation->home);
        reservation->home = home_new(mapping->memory->device, reservation->end - reservation->base);
    }
    reservation->mappings++;
    slots_fill(reservation, mapping, mapping);
}

static void mapping_end(Reservation *reservation, Mapping *mapping)
{
    pthread_mutex_lock(&reservation->lock);
    slots_fill(reservation, mapping, NULL);
    reservation->mappings--;
    pthread_mutex_unlock(&reservation->lock);
    physical_unref(mapping->memory);
    free(mapping);
}

aclError map_into(const char *function, Mapping *mapping)
{
    Reservation *reservation = reservation_lock(mapping->base);
    const char *objection = reservation == NULL ? "not in a reservation"
                                                : mapping_objection(reservation, mapping);
    if (objection == NULL) {
        mapping_begin_locked(reservation, mapping);
    }
    if (reservation != NULL) {
        pthread_mutex_unlock(&reservation->lock);
    }
    if (objection != NULL) {
        aclError status = error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                                    "virPtr = %p, size = %zu: %s", (void *)mapping->base,
                                    mapping->bytes, objection);
        physical_unref(mapping->memory);
        free(mapping);
        return status;
    }
    size_t granule = (mapping->base - reservation->base) / GRANULE;
    if (!physical_place(mapping->memory, reservation->home, granule) ||
        !mapping_enter(mapping, reservation->alias)) {
        aclError status = kernel_refused(function, "map memory at", mapping->base);
        mapping_end(reservation, mapping);
        return status;
    }
    pthread_mutex_lock(&reservation->lock);
    mapping->state = MAPPING_DONE;
    pthread_mutex_unlock(&reservation->lock);
    return ACL_SUCCESS;
}

static aclError map(const char *function, void *virPtr, size_t size, size_t offset,
                    aclrtDrvMemHandle handle, aclrtMemAccessFlags access)
{
    Physical *memory;
    TRY(physical_of(function, handle, &memory));
    aclError lost = device_alive(function, memory->device);
    if (lost != ACL_SUCCESS) {
        physical_unref(memory);
        return lost;
    }
    if (offset != 0 || size != memory->bytes) {
        aclError status = error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                                    "size = %zu, offset = %zu: expected all %zu bytes of the "
                                    "physical memory, offset 0", size, offset, memory->bytes);
        physical_unref(memory);
        return status;
    }
    Mapping *mapping = calloc(1, sizeof *mapping);
    if (mapping == NULL) {
        physical_unref(memory);
        return error_set(function, ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "no host memory");
    }
    mapping->memory = memory;
    mapping->base = (uintptr_t)virPtr;
    mapping->bytes = size;
    mapping->access = access;
    return map_into(function, mapping);
}

aclError sim_aclrtMapMem(void *virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle,
                         uint64_t flags)
{
    REQUIRE(virPtr);
    REQUIRE(handle);
    REQUIRE(size > 0);
    REQUIRE(flags == 0);
    return map(__func__, virPtr, size, offset, handle, ACL_RT_MEM_ACCESS_FLAGS_READWRITE);
}

aclError sim_aclrtMemMapNoAccess(void *virPtr, size_t size, size_t offset,
                                 aclrtDrvMemHandle handle, uint64_t flags)
{
    REQUIRE(virPtr);
    REQUIRE(handle);
    REQUIRE(size > 0);
    REQUIRE(flags == 0);
    return map(__func__, virPtr, size, offset, handle, ACL_RT_MEM_ACCESS_FLAGS_NONE);
}

aclError sim_aclrtUnmapMem(void *virPtr)
{
    REQUIRE(virPtr);
    Reservation *reservation = reservation_lock((uintptr_t)virPtr);
    Mapping *mapping = NULL;
    if (reservation != NULL) {
        mapping = mapping_at(reservation, (uintptr_t)virPtr);
        if (mapping != NULL) {
            mapping->state = MAPPING_BUSY;
        }
        pthread_mutex_unlock(&reservation->lock);
    }
    if (mapping == NULL) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "virPtr = %p is not the beginning of a mapping",
                    virPtr);
    }
    if (races_on()) {
        race_unmapped(mapping->memory, mapping->base, mapping->bytes);
    }
    if (!mapping_leave(mapping, reservation->alias)) {
        aclError status = kernel_refused(__func__, "unmap memory at", mapping->base);
        pthread_mutex_lock(&reservation->lock);
        mapping->state = MAPPING_DONE;
        pthread_mutex_unlock(&reservation->lock);
        return status;
    }
    mapping_end(reservation, mapping);
    return ACL_SUCCESS;
}
