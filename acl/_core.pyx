"""The block allocator and the C callbacks that ACL is given.

The fast path is `on_alloc` / `on_free`: the arena's biased lock, then an exact-size block from the
cache, or a best fit from the bins.  Everything else (another thread, a mode, a miss) goes through
`alloc_slow` and `free_slow`, and a miss on to `_pages`.  `_core.pxd` has the structs and the
invariants.

Thread rule: any function may be called by any thread that ACL calls; no GIL, no Python object, no
exception.  It refuses foreign pointers and blocks that are already free, and counts them.
"""

from libc.stdint cimport int32_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from posix.unistd cimport getpid

from acl cimport _libacl
from acl._bins cimport (
    bin_insert, bin_remove, bins_find, bins_start, block_cut, block_make, block_release, block_trim, cache_flush,
    core_likely, size_units, slab_close, slab_open,
)
from acl._libacl cimport (
    ACL_HBM_MEM_HUGE, ACL_MEM_ALLOCATION_TYPE_PINNED, ACL_MEM_HANDLE_TYPE_NONE,
    ACL_MEM_LOCATION_TYPE_DEVICE, ACL_SUCCESS, libacl_open,
)
from acl._lock cimport (
    lock_drop, lock_enter_biased, lock_leave_biased, lock_start, lock_take, spin_enter, spin_leave,
)
from acl._pages cimport pages_obtain, source_shrink

if sizeof(Block) != 64:
    raise ImportError(f"a block descriptor has {sizeof(Block)} bytes, not 64")
if sizeof(((<Arena *> NULL).cache)) != (CACHE_UNITS + 1) * sizeof(void *):
    raise ImportError("Arena.cache and CACHE_UNITS disagree")


# --- allocation ---------------------------------------------------------------------------------

cdef inline void block_hand_out(Arena *arena, Block *block, size_t size, uint16_t tag) noexcept nogil:
    """Count a block as live (I7, I12)."""
    cdef size_t live = arena.live + block.size
    cdef size_t requested = arena.requested + size
    block.state = BLOCK_LIVE
    block.requested = size
    block.tag = tag
    arena.live = live
    arena.requested = requested
    if live > arena.live_peak:
        arena.live_peak = live
    if requested > arena.requested_peak:
        arena.requested_peak = requested
    if tag != 0:
        arena.tag_live[tag] += block.size
        arena.tag_blocks[tag] += 1


cdef inline uint32_t kind_of(size_t units) noexcept nogil:
    return <uint32_t> RANGE_TINY if units <= TINY_UNITS else <uint32_t> RANGE_LARGE    # enums


cdef inline Block *cache_pop(Arena *arena, size_t units) noexcept nogil:
    cdef Block *block = arena.cache[units]
    if core_likely(block != NULL):
        arena.cache[units] = block.links.next
    return block


cdef inline Block *bins_take(Arena *arena, size_t units) noexcept nogil:
    """The best fit of the bins, cut to size, off all lists; NULL on a miss."""
    cdef Bins *bins = &arena.bins[kind_of(units)]
    cdef Block *block = bins_find(bins, units)
    cdef Block *rest
    if block == NULL:
        return NULL
    bin_remove(bins, block)
    if block.size != units << UNIT_SHIFT:
        rest = block_make(arena)
        if rest == NULL:
            bin_insert(bins, block)
            return NULL
        block_cut(block, rest, units << UNIT_SHIFT)
        bin_insert(bins, rest)                  # its upper neighbour is not free (I2)
    return block


cdef Block *alloc_fit(Arena *arena, size_t size, uint16_t tag) noexcept nogil:
    """The owner's second try, by best fit; it came in by the bias and leaves by it."""
    cdef Block *block = bins_take(arena, size_units(size))
    if core_likely(block != NULL):
        block_hand_out(arena, block, size, tag)
        arena.counters.fits += 1
        lock_leave_biased(&arena.lock)
        return block
    lock_leave_biased(&arena.lock)
    return alloc_slow(arena, size, tag)


cdef inline Block *alloc_fast(Arena *arena, size_t size, uint16_t tag) noexcept nogil:
    """The owner's way.  All calls are in tail position, so that a hit saves no register."""
    cdef size_t units = size_units(size)
    cdef Block *block
    if not core_likely(lock_enter_biased(&arena.lock)):
        return alloc_slow(arena, size, tag)
    if units > CACHE_UNITS:
        return alloc_fit(arena, size, tag)
    block = cache_pop(arena, units)
    if not core_likely(block != NULL):
        return alloc_fit(arena, size, tag)
    block_hand_out(arena, block, size, tag)
    arena.counters.hits += 1
    lock_leave_biased(&arena.lock)
    return block


