"""What a stream's own order does not cover: other streams, model unloads, captured graphs."""

from libc.stdint cimport uint64_t

from acl._core cimport Arena, Block, Pool
from acl.core._lock cimport pointer_read
from acl.bind.generated._libacl cimport (
    aclError, aclmdlRI, aclmdlRICaptureStatus, aclrtContext, aclrtStream,
)

# A live block is used on another stream too: freeing it will wait for what is queued there.  The
# second is told where that stream lives.
cdef bint block_share(Arena *arena, Block *block, aclrtStream stream) noexcept nogil
cdef bint block_share_in(Arena *arena, Block *block, aclrtStream stream,
                         aclrtContext context) noexcept nogil

# A block that is not live any more, off all lists, waits for its users and, while a model is
# unloaded, for its whole context.  Called with the lock held; unlocks over the driver calls.
cdef void block_park(Arena *arena, Block *block) noexcept nogil

# Release the blocks that wait for nothing any more; without locks.  How many those were.
cdef uint64_t waiting_poll(Arena *arena) noexcept nogil
# The same, but at most some streams at work are asked: the others at the next call.
cdef uint64_t waiting_glance(Arena *arena) noexcept nogil
# The same after a wait for what the arena's blocks still wait for.
cdef uint64_t waiting_wait(Arena *arena) noexcept nogil
# Synchronises the device and releases every waiting block of the pool; false if the wait failed.
# Those of a framework's arenas only with `drained`, which also empties the framework's queue.
cdef bint waiting_sync(Pool *pool, bint drained) noexcept nogil
# Whether something waits that no event will release, only a sync of the device.
cdef bint waiting_blindly(Pool *pool) noexcept nogil
# `waiting_sync` if anything waits: before the pool goes.
cdef void waiting_end(Pool *pool) noexcept nogil

# Destroys a pool that nobody speaks for any more, or leaves it to `pools_retry`, where blocks are
# live, a stream is at work or ACL has an arena's address.
cdef void pool_drop(Pool *pool) noexcept nogil
# Destroys the pools that were left so and can go by now.
cdef void pools_retry() noexcept nogil

# From here on, allocations on the arena's stream are private to a capture, until the end.
cdef Arena *capture_begin(Arena *arena) noexcept nogil
cdef void capture_end(Arena *arena) noexcept nogil


cdef inline Arena *capture_of(Arena *arena) noexcept nogil:
    """The arena of the capture under way, or NULL; with no lock."""
    return <Arena *> pointer_read(<void **> &arena.capture)


# `aclmdlRICaptureGetInfo`; a chip without graphs is asked once in the process, and says no.
cdef aclError capture_ask(
    aclrtStream stream, aclmdlRICaptureStatus *state, aclmdlRI *graph) noexcept nogil
# Whether the stream is being captured, asked of the driver; begins and ends captures accordingly.
# False: it is captured, and there is no arena for that.
cdef bint capture_look(Arena *arena) noexcept nogil
# The graph is gone: its blocks are ordinary memory again.  How many pages went to the source.
cdef uint64_t capture_release(Arena *capture) noexcept nogil
# The capture's arena that a block belongs to, or NULL.
cdef Arena *capture_owner(Arena *arena, Block *block) noexcept nogil
