"""The callbacks of a stream whose blocks are guarded, all or samples; see `_guard.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from acl._core cimport Arena, Block
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

# `pool/_findings` hands these in, which `_registry` imports before any guard is opened.  Called
# without locks, from any thread.  The first notes that a block was handed out or freed, under the
# thread's stacks, and gives the note's number; the second tells of an error: `last` is the number
# of the block's last note that matters, or 0 for its newest.
cdef uint64_t (*on_happened)(Arena *arena, Block *block, size_t size, bint freed) noexcept nogil
cdef void (*on_found)(Found kind, Arena *arena, Block *block, uint64_t last) noexcept nogil

# Whether `guard_open` has run, and the guard is not closed.  Whether this allocation is the one in
# so many: it must be GUARD_BYTES larger, which `guard_set` fills; if the stream takes no work, it
# is an ordinary one.  `guard_free` takes it back, `guard_drop` without a look.
cdef bint guard_ready(Arena *arena) noexcept nogil
cdef bint guard_turn(Arena *arena, size_t size) noexcept nogil
cdef void guard_set(Arena *arena, Block *block, size_t size) noexcept nogil
cdef void guard_drop(Arena *arena, Block *block) noexcept nogil

# Before the stream is registered: each `every`-th block is guarded.  False without memory for it.
cdef bint guard_open(Arena *arena, uint32_t every) noexcept nogil
# Free what is held back, and look at it as far as that is complete, or, with `wait`, after a wait
# for the stream; how many blocks those were.
cdef uint64_t guard_flush(Arena *arena, bint wait) noexcept nogil
# After the stream was unregistered: flushes; blocks that come back later are not looked at.
cdef void guard_close(Arena *arena) noexcept nogil
