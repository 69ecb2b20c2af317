"""Every driver call that the allocator makes, counted, and the books of the source of frames.

None of these may be called with a lock held.
"""

from libc.stdint cimport uint32_t, uint64_t

from acl._core cimport Arena, Attempt, Frame, Pool
from acl.core._lock cimport pointer_read
from acl.bind.generated._libacl cimport aclError, aclrtContext, aclrtEvent, aclrtStream


cdef inline aclrtContext arena_context(Arena *arena) noexcept nogil:
    """Where its stream lives, or NULL until that is known: another thread may find it out."""
    return <aclrtContext> pointer_read(<void **> &arena.context)


# What this thread's slow allocation has met so far, for the report if it fails.
cdef void attempt_begin() noexcept nogil
cdef void attempt_try(uint32_t rung) noexcept nogil
cdef void attempt_stop(uint32_t stop) noexcept nogil     # Stop bits
cdef void attempt_read(Attempt *attempt) noexcept nogil

# Called without locks when a pool may not grow (`Refusal`).  `pool/_refusals` hands it in; while it
# is NULL nobody is told.
cdef void (*on_refused)(Pool *pool, uint32_t kind, size_t bytes) noexcept nogil

cdef Frame *frame_make(Pool *pool) noexcept nogil           # NULL: limit, headroom or no memory
cdef bint frame_return(Pool *pool, Frame *frame) noexcept nogil
cdef bint frame_map(Pool *pool, char *addr, Frame *frame) noexcept nogil
cdef bint page_unmap(Pool *pool, char *addr) noexcept nogil                 # false: refused

cdef void source_put(Pool *pool, Frame *frames) noexcept nogil      # keeps them as spare
cdef Frame *source_take(Pool *pool) noexcept nogil                  # a spare one, or NULL
cdef size_t source_shrink(Pool *pool, size_t to) noexcept nogil     # spare ones to the driver

cdef void *range_reserve(Pool *pool, size_t *bytes, size_t least) noexcept nogil
cdef void range_unreserve(Pool *pool, void *base) noexcept nogil
cdef void *segment_malloc(Pool *pool, size_t bytes) noexcept nogil  # NULL as for a frame
cdef bint segment_free(Pool *pool, void *base, size_t bytes) noexcept nogil

cdef size_t device_room(Pool *pool) noexcept nogil          # bytes free on the device, 0: unknown

# The context that is current in this thread; NULL if none is, or if the driver has none.
cdef aclrtContext context_here(Pool *pool) noexcept nogil
# Makes a context current, unless it is, or is NULL; `before` is for `context_leave`.
cdef aclError context_enter(Pool *pool, aclrtContext context, aclrtContext *before) noexcept nogil
cdef void context_leave(Pool *pool, aclrtContext before) noexcept nogil

# All waits until `waits_end`, of this thread, together: as long as one wait may take.
cdef void waits_begin(Pool *pool) noexcept nogil
cdef void waits_end() noexcept nogil
# From here on waits take so long together at most; returns what `waits_restore` is given.
cdef uint64_t waits_shorten(uint32_t most_ms) noexcept nogil
cdef void waits_restore(uint64_t until) noexcept nogil

# Where a stream lives: `known`, if that is not NULL, or found by asking.  For the default stream
# the current context, or the pool's.  NULL: nobody knows.
cdef aclrtContext stream_home(Pool *pool, aclrtStream stream, aclrtContext known) noexcept nogil
# Around a driver call with the arena's stream: its end waits for that.  False: it has ended.
cdef bint stream_hold(Arena *arena) noexcept nogil
cdef void stream_let(Arena *arena) noexcept nogil

# Whether any wait of a pool's was told of a failed task (`arena.fault`), in this process.
cdef bint faults_seen() noexcept nogil
cdef bint stream_idle(Arena *arena) noexcept nogil          # nothing in flight, right now
cdef bint stream_wait(Arena *arena) noexcept nogil          # false: expired, refused or captured
# A new moment of the pool's clock; and when a context was last known to be complete.
cdef uint64_t moment_begin(Pool *pool) noexcept nogil
cdef uint64_t place_rested(Pool *pool, aclrtContext context) noexcept nogil
# All work of every context that the pool knows: its own, the current one, those of arenas and Uses.
# The first failure; contexts that were waited for are noted all the same.
cdef aclError device_sync(Pool *pool) noexcept nogil
cdef bint device_wait(Pool *pool) noexcept nogil
# The same for what the WAITING blocks of one arena still wait for.
cdef aclError waiting_contexts_sync(Arena *arena) noexcept nogil
# Whether a stream is being captured, and into what: as far as the driver says, or with its status.
cdef aclError capture_status(Pool *pool, aclrtStream stream, void **graph,
                             bint *active) noexcept nogil
cdef bint stream_captured(Pool *pool, aclrtStream stream, void **graph) noexcept nogil
# Has `released` set for a capture's arena when its graph is destroyed.
cdef void graph_watched(Pool *pool, void *graph) noexcept nogil

# A thread that has no context gets the pool's: the runtime answers it nothing about streams.
cdef void context_lend(Pool *pool) noexcept nogil

# An event behind what is queued on a stream of that context, or of the pool's, which is told then.
# NULL: none, as where the stream is captured.  The thread's own context may be another device's: a
# finalizer runs in any thread.
cdef aclrtEvent event_mark(Pool *pool, aclrtStream stream, aclrtContext *context) noexcept nogil
cdef bint event_done(Pool *pool, aclrtEvent event) noexcept nogil
cdef aclError event_ask(Pool *pool, aclrtEvent event, bint *done) noexcept nogil
cdef void event_put(Pool *pool, aclrtEvent event) noexcept nogil
cdef void events_destroy(Pool *pool) noexcept nogil
