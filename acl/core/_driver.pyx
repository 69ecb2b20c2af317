"""All driver calls of the allocator, with counts, and the accounting of the page source.

Bytes are counted as reserved before the driver is asked for them, so that two threads together
cannot exceed the limit (I11).  The source's lock guards the counts.  It is never held during a
driver call.
"""

from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from acl.core.types cimport (
    CALL_CAPTURE_INFO, CALL_EVENT, CALL_FREE, CALL_FREE_PHYSICAL, CALL_MALLOC, CALL_MAP,
    CALL_MEM_INFO, CALL_PHYSICAL, CALL_QUERY, CALL_RELEASE, CALL_RESERVE, CALL_SYNC, CALL_UNMAP,
    EVENT_ROOM, REFUSAL_DRIVER, REFUSAL_HEADROOM, REFUSAL_LIMIT, RUNG_DRIVER, STOP_DRIVER,
    STOP_HEADROOM, STOP_LIMIT, STOP_SYNC, PLACES, Place, ROLE_FRAMEWORK, Attempt, Source, Use,
    USE_BEDS,
)
from acl.core._bins cimport queue_after
from acl.core._events cimport EVENT_SYNC
from acl.bind.generated._libacl cimport (
    ACL_ERROR_RT_CONTEXT_NULL, ACL_ERROR_RT_FEATURE_NOT_SUPPORT, ACL_ERROR_RT_PARAM_INVALID,
    ACL_ERROR_RT_STREAM_CAPTURED, ACL_ERROR_RT_STREAM_CONTEXT, ACL_ERROR_RT_STREAM_SYNC_TIMEOUT,
    ACL_EVENT_RECORDED_STATUS_COMPLETE,
    ACL_EVENT_RECORDED_STATUS_NOT_READY, ACL_EVENT_SYNC, ACL_MEM_MALLOC_HUGE_FIRST,
    ACL_MODEL_RI_CAPTURE_STATUS_NONE, ACL_STREAM_STATUS_COMPLETE, ACL_STREAM_STATUS_NOT_READY,
    ACL_SUCCESS,
    aclmdlRI, aclmdlRICaptureStatus, aclrtEventRecordedStatus, aclrtStreamStatus,
)
from acl.core._lock cimport (
    count_publish, count_read, lock_drop, lock_take, pointer_publish, spin_enter, spin_leave,
    stale_read,
)
from acl.core._record cimport record_note, record_ticks
from acl.core.policy cimport GIL_WAIT_MS

cdef extern from "Python.h" nogil:
    int PyGILState_Check()      # 1 if the calling thread holds the GIL; uses no Python object

cdef extern from *:
    """
    static _Thread_local uint32_t attempt_tried, attempt_stopped;
    static _Thread_local int attempt_status;
    static _Thread_local uint64_t waits_until;  /* ns of the clock; 0: no common limit */
    """
    uint32_t attempt_tried, attempt_stopped
    int attempt_status
    uint64_t waits_until

cdef extern from "core/record.h" nogil:
    uint64_t clock_monotonic_ns()

cdef uint32_t faults = 0        # 1: a wait has found a failed task

cdef enum:
    TASKS_FIRST = 507001  # the error codes of failed tasks are TASKS_FIRST up to TASKS_END - 1
    TASKS_END = 507800
    NS_IN_MS = 1000000


cdef void attempt_begin() noexcept nogil:
    global attempt_tried, attempt_stopped, attempt_status
    attempt_tried = attempt_stopped = 0
    attempt_status = 0


cdef void attempt_try(uint32_t rung) noexcept nogil:
    global attempt_tried
    attempt_tried |= <uint32_t> 1 << rung


cdef void attempt_stop(uint32_t stop) noexcept nogil:
    global attempt_stopped
    attempt_stopped |= stop


cdef void attempt_read(Attempt *attempt) noexcept nogil:
    attempt.tried = attempt_tried
    attempt.stopped = attempt_stopped
    attempt.status = <aclError> attempt_status


