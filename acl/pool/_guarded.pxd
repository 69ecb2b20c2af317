"""Buffers of a pool that looks for memory errors: `_guarded.pyx`."""

from libc.stdint cimport uint64_t

from acl.core.types cimport Arena, Block, Pool

# Whether this buffer is the one in so many: its block is to be GUARD_BYTES larger than `size`,
# which `buffer_guard` fills, and `guarded_back` is what takes it back.
cdef bint turn_of(Arena *arena, size_t size) except -1
cdef int buffer_guard(Arena *arena, Block *block, size_t size) except -1
cdef void guarded_back(void *arena, void *block) noexcept nogil

# Looks at all that is held back and frees it; how many blocks those were.
cdef uint64_t buffers_flush(Pool *pool) noexcept nogil
# The same at the end of a pool, if it is guarded; buffers that come back later are not looked at.
cdef void buffers_close(Pool *pool) noexcept nogil
