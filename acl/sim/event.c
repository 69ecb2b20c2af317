/* Events: made, recorded, reset, waited for by streams.  (What the host asks: event_query.c.)
 *
 * Every record has a number.  An event is complete when the last record that was queued has been
 * reached.  What a stream's wait waits for differs by sort (event.h): the plain and the Ex ones fix
 * the record at the call, the flagged ones look at a flag when the stream gets there.
 *
 * Thread rule: any thread.  Tasks hold the event, so that destroying it while a record is pending
 * is safe. */
#include "event.h"
#include "capture.h"
#include "exports.h"
#include "stream.h"

#include <unistd.h>

enum {
    FLAGS_KNOWN = ACL_EVENT_SYNC | ACL_EVENT_CAPTURE_STREAM_PROGRESS | 4 | ACL_EVENT_TIME_LINE,
    FLAGS_WAITABLE = ACL_EVENT_SYNC | 4 | ACL_EVENT_EXTERNAL | ACL_EVENT_IPC
};

static _Atomic uint32_t next_id;

aclError event_new(EventSort sort, uint32_t flags, Event **out)
{
    Event *event = handle_new(HANDLE_EVENT, sizeof *event);
    if (event == NULL) {
        return fail(ACL_ERROR_RT_NO_EVENT_RESOURCE, "too many events");
    }
    event->sort = sort;
    event->flags = flags;
    event->id = atomic_fetch_add(&next_id, 1) % EVENT_IDS;
    event->counts = &event->own;
    atomic_store(&event->users, 1);
    pthread_mutex_init(&event->lock, NULL);
    *out = event;
    return ACL_SUCCESS;
}

aclError event_resolve(aclrtEvent handle, Event **event)
{
    if (!handle_is(handle, HANDLE_EVENT)) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is no event that lives", handle);
    }
    *event = handle;
    return ACL_SUCCESS;
}

void event_use(Event *event)
{
    atomic_fetch_add_explicit(&event->users, 1, memory_order_relaxed);
}

void event_release(Event *event)
{
    if (atomic_fetch_sub(&event->users, 1) == 1) {
        if (event->ipc != NULL) {
            ipc_event_drop(event);
        }
        handle_retire(event);
    }
}

static void number_raise(_Atomic uint64_t *number, uint64_t to)
{
    uint64_t seen = atomic_load(number);
    while (seen < to && !atomic_compare_exchange_weak(number, &seen, to)) {
    }
}

void event_complete(Event *event, uint64_t number, int64_t time_ns)
{
    if (number > atomic_load(&event->counts->stamped)) {
        atomic_store(&event->counts->time_ns, time_ns);
        number_raise(&event->counts->stamped, number);
    }
    number_raise(&event->counts->done, number);
    atomic_store(&event->flag, 1);
    park_wake(event);
}

/* ---- creation -------------------------------------------------------------------------------- */

static aclError event_create(aclrtEvent *out, EventSort sort, uint32_t flags)
{
    Context *context;
    Event *event;
    TRY(context_require(&context));
    TRY(event_new(sort, flags, &event));
    aclError status = flags == ACL_EVENT_IPC ? ipc_event_make(event) : ACL_SUCCESS;
    if (status != ACL_SUCCESS) {
        event_release(event);
        return status;
    }
    *out = event;
    return ACL_SUCCESS;
}

aclError sim_aclrtCreateEvent(aclrtEvent *event)
{
    REQUIRE(event != NULL);
    return event_create(event, EVENT_PLAIN, FLAGS_KNOWN);
}

static aclError flags_check(uint32_t flag, uint32_t alone)
{
    bool known = flag != 0 && (flag & ~(uint32_t)FLAGS_KNOWN) == 0;
    if (!known && (flag == 0 || (flag & (flag - 1)) != 0 || (flag & alone) == 0)) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "flag 0x%x is no set of ACL_EVENT_* that goes here",
                    flag);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtCreateEventWithFlag(aclrtEvent *event, uint32_t flag)
{
    REQUIRE(event != NULL);
    TRY(flags_check(flag, ACL_EVENT_DEVICE_USE_ONLY | ACL_EVENT_EXTERNAL));
    return event_create(event, EVENT_FLAGGED, flag);
}

