/* Zones: see tlsf.h.  The structure is that of a two-level segregated fit with boundary tags. */
#include "memory/tlsf.h"

#include <sys/mman.h>

enum {
    PURGE_AT_ONCE = 8 << 20,   /* a block of this size or more is returned to the system when it is freed */
    PURGE_STALE_AT = 16 << 20, /* smaller freed blocks are returned when their sum reaches this */
};

static void *books_map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* ---- the bitmap of starts (Z4) ---------------------------------------------------
 * Level 0 has a bit for each unit. A bit of any other level is set if the 64-bit word with the bit's index, one level
 * below, is not 0. */
static void start_set(Zone *zone, uint32_t unit)
{
    for (uint32_t level = 0; level < zone->levels; level++) {
        uint64_t *word = &zone->starts[level][unit / 64];
        uint64_t before = *word;
        *word = before | UINT64_C(1) << (unit % 64);
        if (before != 0) {
            return;
        }
        unit /= 64;
    }
}

static void start_clear(Zone *zone, uint32_t unit)
{
    for (uint32_t level = 0; level < zone->levels; level++) {
        uint64_t *word = &zone->starts[level][unit / 64];
        *word &= ~(UINT64_C(1) << (unit % 64));
        if (*word != 0) {
            return;
        }
        unit /= 64;
    }
}

/* Returns the last unit at or before `unit` where a block begins. There is one, because a block always
 * begins at unit 0. */
static uint32_t start_before(const Zone *zone, uint32_t unit)
{
    uint32_t level = 0;
    for (;;) {
        uint64_t word = zone->starts[level][unit / 64] & (~UINT64_C(0) >> (63 - unit % 64));
        if (word != 0) {
            unit = unit / 64 * 64 + 63 - (uint32_t)__builtin_clzll(word);
            break;
        }
        unit = unit / 64 - 1; /* unit / 64 > 0: word 0 of each level has its bit 0 set */
        level++;
    }
    while (level > 0) {
        level--;
        unit = unit * 64 + 63 - (uint32_t)__builtin_clzll(zone->starts[level][unit]);
    }
    return unit;
}

/* ---- bins (Z3) ------------------------------------------------------------------ */
typedef struct BinIndex {
    uint32_t class, subclass;
} BinIndex;

/* Returns the bin of free blocks of that length. */
static BinIndex bin_of(uint32_t units)
{
    if (units < ZONE_SUBCLASSES) {
        return (BinIndex){0, units};
    }
    uint32_t log = 31 - (uint32_t)__builtin_clz(units);
    return (BinIndex){log - 3, (units >> (log - 4)) & (ZONE_SUBCLASSES - 1)};
}

static void bin_insert(Zone *zone, uint32_t first)
{
    ZoneBlock *block = &zone->blocks[first];
    BinIndex index = bin_of(block->units);
    uint32_t *head = &zone->bins[index.class][index.subclass];
    block->bin_prev = ZONE_NONE;
    block->bin_next = *head;
    if (*head != ZONE_NONE) {
        zone->blocks[*head].bin_prev = first;
    }
    *head = first;
    zone->subclass_map[index.class] |= UINT32_C(1) << index.subclass;
    zone->class_map |= UINT32_C(1) << index.class;
}

static void bin_remove(Zone *zone, uint32_t first)
{
    ZoneBlock *block = &zone->blocks[first];
    if (block->bin_next != ZONE_NONE) {
        zone->blocks[block->bin_next].bin_prev = block->bin_prev;
    }
    if (block->bin_prev != ZONE_NONE) {
        zone->blocks[block->bin_prev].bin_next = block->bin_next;
        return;
    }
    BinIndex index = bin_of(block->units);
    zone->bins[index.class][index.subclass] = block->bin_next;
    if (block->bin_next == ZONE_NONE) {
        zone->subclass_map[index.class] &= ~(UINT32_C(1) << index.subclass);
        if (zone->subclass_map[index.class] == 0) {
            zone->class_map &= ~(UINT32_C(1) << index.class);
        }
    }
}

/* Returns the first unit of a free block of at least `units`, or ZONE_NONE. Looks at the first 8 blocks
 * of the bin of `units`, where some blocks may be too short; then takes the first block of a bin of
 * longer blocks. */
