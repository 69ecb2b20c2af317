"""The pool for C and C++: the functions behind `aclpool.h`, in a capsule.

There is one static table.  It is filled when the module is imported, and all extension modules of
the process share it.  The types in the header are opaque.  Each function here casts them to the
core's structs and forwards the call, so the layout of the structs may change.  Only the first two
fields of a block must keep their positions; that is checked below.

`api_pool_of` and `api_buffer_of` need the GIL and may raise.  The other functions may be called
from any thread, with or without the GIL, and use no Python object.  Pools, tags, captures and hooks
can be made in Python only.
"""

from cpython.pycapsule cimport PyCapsule_New
from cpython.ref cimport Py_INCREF
from libc.string cimport memcpy, memset

from acl.core._arena cimport arena_find, pool_arena
from acl.core._trim cimport pool_trim
from acl.core._tally cimport arena_stats
from acl.runtime._buffer cimport Buffer, buffer_wrap
from acl.core._check cimport pool_check
from acl._core cimport arena_alloc, arena_free, arena_try
from acl.core._bins cimport size_possible
from acl.core.types cimport Arena, ArenaStats, Block, Pool as CorePool, ROLE_STREAM, ROLE_USER
from acl.bind.generated._libacl cimport ACL_ERROR_INVALID_PARAM, ACL_ERROR_RT_MEMORY_ALLOCATION
from acl.bind.generated._libacl cimport ACL_SUCCESS
from acl.core._driver cimport context_lend
from acl.core._lock cimport count_read
from acl.core._order cimport block_share, waiting_blindly, waiting_poll, waiting_sync
from acl.pool._pool cimport Pool
from acl.pool._registry cimport arena_register, arena_unregister
from acl.runtime._stream cimport Stream

__all__ = ["pool_capi"]

cdef Block layout
if (<char *> &layout.addr - <char *> &layout != 0
        or <char *> &layout.size - <char *> &layout != sizeof(void *)):
    raise ImportError("a block does not begin with its address and its size, as aclpool.h promises")


cdef inline CorePool *core_of(const AclPool *pool) noexcept nogil:
    return <CorePool *> pool


# --- with the GIL -------------------------------------------------------------------------------

cdef AclPool *api_pool_of(void *object) except NULL:
    if not isinstance(<object> object, Pool):
        kind = type(<object> object).__name__
        raise TypeError(f"the object must be an acl.Pool, not {kind}")
    (<Pool> object).open_check()
    return <AclPool *> (<Pool> object).core


cdef void buffer_back(void *arena, void *block) noexcept nogil:
    arena_free(<Arena *> arena, <Block *> block)


cdef void *api_buffer_of(void *object, AclPoolArena *arena, AclPoolBlock *block,
                         size_t size) except NULL:
    cdef Buffer made
    cdef Arena *part = <Arena *> arena
    if not isinstance(<object> object, Pool):
        kind = type(<object> object).__name__
        raise TypeError(f"pool must be an acl.Pool, not {kind}")
    if part is NULL or block is NULL:
        raise ValueError("arena and block must not be NULL")
    if part.pool is not (<Pool> object).core:
        raise ValueError("the block is not of this pool")
    if size > block.bytes:
        raise ValueError(f"size must be at most the block's {block.bytes} bytes, not {size}")
    stream = None if part.stream is NULL else Stream.from_handle(<size_t> part.stream)
    made = buffer_wrap(block.address, size, buffer_back, part, block, <object> object, stream,
                       (<Pool> object).device)
    Py_INCREF(made)
    return <void *> made


# --- what a pool is -----------------------------------------------------------------------------

cdef int32_t api_device(const AclPool *pool) noexcept nogil:
    return core_of(pool).options.device


cdef size_t api_padded(const AclPool *pool, size_t size) noexcept nogil:
    if not size_possible(size):
        return size  # `alloc` refuses it; adding the padding could overflow
    return (size + 31) // 32 * 32 + core_of(pool).options.padding


cdef AclPoolArena *api_arena(AclPool *pool, aclrtStream stream) noexcept nogil:
    cdef CorePool *core = core_of(pool)
    cdef Arena *arena = pool_arena(
        core, stream, ROLE_USER if core.options.early_frees else ROLE_STREAM)
    if arena != NULL:
        arena.told = True
    return <AclPoolArena *> arena


