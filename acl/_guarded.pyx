"""Buffers of a pool that looks for memory errors: `Pool.alloc` where ``debug`` is on.

As `core/_guard` does it for what ACL takes: the block in so many has guard bytes right behind the
size that was asked for, and when its Buffer is closed or dropped it is filled and held back.  Both
is work on the buffer's stream, so nothing is done where other streams use the buffer too.

Thread rule: with the GIL, which is dropped for all that calls the runtime.
"""

from libc.stdint cimport uint32_t

from acl._buffer cimport buffer_wrap
from acl._core cimport BLOCK_GUARDED, BLOCK_SHARED, arena_free, arena_try
from acl._device cimport current_device, current_ensure
from acl.core._guard cimport (
    GUARD_BYTES, guard_close, guard_drop, guard_flush, guard_free, guard_open, guard_ready,
    guard_set, guard_turn,
)
from acl.core._lock cimport count_read
from acl._pool cimport take_slow
from acl.core._record cimport block_own
from acl.inside._stacks cimport stack_enter, stack_leave

from acl._device import Device
from acl._error import AclError, OutOfMemoryError

__all__: list = []


cdef bint elsewhere(Arena *arena) noexcept:
    """Whether the default stream is meant, and in this thread it is that of another device."""
    return arena.stream is NULL and current_device() != arena.pool.options.device


cdef bint turn_of(Arena *arena, size_t size) except -1:
    """Whether this buffer is the one in so many, and its stream can have guard bytes written."""
    cdef bint turn
    if arena.guard_left > 1:
        arena.guard_left -= 1
        return False
    current_ensure(NULL)
    if elsewhere(arena):
        return False
    with nogil:
        turn = guard_ready(arena) or guard_open(arena, arena.pool.options.guard_every)
        turn = turn and guard_turn(arena, size)
    return turn


cdef Block *block_take(Pool pool, Arena *arena, size_t bytes, uint16_t tag) except NULL:
    """What is held back serves before it fails."""
    cdef Block *block = arena_try(arena, bytes, tag)
    if block is not NULL:
        return block
    try:
        return take_slow(pool, arena, arena.stream, bytes, tag)
    except OutOfMemoryError:
        if buffers_flush(pool) == 0:
            raise
    return take_slow(pool, arena, arena.stream, bytes, tag)


cdef Buffer guarded_buffer(Pool pool, Arena *arena, Stream stream, size_t size, size_t bytes,
                           uint16_t tag):
    cdef bint noted
    cdef bint turn = turn_of(arena, size)
    cdef Block *block = block_take(pool, arena, size + GUARD_BYTES if turn else bytes, tag)
    if turn:
        noted = stack_enter(pool.core)
        with nogil:
            guard_set(arena, block, size)
        if noted:
            stack_leave()
    block_own(block, block.requested - size)
    return buffer_wrap(block.addr, size, guarded_back, arena, block, pool, stream, pool.device)


cdef void guarded_back(void *arena, void *block) noexcept nogil:
    """What a Buffer calls at its end: it has the GIL."""
    if (<Block *> block).flags & BLOCK_GUARDED:
        with gil:
            guarded_free(<Arena *> arena, <Block *> block)
    else:
        arena_free(<Arena *> arena, <Block *> block)


cdef int guarded_free(Arena *arena, Block *block) noexcept:
    cdef bint noted
    if block.flags & BLOCK_SHARED or elsewhere(arena):
        guard_drop(arena, block)
        return 0
    noted = stack_enter(arena.pool)
    with nogil:
        guard_free(arena, block)
    if noted:
        stack_leave()
    return 0


cdef uint64_t buffers_flush(Pool pool) except? 0:
    """Look at all that is held back, and free it; how many blocks those were."""
    cdef uint64_t count = 0
    cdef uint32_t i
    cdef Arena *arena
    for i in range(count_read(&pool.core.arena_count)):
        arena = pool.core.arenas[i]
        if not elsewhere(arena):
            with nogil:
                count += guard_flush(arena)
    return count


cdef int buffers_close(Pool pool) noexcept:
    cdef uint32_t i
    cdef Arena *arena
    if not pool.guarded:
        return 0
    try:
        with Device(pool.device):
            for i in range(count_read(&pool.core.arena_count)):
                arena = pool.core.arenas[i]
                with nogil:
                    guard_close(arena)
    except AclError:                            # a lost device: there is nothing to look at
        pass
    return 0