cdef inline void growth_refused(Pool *pool, uint32_t kind, size_t bytes) noexcept nogil:
    if on_refused is not NULL:
        on_refused(pool, kind, bytes)


cdef aclError counted(Pool *pool, uint32_t call, aclError status) noexcept nogil:
    """Count a driver call that has returned `status`, note a refusal, and return `status`."""
    global attempt_status
    cdef Source *source = &pool.source
    cdef bint refusal = False
    spin_enter(&source.lock)
    source.calls[call] += 1
    if status != ACL_SUCCESS:
        source.failed[call] += 1
        if call in (CALL_PHYSICAL, CALL_MALLOC, CALL_MAP, CALL_RESERVE):
            source.last_error = status
            attempt_status = status
            attempt_stop(STOP_DRIVER)
            refusal = True
            # If a map call is refused after others succeeded, the driver has virtual memory and
            # only refuses an alias.
            if status == ACL_ERROR_RT_FEATURE_NOT_SUPPORT and call != CALL_MALLOC and (
                    call != CALL_MAP or source.calls[call] == source.failed[call]):
                pool.no_virtual = True
        elif call == CALL_SYNC:
            attempt_stop(STOP_SYNC)
    spin_leave(&source.lock)
    if refusal and not pool.no_virtual:
        growth_refused(pool, REFUSAL_DRIVER, pool.options.granule)
    return status


# --- frames and segments ------------------------------------------------------------------------

cdef bint source_claim(Pool *pool, size_t bytes) noexcept nogil:
    """Count bytes as reserved before the driver is asked.  False if the limit forbids it."""
    cdef Source *source = &pool.source
    cdef size_t limit = pool.options.limit
    cdef bint fits
    spin_enter(&source.lock)
    fits = limit == 0 or (source.reserved <= limit and bytes <= limit - source.reserved)
    if fits:
        source.reserved += bytes
        source.claimed += bytes
    spin_leave(&source.lock)
    if not fits:
        attempt_stop(STOP_LIMIT)
        growth_refused(pool, REFUSAL_LIMIT, bytes)
    return fits


cdef void source_answer(Pool *pool, size_t bytes, bint given) noexcept nogil:
    """Complete a claim by `source_claim`.

    If the driver has `given` the memory, the bytes stay reserved, and `reserved_peak` is raised if
    it is exceeded.  Otherwise the bytes are no longer reserved.
    """
    cdef Source *source = &pool.source
    spin_enter(&source.lock)
    source.claimed -= bytes
    if not given:
        source.reserved -= bytes
    elif source.reserved - source.claimed > source.reserved_peak:
        source.reserved_peak = source.reserved - source.claimed
    spin_leave(&source.lock)


cdef void source_return(Pool *pool, size_t bytes) noexcept nogil:
    spin_enter(&pool.source.lock)
    pool.source.reserved -= bytes
    spin_leave(&pool.source.lock)


cdef size_t device_room(Pool *pool) noexcept nogil:
    cdef size_t room = 0, total = 0
    cdef aclrtContext before
    cdef aclError status
    context_enter(pool, pool.context, &before)  # if this fails, ask about the current device
    status = counted(pool, CALL_MEM_INFO,
                     pool.source.driver.mem_info(pool.options.info_attr, &room, &total))
    context_leave(pool, before)
    return room if status == ACL_SUCCESS else 0


cdef bint headroom_left(Pool *pool, size_t bytes) noexcept nogil:
    """True if the pool may take `bytes` more without using the headroom; else note a refusal."""
    cdef size_t headroom = pool.options.headroom
    cdef size_t room
    if headroom == 0:
        return True
    room = device_room(pool)
    if room >= bytes and room - bytes >= headroom:
        return True
    attempt_stop(STOP_HEADROOM)
    growth_refused(pool, REFUSAL_HEADROOM, bytes)
    return False


