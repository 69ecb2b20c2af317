"""The callbacks for a stream that guards all its blocks, or one in N.  See `_guard.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from acl.core.types cimport Arena, Block
from acl.bind.generated._libacl cimport aclrtAllocator, aclrtAllocatorAddr, aclrtAllocatorBlock

cdef void *guard_alloc(aclrtAllocator allocator, size_t size) noexcept nogil
cdef void guard_free(aclrtAllocator allocator, aclrtAllocatorBlock block) noexcept nogil
cdef void *guard_alloc_advise(aclrtAllocator allocator, size_t size,
                              aclrtAllocatorAddr addr) noexcept nogil

cdef enum:
    GUARD_BYTES = 64

cdef enum Found:
    FOUND_OVERFLOW
    FOUND_USE_AFTER_FREE
    FOUND_DOUBLE_FREE
    FOUND_FOREIGN
    FOUNDS

# `pool/_findings` sets these two pointers; `_registry` imports that module before any guard is
# opened.  The functions are called without locks, from any thread.  `on_happened` notes that a
# block was handed out or freed, with the thread's stacks, and returns the number of the note.
# `on_found` reports an error, with the notes of the block up to the number `last`, or all if it is
# 0.
cdef uint64_t (*on_happened)(Arena *arena, Block *block, size_t size, bint freed) noexcept nogil
cdef void (*on_found)(Found kind, Arena *arena, Block *block, uint64_t last) noexcept nogil

# `guard_ready`: true from `guard_open` to `guard_close`.  `guard_turn`: true if this allocation is
# to be guarded, which is one in `guard_every`, but none on a stream that was destroyed or is under
# capture.  The caller then allocates GUARD_BYTES more bytes, and `guard_set` fills them.
# `guard_free` (above) checks and frees a guarded block; `guard_drop` frees it without a check.
cdef bint guard_ready(Arena *arena) noexcept nogil
cdef bint guard_turn(Arena *arena, size_t size) noexcept nogil
cdef void guard_set(Arena *arena, Block *block, size_t size) noexcept nogil
cdef void guard_drop(Arena *arena, Block *block) noexcept nogil

# Called before the stream is registered: from then on one block in `every` is guarded.  Returns
# False if there is no host memory.
cdef bint guard_open(Arena *arena, uint32_t every) noexcept nogil
# Frees all blocks in quarantine, and returns their number.  Checks the blocks whose copies are
# complete; with `wait`, waits for the stream and checks all.  Does nothing and returns 0 while
# another thread uses the guard.
cdef uint64_t guard_flush(Arena *arena, bint wait) noexcept nogil
# Called after the stream was unregistered: does as `guard_flush` with `wait`.  Blocks that are
# freed later are not checked.
cdef void guard_close(Arena *arena) noexcept nogil
