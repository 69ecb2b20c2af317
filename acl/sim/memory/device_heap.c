/* Arenas: the memory of a device, or of the host, from which the malloc families allocate; see memory.h.
 *
 * The policies and messages of the API are in memory.c and hostmem.c. */
#include "base/checks.h"
#include "base/fork.h"
#include "memory/memory.h"
#include "races/race.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* The least address space of a zone, in bytes. Fragmentation wastes addresses, not memory, so a zone
 * has several times as many addresses as its device has memory. */
static const size_t LEAST_SPAN = (size_t)64 << 30;
static const size_t LESS_SPAN = (size_t)4 << 30; /* used if the host refuses LEAST_SPAN, as under valgrind */
static const size_t TINY_SPAN = (size_t)1 << 30; /* in strict mode, which maps each arena twice, used if LESS_SPAN is refused */
static const size_t MOST_SPAN = (size_t)1 << 42;
static const size_t MOST_SMALL = (size_t)1 << 40; /* most bytes of the zone of small blocks: below 2^32 units */
static const size_t UNITS[ZONE_COUNT] = {512, (size_t)1 << 12, (size_t)1 << 21};
static const size_t HUGE = (size_t)1 << 21;

FILE_LOCK(lock); /* held while an arena is made or changed */
static _Atomic(Arena *) arenas[BOOK_COUNT];
static Arena arena_memory[BOOK_COUNT];
static atomic_int strictness = -1; /* -1 until the first arena or reservation is made */

bool memory_strict(void)
{
    int known = atomic_load_explicit(&strictness, memory_order_relaxed);
    if (known < 0) {
        int wanted = config.strict;
        known = atomic_compare_exchange_strong(&strictness, &known, wanted) ? wanted : known;
    }
    return known != 0;
}

static void arena_purge(void *argument, size_t offset, size_t bytes)
{
    const ArenaPart *part = argument;
    const Arena *arena = part->arena;
    size_t at = part->begin + offset;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t end = (at + bytes) / page * page; /* only whole pages: other blocks may share the first and the last page */
    at = (at + page - 1) / page * page;
    if (at >= end) {
        return;
    }
    if (arena->fd >= 0) {
        (void)fallocate(arena->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
                        (off_t)(end - at));
    } else {
        madvise((void *)(arena->base + at), end - at, MADV_DONTNEED);
    }
}

/* Reserves address space for `bytes`, aligned to a huge page; returns 0 if there is none. */
static uintptr_t span_reserve(size_t bytes)
{
    void *memory = mmap(NULL, bytes + HUGE, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        refusal_note("mmap", bytes + HUGE);
        return 0;
    }
    uintptr_t begin = (uintptr_t)memory;
    uintptr_t aligned = (begin + HUGE - 1) / HUGE * HUGE;
    if (aligned > begin) {
        munmap(memory, aligned - begin);
    }
    munmap((void *)(aligned + bytes), begin + HUGE - aligned);
    return aligned;
}

static bool span_map(const Arena *arena, uintptr_t at, int protection)
{
    int flags = MAP_FIXED | MAP_NORESERVE;
    flags |= arena->fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    void *memory = mmap((void *)at, arena->bytes, protection, flags, arena->fd, 0);
    if (memory == MAP_FAILED) {
        refusal_note("mmap", arena->bytes);
        return false;
    }
    madvise(memory, arena->bytes, MADV_DONTDUMP);
    return true;
}

/* Maps the arena a second time, for the simulator itself, because strict mode makes the first mapping
 * inaccessible. Does nothing if the second mapping exists. False if the host refuses it. */
static bool arena_map_inner(Arena *arena)
{
    uintptr_t inner = arena->alias != 0 ? 0 : span_reserve(arena->bytes);
    if (inner != 0 && span_map(arena, inner, PROT_READ | PROT_WRITE)) {
        arena->alias = (ptrdiff_t)(inner - arena->base);
    }
    return arena->alias != 0;
}

static bool arena_map(Arena *arena)
{
    bool strict = arena->fd >= 0 && memory_strict();
    arena->base = span_reserve(arena->bytes);
    return arena->base != 0 &&
           span_map(arena, arena->base, strict ? PROT_NONE : PROT_READ | PROT_WRITE) &&
           (!strict || arena_map_inner(arena));
}

