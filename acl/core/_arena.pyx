"""Pools and arenas: their making, their end, and what is done to them as a whole.

Arenas are only ever added to a pool, so its list is read without a lock.  An arena outlives the
registration, its stream, and the interpreter: whoever holds one of its blocks may free it at any
time.  A pool goes only when no block is live; one that is dropped earlier is tried again when the
next one is made, trimmed or dropped.

After a fork the child must not touch the device: every arena refuses there (ARENA_FORKED).
"""

from libc.stdlib cimport calloc, free
from libc.string cimport memset

from acl cimport _libacl
from acl.core._asleep cimport naps_reclaim
from acl.core._bins cimport bins_start, slab_close, slab_open
from acl._core cimport (
    ARENA_CLOSED, ARENA_FORKED, ARENA_RECORDED, ARENA_TAGGED, ARENA_WATCHED, Block,
    BLOCK_CACHED, BLOCK_FREE, BLOCK_HOLE, BLOCK_LIVE, BLOCK_WAITING, MAX_ARENAS, no_scopes,
    Range, ROLE_CAPTURE, ROLE_FRAMEWORK, ROLE_STREAM, ROLE_USER,
)
from acl.core._driver cimport (
    context_enter, context_here, context_leave, events_destroy, page_unmap, range_unreserve,
    source_shrink,
)
from acl.core._events cimport EVENT_TRIM
from acl._libacl cimport (
    ACL_MEM_ALLOCATION_TYPE_PINNED, ACL_MEM_HANDLE_TYPE_NONE, ACL_MEM_LOCATION_TYPE_DEVICE,
    ACL_RT_STREAM_STATE_DESTROY_PRE, ACL_STREAM_STATUS_COMPLETE, ACL_STREAM_STATUS_NOT_READY,
    ACL_SUCCESS, aclrtContext, aclrtStreamState, aclrtStreamStatus, libacl_open,
)
from acl.core._lock cimport (
    SpinLock, count_publish, count_read, lock_drop, lock_enter, lock_leave, lock_start, lock_take,
    spin_enter, spin_leave, stale_read,
)
from acl.core._pages cimport pages_donate
from acl.core._place cimport range_free
from acl.core._record cimport record_pool, record_trims, ring_drop, ring_ready
from acl.core._tally cimport arena_hits, peak_reset

cdef extern from "<pthread.h>" nogil:
    int pthread_atfork(void (*prepare)() noexcept nogil, void (*parent)() noexcept nogil,
                       void (*child)() noexcept nogil)

cdef extern from "<stdlib.h>" nogil:
    void *aligned_alloc(size_t alignment, size_t size)

cdef SpinLock pools_lock
cdef Pool *pools = NULL
cdef uint32_t readers = 0       # who looks at orphans: none of them goes meanwhile
cdef bint fork_watched = False
cdef bint streams_watched = False


# --- fork ---------------------------------------------------------------------------------------

cdef void on_fork_child() noexcept nogil:
    """The only thread of the child: other threads may have held any lock."""
    cdef Pool *pool = pools
    cdef uint32_t index
    pools_lock.word = 0
    while pool != NULL:
        pool.lock.word = 0
        pool.source.lock.word = 0
        for index in range(count_read(&pool.arena_count)):
            lock_start(&pool.arenas[index].lock)
            pool.arenas[index].lock.pinned = 1
            pool.arenas[index].mode |= ARENA_FORKED
        pool = pool.next


cdef void pools_add(Pool *pool) noexcept nogil:
    global pools, fork_watched
    spin_enter(&pools_lock)
    pool.next = pools
    pools = pool
    if not fork_watched:
        fork_watched = pthread_atfork(NULL, NULL, on_fork_child) == 0
    spin_leave(&pools_lock)


