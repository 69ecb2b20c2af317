"""What a stream's own order does not cover: other streams, model unloads, captured graphs.

A free block may be handed out again at once to work that comes later on its own stream (I10).
Three kinds must wait:

- a block that other streams use (`block_share`): at its free an event is recorded on each of them,
  and it is WAITING until all are complete; they are polled when memory is short;
- a block that comes back while a model is unloaded, whose auxiliary streams may still use it: it
  waits for a device sync;
- a block handed out during a capture: the graph has its address.  Each capture has an arena of its
  own, which gives no page away until the user says that the graph is gone.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc

from acl.core._arena cimport (
    arena_add, arena_set_mode, pool_destroy, pool_orphan, pools_dropped,
)
from acl.core._bins cimport block_release
from acl._core cimport (
    ARENA_CAPTURING, BLOCK_LIVE, BLOCK_SHARED, BLOCK_WAITING, ROLE_CAPTURE, ROLE_FRAMEWORK, Use,
)
from acl.core._driver cimport (
    context_here, device_wait, event_done, event_mark, event_put, stream_captured,
)
from acl.core._lock cimport count_read, lock_drop, lock_take, stale_read
from acl.core._pages cimport pages_donate


# --- shared blocks ------------------------------------------------------------------------------

cdef bint block_share(Arena *arena, Block *block, aclrtStream stream) noexcept nogil:
    cdef Use *use
    if <size_t> (<char *> block - arena.slab) >= stale_read(&arena.slab_used):
        arena = capture_owner(arena, block)     # made during a capture: its arena takes it back
        if arena == NULL:
            return False
    use = <Use *> malloc(sizeof(Use))
    if use == NULL:
        return False
    use.block = block
    use.stream = stream
    use.context = context_here(arena.pool)
    lock_take(&arena.lock)
    if block.state != BLOCK_LIVE or stream == arena.stream:
        lock_drop(&arena.lock)
        free(use)
        return stream == arena.stream
    use.next = arena.uses
    arena.uses = use
    block.flags |= BLOCK_SHARED
    lock_drop(&arena.lock)
    return True


cdef void uses_end(Pool *pool, aclrtStream stream) noexcept nogil:
    # Once it has ended no event can be recorded there: who frees later would wait for the device.
    cdef uint32_t index
    cdef Arena *arena
    cdef Use **link
    cdef Use *use
    for index in range(count_read(&pool.arena_count)):
        arena = pool.arenas[index]
        lock_take(&arena.lock)
        link = &arena.uses
        while link[0] != NULL:
            use = link[0]
            if use.stream == stream:
                link[0] = use.next
                free(use)
            else:
                link = &use.next
        lock_drop(&arena.lock)


cdef Use *uses_take(Arena *arena, Block *block) noexcept nogil:
    """Take a block's uses out of the arena's list."""
    cdef Use **link = &arena.uses
    cdef Use *use
    cdef Use *taken = NULL
    while link[0] != NULL:
        use = link[0]
        if use.block == block:
            link[0] = use.next
            use.next = taken
            taken = use
        else:
            link = &use.next
    return taken


cdef void block_park(Arena *arena, Block *block) noexcept nogil:
    cdef Use *uses = uses_take(arena, block)
    cdef Use *use = uses
    cdef bint marks = arena.donates         # a framework's door records nothing inside a free
    block.flags = 0
    block.state = BLOCK_WAITING
    block.requested = 0
    while use != NULL:                      # all are counted before the first can be released
        block.requested += 1
        use.event = NULL
        use = use.next
    arena.polling += 1                      # until all are in the list, they are in this hand
    if uses == NULL:                        # their streams have ended since
        block_release(arena, block)
    while uses != NULL:
        use = uses
        uses = uses.next
        if marks:
            lock_drop(&arena.lock)
            use.event = event_mark(arena.pool, use.stream, use.context)
            lock_take(&arena.lock)
        use.next = arena.waiting
        arena.waiting = use
    arena.polling -= 1


cdef void block_park_device(Arena *arena, Block *block) noexcept nogil:
    cdef Use *uses = uses_take(arena, block)
    cdef Use *use
    while uses != NULL:                     # a device sync covers them all
        use = uses
        uses = uses.next
        free(use)
    block.flags = 0
    block.state = BLOCK_WAITING
    block.requested = 0
    block.links.next = arena.parked
    arena.parked = block


cdef bint use_done(Arena *arena, Use *use) noexcept nogil:
    """Under the lock: one wait less; true if that releases the block."""
    cdef Block *block = use.block
    free(use)
    block.requested -= 1
    if block.requested > 0:
        return False
    block_release(arena, block)
    return True


cdef Use *waiting_take(Arena *arena) noexcept nogil:
    cdef Use *uses
    lock_take(&arena.lock)
    uses = arena.waiting
    arena.waiting = NULL
    arena.polling += 1
    lock_drop(&arena.lock)
    return uses


cdef void waiting_leave(Arena *arena) noexcept nogil:
    lock_take(&arena.lock)
    arena.polling -= 1
    lock_drop(&arena.lock)


cdef bint waiting_settle(Arena *arena, Use *use, bint done) noexcept nogil:
    """A Use that was taken: over, or back to the others; true if that releases its block."""
    cdef bint released = False
    if done and use.event != NULL:
        if arena.role == ROLE_FRAMEWORK:
            arena.pool.mark_drop(use.event)
        else:
            event_put(arena.pool, use.event)
    lock_take(&arena.lock)
    if done:
        released = use_done(arena, use)
    else:
        use.next = arena.waiting
        arena.waiting = use
    lock_drop(&arena.lock)
    return released


cdef bint use_complete(Arena *arena, Use *use) noexcept nogil:
    """Without locks.  A framework's use is marked here, at the first miss after the free."""
    cdef Pool *pool = arena.pool
    if arena.role != ROLE_FRAMEWORK:
        return use.event != NULL and event_done(pool, use.event)
    if use.event == NULL and pool.mark != NULL:
        use.event = pool.mark(pool, use.stream)
    return use.event != NULL and pool.mark_done(use.event)


