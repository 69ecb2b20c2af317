"""Buffers of a pool that looks for memory errors: `_guarded.pyx`."""

from libc.stdint cimport uint16_t, uint64_t

from acl._buffer cimport Buffer
from acl._core cimport Arena, Block
from acl._pool cimport Pool
from acl._stream cimport Stream

# A Buffer of `size` bytes; `bytes` are what it takes unless it is guarded.
cdef Buffer guarded_buffer(Pool pool, Arena *arena, Stream stream, size_t size, size_t bytes,
                           uint16_t tag)
# Looks at all that is held back and frees it, at a pool's end; Buffers that come back later are
# not looked at.  Nothing if the pool is not guarded.
cdef int buffers_close(Pool pool) noexcept
