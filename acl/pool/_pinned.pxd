"""A pool of pinned host memory: see `_pinned.pyx`."""

cimport cython

from acl.runtime._buffer cimport HostBuffer
from acl.core.types cimport Arena, Block, Pool as CorePool


@cython.final
cdef class PinnedPool:
    cdef CorePool *core             # NULL until `__init__` has made it
    cdef Arena *arena               # the pool's only arena
    cdef int device  # ordinal of the device that is made current if a thread has no context
    cdef int made                   # `fork_count` when the pool was made
    cdef bint is_closed
    cdef object __weakref__

    cdef int open_check(self) except -1
    cdef HostBuffer take(self, size_t size)

# Allocate a block; the thread may have no context. Return NULL if there is no memory.
cdef Block *pinned_alloc(Arena *arena, int device, size_t size) noexcept nogil

# Called before a block is freed: let the free wait for events of `works`, which may still copy the
# block. Return False if no event can be recorded for one of them, so that the caller must wait for
# it.
cdef bint pinned_settle(void *arena, void *block, object works) noexcept
