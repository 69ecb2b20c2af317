"""Blocks that are asleep: live, at the same addresses, without memory.  See `_asleep.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from acl.core.types cimport Arena, Block, Nap, Pinned, Pool
from acl.bind.generated._libacl cimport aclError

# A sleep batch: the blocks that one thread puts to sleep or wakes together.  It lies on that
# thread's stack.  `turn_begin` fills the batch under the arena's lock; `turn_end` empties it.
cdef struct Turn:
    Arena *arena
    Block *only  # the only block that may join the batch; NULL: tags select the blocks
    Nap *first  # head of the list of the batch's Naps: range by range, by address within a range
    Nap *last
    uint64_t blocks             # number of blocks in the batch
    size_t bytes                # bytes of the blocks in the batch
    uint64_t pages              # number of pages that were unmapped or mapped so far
    bint waking                 # true: the batch wakes blocks; false: it puts them to sleep

# Begins a batch of the blocks whose tag has its bit set in `tags`: of those that are awake, or
# with `waking` of those that sleep.  If `turn.only` is set, the batch has that block alone.  Until
# `turn_end`, a free of a block of the batch is only noted, and free memory in pages that no awake
# block uses is not allocated.  So no new work is queued on these pages, and a wait for the streams
# covers all work on them.  Returns False with an empty batch if there is no host memory.
cdef bint turn_begin(Turn *turn, uint64_t tags, bint waking) noexcept nogil
# Called without locks: unmaps the pages in which no block is awake, and gives their memory to the
# driver.  The caller has seen the streams complete since `turn_begin`, or the batch itself has
# mapped the pages.  Returns False if the driver refused, so that some pages are still mapped.
cdef bint turn_unmap(Turn *turn) noexcept nogil
# Called without locks: maps memory for all pages of the batch that have none.  Returns False if
# there is not enough memory.  Then `turn_unmap` can unmap the pages that were mapped, as no block
# in them is in use yet.
cdef bint turn_map(Turn *turn) noexcept nogil
# Ends the batch.  Afterwards its blocks are asleep if `asleep` is true, and awake if it is false;
# blocks that were freed since `turn_begin` are free.  With `partly`, a block whose pages all have
# memory is awake even if `asleep` is true.
cdef void turn_end(Turn *turn, bint asleep, bint partly) noexcept nogil

# Called under the lock, after `block_count_back`: frees a block with BLOCK_ASLEEP.
cdef void asleep_free(Arena *arena, Block *block) noexcept nogil
# Called under the lock, after a graph was destroyed or when the pool closes: frees the blocks that
# were freed while asleep and then kept for the graph.
cdef void naps_let_go(Arena *arena) noexcept nogil
# Called without locks: frees the host copies of blocks that woke or were freed while asleep.
cdef void naps_reclaim(Pool *pool) noexcept nogil
cdef uint32_t naps_check(Arena *arena, size_t asleep) noexcept nogil


cdef enum:
    NO_HOST_MEMORY = 207001     # the status if the C library has no memory left

# `pinned_make` returns pinned memory with one user, or NULL and the error in `status`.
# `pinned_join` adds a user.  `pinned_leave` removes a user, and frees the memory if it was the last
# one.
cdef Pinned *pinned_make(size_t size, aclError *status) noexcept nogil
cdef void pinned_join(Pinned *pinned) noexcept nogil
cdef void pinned_leave(Pinned *pinned) noexcept nogil