static uint32_t bin_search(const Zone *zone, uint32_t units)
{
    BinIndex own = bin_of(units);
    uint32_t first = zone->bins[own.class][own.subclass];
    for (int tries = 0; first != ZONE_NONE && tries < 8; tries++) {
        if (zone->blocks[first].units >= units) {
            return first;
        }
        first = zone->blocks[first].bin_next;
    }
    uint32_t longer = own.subclass + 1 < ZONE_SUBCLASSES ? ~UINT32_C(0) << (own.subclass + 1) : 0;
    uint32_t map = zone->subclass_map[own.class] & longer;
    uint32_t class = own.class;
    if (map == 0) {
        uint32_t classes = class + 1 < ZONE_CLASSES ? zone->class_map & ~UINT32_C(0) << (class + 1)
                                                    : 0;
        if (classes == 0) {
            return ZONE_NONE;
        }
        class = (uint32_t)__builtin_ctz(classes);
        map = zone->subclass_map[class];
    }
    return zone->bins[class][__builtin_ctz(map)];
}

/* ---- blocks (Z1, Z2) ------------------------------------------------------------ */
static void block_place(Zone *zone, uint32_t first, uint32_t units, BlockState state)
{
    zone->blocks[first].units = units;
    zone->blocks[first].state = state;
    zone->blocks[first + units - 1].back = units;
}

/* Cuts a free block: [ free .......... ]  =>  [ first, units ][ free ] */
static void block_carve(Zone *zone, uint32_t first, uint32_t units)
{
    uint32_t whole = zone->blocks[first].units;
    if (whole > units) {
        block_place(zone, first + units, whole - units, BLOCK_FREE);
        start_set(zone, first + units);
        bin_insert(zone, first + units);
    }
    block_place(zone, first, units, BLOCK_LIVE);
}

/* Joins a block with its free neighbours: [ free ][ first ][ free ]  =>  [ free ................ ] */
static void block_merge(Zone *zone, uint32_t first)
{
    uint32_t units = zone->blocks[first].units;
    uint32_t after = first + units;
    if (after < zone->units && zone->blocks[after].state == BLOCK_FREE) {
        bin_remove(zone, after);
        start_clear(zone, after);
        units += zone->blocks[after].units;
        zone->blocks[after].state = BLOCK_NONE;
    }
    if (first > 0) {
        uint32_t before = first - zone->blocks[first - 1].back;
        if (zone->blocks[before].state == BLOCK_FREE) {
            bin_remove(zone, before);
            start_clear(zone, first);
            units += zone->blocks[before].units;
            zone->blocks[first].state = BLOCK_NONE;
            first = before;
        }
    }
    block_place(zone, first, units, BLOCK_FREE);
    bin_insert(zone, first);
}

void zone_close(Zone *zone)
{
    size_t bits = zone->units;
    if (zone->blocks != NULL) {
        munmap(zone->blocks, (size_t)zone->units * sizeof(ZoneBlock));
    }
    for (uint32_t level = 0; level < ZONE_LEVELS && zone->starts[level] != NULL; level++) {
        bits = (bits + 63) / 64;
        munmap(zone->starts[level], bits * sizeof(uint64_t));
    }
    *zone = (Zone){0};
}

bool zone_open(Zone *zone, size_t bytes, size_t unit, ZonePurge purge, void *argument)
{
    uint32_t units = (uint32_t)(bytes / unit);
    *zone = (Zone){.unit = unit, .units = units, .purge = purge, .purge_argument = argument};
    pthread_mutex_init(&zone->lock, NULL);
    zone->blocks = books_map((size_t)units * sizeof(ZoneBlock));
    if (zone->blocks == NULL) {
        return false;
    }
    for (size_t bits = units; zone->levels < ZONE_LEVELS; zone->levels++) {
        bits = (bits + 63) / 64;
        zone->starts[zone->levels] = books_map(bits * sizeof(uint64_t));
        if (zone->starts[zone->levels] == NULL) {
            return false;
        }
        if (bits == 1) {
            zone->levels++;
            break;
        }
    }
    for (int i = 0; i < ZONE_CLASSES * ZONE_SUBCLASSES; i++) {
        zone->bins[i / ZONE_SUBCLASSES][i % ZONE_SUBCLASSES] = ZONE_NONE;
    }
    block_place(zone, 0, units, BLOCK_FREE);
    start_set(zone, 0);
    bin_insert(zone, 0);
    return true;
}

size_t zone_take(Zone *zone, size_t bytes, const BlockInfo *info)
{
    size_t wanted = bytes / zone->unit + (bytes % zone->unit != 0);
    if (wanted == 0 || wanted > zone->units) {
        return SIZE_MAX;
    }
    uint32_t units = (uint32_t)wanted;
    pthread_mutex_lock(&zone->lock);
    uint32_t first = bin_search(zone, units);
    if (first != ZONE_NONE) {
        bin_remove(zone, first);
        block_carve(zone, first, units);
        zone->blocks[first].info = *info;
    }
    pthread_mutex_unlock(&zone->lock);
    return first == ZONE_NONE ? SIZE_MAX : first * zone->unit;
}

