"""Statistics that a pool always keeps: sizes, times of slow allocations, its peak: `_tally.pyx`."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from acl.core.types cimport (
    Arena, ArenaStats, BINS, Block, Peak, Pool, SLOW_BUCKETS, Source, TagScope,
)
from acl.core.policy cimport PEAK_LEAST, PEAK_SHARE

# Counts of allocations over all arenas of a pool. `tally_sum` fills the caller's struct.
cdef struct Sums:
    uint64_t bins[BINS]         # allocations by the bin of their size
    uint64_t slow[SLOW_BUCKETS]  # slow allocations by their duration
    uint64_t slow_ns
    uint64_t longest_ns

# Under the lock: return the number of allocations so far.  The most recent hits may be left out, as
# summing hits costs as much as a search.  The count never falls.
cdef uint64_t arena_allocs(Arena *arena) noexcept nogil
cdef uint64_t arena_hits(Arena *arena) noexcept nogil
# Call these before and after a slow allocation; `slow_end` under the arena's lock.
cdef uint64_t slow_begin() noexcept nogil
cdef void slow_end(Arena *arena, uint64_t began) noexcept nogil
# After an allocation by a recall or a flush: if it took STALL_NS or more, do as `slow_end` does.
cdef void stall_end(Arena *arena, uint64_t began) noexcept nogil
# Without locks: if the pool has a new peak, note its composition.  `climbed`: a slow allocation has
# just brought the sums up to date.
cdef void peak_note(Arena *arena, bint climbed) noexcept nogil
# Bring the pool's sums up to date with an arena, with the arenas of the latest slow allocations,
# and with a few others in rotation.
cdef void tally_look(Arena *arena) noexcept nogil
# Under the source's lock: bring the sums up to date with the `count` arenas in `near`.
cdef void tally_near(Source *source, Arena **near, uint32_t count) noexcept nogil
cdef void tally_look_all(Pool *pool) noexcept nogil
cdef void peak_reset(Pool *pool) noexcept nogil
cdef void peak_read(Pool *pool, Peak *peak) noexcept nogil

# With `locked`, the counts of one arena are consistent with each other.  Without it, each count may
# be of a different moment.
cdef void tally_sum(Pool *pool, Sums *sums, bint locked) noexcept nogil

# Return the least nanoseconds of a bucket of `slow_counts`.
cdef uint64_t slow_bucket_low(uint32_t bucket) noexcept nogil
# Return the least units of a block in a bin.
cdef uint64_t bin_low(uint32_t index) noexcept nogil

# Return the address of the thread's pointer to its innermost open scope.  In ARENA_TAGGED arenas,
# an allocation without a tag gets the tag of the innermost scope of its pool, also in the
# callbacks.
cdef TagScope **tag_scopes() noexcept nogil
cdef int no_scopes() noexcept nogil             # true if this thread has no open scope
# Return the tag of this thread's innermost open scope of the pool; 0 if none is open.
cdef uint16_t tag_of_thread(Pool *pool) noexcept nogil

# Call these before and after an allocation for a tag with a budget.  `budget_claim` counts its
# bytes in the budget; False if there is no room.  `budget_settle` takes them out if the allocation
# failed.
cdef bint budget_claim(Arena *arena, size_t size, uint16_t tag) noexcept nogil
cdef void budget_settle(Arena *arena, uint16_t tag) noexcept nogil
# Under the arena's lock, if the tag has a budget: count a block that becomes live, or is freed.
cdef void budget_add(Arena *arena, uint16_t tag, size_t size) noexcept nogil
cdef void budget_take(Arena *arena, uint16_t tag, size_t size) noexcept nogil
# Without locks, with the GIL: set the limit of a tag's live bytes; 0: no limit.
cdef void budget_set(Pool *pool, uint16_t tag, size_t limit) noexcept nogil

cdef void arena_stats(Arena *arena, ArenaStats *stats) noexcept nogil
# Return copies of all blocks in address order, to be freed by C's `free`; NULL: no host memory.
cdef Block *arena_copy(Arena *arena, uint64_t *count) noexcept nogil


cdef inline bint budgeted(Arena *arena, uint16_t tag) noexcept nogil:
    """True if a tag has a budget.  Bit 0, of blocks without a tag, is never set."""
    return <bint> (arena.budgets >> tag & 1)


cdef inline size_t peak_next(size_t live) noexcept nogil:
    """Return the live bytes above which a stream's peak is noted again."""
    cdef size_t step = live >> PEAK_SHARE
    return live + (step if step > PEAK_LEAST else <size_t> PEAK_LEAST)
