"""All driver calls of the allocator, with counts, and the accounting of the page source.

No function here may be called with a lock held.
"""

from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.string cimport memset

from acl.core.types cimport Arena, Attempt, Frame, Pool
from acl.core._lock cimport count_read, pointer_read
from acl.bind.generated._libacl cimport (
    ACL_MEM_ALLOCATION_TYPE_PINNED, ACL_MEM_HANDLE_TYPE_NONE, ACL_MEM_LOCATION_TYPE_DEVICE,
    aclError, aclrtContext, aclrtEvent, aclrtMemAttr, aclrtPhysicalMemProp, aclrtStream,
)


cdef inline void prop_fill(aclrtPhysicalMemProp *prop, int32_t device,
                           aclrtMemAttr attr) noexcept nogil:
    """Describe physical memory of a device, with pages of the kind `attr`."""
    memset(prop, 0, sizeof(aclrtPhysicalMemProp))
    prop.handleType = ACL_MEM_HANDLE_TYPE_NONE
    prop.allocationType = ACL_MEM_ALLOCATION_TYPE_PINNED
    prop.memAttr = attr
    prop.location.type = ACL_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = <uint32_t> device            # safe cast: a device number is never negative


cdef inline aclrtContext arena_context(Arena *arena) noexcept nogil:
    """Return the context of the arena's stream; NULL: unknown, or the driver has no contexts."""
    return <aclrtContext> pointer_read(<void **> &arena.context)


cdef inline bint arena_is_of(Arena *arena, aclrtStream stream, aclrtContext context) noexcept nogil:
    """True if the arena serves this stream.

    The stream has not ended, the handles are equal and, for the default stream, also the contexts.
    """
    # `by_device` must be read first: when it is 0 again, `stream` is the arena's new stream.
    return (not count_read(&arena.ending.by_device) and arena.stream == stream
            and (stream != NULL or arena_context(arena) == context))


# The next four functions begin, extend and read the `Attempt` of this thread's slow allocation.  If
# the allocation fails, the OomReport is made from it.
cdef void attempt_begin() noexcept nogil
cdef void attempt_try(uint32_t rung) noexcept nogil
cdef void attempt_stop(uint32_t stop) noexcept nogil     # `stop`: Stop bits
cdef void attempt_read(Attempt *attempt) noexcept nogil

# Called without locks when a pool could not grow.  `kind` is a Refusal; `bytes` is the size that
# was refused.  `pool/_refusals` sets this pointer; while it is NULL, it is not called.
cdef void (*on_refused)(Pool *pool, uint32_t kind, size_t bytes) noexcept nogil

# Asks the driver for a new frame.  Returns NULL if the limit, the headroom or the driver forbids
# it, or if there is no host memory.
cdef Frame *frame_make(Pool *pool) noexcept nogil
cdef bint frame_return(Pool *pool, Frame *frame) noexcept nogil
cdef bint frame_map(Pool *pool, char *addr, Frame *frame) noexcept nogil
cdef bint page_unmap(Pool *pool, char *addr) noexcept nogil                 # false: it was refused

cdef void source_put(Pool *pool, Frame *frames) noexcept nogil      # adds a list of spare frames
cdef Frame *source_take(Pool *pool) noexcept nogil                  # takes a spare frame, or NULL
# Gives spare frames to the driver until only `to` bytes are reserved.  Returns the bytes given.
cdef size_t source_shrink(Pool *pool, size_t to) noexcept nogil

# Reserves `bytes` of addresses, or fewer if the driver refuses, but not fewer than `least`.
# Returns their start and sets `bytes` to their number; NULL: the driver refuses all.
cdef void *range_reserve(Pool *pool, size_t *bytes, size_t least) noexcept nogil
cdef void range_unreserve(Pool *pool, void *base) noexcept nogil
# Asks the driver for a segment.  Returns NULL if the limit, the headroom or the driver forbids it.
cdef void *segment_malloc(Pool *pool, size_t bytes) noexcept nogil
cdef bint segment_free(Pool *pool, void *base, size_t bytes) noexcept nogil

cdef size_t device_room(Pool *pool) noexcept nogil          # bytes free on the device; 0: unknown