cdef Block *alloc_locked(Arena *arena, size_t size, uint16_t tag) noexcept nogil:
    """Under the lock: cache, bins, flushed bins, pages."""
    cdef size_t units = size_units(size)
    cdef Block *block
    if units <= CACHE_UNITS:
        block = cache_pop(arena, units)
        if block != NULL:
            block_hand_out(arena, block, size, tag)
            arena.counters.hits += 1
            return block
    block = bins_take(arena, units)
    if block == NULL and cache_flush(arena) != 0:
        block = bins_take(arena, units)
    if block != NULL:
        block_hand_out(arena, block, size, tag)
        arena.counters.fits += 1
        return block
    if size >> MAX_SIZE_BITS != 0:
        arena.counters.failures += 1
        return NULL
    arena.counters.slow += 1
    block = pages_obtain(arena, units << UNIT_SHIFT, kind_of(units))
    if block == NULL or not block_trim(arena, block, units << UNIT_SHIFT):
        if block != NULL:
            block_release(arena, block)
        arena.counters.failures += 1
        return NULL
    block_hand_out(arena, block, size, tag)
    return block


cdef Block *alloc_slow(Arena *arena, size_t size, uint16_t tag) noexcept nogil:
    cdef Block *block = NULL
    lock_take(&arena.lock)
    if arena.mode & (ARENA_FORKED | ARENA_CLOSED) == 0:
        block = alloc_locked(arena, size, tag)
    lock_drop(&arena.lock)
    return block


cdef Block *arena_alloc(Arena *arena, size_t size, uint16_t tag) noexcept nogil:
    return alloc_fast(arena, size, tag)


# --- freeing ------------------------------------------------------------------------------------

cdef inline bint block_is_live(Arena *arena, Block *block) noexcept nogil:
    """Whether a pointer is a descriptor of this arena and handed out; safe for any bit pattern."""
    cdef size_t offset = <size_t> (<char *> block - arena.slab)
    return core_likely(offset < arena.slab_used and offset % sizeof(Block) == 0
                       and block.state == BLOCK_LIVE)


cdef inline void block_count_back(Arena *arena, Block *block) noexcept nogil:
    """Count a live block as free (I7)."""
    arena.live -= block.size
    arena.requested -= block.requested
    arena.counters.frees += 1
    if block.tag != 0:
        arena.tag_live[block.tag] -= block.size
        arena.tag_blocks[block.tag] -= 1


cdef inline void cache_push(Arena *arena, Block *block) noexcept nogil:
    block.state = BLOCK_CACHED
    block.links.next = arena.cache[block.size >> UNIT_SHIFT]
    arena.cache[block.size >> UNIT_SHIFT] = block


cdef bint free_fit(Arena *arena, Block *block) noexcept nogil:
    """The owner frees a block that the cache does not hold; it leaves by the bias."""
    block_count_back(arena, block)
    block_release(arena, block)
    lock_leave_biased(&arena.lock)
    return True


cdef bint free_slow(Arena *arena, Block *block) noexcept nogil:
    cdef bint live
    lock_take(&arena.lock)
    live = block_is_live(arena, block)
    if live:
        block_count_back(arena, block)
        if block.size <= CACHE_UNITS << UNIT_SHIFT:
            cache_push(arena, block)
        else:
            block_release(arena, block)
    else:
        arena.counters.refused += 1
    lock_drop(&arena.lock)
    return live


cdef bint free_odd(Arena *arena, Block *block) noexcept nogil:
    """The owner was given what is not simply live: again, with all questions asked."""
    lock_leave_biased(&arena.lock)
    return free_slow(arena, block)


cdef inline bint free_fast(Arena *arena, Block *block) noexcept nogil:
    """The owner's way, with its calls in tail position."""
    if not core_likely(lock_enter_biased(&arena.lock)):
        return free_slow(arena, block)
    if not core_likely(block_is_live(arena, block) and block.flags == 0):
        return free_odd(arena, block)
    if block.size > CACHE_UNITS << UNIT_SHIFT:
        return free_fit(arena, block)
    block_count_back(arena, block)
    cache_push(arena, block)
    lock_leave_biased(&arena.lock)
    return True


cdef bint arena_free(Arena *arena, Block *block) noexcept nogil:
    return free_fast(arena, block)


# --- what ACL is given --------------------------------------------------------------------------

cdef void *on_alloc(aclrtAllocator allocator, size_t size) noexcept nogil:
    return alloc_fast(<Arena *> allocator, size, 0)