cdef Frame *frame_make(Pool *pool) noexcept nogil:
    cdef size_t bytes = pool.options.granule
    cdef Frame *frame
    attempt_try(RUNG_DRIVER)
    if not source_claim(pool, bytes):
        return NULL
    frame = <Frame *> calloc(1, sizeof(Frame))
    if (frame != NULL and headroom_left(pool, bytes)
            and counted(pool, CALL_PHYSICAL, pool.source.driver.physical(
                &frame.handle, bytes, &pool.source.prop, 0)) == ACL_SUCCESS):
        source_answer(pool, bytes, True)
        return frame
    free(frame)
    source_answer(pool, bytes, False)
    return NULL


cdef bint frame_return(Pool *pool, Frame *frame) noexcept nogil:
    """Give a frame that backs no page to the driver.

    If the driver refuses it, keep it as a spare frame and return False.
    """
    if counted(pool, CALL_FREE_PHYSICAL,
               pool.source.driver.free_physical(frame.handle)) != ACL_SUCCESS:
        frame.next = NULL
        source_put(pool, frame)
        return False
    free(frame)
    source_return(pool, pool.options.granule)
    return True


cdef bint frame_map(Pool *pool, char *addr, Frame *frame) noexcept nogil:
    return counted(pool, CALL_MAP, pool.source.driver.map(
        addr, pool.options.granule, 0, frame.handle, 0)) == ACL_SUCCESS


cdef bint page_unmap(Pool *pool, char *addr) noexcept nogil:
    return counted(pool, CALL_UNMAP, pool.source.driver.unmap(addr)) == ACL_SUCCESS


cdef void source_put(Pool *pool, Frame *frames) noexcept nogil:
    cdef Source *source = &pool.source
    cdef Frame *after
    spin_enter(&source.lock)
    while frames != NULL:
        after = frames.next
        frames.next = source.spare
        source.spare = frames
        source.spare_bytes += pool.options.granule
        frames = after
    spin_leave(&source.lock)


cdef Frame *source_take(Pool *pool) noexcept nogil:
    cdef Source *source = &pool.source
    cdef Frame *frame
    spin_enter(&source.lock)
    frame = source.spare
    if frame != NULL:
        source.spare = frame.next
        source.spare_bytes -= pool.options.granule
        frame.next = NULL
    spin_leave(&source.lock)
    return frame


cdef size_t source_shrink(Pool *pool, size_t to) noexcept nogil:
    cdef Frame *frame
    cdef size_t freed = 0
    while stale_read(&pool.source.reserved) > to:
        frame = source_take(pool)
        if frame == NULL or not frame_return(pool, frame):
            break
        freed += pool.options.granule
    return freed


cdef void *range_reserve(Pool *pool, size_t *bytes, size_t least) noexcept nogil:
    """Reserve `bytes` of addresses, or half as many, and so on down to `least`; NULL if refused."""
    cdef size_t granule = pool.options.granule
    cdef void *base = NULL
    cdef aclError status
    while True:
        status = counted(pool, CALL_RESERVE,
                         pool.source.driver.reserve(&base, bytes[0], 0, NULL, 0))
        if status == ACL_SUCCESS:
            return base
        if status == ACL_ERROR_RT_FEATURE_NOT_SUPPORT:
            pool.no_virtual = True
            return NULL
        if bytes[0] // 2 < least:
            return NULL
        bytes[0] = bytes[0] // 2 // granule * granule


cdef void range_unreserve(Pool *pool, void *base) noexcept nogil:
    counted(pool, CALL_RELEASE, pool.source.driver.release(base))


cdef void *segment_malloc(Pool *pool, size_t bytes) noexcept nogil:
    cdef void *base = NULL
    cdef aclError status
    attempt_try(RUNG_DRIVER)
    if not source_claim(pool, bytes):
        return NULL
    if headroom_left(pool, bytes):
        status = counted(pool, CALL_MALLOC, malloc_in(pool, &base, bytes))
        if status == ACL_SUCCESS:
            source_answer(pool, bytes, True)
            return base
    source_answer(pool, bytes, False)
    return NULL