cdef uint64_t waiting_poll(Arena *arena) noexcept nogil:
    cdef Use *uses = waiting_take(arena)
    cdef Use *use
    cdef uint64_t released = 0
    while uses != NULL:
        use = uses
        uses = uses.next
        released += waiting_settle(arena, use, use_complete(arena, use))
    waiting_leave(arena)
    return released


cdef void parked_settle(Arena *arena, Block *blocks, bint done) noexcept nogil:
    cdef Block *block
    lock_take(&arena.lock)
    while blocks != NULL:
        block = blocks
        blocks = blocks.links.next
        if done:
            block_release(arena, block)
        else:
            block.links.next = arena.parked
            arena.parked = block
    lock_drop(&arena.lock)


cdef bint use_covered(Arena *arena, Use *use) noexcept nogil:
    """After a sync of the device: it waits for the pool's and its arenas' contexts only."""
    return (use.event == NULL or arena.role == ROLE_FRAMEWORK
            or use.context in (NULL, arena.pool.context, arena.context)
            or event_done(arena.pool, use.event))


cdef bint waiting_sync(Pool *pool, bint drained) noexcept nogil:
    # What is taken here was freed before the sync; what is freed meanwhile stays.  A framework's
    # blocks stay too, as their last use may not be launched yet, but if its queue is drained.
    cdef Use *uses[1024]
    cdef Block *parked[1024]
    cdef uint32_t count = count_read(&pool.arena_count)
    cdef uint32_t index
    cdef Arena *arena
    cdef Use *use
    cdef bint done
    for index in range(count):
        arena = pool.arenas[index]
        uses[index] = NULL
        parked[index] = NULL
        if arena.role == ROLE_FRAMEWORK and not drained:
            continue
        uses[index] = waiting_take(arena)
        lock_take(&arena.lock)
        parked[index] = arena.parked
        arena.parked = NULL
        lock_drop(&arena.lock)
    done = (not drained or pool.drain == NULL or pool.drain(pool)) and device_wait(pool)
    for index in range(count):
        arena = pool.arenas[index]
        if arena.role == ROLE_FRAMEWORK and not drained:
            continue
        while uses[index] != NULL:
            use = uses[index]
            uses[index] = use.next
            waiting_settle(arena, use, done and use_covered(arena, use))
        parked_settle(arena, parked[index], done)
        waiting_leave(arena)
    return done


