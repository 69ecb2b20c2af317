"""The block allocator for `cimport`: its callbacks, and every struct of `acl.core.types`."""

from libc.stdint cimport uint16_t, uint64_t

from acl.bind.generated._libacl cimport aclrtAllocator, aclrtAllocatorAddr, aclrtAllocatorBlock
from acl.core.types cimport *

# Blocks.  `arena_try` makes no driver call and never waits, so it may be called with the GIL; if it
# returns NULL, call `arena_alloc`.  `arena_free` is false if `block` is not a live block of it.
cdef Block *arena_alloc(Arena *arena, size_t size, uint16_t tag) noexcept nogil
cdef Block *arena_try(Arena *arena, size_t size, uint16_t tag) noexcept nogil
cdef bint arena_free(Arena *arena, Block *block) noexcept nogil

# True if a pointer, which may be any bits, is to an arena of a pool, even of a destroyed one.
cdef bint is_arena(const void *allocator) noexcept nogil
# Counts a call whose allocator or block is not from this package.  Returns NULL.
cdef void *stray_count() noexcept nogil
cdef uint64_t strays_read() noexcept nogil

# The callbacks that ACL is given (`aclrtAllocatorSet*ToDesc`); the allocator is an Arena.
cdef void *on_alloc(aclrtAllocator allocator, size_t size) noexcept nogil
cdef void on_free(aclrtAllocator allocator, aclrtAllocatorBlock block) noexcept nogil
cdef void *on_alloc_advise(aclrtAllocator allocator, size_t size,
                           aclrtAllocatorAddr addr) noexcept nogil
cdef void *on_get_addr(aclrtAllocatorBlock block) noexcept nogil