cdef aclError malloc_in(Pool *pool, void **base, size_t bytes) noexcept nogil:
    """Allocate a segment in the pool's context, as the driver uses the current context's device."""
    cdef aclrtContext before
    cdef aclError status = context_enter(pool, pool.context, &before)
    if status == ACL_SUCCESS:
        status = pool.source.driver.malloc(base, bytes, ACL_MEM_MALLOC_HUGE_FIRST)
        context_leave(pool, before)
    return status


cdef bint segment_free(Pool *pool, void *base, size_t bytes) noexcept nogil:
    if counted(pool, CALL_FREE, pool.source.driver.free(base)) != ACL_SUCCESS:
        return False
    source_return(pool, bytes)
    return True


# --- contexts -----------------------------------------------------------------------------------

cdef aclrtContext context_here(Pool *pool) noexcept nogil:
    cdef aclrtContext context = NULL
    if (pool.source.driver.context_get == NULL
            or pool.source.driver.context_get(&context) != ACL_SUCCESS):
        return NULL
    return context


cdef aclError context_enter(Pool *pool, aclrtContext context, aclrtContext *before) noexcept nogil:
    before[0] = context_here(pool) if context != NULL else NULL
    if before[0] == context:
        before[0] = NULL
        return ACL_SUCCESS
    return pool.source.driver.context_set(context)


cdef void context_leave(Pool *pool, aclrtContext before) noexcept nogil:
    if before != NULL:
        pool.source.driver.context_set(before)  # status ignored: `before` was current a moment ago


cdef void context_lend(Pool *pool) noexcept nogil:
    if pool.context != NULL and context_here(pool) == NULL:
        pool.source.driver.context_set(pool.context)  # status ignored: later calls fail then too


cdef inline bint context_gone(aclError status) noexcept nogil:
    """True if the status of `context_enter` says that the context was destroyed, with its work."""
    return status == ACL_ERROR_RT_PARAM_INVALID


# --- order --------------------------------------------------------------------------------------

cdef int32_t wait_limit_ms(Pool *pool) noexcept nogil:
    """Return the limit of one wait in ms; -1: none.  With the GIL, it is at most GIL_WAIT_MS.

    A Python callback that is queued on the stream may need the GIL.
    """
    cdef int32_t timeout_ms = pool.options.sync_timeout_ms
    if PyGILState_Check() and (timeout_ms < 0 or timeout_ms > GIL_WAIT_MS):
        return GIL_WAIT_MS
    return timeout_ms


cdef void waits_begin(Pool *pool) noexcept nogil:
    global waits_until
    cdef int32_t timeout_ms = wait_limit_ms(pool)
    waits_until = 0
    if timeout_ms >= 0:
        waits_until = clock_monotonic_ns() + <uint64_t> timeout_ms * NS_IN_MS


cdef uint64_t waits_shorten(uint32_t most_ms) noexcept nogil:
    global waits_until
    cdef uint64_t before = waits_until
    cdef uint64_t until = clock_monotonic_ns() + most_ms * NS_IN_MS
    if before == 0 or until < before:
        waits_until = until
    return before


cdef void waits_restore(uint64_t until) noexcept nogil:
    global waits_until
    waits_until = until


cdef void waits_end() noexcept nogil:
    global waits_until
    waits_until = 0


cdef int32_t wait_ms(Pool *pool) noexcept nogil:
    """Return the limit in ms of a wait that begins now; 0: `waits_until` has come; -1: none."""
    cdef int32_t timeout_ms = wait_limit_ms(pool)
    cdef uint64_t now, left
    if waits_until == 0:
        return timeout_ms
    now = clock_monotonic_ns()
    left = (waits_until - now + NS_IN_MS - 1) // NS_IN_MS if now < waits_until else 0
    if left == 0:
        attempt_stop(STOP_SYNC)
    if timeout_ms >= 0 and left > <uint64_t> timeout_ms:        # safe cast: not negative
        return timeout_ms
    return <int32_t> left                       # safe cast: the limit was set from an int32_t