aclError sim_aclrtCreateEventExWithFlag(aclrtEvent *event, uint32_t flag)
{
    REQUIRE(event != NULL);
    TRY(flags_check(flag, ACL_EVENT_IPC));
    return event_create(event, EVENT_EX, flag);
}

aclError sim_aclrtDestroyEvent(aclrtEvent event)
{
    Event *resolved;
    REQUIRE(event != NULL);
    TRY(event_resolve(event, &resolved));
    if (!handle_kill(resolved)) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p was destroyed by another thread", event);
    }
    event_release(resolved);
    return ACL_SUCCESS;
}

/* ---- record and reset ------------------------------------------------------------------------ */

typedef struct EventTask {
    Event *event;
    uint64_t number;    /* of the record; 0 in a graph: the next one at each execution */
    int64_t timeout_ns; /* of a wait; FOREVER */
    bool is_flag;       /* a wait for the flag instead of a record */
} EventTask;

static aclError record_run(Stream *stream, const void *payload)
{
    const EventTask *task = payload;
    uint64_t number = task->number;
    (void)stream;
    if (number == 0) {
        number = atomic_fetch_add(&task->event->counts->recorded, 1) + 1;
    }
    event_complete(task->event, number, now_ns());
    return ACL_SUCCESS;
}

/* A record that was thrown away must not leave anybody waiting.  (The worker may be here before
 * record_queue has made the number known.) */
static void record_drop(void *payload)
{
    EventTask *task = payload;
    if (atomic_load(&task->event->counts->done) < task->number) {
        number_raise(&task->event->counts->done, task->number);
        park_wake(task->event);
    }
    event_release(task->event);
}

static void record_describe(const void *payload, aclmdlRITaskParams *params)
{
    const EventTask *task = payload;
    params->eventRecordTaskParams.event = task->event;
    params->eventRecordTaskParams.eventFlag = task->event->flags;
    params->eventRecordTaskParams.recordFlag = ACL_EVENT_RECORD_EXTERNAL;
}

static const TaskClass record_task = {
    .name = "event record",
    .run = record_run,
    .drop = record_drop,
    .type = ACL_MODEL_RI_TASK_EVENT_RECORD,
    .describe = record_describe,
};

/* The next record's number.  Other processes take numbers of an IPC event, too, so it is taken at
 * once, and a record that then fails counts as reached. */
static uint64_t record_number(Event *event)
{
    if (event->ipc == NULL) {
        return atomic_load(&event->counts->recorded) + 1;
    }
    atomic_store(&event->counts->recorder, (int32_t)getpid());
    return atomic_fetch_add(&event->counts->recorded, 1) + 1;
}

static aclError record_queue(Event *event, Stream *stream, bool in_graph)
{
    pthread_mutex_lock(&event->lock);
    uint64_t number = in_graph ? 0 : record_number(event);
    EventTask task = {event, number, FOREVER, false};
    event_use(event);
    aclError status = stream_submit(stream, &record_task, &task, sizeof task);
    if (status == ACL_SUCCESS && !in_graph) {
        number_raise(&event->counts->recorded, number);
        atomic_store(&event->capture, 0);
    }
    pthread_mutex_unlock(&event->lock);
    if (status != ACL_SUCCESS && event->ipc != NULL) {
        record_drop(&task);
    } else if (status != ACL_SUCCESS) {
        event_release(event); /* the number is the next record's */
    }
    return status;
}

/* A graph cannot hold what other processes see. */
static aclError capture_takes(const Event *event)
{
    if (event->ipc != NULL) {
        return fail_quiet(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                          "IPC events do not go into captures");
    }
    return ACL_SUCCESS;
}

/* An event is recorded either always for the graph's outside or never, and so with waiting. */
static aclError way_check(_Atomic uint32_t *way, uint32_t flag)
{
    uint32_t first = 0;
    if (!atomic_compare_exchange_strong(way, &first, flag + 1) && first != flag + 1) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "flag is %u, for this event it was %u before", flag,
                    first - 1);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtRecordEvent(aclrtEvent event, aclrtStream stream)
{
    Event *resolved;
    Stream *on;
    REQUIRE(event != NULL);
    TRY(event_resolve(event, &resolved));
    TRY(stream_check(stream));
    TRY(way_check(&resolved->record_way, ACL_EVENT_RECORD_DEFAULT));
    TRY(stream_resolve(stream, &on));
    if (stream_is_capturing(on)) {
        TRY(capture_takes(resolved));
        return capture_record_event(on, resolved);
    }
    return record_queue(resolved, on, false);
}

