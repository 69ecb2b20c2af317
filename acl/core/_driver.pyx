"""Every driver call that the allocator makes, counted, and the books of the source of frames.

Bytes are counted as reserved before the driver is asked for them, so that two threads cannot pass
the limit together (I11).  The source's lock guards the books and is never held over a call.
"""

from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from acl._core cimport (
    CALL_CAPTURE_INFO, CALL_EVENT, CALL_FREE, CALL_FREE_PHYSICAL, CALL_MALLOC, CALL_MAP,
    CALL_MEM_INFO, CALL_PHYSICAL, CALL_QUERY, CALL_RELEASE, CALL_RESERVE, CALL_SYNC, CALL_UNMAP,
    REFUSAL_DRIVER, REFUSAL_HEADROOM, REFUSAL_LIMIT, RUNG_DRIVER, STOP_DRIVER, STOP_HEADROOM,
    STOP_LIMIT, STOP_SYNC,
    ROLE_FRAMEWORK, Attempt, Source,
)
from acl.core._events cimport EVENT_SYNC
from acl._libacl cimport (
    ACL_ERROR_RT_CONTEXT_NULL, ACL_ERROR_RT_FEATURE_NOT_SUPPORT, ACL_ERROR_RT_PARAM_INVALID,
    ACL_ERROR_RT_STREAM_CONTEXT,
    ACL_EVENT_RECORDED_STATUS_COMPLETE,
    ACL_EVENT_RECORDED_STATUS_NOT_READY, ACL_EVENT_SYNC, ACL_MEM_MALLOC_HUGE_FIRST,
    ACL_MODEL_RI_CAPTURE_STATUS_NONE, ACL_STREAM_STATUS_COMPLETE, ACL_SUCCESS,
    aclmdlRI, aclmdlRICaptureStatus, aclrtEventRecordedStatus, aclrtStreamStatus,
)
from acl.core._lock cimport count_read, spin_enter, spin_leave, stale_read
from acl.core._record cimport record_note, record_ticks
from acl.inside._refusals cimport growth_refused

cdef extern from "Python.h" nogil:
    int PyGILState_Check()      # whether this very thread holds the GIL; touches no object

cdef extern from *:
    """
    static _Thread_local uint32_t attempt_tried, attempt_stopped;
    static _Thread_local int attempt_status;
    """
    uint32_t attempt_tried, attempt_stopped
    int attempt_status

cdef enum:
    EVENT_ROOM = 256
    GIL_WAIT_MS = 200           # longest wait with the GIL held


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


cdef aclError counted(Pool *pool, uint32_t call, aclError status) noexcept nogil:
    """Count a call that has returned; its status."""
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
            if status == ACL_ERROR_RT_FEATURE_NOT_SUPPORT and call != CALL_MALLOC and (
                    call != CALL_MAP or source.calls[call] == source.failed[call]):
                pool.no_virtual = True          # segments then; not for a refused second view
        elif call == CALL_SYNC:
            attempt_stop(STOP_SYNC)
    spin_leave(&source.lock)
    if refusal and not pool.no_virtual:
        growth_refused(pool, REFUSAL_DRIVER, pool.options.granule)
    return status


# --- frames and segments ------------------------------------------------------------------------

cdef bint source_claim(Pool *pool, size_t bytes) noexcept nogil:
    cdef Source *source = &pool.source
    cdef size_t limit = pool.options.limit
    cdef bint fits
    spin_enter(&source.lock)
    fits = limit == 0 or (source.reserved <= limit and bytes <= limit - source.reserved)
    if fits:
        source.reserved += bytes
        if source.reserved > source.reserved_peak:
            source.reserved_peak = source.reserved
    spin_leave(&source.lock)
    if not fits:
        attempt_stop(STOP_LIMIT)
        growth_refused(pool, REFUSAL_LIMIT, bytes)
    return fits


cdef void source_unclaim(Pool *pool, size_t bytes) noexcept nogil:
    spin_enter(&pool.source.lock)
    pool.source.reserved -= bytes
    spin_leave(&pool.source.lock)