static void view_fill(const Zone *zone, uint32_t first, ZoneView *view)
{
    const ZoneBlock *block = &zone->blocks[first];
    *view = (ZoneView){first * zone->unit, block->units * zone->unit, block->info};
}

bool zone_find(Zone *zone, size_t offset, ZoneView *view)
{
    uint32_t unit = (uint32_t)(offset / zone->unit);
    pthread_mutex_lock(&zone->lock);
    uint32_t first = start_before(zone, unit);
    bool live = zone->blocks[first].state == BLOCK_LIVE;
    if (live) {
        view_fill(zone, first, view);
    }
    pthread_mutex_unlock(&zone->lock);
    return live;
}

void *zone_record(Zone *zone, size_t offset)
{
    pthread_mutex_lock(&zone->lock);
    const ZoneBlock *block = &zone->blocks[start_before(zone, (uint32_t)(offset / zone->unit))];
    void *record = block->state == BLOCK_LIVE || block->state == BLOCK_HELD ? block->info.record : NULL;
    pthread_mutex_unlock(&zone->lock);
    return record;
}

void zone_set_record(Zone *zone, size_t offset, void *record)
{
    pthread_mutex_lock(&zone->lock);
    zone->blocks[offset / zone->unit].info.record = record;
    pthread_mutex_unlock(&zone->lock);
}

bool zone_hold(Zone *zone, size_t offset, ZoneView *view)
{
    if (offset % zone->unit != 0) {
        return false;
    }
    uint32_t first = (uint32_t)(offset / zone->unit);
    pthread_mutex_lock(&zone->lock);
    /* `blocks[first]` may still describe an older block, while its unit now lies inside another live
     * block. So the bitmap of starts (Z4) is checked, too. */
    bool live = zone->blocks[first].state == BLOCK_LIVE && start_before(zone, first) == first;
    if (live) {
        zone->blocks[first].state = BLOCK_HELD;
        view_fill(zone, first, view);
    }
    pthread_mutex_unlock(&zone->lock);
    return live;
}

/* Splits a live block: [ live .......... ]  =>  [ front ][ rest ] */
void zone_split(Zone *zone, size_t offset, size_t bytes, const BlockInfo *front,
                const BlockInfo *rest)
{
    uint32_t first = (uint32_t)(offset / zone->unit), units = (uint32_t)(bytes / zone->unit);
    pthread_mutex_lock(&zone->lock);
    uint32_t whole = zone->blocks[first].units;
    block_place(zone, first, units, BLOCK_LIVE);
    zone->blocks[first].info = *front;
    block_place(zone, first + units, whole - units, BLOCK_LIVE);
    zone->blocks[first + units].info = *rest;
    start_set(zone, first + units);
    pthread_mutex_unlock(&zone->lock);
}

void zone_unhold(Zone *zone, size_t offset)
{
    pthread_mutex_lock(&zone->lock);
    zone->blocks[offset / zone->unit].state = BLOCK_LIVE;
    pthread_mutex_unlock(&zone->lock);
}

bool zone_mark_exported(Zone *zone, size_t offset)
{
    uint32_t first = (uint32_t)(offset / zone->unit);
    pthread_mutex_lock(&zone->lock);
    bool live = zone->blocks[first].state == BLOCK_LIVE && start_before(zone, first) == first;
    if (live) {
        zone->blocks[first].info.exported = true;
    }
    pthread_mutex_unlock(&zone->lock);
    return live;
}

/* ---- giving memory back --------------------------------------------------------- */
/* Adds a freed range to the stale ranges; true if the caller must now call zone_purge. The lock is held. */
static bool stale_add(Zone *zone, uint32_t first, uint32_t units)
{
    for (uint32_t i = 0; i < zone->stale_count; i++) {
        const ZoneRange *range = &zone->stale[i];
        if (range->first <= first && first + units <= range->first + range->units) {
            return false;
        }
    }
    zone->stale_bytes += units * zone->unit;
    if (zone->stale_count == ZONE_STALE_MAX) {
        /* The list is full: another thread is about to purge. The range is added to the last
         * entry. An entry may cover more than was freed, because a purge takes only the free
         * parts of it. */
        ZoneRange *last = &zone->stale[ZONE_STALE_MAX - 1];
        uint32_t end = last->first + last->units;
        uint32_t from = first < last->first ? first : last->first;
        end = end > first + units ? end : first + units;
        *last = (ZoneRange){from, end - from};
        return false;
    }
    zone->stale[zone->stale_count++] = (ZoneRange){first, units};
    return zone->stale_count == ZONE_STALE_MAX || zone->stale_bytes >= PURGE_STALE_AT;
}