cdef inline bint lives_elsewhere(aclError status) noexcept nogil:
    return status == ACL_ERROR_RT_STREAM_CONTEXT or status == ACL_ERROR_RT_CONTEXT_NULL


cdef bint stream_lives_here(Pool *pool, aclrtStream stream) noexcept nogil:
    cdef aclrtStreamStatus state = ACL_STREAM_STATUS_COMPLETE
    cdef void *graph = NULL
    return stream_captured(pool, stream, &graph) or not lives_elsewhere(
        counted(pool, CALL_QUERY, pool.source.driver.query(stream, &state)))


cdef aclrtContext stream_home(Pool *pool, aclrtStream stream, aclrtContext known) noexcept nogil:
    cdef aclrtContext here = context_here(pool)
    cdef aclrtContext before
    cdef bint found
    if known != NULL:
        return known
    if stream == NULL or pool.source.driver.context_get == NULL:
        return here if here != NULL else pool.context
    if here != NULL and stream_lives_here(pool, stream):
        return here
    if pool.context == here or context_enter(pool, pool.context, &before) != ACL_SUCCESS:
        return NULL
    found = stream_lives_here(pool, stream)
    context_leave(pool, before)
    return pool.context if found else NULL


cdef bint stream_hold(Arena *arena) noexcept nogil:
    cdef bint held
    lock_take(&arena.lock)
    held = not arena.ending.by_device
    arena.order.asking += held
    lock_drop(&arena.lock)
    return held


cdef void stream_let(Arena *arena) noexcept nogil:
    lock_take(&arena.lock)
    arena.order.asking -= 1
    lock_drop(&arena.lock)


cdef bint faults_seen() noexcept nogil:
    return count_read(&faults) != 0


cdef void fault_keep(Arena *arena, aclError status) noexcept nogil:
    """If a task failed, keep its error for Python: the driver reports it only to this wait."""
    if TASKS_FIRST <= status < TASKS_END and status != ACL_ERROR_RT_STREAM_SYNC_TIMEOUT:
        arena.ending.fault = status
        count_publish(&faults, 1)


cdef aclError stream_ask(Arena *arena, bint wait, bint *complete) noexcept nogil:
    """Set `complete`: query the stream or wait for it.  Under capture do neither; it is false."""
    cdef Pool *pool = arena.pool
    cdef aclrtStreamStatus state = ACL_STREAM_STATUS_NOT_READY
    cdef int32_t timeout_ms = 0
    cdef void *graph = NULL
    cdef aclError status
    complete[0] = False
    if stream_captured(pool, arena.stream, &graph):
        attempt_stop(STOP_SYNC)
        return ACL_SUCCESS
    if wait:
        timeout_ms = wait_ms(pool)
    if timeout_ms != 0:
        status = counted(pool, CALL_SYNC, pool.source.driver.sync(arena.stream, timeout_ms))
        complete[0] = status == ACL_SUCCESS
        fault_keep(arena, status)
    else:
        status = counted(pool, CALL_QUERY, pool.source.driver.query(arena.stream, &state))
        complete[0] = status == ACL_SUCCESS and state == ACL_STREAM_STATUS_COMPLETE
    return status


cdef bint stream_complete(Arena *arena, bint wait) noexcept nogil:
    """With `wait`, wait for the stream.  True if it has no work left, or if its context is gone.

    Ask in the stream's own context or, if that is unknown, in the current one.
    """
    cdef Pool *pool = arena.pool
    cdef aclrtContext home = arena_context(arena)
    cdef aclrtContext before
    cdef bint complete
    cdef aclError status = context_enter(pool, home, &before)
    if status != ACL_SUCCESS:
        return context_gone(status)
    status = stream_ask(arena, wait, &complete)
    if home == NULL and complete:
        pointer_publish(<void **> &arena.context, context_here(pool))
    context_leave(pool, before)
    return complete


