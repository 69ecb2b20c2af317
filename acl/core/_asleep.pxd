"""Blocks that are asleep: live, at the same addresses, without memory.  See `_asleep.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from acl.core.types cimport Arena, Block, Nap, Pinned, Pool
from acl.bind.generated._libacl cimport aclError

# A sleep batch: the blocks that one thread puts to sleep or wakes together. It lies on that
# thread's stack; `turn_begin` fills it under the arena's lock, `turn_end` takes the blocks out
# again.
cdef struct Turn:
    Arena *arena
    Block *only                 # the only block that may join the batch; NULL: chosen by tags
    Nap *first                  # the batch in address order, linked by `Nap.hand`
    Nap *last
    uint64_t blocks
    size_t bytes                # bytes of these blocks
    uint64_t pages              # pages unmapped or mapped so far
    bint waking                 # the batch wakes blocks; false: it puts them to sleep

# Begins a batch of all awake blocks, or with `waking` of all sleeping ones, whose tag has its bit
# set in `tags`; if `turn.only` is set, of that block alone.  Until `turn_end`, a free of such a
# block is only noted, and free memory in their pages is not allocated.  So no new work is queued
# there, and a wait for the streams covers all of it.  False: no host memory, the batch is empty.
cdef bint turn_begin(Turn *turn, uint64_t tags, bint waking) noexcept nogil
# Without locks: unmaps the pages in which no block is awake, and gives the memory to the driver.
# The caller has seen the streams complete since `turn_begin`, or the batch mapped the pages itself.
# False: the driver refused, and some pages are still mapped.
cdef bint turn_unmap(Turn *turn) noexcept nogil
# Without locks: maps memory for all pages of the batch that have none.  False: there is not enough;
# `turn_unmap` then unmaps the pages that were mapped, as no block there is in use yet.
cdef bint turn_map(Turn *turn) noexcept nogil
# Ends the batch: its blocks are asleep or awake, or free if they were freed since `turn_begin`.
# With `partly`, blocks whose pages all have memory are awake even if `asleep`.
cdef void turn_end(Turn *turn, bint asleep, bint partly) noexcept nogil

# Under the lock: frees a block with BLOCK_ASLEEP, after `block_count_back`.
cdef void asleep_free(Arena *arena, Block *block) noexcept nogil
# Under the lock, after a graph was destroyed: frees the blocks that were freed while asleep and
# kept for the graph.
cdef void naps_let_go(Arena *arena) noexcept nogil
# Without locks: frees the host copies of blocks that woke or were freed while asleep.
cdef void naps_reclaim(Pool *pool) noexcept nogil
cdef uint32_t naps_check(Arena *arena, size_t asleep) noexcept nogil


cdef enum:
    NO_HOST_MEMORY = 207001     # the status if the C library has no memory left

# `pinned_make` returns pinned memory with one user, or NULL and the error in `status`.
# `pinned_join` adds a user.  `pinned_leave` removes one and frees the memory with the last.
cdef Pinned *pinned_make(size_t size, aclError *status) noexcept nogil
cdef void pinned_join(Pinned *pinned) noexcept nogil
cdef void pinned_leave(Pinned *pinned) noexcept nogil