/* Holds the part of a free block that the range covers:
 * [ free .............. ]  =>  [ free ][ held ][ free ] */
static ZoneRange block_hold_part(Zone *zone, uint32_t first, const ZoneRange *range)
{
    uint32_t units = zone->blocks[first].units;
    uint32_t from = range->first > first ? range->first : first;
    uint32_t range_end = range->first + range->units;
    uint32_t to = range_end < first + units ? range_end : first + units;
    bin_remove(zone, first);
    if (from > first) {
        block_place(zone, first, from - first, BLOCK_FREE);
        bin_insert(zone, first);
        start_set(zone, from);
    }
    if (to < first + units) {
        block_place(zone, to, first + units - to, BLOCK_FREE);
        start_set(zone, to);
        bin_insert(zone, to);
    }
    block_place(zone, from, to - from, BLOCK_HELD);
    return (ZoneRange){from, to - from};
}

/* Takes the free parts of the stale ranges out of the bins and makes held blocks of them, at most `room`, so that their
 * memory can be purged without the lock. Ranges whose parts were all taken leave the list. Returns the number of
 * blocks. The lock is held. */
static uint32_t stale_hold(Zone *zone, ZoneRange *held, uint32_t room)
{
    uint32_t count = 0;
    while (zone->stale_count > 0 && count < room) {
        ZoneRange *range = &zone->stale[zone->stale_count - 1];
        uint32_t end = range->first + range->units;
        uint32_t first = start_before(zone, range->first);
        while (first < end && count < room) {
            if (zone->blocks[first].state == BLOCK_FREE) {
                held[count] = block_hold_part(zone, first, range);
                first = held[count++].first;
            }
            first += zone->blocks[first].units;
        }
        if (first < end) {
            *range = (ZoneRange){first, end - first};
        } else {
            zone->stale_count--;
        }
    }
    if (zone->stale_count == 0) {
        zone->stale_bytes = 0;
    }
    return count;
}

void zone_purge(Zone *zone)
{
    enum { ROOM = 64 };
    ZoneRange held[ROOM];
    for (;;) {
        pthread_mutex_lock(&zone->lock);
        uint32_t count = stale_hold(zone, held, ROOM);
        pthread_mutex_unlock(&zone->lock);
        for (uint32_t i = 0; i < count; i++) {
            zone->purge(zone->purge_argument, held[i].first * zone->unit,
                        held[i].units * zone->unit);
        }
        pthread_mutex_lock(&zone->lock);
        for (uint32_t i = 0; i < count; i++) {
            block_merge(zone, held[i].first);
        }
        bool more = zone->stale_count > 0;
        pthread_mutex_unlock(&zone->lock);
        if (!more) {
            return;
        }
    }
}

void zone_give(Zone *zone, size_t offset)
{
    uint32_t first = (uint32_t)(offset / zone->unit);
    uint32_t units = zone->blocks[first].units; /* read without the lock: no other thread changes a held block */
    size_t bytes = units * zone->unit;
    bool at_once = bytes >= PURGE_AT_ONCE;
    if (at_once) {
        zone->purge(zone->purge_argument, offset, bytes);
    }
    pthread_mutex_lock(&zone->lock);
    block_merge(zone, first);
    bool purge_now = !at_once && stale_add(zone, first, units);
    pthread_mutex_unlock(&zone->lock);
    if (purge_now) {
        zone_purge(zone);
    }
}

/* ---- the checker ---------------------------------------------------------------- */
static int block_check(const Zone *zone, uint32_t first, bool *was_free)
{
    const ZoneBlock *block = &zone->blocks[first];
    if (block->units == 0 || block->units > zone->units - first ||
        zone->blocks[first + block->units - 1].back != block->units) {
        return 1;
    }
    bool is_free = block->state == BLOCK_FREE;
    if (is_free && *was_free) {
        return 2;
    }
    *was_free = is_free;
    if (is_free) {
        BinIndex index = bin_of(block->units);
        uint32_t in_bin = zone->bins[index.class][index.subclass];
        while (in_bin != first && in_bin != ZONE_NONE) {
            in_bin = zone->blocks[in_bin].bin_next;
        }
        if (in_bin != first) {
            return 3;
        }
    }
    uint32_t last = first + block->units - 1;
    return start_before(zone, first) == first && start_before(zone, last) == first ? 0 : 4;
}

int zone_check(Zone *zone)
{
    int broken = 0;
    bool was_free = false;
    pthread_mutex_lock(&zone->lock);
    for (uint32_t first = 0; first < zone->units && broken == 0;) {
        broken = block_check(zone, first, &was_free);
        first += zone->blocks[first].units;
    }
    pthread_mutex_unlock(&zone->lock);
    return broken;
}