cdef aclError api_stream_register(AclPool *pool, aclrtStream stream) noexcept nogil:
    cdef Arena *arena
    if stream == NULL:
        return ACL_ERROR_INVALID_PARAM
    arena = pool_arena(core_of(pool), stream, ROLE_STREAM)
    if arena == NULL:
        return ACL_ERROR_RT_MEMORY_ALLOCATION
    return arena_register(arena, stream)


cdef aclError api_stream_unregister(AclPool *pool, aclrtStream stream) noexcept nogil:
    cdef Arena *arena = arena_find(core_of(pool), stream, ROLE_STREAM)
    return ACL_SUCCESS if arena == NULL else arena_unregister(arena, stream)


# --- blocks -------------------------------------------------------------------------------------

cdef AclPoolBlock *api_alloc(AclPoolArena *arena, size_t size) noexcept nogil:
    if arena == NULL:
        return NULL
    return <AclPoolBlock *> arena_alloc(<Arena *> arena, size, 0)


cdef AclPoolBlock *api_try_alloc(AclPoolArena *arena, size_t size) noexcept nogil:
    if arena == NULL:
        return NULL
    return <AclPoolBlock *> arena_try(<Arena *> arena, size, 0)


cdef int api_free(AclPoolArena *arena, AclPoolBlock *block) noexcept nogil:
    return arena != NULL and arena_free(<Arena *> arena, <Block *> block)


cdef int api_record_stream(AclPoolArena *arena, AclPoolBlock *block,
                           aclrtStream stream) noexcept nogil:
    return arena != NULL and block_share(<Arena *> arena, <Block *> block, stream)


# --- trim, statistics, check --------------------------------------------------------------------

cdef size_t api_trim(AclPool *pool, size_t to, uint32_t flags) noexcept nogil:
    cdef CorePool *core = core_of(pool)
    cdef uint32_t index
    cdef bint wait = flags & ACLPOOL_TRIM_WAIT != 0
    context_lend(core)
    for index in range(count_read(&core.arena_count)):
        if core.arenas[index].order.waiting != NULL:
            waiting_poll(core.arenas[index])
    if wait and waiting_blindly(core):
        waiting_sync(core, False)
    return pool_trim(core, to, wait, flags & ACLPOOL_TRIM_DRAINED != 0)


cdef void stats_add(AclPoolStats *stats, Arena *arena) noexcept nogil:
    cdef ArenaStats one
    arena_stats(arena, &one)
    stats.streams += 1
    stats.allocated += one.allocated
    stats.allocated_peak += one.allocated_peak
    stats.requested += one.requested
    stats.requested_peak += one.requested_peak
    stats.live_blocks += one.live_blocks
    stats.allocations += (one.counters.hits + one.counters.fits + one.counters.recalls
                          + one.counters.slow - one.counters.failures)
    stats.frees += one.frees
    stats.slow += one.counters.slow
    stats.failures += one.counters.failures


cdef void api_stats(AclPool *pool, AclPoolStats *stats) noexcept nogil:
    cdef CorePool *core = core_of(pool)
    cdef AclPoolStats all
    cdef uint32_t index
    memset(&all, 0, sizeof(all))
    for index in range(count_read(&core.arena_count)):
        stats_add(&all, core.arenas[index])
    all.reserved = core.source.reserved
    all.reserved_peak = core.source.reserved_peak
    all.spare = core.source.spare_bytes
    all.limit = core.options.limit
    all.size = stats.size if stats.size < sizeof(all) else sizeof(all)
    memcpy(stats, &all, all.size)


cdef uint32_t api_check(AclPool *pool) noexcept nogil:
    return pool_check(core_of(pool))


table.size = sizeof(AclPoolApi)
table.version = ACLPOOL_ABI_VERSION
table.pool_of = api_pool_of
table.buffer_of = api_buffer_of
table.device = api_device
table.padded = api_padded
table.arena = api_arena
table.stream_register = api_stream_register
table.stream_unregister = api_stream_unregister
table.alloc = api_alloc
table.try_alloc = api_try_alloc
table.free = api_free
table.record_stream = api_record_stream
table.trim = api_trim
table.stats = api_stats
table.check = api_check

#: The capsule that `aclpool_import()` of `aclpool.h` reads.
pool_capi = PyCapsule_New(&table, ACLPOOL_CAPSULE, NULL)