cdef bint stream_idle(Arena *arena) noexcept nogil:
    cdef bint complete
    if not stream_hold(arena):
        return arena.ending.settled
    complete = stream_complete(arena, False)
    stream_let(arena)
    return complete


cdef bint stream_wait(Arena *arena) noexcept nogil:
    cdef Pool *pool = arena.pool
    cdef uint64_t began = record_ticks()
    cdef bint complete
    if arena.role == ROLE_FRAMEWORK and pool.queue.drain != NULL:
        return pool.queue.drain(pool)
    if not stream_hold(arena):
        if not arena.ending.settled:
            arena.ending.settled = arena_device_wait(arena)
        return arena.ending.settled
    complete = stream_complete(arena, True)
    stream_let(arena)
    record_note(arena, EVENT_SYNC, NULL, record_ticks() - began, not complete)
    return complete


# --- waiting for contexts -----------------------------------------------------------------------

cdef struct Contexts:
    aclrtContext[64] found      # the size is PLACES
    uint32_t count              # number of entries in `found`
    bint more                   # there are more contexts than `found` has entries


cdef void contexts_add(Pool *pool, Contexts *contexts, aclrtContext context) noexcept nogil:
    """Add a context, if it is new.  NULL is added only if the driver has no contexts."""
    cdef uint32_t index
    if context == NULL and pool.source.driver.context_get != NULL:
        return
    for index in range(contexts.count):
        if contexts.found[index] == context:
            return
    if contexts.count == PLACES:
        contexts.more = True
        return
    contexts.found[contexts.count] = context
    contexts.count += 1


cdef void contexts_of(Arena *arena, Contexts *contexts) noexcept nogil:
    """Add the context of an arena's stream, and those of all streams that use its blocks."""
    cdef Use *use
    cdef uint32_t bed
    contexts_add(arena.pool, contexts, arena_context(arena))
    lock_take(&arena.lock)
    for bed in range(<uint32_t> USE_BEDS if arena.order.uses != NULL else 0):
        use = arena.order.uses[bed]
        while use != NULL:
            contexts_add(arena.pool, contexts, use.context)
            use = use.next
    use = arena.order.waiting  # one Use of each queue suffices, as a queue has only one context
    while use != NULL:
        contexts_add(arena.pool, contexts, use.context)
        use = queue_after(arena, use)
    lock_drop(&arena.lock)


cdef uint64_t moment_begin(Pool *pool) noexcept nogil:
    cdef uint64_t moment
    spin_enter(&pool.source.lock)
    pool.source.moment += 1
    moment = pool.source.moment
    spin_leave(&pool.source.lock)
    return moment


cdef uint64_t place_rested(Pool *pool, aclrtContext context) noexcept nogil:
    cdef Source *source = &pool.source
    cdef uint64_t rested = 0
    cdef uint32_t index
    spin_enter(&source.lock)
    for index in range(source.place_count):
        if source.places[index].context == context:
            rested = source.places[index].rested
    spin_leave(&source.lock)
    return rested


cdef void place_note(Pool *pool, aclrtContext context, uint64_t moment) noexcept nogil:
    """Note a successful wait for a context.  If the table is full, replace the oldest wait."""
    cdef Source *source = &pool.source
    cdef Place *place = NULL
    cdef uint32_t index
    spin_enter(&source.lock)
    for index in range(source.place_count):
        if source.places[index].context == context:
            place = &source.places[index]
    if place == NULL and source.place_count < PLACES:
        place = &source.places[source.place_count]
        source.place_count += 1
    if place == NULL:
        place = &source.places[0]
        for index in range(1, source.place_count):
            if source.places[index].rested < place.rested:
                place = &source.places[index]
    if place.context != context:
        place.context = context
        place.rested = 0
    if place.rested < moment:
        place.rested = moment
    spin_leave(&source.lock)


