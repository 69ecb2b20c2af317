"""What a pool always counts: sizes, times of slow allocations, its peak: `_tally.pyx`."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from acl.core.types cimport (
    Arena, ArenaStats, BINS, Block, Peak, Pool, SLOW_BUCKETS, Source, TagScope,
)
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

# Where the thread keeps its innermost scope.  Allocations without a tag in ARENA_TAGGED arenas,
# those through the callbacks among them, get the tag of the innermost scope of their pool.
cdef TagScope **tag_scopes() noexcept nogil
cdef int no_scopes() noexcept nogil             # true if this thread has no open scope
# The tag of this thread's innermost open scope of the pool; 0 if none is open.
cdef uint16_t tag_of_thread(Pool *pool) noexcept nogil

# Around an allocation for a tag with a budget.  `budget_claim` counts its bytes in the budget, and
# returns false if there is no room.  `budget_settle` takes them back if no block was handed out.
cdef bint budget_claim(Arena *arena, size_t size, uint16_t tag) noexcept nogil
cdef void budget_settle(Arena *arena, uint16_t tag) noexcept nogil
# Under the arena's lock, if the tag has a budget: a block becomes live, or ceases to be.
cdef void budget_add(Arena *arena, uint16_t tag, size_t size) noexcept nogil
cdef void budget_take(Arena *arena, uint16_t tag, size_t size) noexcept nogil
# Without locks, with the GIL: set the limit of a tag; 0 for none.
cdef void budget_set(Pool *pool, uint16_t tag, size_t limit) noexcept nogil

cdef void arena_stats(Arena *arena, ArenaStats *stats) noexcept nogil
# Copies of all blocks in address order, to be freed by C's `free`; NULL without host memory.
cdef Block *arena_copy(Arena *arena, uint64_t *count) noexcept nogil


cdef inline bint budgeted(Arena *arena, uint16_t tag) noexcept nogil:
    """True if a tag has a budget.  Bit 0, of blocks without a tag, is never set."""
    return <bint> (arena.budgets >> tag & 1)


cdef inline size_t peak_next(size_t live) noexcept nogil:
    """The live bytes above which a stream's peak is noted again."""
    cdef size_t step = live >> PEAK_SHARE
    return live + (step if step > PEAK_LEAST else <size_t> PEAK_LEAST)