cdef bint waiting_blindly(Pool *pool) noexcept nogil:
    cdef uint32_t index
    cdef Arena *arena
    cdef Use *use
    cdef bint found
    for index in range(count_read(&pool.arena_count)):
        arena = pool.arenas[index]
        if arena.role == ROLE_FRAMEWORK:
            continue
        lock_take(&arena.lock)
        found = arena.parked != NULL
        use = arena.waiting
        while use != NULL and not found:
            found = use.event == NULL
            use = use.next
        lock_drop(&arena.lock)
        if found:
            return True
    return False


cdef void waiting_end(Pool *pool) noexcept nogil:
    cdef uint32_t index
    for index in range(count_read(&pool.arena_count)):
        if pool.arenas[index].waiting != NULL or pool.arenas[index].parked != NULL:
            waiting_sync(pool, False)
            return


cdef void pool_end(Pool *pool) noexcept nogil:
    waiting_end(pool)
    if not pool_destroy(pool):
        pool_orphan(pool)


cdef void pool_drop(Pool *pool) noexcept nogil:
    pool_end(pool)
    pools_retry()


cdef void pools_retry() noexcept nogil:
    cdef Pool *found[16]
    cdef uint32_t count = pools_dropped(found, 16)
    while count > 0:
        count -= 1
        pool_end(found[count])


# --- captures -----------------------------------------------------------------------------------

cdef Arena *capture_spare(Arena *arena) noexcept nogil:
    """A capture's arena of this stream whose graph is gone and whose blocks are all free."""
    cdef Pool *pool = arena.pool
    cdef uint32_t index
    cdef Arena *other
    for index in range(count_read(&pool.arena_count)):
        other = pool.arenas[index]
        if other.owner == arena and other.released and other.live == 0:
            return other
    return NULL


cdef Arena *capture_begin(Arena *arena) noexcept nogil:
    cdef Arena *capture = arena.capture
    if capture != NULL:
        return capture
    capture = capture_spare(arena)
    if capture == NULL:
        capture = arena_add(arena.pool, arena.stream, ROLE_CAPTURE)
    if capture == NULL:
        return NULL
    capture.owner = arena
    capture.released = False
    capture.donates = False
    capture.graph = NULL
    arena.capture = capture
    arena_set_mode(arena, ARENA_CAPTURING, 0)
    return capture


cdef void capture_end(Arena *arena) noexcept nogil:
    arena_set_mode(arena, 0, ARENA_CAPTURING)
    arena.capture = NULL


cdef bint capture_look(Arena *arena) noexcept nogil:
    cdef void *graph = NULL
    cdef bint active = stream_captured(arena.pool, arena.stream, &graph)
    cdef Arena *capture
    if not active:
        if arena.capture != NULL:
            capture_end(arena)
        return True
    capture = arena.capture
    if capture != NULL and capture.graph != NULL and capture.graph != graph:
        capture_end(arena)                      # another capture began since we last looked
        capture = NULL
    if capture == NULL:
        capture = capture_begin(arena)
    if capture != NULL:
        capture.graph = graph
    return capture != NULL


cdef uint64_t capture_release(Arena *capture) noexcept nogil:
    capture.released = True
    capture.donates = not (
        capture.pool.options.early_frees or capture.owner.role == ROLE_FRAMEWORK)
    return pages_donate(capture, ~<uint64_t> 0, True) if capture.donates else 0


cdef Arena *capture_owner(Arena *arena, Block *block) noexcept nogil:
    cdef Pool *pool = arena.pool
    cdef uint32_t index
    cdef Arena *other
    for index in range(count_read(&pool.arena_count)):
        other = pool.arenas[index]
        if (other.owner == arena
                and <size_t> (<char *> block - other.slab) < stale_read(&other.slab_used)):
            return other
    return NULL
