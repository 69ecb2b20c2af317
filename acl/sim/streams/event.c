/* Events: making, recording and resetting them, and streams that wait for them. (Queries and
 * waits of the host: event_query.c.)
 *
 * Every record has a number. An event is complete when the last record that was queued has been
 * reached. A stream's wait is for one record only: the last one that was queued when the wait was
 * called (in a graph: when the graph was executed). Recording the event again does not change it.
 * An event made by aclrtCreateEventWithFlag also has a flag, which the wait reads when the stream
 * reaches the wait.
 *
 * Thread rule: any thread.  Tasks hold the event, so that destroying it while a record is pending
 * is safe. */
#include "streams/event.h"
#include "base/checks.h"
#include "generated/exports.h"
#include "streams/capturing.h"
#include "streams/stream.h"

#include <stdlib.h>

enum {
    FLAGS_KNOWN = ACL_EVENT_SYNC | ACL_EVENT_CAPTURE_STREAM_PROGRESS | 4 | ACL_EVENT_TIME_LINE,
    FLAGS_WAITABLE = ACL_EVENT_SYNC | 4 | ACL_EVENT_EXTERNAL | ACL_EVENT_IPC
};

static _Atomic uint32_t next_id;

static _Atomic uint32_t live[DEVICE_MAX]; /* number of live events with an id on each device */

uint32_t events_available(int32_t device)
{
    uint32_t made = atomic_load(&live[device]);
    return made < EVENT_IDS ? EVENT_IDS - made : 0;
}

static void id_give(const Event *event)
{
    if (event->device >= 0) {
        atomic_fetch_sub(&live[event->device], 1);
    }
}

aclError event_new(EventSort sort, uint32_t flags, int32_t device, Event **out)
{
    bool has_id = sort != EVENT_EX;
    if (has_id && !count_take(&live[device], EVENT_IDS)) {
        return fail(ACL_ERROR_RT_NO_EVENT_RESOURCE, "device %d has %d events, the most; those of "
                    "aclrtCreateEventExWithFlag do not count", device, EVENT_IDS);
    }
    Event *event = handle_prepare(HANDLE_EVENT, sizeof *event);
    if (event == NULL) {
        if (has_id) {
            atomic_fetch_sub(&live[device], 1);
        }
        return fail(ACL_ERROR_RT_NO_EVENT_RESOURCE, "too many events");
    }
    event->device = has_id ? device : -1;
    event->sort = sort;
    event->flags = flags;
    event->id = atomic_fetch_add(&next_id, 1) % EVENT_IDS;
    event->counts = &event->own;
    pthread_mutex_init(&event->lock, NULL);
    *out = event;
    return ACL_SUCCESS;
}

aclError event_resolve(aclrtEvent handle, Event **event)
{
    if (!handle_follow(handle, HANDLE_EVENT)) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is not a live event", handle);
    }
    *event = handle;
    return ACL_SUCCESS;
}

void event_use(Event *event)
{
    (void)handle_hold(event);
}

void event_discard(Event *event)
{
    if (event->ipc != NULL) {
        ipc_event_drop(event);
    }
    if (event->order != NULL) {
        race_drop(&event->order);
        race_drop(&event->flag_order);
        race_drop(&event->flag_seen);
    }
    handle_retire(event);
}

void event_release(Event *event)
{
    if (handle_drop(event)) {
        event_discard(event);
    }
}

void event_unref(Event *const *event)
{
    if (*event != NULL) {
        event_release(*event);
    }
}

static EventCounts counts_copy(const EventCounts *counts)
{
    EventCounts copy;
    atomic_init(&copy.recorded, atomic_load(&counts->recorded));
    atomic_init(&copy.done, atomic_load(&counts->done));
    atomic_init(&copy.stamped, atomic_load(&counts->stamped));
    atomic_init(&copy.time_ns, atomic_load(&counts->time_ns));
    return copy;
}

EventCounts event_counts(Event *event)
{
    if (SIM_LIKELY(event->flags != ACL_EVENT_IPC)) {
        return counts_copy(&event->own);
    }
    EventCounts copy = counts_copy(event->counts);
    if (copy.done < copy.recorded) {
        ipc_event_reap(event);
        copy = counts_copy(event->counts);
    }
    return copy;
}

/* ---- one record ------------------------------------------------------------------------------ */

static void record_unref(EventRecord *record)
{
    if (record != NULL && atomic_fetch_sub(&record->users, 1) == 1) {
        free(record);
    }
}

/* Sets the event's last record (NULL: the last record was reached); the lock is held. */
static void last_set(Event *event, EventRecord *record)
{
    EventRecord *before = event->last;
    event->last = record;
    record_unref(before);
}

