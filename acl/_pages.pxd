"""The slow path: the ladder of rungs that an allocation climbs, and pages given away."""

from libc.stdint cimport uint32_t, uint64_t

from acl._core cimport Arena, Block

# Called with the arena's lock held; unlocks over driver calls and returns with it held.  A MOVING
# block, on no list, at least `size` long and wholly mapped; or NULL.
cdef Block *pages_obtain(Arena *arena, size_t size, uint32_t kind) noexcept nogil

# Whole free pages of an arena to the source, segments to the driver; at most `want` pages.  Without
# locks.  With `wait` the arena's stream is synchronised first; without, it gives only if idle.
cdef uint64_t pages_donate(Arena *arena, uint64_t want, bint wait) noexcept nogil
