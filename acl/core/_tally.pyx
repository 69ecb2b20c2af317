"""What a pool always counts: sizes, times of slow allocations, what its peak was made of.

Sizes cost the fast path nothing: where it counted its hits it counts those of the size's class.
Blocks that no cache holds are counted by their bin, 32 for each power of two.  Only slow
allocations are timed.

The peak of live bytes over all streams: its composition is taken when a stream has a new peak that
is 1/64 (and 1 MiB) above where it was last taken, and at slow allocations.  So it is of a moment
when at least 63/64 of the peak less 1 MiB for each stream were live, unless several streams made
the peak together out of memory that had been reserved before.

Thread rule: any thread, no GIL, no Python object.  Sums over arenas are read without their locks:
each number is true, their sum may be of no single moment while other threads allocate.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from acl.core._bins cimport bin_of, bit_highest, bit_lowest
from acl._core cimport (
    CACHE_UNITS, PEAK_STREAMS, PeakStream, SLOW_BUCKETS, TAGS,
)
from acl.core._lock cimport count_read, lock_drop, lock_take, spin_enter, spin_leave, stale_read
from acl.core._record cimport record_ticks

cdef extern from "core/record.h" nogil:
    uint64_t clock_monotonic_ns()

cdef enum:
    SLOW_LEAST = 6              # below 2**6 ns is one bucket


cdef uint64_t arena_allocs(Arena *arena) noexcept nogil:
    return (arena_hits(arena) + arena.counters.fits + arena.counters.recalls
            + arena.counters.slow)


cdef uint64_t arena_hits(Arena *arena) noexcept nogil:
    cdef uint64_t hits = 0
    cdef uint32_t word
    cdef uint64_t classes
    for word in range(<uint32_t> (CACHE_UNITS >> 6) + 1):       # an enum
        classes = arena.classes[word]
        while classes != 0:
            hits += arena.class_hits[(word << 6) + bit_lowest(classes)]
            classes &= classes - 1
    return hits


# --- times --------------------------------------------------------------------------------------

cdef uint32_t slow_bucket(uint64_t ns) noexcept nogil:
    cdef uint32_t top, index
    if ns < 1 << SLOW_LEAST:
        return 0
    top = bit_highest(ns)
    index = (top - SLOW_LEAST) * 8 + 1 + (<uint32_t> (ns >> (top - 3)) & 7)     # fits: 3 bits
    return min(index, <uint32_t> SLOW_BUCKETS - 1)


cdef uint64_t slow_bucket_low(uint32_t bucket) noexcept nogil:
    if bucket == 0:
        return 0
    return <uint64_t> (8 + (bucket - 1) % 8) << ((bucket - 1) // 8 + SLOW_LEAST - 3)


cdef uint64_t slow_begin() noexcept nogil:
    return clock_monotonic_ns()


cdef void slow_end(Arena *arena, uint64_t began) noexcept nogil:
    cdef uint64_t ns = clock_monotonic_ns() - began
    arena.slow_counts[slow_bucket(ns)] += 1
    arena.slow_ns += ns
    if ns > arena.slow_longest_ns:
        arena.slow_longest_ns = ns


cdef uint64_t bin_low(uint32_t index) noexcept nogil:
    if index < 64:
        return index
    return <uint64_t> (32 + index % 32) << (index // 32 - 1)


cdef inline uint64_t glance(uint64_t *count) noexcept nogil:
    return stale_read(<size_t *> count)         # as wide


cdef void arena_sum(Arena *arena, Sums *sums) noexcept nogil:
    cdef uint32_t i
    for i in range(1, <uint32_t> CACHE_UNITS + 1):      # an enum
        sums.bins[bin_of(i)] += glance(&arena.class_hits[i])
    for i in range(<uint32_t> ALL_BINS):
        sums.bins[i] += glance(&arena.bin_counts[i])
    for i in range(<uint32_t> SLOW_BUCKETS):
        sums.slow[i] += glance(&arena.slow_counts[i])
    sums.slow_ns += glance(&arena.slow_ns)
    sums.longest_ns = max(sums.longest_ns, glance(&arena.slow_longest_ns))


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


# --- the peak -----------------------------------------------------------------------------------

cdef void peak_take(Pool *pool, Peak *peak) noexcept nogil:
    """What is live, by stream and by tag."""
    cdef uint32_t index, tag
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
        for tag in range(1, <uint32_t> TAGS):           # an enum
            held = stale_read(&arena.tag_live[tag])
            peak.tags[tag] += held
            tagged += held
        tag = arena.default_tag                         # of the rest, by name only
        if tag != 0 and live > tagged:
            peak.tags[tag] += live - tagged
        if peak.stream_count < PEAK_STREAMS:
            part = &peak.streams[peak.stream_count]
            part.stream = arena.stream
            part.role = arena.role
            part.live = live
            peak.stream_count += 1


cdef void peak_note(Pool *pool) noexcept nogil:
    cdef Peak peak
    cdef size_t live = 0
    cdef uint32_t index
    for index in range(count_read(&pool.arena_count)):
        live += stale_read(&pool.arenas[index].live)
    if live <= stale_read(&pool.peak.live):
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
