/* Physical memory: see physical.h. */
#include "memory/physical.h"

#include "generated/exports.h"
#include "base/fork.h"
#include "races/race.h"
#include "memory/export_table.h"
#include "base/soc.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The backing file of one device. It is sparse, and much longer than needed: each new home begins at the
   first offset that was never used. */
typedef struct Backing {
    pthread_mutex_t lock;
    int fd;
    uint64_t next;  /* first offset that was never used */
    Home *unused;   /* list of homes whose reservation was closed, and which can be used again */
    Zone spill;     /* allocates places for memory that cannot lie in a home */
    uint64_t spill_offset; /* offset of the spill zone in the file, in bytes */
    bool open;
} Backing;

static const uint64_t FILE_BYTES = UINT64_C(1) << 60;
static const size_t SPILL_BYTES = (size_t)1 << 42;

static Backing backings[BOOK_COUNT];
FILE_LOCK(physicals_lock);
static Physical *physicals_unused;
static struct Lingering *lingering; /* guarded by physicals_lock */

/* ---- backing files -------------------------------------------------------------- */
static void file_punch(int fd, uint64_t offset, size_t bytes)
{
    (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes);
}

static void spill_purge(void *argument, size_t offset, size_t bytes)
{
    const Backing *backing = argument;
    file_punch(backing->fd, backing->spill_offset + offset, bytes);
}

static bool backing_open_locked(Backing *backing)
{
    if (backing->open) {
        return true;
    }
    backing->fd = file_in_memory("acl-sim-physical", FILE_BYTES);
    backing->open = backing->fd >= 0 &&
                    zone_open(&backing->spill, SPILL_BYTES, GRANULE, spill_purge, backing);
    backing->next = SPILL_BYTES;
    return backing->open;
}

/* Initialises the locks of all backings before the first use. */
__attribute__((constructor)) static void backings_init(void)
{
    for (int i = 0; i < BOOK_COUNT; i++) {
        pthread_mutex_init(&backings[i].lock, NULL);
    }
}

void backings_forked(void)
{
    backings_init();
    lingering = NULL;
    for (int i = 0; i < BOOK_COUNT; i++) {
        if (backings[i].open) {
            close(backings[i].fd);
            backings[i].open = false;
            backings[i].unused = NULL;
        }
    }
}

static Backing *backing_of(int32_t device)
{
    Backing *backing = &backings[device];
    pthread_mutex_lock(&backing->lock);
    bool open = backing_open_locked(backing);
    pthread_mutex_unlock(&backing->lock);
    return open ? backing : NULL;
}

/* ---- homes (P3) ----------------------------------------------------------------- */
static Home *home_reuse_locked(Backing *backing, size_t granules)
{
    for (Home **at = &backing->unused; *at != NULL; at = &(*at)->next) {
        if ((*at)->granules >= granules && (*at)->granules <= 2 * granules) {
            Home *home = *at;
            *at = home->next;
            return home;
        }
    }
    return NULL;
}

Home *home_new(int32_t device, size_t bytes)
{
    Backing *backing = backing_of(device);
    size_t granules = bytes / GRANULE;
    if (backing == NULL) {
        return NULL;
    }
    pthread_mutex_lock(&backing->lock);
    Home *home = home_reuse_locked(backing, granules);
    uint64_t offset = backing->next;
    bool room = home != NULL || bytes <= FILE_BYTES - offset;
    if (home == NULL && room) {
        backing->next += bytes;
    }
    pthread_mutex_unlock(&backing->lock);
    if (home == NULL && room) {
        home = calloc(1, sizeof *home);
        uint64_t *used = calloc((granules + 63) / 64, sizeof *used);
        if (home == NULL || used == NULL) {
            free(home);
            free(used);
            return NULL;
        }
        *home = (Home){.device = device, .offset = offset, .granules = granules, .used = used};
        pthread_mutex_init(&home->lock, NULL);
    }
    if (home != NULL) {
        atomic_store(&home->refs, 1);
    }
    return home;
}