cdef size_t device_room(Pool *pool) noexcept nogil:
    cdef size_t room = 0, total = 0
    cdef aclrtContext before
    cdef aclError status
    context_enter(pool, pool.context, &before)  # or in whatever device is current
    status = counted(pool, CALL_MEM_INFO,
                     pool.source.driver.mem_info(pool.options.info_attr, &room, &total))
    context_leave(pool, before)
    return room if status == ACL_SUCCESS else 0


cdef bint headroom_left(Pool *pool, size_t bytes) noexcept nogil:
    """Whether the device keeps its headroom; asked only where the pool has one."""
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
        return frame
    free(frame)
    source_unclaim(pool, bytes)
    return NULL


cdef bint frame_return(Pool *pool, Frame *frame) noexcept nogil:
    """Give a frame that backs nothing to the driver; one that it refuses stays spare."""
    if counted(pool, CALL_FREE_PHYSICAL,
               pool.source.driver.free_physical(frame.handle)) != ACL_SUCCESS:
        frame.next = NULL
        source_put(pool, frame)
        return False
    free(frame)
    source_unclaim(pool, pool.options.granule)
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
    """Reserve `bytes` of addresses, or half of it, and so on down to `least`."""
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
    attempt_try(RUNG_DRIVER)
    if not source_claim(pool, bytes):
        return NULL
    if (headroom_left(pool, bytes)
            and counted(pool, CALL_MALLOC, pool.source.driver.malloc(
                &base, bytes, ACL_MEM_MALLOC_HUGE_FIRST)) == ACL_SUCCESS):
        return base
    source_unclaim(pool, bytes)
    return NULL


cdef bint segment_free(Pool *pool, void *base, size_t bytes) noexcept nogil:
    if counted(pool, CALL_FREE, pool.source.driver.free(base)) != ACL_SUCCESS:
        return False
    source_unclaim(pool, bytes)
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
        pool.source.driver.context_set(before)


cdef void context_lend(Pool *pool) noexcept nogil:
    if pool.context != NULL and context_here(pool) == NULL:
        pool.source.driver.context_set(pool.context)


cdef inline bint context_gone(aclError status) noexcept nogil:
    """By what it was answered to `context_enter`; the work of its streams is gone with it."""
    return status == ACL_ERROR_RT_PARAM_INVALID


# --- order --------------------------------------------------------------------------------------

cdef aclError arena_enter(Arena *arena, aclrtContext *before) noexcept nogil:
    """Where the arena's stream is the one that is meant: the default one is each context's own."""
    before[0] = NULL
    return context_enter(arena.pool, arena.context, before) if arena.stream == NULL else ACL_SUCCESS


cdef bint stream_idle(Arena *arena) noexcept nogil:
    cdef Pool *pool = arena.pool
    cdef aclrtStreamStatus state = ACL_STREAM_STATUS_COMPLETE
    cdef aclrtContext before
    cdef aclError status
    if arena.by_device:
        return arena.settled
    status = arena_enter(arena, &before)
    if status != ACL_SUCCESS:
        return context_gone(status)
    status = counted(pool, CALL_QUERY, pool.source.driver.query(arena.stream, &state))
    context_leave(pool, before)
    return status == ACL_SUCCESS and state == ACL_STREAM_STATUS_COMPLETE


cdef int32_t wait_ms(Pool *pool) noexcept nogil:
    """How long to wait: not long if the caller brought the GIL; a queued callback may need it."""
    cdef int32_t timeout_ms = pool.options.sync_timeout_ms
    if PyGILState_Check() and (timeout_ms < 0 or timeout_ms > GIL_WAIT_MS):
        return GIL_WAIT_MS
    return timeout_ms