cdef void on_free(aclrtAllocator allocator, aclrtAllocatorBlock block) noexcept nogil:
    free_fast(<Arena *> allocator, <Block *> block)


cdef void *on_alloc_advise(aclrtAllocator allocator, size_t size,
                           aclrtAllocatorAddr addr) noexcept nogil:
    return arena_alloc(<Arena *> allocator, size, 0)


cdef void *on_get_addr(aclrtAllocatorBlock block) noexcept nogil:
    return (<Block *> block).addr


# --- pools and arenas ---------------------------------------------------------------------------

cdef void driver_bind(Driver *driver) noexcept nogil:
    """The functions of the library that `_libacl` finds."""
    libacl_open()
    driver.reserve = _libacl.aclrtReserveMemAddress
    driver.release = _libacl.aclrtReleaseMemAddress
    driver.physical = _libacl.aclrtMallocPhysical
    driver.free_physical = _libacl.aclrtFreePhysical
    driver.map = _libacl.aclrtMapMem
    driver.unmap = _libacl.aclrtUnmapMem
    driver.malloc = _libacl.aclrtMalloc
    driver.free = _libacl.aclrtFree
    driver.sync = _libacl.aclrtSynchronizeStreamWithTimeout
    driver.sync_device = _libacl.aclrtSynchronizeDeviceWithTimeout
    driver.query = _libacl.aclrtStreamQuery
    driver.mem_info = _libacl.aclrtGetMemInfo
    driver.capture_info = _libacl.aclmdlRICaptureGetInfo
    driver.event_create = _libacl.aclrtCreateEventExWithFlag
    driver.event_destroy = _libacl.aclrtDestroyEvent
    driver.event_record = _libacl.aclrtRecordEvent
    driver.event_query = _libacl.aclrtQueryEventStatus


cdef Pool *pool_create(const PoolOptions *options, const Driver *driver) noexcept nogil:
    """A pool without arenas; `driver` NULL means the library's.  NULL without host memory."""
    cdef Pool *pool = <Pool *> calloc(1, sizeof(Pool))
    if pool == NULL:
        return NULL
    pool.options = options[0]
    pool.pid = getpid()
    pool.has_virtual = not options.segments
    if driver == NULL:
        driver_bind(&pool.source.driver)
    else:
        pool.source.driver = driver[0]
    pool.source.prop.handleType = ACL_MEM_HANDLE_TYPE_NONE
    pool.source.prop.allocationType = ACL_MEM_ALLOCATION_TYPE_PINNED
    pool.source.prop.memAttr = ACL_HBM_MEM_HUGE
    pool.source.prop.location.type = ACL_MEM_LOCATION_TYPE_DEVICE
    pool.source.prop.location.id = <uint32_t> options.device        # a device number: not negative
    return pool


cdef Arena *arena_create(Pool *pool, aclrtStream stream) noexcept nogil:
    cdef Arena *arena = <Arena *> calloc(1, sizeof(Arena))
    if arena == NULL:
        return NULL
    if not slab_open(arena):
        free(arena)
        return NULL
    lock_start(&arena.lock)
    bins_start(&arena.bins[<int> RANGE_LARGE])          # enums
    bins_start(&arena.bins[<int> RANGE_TINY])
    arena.pool = pool
    arena.stream = stream
    arena.donates = not pool.options.early_frees
    return arena


cdef Arena *pool_find(Pool *pool, aclrtStream stream) noexcept nogil:
    cdef uint32_t index
    for index in range(pool.arena_count):
        if pool.arenas[index].stream == stream and not pool.arenas[index].streamless:
            return pool.arenas[index]
    return NULL


cdef Arena *pool_arena(Pool *pool, aclrtStream stream) noexcept nogil:
    """The arena of a stream, made at the first call; NULL without host memory or slots."""
    cdef Arena *arena
    spin_enter(&pool.lock)
    arena = pool_find(pool, stream)
    spin_leave(&pool.lock)
    if arena != NULL:
        return arena
    arena = arena_create(pool, stream)
    if arena == NULL:
        return NULL
    spin_enter(&pool.lock)
    if pool.arena_count == MAX_ARENAS:
        spin_leave(&pool.lock)
        slab_close(arena)
        free(arena)
        return NULL
    pool.arenas[pool.arena_count] = arena
    pool.arena_count += 1
    spin_leave(&pool.lock)
    return arena


cdef aclError pool_destroy(Pool *pool) noexcept nogil:
    return ACL_SUCCESS


cdef void arena_stats(Arena *arena, ArenaStats *stats) noexcept nogil:
    stats.allocated = arena.live
    stats.counters = arena.counters
