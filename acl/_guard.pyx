"""Callbacks that look for memory errors of the pool's users, registered instead of the fast ones.

A guarded block is followed by guard bytes, written and read back by work on its own stream.  A
freed block is filled and held back for a while; what is written to it meanwhile is seen when it
goes.  So are found: an overflow past a block's end, a write to a freed block, a double free, and
the free of a pointer that is no block of the stream.  Each is told on stderr with the history of
the block, and counted (`reports`); the program goes on.

Every free waits for its stream: this is for finding errors, not for work.  The statistics count
the guard bytes as requested.  Any thread may call; there is no GIL and no Python object here.  Not
guarded: buffers of `Pool.alloc`, and streams under capture, whose work may not be waited for.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport fprintf, stderr
from libc.stdlib cimport calloc

from acl._core cimport BLOCK_LIVE, Block, arena_alloc, arena_alloc_at, arena_free
from acl._driver cimport stream_captured, stream_wait
from acl._libacl cimport (
    ACL_MEMCPY_DEVICE_TO_HOST, ACL_SUCCESS, aclrtMemcpyAsync, aclrtMemsetAsync,
)
from acl._lock cimport SpinLock, spin_enter, spin_leave, stale_read

__all__ = ["reports"]

cdef enum:
    GUARD_BYTES = 64
    GUARD_VALUE = 0xA7
    FREED_VALUE = 0xDD
    LOOK_BYTES = 4096           # of a freed block, from its start
    HELD = 64                   # freed blocks that a stream holds back
    HISTORY = 4096

cdef struct Entry:              # something that happened to a block
    uint64_t number
    Arena *arena
    Block *block
    char *addr
    size_t size
    bint freed

cdef struct Guard:              # of one arena; under `guards_lock`
    Arena *arena
    Guard *next
    Block *held[64]
    uint32_t first
    uint32_t count

cdef SpinLock guards_lock
cdef Guard *guards = NULL
cdef Entry history[4096]
cdef uint64_t happened = 0
cdef uint64_t reported[4]

cdef enum Finding:
    FOUND_OVERFLOW
    FOUND_USE_AFTER_FREE
    FOUND_DOUBLE_FREE
    FOUND_FOREIGN


def reports():
    """How many errors of each kind have been found in this process."""
    return {"overflow": reported[0], "use after free": reported[1], "double free": reported[2],
            "foreign pointer": reported[3]}


cdef void note(Arena *arena, Block *block, size_t size, bint freed) noexcept nogil:
    global happened
    cdef Entry *entry
    spin_enter(&guards_lock)
    entry = &history[happened % HISTORY]
    happened += 1
    entry.number = happened
    entry.arena = arena
    entry.block = block
    entry.addr = block.addr
    entry.size = size
    entry.freed = freed
    spin_leave(&guards_lock)


cdef void tell(Finding finding, Arena *arena, Block *block) noexcept nogil:
    """On stderr: what was found, and what had happened to the block, the newest last."""
    cdef const char *what = b"a pointer that is no live block was freed"
    cdef uint64_t number
    cdef Entry *entry
    if finding == FOUND_OVERFLOW:
        what = b"bytes past the end of a block were written"
    elif finding == FOUND_USE_AFTER_FREE:
        what = b"a freed block was written to"
    elif finding == FOUND_DOUBLE_FREE:
        what = b"a block was freed twice"
    spin_enter(&guards_lock)
    reported[<uint32_t> finding] += 1           # an enum
    number = happened - HISTORY if happened > HISTORY else 0
    fprintf(stderr, b"acl: %s: block %p of stream %p\n", what, <void *> block, arena.stream)
    while number < happened:
        entry = &history[number % HISTORY]
        if entry.arena == arena and entry.block == block:
            fprintf(stderr, b"acl:   event %llu: %s %zu bytes at %p\n",
                    <unsigned long long> entry.number,
                    <const char *> (b"freed" if entry.freed else b"allocated"), entry.size,
                    <void *> entry.addr)
        number += 1
    spin_leave(&guards_lock)


cdef bint filled(Arena *arena, char *addr, size_t size, uint8_t value) noexcept nogil:
    """Whether device memory holds one value, after the work that its stream has so far."""
    cdef uint8_t[4096] copy
    cdef size_t index
    if (aclrtMemcpyAsync(&copy[0], size, addr, size, ACL_MEMCPY_DEVICE_TO_HOST, arena.stream)
            != ACL_SUCCESS or not stream_wait(arena)):
        return True                             # nothing can be said
    for index in range(size):
        if copy[index] != value:
            return False
    return True


cdef inline size_t user_size(Block *block) noexcept nogil:
    return block.requested - GUARD_BYTES


cdef inline size_t look_size(Block *block) noexcept nogil:
    return block.size if block.size < LOOK_BYTES else LOOK_BYTES


cdef Guard *guard_find(Arena *arena) noexcept nogil:
    """Under `guards_lock`; made at the first need, never freed, as an arena outlives its users."""
    global guards
    cdef Guard *guard = guards
    while guard != NULL and guard.arena != arena:
        guard = guard.next
    if guard == NULL:
        guard = <Guard *> calloc(1, sizeof(Guard))
        if guard != NULL:
            guard.arena = arena
            guard.next = guards
            guards = guard
    return guard


cdef bint is_held(Arena *arena, Block *block) noexcept nogil:
    cdef Guard *guard
    cdef uint32_t index
    cdef bint found = False
    spin_enter(&guards_lock)
    guard = guard_find(arena)
    if guard != NULL:
        for index in range(guard.count):
            found = found or guard.held[(guard.first + index) % HELD] == block
    spin_leave(&guards_lock)
    return found


cdef Block *hold(Arena *arena, Block *block) noexcept nogil:
    """Hold a block back; the one that goes instead, or NULL."""
    cdef Guard *guard
    cdef Block *oldest = NULL
    spin_enter(&guards_lock)
    guard = guard_find(arena)
    if guard == NULL:
        spin_leave(&guards_lock)
        return block
    if guard.count == HELD or (block == NULL and guard.count > 0):
        oldest = guard.held[guard.first]
        guard.first = (guard.first + 1) % HELD
        guard.count -= 1
    if block != NULL:
        guard.held[(guard.first + guard.count) % HELD] = block
        guard.count += 1
    spin_leave(&guards_lock)
    return oldest


cdef void let_go(Arena *arena, Block *block) noexcept nogil:
    if not filled(arena, block.addr, look_size(block), FREED_VALUE):
        tell(FOUND_USE_AFTER_FREE, arena, block)
    arena_free(arena, block)


cdef uint64_t guard_flush(Arena *arena) noexcept nogil:
    cdef uint64_t count = 0
    cdef Block *block = hold(arena, NULL)
    while block != NULL:
        let_go(arena, block)
        count += 1
        block = hold(arena, NULL)
    return count


cdef bint captured(Arena *arena) noexcept nogil:
    cdef void *graph = NULL
    return stream_captured(arena.pool, arena.stream, &graph)


cdef void *guarded(Arena *arena, Block *block, size_t size) noexcept nogil:
    if block != NULL and not captured(arena):
        aclrtMemsetAsync(block.addr + size, GUARD_BYTES, GUARD_VALUE, GUARD_BYTES, arena.stream)
        note(arena, block, size, False)
    return block


cdef void *guard_alloc(aclrtAllocator allocator, size_t size) noexcept nogil:
    cdef Arena *arena = <Arena *> allocator
    cdef Block *block
    if size + GUARD_BYTES < size:
        return NULL
    block = arena_alloc(arena, size + GUARD_BYTES, 0)
    if block == NULL and guard_flush(arena) > 0:
        block = arena_alloc(arena, size + GUARD_BYTES, 0)
    return guarded(arena, block, size)


cdef void *guard_alloc_advise(aclrtAllocator allocator, size_t size,
                              aclrtAllocatorAddr addr) noexcept nogil:
    cdef Arena *arena = <Arena *> allocator
    if size + GUARD_BYTES < size:
        return NULL
    return guarded(arena, arena_alloc_at(arena, size + GUARD_BYTES, <char *> addr), size)


cdef void guard_free(aclrtAllocator allocator, aclrtAllocatorBlock pointer) noexcept nogil:
    cdef Arena *arena = <Arena *> allocator
    cdef Block *block = <Block *> pointer
    cdef size_t offset = <size_t> (<char *> block - arena.slab)
    if captured(arena):
        arena_free(arena, block)
        return
    if offset >= stale_read(&arena.slab_used) or offset % sizeof(Block) != 0:
        if not arena_free(arena, block):        # a capture's block is one of another slab
            tell(FOUND_FOREIGN, arena, block)
        return
    if block.state != BLOCK_LIVE or is_held(arena, block):
        tell(FOUND_DOUBLE_FREE, arena, block)
        return
    if not filled(arena, block.addr + user_size(block), GUARD_BYTES, GUARD_VALUE):
        tell(FOUND_OVERFLOW, arena, block)
    note(arena, block, user_size(block), True)
    aclrtMemsetAsync(block.addr, block.size, FREED_VALUE, look_size(block), arena.stream)
    block = hold(arena, block)
    if block != NULL:
        let_go(arena, block)
