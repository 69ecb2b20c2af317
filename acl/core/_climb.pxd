"""The fallback steps, by which a slow allocation gets pages for its placement.

See `_climb.pyx`.
"""

from libc.stdint cimport uint32_t

from acl.core.types cimport Arena, Block, Pool
from acl.core._place cimport Window

# Returns the Stop bit that tells why a size is refused before the first fallback step.
cdef uint32_t stop_of(Pool *pool, size_t bytes) noexcept nogil

# Both functions are called with the arena's lock held.  They return a MOVING block of at least
# `size` bytes that is on no list and has memory in all its pages; or NULL.  `pages_recall` makes no
# driver call and keeps the lock.  `pages_obtain` opens the lock during driver calls and returns
# with the lock held.  If `pages_recall` finds a placement that lacks pages, it leaves the placement
# in `window` for `pages_obtain`.  A caller that opens the lock in between must set `window.first`
# to NULL, which means that there is no placement.
cdef Block *pages_recall(Arena *arena, size_t size, uint32_t kind, Window *window) noexcept nogil
cdef Block *pages_obtain(Arena *arena, size_t size, uint32_t kind, Window *window) noexcept nogil