EventMark event_mark(Event *event)
{
    EventMark mark = {NULL, 0, 0};
    if (event->flags == ACL_EVENT_IPC) {
        return ipc_event_mark(event);
    }
    pthread_mutex_lock(&event->lock);
    mark.record = event->last;
    if (mark.record != NULL) {
        atomic_fetch_add(&mark.record->users, 1);
    }
    pthread_mutex_unlock(&event->lock);
    return mark;
}

void event_unmark(EventMark *mark)
{
    record_unref(mark->record);
    mark->record = NULL;
}

/* Ends a record: `time_ns` is the time at which its stream reached it, or 0 if it was dropped.
 * Wakes the waiting threads in both cases. A record in a graph has number 0 in its mark and gets
 * its number only here. */
static void record_end(Event *event, const EventMark *mark, int64_t time_ns)
{
    EventCounts *counts = &event->own;
    order_release(event);
    pthread_mutex_lock(&event->lock);
    uint64_t number = mark->number;
    if (mark->record == NULL) {
        number = atomic_fetch_add(&counts->recorded, 1) + 1;
        last_set(event, NULL);
    } else {
        atomic_store(&mark->record->reached, true);
        if (event->last == mark->record) {
            last_set(event, NULL);
        }
    }
    if (time_ns != 0 && number > atomic_load(&counts->stamped)) {
        atomic_store(&counts->time_ns, time_ns);
        atomic_store(&counts->stamped, number);
    }
    if (number > atomic_load(&counts->done)) {
        atomic_store(&counts->done, number);
    }
    atomic_store(&event->flag, 1);
    pthread_mutex_unlock(&event->lock);
    park_wake(event);
}

/* ---- creation -------------------------------------------------------------------------------- */

static aclError event_create(aclrtEvent *out, EventSort sort, uint32_t flags)
{
    Context *context;
    Event *event;
    TRY(context_require(&context));
    TRY(event_new(sort, flags, context->device, &event));
    aclError status = flags == ACL_EVENT_IPC ? ipc_event_make(event) : ACL_SUCCESS;
    if (status != ACL_SUCCESS) {
        id_give(event);
        event_discard(event);
        return status;
    }
    *out = event;
    handle_show(event);
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
        return fail(ACL_ERROR_RT_PARAM_INVALID, "flag 0x%x is not a set of ACL_EVENT_* that "
                    "this call accepts", flag);
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

/* True while a record or a wait is queued.  Does not count references, because a task that is done may keep its
 * reference a little longer. */
static bool is_in_use(Event *event)
{
    EventCounts counts = event_counts(event);
    return counts.done < counts.recorded || atomic_load(&event->waits) != 0;
}

aclError sim_aclrtDestroyEvent(aclrtEvent event)
{
    EVENT_REF(resolved);
    REQUIRE(event != NULL);
    TRY(event_resolve(event, &resolved));
    /* Destroying an EVENT_EX event in use is allowed: it is freed when the tasks that use it are done. */
    if (check_on(CHECK_ORDER) && resolved->sort != EVENT_EX && is_in_use(resolved)) {
        checks.destroyed_in_use(resolved, HANDLE_EVENT);
    }
    if (!handle_kill(resolved)) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p was destroyed by another thread", event);
    }
    id_give(resolved);
    return ACL_SUCCESS;
}

/* ---- record and reset ------------------------------------------------------------------------ */

typedef struct EventTask {
    Event *event;
    EventMark mark;     /* for a record task: that record; for a wait task: the record to wait for */
    int64_t timeout_ns; /* of a wait task: how long it may wait; FOREVER: no limit */
    bool in_graph;      /* in a graph: each execution makes a new record, or waits for the last one (EventBound) */
    const Stream *on;   /* for a record task while the order check is on: its stream; else NULL */
} EventTask;

static void record_leave(const EventTask *task)
{
    if (task->on != NULL) {
        checks.record_over(task->event, task->on);
    }
}

static aclError record_run(Stream *stream, const void *payload)
{
    const EventTask *task = payload;
    if (races_on() && task->event->sort == EVENT_FLAGGED) {
        race_put(stream, &task->event->flag_seen);
    } else if (races_on() && task->event->ipc != NULL) {
        race_put(stream, race_elsewhere());
    }
    if (task->event->ipc != NULL) {
        ipc_event_close(task->event, &task->mark, now_ns());
    } else {
        const EventMark *bound = event_bound_mark(payload);
        record_end(task->event, bound != NULL ? bound : &task->mark, now_ns());
    }
    return ACL_SUCCESS;
}

