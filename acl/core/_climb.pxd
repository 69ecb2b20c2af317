"""The ladder that a slow allocation climbs for the pages of its window.  See `_climb.pyx`."""

from libc.stdint cimport uint32_t

from acl._core cimport Arena, Block
from acl.core._place cimport Window

# Called with the arena's lock held.  Both give a MOVING block, on no list, at least `size` long and
# wholly mapped; or NULL.  The first makes no driver call and keeps the lock; the second unlocks
# over driver calls and returns with the lock held.  `window` is what the first has found and left
# to the second: who opens the lock in between sets its `first` to NULL, which stands for nothing.
cdef Block *pages_recall(Arena *arena, size_t size, uint32_t kind, Window *window) noexcept nogil
cdef Block *pages_obtain(Arena *arena, size_t size, uint32_t kind, Window *window) noexcept nogil