cdef void pools_remove(Pool *pool) noexcept nogil:
    global pools
    cdef Pool **link = &pools
    spin_enter(&pools_lock)
    while link[0] != NULL and link[0] != pool:
        link = &link[0].next
    if link[0] != NULL:
        link[0] = pool.next
    spin_leave(&pools_lock)


# --- streams that end ---------------------------------------------------------------------------

cdef void on_stream_state(aclrtStream stream, aclrtStreamState state, void *args) noexcept nogil:
    """Before a stream is destroyed: its arena must not be found, or waited for, by it again.

    ACL's registry keeps its entry, and a new stream at the same address would inherit it.
    """
    cdef Pool *pool
    cdef uint32_t index
    cdef bint registered = False
    cdef aclrtStreamStatus status = ACL_STREAM_STATUS_NOT_READY
    cdef bint settled
    if state != ACL_RT_STREAM_STATE_DESTROY_PRE:
        return
    settled = (_libacl.aclrtStreamQuery(stream, &status) == ACL_SUCCESS
               and status == ACL_STREAM_STATUS_COMPLETE)
    spin_enter(&pools_lock)
    pool = pools
    while pool != NULL:
        for index in range(count_read(&pool.arena_count)):
            if pool.arenas[index].stream == stream and not pool.arenas[index].by_device:
                pool.arenas[index].settled = settled
                pool.arenas[index].by_device = True
                registered = registered or pool.arenas[index].registered
                pool.arenas[index].registered = False
        pool = pool.next
    spin_leave(&pools_lock)
    if registered:
        _libacl.aclrtAllocatorUnregister(stream)


cdef void streams_watch() noexcept nogil:
    """Once in a process; a library that cannot tell leaves it to `pool.unregister`."""
    global streams_watched
    spin_enter(&pools_lock)
    if streams_watched:
        spin_leave(&pools_lock)
        return
    streams_watched = True
    spin_leave(&pools_lock)
    if _libacl.libacl_has(b"aclrtRegStreamStateCallback"):
        _libacl.aclrtRegStreamStateCallback(b"aclpool", on_stream_state, NULL)


# --- making -------------------------------------------------------------------------------------

cdef void driver_bind(Driver *driver) noexcept nogil:
    libacl_open()
    driver.reserve = _libacl.aclrtReserveMemAddress
    driver.release = _libacl.aclrtReleaseMemAddress
    driver.physical = _libacl.aclrtMallocPhysical
    driver.free_physical = _libacl.aclrtFreePhysical
    driver.map = _libacl.aclrtMapMem
    driver.unmap = _libacl.aclrtUnmapMem
    driver.malloc = _libacl.aclrtMallocAlign32      # no padding: a segment stays whole pages
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
    driver.context_get = _libacl.aclrtGetCurrentContext
    driver.context_set = _libacl.aclrtSetCurrentContext


cdef Pool *pool_create(const PoolOptions *options, const Driver *driver) noexcept nogil:
    cdef Pool *pool = <Pool *> calloc(1, sizeof(Pool))
    if pool == NULL:
        return NULL
    pool.options = options[0]
    pool.no_virtual = options.segments
    if driver == NULL:
        driver_bind(&pool.source.driver)
        streams_watch()
        pool.orphan = True                      # until a Python object speaks for it
    else:
        pool.source.driver = driver[0]
    pool.source.prop.handleType = ACL_MEM_HANDLE_TYPE_NONE
    pool.source.prop.allocationType = ACL_MEM_ALLOCATION_TYPE_PINNED
    pool.source.prop.memAttr = options.mem_attr
    pool.source.prop.location.type = ACL_MEM_LOCATION_TYPE_DEVICE
    pool.source.prop.location.id = <uint32_t> options.device        # a device number: not negative
    pool.context = context_here(pool)
    pools_add(pool)
    return pool


