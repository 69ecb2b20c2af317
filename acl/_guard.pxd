"""The callbacks of a stream that is being debugged; see `_guard.pyx`."""

from libc.stdint cimport uint64_t

from acl._core cimport Arena
from acl._libacl cimport aclrtAllocator, aclrtAllocatorAddr, aclrtAllocatorBlock

cdef void *guard_alloc(aclrtAllocator allocator, size_t size) noexcept nogil
cdef void guard_free(aclrtAllocator allocator, aclrtAllocatorBlock block) noexcept nogil
cdef void *guard_alloc_advise(aclrtAllocator allocator, size_t size,
                              aclrtAllocatorAddr addr) noexcept nogil
# Look at what is held back, and free it; how many blocks those were.
cdef uint64_t guard_flush(Arena *arena) noexcept nogil