void home_unref(Home *home)
{
    if (home == NULL || atomic_fetch_sub(&home->refs, 1) != 1) {
        return;
    }
    Backing *backing = &backings[home->device];
    pthread_mutex_lock(&backing->lock);
    home->next = backing->unused;
    backing->unused = home;
    pthread_mutex_unlock(&backing->lock);
}

/* Marks the granules as used; false, and nothing is marked, if one of them is used already. */
static bool home_take(Home *home, size_t granule, size_t count)
{
    bool clear = granule + count <= home->granules;
    pthread_mutex_lock(&home->lock);
    for (size_t i = granule; clear && i < granule + count; i++) {
        clear = (home->used[i / 64] >> (i % 64) & 1) == 0;
    }
    for (size_t i = granule; clear && i < granule + count; i++) {
        home->used[i / 64] |= UINT64_C(1) << (i % 64);
    }
    pthread_mutex_unlock(&home->lock);
    return clear;
}

static void home_give(Home *home, size_t granule, size_t count)
{
    pthread_mutex_lock(&home->lock);
    for (size_t i = granule; i < granule + count; i++) {
        home->used[i / 64] &= ~(UINT64_C(1) << (i % 64));
    }
    pthread_mutex_unlock(&home->lock);
}

/* ---- places that importers still use -------------------------------------------- */
/* A place in the file whose Physical was freed while importers still use the memory. */
typedef struct Lingering {
    struct Lingering *next;
    ShareEntry *share;
    int32_t device;
    int fd;
    Home *home; /* the home that contains the place; NULL: it is in the spill zone of the backing file */
    uint64_t offset;
    size_t bytes;
} Lingering;

static void place_give(const Lingering *place)
{
    if (place->home != NULL) {
        size_t granule = (place->offset - place->home->offset) / GRANULE;
        file_punch(place->fd, place->offset, place->bytes);
        home_give(place->home, granule, place->bytes / GRANULE);
        home_unref(place->home);
        return;
    }
    Backing *backing = &backings[place->device];
    ZoneView view;
    size_t offset = place->offset - backing->spill_offset;
    if (zone_hold(&backing->spill, offset, &view)) {
        zone_give(&backing->spill, offset);
    }
}

/* Frees the lingering places whose importers are done. */
static void lingering_collect(void)
{
    pthread_mutex_lock(&physicals_lock);
    for (Lingering **at = &lingering; *at != NULL;) {
        Lingering *one = *at;
        if (!share_is_over(one->share)) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        place_give(one);
        free(one);
    }
    pthread_mutex_unlock(&physicals_lock);
}

/* ---- physical memory ------------------------------------------------------------ */
Physical *physical_blank(void)
{
    lingering_collect();
    pthread_mutex_lock(&physicals_lock);
    Physical *memory = physicals_unused;
    if (memory != NULL) {
        physicals_unused = memory->next;
    }
    pthread_mutex_unlock(&physicals_lock);
    if (memory == NULL) {
        memory = calloc(1, sizeof *memory);
        if (memory == NULL) {
            return NULL;
        }
        pthread_mutex_init(&memory->lock, NULL);
    }
    memory->placed = memory->imported = false;
    memory->home = NULL;
    memory->share = NULL;
    memory->link = 0;
    memory->fd = -1;
    atomic_store(&memory->handle, NULL);
    atomic_store(&memory->refs, 1);
    return memory;
}

static bool place_locked(Physical *memory, Home *home, size_t granule)
{
    Backing *backing = backing_of(memory->device);
    size_t count = memory->bytes / GRANULE;
    if (backing == NULL) {
        return false;
    }
    memory->fd = backing->fd;
    if (home != NULL && home->device == memory->device && home_take(home, granule, count)) {
        atomic_fetch_add(&home->refs, 1);
        memory->home = home;
        memory->offset = home->offset + granule * GRANULE;
        return true;
    }
    static const BlockInfo none = {0};
    size_t offset = zone_take(&backing->spill, memory->bytes, &none);
    memory->offset = backing->spill_offset + offset;
    return offset != SIZE_MAX;
}

