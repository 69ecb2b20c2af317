"""Uses of memory that a stream's own order does not cover.  See `_order.pyx`."""

from libc.stdint cimport uint64_t

from acl.core.types cimport Arena, Block, Pool
from acl.bind.generated._libacl cimport (
    aclError, aclmdlRI, aclmdlRICaptureStatus, aclrtContext, aclrtStream,
)

# Records that `stream` uses a live block too: the block's free will wait for the work that is then
# queued on `stream`.  Returns False if `block` is not a live block or if there is no host memory.
# `context` is the context of `stream`, or NULL if the caller does not know the context.
cdef bint block_share(Arena *arena, Block *block, aclrtStream stream) noexcept nogil
cdef bint block_share_in(Arena *arena, Block *block, aclrtStream stream,
                         aclrtContext context) noexcept nogil

# Defers the free of a block that is on no list and not counted as live.  The block is WAITING until
# the work of the other streams that use it is complete and, if a model is being unloaded, until all
# work of the context is complete.  Called with the lock held; unlocks it during driver calls.
cdef void block_park(Arena *arena, Block *block) noexcept nogil

# Called without locks: frees the WAITING blocks whose work is complete.  Returns their number.
cdef uint64_t waiting_poll(Arena *arena) noexcept nogil
# Does as `waiting_poll`, but stops after GLANCED_MOST busy streams; the next call continues there.
cdef uint64_t waiting_glance(Arena *arena) noexcept nogil
# Waits for all contexts that the arena's WAITING blocks wait for; then does as `waiting_poll`.
cdef uint64_t waiting_wait(Arena *arena) noexcept nogil
# Synchronises the device, then frees the WAITING blocks whose work is complete.  With `drained`,
# empties a framework's task queue first; without it, blocks of a framework's arenas stay WAITING.
# Returns False if a wait failed.
cdef bint waiting_sync(Pool *pool, bint drained) noexcept nogil
# True if some WAITING block, not counting those of a framework's arenas, can be freed only after a
# wait for a context: no event was recorded for it, or the last query of its event failed.
cdef bint waiting_blindly(Pool *pool) noexcept nogil
# Called before a pool is destroyed: calls `waiting_sync` if any block is WAITING.
cdef void waiting_end(Pool *pool) noexcept nogil

# Does as `aclmdlRICaptureGetInfo`.  If the chip has no graphs, ACL is called only once in the
# process, and the answer is always "not captured".
cdef aclError capture_ask(
    aclrtStream stream, aclmdlRICaptureStatus *state, aclmdlRI *graph) noexcept nogil
# Returns the arena to which the block belongs, if it is the arena of a capture of `arena`'s stream;
# NULL otherwise.
cdef Arena *capture_owner(Arena *arena, Block *block) noexcept nogil
