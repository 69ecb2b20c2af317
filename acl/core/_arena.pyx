"""Make, find and destroy pools and arenas, and note the ends of streams.

Arenas are never removed from a pool, so the pool's list is read without a lock.  An arena is kept
when its registration, its stream and the interpreter have ended, as its blocks may be freed at any
time.  A pool is destroyed only if no block is live.  If its owner drops it earlier, `pools_retry`
destroys the pool later.

After a fork the child must not use the device, so every arena refuses allocations there
(ARENA_FORKED).
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from posix.mman cimport MADV_DONTNEED, madvise
from posix.unistd cimport _SC_PAGESIZE, sysconf

from acl.bind.generated cimport _libacl
from acl.core cimport _ends
from acl.core._ends cimport ends_listen
from acl.core._asleep cimport naps_let_go, naps_reclaim
from acl.core._bins cimport arena_open, arena_return, bins_start, guest_bit, slab_close, slab_open
from acl.core.types cimport (
    ARENA_CLOSED, ARENA_FORKED, ARENA_RECORDED, ARENA_TAGGED, ARENA_WATCHED, ARENA_TABLES,
    FIRST_ARENAS, FOUND_ARENAS, MAX_ARENAS, Range, RANGE_TABLES, ROLE_CAPTURE, ROLE_FRAMEWORK,
    ROLE_STREAM, ROLE_USER, Use, USE_BEDS,
)
from acl.core._driver cimport (
    arena_context, arena_is_of, context_enter, context_here, context_leave, events_destroy,
    faults_seen, page_unmap, prop_fill, range_unreserve, source_shrink, stream_home, stream_wait,
)
from acl.bind.generated._libacl cimport (
    ACL_STREAM_STATUS_COMPLETE, ACL_STREAM_STATUS_NOT_READY, ACL_SUCCESS, aclError,
    aclmdlRI, aclrtContext, aclrtStreamStatus, libacl_open,
)
from acl.core._lock cimport (
    SpinLock, count_publish, count_read, lock_drop, lock_enter, lock_leave, lock_start, lock_take,
    pointer_publish, pointer_read, spin_enter, spin_leave, stale_read,
)
from acl.core._order cimport capture_ask, waiting_end
from acl.core._pages cimport pages_donate
from acl.core._place cimport range_free
from acl.core._record cimport ring_drop, ring_ready
from acl.core.policy cimport UNSETTLED_MOST

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from "<pthread.h>" nogil:
    int pthread_atfork(void (*prepare)() noexcept nogil, void (*parent)() noexcept nogil,
                       void (*child)() noexcept nogil)


# guards `pools`; a thread that holds it may take the lock of an arena, but no other lock
cdef SpinLock pools_lock
cdef Pool *pools = NULL
# number of threads that read pools which no Python Pool owns; until it is 0, such pools are kept
cdef uint32_t readers = 0
cdef bint fork_watched = False


# --- fork ---------------------------------------------------------------------------------------

cdef void on_fork_child() noexcept nogil:
    """In a fork's child: open the locks of all pools and arenas, and refuse all allocations.

    Threads that do not exist in the child may have held the locks.
    """
    cdef Pool *pool = pools
    cdef uint32_t index
    pools_lock.word = 0
    while pool != NULL:
        pool.lock.word = 0
        pool.source.lock.word = 0
        for index in range(count_read(&pool.arena_count)):
            lock_start(&pool.arenas[index].lock)
            pool.arenas[index].lock.pinned = 1
            pool.arenas[index].order.asking = pool.arenas[index].order.marking = 0
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

cdef void uses_end(Arena *arena, Use **link, aclrtStream stream, bint settled) noexcept nogil:
    """Note in a list of Uses that `stream` ends; with `settled`, free the Uses of this stream.

    `settled`: the stream's work is complete.  Add the streams of all other Uses to `order.guests`.
    """
    cdef Use *use
    while link[0] != NULL:
        use = link[0]
        if use.stream == stream and settled:    # the work of this Use is complete
            link[0] = use.next
            free(use)
        else:
            use.ended = use.ended or use.stream == stream
            arena.order.guests |= guest_bit(use.stream)
            link = &use.next


cdef bint arena_end(Arena *arena, aclrtStream stream, bint settled, bint *in_hand) noexcept nogil:
    """Note in an arena that a stream ends.

    Return True if the arena was registered with ACL for the stream.  Set `in_hand` if a thread may
    be in a driver call with the stream.  Threads that want to begin such a call from now on see the
    note and do not call.
    """
    cdef bint registered = False
    cdef uint32_t bed
    lock_take(&arena.lock)
    if arena.stream == stream and not arena.ending.by_device:
        registered = arena.ending.registered
        arena.ending.registered = False
        arena.ending.settled = settled
        count_publish(&arena.ending.by_device, 1)
    if arena.order.guests & guest_bit(stream):
        arena.order.guests = 0
        for bed in range(<uint32_t> USE_BEDS):
            uses_end(arena, &arena.order.uses[bed], stream, settled)
    if arena_in_hand(arena, stream):
        in_hand[0] = True
    lock_drop(&arena.lock)
    return registered


cdef inline bint arena_in_hand(Arena *arena, aclrtStream stream) noexcept nogil:
    return arena.order.marking > 0 or (arena.stream == stream and arena.order.asking > 0)


cdef bint stream_in_hand(aclrtStream stream) noexcept nogil:
    """True if a thread may be in a driver call of some pool with the stream that ends."""
    cdef Pool *pool
    cdef Arena *arena
    cdef uint32_t index
    cdef bint found = False
    spin_enter(&pools_lock)
    pool = pools
    while pool != NULL:
        for index in range(count_read(&pool.arena_count)):
            arena = pool.arenas[index]
            lock_take(&arena.lock)
            found = found or arena_in_hand(arena, stream)
            lock_drop(&arena.lock)
        pool = pool.next
    spin_leave(&pools_lock)
    return found


cdef void stream_end(aclrtStream stream) noexcept nogil:
    cdef Pool *pool
    cdef uint32_t index
    cdef bint registered = False
    cdef bint in_hand = False
    cdef aclrtStreamStatus status = ACL_STREAM_STATUS_NOT_READY
    cdef bint settled = (_libacl.aclrtStreamQuery(stream, &status) == ACL_SUCCESS
                         and status == ACL_STREAM_STATUS_COMPLETE)
    spin_enter(&pools_lock)
    pool = pools
    while pool != NULL:
        for index in range(count_read(&pool.arena_count)):
            if arena_end(pool.arenas[index], stream, settled, &in_hand):
                registered = True
        pool = pool.next
    spin_leave(&pools_lock)
    # If the allocator stayed registered, ACL would use it for a new stream with the same handle.
    if registered:
        _libacl.aclrtAllocatorUnregister(stream)  # status ignored: the stream ends anyway
    while in_hand:
        sched_yield()
        in_hand = stream_in_hand(stream)


_ends.on_end = stream_end


cdef aclError stream_fault_take(aclrtStream stream) noexcept nogil:
    cdef Pool *pool
    cdef aclError found = ACL_SUCCESS
    cdef Arena *arena
    cdef uint32_t index
    if not faults_seen():
        return ACL_SUCCESS
    spin_enter(&pools_lock)
    pool = pools
    while pool != NULL:
        for index in range(count_read(&pool.arena_count)):
            arena = pool.arenas[index]
            if (arena.ending.fault != ACL_SUCCESS
                    and arena_is_of(arena, stream, arena_context(arena))):
                found = arena.ending.fault
                arena.ending.fault = ACL_SUCCESS
        pool = pool.next
    spin_leave(&pools_lock)
    return found


cdef void on_graph_end(void *graph) noexcept nogil:
    """Note that a captured graph is being destroyed.

    ACL calls this during the destruction, so no function of ACL is called here.  Later calls of the
    pool use the memory again.
    """
    cdef Pool *pool
    cdef uint32_t index
    spin_enter(&pools_lock)
    pool = pools
    while pool != NULL:
        for index in range(count_read(&pool.arena_count)):
            if pool.arenas[index].captures.graph == graph:
                pool.arenas[index].captures.graph = NULL
                pool.arenas[index].captures.released = True
        pool = pool.next
    spin_leave(&pools_lock)


cdef aclError graph_watch(aclmdlRI graph) noexcept nogil:
    return _libacl.aclmdlRIDestroyRegisterCallback(graph, on_graph_end, graph)


# --- making -------------------------------------------------------------------------------------

cdef void driver_bind(Driver *driver) noexcept nogil:
    libacl_open()
    driver.reserve = _libacl.aclrtReserveMemAddress
    driver.release = _libacl.aclrtReleaseMemAddress
    driver.physical = _libacl.aclrtMallocPhysical
    driver.free_physical = _libacl.aclrtFreePhysical
    driver.map = _libacl.aclrtMapMem
    driver.unmap = _libacl.aclrtUnmapMem
    # Unlike aclrtMalloc, this adds no padding, which would make a segment longer than whole pages.
    driver.malloc = _libacl.aclrtMallocAlign32
    driver.free = _libacl.aclrtFree
    driver.sync = _libacl.aclrtSynchronizeStreamWithTimeout
    driver.sync_device = _libacl.aclrtSynchronizeDeviceWithTimeout
    driver.query = _libacl.aclrtStreamQuery
    driver.mem_info = _libacl.aclrtGetMemInfo
    driver.capture_info = capture_ask
    if _libacl.libacl_has(b"aclmdlRIDestroyRegisterCallback"):
        driver.graph_watch = graph_watch
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
        # If ACL cannot report the ends of streams, users must call `pool.unregister`.
        ends_listen()
        pool.life.orphan = True                 # until a Python Pool becomes its owner
    else:
        pool.source.driver = driver[0]
    prop_fill(&pool.source.prop, options.device, options.mem_attr)
    pool.context = context_here(pool)
    pools_add(pool)
    return pool


cdef void arena_close(Arena *arena, bint told) noexcept nogil:
    """Close an arena that no other thread uses.

    Give its host memory to the system, except the first page or two, which have the lock and the
    mode.  `told`: ACL or C code may still call with the arena's address.  The mode ARENA_CLOSED
    refuses such calls, and the address is never given to another arena.
    """
    cdef size_t page = <size_t> sysconf(_SC_PAGESIZE)           # safe cast: positive
    cdef size_t low = (<size_t> &arena.cache[0] + page - 1) // page * page
    cdef size_t high = (<size_t> arena + sizeof(Arena) + page - 1) // page * page
    slab_close(arena)
    lock_enter(&arena.lock)
    arena.lock.pinned = 1
    count_publish(&arena.mode, ARENA_CLOSED)
    memset(&arena.slab, 0, <size_t> (<char *> &arena.mode - <char *> &arena.slab))
    arena.told = False
    arena.pool = NULL
    memset(&arena.cache[0], 0, low - <size_t> &arena.cache[0])
    lock_leave(&arena.lock)
    madvise(<void *> low, high - low, MADV_DONTNEED)
    if not told:
        arena_return(arena)


cdef Arena *arena_make(Pool *pool, aclrtStream stream, uint32_t role,
                       aclrtContext context) noexcept nogil:
    cdef Arena *arena = arena_open()
    cdef uint32_t mode = 0
    if arena == NULL:
        return NULL
    if not slab_open(arena):
        arena_close(arena, False)
        return NULL
    bins_start(&arena.bins)
    arena.pool = pool
    arena.stream = stream
    arena.context = context
    arena.role = role
    arena.order.early = role == ROLE_FRAMEWORK or (pool.options.early_frees and role == ROLE_STREAM)
    if pool.options.watches and (role == ROLE_STREAM or role == ROLE_USER):
        mode = ARENA_WATCHED
    if pool.tagging:
        mode |= ARENA_TAGGED
    count_publish(&arena.mode, mode)
    owner_rules(arena)
    return arena


cdef aclrtContext default_home(Pool *pool, aclrtStream stream, uint32_t role) noexcept nogil:
    """Return the context of a default stream; NULL for any other stream.

    A framework always uses the default stream of the pool's context.
    """
    if stream != NULL:
        return NULL
    return pool.context if role == ROLE_FRAMEWORK else stream_home(pool, NULL, NULL)


cdef Arena *arena_find(Pool *pool, aclrtStream stream, uint32_t role) noexcept nogil:
    return arena_find_in(pool, stream, role, default_home(pool, stream, role))


cdef Arena *arena_find_in(Pool *pool, aclrtStream stream, uint32_t role,
                          aclrtContext context) noexcept nogil:
    cdef uint32_t index
    cdef size_t hash = (<size_t> stream >> 4) * <size_t> 0x9E3779B97F4A7C15 >> 40
    cdef void **place = <void **> &pool.found[(hash + role) % FOUND_ARENAS]
    cdef Arena *arena = <Arena *> pointer_read(place)
    if arena != NULL and arena.role == role and arena_is_of(arena, stream, context):
        return arena
    for index in range(count_read(&pool.arena_count)):
        arena = pool.arenas[index]
        if arena.role == role and arena_is_of(arena, stream, context):
            pointer_publish(place, arena)
            return arena
    return NULL


cdef bint arenas_grow(Pool *pool) noexcept nogil:
    """Without locks: make sure that the pool's table has a slot for one more arena.

    False if there is no host memory, or if the table has MAX_ARENAS slots already.
    """
    cdef uint32_t table = 0
    cdef uint32_t room = count_read(&pool.arena_room)
    cdef uint32_t more = max(2 * room, <uint32_t> FIRST_ARENAS)
    cdef Arena **arenas
    if count_read(&pool.arena_count) < room:
        return True
    arenas = <Arena **> calloc(more, sizeof(Arena *)) if more <= MAX_ARENAS else NULL
    if arenas == NULL:
        return False
    spin_enter(&pool.lock)
    if pool.arena_room == room:                 # otherwise another thread has added slots
        while pool.arena_tables[table] != NULL:
            table += 1
        if room > 0:
            memcpy(arenas, pool.arenas, room * sizeof(Arena *))
        pool.arena_tables[table] = arenas
        pointer_publish(<void **> &pool.arenas, arenas)
        count_publish(&pool.arena_room, more)
        arenas = NULL
    spin_leave(&pool.lock)
    free(arenas)
    return True


cdef void arena_name_like(Pool *pool, Arena *arena) noexcept nogil:
    """Give a new arena the default tag that other arenas of its stream have."""
    cdef uint32_t index
    cdef Arena *other
    for index in range(count_read(&pool.arena_count)):
        other = pool.arenas[index]
        if other.default_tag != 0 and arena_is_of(other, arena.stream, arena_context(arena)):
            arena.default_tag = other.default_tag
            arena.named = other.named


cdef Arena *arena_place(Pool *pool, Arena *arena) noexcept nogil:
    """Add an arena to the pool, unless its stream has one with this role already.

    Return the stream's arena, or NULL if the table of arenas is full.  The arena of a capture is
    always added.
    """
    cdef Arena *other = NULL
    spin_enter(&pool.lock)
    if arena.role != ROLE_CAPTURE:
        other = arena_find_in(pool, arena.stream, arena.role, arena_context(arena))
    arena_name_like(pool, arena)
    if other == NULL and pool.arena_count < pool.arena_room:
        if pool.modes != 0:
            arena.mode |= pool.modes
            owner_rules(arena)
        if pool.notes.users > 0:
            arena.mode |= ARENA_RECORDED
            arena.lock.pinned = 1
        pool.arenas[pool.arena_count] = arena
        arena.budgets = pool.budgets
        pool.graphs += arena.role == ROLE_CAPTURE
        count_publish(&pool.arena_count, pool.arena_count + 1)
        other = arena
    spin_leave(&pool.lock)
    return other


cdef Arena *arena_add(Pool *pool, aclrtStream stream, uint32_t role,
                      aclrtContext context) noexcept nogil:
    cdef Arena *arena = arena_make(pool, stream, role, context)
    cdef Arena *other = NULL
    if arena == NULL:
        return NULL
    while other == NULL and arenas_grow(pool):
        other = arena_place(pool, arena)
    if other != arena:
        arena_close(arena, False)
    elif role != ROLE_CAPTURE:  # a capture has few events, so no event ring is made in advance
        ring_ready(arena, stale_read(&pool.notes.capacity), count_read(&pool.arena_count))
    return other


cdef Arena *arena_inherit(Pool *pool, aclrtStream stream, uint32_t role,
                          aclrtContext context) noexcept nogil:
    """Give a new stream a vacant arena (`arena_vacant`), and return that arena; NULL: none.

    If another thread has made an arena for the stream in the meantime, return that one.
    """
    cdef uint32_t index
    cdef Arena *arena
    cdef Arena *found = NULL
    cdef Arena *vacant = NULL
    spin_enter(&pool.lock)
    if pool.graphs > 0:
        owners_mark(pool)
    for index in range(count_read(&pool.arena_count)):
        arena = pool.arenas[index]
        if arena.role == role and arena_is_of(arena, stream, context):
            found = arena                       # another thread has made one in the meantime
            break
        if vacant == NULL and arena_vacant(arena, stream, role):
            vacant = arena
    if found == NULL and vacant != NULL:
        found = vacant
        found.ending.offered = False
        found.stream = stream
        pointer_publish(<void **> &found.context, context)
        found.default_tag = 0
        found.named = False
        found.ending.settled = False
        count_publish(&found.ending.by_device, 0)
    spin_leave(&pool.lock)
    return found


cdef void arena_offer(Arena *arena) noexcept nogil:
    arena.ending.offered = True
    arena.ending.settled = True
    count_publish(&arena.ending.by_device, 1)


cdef bint arenas_settle(Pool *pool) noexcept nogil:
    """If UNSETTLED_MOST streams were destroyed before their work was complete, wait for that work.

    Such work cannot be queried, only waited for.  Return True if all waits succeeded; False if one
    failed, or if there are fewer such streams.
    """
    cdef uint32_t index, count = 0
    cdef Arena *arena
    for index in range(count_read(&pool.arena_count)):
        arena = pool.arenas[index]
        if (count_read(&arena.ending.by_device) and not arena.ending.settled
                and arena.role != ROLE_FRAMEWORK):
            count += 1
    if count < UNSETTLED_MOST:
        return False
    for index in range(count_read(&pool.arena_count)):
        arena = pool.arenas[index]
        if (count_read(&arena.ending.by_device) and not arena.ending.settled
                and arena.role != ROLE_FRAMEWORK and not stream_wait(arena)):
            return False
    return True


cdef void owners_mark(Pool *pool) noexcept nogil:
    """Under the pool's lock: set `captures.owns` in each arena that owns a capture's arena in use.

    An arena of a capture is in use while its graph exists or a block of it is live.
    """
    cdef uint32_t index
    cdef Arena *arena
    for index in range(count_read(&pool.arena_count)):
        pool.arenas[index].captures.owns = False
    for index in range(count_read(&pool.arena_count)):
        arena = pool.arenas[index]
        if arena.owner != NULL and not (arena.captures.released and arena.live == 0):
            arena.owner.captures.owns = True


cdef inline bint arena_vacant(Arena *arena, aclrtStream stream, uint32_t role) noexcept nogil:
    """True if a new stream may inherit the arena: `stream`, in the role `role`.

    The arena must have this role, its stream must have been destroyed, and no work, block or graph
    of it may be left.  A default stream (NULL) may inherit only an arena of `arena_offer`.
    """
    # Read `by_device` before `live`.  It is set when the stream is destroyed, after all allocations
    # for the stream.  So if it is 1, the value of `live` that is read next counts all of them.
    return (count_read(&arena.ending.by_device) and arena.ending.settled and arena.role == role
            and arena.live == 0 and arena.climbing == 0 and arena.order.waiting == NULL
            and arena.order.polling == 0 and (stream != NULL or arena.ending.offered)
            and not arena.captures.owns)


cdef Arena *pool_arena(Pool *pool, aclrtStream stream, uint32_t role) noexcept nogil:
    return pool_arena_in(pool, stream, role, NULL)


cdef Arena *pool_arena_in(Pool *pool, aclrtStream stream, uint32_t role,
                          aclrtContext known) noexcept nogil:
    cdef aclrtContext context = default_home(pool, stream, role)
    cdef Arena *arena = arena_find_in(pool, stream, role, context)
    if arena != NULL:
        return arena
    if stream != NULL:
        context = stream_home(pool, stream, known)
    arena = arena_inherit(pool, stream, role, context)
    if arena == NULL and stream != NULL and arenas_settle(pool):
        arena = arena_inherit(pool, stream, role, context)
    return arena if arena != NULL else arena_add(pool, stream, role, context)


cdef void owner_rules(Arena *arena) noexcept nogil:
    """Under the lock: if mode bits are set, let no thread own the lock.

    Then each call takes the slow path of the lock, which reads the mode.

    ARENA_TAGGED is the exception: a thread without open scopes may own the lock, and gives up the
    ownership before it opens a scope.
    """
    arena.lock.pinned = arena.mode & ~<uint32_t> ARENA_TAGGED != 0
    if arena.mode & ARENA_TAGGED:
        arena.lock.may_own = on_own


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
            if arena_is_of(pool.arenas[index], arena.stream, arena_context(arena)):
                pool.arenas[index].ending.registered = False
        pool = pool.next
    arena.ending.registered = True
    arena.told = True
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


# --- the end ------------------------------------------------------------------------------------

cdef uint64_t pool_live_bytes(Pool *pool) noexcept nogil:
    cdef uint32_t index
    cdef uint64_t bytes = 0
    for index in range(count_read(&pool.arena_count)):
        bytes += pool.arenas[index].live
    return bytes


cdef void range_clear(Arena *arena, Range *span) noexcept nogil:
    """Unmap all mappings that a range still has because the driver refused to unmap them before."""
    cdef uint32_t page
    for page in range(span.pages):
        if span.views[page] != NULL:
            page_unmap(arena.pool, span.base + page * arena.pool.options.granule)
            free(span.views[page])


cdef void arena_free_all(Arena *arena) noexcept nogil:
    """Free the addresses and the host memory of an arena that has no pages with memory."""
    cdef uint32_t index
    cdef Range *span
    for index in range(arena.space.range_count):
        span = arena.space.ranges[index]
        if span != NULL:
            if not span.segment:
                range_clear(arena, span)
                range_unreserve(arena.pool, span.base)
            range_free(span)
    ring_drop(arena)
    for index in range(<uint32_t> RANGE_TABLES):
        free(arena.space.range_tables[index])
    free(arena.sleep.naps)
    free(arena.order.uses)
    free(arena.guards.guard)
    arena_close(arena, arena.told)


cdef bint pool_empty(Pool *pool) noexcept nogil:
    """Close all arenas and give all pages to the driver.

    True if the pool has no memory and no live block afterwards.
    """
    cdef uint32_t index
    for index in range(count_read(&pool.arena_count)):
        arena_set_mode(pool.arenas[index], ARENA_CLOSED, 0)
        lock_take(&pool.arenas[index].lock)
        naps_let_go(pool.arenas[index])  # frees the sleeping blocks that were kept for a graph
        lock_drop(&pool.arenas[index].lock)
        pages_donate(pool.arenas[index], ~<uint64_t> 0, True)
    source_shrink(pool, 0)
    return pool.source.reserved == 0 and pool_live_bytes(pool) == 0


cdef bint pool_registered(Pool *pool) noexcept nogil:
    """True if an arena of the pool is registered with ACL, so that ACL may call it."""
    cdef uint32_t index
    for index in range(count_read(&pool.arena_count)):
        if pool.arenas[index].ending.registered:
            return True
    return False


cdef bint pool_destroy(Pool *pool) noexcept nogil:
    cdef uint32_t index
    cdef uint32_t count = count_read(&pool.arena_count)
    cdef aclrtContext before = NULL
    cdef bint empty
    if pool_live_bytes(pool) != 0:
        return False
    # The driver calls below need the pool's context; the thread may have another one, or none.
    context_enter(pool, pool.context, &before)
    empty = pool_empty(pool) and not pool_registered(pool)
    if empty:
        pools_remove(pool)
        naps_reclaim(pool)
        for index in range(count):
            arena_free_all(pool.arenas[index])
        for index in range(<uint32_t> ARENA_TABLES):
            free(pool.arena_tables[index])
        events_destroy(pool)
    context_leave(pool, before)
    if empty:
        free(pool)
    return empty


cdef void pool_orphan(Pool *pool) noexcept nogil:
    spin_enter(&pools_lock)
    pool.life.orphan = pool.life.dropped = True
    spin_leave(&pools_lock)


cdef bint pool_forked(Pool *pool) noexcept nogil:
    return pool.arena_count > 0 and count_read(&pool.arenas[0].mode) & ARENA_FORKED


cdef uint32_t pools_dropped(Pool **found, uint32_t most) noexcept nogil:
    cdef Pool *pool
    cdef uint32_t count = 0
    spin_enter(&pools_lock)
    pool = pools if readers == 0 else NULL
    while pool != NULL and count < most:
        if pool.life.dropped and pool_live_bytes(pool) == 0 and not pool_forked(pool):
            pool.life.orphan = pool.life.dropped = False
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
        if pool.life.orphan and pool.options.device == device:
            if count < most:
                found[count] = pool
            count += 1
        pool = pool.next
    spin_leave(&pools_lock)
    return count


cdef void pool_end(Pool *pool) noexcept nogil:
    waiting_end(pool)
    if not pool_destroy(pool):
        pool_orphan(pool)


cdef void pool_drop(Pool *pool) noexcept nogil:
    pool_end(pool)
    pools_retry()


cdef void pools_retry() noexcept nogil:
    cdef Pool *found[16]
    cdef uint32_t count = pools_dropped(found, 16)
    while count > 0:
        count -= 1
        pool_end(found[count])
