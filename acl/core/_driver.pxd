"""Every driver call that the allocator makes, counted, and the books of the source of frames.

None of these may be called with a lock held.
"""

from libc.stdint cimport uint32_t

from acl._core cimport Arena, Attempt, Frame, Pool
from acl._libacl cimport aclError, aclrtContext, aclrtEvent, aclrtStream

# What this thread's slow allocation has met so far, for the report if it fails.
cdef void attempt_begin() noexcept nogil
cdef void attempt_try(uint32_t rung) noexcept nogil
cdef void attempt_stop(uint32_t stop) noexcept nogil     # Stop bits
cdef void attempt_read(Attempt *attempt) noexcept nogil

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

cdef bint stream_idle(Arena *arena) noexcept nogil          # nothing in flight, right now
cdef bint stream_wait(Arena *arena) noexcept nogil          # false: expired or refused
# All work of the current context, and of those that the pool and its arenas were made in.
cdef aclError device_sync(Pool *pool) noexcept nogil
cdef bint device_wait(Pool *pool) noexcept nogil
cdef bint stream_captured(Pool *pool, aclrtStream stream, void **graph) noexcept nogil

# A thread that has no context gets the pool's: the runtime answers it nothing about streams.
cdef void context_lend(Pool *pool) noexcept nogil

# An event behind what is queued on a stream of that context, or of the pool's; NULL: none.  The
# thread's own context may be another device's: a finalizer runs in any thread.
cdef aclrtEvent event_mark(Pool *pool, aclrtStream stream, aclrtContext context) noexcept nogil
cdef bint event_done(Pool *pool, aclrtEvent event) noexcept nogil
cdef void event_put(Pool *pool, aclrtEvent event) noexcept nogil
cdef void events_destroy(Pool *pool) noexcept nogil
