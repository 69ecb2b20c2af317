"""Guarded buffers, which detect memory errors: see `_guarded.pyx`."""

from libc.stdint cimport uint64_t

from acl.core.types cimport Arena, Block, Pool

# Return True if the next buffer is to be guarded.  Then the caller allocates a block of `size` +
# GUARD_BYTES, calls `buffer_guard`, which fills the guard bytes, and frees the block with
# `guarded_back`.
cdef bint turn_of(Arena *arena, size_t size) except -1
cdef int buffer_guard(Arena *arena, Block *block, size_t size) except -1
cdef void guarded_back(void *arena, void *block) noexcept nogil

# Free all blocks in quarantine and return their number, without a wait: only blocks whose bytes are
# on the host already are checked.
cdef uint64_t buffers_flush(Pool *pool) noexcept nogil
# Called when a guarded pool is closed: check and free all blocks in quarantine.  Blocks that are
# freed later are not checked.
cdef void buffers_close(Pool *pool) noexcept nogil