/* Divides the arena into zones; false if the host refuses the memory. Blocks below 4 KiB share pages
 * and are charged in units of 512 bytes, so small blocks can use the whole capacity, and their zone
 * has addresses for it. */
static bool arena_divide(Arena *arena, size_t capacity, size_t least)
{
    size_t span = capacity < least ? least : capacity > MOST_SPAN ? MOST_SPAN : capacity;
    size_t small = capacity < span / 4 ? span / 4 : capacity;
    small = small > MOST_SMALL ? MOST_SMALL : small;
    const size_t spans[ZONE_COUNT] = {small, 2 * span, 4 * span};
    for (int i = 0; i < ZONE_COUNT; i++) {
        size_t bytes = (spans[i] + HUGE - 1) / HUGE * HUGE;
        arena->parts[i] = (ArenaPart){arena, arena->bytes};
        arena->bytes += bytes;
        if (!zone_open(&arena->zones[i], bytes, UNITS[i], arena_purge, &arena->parts[i])) {
            refusal_note("mmap", bytes / UNITS[i] * sizeof(ZoneBlock));
            return false;
        }
    }
    return true;
}

static bool arena_announce(Arena *arena)
{
    Range range = {.begin = arena->base, .end = arena->base + arena->bytes, .object = arena,
                   .alias = arena->alias, .kind = RANGE_ARENA, .device = arena->device};
    return range_add(&range, NULL);
}

static bool arena_make(Arena *arena, int32_t device, size_t capacity, size_t least)
{
    *arena = (Arena){.device = device, .fd = -1};
    bool divided = arena_divide(arena, capacity, least);
    if (divided && device != BOOK_HOST) {
        arena->fd = file_in_memory("acl-sim-device", arena->bytes);
        divided = arena->fd >= 0;
    }
    return divided && arena_map(arena) && arena_announce(arena);
}

/* Frees all parts of an arena, which may be complete or made only in part. */
static void arena_unmake(Arena *arena)
{
    for (int i = 0; i < ZONE_COUNT; i++) {
        zone_close(&arena->zones[i]);
    }
    if (arena->base != 0) {
        munmap((void *)arena->base, arena->bytes);
    }
    if (arena->alias != 0) {
        munmap((void *)(arena->base + (uintptr_t)arena->alias), arena->bytes);
    }
    if (arena->fd >= 0) {
        close(arena->fd);
    }
}

static bool arena_open(Arena *arena, int32_t device)
{
    size_t capacity = device == BOOK_HOST ? 0 : config.capacity[device];
    const struct {
        size_t capacity, least;
    } tries[] = {{capacity, LEAST_SPAN}, {capacity, LESS_SPAN},
                 {capacity < LESS_SPAN ? capacity : LESS_SPAN, LESS_SPAN},
                 {capacity < TINY_SPAN ? capacity : TINY_SPAN, TINY_SPAN}};
    const size_t count = sizeof tries / sizeof tries[0] - (memory_strict() ? 0 : 1);
    for (size_t i = 0; i < count; i++) {
        if (arena_make(arena, device, tries[i].capacity, tries[i].least)) {
            return true;
        }
        arena_unmake(arena);
    }
    return false;
}

/* Makes the users' addresses of an arena inaccessible (`strict`) or accessible. If there is no address
 * space for the second mapping that strict mode needs, changes nothing and returns false. */
static bool arena_follow(Arena *arena, bool strict)
{
    if (strict && !arena_map_inner(arena)) {
        return false;
    }
    range_remove(arena->base, RANGE_ARENA, NULL);
    mprotect((void *)arena->base, arena->bytes, strict ? PROT_NONE : PROT_READ | PROT_WRITE);
    return arena_announce(arena);
}

/* Frees the device's arena; the next request makes a new one. */
static void arena_forget(int32_t device)
{
    Arena *arena = arena_existing(device);
    if (check_on(CHECK_ANY)) {
        (void)checks.quarantine_empty();
    }
    range_remove(arena->base, RANGE_ARENA, NULL);
    arena_unmake(arena);
    atomic_store(&arenas[device], NULL);
}