static void record_drop(void *payload)
{
    EventTask *task = payload;
    record_leave(task);
    if (task->event->ipc != NULL) {
        ipc_event_close(task->event, &task->mark, 0);
    } else if (task->mark.record != NULL && !atomic_load(&task->mark.record->reached)) {
        record_end(task->event, &task->mark, 0);
    }
    event_unmark(&task->mark);
    event_release(task->event);
}

static void record_describe(const void *payload, aclmdlRITaskParams *params)
{
    const EventTask *task = payload;
    params->eventRecordTaskParams.event = task->event;
    params->eventRecordTaskParams.eventFlag = task->event->flags;
    params->eventRecordTaskParams.recordFlag = ACL_EVENT_RECORD_EXTERNAL;
}

static void record_touch(const void *payload, Touch *touch)
{
    Event *event = ((const EventTask *)payload)->event;
    touch_record(touch, &event->order);
    if (event->sort == EVENT_FLAGGED) {
        touch_marked(touch);
        race_drop(&event->flag_order);
        touch_share(&event->flag_order, &event->order);
    } else if (event->ipc != NULL) {
        touch_marked(touch);
    }
}

static const TaskClass record_task = {
    .name = "event record",
    .touch = record_touch,
    .run = record_run,
    .drop = record_drop,
    .type = ACL_MODEL_RI_TASK_EVENT_RECORD,
    .describe = record_describe,
};

static aclError record_submit(Event *event, Stream *stream, EventTask *task)
{
    event_use(event);
    if (check_on(CHECK_ORDER)) {
        task->on = stream;
        checks.record_queued(event, stream);
    }
    aclError status = stream_submit(stream, &record_task, task, sizeof *task);
    if (status != ACL_SUCCESS) {
        record_leave(task);
        event_release(event);
    }
    return status;
}

/* Queues a record of an IPC event. Other processes also take numbers of the event, so a number cannot be taken
 * back: if the record cannot be queued, its number counts as reached. */
static aclError record_queue_ipc(Event *event, Stream *stream)
{
    EventTask task = {.event = event, .timeout_ns = FOREVER};
    TRY(ipc_event_open(event, &task.mark));
    aclError status = record_submit(event, stream, &task);
    if (status != ACL_SUCCESS) {
        ipc_event_close(event, &task.mark, 0);
    }
    return status;
}

/* Returns a record that its task and its event will hold; NULL without memory. */
static EventRecord *record_new(void)
{
    EventRecord *record = malloc(sizeof *record);
    if (record != NULL) {
        atomic_init(&record->users, 2);
        atomic_init(&record->reached, false);
    }
    return record;
}

/* Queues a record. Holds the event's lock until `last` is this record: a worker that runs the task
 * at once waits for the lock. */
static aclError record_queue(Event *event, Stream *stream)
{
    EventRecord *record = record_new();
    if (record == NULL) {
        return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "out of host memory");
    }
    pthread_mutex_lock(&event->lock);
    EventTask task = {.event = event, .timeout_ns = FOREVER};
    task.mark = (EventMark){record, atomic_load(&event->own.recorded) + 1, 0};
    aclError status = record_submit(event, stream, &task);
    if (status == ACL_SUCCESS) {
        atomic_store(&event->own.recorded, task.mark.number);
        last_set(event, record);
        atomic_store(&event->capture, 0);
    }
    pthread_mutex_unlock(&event->lock);
    if (status != ACL_SUCCESS) {
        free(record); /* this number was not used; the next record gets it */
    }
    return status;
}

/* Refuses IPC events: a graph cannot contain a record that other processes see. */
static aclError capture_takes(const Event *event)
{
    if (event->ipc != NULL) {
        return fail_quiet(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                          "IPC events do not go into captures");
    }
    return ACL_SUCCESS;
}

/* True for an event that orders a graph with work outside it: in a capture its record is a task,
 * not an edge. */
static bool is_external(const Event *event)
{
    return event->flags == ACL_EVENT_EXTERNAL;
}

/* Refuses a flag other than that of the first call: all records of one event must have the same
 * flag, and so must all waits. */
