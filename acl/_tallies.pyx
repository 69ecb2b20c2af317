"""The counts of `_tally` as Python values.  With the GIL; it waits for nothing but arenas' locks."""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

import time

from acl._bins cimport bin_of
from acl._core cimport Arena, CACHE_UNITS, Peak, SLOW_BUCKETS, UNIT
from acl._lock cimport count_read, lock_drop, lock_take
from acl._pool cimport Pool
from acl._record cimport record_ns, record_ticks
from acl._tally cimport bin_low, peak_read, slow_bucket_low

from acl._histograms import Histogram, PoolHistograms, PoolPeak

__all__ = ["histograms", "peak"]

cdef enum:
    ALL_BINS = 1152             # of one kind

cdef struct Sums:
    uint64_t bins[1152]
    uint64_t slow[248]
    uint64_t slow_ns
    uint64_t longest_ns


cdef void arena_add(Arena *arena, Sums *sums) noexcept nogil:
    cdef uint32_t i
    lock_take(&arena.lock)
    for i in range(1, <uint32_t> CACHE_UNITS + 1):      # an enum
        sums.bins[bin_of(i)] += arena.class_hits[i]
    for i in range(<uint32_t> ALL_BINS):
        sums.bins[i] += arena.bin_counts[i]
    for i in range(<uint32_t> SLOW_BUCKETS):
        sums.slow[i] += arena.slow_counts[i]
    sums.slow_ns += arena.slow_ns
    if arena.slow_longest_ns > sums.longest_ns:
        sums.longest_ns = arena.slow_longest_ns
    lock_drop(&arena.lock)


cdef object histogram(list rows):
    """From (low, high, count), rising; empty buckets go."""
    rows = [row for row in rows if row[2]]
    return Histogram(*zip(*rows)) if rows else Histogram((), (), ())


def histograms(Pool pool not None):
    """What `Pool.histograms` gives."""
    cdef Sums sums
    cdef uint32_t i
    pool.open_check()
    memset(&sums, 0, sizeof(sums))
    with nogil:
        for i in range(count_read(&pool.core.arena_count)):
            arena_add(pool.core.arenas[i], &sums)
    sizes = [((bin_low(i) - 1) * UNIT + 1, (bin_low(i + 1) - 1) * UNIT, sums.bins[i])
             for i in range(1, <uint32_t> ALL_BINS)]
    slow = [(slow_bucket_low(i), slow_bucket_low(i + 1) - 1, sums.slow[i])
            for i in range(<uint32_t> SLOW_BUCKETS)]
    return PoolHistograms(histogram(sizes), histogram(slow), sums.slow_ns, sums.longest_ns)


def peak(Pool pool not None):
    """What `Pool.peak` gives."""
    cdef Peak found
    cdef uint32_t i
    pool.open_check()
    with nogil:
        peak_read(pool.core, &found)
    ago = (record_ns(record_ticks()) - record_ns(found.time)) / 1e9
    tags = {pool.tag_names[i]: found.tags[i]
            for i in range(1, <uint32_t> len(pool.tag_names)) if found.tags[i]}     # at most TAGS
    streams = {}
    for i in range(found.stream_count):
        handle = <size_t> found.streams[i].stream
        streams[handle] = streams.get(handle, 0) + found.streams[i].live
    if found.live > sum(tags.values()):
        tags[""] = found.live - sum(tags.values())
    return PoolPeak(
        found.live, found.requested, found.reserved, ago, time.time() - ago, falling(tags),
        falling(streams))


cdef dict falling(dict sizes):
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))
