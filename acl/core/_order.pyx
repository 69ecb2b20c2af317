"""Uses of memory that a stream's own order does not cover.

A freed block is usually handed out again at once, for later work of its own stream (I10).  For
three kinds of blocks that would be wrong:

- A block that other streams use too (`block_share`).  When it is freed, an event is recorded on
  each of these streams, and the block is WAITING until all events are complete.  The events are
  polled when an allocation finds no memory.
- A block that is freed while a model is unloaded, as the model's auxiliary streams may still use
  it.  The block waits for all work of its stream's context, by a Use with `whole`.
- A block that was handed out during a capture, as each run of the graph uses its address: see
  `_captures`.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from acl.core._bins cimport block_release, guest_bit, queue_after, use_bed
from acl.core.types cimport (
    ARENA_FORKED, ARENA_UNLOADING, BLOCK_LIVE, BLOCK_MOVING, BLOCK_SHARED, BLOCK_WAITING,
    ROLE_FRAMEWORK, Use, USE_BEDS,
)
from acl.core._driver cimport (
    arena_context, arena_is_of, device_wait, event_ask, event_mark, event_put, moment_begin,
    place_rested, stream_home, waiting_contexts_sync,
)
from acl.bind.generated._libacl cimport (
    ACL_ERROR_RT_FEATURE_NOT_SUPPORT, ACL_RT_THREAD_LEVEL, ACL_SUCCESS, aclError,
    aclmdlRI, aclmdlRICaptureGetInfo, aclmdlRICaptureStatus, aclrtGetLastError,
    aclrtPeekAtLastError,
)
from acl.core._lock cimport count_publish, count_read, lock_drop, lock_take, stale_read
from acl.core.policy cimport GLANCED_MOST


# --- shared blocks ------------------------------------------------------------------------------

cdef bint block_share(Arena *arena, Block *block, aclrtStream stream) noexcept nogil:
    return block_share_in(arena, block, stream, NULL)


cdef bint block_share_in(Arena *arena, Block *block, aclrtStream stream,
                         aclrtContext context) noexcept nogil:
    cdef Use *use
    cdef Use **beds = NULL
    if <size_t> (<char *> block - arena.slab) >= stale_read(&arena.slab_used):
        arena = capture_owner(arena, block)     # NULL: not a block of this stream
        if arena == NULL:
            return False
    use = use_make(block, stream)
    if use == NULL:
        return False
    if arena.role == ROLE_FRAMEWORK:
        # The context is not used for a framework: its queue markers show if the work is complete.
        use.context = arena.pool.context
    else:
        use.context = stream_home(arena.pool, stream, context)
    if arena_is_of(arena, stream, use.context):
        free(use)
        return True
    if arena.order.uses == NULL:
        beds = <Use **> calloc(USE_BEDS, sizeof(Use *))
    lock_take(&arena.lock)
    if block.state != BLOCK_LIVE or (arena.order.uses == NULL and beds == NULL):
        lock_drop(&arena.lock)
        free(use)
        free(beds)
        return False
    if arena.order.uses == NULL:
        arena.order.uses = beds
        beds = NULL
    use.next = arena.order.uses[use_bed(block)]
    arena.order.uses[use_bed(block)] = use
    arena.order.guests |= guest_bit(stream)
    block.flags |= BLOCK_SHARED
    lock_drop(&arena.lock)
    free(beds)
    return True


cdef Use *use_make(Block *block, aclrtStream stream) noexcept nogil:
    cdef Use *use = <Use *> calloc(1, sizeof(Use))
    if use != NULL:
        use.block = block
        use.stream = stream
    return use


cdef Use *uses_take(Arena *arena, Block *block) noexcept nogil:
    """Remove a block's Uses from the arena's lists; return them as a list."""
    cdef Use **link = &arena.order.uses[use_bed(block)] if arena.order.uses != NULL else NULL
    cdef Use *use
    cdef Use *taken = NULL
    while link != NULL and link[0] != NULL:
        use = link[0]
        if use.block == block:
            link[0] = use.next
            use.next = taken
            taken = use
        else:
            link = &use.next
    return taken


cdef Use *use_whole(Arena *arena, Block *block) noexcept nogil:
    """Return a new Use that is complete after a wait for all work of the arena's context.

    NULL: there is no host memory.
    """
    cdef Use *use = use_make(block, arena.stream)
    if use != NULL:
        use.context = arena_context(arena)
        use.whole = True
    return use


cdef void block_park(Arena *arena, Block *block) noexcept nogil:
    cdef Pool *pool = arena.pool
    cdef Use *uses = uses_take(arena, block) if block.flags & BLOCK_SHARED else NULL
    cdef Use *use
    block.flags = 0
    block.state = BLOCK_WAITING
    if arena.mode & (ARENA_UNLOADING | ARENA_FORKED):
        use = use_whole(arena, block)
        if use == NULL:
            block.state = BLOCK_MOVING  # no host memory for the Use: the block is never used again
        else:
            use.next = uses
            uses = use
    elif uses == NULL:  # all Uses were freed, when their streams were destroyed without work left
        block_release(arena, block)
        return
    block.requested = 0
    use = uses
    while use != NULL:                      # count all Uses before any of them can end
        block.requested += 1
        use.moment = <uint64_t> stale_read(<size_t *> &pool.source.moment)
        use = use.next
    arena.order.polling += 1                # these Uses are on no list until `waiting_add`
    arena.order.marking += 1
    while uses != NULL:
        use = uses
        uses = uses.next
        # With early frees an event is useless: work on the block may be queued behind the event.
        if not (use.whole or use.ended or arena.order.early or arena.mode & ARENA_FORKED):
            lock_drop(&arena.lock)
            use.event = event_mark(pool, use.stream, &use.context)
            lock_take(&arena.lock)
        waiting_add(arena, use)
    arena.order.marking -= 1
    arena.order.polling -= 1


cdef inline uint32_t wait_bed(Use *use) noexcept nogil:
    cdef uint64_t key = <uint64_t> use.stream ^ <uint64_t> use.context ^ use.blind
    return <uint32_t> (key * <uint64_t> 0x9E3779B97F4A7C15 >> 56)       # safe cast: below WAIT_BEDS


cdef Use **queue_find(Arena *arena, Use *use) noexcept nogil:
    """Return the address of the link to the oldest Use of the queue to which `use` belongs.

    A queue has the Uses with equal `stream`, `context` and `blind`.  The link is NULL if there is
    no such queue yet.
    """
    cdef Use **link = &arena.order.wait_beds[wait_bed(use)]
    while link[0] != NULL and not (link[0].stream == use.stream and link[0].blind == use.blind
                                   and link[0].context == use.context):
        link = &link[0].beside
    return link


cdef void queue_begin(Arena *arena, Use *use) noexcept nogil:
    """Put a new queue, with one Use, at the end of the circular list of queues."""
    cdef Use *first = arena.order.waiting
    arena.order.queues += 1
    use.last = use
    if first == NULL:
        use.after = use.before = use
        arena.order.waiting = use
        return
    use.after = first
    use.before = first.before
    first.before.after = use
    first.before = use


cdef void waiting_add(Arena *arena, Use *use) noexcept nogil:
    """Under the lock: add a Use to its queue (see `queue_find`), as the youngest."""
    cdef Use **link
    cdef bint marked = arena.role == ROLE_FRAMEWORK     # `queue_mark` will set `use.event`
    use.blind = use.whole or use.ended or (use.event == NULL and not marked)
    use.next = NULL
    link = queue_find(arena, use)
    if link[0] == NULL:
        link[0] = use
        queue_begin(arena, use)
    else:
        link[0].last.next = use
        link[0].last = use
    if marked and not use.blind and link[0].unmarked == NULL:
        link[0].unmarked = use


cdef void queue_step(Arena *arena, Use *use, Use *then) noexcept nogil:
    """Make `then`, the second oldest Use of a queue, the oldest one in place of `use`."""
    then.last = use.last
    then.beside = use.beside
    then.asked = use.asked
    then.unmarked = use.unmarked if use.unmarked != use else then
    then.after = use.after if use.after != use else then
    then.before = use.before if use.before != use else then
    then.after.before = then
    then.before.after = then


cdef Use *waiting_drop(Arena *arena, Use *use) noexcept nogil:
    """Under the lock: remove the oldest Use from its queue; return the queue's next Use or NULL."""
    cdef Use **link = queue_find(arena, use)
    cdef Use *then = use.next
    if then != NULL:
        queue_step(arena, use, then)
        link[0] = then
    else:
        link[0] = use.beside
        use.before.after = use.after
        use.after.before = use.before
        arena.order.queues -= 1
    if arena.order.waiting == use:
        arena.order.waiting = then if then != NULL else use.after
    if arena.order.queues == 0:
        arena.order.waiting = NULL
    return then