bool physical_place(Physical *memory, Home *home, size_t granule)
{
    pthread_mutex_lock(&memory->lock);
    if (!memory->placed) {
        memory->placed = place_locked(memory, home, granule);
    }
    bool placed = memory->placed;
    pthread_mutex_unlock(&memory->lock);
    return placed;
}

/* Frees the memory's pages and its place in the file: now, or when the last importer is done with them. */
static void physical_unplace(Physical *memory)
{
    Lingering place = {NULL, memory->share, memory->device, memory->fd, memory->home,
                       memory->offset, memory->bytes};
    if (memory->share == NULL || share_owner_gone(memory->share)) {
        place_give(&place);
        return;
    }
    Lingering *kept = malloc(sizeof *kept);
    if (kept != NULL) { /* without host memory, the place is never used again; the last importer frees its pages */
        *kept = place;
        pthread_mutex_lock(&physicals_lock);
        kept->next = lingering;
        lingering = kept;
        pthread_mutex_unlock(&physicals_lock);
    }
}

void physical_ref(Physical *memory)
{
    atomic_fetch_add(&memory->refs, 1);
}

void physical_unref(Physical *memory)
{
    if (atomic_fetch_sub(&memory->refs, 1) != 1) {
        return;
    }
    if (races_on()) {
        race_physical_gone(memory, memory->bytes);
    }
    if (memory->imported) {
        share_import_gone(memory->share, memory->fd);
        close(memory->fd);
    } else {
        if (memory->placed) {
            physical_unplace(memory);
        }
        books_give(memory->device, BOOK_PHYSICAL, memory->page, memory->bytes);
    }
    pthread_mutex_lock(&physicals_lock);
    memory->next = physicals_unused;
    physicals_unused = memory;
    pthread_mutex_unlock(&physicals_lock);
}

/* Takes a reference; false if the memory is dead. */
static bool physical_try_ref(Physical *memory)
{
    unsigned refs = atomic_load(&memory->refs);
    while (refs != 0) {
        if (atomic_compare_exchange_weak(&memory->refs, &refs, refs + 1)) {
            return true;
        }
    }
    return false;
}

static aclError handle_unknown(const char *function, aclrtDrvMemHandle handle)
{
    return error_set(function, ACL_ERROR_RT_INVALID_HANDLE,
                     "handle = %p is not a live handle of physical memory",
                     (void *)handle);
}

/* Gives the memory of a handle's slot, with a reference; false if the handle is dead. The handle is checked after the
   reference was taken, because before that the Physical may come to belong to another handle. */
static bool handle_memory(const PhysicalHandle *slot, Physical **memory)
{
    *memory = slot->memory;
    if (!physical_try_ref(*memory)) {
        return false;
    }
    if (handle_is(slot, HANDLE_PHYSICAL)) {
        return true;
    }
    physical_unref(*memory);
    return false;
}

aclError physical_of(const char *function, aclrtDrvMemHandle handle, Physical **memory)
{
    PhysicalHandle *slot = (PhysicalHandle *)handle;
    if (handle_follow(slot, HANDLE_PHYSICAL)) {
        bool held = handle_memory(slot, memory);
        handle_drop(slot);
        if (held) {
            return ACL_SUCCESS;
        }
    }
    return handle_unknown(function, handle);
}

PhysicalHandle *physical_handle(Physical *memory)
{
    PhysicalHandle *handle = handle_prepare(HANDLE_PHYSICAL, sizeof *handle);
    if (handle != NULL) {
        handle->memory = memory;
        atomic_store(&handle->users, 1);
        handle_show(handle);
        atomic_store(&memory->handle, handle);
    }
    return handle;
}

/* Adds `change` to the number of times that the handle must still be freed; false if this number is 0. */
static bool users_add(PhysicalHandle *handle, int change)
{
    unsigned users = atomic_load(&handle->users);
    while (users != 0
           && !atomic_compare_exchange_weak(&handle->users, &users, users + (unsigned)change)) {
    }
    return users != 0;
}