/* Frees the arenas that have become too small because the configured capacity of their device was raised; only
 * arenas in which nothing is allocated. The next allocation makes a larger arena. */
static void arenas_grow(void)
{
    BookView view;
    pthread_mutex_lock(&lock);
    for (int32_t device = 0; device < DEVICE_MAX; device++) {
        const Arena *arena = arena_existing(device);
        size_t capacity = config.capacity[device];
        size_t wanted = capacity < MOST_SMALL ? capacity : MOST_SMALL;
        books_view(device, &view);
        if (arena != NULL && arena->parts[ZONE_PAGE].begin < wanted && view.total == 0) {
            arena_forget(device);
        }
    }
    pthread_mutex_unlock(&lock);
}

void memory_config_changed(void)
{
    bool strict = config.strict;
    arenas_grow();
    if (atomic_load(&strictness) < 0 || memory_strict() == strict) {
        return;
    }
    pthread_mutex_lock(&lock);
    for (int32_t device = 0; device < DEVICE_MAX; device++) {
        Arena *arena = arena_existing(device);
        if (arena != NULL && !arena_follow(arena, strict)) {
            config.strict = strict = false;
        }
        reservations_protect(device, !strict);
    }
    atomic_store(&strictness, strict);
    pthread_mutex_unlock(&lock);
}

Arena *arena_existing(int32_t device)
{
    return atomic_load_explicit(&arenas[device], memory_order_acquire);
}

/* In a forked child: frees the arenas of devices, because parent and child would share their pages.
 * The arena of the host is kept: the fork has copied its pages. */
void arenas_forked(void)
{
    for (int32_t device = 0; device < DEVICE_MAX; device++) {
        if (arena_existing(device) != NULL) {
            arena_forget(device);
        }
    }
}