cdef Arena *arena_make(Pool *pool, aclrtStream stream, uint32_t role) noexcept nogil:
    cdef size_t bytes = (sizeof(Arena) + 63) // 64 * 64
    cdef Arena *arena = <Arena *> aligned_alloc(64, bytes)
    if arena == NULL:
        return NULL
    memset(arena, 0, bytes)
    if not slab_open(arena):
        free(arena)
        return NULL
    lock_start(&arena.lock)
    bins_start(&arena.bins)
    arena.pool = pool
    arena.stream = stream
    arena.context = context_here(pool)
    arena.role = role
    arena.donates = not (
        pool.options.early_frees or role == ROLE_CAPTURE or role == ROLE_FRAMEWORK)
    if pool.options.watches and (role == ROLE_STREAM or role == ROLE_USER):
        arena.mode = ARENA_WATCHED
    if pool.tagging:
        arena.mode |= ARENA_TAGGED
    owner_rules(arena)
    return arena


cdef Arena *arena_find(Pool *pool, aclrtStream stream, uint32_t role) noexcept nogil:
    cdef uint32_t index
    cdef Arena *arena
    for index in range(count_read(&pool.arena_count)):
        arena = pool.arenas[index]
        if arena.stream == stream and arena.role == role and not arena.by_device:
            return arena
    return NULL


cdef void arena_name_like(Pool *pool, Arena *arena) noexcept nogil:
    """A new arena's default tag is that of its stream's other arenas."""
    cdef uint32_t index
    cdef Arena *other
    for index in range(count_read(&pool.arena_count)):
        other = pool.arenas[index]
        if other.stream == arena.stream and not other.by_device and other.default_tag != 0:
            arena.default_tag = other.default_tag
            arena.named = other.named


cdef Arena *arena_add(Pool *pool, aclrtStream stream, uint32_t role) noexcept nogil:
    cdef Arena *arena = arena_make(pool, stream, role)
    cdef Arena *other = NULL
    if arena == NULL:
        return NULL
    spin_enter(&pool.lock)
    if role != ROLE_CAPTURE:
        other = arena_find(pool, stream, role)
    arena_name_like(pool, arena)
    if other == NULL and pool.arena_count < MAX_ARENAS:
        if pool.notes.users > 0:
            arena.mode |= ARENA_RECORDED
            arena.lock.pinned = 1
        pool.arenas[pool.arena_count] = arena
        count_publish(&pool.arena_count, pool.arena_count + 1)
        other = arena
    spin_leave(&pool.lock)
    if other != arena:
        slab_close(arena)
        free(arena)
    elif role != ROLE_CAPTURE:                  # a captured graph allocates little
        ring_ready(arena, stale_read(&pool.notes.capacity), count_read(&pool.arena_count))
    return other


cdef Arena *arena_inherit(Pool *pool, aclrtStream stream, uint32_t role) noexcept nogil:
    """The arena of a stream that is gone, with all its work and all its blocks: for a new stream.

    Not for the default stream, which is of whatever context is current: `take_slow` looks at that.
    """
    cdef uint32_t index
    cdef Arena *arena
    cdef Arena *found = NULL
    cdef aclrtContext context = context_here(pool)
    spin_enter(&pool.lock)
    for index in range(count_read(&pool.arena_count)):
        arena = pool.arenas[index]
        if (arena.by_device and arena.settled and arena.role == role and arena.live == 0
                and arena.climbing == 0 and arena.waiting == NULL and arena.parked == NULL
                and arena.polling == 0 and not arena_owns(pool, arena)):
            arena.stream = stream
            arena.context = context
            arena.default_tag = 0
            arena.named = False
            arena.settled = False
            arena.by_device = False
            found = arena
            break
    spin_leave(&pool.lock)
    return found


cdef bint arena_owns(Pool *pool, Arena *arena) noexcept nogil:
    """Whether a captured graph's arena belongs to this one."""
    cdef uint32_t index
    for index in range(count_read(&pool.arena_count)):
        if pool.arenas[index].owner == arena:
            return True
    return False