cdef bint context_captured(Pool *pool, aclrtContext context) noexcept nogil:
    """True if an arena's stream in `context`, the current one, is captured: waits are forbidden."""
    cdef uint32_t index
    cdef Arena *arena
    cdef void *graph = NULL
    cdef bint captured = False
    for index in range(count_read(&pool.arena_count)):
        arena = pool.arenas[index]
        if arena_context(arena) == context and not captured and stream_hold(arena):
            captured = stream_captured(pool, arena.stream, &graph)
            stream_let(arena)
    return captured


cdef aclError context_sync(Pool *pool, aclrtContext context) noexcept nogil:
    """Wait for all work of one context, and note the success.  Return 0, or the error."""
    cdef uint64_t moment = moment_begin(pool)
    cdef int32_t timeout_ms = wait_ms(pool)
    cdef aclrtContext before
    cdef aclError status = context_enter(pool, context, &before)
    if status == ACL_SUCCESS:
        if context_captured(pool, context):
            attempt_stop(STOP_SYNC)
            status = ACL_ERROR_RT_STREAM_CAPTURED
        elif timeout_ms == 0:
            status = ACL_ERROR_RT_STREAM_SYNC_TIMEOUT
        else:
            status = counted(pool, CALL_SYNC, pool.source.driver.sync_device(timeout_ms))
        context_leave(pool, before)
    elif context_gone(status):
        status = ACL_SUCCESS
    if status == ACL_SUCCESS:
        place_note(pool, context, moment)
    return status


cdef aclError contexts_sync(Pool *pool, Contexts *contexts) noexcept nogil:
    cdef aclError status, first = ACL_SUCCESS
    cdef uint32_t index
    for index in range(contexts.count):
        status = context_sync(pool, contexts.found[index])
        if first == ACL_SUCCESS:
            first = status
    if contexts.more and first == ACL_SUCCESS:
        first = ACL_ERROR_RT_STREAM_SYNC_TIMEOUT
    return first


cdef aclError device_sync(Pool *pool) noexcept nogil:
    cdef Contexts contexts
    cdef uint32_t index
    contexts.count = 0
    contexts.more = False
    contexts_add(pool, &contexts, pool.context)
    contexts_add(pool, &contexts, context_here(pool))
    for index in range(count_read(&pool.arena_count)):
        contexts_of(pool.arenas[index], &contexts)
    return contexts_sync(pool, &contexts)


cdef bint device_wait(Pool *pool) noexcept nogil:
    return device_sync(pool) == ACL_SUCCESS


cdef bint arena_device_wait(Arena *arena) noexcept nogil:
    """Wait for all work of the context of a destroyed stream.  True if that succeeded."""
    if arena_context(arena) == NULL and arena.pool.source.driver.context_get != NULL:
        return False                            # the stream's context is unknown
    return context_sync(arena.pool, arena_context(arena)) == ACL_SUCCESS


cdef aclError waiting_contexts_sync(Arena *arena) noexcept nogil:
    cdef Contexts contexts
    cdef Use *use
    contexts.count = 0
    contexts.more = False
    lock_take(&arena.lock)
    use = arena.order.waiting
    while use != NULL:
        contexts_add(arena.pool, &contexts, use.context)
        use = queue_after(arena, use)
    lock_drop(&arena.lock)
    return contexts_sync(arena.pool, &contexts)


cdef aclError capture_status(Pool *pool, aclrtStream stream, void **graph,
                             bint *active) noexcept nogil:
    """Ask if a stream is captured, and into which graph.  Without graphs, no stream is captured."""
    cdef aclmdlRICaptureStatus state = ACL_MODEL_RI_CAPTURE_STATUS_NONE
    cdef aclmdlRI handle = NULL
    cdef aclError status = counted(
        pool, CALL_CAPTURE_INFO, pool.source.driver.capture_info(stream, &state, &handle))
    active[0] = status == ACL_SUCCESS and state != ACL_MODEL_RI_CAPTURE_STATUS_NONE
    if status == ACL_SUCCESS:
        graph[0] = handle
    if status == ACL_ERROR_RT_FEATURE_NOT_SUPPORT or lives_elsewhere(status):
        return ACL_SUCCESS
    return status


