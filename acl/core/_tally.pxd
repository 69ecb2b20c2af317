"""What a pool always counts: sizes, times of slow allocations, its peak: `_tally.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from acl.core.types cimport Arena, ArenaStats, BINS, Block, Peak, Pool, SLOW_BUCKETS, Source
from acl.core.policy cimport PEAK_LEAST, PEAK_SHARE

# Counts of allocations over all arenas of a pool. `tally_sum` fills what its caller provides.
cdef struct Sums:               # over all arenas
    uint64_t bins[BINS]         # allocations by the bin of their size
    uint64_t slow[SLOW_BUCKETS]  # slow ones by their time
    uint64_t slow_ns
    uint64_t longest_ns

# Under the lock: allocations so far.  Hits of the last few misses may be left out, as summing them
# costs as much as a search.  The count never falls.
cdef uint64_t arena_allocs(Arena *arena) noexcept nogil
cdef uint64_t arena_hits(Arena *arena) noexcept nogil
# Around a slow allocation; the second under the arena's lock.
cdef uint64_t slow_begin() noexcept nogil
cdef void slow_end(Arena *arena, uint64_t began) noexcept nogil
# After a recall or a flush: as `slow_end`, if it took STALL_NS or more.
cdef void stall_end(Arena *arena, uint64_t began) noexcept nogil
# Without locks: if the pool has a new peak, note what it is made of.  `climbed`: a climb has just
# brought the sums up to date.
cdef void peak_note(Arena *arena, bint climbed) noexcept nogil
# Bring the pool's sums up to date with an arena, those that climbed last, and a few others in turn.
cdef void tally_look(Arena *arena) noexcept nogil
# Under the source's lock: bring them up to date with these arenas.
cdef void tally_near(Source *source, Arena **near, uint32_t count) noexcept nogil
cdef void tally_look_all(Pool *pool) noexcept nogil
cdef void peak_reset(Pool *pool) noexcept nogil
cdef void peak_read(Pool *pool, Peak *peak) noexcept nogil

# With `locked`, the counts of one arena are consistent with each other.  Without it, each count may
# be of a different moment.
cdef void tally_sum(Pool *pool, Sums *sums, bint locked) noexcept nogil

# The least nanoseconds of a bucket of `slow_counts`.
cdef uint64_t slow_bucket_low(uint32_t bucket) noexcept nogil
# The least units of a bin.
cdef uint64_t bin_low(uint32_t index) noexcept nogil

cdef void arena_stats(Arena *arena, ArenaStats *stats) noexcept nogil
# Copies of all blocks in address order, to be freed by C's `free`; NULL without host memory.
cdef Block *arena_copy(Arena *arena, uint64_t *count) noexcept nogil


cdef inline size_t peak_next(size_t live) noexcept nogil:
    """The live bytes above which a stream's peak is noted again."""
    cdef size_t step = live >> PEAK_SHARE
    return live + (step if step > PEAK_LEAST else <size_t> PEAK_LEAST)