cdef Use *use_over(Arena *arena, Use *use, uint64_t *released) noexcept nogil:
    """End `use`, the oldest Use of a queue.  Return the next Use of the queue, or NULL.

    If `use` was the last Use of its block, free the block and add 1 to `released`.
    """
    cdef Block *block = use.block
    cdef Use *then
    if use.event != NULL:
        if arena.role == ROLE_FRAMEWORK:
            arena.pool.queue.mark_drop(use.event)
        else:
            event_put(arena.pool, use.event)
    lock_take(&arena.lock)
    then = waiting_drop(arena, use)
    block.requested -= 1
    if block.requested == 0 and block.state == BLOCK_WAITING:
        block_release(arena, block)
        released[0] += 1
    lock_drop(&arena.lock)
    free(use)
    return then


cdef bint use_complete(Arena *arena, Use *use) noexcept nogil:
    """Without locks: return True if the work that a Use waits for is complete.

    The work is complete if the Use's context was waited for since the block's free, or if the Use's
    event is complete.  If there is no event, or its query fails, only the wait counts.  For a
    framework, the work is complete if the task queue was drained since the free, or if the stream
    has reached the Use's queue marker.
    """
    cdef Pool *pool = arena.pool
    cdef bint silent
    cdef bint done = False
    if arena.role == ROLE_FRAMEWORK:
        return pool.source.drained > use.moment or (
            use.event != NULL and pool.queue.mark_done(use.event))
    if place_rested(pool, use.context) > use.moment:
        return True
    if use.event != NULL:
        silent = event_ask(pool, use.event, &done) != ACL_SUCCESS
        # Only the thread that set `asked` writes `silent`, so it may be read here without the lock.
        if silent != use.silent:
            lock_take(&arena.lock)
            use.silent = silent
            lock_drop(&arena.lock)
    return done