cdef bint stream_captured(Pool *pool, aclrtStream stream, void **graph) noexcept nogil:
    """True if the driver says that the stream is captured; false if the call fails."""
    cdef bint active
    capture_status(pool, stream, graph, &active)
    return active


cdef void graph_watched(Pool *pool, void *graph) noexcept nogil:
    """Ask ACL to report when a graph is destroyed.  If ACL refuses, the graph's arena is kept."""
    counted(pool, CALL_CAPTURE_INFO, pool.source.driver.graph_watch(graph))


cdef aclError event_record(Pool *pool, aclrtStream stream, aclrtEvent *event) noexcept nogil:
    """Record an event on a stream of the current context.  `event` is set to NULL if that fails."""
    cdef Source *source = &pool.source
    cdef aclError status = ACL_SUCCESS
    cdef void *graph = NULL
    event[0] = NULL
    if stream_captured(pool, stream, &graph):   # the event would become part of the graph
        return ACL_ERROR_RT_STREAM_CAPTURED
    spin_enter(&source.lock)
    if source.event_count > 0:
        source.event_count -= 1
        event[0] = source.events[source.event_count]
    spin_leave(&source.lock)
    if event[0] == NULL:
        status = counted(pool, CALL_EVENT, source.driver.event_create(event, ACL_EVENT_SYNC))
        if status != ACL_SUCCESS:
            event[0] = NULL
            return status
    status = counted(pool, CALL_EVENT, source.driver.event_record(event[0], stream))
    if status != ACL_SUCCESS:
        event_put(pool, event[0])
        event[0] = NULL
    return status


cdef aclrtEvent event_mark(Pool *pool, aclrtStream stream, aclrtContext *context) noexcept nogil:
    cdef aclrtContext before
    cdef aclrtEvent event = NULL
    cdef aclError status = context_enter(pool, context[0], &before)
    if status == ACL_SUCCESS:
        status = event_record(pool, stream, &event)
        context_leave(pool, before)
    if (stream != NULL and pool.context != context[0] and lives_elsewhere(status)
            and context_enter(pool, pool.context, &before) == ACL_SUCCESS):
        if event_record(pool, stream, &event) == ACL_SUCCESS:
            context[0] = pool.context
        context_leave(pool, before)
    return event


cdef aclError event_ask(Pool *pool, aclrtEvent event, bint *done) noexcept nogil:
    cdef aclrtEventRecordedStatus state = ACL_EVENT_RECORDED_STATUS_NOT_READY
    cdef aclError status = counted(
        pool, CALL_EVENT, pool.source.driver.event_query(event, &state))
    done[0] = status == ACL_SUCCESS and state == ACL_EVENT_RECORDED_STATUS_COMPLETE
    return status


cdef bint event_done(Pool *pool, aclrtEvent event) noexcept nogil:
    cdef bint done
    event_ask(pool, event, &done)
    return done


cdef void event_put(Pool *pool, aclrtEvent event) noexcept nogil:
    cdef Source *source = &pool.source
    spin_enter(&source.lock)
    if source.event_count < EVENT_ROOM:
        source.events[source.event_count] = event
        source.event_count += 1
        event = NULL
    spin_leave(&source.lock)
    if event != NULL:
        counted(pool, CALL_EVENT, source.driver.event_destroy(event))


cdef void events_destroy(Pool *pool) noexcept nogil:
    cdef Source *source = &pool.source
    cdef aclrtEvent event
    while True:
        event = NULL
        spin_enter(&source.lock)
        if source.event_count > 0:
            source.event_count -= 1
            event = source.events[source.event_count]
        spin_leave(&source.lock)
        if event == NULL:
            return
        counted(pool, CALL_EVENT, source.driver.event_destroy(event))
