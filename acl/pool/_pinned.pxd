"""A pool of pinned host memory: see `_pinned.pyx`."""

cimport cython

from acl.runtime._buffer cimport HostBuffer
from acl.core.types cimport Arena, Block, Pool as CorePool


@cython.final
cdef class PinnedPool:
    cdef CorePool *core             # NULL once closed and given back
    cdef Arena *arena               # its only one
    cdef int device                 # ordinal, for threads that have no context
    cdef int made                   # fork_count at its making
    cdef bint is_closed
    cdef object __weakref__

    cdef int open_check(self) except -1
    cdef HostBuffer take(self, size_t size)

# A block, in a thread that may have no context; NULL: out of memory.
cdef Block *pinned_alloc(Arena *arena, int device, size_t size) noexcept nogil

# Before a block is freed: works that may still copy it.  False if one of them must be waited for.
cdef bint pinned_settle(void *arena, void *block, object works) noexcept
