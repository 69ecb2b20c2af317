"""Blocks that sleep: live, at their addresses, without memory.  See `_asleep.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from acl._core cimport Arena, Block, Nap, Pinned, Pool
from acl.bind.generated._libacl cimport aclError

# A sleep batch: the blocks that one thread puts to sleep or wakes together. It lies on that
# thread's stack; `turn_begin` fills it under the arena's lock, `turn_end` takes the blocks out
# again.
cdef struct Turn:               # blocks of one arena that go to sleep or wake, by one thread
    Arena *arena
    Block *only                 # NULL, or the one block that may be taken in hand
    Nap *first                  # in address order, by `hand`
    Nap *last
    uint64_t blocks
    size_t bytes
    uint64_t pages              # that were unmapped, or mapped
    bint waking

# Takes the live blocks whose tags are in `tags` (a bit each) in hand: awake ones, or sleeping ones;
# or, whatever its tag, `turn.only`.  From here on a free of them waits for `turn_end`, and nobody
# gets what is free in the pages that may go with them: so what is seen complete afterwards is all
# that was ever queued there.  False: the host has no memory, none is in hand.
cdef bint turn_begin(Turn *turn, uint64_t tags, bint waking) noexcept nogil
# Without locks: unmaps the pages in which all is asleep or in hand, and gives the memory to the
# driver.  The streams were seen complete since `turn_begin`, or the turn mapped the pages itself.
# False: the driver refused, some pages stay.
cdef bint turn_unmap(Turn *turn) noexcept nogil
# Without locks: maps memory wherever a block in hand has none.  False: there is none; some may be
# mapped, and `turn_unmap` undoes that, as nobody got anything there yet.
cdef bint turn_map(Turn *turn) noexcept nogil
# Out of hand: asleep or awake, or free if somebody freed them meanwhile.  With `partly`, those that
# have all their pages are awake.
cdef void turn_end(Turn *turn, bint asleep, bint partly) noexcept nogil

# Under the lock, for a live block with BLOCK_ASLEEP that was counted back.
cdef void asleep_free(Arena *arena, Block *block) noexcept nogil
# Under the lock: a graph is gone, and with it what was freed asleep and kept for it.
cdef void naps_let_go(Arena *arena) noexcept nogil
# Gives back the copies of blocks that woke, or were freed in their sleep; without locks.
cdef void naps_reclaim(Pool *pool) noexcept nogil
cdef uint32_t naps_check(Arena *arena, size_t asleep) noexcept nogil


cdef enum:
    NO_HOST_MEMORY = 207001     # what we say where the C library has none

# Pinned memory with one user, or NULL and why; more users; one less, and the last gives it back.
cdef Pinned *pinned_make(size_t size, aclError *status) noexcept nogil
cdef void pinned_join(Pinned *pinned) noexcept nogil
cdef void pinned_leave(Pinned *pinned) noexcept nogil
