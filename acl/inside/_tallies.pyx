"""The counters of `_tally` as Python values.

Thread rule: with the GIL.  The functions wait only for arenas' locks.
"""

from libc.stdint cimport uint32_t

import time

from acl.core.types cimport BINS, Peak, SLOW_BUCKETS, UNIT
from acl.pool._pool cimport Pool
from acl.core._record cimport record_ns, record_ticks
from acl.core._tally cimport Sums, bin_low, peak_read, slow_bucket_low, tally_sum

from acl.inside._histograms import Histogram, PoolHistograms, PoolPeak

__all__ = ["glance", "histograms", "peak"]

cdef object histogram(list rows):
    """Return a Histogram of rows (low, high, count) in rising order, without the empty ones."""
    rows = [row for row in rows if row[2]]
    return Histogram(*zip(*rows)) if rows else Histogram((), (), ())


cdef object pool_histograms(Pool pool, bint locked):
    cdef Sums sums
    cdef uint32_t i
    with nogil:
        tally_sum(pool.core, &sums, locked)
    sizes = [((bin_low(i) - 1) * UNIT + 1, (bin_low(i + 1) - 1) * UNIT, sums.bins[i])
             for i in range(1, <uint32_t> BINS)]
    slow = [(slow_bucket_low(i), slow_bucket_low(i + 1) - 1, sums.slow[i])
            for i in range(<uint32_t> SLOW_BUCKETS)]
    return PoolHistograms(histogram(sizes), histogram(slow), sums.slow_ns, sums.longest_ns)


cdef object pool_peak(Pool pool):
    cdef Peak found
    cdef uint32_t i
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


def histograms(Pool pool not None):
    """Return the result of `Pool.histograms`."""
    pool.open_check()
    return pool_histograms(pool, True)


def peak(Pool pool not None):
    """Return the result of `Pool.peak`."""
    pool.open_check()
    return pool_peak(pool)


def glance(Pool pool not None):
    """Return the histograms and the peak without an arena's lock; None if there is no pool."""
    return None if pool.core is NULL else (pool_histograms(pool, False), pool_peak(pool))


cdef dict falling(dict sizes):
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))
