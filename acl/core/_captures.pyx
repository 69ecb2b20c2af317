"""Captures: while a stream is captured, its allocations are made in an arena of the capture.

The graph uses the addresses of these blocks whenever it is executed.  So the capture's arena gives
no page away until the graph is destroyed.  `capture_begin` directs the stream's allocations to such
an arena, and `capture_end` ends this.  `capture_look` asks the driver, and calls them if the
capture of the stream has changed.
"""

from libc.stdint cimport uint32_t, uint64_t

from acl.bind.generated._libacl cimport ACL_SUCCESS, aclError
from acl.core._arena cimport arena_add, arena_set_mode
from acl.core._asleep cimport naps_let_go
from acl.core._driver cimport arena_context, capture_status, graph_watched
from acl.core._lock cimport (
    count_publish, count_read, lock_drop, lock_enter, lock_leave, lock_take, pointer_publish,
    spin_enter, spin_leave,
)
from acl.core._pages cimport pages_donate, pages_may_leave
from acl.core.types cimport ARENA_CAPTURING, Pool, ROLE_CAPTURE


cdef Arena *capture_spare(Arena *arena) noexcept nogil:
    """Return the arena of an old capture for a new capture on the stream of `arena`; NULL: none.

    The graph of the old capture was destroyed, and no block of its arena is live.  If that arena
    belonged to another stream, it must also have no pages, no pending frees and no allocation in
    progress, as the work of two streams is not ordered.  Its `owner` is set to `arena`.
    """
    cdef Pool *pool = arena.pool
    cdef uint32_t index
    cdef Arena *other
    cdef Arena *found = NULL
    spin_enter(&pool.lock)
    for index in range(count_read(&pool.arena_count)):
        other = pool.arenas[index]
        if (found == NULL and other.role == ROLE_CAPTURE and other.captures.released
                and other.live == 0 and (other.owner == arena or (
                    other.pages == 0 and other.climbing == 0 and other.order.waiting == NULL
                    and other.order.polling == 0))):
            other.captures.released = False     # so that no other thread takes it
            other.owner = arena
            other.order.early = arena.order.early
            other.stream = arena.stream
            other.context = arena_context(arena)
            other.ending.settled = False
            count_publish(&other.ending.by_device, 0)
            found = other
    spin_leave(&pool.lock)
    return found


cdef Arena *capture_open(Arena *arena) noexcept nogil:
    cdef Arena *capture = capture_spare(arena)
    if capture == NULL:
        capture = arena_add(arena.pool, arena.stream, ROLE_CAPTURE, arena_context(arena))
        if capture != NULL:
            capture.order.early = arena.order.early
            capture.owner = arena
    if capture != NULL:
        capture.captures.graph = NULL
    return capture


cdef Arena *capture_begin(Arena *arena) noexcept nogil:
    cdef Arena *capture = capture_of(arena)
    cdef Arena *other
    if capture != NULL:
        return capture
    capture = capture_open(arena)
    if capture == NULL:
        return NULL
    lock_enter(&arena.lock)
    other = arena.captures.capture
    if other == NULL:
        pointer_publish(<void **> &arena.captures.capture, capture)
    lock_leave(&arena.lock)
    if other != NULL:  # another thread has begun the capture in the meantime
        capture.captures.released = True
        return other
    arena_set_mode(arena, ARENA_CAPTURING, 0)
    return capture


cdef void capture_end(Arena *arena) noexcept nogil:
    arena_set_mode(arena, 0, ARENA_CAPTURING)
    pointer_publish(<void **> &arena.captures.capture, NULL)


cdef bint capture_look(Arena *arena) noexcept nogil:
    cdef void *graph = NULL
    cdef bint active
    cdef aclError status = capture_status(arena.pool, arena.stream, &graph, &active)
    cdef Arena *capture
    if status != ACL_SUCCESS and arena.stream != NULL and not count_read(&arena.ending.by_device):
        return False                            # a block of the arena could become part of a graph
    if not active:
        if capture_of(arena) != NULL:
            capture_end(arena)
        return True
    capture = capture_of(arena)
    if capture != NULL and (capture.captures.released or (
            capture.captures.graph != NULL and capture.captures.graph != graph)):
        capture_end(arena)  # the capture of `capture` has ended, and another one is in progress
        capture = NULL
    if capture == NULL:
        capture = capture_begin(arena)
    if capture != NULL and capture.captures.graph != graph:
        capture.captures.graph = graph
        if arena.pool.source.driver.graph_watch != NULL:
            graph_watched(arena.pool, graph)    # nothing else reports the graph's end
    return capture != NULL


cdef uint64_t capture_release(Arena *capture) noexcept nogil:
    capture.captures.released = True
    lock_take(&capture.lock)
    naps_let_go(capture)
    lock_drop(&capture.lock)
    return pages_donate(capture, ~<uint64_t> 0, True) if pages_may_leave(capture, False) else 0