# Returns the context that is current in this thread; NULL if none is, or if the driver has none.
cdef aclrtContext context_here(Pool *pool) noexcept nogil
# Makes a context current, unless it is NULL or current already.  Sets `before` for `context_leave`.
# Returns the driver's status, or 0 if there was no call.
cdef aclError context_enter(Pool *pool, aclrtContext context, aclrtContext *before) noexcept nogil
cdef void context_leave(Pool *pool, aclrtContext before) noexcept nogil

# Until `waits_end`, all waits of this thread together may take only as long as one wait may take.
cdef void waits_begin(Pool *pool) noexcept nogil
cdef void waits_end() noexcept nogil
# Limits all waits of this thread together to `most_ms`, counted from now.  Returns the old limit,
# for `waits_restore`.
cdef uint64_t waits_shorten(uint32_t most_ms) noexcept nogil
cdef void waits_restore(uint64_t until) noexcept nogil

# Returns the context of a stream, or NULL if the context was not found.  Returns `known` if that is
# not NULL.  Otherwise, for the default stream, returns the current context, or the pool's context
# if none is current.  For other streams, asks the driver in the current context, then in the
# pool's, if the stream belongs to it.
cdef aclrtContext stream_home(Pool *pool, aclrtStream stream, aclrtContext known) noexcept nogil
# Called before and after a driver call with the arena's stream.  `stream_hold` returns False if the
# stream has ended; then there must be no call.  `stream_end` waits until `stream_let` was called.
cdef bint stream_hold(Arena *arena) noexcept nogil
cdef void stream_let(Arena *arena) noexcept nogil

# True if a wait of any pool in this process has ever found a failed task (`arena.ending.fault`).
cdef bint faults_seen() noexcept nogil
cdef bint stream_idle(Arena *arena) noexcept nogil          # true if no work is queued or running
cdef bint stream_wait(Arena *arena) noexcept nogil  # false: wait expired, refused or captured
# `moment_begin` returns the number of a new wait for a context.  `place_rested` returns the number
# of the last successful wait for a context; 0 if there was none.
cdef uint64_t moment_begin(Pool *pool) noexcept nogil
cdef uint64_t place_rested(Pool *pool, aclrtContext context) noexcept nogil
# Waits for all work of every context that the pool knows: its own, the current one, and those of
# arenas and Uses.  Returns the first error, or 0.  Contexts for which the wait succeeded are noted
# in any case.
cdef aclError device_sync(Pool *pool) noexcept nogil
cdef bint device_wait(Pool *pool) noexcept nogil
# Waits for all work of the contexts for which WAITING blocks of one arena wait.  Returns the first
# error, or 0.
cdef aclError waiting_contexts_sync(Arena *arena) noexcept nogil
# `capture_status` sets `active` to true if the stream is being captured, and `graph` to its graph.
# It returns the driver's status, or 0 if the chip has no graphs or the stream is of another
# context. `stream_captured` returns `active`, which is false if the driver fails.
cdef aclError capture_status(Pool *pool, aclrtStream stream, void **graph,
                             bint *active) noexcept nogil
cdef bint stream_captured(Pool *pool, aclrtStream stream, void **graph) noexcept nogil
# Asks ACL to report when the graph is destroyed.  The report sets `captures.released` in the
# arenas of the graph.
cdef void graph_watched(Pool *pool, void *graph) noexcept nogil

# Makes the pool's context current if this thread has no current context: without one, the thread
# could not query streams.
cdef void context_lend(Pool *pool) noexcept nogil

# Records an event behind all work that is queued on a stream.  Returns NULL if no event can be
# recorded, for example during a capture.  First makes `context` current, as a finalizer can run in
# any thread, whose current context may be of another device.  If the stream is not in `context`,
# tries the pool's context, and sets `context` to the pool's if the stream is there.
cdef aclrtEvent event_mark(Pool *pool, aclrtStream stream, aclrtContext *context) noexcept nogil
cdef bint event_done(Pool *pool, aclrtEvent event) noexcept nogil
cdef aclError event_ask(Pool *pool, aclrtEvent event, bint *done) noexcept nogil
cdef void event_put(Pool *pool, aclrtEvent event) noexcept nogil
cdef void events_destroy(Pool *pool) noexcept nogil
