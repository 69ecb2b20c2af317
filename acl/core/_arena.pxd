"""Make, find and destroy pools and arenas, and note the ends of streams.  See `_arena.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from acl.core.types cimport Arena, Driver, Pool, PoolOptions
from acl.bind.generated._libacl cimport aclError, aclrtContext, aclrtStream

cdef void driver_bind(Driver *driver) noexcept nogil    # fills in the functions of the ACL library

# Makes a pool without arenas.  If `driver` is NULL, the pool calls the ACL library.  Returns NULL
# if there is no host memory.
cdef Pool *pool_create(const PoolOptions *options, const Driver *driver) noexcept nogil
# Gives all memory back and frees the pool.  Returns False and keeps the pool if blocks are live, if
# pages could not be given back, or if an arena is registered with ACL.
cdef bint pool_destroy(Pool *pool) noexcept nogil
cdef uint64_t pool_live_bytes(Pool *pool) noexcept nogil
# Marks a pool whose Python Pool was deleted while the pool could not be destroyed.
cdef void pool_orphan(Pool *pool) noexcept nogil
# Finds up to `most` pools that `pool_orphan` has marked and that have no live blocks now.  Returns
# their number.  From then on the caller owns these pools.
cdef uint32_t pools_dropped(Pool **found, uint32_t most) noexcept nogil
# Destroys a pool whose owner has dropped it, and pools that earlier calls could not destroy.  A
# pool is left to `pools_retry` if `pool_destroy` returns False for it.
cdef void pool_drop(Pool *pool) noexcept nogil
# Tries again to destroy the pools that earlier calls could not destroy.
cdef void pools_retry() noexcept nogil
# Finds up to `most` pools of a device that no Python Pool owns.  Returns the number of all such
# pools.  None of them is destroyed until `pools_release`.
cdef uint32_t pools_orphaned(int device, Pool **found, uint32_t most) noexcept nogil
cdef void pools_release() noexcept nogil

# Return the arena that serves a stream in a role.  If there is none, `arena_find` returns NULL, and
# the other two functions make one, or return NULL if there is no host memory.  A NULL stream is the
# default stream of the current context, or with ROLE_FRAMEWORK of the pool's context.  `known` is
# the context of the stream, or NULL if the caller does not know it.
cdef Arena *arena_find(Pool *pool, aclrtStream stream, uint32_t role) noexcept nogil
cdef Arena *pool_arena(Pool *pool, aclrtStream stream, uint32_t role) noexcept nogil
cdef Arena *pool_arena_in(Pool *pool, aclrtStream stream, uint32_t role,
                          aclrtContext known) noexcept nogil
# Offers this arena with its pages to the next stream that needs a new arena.  The caller ensures
# that no work has used the arena.
cdef void arena_offer(Arena *arena) noexcept nogil
# Makes an arena and adds it to the pool.  Returns the arena, or the one that another thread has
# added for the stream meanwhile.  NULL: there is no host memory, or the pool has MAX_ARENAS arenas.
cdef Arena *arena_add(Pool *pool, aclrtStream stream, uint32_t role,
                      aclrtContext context) noexcept nogil
# Called when a stream is about to be destroyed.  Afterwards no thread finds the stream's arena or
# passes the stream's handle to the driver.
cdef void stream_end(aclrtStream stream) noexcept nogil
# Returns the error of a failed task of the stream that a wait of a pool has seen, or 0.  Each error
# is returned only once.
cdef aclError stream_fault_take(aclrtStream stream) noexcept nogil

# Notes that this arena is registered with ACL for its stream, and that no other arena is registered
# for this stream.
cdef void arena_serves(Arena *arena) noexcept nogil
# Returns the pool that has an arena at this address, or NULL.  The address may be any value.
cdef Pool *pool_with(const void *arena) noexcept nogil

# Returns true if the calling thread has no open scope, so that it may own the lock of an arena with
# ARENA_TAGGED.  `_core` sets this function when it is imported.
cdef int (*on_own)() noexcept nogil
# Sets and clears bits of `arena.mode`.
cdef void arena_set_mode(Arena *arena, uint32_t set, uint32_t clear) noexcept nogil