static aclError way_check(_Atomic uint32_t *way, uint32_t flag)
{
    uint32_t first = 0;
    if (!atomic_compare_exchange_strong(way, &first, flag + 1) && first != flag + 1) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "flag is %u, expected %u as in this event's first call", flag,
                    first - 1);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtRecordEvent(aclrtEvent event, aclrtStream stream)
{
    EVENT_REF(resolved);
    STREAM_REF(on);
    REQUIRE(event != NULL);
    TRY(event_resolve(event, &resolved));
    TRY(stream_check(stream));
    TRY(way_check(&resolved->record_way, ACL_EVENT_RECORD_DEFAULT));
    TRY(stream_resolve(stream, &on));
    if (stream_is_capturing(on) && is_external(resolved)) {
        EventTask task = {.event = resolved, .timeout_ns = FOREVER, .in_graph = true};
        return record_submit(resolved, on, &task);
    }
    if (stream_is_capturing(on)) {
        TRY(capture_takes(resolved));
        return captures.record_event(on, resolved);
    }
    return resolved->ipc != NULL ? record_queue_ipc(resolved, on) : record_queue(resolved, on);
}

/* Refuses events that cannot order a graph with work outside it. */
static aclError external_check(const Event *event)
{
    if (event->sort != EVENT_EX || event->flags != ACL_EVENT_SYNC) {
        return fail_quiet(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                          "external records and waits need an event made by "
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
    EVENT_REF(resolved);
    STREAM_REF(on);
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
    EventTask task = {.event = resolved, .timeout_ns = FOREVER, .in_graph = true};
    return record_submit(resolved, on, &task);
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

/* For the order checker: forgets the records before the reset, because a wait behind it waits for a later record. */
static void reset_touch(const void *payload, Touch *touch)
{
    (void)touch;
    race_drop(&((const EventTask *)payload)->event->flag_order);
}

static const TaskClass reset_task = {
    .name = "event reset",
    .touch = reset_touch,
    .run = reset_run,
    .drop = event_task_drop,
    .type = ACL_MODEL_RI_TASK_EVENT_RESET,
    .describe = reset_describe,
};

static aclError waitable_check(const Event *event)
{
    if ((event->flags & FLAGS_WAITABLE) == 0) {
        return fail_quiet(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                          "the event has flags 0x%x: waiting for it or resetting it needs "
                          "ACL_EVENT_SYNC", event->flags);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtResetEvent(aclrtEvent event, aclrtStream stream)
{
    EVENT_REF(resolved);
    STREAM_REF(on);
    REQUIRE(event != NULL);
    TRY(event_resolve(event, &resolved));
    TRY(stream_check(stream));
    if (resolved->sort == EVENT_EX) {
        return fail_quiet(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                          "events made by aclrtCreateEventExWithFlag cannot be reset: omit the call");
    }
    TRY(waitable_check(resolved));
    TRY(stream_resolve(stream, &on));
    EventTask task = {.event = resolved, .timeout_ns = FOREVER};
    event_use(resolved);
    aclError status = stream_submit(on, &reset_task, &task, sizeof task);
    if (status != ACL_SUCCESS) {
        event_release(resolved);
    }
    return status;
}

/* ---- a stream waits -------------------------------------------------------------------------- */

typedef struct Reached {
    const Event *event;
    const EventMark *mark;
    bool wants_flag;
} Reached;

/* True if the record was reached and, for a flagged event, the flag is set. A reset may have
 * cleared the flag after the record. */
static bool wait_is_over(const void *argument)
{
    const Reached *wait = argument;
    return (wait->mark->record == NULL || atomic_load(&wait->mark->record->reached))
           && (!wait->wants_flag || atomic_load(&wait->event->flag) != 0);
}

bool event_wait(Event *event, const EventMark *mark, Stream *stream, int64_t deadline_ns)
{
    Reached wait = {event, mark, stream != NULL && event->sort == EVENT_FLAGGED};
    if (event->ipc != NULL) {
        return ipc_event_wait(event, mark, stream, deadline_ns);
    }
    if (stream == NULL) {
        return park_wait(event, wait_is_over, &wait, deadline_ns);
    }
    bool checked = check_on(CHECK_ORDER);
    if (checked) {
        checks.wait_begins(event, stream);
    }
    bool reached = stream_park(stream, event, wait_is_over, &wait, deadline_ns);
    if (checked) {
        checks.wait_ends(stream);
    }
    return reached;
}

static aclError wait_run(Stream *stream, const void *payload)
{
    const EventTask *task = payload;
    int64_t deadline = task->timeout_ns < 0 ? FOREVER : now_ns() + task->timeout_ns;
    const EventMark *mark = task->in_graph ? event_bound_mark(payload) : &task->mark;
    EventMark fresh = mark == NULL ? event_mark(task->event) : (EventMark){NULL, 0, 0};
    mark = mark == NULL ? &fresh : mark;
    bool reached = event_wait(task->event, mark, stream, deadline);
    event_unmark(&fresh);
    bool expired = !reached && deadline >= 0 && now_ns() >= deadline;
    if (races_on() && reached && task->event->sort == EVENT_FLAGGED) {
        race_take(stream, &task->event->flag_seen);
    } else if (races_on() && reached && task->event->ipc != NULL) {
        race_take(stream, race_elsewhere());
    }
    return expired ? ACL_ERROR_RT_WAIT_TIMEOUT : ACL_SUCCESS;
}

/* For the order checker. If nothing was recorded since the last reset, any later record can end a
 * wait for the flag. Records of other processes cannot be seen here. In both cases the order is
 * known only when the wait is over. */
static void wait_touch(const void *payload, Touch *touch)
{
    Event *event = ((const EventTask *)payload)->event;
    bool is_set = touch_wait(touch, &event->flag_order);
    (void)touch_wait(touch, &event->order);
    if ((event->sort == EVENT_FLAGGED && !is_set) || event->ipc != NULL) {
        touch_late(touch);
    }
}

static bool wait_waits(const void *payload)
{
    const EventTask *task = payload;
    const EventMark *bound = event_bound_mark(payload);
    EventMark fresh = bound == NULL ? event_mark(task->event) : (EventMark){NULL, 0, 0};
    Reached wait = {task->event, bound == NULL ? &fresh : bound, task->event->sort == EVENT_FLAGGED};
    bool waits = !wait_is_over(&wait);
    event_unmark(&fresh);
    return waits;
}

static void wait_drop(void *payload)
{
    EventTask *task = payload;
    atomic_fetch_sub(&task->event->waits, 1);
    event_unmark(&task->mark);
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
    .touch = wait_touch,
    .run = wait_run,
    .drop = wait_drop,
    .type = ACL_MODEL_RI_TASK_EVENT_WAIT,
    .describe = wait_describe,
    .waits = wait_waits,
};

bool event_task_binds(const TaskClass *sort, const void *payload)
{
    const EventTask *task = payload;
    return (sort == &record_task || sort == &wait_task) && task->in_graph && task->event->sort == EVENT_EX;
}

aclError event_bind(const TaskClass *sort, const void *payload, EventBound *bound)
{
    Event *event = ((const EventTask *)payload)->event;
    *bound = (EventBound){.payload = payload};
    if (sort == &wait_task) {
        bound->mark = event_mark(event);
        return ACL_SUCCESS;
    }
    EventRecord *record = record_new();
    if (record == NULL) {
        return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "out of host memory");
    }
    pthread_mutex_lock(&event->lock);
    bound->mark = (EventMark){record, atomic_fetch_add(&event->own.recorded, 1) + 1, 0};
    last_set(event, record);
    pthread_mutex_unlock(&event->lock);
    return ACL_SUCCESS;
}

void event_unbind(EventBound *bound)
{
    const EventTask *task = bound->payload;
    bool is_record = bound->mark.number != 0; /* the mark of a wait has no number */
    if (is_record && !atomic_load(&bound->mark.record->reached)) {
        record_end(task->event, &bound->mark, 0);
    }
    event_unmark(&bound->mark);
}

static aclError wait_queue(Event *event, Stream *stream, int64_t timeout_ns, bool in_graph)
{
    if (timeout_ns < 0 && op_wait_timeout_s() != 0) {
        timeout_ns = (int64_t)op_wait_timeout_s() * 1000000000;
    }
    EventTask task = {.event = event, .timeout_ns = timeout_ns, .in_graph = in_graph};
    if (!in_graph) {
        task.mark = event_mark(event);
    }
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
    EVENT_REF(resolved);
    STREAM_REF(on);
    TRY(event_resolve(event, &resolved));
    TRY(stream_check(stream));
    TRY(waitable_check(resolved));
    TRY(way_check(&resolved->wait_way, ACL_EVENT_WAIT_DEFAULT));
    TRY(stream_resolve(stream, &on));
    if (stream_is_capturing(on) && is_external(resolved)) {
        return wait_queue(resolved, on, timeout_ns, true);
    }
    if (stream_is_capturing(on) || atomic_load(&resolved->capture) != 0) {
        TRY(capture_takes(resolved));
        return captures.wait_event(on, resolved);
    }
    if (!event_is_recorded(resolved) && resolved->sort == EVENT_PLAIN) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "event %u was never recorded", resolved->id);
    }
    if (!event_is_recorded(resolved) && resolved->sort == EVENT_EX) {
        return ACL_SUCCESS;
    }
    return wait_queue(resolved, on, timeout_ns, false);
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
    EVENT_REF(resolved);
    STREAM_REF(on);
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
    return wait_queue(resolved, on, FOREVER, true);
}