PhysicalHandle *physical_retain(Physical *memory)
{
    PhysicalHandle *handle = atomic_load(&memory->handle);
    if (handle != NULL && handle_follow(handle, HANDLE_PHYSICAL)) {
        bool retained = handle->memory == memory && users_add(handle, 1);
        handle_drop(handle);
        if (retained) {
            return handle;
        }
    }
    physical_ref(memory);
    handle = physical_handle(memory); /* a new handle, because all earlier handles of the memory were freed */
    if (handle == NULL) {
        physical_unref(memory);
    }
    return handle;
}

/* ---- properties ----------------------------------------------------------------- */
static bool location_is_host(aclrtMemLocationType type)
{
    return type == ACL_MEM_LOCATION_TYPE_HOST || type == ACL_MEM_LOCATION_TYPE_HOST_NUMA;
}

/* Returns the kind of pages for a memory attribute; PAGE_KINDS if physical memory at that location cannot have the
   attribute. */
static PageKind attribute_page(aclrtMemAttr attr, bool on_host)
{
    switch (attr) {
    case ACL_HBM_MEM_HUGE:
    case ACL_HBM_MEM_NORMAL: /* the documentation says that physical memory with a NORMAL attribute gets huge pages */
    case ACL_MEM_HUGE:
    case ACL_MEM_NORMAL:
    case ACL_MEM_P2P_HUGE:
    case ACL_MEM_P2P_NORMAL:
        return PAGE_HUGE;
    case ACL_DDR_MEM_HUGE:
    case ACL_DDR_MEM_NORMAL:
    case ACL_DDR_MEM_P2P_HUGE:
    case ACL_DDR_MEM_P2P_NORMAL:
        return on_host ? PAGE_HUGE : PAGE_KINDS;
    case ACL_HBM_MEM_HUGE1G:
    case ACL_MEM_HUGE1G:
    case ACL_MEM_P2P_HUGE1G:
        return PAGE_GIANT;
    default:
        return PAGE_KINDS;
    }
}

static aclError attribute_check(const char *function, const aclrtPhysicalMemProp *prop,
                                PageKind *page)
{
    *page = attribute_page(prop->memAttr, location_is_host(prop->location.type));
    if (*page == PAGE_KINDS) {
        return error_set(function, ACL_ERROR_INVALID_PARAM,
                         "prop->memAttr = %d is not an attribute of physical memory at location "
                         "type %d", (int)prop->memAttr, (int)prop->location.type);
    }
    return ACL_SUCCESS;
}

/* Makes the checks of the runtime and of the driver, and gives the device (BOOK_HOST: the host). */
static aclError location_check(const char *function, const aclrtPhysicalMemProp *prop,
                               PageKind page, int32_t *device)
{
    if (!soc_current()->has_virtual_memory ||
        (page == PAGE_GIANT && !soc_current()->has_huge1g)) {
        return error_set(function, ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
            "%s does not support physical memory with memAttr %d", config.soc, (int)prop->memAttr);
    }
    *device = BOOK_HOST;
    if (location_is_host(prop->location.type)) {
        return ACL_SUCCESS;
    }
    if (prop->location.type != ACL_MEM_LOCATION_TYPE_DEVICE) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "prop->location.type = %d: expected HOST, DEVICE or HOST_NUMA",
                         (int)prop->location.type);
    }
    *device = (int32_t)prop->location.id;
    return device_check(*device);
}

aclError sim_aclrtMemGetAllocationGranularity(aclrtPhysicalMemProp *prop,
                                              aclrtMemGranularityOptions option,
                                              size_t *granularity)
{
    PageKind page;
    int32_t device;
    REQUIRE(prop);
    REQUIRE(granularity);
    TRY(attribute_check(__func__, prop, &page));
    TRY(location_check(__func__, prop, page, &device));
    if (option != ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM &&
        option != ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "option = %d: expected 0 (MINIMUM) or 1 "
                    "(RECOMMENDED)", (int)option);
    }
    *granularity = PAGE_BYTES[page];
    return ACL_SUCCESS;
}

