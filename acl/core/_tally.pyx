"""Statistics that a pool always keeps: sizes, times of slow allocations, composition of its peak.

The count of each size costs the fast path nothing: it counts each hit once, in the count of the
hit's size.  Allocations that the cache does not serve are counted by the bin of their size; there
are 32 bins for each power of two.  Only slow allocations are timed, and allocations that flush the
cache or reactivate mappings.

The composition of the peak of live bytes over all streams is noted at slow allocations, and when
the peak of one stream has risen by 1/64 and by 1 MiB since it was last noted.  So at the time of
the note at least 63/64 of the peak, less 1 MiB for each stream, was live.  There is one exception:
if several streams reach a new joint peak in memory that is reserved already, and the peak of no
stream has risen that much, the joint peak is not noted.  From 8 streams on, the note may be older
by one slow allocation for each 8 streams.

Thread rule: any thread, no GIL, no Python object.  Sums over arenas are read without the arenas'
locks: while other threads allocate, the numbers that are added may be from different moments.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from acl.core._bins cimport bin_of, bit_highest, bit_lowest, size_units
from acl.core.types cimport (
    BLOCK_CACHED, BLOCK_FREE, BLOCK_HOLE, BLOCK_LIVE, BLOCK_WAITING, Budget, CACHE_UNITS, CLIMBERS,
    NEAR_MOST, PEAK_STREAMS, PeakStream, Range, SLOW_BUCKETS, Share, Source, TagScope, UNIT_SHIFT,
)
from acl.core._lock cimport count_read, lock_drop, lock_take, spin_enter, spin_leave, stale_read
from acl.core._record cimport record_ticks
from acl.core.policy cimport HITS_STALE, STALL_NS

cdef extern from *:
    """
    /* Bytes that this thread claimed of a budget for the block that it is about to get. */
    static _Thread_local size_t budget_claimed;
    static size_t budget_read(size_t *live) { return __atomic_load_n(live, __ATOMIC_RELAXED); }
    static int budget_swap(size_t *live, size_t before, size_t after) {
        return __atomic_compare_exchange_n(
            live, &before, after, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
    static void budget_change(size_t *live, size_t change) {
        __atomic_fetch_add(live, change, __ATOMIC_RELAXED);
    }
    static void budget_count(uint64_t *refused) {
        __atomic_fetch_add(refused, 1, __ATOMIC_RELAXED);
    }
    /* The thread's innermost open TagScope; other modules get the address of this variable. */
    static _Thread_local void *thread_scope;
    static void **thread_scope_place(void) { return &thread_scope; }
    """
    size_t budget_claimed
    size_t budget_read(size_t *live) nogil
    bint budget_swap(size_t *live, size_t before, size_t after) nogil
    void budget_change(size_t *live, size_t change) nogil
    void budget_count(uint64_t *refused) nogil
    void **thread_scope_place() nogil

cdef extern from "core/record.h" nogil:
    uint64_t clock_monotonic_ns()

cdef enum:
    SLOW_LEAST = 6              # all durations below 2**6 ns are in one bucket


cdef uint64_t arena_allocs(Arena *arena) noexcept nogil:
    cdef uint64_t misses = arena.counters.fits + arena.counters.recalls + arena.counters.slow
    if misses - arena.tally.hits_at >= HITS_STALE:
        arena.tally.hits_seen = arena_hits(arena)
        arena.tally.hits_at = misses
    return arena.tally.hits_seen + misses


cdef uint64_t arena_hits(Arena *arena) noexcept nogil:
    cdef uint64_t *counts = &arena.tally.class_hits[1]  # entry 0 is not used: no block has 0 units
    cdef uint64_t even = 0, odd = 0
    cdef size_t at
    for at in range(0, CACHE_UNITS, 4):
        even += counts[at] + counts[at + 2]
        odd += counts[at + 1] + counts[at + 3]
    return even + odd


# --- times --------------------------------------------------------------------------------------

cdef uint32_t slow_bucket(uint64_t ns) noexcept nogil:
    cdef uint32_t top, index
    if ns < 1 << SLOW_LEAST:
        return 0
    top = bit_highest(ns)
    index = (top - SLOW_LEAST) * 8 + 1 + (<uint32_t> (ns >> (top - 3)) & 7)  # safe cast: three bits
    return min(index, <uint32_t> SLOW_BUCKETS - 1)


cdef uint64_t slow_bucket_low(uint32_t bucket) noexcept nogil:
    if bucket == 0:
        return 0
    return <uint64_t> (8 + (bucket - 1) % 8) << ((bucket - 1) // 8 + SLOW_LEAST - 3)


cdef uint64_t slow_begin() noexcept nogil:
    return clock_monotonic_ns()


cdef void slow_end(Arena *arena, uint64_t began) noexcept nogil:
    cdef uint64_t ns = clock_monotonic_ns() - began
    arena.tally.slow_counts[slow_bucket(ns)] += 1
    arena.tally.slow_ns += ns
    if ns > arena.tally.slow_longest_ns:
        arena.tally.slow_longest_ns = ns


cdef void stall_end(Arena *arena, uint64_t began) noexcept nogil:
    if clock_monotonic_ns() - began >= STALL_NS:
        slow_end(arena, began)


cdef uint64_t bin_low(uint32_t index) noexcept nogil:
    if index < 64:
        return index
    return <uint64_t> (32 + index % 32) << (index // 32 - 1)


cdef inline uint64_t glance(uint64_t *count) noexcept nogil:
    return stale_read(<size_t *> count)         # safe cast: size_t has 64 bits too


cdef void arena_sum(Arena *arena, Sums *sums) noexcept nogil:
    cdef uint32_t i
    for i in range(1, <uint32_t> CACHE_UNITS + 1):
        sums.bins[bin_of(i)] += glance(&arena.tally.class_hits[i])
    for i in range(<uint32_t> BINS):
        sums.bins[i] += glance(&arena.tally.bin_counts[i])
    for i in range(<uint32_t> SLOW_BUCKETS):
        sums.slow[i] += glance(&arena.tally.slow_counts[i])
    sums.slow_ns += glance(&arena.tally.slow_ns)
    sums.longest_ns = max(sums.longest_ns, glance(&arena.tally.slow_longest_ns))


cdef void tally_sum(Pool *pool, Sums *sums, bint locked) noexcept nogil:
    cdef uint32_t index
    cdef Arena *arena
    memset(sums, 0, sizeof(Sums))
    for index in range(count_read(&pool.arena_count)):
        arena = pool.arenas[index]
        if locked:
            lock_take(&arena.lock)
        arena_sum(arena, sums)
        if locked:
            lock_drop(&arena.lock)


# --- sums over arenas ---------------------------------------------------------------------------

cdef inline void share_now(Source *source, Arena *arena) noexcept nogil:
    """Under the source's lock: update the pool's sums with the numbers of one arena."""
    cdef Share *share = &arena.burst.share
    cdef size_t live = stale_read(&arena.live)
    cdef size_t requested = stale_read(&arena.requested)
    cdef size_t asleep = stale_read(&arena.sleep.asleep)
    cdef size_t peak = max(stale_read(&arena.requested_peak),
                           stale_read(&arena.past_requested_peak))
    source.shares.live += live - share.live
    source.shares.requested += requested - share.requested
    source.shares.asleep += asleep - share.asleep
    source.shares.peak += peak - share.peak
    share.live = live
    share.requested = requested
    share.asleep = asleep
    share.peak = peak


cdef void tally_near(Source *source, Arena **near, uint32_t count) noexcept nogil:
    cdef uint32_t index
    for index in range(count):
        share_now(source, near[index])


cdef void tally_look(Arena *arena) noexcept nogil:
    """Update the pool's sums with the numbers of a few arenas: see `_tally.pxd`.

    Arenas without slow allocations change little, so each call reads only up to 4 of them.
    """
    cdef Pool *pool = arena.pool
    cdef Source *source = &pool.source
    cdef uint32_t count = count_read(&pool.arena_count)
    cdef uint32_t _turn
    spin_enter(&source.lock)
    share_now(source, arena)
    tally_near(source, &source.climbers[0], source.climber_count)
    for _turn in range(min(count - source.climber_count, <uint32_t> (NEAR_MOST - CLIMBERS))):
        source.looked = source.looked + 1 if source.looked + 1 < count else 0
        share_now(source, pool.arenas[source.looked])
    spin_leave(&source.lock)


cdef void tally_look_all(Pool *pool) noexcept nogil:
    cdef uint32_t index
    spin_enter(&pool.source.lock)
    for index in range(count_read(&pool.arena_count)):
        share_now(&pool.source, pool.arenas[index])
    spin_leave(&pool.source.lock)


# --- the peak -----------------------------------------------------------------------------------

cdef void peak_take(Pool *pool, Peak *peak) noexcept nogil:
    """Fill `peak` with the bytes that are live now, by stream and by tag."""
    cdef uint32_t index, tag
    cdef uint64_t tags
    cdef size_t live, held, tagged
    cdef Arena *arena
    cdef PeakStream *part
    memset(peak, 0, sizeof(Peak))
    peak.time = record_ticks()
    peak.reserved = stale_read(&pool.source.reserved)
    for index in range(count_read(&pool.arena_count)):
        arena = pool.arenas[index]
        live = stale_read(&arena.live)
        if live == 0:
            continue
        peak.live += live
        peak.requested += stale_read(&arena.requested)
        tagged = 0
        tags = <uint64_t> stale_read(<size_t *> &arena.tags)
        while tags != 0:
            tag = bit_lowest(tags)
            tags &= tags - 1
            held = stale_read(&arena.tag_live[tag])
            peak.tags[tag] += held
            tagged += held
        tag = arena.default_tag                         # it gets the bytes of blocks without a tag
        if tag != 0 and live > tagged:
            peak.tags[tag] += live - tagged
        if peak.stream_count < PEAK_STREAMS:
            part = &peak.streams[peak.stream_count]
            part.stream = arena.stream
            part.role = arena.role
            part.live = live
            peak.stream_count += 1


cdef bint peak_wanted(Arena *arena) noexcept nogil:
    """True if the sum of live bytes of all arenas is a new peak whose composition is to be noted.

    A note reads each arena.  So in a pool with 8 arenas or more, some new peaks are skipped.
    """
    cdef Pool *pool = arena.pool
    cdef Source *source = &pool.source
    cdef bint wanted
    spin_enter(&source.lock)
    share_now(source, arena)
    wanted = source.shares.live > stale_read(&pool.peak.live)
    if wanted and source.peak_rest > 0:
        source.peak_rest -= 1
        wanted = False
    elif wanted:
        source.peak_rest = count_read(&pool.arena_count) // CLIMBERS
    spin_leave(&source.lock)
    return wanted


cdef void peak_note(Arena *arena, bint climbed) noexcept nogil:
    cdef Pool *pool = arena.pool
    cdef Peak peak
    if not climbed:
        tally_look(arena)
    if not peak_wanted(arena):
        return
    peak_take(pool, &peak)
    spin_enter(&pool.lock)
    if peak.live > pool.peak.live:
        peak.number = pool.peak.number + 1
        pool.peak = peak
    spin_leave(&pool.lock)


cdef void peak_reset(Pool *pool) noexcept nogil:
    cdef Peak peak
    peak_take(pool, &peak)
    spin_enter(&pool.lock)
    peak.number = pool.peak.number + 1
    pool.peak = peak
    spin_leave(&pool.lock)


cdef void peak_read(Pool *pool, Peak *peak) noexcept nogil:
    cdef Peak now
    peak_take(pool, &now)
    spin_enter(&pool.lock)
    if now.live > pool.peak.live:
        now.number = pool.peak.number + 1
        pool.peak = now
    peak[0] = pool.peak
    spin_leave(&pool.lock)


# --- tags and their budgets -----------------------------------------------------------------------

cdef bint budget_claim(Arena *arena, size_t size, uint16_t tag) noexcept nogil:
    global budget_claimed
    cdef Budget *budget = &arena.pool.budget[tag]
    cdef size_t bytes = size_units(size) << UNIT_SHIFT
    cdef size_t limit = stale_read(&budget.limit)
    cdef size_t live = budget_read(&budget.live)
    while limit == 0 or (bytes <= limit and live <= limit - bytes):
        if budget_swap(&budget.live, live, live + bytes):
            budget_claimed = bytes
            return True
        live = budget_read(&budget.live)
    budget_count(&budget.refused)
    return False


cdef void budget_settle(Arena *arena, uint16_t tag) noexcept nogil:
    global budget_claimed
    if budget_claimed != 0:                     # the allocation failed: return the claimed bytes
        budget_change(&arena.pool.budget[tag].live, -budget_claimed)
        budget_claimed = 0


cdef void budget_add(Arena *arena, uint16_t tag, size_t size) noexcept nogil:
    global budget_claimed
    if budget_claimed == 0:                     # the budget was set after this allocation began
        budget_change(&arena.pool.budget[tag].live, size)
    budget_claimed = 0


cdef void budget_take(Arena *arena, uint16_t tag, size_t size) noexcept nogil:
    budget_change(&arena.pool.budget[tag].live, -size)


cdef void budget_set(Pool *pool, uint16_t tag, size_t limit) noexcept nogil:
    cdef uint64_t bit = <uint64_t> 1 << tag
    cdef uint32_t index
    cdef Arena *arena
    pool.budget[tag].limit = limit
    spin_enter(&pool.lock)
    pool.budgets |= bit                         # new arenas count the tag from their first block on
    spin_leave(&pool.lock)
    for index in range(count_read(&pool.arena_count)):
        arena = pool.arenas[index]
        lock_take(&arena.lock)
        if not arena.budgets & bit:
            arena.budgets |= bit
            budget_change(&pool.budget[tag].live, arena.tag_live[tag])
        lock_drop(&arena.lock)


cdef TagScope **tag_scopes() noexcept nogil:
    return <TagScope **> thread_scope_place()


cdef int no_scopes() noexcept nogil:
    cdef TagScope *scope = tag_scopes()[0]
    while scope != NULL and scope.pool == NULL:
        scope = scope.outer
    return scope == NULL


cdef uint16_t tag_of_thread(Pool *pool) noexcept nogil:
    """Return the tag of this thread's innermost open scope of the pool; 0 if none is open."""
    cdef TagScope *scope = tag_scopes()[0]
    while scope != NULL and scope.pool != pool:
        scope = scope.outer
    return scope.tag if scope != NULL else 0


# --- statistics ---------------------------------------------------------------------------------

cdef void range_stats(Range *span, ArenaStats *stats) noexcept nogil:
    cdef Block *block = span.first
    while block != NULL:
        if block.state == BLOCK_FREE:
            stats.free += block.size
            if block.size > stats.largest_free:
                stats.largest_free = block.size
        elif block.state == BLOCK_CACHED:
            stats.cached += block.size
        elif block.state == BLOCK_WAITING:
            stats.waiting += block.size
        elif block.state == BLOCK_HOLE:
            stats.holes += 1
        elif block.state == BLOCK_LIVE:
            stats.live_blocks += 1
        block = block.next


cdef uint64_t arena_blocks(Arena *arena, Block *copies, uint64_t room) noexcept nogil:
    """Return the number of blocks.  Copy the first `room` of them, range by range."""
    cdef uint32_t index
    cdef uint64_t count = 0
    cdef Block *block
    lock_take(&arena.lock)
    for index in range(arena.space.range_count):
        block = arena.space.ranges[index].first if arena.space.ranges[index] != NULL else NULL
        while block != NULL:
            if count < room:
                copies[count] = block[0]
            count += 1
            block = block.next
    lock_drop(&arena.lock)
    return count


cdef Block *arena_copy(Arena *arena, uint64_t *count) noexcept nogil:
    cdef uint64_t room = 0
    cdef Block *copies
    while True:
        room += arena_blocks(arena, NULL, 0) + 64
        copies = <Block *> calloc(room, sizeof(Block))
        if copies == NULL:
            return NULL
        count[0] = arena_blocks(arena, copies, room)
        if count[0] <= room:
            return copies
        free(copies)


cdef void arena_stats(Arena *arena, ArenaStats *stats) noexcept nogil:
    cdef uint32_t index
    memset(stats, 0, sizeof(ArenaStats))
    lock_take(&arena.lock)
    stats.allocated = arena.live
    stats.allocated_peak = max(arena.live_peak, arena.past_peak)
    stats.requested = arena.requested
    stats.asleep = arena.sleep.asleep
    stats.requested_peak = max(arena.requested_peak, arena.past_requested_peak)
    stats.reserved = arena.pages * arena.pool.options.granule
    stats.counters = arena.counters
    stats.counters.hits = arena_hits(arena)
    for index in range(arena.space.range_count):
        if arena.space.ranges[index] != NULL:
            stats.ranges += 1
            range_stats(arena.space.ranges[index], stats)
    stats.frees = (stats.counters.hits + stats.counters.fits + stats.counters.recalls
                   + stats.counters.slow - stats.counters.failures - arena.climbing
                   - stats.live_blocks)
    lock_drop(&arena.lock)
