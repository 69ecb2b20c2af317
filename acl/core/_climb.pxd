"""The fallback steps by which a slow allocation gets pages for its window.  See `_climb.pyx`."""

from libc.stdint cimport uint32_t

from acl.core.types cimport Arena, Block, Pool
from acl.core._place cimport Window

# Returns the Stop bit for a size that is refused before any fallback step.
cdef uint32_t stop_of(Pool *pool, size_t bytes) noexcept nogil

# Called with the arena's lock held.  Both return a MOVING block, on no list, at least `size` long
# and wholly mapped; or NULL.  `pages_recall` makes no driver call and keeps the lock.
# `pages_obtain` opens the lock over driver calls and returns with it held.  If `pages_recall`
# finds a window but cannot fill it, it leaves the window for `pages_obtain` in `window`.  A caller
# that opens the lock in between must set `window.first` to NULL, which means that there is none.
cdef Block *pages_recall(Arena *arena, size_t size, uint32_t kind, Window *window) noexcept nogil
cdef Block *pages_obtain(Arena *arena, size_t size, uint32_t kind, Window *window) noexcept nogil
