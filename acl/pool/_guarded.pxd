"""Buffers of a pool that looks for memory errors: `_guarded.pyx`."""

from libc.stdint cimport uint64_t

from acl.core.types cimport Arena, Block, Pool

# Return True if the next buffer is to be guarded.  Then allocate a block of `size` + GUARD_BYTES,
# fill the guard bytes with `buffer_guard`, and free the block with `guarded_back`.
cdef bint turn_of(Arena *arena, size_t size) except -1
cdef int buffer_guard(Arena *arena, Block *block, size_t size) except -1
cdef void guarded_back(void *arena, void *block) noexcept nogil

# Check all blocks in quarantine and free them.  Return their number.
cdef uint64_t buffers_flush(Pool *pool) noexcept nogil
# At the end of a guarded pool: check and free all blocks in quarantine.  Blocks that are freed
# later are not checked.
cdef void buffers_close(Pool *pool) noexcept nogil