cdef Use *queue_unmarked(Arena *arena, Use *oldest, Use *marked) noexcept nogil:
    """Return the oldest Use without a queue marker in the queue of `oldest`; NULL: all have one.

    `marked`: the Use that has just got its marker; NULL: none.
    """
    cdef Use *use
    lock_take(&arena.lock)
    if marked != NULL:
        oldest.unmarked = marked.next
    use = oldest.unmarked
    lock_drop(&arena.lock)
    return use


cdef bint queue_mark(Arena *arena, Use *oldest) noexcept nogil:
    """Without locks: set the queue markers that Uses of a queue lack, until one cannot be set.

    True if at least one Use lacked its marker.
    """
    cdef Pool *pool = arena.pool
    cdef Use *first = queue_unmarked(arena, oldest, NULL)
    cdef Use *use = first
    while use != NULL and pool.queue.mark != NULL:
        use.event = pool.queue.mark(pool, use.stream)
        if use.event == NULL:
            break
        use = queue_unmarked(arena, oldest, use)
    return first != NULL


cdef Use *queue_settle(Arena *arena, Use *use, uint64_t *released) noexcept nogil:
    """Without locks: end a queue's complete Uses, oldest first, up to the first incomplete one.

    Return that Use, or NULL.  Add the number of freed blocks to `released`.
    """
    while use != NULL and use_complete(arena, use):
        use = use_over(arena, use, released)
    return use


cdef bint queue_poll(Arena *arena, Use *use, uint64_t *released) noexcept nogil:
    """End the complete Uses of a queue that this thread has taken.

    True if no Use is left.  Otherwise clear `asked`, so that other threads may take the queue.
    """
    use = queue_settle(arena, use, released)
    if use != NULL and arena.role == ROLE_FRAMEWORK and queue_mark(arena, use):
        use = queue_settle(arena, use, released)
    if use == NULL:
        return True
    lock_take(&arena.lock)
    use.asked = False
    lock_drop(&arena.lock)
    return False


