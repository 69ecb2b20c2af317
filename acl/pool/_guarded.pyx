"""Guarded buffers: the extra work of `Pool.alloc` in a pool with ``debug``.

Buffers are guarded as `core/_guard` guards ACL's allocations.  All blocks, or one in N, have guard
bytes directly behind the size that was asked for.  When such a Buffer is closed or dropped, the
first bytes of its block are filled with a pattern, and the block is put into quarantine.  The fill
and the check are work on the buffer's stream.  So they are left out if other streams use the buffer
too, or if the buffer's stream is the default stream and the current context is not the arena's.

Thread rule: any thread.  The functions that make and free a Buffer hold the GIL, and release it
during calls of the runtime.
"""

from libc.stdint cimport uint32_t

from acl._core cimport arena_free
from acl.core.types cimport BLOCK_GUARDED, BLOCK_SHARED
from acl.runtime._device cimport current_ensure
from acl.core._driver cimport arena_context, context_enter, context_here, context_leave
from acl.core._guard cimport (
    guard_close, guard_drop, guard_flush, guard_free, guard_open, guard_ready, guard_set,
    guard_turn,
)
from acl.bind.generated._libacl cimport aclrtContext
from acl.core._lock cimport count_read
from acl.pool._stacks cimport stack_enter, stack_leave

__all__: list = []


cdef bint elsewhere(Arena *arena) noexcept nogil:
    """Return True if the arena's stream is the default one of a context that is not current."""
    return arena.stream is NULL and context_here(arena.pool) != arena_context(arena)


cdef bint turn_of(Arena *arena, size_t size) except -1:
    cdef bint turn
    if arena.guards.guard_left > 1:
        arena.guards.guard_left -= 1
        return False
    current_ensure(NULL)
    if elsewhere(arena):
        return False
    with nogil:
        turn = guard_ready(arena) or guard_open(arena, arena.pool.options.guard_every)
        turn = turn and guard_turn(arena, size)
    return turn


cdef int buffer_guard(Arena *arena, Block *block, size_t size) except -1:
    cdef bint noted = stack_enter(arena.pool)
    with nogil:
        guard_set(arena, block, size)
    if noted:
        stack_leave()
    return 0


cdef void guarded_back(void *arena, void *block) noexcept nogil:
    """Free a Buffer's block.

    The Buffer calls this when it is closed or dropped, with the GIL held.
    """
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


cdef uint64_t buffers_flush(Pool *pool) noexcept nogil:
    cdef uint64_t count = 0
    cdef uint32_t i
    cdef aclrtContext before
    for i in range(count_read(&pool.arena_count)):
        context_enter(pool, pool.arenas[i].context, &before)    # if this fails, no byte is checked
        count += guard_flush(pool.arenas[i], False)
        context_leave(pool, before)
    return count


cdef void buffers_close(Pool *pool) noexcept nogil:
    cdef uint32_t i
    cdef aclrtContext before
    if pool.options.guard_every == 0:
        return
    for i in range(count_read(&pool.arena_count)):
        context_enter(pool, pool.arenas[i].context, &before)
        guard_close(pool.arenas[i])
        context_leave(pool, before)