cdef Arena *pool_arena(Pool *pool, aclrtStream stream, uint32_t role) noexcept nogil:
    cdef Arena *arena = arena_find(pool, stream, role)
    if arena == NULL and role != ROLE_CAPTURE and stream != NULL:
        arena = arena_inherit(pool, stream, role)
    return arena if arena != NULL else arena_add(pool, stream, role)


cdef void owner_rules(Arena *arena) noexcept nogil:
    """Under the lock: an arena with a mode has no owner, so that every caller looks at the mode.

    A tagged one has, where the thread has no scope open: it opens none without stepping down.
    """
    arena.lock.pinned = arena.mode & ~<uint32_t> ARENA_TAGGED != 0       # an enum
    if arena.mode & ARENA_TAGGED:
        arena.lock.may_own = no_scopes


cdef void arena_set_mode(Arena *arena, uint32_t set, uint32_t clear) noexcept nogil:
    lock_enter(&arena.lock)
    count_publish(&arena.mode, (arena.mode & ~clear) | set)
    owner_rules(arena)
    lock_leave(&arena.lock)


cdef void arena_serves(Arena *arena) noexcept nogil:
    cdef Pool *pool
    cdef uint32_t index
    spin_enter(&pools_lock)
    pool = pools
    while pool != NULL:
        for index in range(count_read(&pool.arena_count)):
            if pool.arenas[index].stream == arena.stream:
                pool.arenas[index].registered = False
        pool = pool.next
    arena.registered = True
    spin_leave(&pools_lock)


cdef Pool *pool_with(const void *arena) noexcept nogil:
    cdef Pool *pool
    cdef Pool *found = NULL
    cdef uint32_t index
    spin_enter(&pools_lock)
    pool = pools
    while pool != NULL and found == NULL:
        for index in range(count_read(&pool.arena_count)):
            if pool.arenas[index] == arena:
                found = pool
        pool = pool.next
    spin_leave(&pools_lock)
    return found


# --- trimming -----------------------------------------------------------------------------------