cdef bint stream_wait(Arena *arena) noexcept nogil:
    cdef Pool *pool = arena.pool
    cdef uint64_t began = record_ticks()
    cdef aclrtContext before
    cdef aclError status
    if arena.role == ROLE_FRAMEWORK and pool.drain != NULL:
        return pool.drain(pool)
    if arena.by_device:
        if not arena.settled:
            arena.settled = device_wait(pool)
        return arena.settled
    status = arena_enter(arena, &before)
    if status != ACL_SUCCESS:
        return context_gone(status)
    status = counted(pool, CALL_SYNC, pool.source.driver.sync(arena.stream, wait_ms(pool)))
    context_leave(pool, before)
    record_note(arena, EVENT_SYNC, NULL, record_ticks() - began, status != ACL_SUCCESS)
    return status == ACL_SUCCESS


cdef aclError context_sync(Pool *pool, aclrtContext context) noexcept nogil:
    cdef aclrtContext before
    cdef aclError status = context_enter(pool, context, &before)
    if status != ACL_SUCCESS:
        return ACL_SUCCESS if context_gone(status) else status
    status = counted(pool, CALL_SYNC, pool.source.driver.sync_device(wait_ms(pool)))
    context_leave(pool, before)
    return status


cdef bint context_first(Pool *pool, uint32_t index) noexcept nogil:
    """Whether neither the pool nor an arena before this one has the same context."""
    cdef aclrtContext context = pool.arenas[index].context
    cdef uint32_t i
    for i in range(index):
        if pool.arenas[i].context == context:
            return False
    return context != NULL and context != pool.context


cdef aclError device_sync(Pool *pool) noexcept nogil:
    # The runtime's synchronisation of a device waits for the streams of the current context only.
    cdef aclrtContext here = context_here(pool)
    cdef uint32_t index
    cdef aclError status = context_sync(pool, pool.context)
    if status == ACL_SUCCESS and here != NULL and here != pool.context:
        status = context_sync(pool, here)
    for index in range(count_read(&pool.arena_count)):
        if (status == ACL_SUCCESS and pool.arenas[index].context != here
                and context_first(pool, index)):
            status = context_sync(pool, pool.arenas[index].context)
    return status


cdef bint device_wait(Pool *pool) noexcept nogil:
    return device_sync(pool) == ACL_SUCCESS


cdef bint stream_captured(Pool *pool, aclrtStream stream, void **graph) noexcept nogil:
    """Whether the stream is being captured; a library that cannot capture says no."""
    cdef aclmdlRICaptureStatus state = ACL_MODEL_RI_CAPTURE_STATUS_NONE
    cdef aclmdlRI handle = NULL
    if counted(pool, CALL_CAPTURE_INFO, pool.source.driver.capture_info(
            stream, &state, &handle)) != ACL_SUCCESS:
        return False
    graph[0] = handle
    return state != ACL_MODEL_RI_CAPTURE_STATUS_NONE


cdef aclError event_record(Pool *pool, aclrtStream stream, aclrtEvent *event) noexcept nogil:
    """In the current context."""
    cdef Source *source = &pool.source
    cdef aclError status = ACL_SUCCESS
    event[0] = NULL
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


cdef aclrtEvent event_mark(Pool *pool, aclrtStream stream, aclrtContext context) noexcept nogil:
    cdef aclrtContext before
    cdef aclrtEvent event = NULL
    cdef aclError status = context_enter(pool, context, &before)
    if status == ACL_SUCCESS:
        status = event_record(pool, stream, &event)
        context_leave(pool, before)
    if (stream != NULL and pool.context != context
            and status in (ACL_ERROR_RT_STREAM_CONTEXT, ACL_ERROR_RT_CONTEXT_NULL)
            and context_enter(pool, pool.context, &before) == ACL_SUCCESS):
        event_record(pool, stream, &event)
        context_leave(pool, before)
    return event


cdef bint event_done(Pool *pool, aclrtEvent event) noexcept nogil:
    cdef aclrtEventRecordedStatus state = ACL_EVENT_RECORDED_STATUS_NOT_READY
    return counted(pool, CALL_EVENT, pool.source.driver.event_query(
        event, &state)) == ACL_SUCCESS and state == ACL_EVENT_RECORDED_STATUS_COMPLETE


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