/* Records and waits that a graph does towards the world outside it. */
static aclError external_check(const Event *event)
{
    if (event->sort != EVENT_EX || event->flags != ACL_EVENT_SYNC) {
        return fail_quiet(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                          "external records and waits want an event of "
                          "aclrtCreateEventExWithFlag(ACL_EVENT_SYNC)");
    }
    return ACL_SUCCESS;
}

static aclError capturing_check(const Stream *stream)
{
    if (!stream_is_capturing(stream)) {
        return fail(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "stream %u is not being captured",
                    stream->id);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtRecordEventWithFlag(aclrtEvent event, aclrtStream stream, uint32_t flag)
{
    Event *resolved;
    Stream *on;
    REQUIRE(event != NULL);
    REQUIRE(flag <= ACL_EVENT_RECORD_EXTERNAL);
    if (flag == ACL_EVENT_RECORD_DEFAULT) {
        return sim_aclrtRecordEvent(event, stream);
    }
    TRY(event_resolve(event, &resolved));
    TRY(stream_check(stream));
    TRY(external_check(resolved));
    TRY(way_check(&resolved->record_way, flag));
    TRY(stream_resolve(stream, &on));
    TRY(capturing_check(on));
    return record_queue(resolved, on, true);
}

static aclError reset_run(Stream *stream, const void *payload)
{
    const EventTask *task = payload;
    (void)stream;
    atomic_store(&task->event->flag, 0);
    return ACL_SUCCESS;
}

static void event_task_drop(void *payload)
{
    event_release(((EventTask *)payload)->event);
}

static void reset_describe(const void *payload, aclmdlRITaskParams *params)
{
    const EventTask *task = payload;
    params->eventResetTaskParams.event = task->event;
    params->eventResetTaskParams.eventFlag = task->event->flags;
}

static const TaskClass reset_task = {
    .name = "event reset",
    .run = reset_run,
    .drop = event_task_drop,
    .type = ACL_MODEL_RI_TASK_EVENT_RESET,
    .describe = reset_describe,
};

static aclError waitable_check(const Event *event)
{
    if ((event->flags & FLAGS_WAITABLE) == 0) {
        return fail_quiet(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                          "an event of flags 0x%x, without ACL_EVENT_SYNC, cannot be waited for "
                          "or reset", event->flags);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtResetEvent(aclrtEvent event, aclrtStream stream)
{
    Event *resolved;
    Stream *on;
    REQUIRE(event != NULL);
    TRY(event_resolve(event, &resolved));
    TRY(stream_check(stream));
    if (resolved->sort == EVENT_EX) {
        return fail_quiet(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                          "events of aclrtCreateEventExWithFlag need no reset");
    }
    TRY(waitable_check(resolved));
    TRY(stream_resolve(stream, &on));
    EventTask task = {resolved, 0, FOREVER, false};
    event_use(resolved);
    aclError status = stream_submit(on, &reset_task, &task, sizeof task);
    if (status != ACL_SUCCESS) {
        event_release(resolved);
    }
    return status;
}

/* ---- a stream waits -------------------------------------------------------------------------- */

static bool flag_is_set(const void *argument)
{
    return atomic_load(&((const Event *)argument)->flag) != 0;
}

typedef struct Reached {
    const Event *event;
    uint64_t number;
} Reached;

static bool record_is_reached(const void *argument)
{
    const Reached *wait = argument;
    return atomic_load(&wait->event->counts->done) >= wait->number;
}

bool event_wait(Event *event, uint64_t number, Stream *stream, int64_t deadline_ns)
{
    Reached wait = {event, number};
    if (event->ipc != NULL) {
        return ipc_event_wait(event, number, stream, deadline_ns);
    }
    return stream != NULL ? stream_park(stream, event, record_is_reached, &wait, deadline_ns)
                          : park_wait(event, record_is_reached, &wait, deadline_ns);
}

static aclError wait_run(Stream *stream, const void *payload)
{
    const EventTask *task = payload;
    int64_t deadline = task->timeout_ns < 0 ? FOREVER : now_ns() + task->timeout_ns;
    bool reached = task->is_flag
                       ? stream_park(stream, task->event, flag_is_set, task->event, deadline)
                       : event_wait(task->event, task->number, stream, deadline);
    bool expired = !reached && deadline >= 0 && now_ns() >= deadline;
    return expired ? ACL_ERROR_RT_WAIT_TIMEOUT : ACL_SUCCESS;
}

static void wait_drop(void *payload)
{
    EventTask *task = payload;
    atomic_fetch_sub(&task->event->waits, 1);
    event_release(task->event);
}

static void wait_describe(const void *payload, aclmdlRITaskParams *params)
{
    const EventTask *task = payload;
    params->eventWaitTaskParams.event = task->event;
    params->eventWaitTaskParams.eventFlag = task->event->flags;
    params->eventWaitTaskParams.waitFlag = ACL_EVENT_WAIT_EXTERNAL;
}

static const TaskClass wait_task = {
    .name = "event wait",
    .run = wait_run,
    .drop = wait_drop,
    .type = ACL_MODEL_RI_TASK_EVENT_WAIT,
    .describe = wait_describe,
};

static aclError wait_queue(Event *event, Stream *stream, int64_t timeout_ns)
{
    bool is_flag = event->sort == EVENT_FLAGGED;
    if (timeout_ns < 0 && op_wait_timeout_s() != 0) {
        timeout_ns = (int64_t)op_wait_timeout_s() * 1000000000;
    }
    EventTask task = {event, atomic_load(&event->counts->recorded), timeout_ns, is_flag};
    event_use(event);
    atomic_fetch_add(&event->waits, 1);
    aclError status = stream_submit(stream, &wait_task, &task, sizeof task);
    if (status != ACL_SUCCESS) {
        wait_drop(&task);
    }
    return status;
}

static aclError stream_wait_event(aclrtStream stream, aclrtEvent event, int64_t timeout_ns)
{
    Event *resolved;
    Stream *on;
    TRY(event_resolve(event, &resolved));
    TRY(stream_check(stream));
    TRY(waitable_check(resolved));
    TRY(way_check(&resolved->wait_way, ACL_EVENT_WAIT_DEFAULT));
    TRY(stream_resolve(stream, &on));
    if (stream_is_capturing(on) || atomic_load(&resolved->capture) != 0) {
        TRY(capture_takes(resolved));
        return capture_wait_event(on, resolved);
    }
    if (!event_is_recorded(resolved) && resolved->sort == EVENT_PLAIN) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "event %u was never recorded", resolved->id);
    }
    if (!event_is_recorded(resolved) && resolved->sort == EVENT_EX) {
        return ACL_SUCCESS;
    }
    return wait_queue(resolved, on, timeout_ns);
}

aclError sim_aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event)
{
    REQUIRE(event != NULL);
    return stream_wait_event(stream, event, FOREVER);
}

aclError sim_aclrtStreamWaitEventWithTimeout(aclrtStream stream, aclrtEvent event, int32_t timeout)
{
    if (timeout < 0) {
        return fail_quiet(ACL_ERROR_RT_PARAM_INVALID, "timeout %d, expected 0 or more", timeout);
    }
    REQUIRE_RT(event != NULL);
    return stream_wait_event(stream, event, timeout == 0 ? FOREVER : (int64_t)timeout * 1000000);
}

aclError sim_aclrtStreamWaitEventWithFlag(aclrtStream stream, aclrtEvent event, uint32_t timeout,
                                          uint32_t flag)
{
    Event *resolved;
    Stream *on;
    REQUIRE(event != NULL);
    REQUIRE(flag <= ACL_EVENT_WAIT_EXTERNAL);
    REQUIRE(flag == ACL_EVENT_WAIT_DEFAULT || timeout == 0);
    if (flag == ACL_EVENT_WAIT_DEFAULT) {
        return stream_wait_event(stream, event, timeout == 0 ? FOREVER
                                                             : (int64_t)timeout * 1000000);
    }
    TRY(event_resolve(event, &resolved));
    TRY(stream_check(stream));
    TRY(external_check(resolved));
    TRY(way_check(&resolved->wait_way, flag));
    TRY(stream_resolve(stream, &on));
    TRY(capturing_check(on));
    return wait_queue(resolved, on, FOREVER);
}