/* ---- the calls ------------------------------------------------------------------ */
static aclError physical_new(const char *function, size_t size, const aclrtPhysicalMemProp *prop,
                             PageKind page, int32_t device, PhysicalHandle **handle)
{
    if (size % PAGE_BYTES[page] != 0) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "size = %zu: expected a multiple of the granularity %zu", size,
                         PAGE_BYTES[page]);
    }
    if (!books_take(device, BOOK_PHYSICAL, page, size)) {
        return books_refuse(function, size, device);
    }
    Physical *memory = physical_blank();
    *handle = NULL;
    if (memory == NULL) {
        books_give(device, BOOK_PHYSICAL, page, size);
    } else {
        memory->page = page;
        memory->device = device;
        memory->bytes = size;
        memory->prop = *prop;
        *handle = physical_handle(memory); /* last: another thread may still use an old handle with this value */
        if (*handle == NULL) {
            physical_unref(memory);
        }
    }
    if (*handle == NULL) {
        return error_set(function, ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "no handle left");
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtMallocPhysical(aclrtDrvMemHandle *handle, size_t size,
                                 const aclrtPhysicalMemProp *prop, uint64_t flags)
{
    PageKind page;
    int32_t device;
    PhysicalHandle *made;
    REQUIRE(handle);
    REQUIRE(prop);
    REQUIRE(size > 0);
    REQUIRE(flags == 0);
    REQUIRE(prop->handleType == ACL_MEM_HANDLE_TYPE_NONE);
    REQUIRE(prop->allocationType == ACL_MEM_ALLOCATION_TYPE_PINNED);
    REQUIRE(prop->location.type != ACL_MEM_LOCATION_TYPE_UNREGISTERED);
    REQUIRE(prop->location.type != ACL_MEM_LOCATION_TYPE_MANAGED);
    TRY(attribute_check(__func__, prop, &page));
    TRY(location_check(__func__, prop, page, &device));
    TRY(device_alive(__func__, device));
    TRY(physical_new(__func__, size, prop, page, device, &made));
    *handle = (aclrtDrvMemHandle)made;
    return ACL_SUCCESS;
}

aclError sim_aclrtFreePhysical(aclrtDrvMemHandle handle)
{
    REQUIRE(handle);
    PhysicalHandle *slot = (PhysicalHandle *)handle;
    bool freed = false;
    if (handle_follow(slot, HANDLE_PHYSICAL)) {
        freed = users_add(slot, -1);
        if (freed && atomic_load(&slot->users) == 0 && handle_kill(slot)) {
            PhysicalHandle *latest = slot;
            atomic_compare_exchange_strong(&slot->memory->handle, &latest, NULL);
            physical_unref(slot->memory); /* the reference of the handle */
            handle_retire(slot);
        }
        handle_drop(slot);
    }
    return freed ? ACL_SUCCESS : handle_unknown(__func__, handle);
}

aclError sim_aclrtMemGetAllocationPropertiesFromHandle(aclrtDrvMemHandle handle,
                                                       aclrtPhysicalMemProp *prop)
{
    REQUIRE(handle);
    REQUIRE(prop);
    Physical *memory;
    TRY(physical_of(__func__, handle, &memory));
    *prop = memory->prop;
    physical_unref(memory);
    return ACL_SUCCESS;
}

aclError sim_aclrtMemMapSetLink(aclrtDrvMemHandle handle, aclrtMemLinkType adviceLink)
{
    REQUIRE(handle);
    Physical *memory;
    TRY(physical_of(__func__, handle, &memory));
    bool known = (int)adviceLink >= (int)ACL_RT_MEM_ACCESS_LINK_SIO &&
                 (int)adviceLink <= (int)ACL_RT_MEM_ACCESS_UB_MULTI_PORT_PATH;
    if (known) {
        memory->link = (uint32_t)adviceLink;
    }
    physical_unref(memory);
    REQUIRE_RT(known);
    return ACL_SUCCESS;
}
