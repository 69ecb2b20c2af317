"""Make, find, trim and destroy pools and arenas.  See `_arena.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from acl.core.types cimport Arena, Driver, Pool, PoolOptions
from acl.bind.generated._libacl cimport aclError, aclrtContext, aclrtStream

cdef void driver_bind(Driver *driver) noexcept nogil    # fills in the functions of the ACL library

# Makes a pool without arenas.  `driver` NULL: the ACL library.  NULL: no host memory was left.
cdef Pool *pool_create(const PoolOptions *options, const Driver *driver) noexcept nogil
# Gives all memory back and frees the pool.  False, and the pool is kept, if blocks are live, if
# pages could not be given back, or if ACL has the address of an arena.
cdef bint pool_destroy(Pool *pool) noexcept nogil
cdef uint64_t pool_live_bytes(Pool *pool) noexcept nogil
# Marks a pool that could not be destroyed and whose Python Pool was deleted.
cdef void pool_orphan(Pool *pool) noexcept nogil
# Finds up to `most` pools that `pool_orphan` has marked and that have no live blocks now.  Returns
# their number.  The caller owns them from then on.
cdef uint32_t pools_dropped(Pool **found, uint32_t most) noexcept nogil
# Destroys a pool whose owner has dropped it, and pools that earlier calls could not destroy.  A
# pool is left to `pools_retry` if blocks are live, if memory cannot be given back, or if ACL has
# the address of an arena.
cdef void pool_drop(Pool *pool) noexcept nogil
# Destroys the pools that earlier calls could not destroy, if it is possible now.
cdef void pools_retry() noexcept nogil
# Finds up to `most` pools of a device that no Python Pool owns.  Returns the number of all of them.
# No pool is destroyed until `pools_release`.
cdef uint32_t pools_orphaned(int device, Pool **found, uint32_t most) noexcept nogil
cdef void pools_release() noexcept nogil

# Return the arena of a stream.  If there is none, `arena_find` returns NULL, and the others make
# one.  A NULL stream is the default stream of the current context.  `known` is the context of the
# stream, or NULL if the caller does not know it.
cdef Arena *arena_find(Pool *pool, aclrtStream stream, uint32_t role) noexcept nogil
cdef Arena *pool_arena(Pool *pool, aclrtStream stream, uint32_t role) noexcept nogil
cdef Arena *pool_arena_in(Pool *pool, aclrtStream stream, uint32_t role,
                          aclrtContext known) noexcept nogil
# Lets the next stream without an arena take this one with its pages.  No work may have used it.
cdef void arena_offer(Arena *arena) noexcept nogil
cdef Arena *arena_add(Pool *pool, aclrtStream stream, uint32_t role,
                      aclrtContext context) noexcept nogil
# Called when a stream is about to be destroyed.  Afterwards no thread finds the stream's arena or
# makes a driver call with the stream's handle.
cdef void stream_end(aclrtStream stream) noexcept nogil
# Returns the error of a failed task of the stream that a wait of a pool has seen, and forgets it; 0
# if there is none.
cdef aclError stream_fault_take(aclrtStream stream) noexcept nogil

# Notes that this arena, and no other one, is registered with ACL for its stream from now on.
cdef void arena_serves(Arena *arena) noexcept nogil
# Returns the pool that has an arena at an address, or NULL.  The address may be any value.
cdef Pool *pool_with(const void *arena) noexcept nogil

# True if the calling thread has no open scope: it may own an arena that is ARENA_TAGGED.  `_core`
# sets it when it is imported.
cdef int (*on_own)() noexcept nogil
# Sets and clears bits of `arena.mode`.
cdef void arena_set_mode(Arena *arena, uint32_t set, uint32_t clear) noexcept nogil
