"""Pools and arenas: their making, their end, what is done to them as a whole: `_arena.pyx`."""

from libc.stdint cimport uint32_t, uint64_t

from acl._core cimport Arena, ArenaStats, Block, Driver, Pool, PoolOptions
from acl.bind.generated._libacl cimport aclError, aclrtContext, aclrtStream

cdef void driver_bind(Driver *driver) noexcept nogil            # the functions of the ACL library

# A pool without arenas; `driver` NULL stands for the library's.  NULL without host memory.
cdef Pool *pool_create(const PoolOptions *options, const Driver *driver) noexcept nogil
# Gives everything back and frees the pool.  False, and it stays, while blocks are live or ACL has
# the address of an arena.
cdef bint pool_destroy(Pool *pool) noexcept nogil
cdef uint64_t pool_live_bytes(Pool *pool) noexcept nogil
# The pool could not be destroyed, and no Python object speaks for it any more.
cdef void pool_orphan(Pool *pool) noexcept nogil
# Such pools, without live blocks by now, up to `most`: they are the caller's from then on.
cdef uint32_t pools_dropped(Pool **found, uint32_t most) noexcept nogil
# Pools of a device without a Python object; how many there are, of which up to `most` are told.
# They stay until `pools_release`.
cdef uint32_t pools_orphaned(int device, Pool **found, uint32_t most) noexcept nogil
cdef void pools_release() noexcept nogil

# The arena of a stream, NULL if there is none; and one that is made if there is none, `known` is
# where the stream lives, or NULL.  NULL stands for the default stream of the current context.
cdef Arena *arena_find(Pool *pool, aclrtStream stream, uint32_t role) noexcept nogil
cdef Arena *pool_arena(Pool *pool, aclrtStream stream, uint32_t role) noexcept nogil
cdef Arena *pool_arena_in(Pool *pool, aclrtStream stream, uint32_t role,
                          aclrtContext known) noexcept nogil
# Offers an arena that no work has used, with its pages, to the next stream without one.
cdef void arena_offer(Arena *arena) noexcept nogil
cdef Arena *arena_add(Pool *pool, aclrtStream stream, uint32_t role,
                      aclrtContext context) noexcept nogil
# Whether an arena's stream is this one: it has not ended, has this handle and, as the default
# stream, is that of this context.
cdef bint arena_is_of(Arena *arena, aclrtStream stream, aclrtContext context) noexcept nogil
# A stream is about to be destroyed: from here on nobody finds, asks or waits for it by its handle.
cdef void stream_end(aclrtStream stream) noexcept nogil
# The status of a failed task of a stream that a pool's wait was told of, once; 0: there is none.
cdef aclError stream_fault_take(aclrtStream stream) noexcept nogil

# ACL asks this arena for its stream from here on, and no other one of any pool.
cdef void arena_serves(Arena *arena) noexcept nogil
# The pool that has an arena at an address, NULL if none has; any bits will do.
cdef Pool *pool_with(const void *arena) noexcept nogil

# Sets and clears bits of `arena.mode`.
cdef void arena_set_mode(Arena *arena, uint32_t set, uint32_t clear) noexcept nogil

# Gives free pages to the driver until `to` bytes are reserved: those of idle streams, and with
# `wait` those of all; says how many bytes went.  Arenas that do not donate keep theirs, unless
# `drained` says that nothing that was freed early is still to be launched.
cdef size_t pool_trim(Pool *pool, size_t to, bint wait, bint drained) noexcept nogil
# One tick of decay: what no allocation has needed since the last tick goes, from idle streams.
cdef size_t pool_decay(Pool *pool) noexcept nogil
cdef void pool_reset_peaks(Pool *pool) noexcept nogil
