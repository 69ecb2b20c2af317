/* Events on the side of the host: queries, waits and times.
 *
 * The three queries use opposite numbers: for a complete event aclrtQueryEventStatus gives 1, the
 * other two give 0. An event that was never recorded counts as complete, with one exception:
 * aclrtQueryEventStatus calls it not ready unless it was made by aclrtCreateEventExWithFlag. None
 * of these calls needs a current context.
 *
 * Thread rule: any thread; queries take no lock. */
#include "streams/event.h"
#include "streams/capturing.h"
#include "generated/exports.h"

/* Refuses queries of an event that orders a graph with work outside it. */
static aclError external_check(const Event *event)
{
    if (event->flags == ACL_EVENT_EXTERNAL) {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                    "an event made with ACL_EVENT_EXTERNAL has no status to query");
    }
    return ACL_SUCCESS;
}

static aclError captured_check(const Event *event)
{
    TRY(external_check(event));
    if (atomic_load_explicit(&event->capture, memory_order_acquire) != 0) {
        return fail(ACL_ERROR_RT_EVENT_CAPTURED, "event %u was recorded in a capture", event->id);
    }
    return ACL_SUCCESS;
}

/* For the checkers: if `complete`, the host is now ordered after all work before the last record. */
static void event_seen(const Event *event, bool complete)
{
    if (complete) {
        order_acquire(event);
    }
    if (races_on() && complete) {
        race_saw_event(event->ipc != NULL ? race_elsewhere() : &event->order);
        race_saw_event(&event->order);
    }
}

aclError sim_aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus *status)
{
    EVENT_REF(resolved);
    REQUIRE(event != NULL);
    REQUIRE(status != NULL);
    TRY(event_resolve(event, &resolved));
    TRY(captured_check(resolved));
    bool complete = event_is_recorded(resolved) ? event_is_done(resolved)
                                                : resolved->sort == EVENT_EX;
    event_seen(resolved, complete);
    *status = complete ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    return ACL_SUCCESS;
}

static aclError old_query_resolve(aclrtEvent event, Event **resolved)
{
    TRY(event_resolve(event, resolved));
    if ((*resolved)->sort == EVENT_EX) {
        return fail_quiet(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                          "events made by aclrtCreateEventExWithFlag need aclrtQueryEventStatus");
    }
    return captured_check(*resolved);
}

aclError sim_aclrtQueryEvent(aclrtEvent event, aclrtEventStatus *status)
{
    EVENT_REF(resolved);
    REQUIRE(event != NULL);
    REQUIRE(status != NULL);
    TRY(old_query_resolve(event, &resolved));
    bool complete = event_is_done(resolved);
    event_seen(resolved, complete);
    *status = complete ? ACL_EVENT_STATUS_COMPLETE : ACL_EVENT_STATUS_NOT_READY;
    return ACL_SUCCESS;
}

aclError sim_aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus *status)
{
    EVENT_REF(resolved);
    REQUIRE(event != NULL);
    REQUIRE(status != NULL);
    TRY(old_query_resolve(event, &resolved));
    bool waiting = atomic_load_explicit(&resolved->waits, memory_order_acquire) != 0;
    event_seen(resolved, !waiting && event_is_done(resolved));
    *status = waiting ? ACL_EVENT_WAIT_STATUS_NOT_READY : ACL_EVENT_WAIT_STATUS_COMPLETE;
    return ACL_SUCCESS;
}

static aclError event_synchronize(aclrtEvent event, int64_t deadline_ns)
{
    EVENT_REF(resolved);
    TRY(event_resolve(event, &resolved));
    TRY(captured_check(resolved));
    TRY(capture_forbids_sync());
    EventMark mark = event_mark(resolved);
    bool reached = event_wait(resolved, &mark, NULL, deadline_ns);
    event_unmark(&mark);
    event_seen(resolved, reached);
    if (!reached) {
        return fail(ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, "the event was not completed before the timeout");
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtSynchronizeEvent(aclrtEvent event)
{
    REQUIRE(event != NULL);
    return event_synchronize(event, FOREVER);
}

aclError sim_aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout)
{
    EVENT_REF(resolved);
    if (timeout < -1) {
        return fail_quiet(ACL_ERROR_RT_PARAM_INVALID, "timeout %d, expected -1 or more than 0",
                          timeout);
    }
    REQUIRE(event != NULL);
    TRY(event_resolve(event, &resolved));
    REQUIRE_RT(timeout != 0);
    return event_synchronize(event, deadline_after_ms(timeout));
}

/* Refuses an event that was never recorded, because it has no time. Callers check this before they
 * check whether the last record was reached. */
static aclError recorded_check(Event *event)
{
    TRY(captured_check(event));
    EventCounts counts = event_counts(event);
    if (counts.recorded == 0) {
        return fail(ACL_ERROR_RT_INTERNAL_ERROR, "event %u has no timestamp: it was never recorded",
                    event->id);
    }
    return ACL_SUCCESS;
}

/* Gives the time at which the last record was reached. */
static aclError event_time(Event *event, int64_t *time_ns)
{
    EventCounts counts = event_counts(event);
    if (counts.stamped < counts.recorded) {
        return fail(ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID,
                    "event %u has no timestamp: its record has not run yet", event->id);
    }
    *time_ns = counts.time_ns;
    event_seen(event, true);
    return ACL_SUCCESS;
}

aclError sim_aclrtEventElapsedTime(float *ms, aclrtEvent startEvent, aclrtEvent endEvent)
{
    EVENT_REF(start);
    EVENT_REF(end);
    int64_t start_ns, end_ns;
    REQUIRE(ms != NULL);
    REQUIRE(startEvent != NULL);
    REQUIRE(endEvent != NULL);
    TRY(event_resolve(startEvent, &start));
    TRY(event_resolve(endEvent, &end));
    TRY(recorded_check(start));
    TRY(recorded_check(end));
    TRY(event_time(start, &start_ns));
    TRY(event_time(end, &end_ns));
    *ms = (float)((double)(end_ns - start_ns) * 1e-6);
    return ACL_SUCCESS;
}

aclError sim_aclrtEventGetTimestamp(aclrtEvent event, uint64_t *timestamp)
{
    EVENT_REF(resolved);
    int64_t time_ns;
    REQUIRE(event != NULL);
    REQUIRE(timestamp != NULL);
    TRY(event_resolve(event, &resolved));
    TRY(recorded_check(resolved));
    TRY(event_time(resolved, &time_ns));
    *timestamp = (uint64_t)time_ns / 1000;
    return ACL_SUCCESS;
}

aclError sim_aclrtGetEventId(aclrtEvent event, uint32_t *eventId)
{
    EVENT_REF(resolved);
    REQUIRE(event != NULL);
    REQUIRE(eventId != NULL);
    TRY(event_resolve(event, &resolved));
    if (resolved->sort != EVENT_FLAGGED && !event_is_recorded(resolved)) {
        return fail(ACL_ERROR_RT_INTERNAL_ERROR,
            "the event has no id before its first record: call aclrtRecordEvent first");
    }
    *eventId = resolved->id;
    return ACL_SUCCESS;
}

aclError sim_aclrtGetEventAvailNum(uint32_t *eventCount)
{
    Context *context;
    REQUIRE(eventCount != NULL);
    TRY(context_require(&context));
    *eventCount = events_available(context->device);
    return ACL_SUCCESS;
}