cdef size_t pool_trim(Pool *pool, size_t to, bint wait, bint drained) noexcept nogil:
    cdef size_t before = stale_read(&pool.source.reserved)
    cdef size_t after = before
    cdef size_t granule = pool.options.granule
    cdef uint32_t index
    cdef Arena *arena
    record_trims(True)
    naps_reclaim(pool)
    source_shrink(pool, to)
    for index in range(count_read(&pool.arena_count)):
        after = stale_read(&pool.source.reserved)
        if after <= to:
            break
        arena = pool.arenas[index]
        if arena.donates or (drained and (arena.role != ROLE_CAPTURE or arena.released)):
            pages_donate(arena, (after - to + granule - 1) // granule, wait)
            source_shrink(pool, to)
    after = stale_read(&pool.source.reserved)
    before = before - after if before > after else 0
    record_trims(False)
    record_pool(pool, EVENT_TRIM, before, 0)
    return before


cdef uint64_t arena_idle_pages(Arena *arena) noexcept nogil:
    """Pages beyond what the arena has needed since the last tick; starts the next tick."""
    cdef size_t granule = arena.pool.options.granule
    cdef uint64_t needed
    lock_take(&arena.lock)
    needed = (arena.live_peak + arena.live_peak // 50 + granule - 1) // granule
    if arena.live_peak > arena.past_peak:
        arena.past_peak = arena.live_peak
    if arena.requested_peak > arena.past_requested_peak:
        arena.past_requested_peak = arena.requested_peak
    arena.live_peak = arena.live
    arena.requested_peak = arena.requested
    needed = arena.pages - needed if arena.pages > needed else 0
    lock_drop(&arena.lock)
    return needed


cdef size_t pool_decay(Pool *pool) noexcept nogil:
    cdef uint32_t index
    cdef uint64_t pages
    cdef size_t freed
    record_trims(True)
    freed = source_shrink(pool, 0)
    for index in range(count_read(&pool.arena_count)):
        pages = arena_idle_pages(pool.arenas[index])
        if pages > 0 and pool.arenas[index].donates and pool.options.steals:
            pages_donate(pool.arenas[index], pages, False)
    freed += source_shrink(pool, 0)
    record_trims(False)
    record_pool(pool, EVENT_TRIM, freed, 0)
    return freed


cdef void pool_reset_peaks(Pool *pool) noexcept nogil:
    cdef uint32_t index
    cdef Arena *arena
    for index in range(count_read(&pool.arena_count)):
        arena = pool.arenas[index]
        lock_take(&arena.lock)
        arena.live_peak = arena.live
        arena.requested_peak = arena.requested
        arena.past_peak = arena.past_requested_peak = arena.alarm = 0
        lock_drop(&arena.lock)
    spin_enter(&pool.source.lock)
    pool.source.reserved_peak = pool.source.reserved
    pool.source.joint_peak = 0
    spin_leave(&pool.source.lock)
    peak_reset(pool)


# --- the end ------------------------------------------------------------------------------------

cdef uint64_t pool_live_bytes(Pool *pool) noexcept nogil:
    cdef uint32_t index
    cdef uint64_t bytes = 0
    for index in range(count_read(&pool.arena_count)):
        bytes += pool.arenas[index].live
    return bytes


cdef void range_clear(Arena *arena, Range *span) noexcept nogil:
    """Unmap the views that the driver refused to unmap before."""
    cdef uint32_t page
    for page in range(span.pages):
        if span.views[page] != NULL:
            page_unmap(arena.pool, span.base + page * arena.pool.options.granule)
            free(span.views[page])


cdef void arena_free_all(Arena *arena) noexcept nogil:
    """Addresses and host memory of an arena whose pages are gone, or are left to the driver."""
    cdef uint32_t index
    cdef Range *span
    for index in range(arena.range_count):
        span = arena.ranges[index]
        if span != NULL:
            if not span.segment:
                range_clear(arena, span)
                range_unreserve(arena.pool, span.base)
            range_free(span)
    slab_close(arena)
    ring_drop(arena)
    free(arena.naps)
    free(arena.guard)
    free(arena)


cdef bint pool_empty(Pool *pool) noexcept nogil:
    """Give all pages back; false, and they stay, if a stream is at work or a block waits."""
    cdef uint32_t index
    for index in range(count_read(&pool.arena_count)):
        arena_set_mode(pool.arenas[index], ARENA_CLOSED, 0)
        pages_donate(pool.arenas[index], ~<uint64_t> 0, True)
    source_shrink(pool, 0)
    return pool.source.reserved == 0 and pool_live_bytes(pool) == 0


cdef bint pool_registered(Pool *pool) noexcept nogil:
    """Whether ACL has the address of an arena, and may call it."""
    cdef uint32_t index
    for index in range(count_read(&pool.arena_count)):
        if pool.arenas[index].registered:
            return True
    return False


cdef bint pool_destroy(Pool *pool) noexcept nogil:
    cdef uint32_t index
    cdef uint32_t count = count_read(&pool.arena_count)
    cdef aclrtContext before = NULL
    cdef bint empty
    if pool_live_bytes(pool) != 0:
        return False
    context_enter(pool, pool.context, &before)  # the last reference may go in any thread
    empty = pool_empty(pool) and not pool_registered(pool)
    if empty:
        pools_remove(pool)
        naps_reclaim(pool)
        for index in range(count):
            arena_free_all(pool.arenas[index])
        events_destroy(pool)
    context_leave(pool, before)
    if empty:
        free(pool)
    return empty


cdef void pool_orphan(Pool *pool) noexcept nogil:
    spin_enter(&pools_lock)
    pool.orphan = pool.dropped = True
    spin_leave(&pools_lock)


cdef bint pool_forked(Pool *pool) noexcept nogil:
    return pool.arena_count > 0 and count_read(&pool.arenas[0].mode) & ARENA_FORKED


cdef uint32_t pools_dropped(Pool **found, uint32_t most) noexcept nogil:
    cdef Pool *pool
    cdef uint32_t count = 0
    spin_enter(&pools_lock)
    pool = pools if readers == 0 else NULL
    while pool != NULL and count < most:
        if pool.dropped and pool_live_bytes(pool) == 0 and not pool_forked(pool):
            pool.orphan = pool.dropped = False
            found[count] = pool
            count += 1
        pool = pool.next
    spin_leave(&pools_lock)
    return count


cdef void pools_release() noexcept nogil:
    global readers
    spin_enter(&pools_lock)
    readers -= 1
    spin_leave(&pools_lock)


cdef uint32_t pools_orphaned(int device, Pool **found, uint32_t most) noexcept nogil:
    global readers
    cdef Pool *pool
    cdef uint32_t count = 0
    spin_enter(&pools_lock)
    readers += 1
    pool = pools
    while pool != NULL:
        if pool.orphan and pool.options.device == device:
            if count < most:
                found[count] = pool
            count += 1
        pool = pool.next
    spin_leave(&pools_lock)
    return count


# --- statistics ---------------------------------------------------------------------------------

cdef void range_stats(Range *span, ArenaStats *stats) noexcept nogil:
    cdef Block *block = span.first
    while block != NULL:
        if block.state == BLOCK_FREE:
            stats.free += block.size
            if block.size > stats.largest_free:
                stats.largest_free = block.size
        elif block.state == BLOCK_CACHED:
            stats.cached += block.size
        elif block.state == BLOCK_WAITING:
            stats.waiting += block.size
        elif block.state == BLOCK_HOLE:
            stats.holes += 1
        elif block.state == BLOCK_LIVE:
            stats.live_blocks += 1
        block = block.next


cdef uint64_t arena_blocks(Arena *arena, Block *copies, uint64_t room) noexcept nogil:
    """How many blocks there are; the first `room` of them are copied, in address order."""
    cdef uint32_t index
    cdef uint64_t count = 0
    cdef Block *block
    lock_take(&arena.lock)
    for index in range(arena.range_count):
        block = arena.ranges[index].first if arena.ranges[index] != NULL else NULL
        while block != NULL:
            if count < room:
                copies[count] = block[0]
            count += 1
            block = block.next
    lock_drop(&arena.lock)
    return count


cdef Block *arena_copy(Arena *arena, uint64_t *count) noexcept nogil:
    cdef uint64_t room = 0
    cdef Block *copies
    while True:
        room += arena_blocks(arena, NULL, 0) + 64
        copies = <Block *> calloc(room, sizeof(Block))
        if copies == NULL:
            return NULL
        count[0] = arena_blocks(arena, copies, room)
        if count[0] <= room:
            return copies
        free(copies)


cdef void arena_stats(Arena *arena, ArenaStats *stats) noexcept nogil:
    cdef uint32_t index
    memset(stats, 0, sizeof(ArenaStats))
    lock_take(&arena.lock)
    stats.allocated = arena.live
    stats.allocated_peak = max(arena.live_peak, arena.past_peak)
    stats.requested = arena.requested
    stats.asleep = arena.asleep
    stats.requested_peak = max(arena.requested_peak, arena.past_requested_peak)
    stats.reserved = arena.pages * arena.pool.options.granule
    stats.counters = arena.counters
    stats.counters.hits = arena_hits(arena)
    for index in range(arena.range_count):
        if arena.ranges[index] != NULL:
            stats.ranges += 1
            range_stats(arena.ranges[index], stats)
    stats.frees = (stats.counters.hits + stats.counters.fits + stats.counters.recalls
                   + stats.counters.slow - stats.counters.failures - arena.climbing
                   - stats.live_blocks)
    lock_drop(&arena.lock)
