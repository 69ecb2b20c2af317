"""Statistics that a pool always keeps: sizes, slow allocations, its peak.  See `_tally.pyx`."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from acl.core.types cimport (
    Arena, ArenaStats, BINS, Block, Peak, Pool, SLOW_BUCKETS, Source, TagScope,
)
from acl.core.policy cimport PEAK_LEAST, PEAK_SHARE

# Counts of the allocations in all arenas of a pool.  `tally_sum` fills the caller's struct.
cdef struct Sums:
    uint64_t bins[BINS]         # number of allocations by the bin of their size
    uint64_t slow[SLOW_BUCKETS]  # number of slow allocations by their duration
    uint64_t slow_ns            # sum of the durations of slow allocations, in ns
    uint64_t longest_ns         # duration of the longest slow allocation, in ns

# Called under the lock.  `arena_allocs` returns the number of allocations so far.  It may leave out
# the most recent hits, as their sum costs as much as the search for a placement.  The result never
# falls.
# `arena_hits` returns the exact number of hits.
cdef uint64_t arena_allocs(Arena *arena) noexcept nogil
cdef uint64_t arena_hits(Arena *arena) noexcept nogil
# `slow_begin` returns the time in ns.  `slow_end` counts a slow allocation that began at the time
# `began`; it is called under the arena's lock.
cdef uint64_t slow_begin() noexcept nogil
cdef void slow_end(Arena *arena, uint64_t began) noexcept nogil
# Called after an allocation that needed a flush or reactivated mappings: if it took STALL_NS or
# more, does as `slow_end`.
cdef void stall_end(Arena *arena, uint64_t began) noexcept nogil
# Called without locks: if the pool has a new peak, note its composition.  First update the pool's
# sums, unless `climbed` says that a slow allocation has just updated them.
cdef void peak_note(Arena *arena, bint climbed) noexcept nogil
# Update the pool's sums with the numbers of an arena, of the arenas of the latest slow allocations,
# and of a few others in rotation.
cdef void tally_look(Arena *arena) noexcept nogil
# Under the source's lock: update the pool's sums with the numbers of the `count` arenas in `near`.
cdef void tally_near(Source *source, Arena **near, uint32_t count) noexcept nogil
cdef void tally_look_all(Pool *pool) noexcept nogil
cdef void peak_reset(Pool *pool) noexcept nogil
cdef void peak_read(Pool *pool, Peak *peak) noexcept nogil

# Sum the counts of all arenas.  With `locked`, the counts of one arena are consistent with each
# other.  Without it, each count may be of a different moment.
cdef void tally_sum(Pool *pool, Sums *sums, bint locked) noexcept nogil

# Return the lower bound of a bucket of `slow_counts`, in ns.
cdef uint64_t slow_bucket_low(uint32_t bucket) noexcept nogil
# Return the smallest size of a block in a bin, in units.
cdef uint64_t bin_low(uint32_t index) noexcept nogil

# Return the address of the thread's pointer to its innermost open scope.  In an arena with
# ARENA_TAGGED, an allocation without a tag gets the tag of the thread's innermost scope of the
# arena's pool.  This is so for allocations by callbacks too.
cdef TagScope **tag_scopes() noexcept nogil
cdef int no_scopes() noexcept nogil      # true if this thread has no open scope of any pool
# Return the tag of this thread's innermost open scope of the pool; 0 if none is open.
cdef uint16_t tag_of_thread(Pool *pool) noexcept nogil

# Called before and after an allocation for a tag with a budget.  `budget_claim` adds its bytes to
# the budget's live bytes; it returns False if they would exceed the limit.  `budget_settle`
# subtracts them again if the allocation failed.
cdef bint budget_claim(Arena *arena, size_t size, uint16_t tag) noexcept nogil
cdef void budget_settle(Arena *arena, uint16_t tag) noexcept nogil
# Called under the arena's lock, if the tag has a budget, for a block that becomes live or is freed.
cdef void budget_add(Arena *arena, uint16_t tag, size_t size) noexcept nogil
cdef void budget_take(Arena *arena, uint16_t tag, size_t size) noexcept nogil
# Called without locks, with the GIL: set the limit of a tag's live bytes; 0: no limit.
cdef void budget_set(Pool *pool, uint16_t tag, size_t limit) noexcept nogil

cdef void arena_stats(Arena *arena, ArenaStats *stats) noexcept nogil
# Return copies of all blocks of an arena, range by range, each in address order; the caller must
# free them by C's `free`.  NULL: no host memory.  Set `count` to the number of blocks.
cdef Block *arena_copy(Arena *arena, uint64_t *count) noexcept nogil


cdef inline bint budgeted(Arena *arena, uint16_t tag) noexcept nogil:
    """True if a tag has a budget.  Tag 0, which means no tag, never has one."""
    return <bint> (arena.budgets >> tag & 1)


cdef inline size_t peak_next(size_t live) noexcept nogil:
    """Return the next peak threshold (`Recording.alarm`) of an arena that has `live` live bytes.

    An allocation that brings the arena's live bytes above the threshold calls `peak_note`.
    """
    cdef size_t step = live >> PEAK_SHARE
    return live + (step if step > PEAK_LEAST else <size_t> PEAK_LEAST)
