"""The block allocator, for `cimport`: its functions for blocks, and the callbacks for ACL."""

from libc.stdint cimport uint16_t, uint64_t

from acl.bind.generated._libacl cimport aclrtAllocator, aclrtAllocatorAddr, aclrtAllocatorBlock
from acl.core.types cimport *

# `arena_alloc` and `arena_try` return a live block, or NULL.  `arena_try` makes no driver call and
# never waits, so it may be called with the GIL; if it returns NULL, call `arena_alloc`.
# `arena_free` returns False, and frees nothing, if `block` is not a live block of the arena.
cdef Block *arena_alloc(Arena *arena, size_t size, uint16_t tag) noexcept nogil
cdef Block *arena_try(Arena *arena, size_t size, uint16_t tag) noexcept nogil
cdef bint arena_free(Arena *arena, Block *block) noexcept nogil

# True if `allocator`, which may be any value, points to an arena, even to one of a destroyed pool.
cdef bint is_arena(const void *allocator) noexcept nogil
# Counts a call whose allocator or block is not from this package.  Returns NULL.
cdef void *stray_count() noexcept nogil
cdef uint64_t strays_read() noexcept nogil

# The callbacks that are registered with ACL (`aclrtAllocatorSet*ToDesc`); `allocator` is an Arena.
cdef void *on_alloc(aclrtAllocator allocator, size_t size) noexcept nogil
cdef void on_free(aclrtAllocator allocator, aclrtAllocatorBlock block) noexcept nogil
cdef void *on_alloc_advise(aclrtAllocator allocator, size_t size,
                           aclrtAllocatorAddr addr) noexcept nogil
cdef void *on_get_addr(aclrtAllocatorBlock block) noexcept nogil