cdef Use *queue_take(Arena *arena, uint32_t *left) noexcept nogil:
    """Take the next queue that no thread polls: set `asked` in its oldest Use and return that Use.

    `left` is the number of queues that the caller has not visited yet; each visited queue, taken or
    not, lowers it by 1.  NULL: `left` has reached 0, or the arena has no queue.
    """
    cdef Use *use = NULL
    lock_take(&arena.lock)
    while use == NULL and left[0] > 0 and arena.order.waiting != NULL:
        left[0] -= 1
        if not arena.order.waiting.asked:
            use = arena.order.waiting
            use.asked = True
        arena.order.waiting = arena.order.waiting.after
    lock_drop(&arena.lock)
    return use


cdef uint64_t queues_poll(Arena *arena, uint32_t most) noexcept nogil:
    """Poll each queue once, but stop after `most` queues that still have incomplete Uses.

    Return the number of freed blocks.
    """
    cdef uint64_t released = 0
    cdef uint32_t left
    cdef Use *use
    lock_take(&arena.lock)
    arena.order.polling += 1
    left = arena.order.queues
    lock_drop(&arena.lock)
    while most > 0:
        use = queue_take(arena, &left)
        if use == NULL:
            break
        if not queue_poll(arena, use, &released):
            most -= 1
    lock_take(&arena.lock)
    arena.order.polling -= 1
    lock_drop(&arena.lock)
    return released


cdef uint64_t waiting_poll(Arena *arena) noexcept nogil:
    return queues_poll(arena, ~<uint32_t> 0)


cdef uint64_t waiting_glance(Arena *arena) noexcept nogil:
    return queues_poll(arena, GLANCED_MOST)


cdef uint64_t waiting_wait(Arena *arena) noexcept nogil:
    # The status is ignored: `waiting_poll` tests for each context if the wait succeeded.
    waiting_contexts_sync(arena)
    return waiting_poll(arena)


cdef bint waiting_sync(Pool *pool, bint drained) noexcept nogil:
    # Unless `drained`, a framework's blocks stay WAITING: their last use may not be launched yet.
    cdef uint64_t moment = moment_begin(pool)
    cdef uint32_t index
    cdef bint done = not drained or pool.queue.drain == NULL or pool.queue.drain(pool)
    done = done and device_wait(pool)
    if done and drained:
        pool.source.drained = moment
    for index in range(count_read(&pool.arena_count)):
        if pool.arenas[index].role != ROLE_FRAMEWORK or drained:
            waiting_poll(pool.arenas[index])
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
        found = False
        use = arena.order.waiting
        while use != NULL and not found:
            found = use.blind or use.silent
            use = queue_after(arena, use)
        lock_drop(&arena.lock)
        if found:
            return True
    return False


cdef void waiting_end(Pool *pool) noexcept nogil:
    cdef uint32_t index
    for index in range(count_read(&pool.arena_count)):
        if pool.arenas[index].order.waiting != NULL:
            waiting_sync(pool, False)
            return


# --- captures -----------------------------------------------------------------------------------

cdef uint32_t graphs_asked = 0          # 1: this process has asked ACL about a capture
cdef uint32_t graphs_missing = 0        # 1: ACL answered that the chip has no graphs


cdef aclError capture_ask(
    aclrtStream stream, aclmdlRICaptureStatus *state, aclmdlRI *graph
) noexcept nogil:
    cdef aclError status, before = ACL_SUCCESS
    cdef bint first = count_read(&graphs_asked) == 0
    if count_read(&graphs_missing):
        return ACL_SUCCESS
    if first:
        count_publish(&graphs_asked, 1)
        before = aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL)
    status = aclmdlRICaptureGetInfo(stream, state, graph)
    if status != ACL_ERROR_RT_FEATURE_NOT_SUPPORT:
        return status
    count_publish(&graphs_missing, 1)
    if first and before == ACL_SUCCESS:
        aclrtGetLastError(ACL_RT_THREAD_LEVEL)  # status ignored: clears the query's error
    return ACL_SUCCESS


cdef Arena *capture_owner(Arena *arena, Block *block) noexcept nogil:
    cdef Pool *pool = arena.pool
    cdef uint32_t index
    cdef Arena *other
    for index in range(count_read(&pool.arena_count) if pool != NULL else 0):
        other = pool.arenas[index]
        if (other.owner == arena
                and <size_t> (<char *> block - other.slab) < stale_read(&other.slab_used)):
            return other
    return NULL