Arena *arena_of(int32_t device)
{
    Arena *arena = arena_existing(device);
    if (SIM_LIKELY(arena != NULL)) {
        return arena;
    }
    pthread_mutex_lock(&lock);
    arena = arena_existing(device);
    if (arena == NULL && arena_open(&arena_memory[device], device)) {
        arena = &arena_memory[device];
        atomic_store_explicit(&arenas[device], arena, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return arena;
}

Arena *arena_at(uintptr_t address)
{
    for (uint32_t device = 0; device < config.devices; device++) {
        Arena *arena = arena_existing((int32_t)device);
        if (arena != NULL && arena_has(arena, address)) {
            return arena;
        }
    }
    Arena *host = arena_existing(BOOK_HOST);
    return host != NULL && arena_has(host, address) ? host : NULL;
}

/* ---- blocks --------------------------------------------------------------------- */
static Zone *zone_at(Arena *arena, uintptr_t address, size_t *offset)
{
    size_t at = address - arena->base;
    int index = at < arena->parts[ZONE_PAGE].begin   ? ZONE_SMALL
                : at < arena->parts[ZONE_HUGE].begin ? ZONE_PAGE
                                                     : ZONE_HUGE;
    *offset = at - arena->parts[index].begin;
    return &arena->zones[index];
}

/* Returns how many bytes the accounting charges for a block: a block of less than a page shares pages and is charged
 * in units of 512 bytes, any other block in whole pages. */
static size_t block_bytes(size_t bytes, PageKind page)
{
    size_t unit = page == PAGE_NORMAL && bytes < UNITS[ZONE_PAGE] ? UNITS[ZONE_SMALL]
                                                                  : PAGE_BYTES[page];
    return (bytes + unit - 1) / unit * unit;
}

/* Allocates a block in a process with the checker: with one unit more behind it, for guard bytes. If
 * there are no free addresses, empties the quarantine and tries once more. */
static size_t guarded_take(Zone *zone, size_t bytes, const BlockInfo *info)
{
    BlockInfo guarded = *info;
    guarded.guarded = info->kind != MEMORY_POOL; /* blocks of a pool have no guard unit, because the pool splits them */
    bytes += guarded.guarded ? zone->unit : 0;
    size_t offset = zone_take(zone, bytes, &guarded);
    if (offset == SIZE_MAX && checks.quarantine_empty()) {
        offset = zone_take(zone, bytes, &guarded);
    }
    return offset;
}

uintptr_t arena_take(Arena *arena, size_t bytes, PageKind page, BookKind book,
                     const BlockInfo *info)
{
    if (bytes > arena->bytes) {
        return 0;
    }
    size_t whole = block_bytes(bytes, page);
    if (check_on(CHECK_ANY) && arena->device == BOOK_HOST) {
        whole = (whole + UNITS[ZONE_PAGE] - 1) / UNITS[ZONE_PAGE] * UNITS[ZONE_PAGE]; /* blocks then share no page */
    }
    if (!books_take(arena->device, book, page, whole)) {
        return 0;
    }
    int index = page != PAGE_NORMAL ? ZONE_HUGE
                : whole < UNITS[ZONE_PAGE] ? ZONE_SMALL : ZONE_PAGE;
    size_t offset = SIM_LIKELY(!check_on(CHECK_ANY))
                        ? zone_take(&arena->zones[index], whole, info)
                        : guarded_take(&arena->zones[index], whole, info);
    if (offset == SIZE_MAX) {
        books_give(arena->device, book, page, whole);
        return 0;
    }
    return arena->base + arena->parts[index].begin + offset;
}

bool arena_hold(Arena *arena, uintptr_t address, ZoneView *view)
{
    size_t offset;
    Zone *zone = zone_at(arena, address, &offset);
    bool held = zone_hold(zone, offset, view);
    if (held) {
        view->bytes -= view->info.guarded ? zone->unit : 0;
    }
    return held;
}

void arena_unhold(Arena *arena, uintptr_t address)
{
    size_t offset;
    Zone *zone = zone_at(arena, address, &offset);
    zone_unhold(zone, offset);
}

void arena_give_held(Arena *arena, uintptr_t address, const ZoneView *view, BookKind book)
{
    size_t offset;
    Zone *zone = zone_at(arena, address, &offset);
    if (races_on()) {
        race_forget(address, view->bytes);
    }
    bool kept = check_on(CHECK_ANY) && checks.block_keep(arena, address, view);
    if (!kept) {
        zone_give(zone, offset);
    }
    books_give(arena->device, book, (PageKind)view->info.page, view->bytes);
}

void *arena_record(Arena *arena, uintptr_t address)
{
    size_t offset;
    Zone *zone = zone_at(arena, address, &offset);
    return zone_record(zone, offset);
}

void arena_set_record(Arena *arena, uintptr_t address, void *record)
{
    size_t offset;
    Zone *zone = zone_at(arena, address, &offset);
    zone_set_record(zone, offset, record);
}

size_t arena_guard(Arena *arena, uintptr_t address)
{
    size_t offset;
    return zone_at(arena, address, &offset)->unit;
}

void arena_discard(Arena *arena, uintptr_t address, size_t bytes)
{
    size_t offset;
    const Zone *zone = zone_at(arena, address, &offset);
    zone->purge(zone->purge_argument, offset, bytes);
}

void arena_release(Arena *arena, uintptr_t address)
{
    size_t offset;
    Zone *zone = zone_at(arena, address, &offset);
    zone_give(zone, offset);
}

bool arena_give(Arena *arena, uintptr_t address, BookKind book)
{
    ZoneView view;
    bool held = arena_hold(arena, address, &view);
    if (held) {
        arena_give_held(arena, address, &view, book);
    }
    return held;
}

void arena_split(Arena *arena, uintptr_t address, size_t bytes, const BlockInfo *front,
                 const BlockInfo *rest)
{
    size_t offset;
    Zone *zone = zone_at(arena, address, &offset);
    zone_split(zone, offset, bytes, front, rest);
}

bool arena_mark_exported(Arena *arena, uintptr_t address)
{
    size_t offset;
    Zone *zone = zone_at(arena, address, &offset);
    return zone_mark_exported(zone, offset);
}

bool arena_find(Arena *arena, uintptr_t address, ZoneView *view)
{
    size_t offset;
    Zone *zone = zone_at(arena, address, &offset);
    bool found = zone_find(zone, offset, view);
    if (found) {
        view->bytes -= view->info.guarded ? zone->unit : 0;
        view->offset += arena->parts[zone - arena->zones].begin;
    }
    return found;
}
