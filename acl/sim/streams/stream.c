/* Streams: making and finding them, submitting tasks, waiting, ending. (The exported calls:
 * stream_api.c.)
 *
 * Thread rule: any thread. A handle that another thread destroys during the call gives 107017,
 * never a fault: the memory of a dead stream stays readable (handle.c). */
#include "base/checks.h"
#include "base/soc.h"
#include "races/race.h"
#include "streams/capturing.h"
#include "streams/state_callbacks.h"

#include <string.h>

static _Atomic uint32_t next_id;
static _Thread_local StreamSubmission last_submission;
static _Atomic uint32_t live[DEVICE_MAX]; /* number of live streams of each device, including default streams */

uint32_t streams_available(int32_t device)
{
    uint32_t made = atomic_load(&live[device]), most = soc_current()->streams;
    return made < most ? most - made : 0;
}

/* Makes a stream that no other thread can find yet. */
static aclError stream_prepare(Context *context, uint32_t priority, uint32_t flags, Stream **out)
{
    if (!count_take(&live[context->device], soc_current()->streams)) {
        return fail(ACL_ERROR_RT_NO_STREAM_RESOURCE, "device %d has %u streams, the most of %s", context->device,
                    soc_current()->streams, config.soc);
    }
    Stream *stream = handle_prepare(HANDLE_STREAM, sizeof *stream);
    if (stream == NULL) {
        atomic_fetch_sub(&live[context->device], 1);
        return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "too many streams");
    }
    stream->context = context;
    stream->device = context->device;
    stream->id = atomic_fetch_add(&next_id, 1);
    stream->priority = priority;
    stream->flags = flags;
    pthread_mutex_init(&stream->lock, NULL);
    *out = stream;
    return ACL_SUCCESS;
}

aclError stream_new(Context *context, uint32_t priority, uint32_t flags, Stream **out)
{
    TRY(stream_prepare(context, priority, flags, out));
    handle_show(*out);
    stream_state_tell(*out, ACL_RT_STREAM_STATE_CREATE_POST);
    return ACL_SUCCESS;
}

/* Adds the stream to the context's streams, then checks again that the context is live: either
 * the thread that ends the context finds the stream, or this check finds that the context has
 * ended. */
static aclError stream_enter(Stream *stream, Context *context)
{
    handle_show_held(stream);
    stream_state_tell(stream, ACL_RT_STREAM_STATE_CREATE_POST);
    if (!handle_follow(context, HANDLE_CONTEXT)) {
        stream_end(stream, STREAM_END_NOW);
        handle_drop(stream);
        return fail(ACL_ERROR_RT_CONTEXT_NULL, "another thread destroyed the context");
    }
    handle_drop(context);
    return ACL_SUCCESS;
}

aclError stream_open(Context *context, uint32_t priority, uint32_t flags, Stream **out)
{
    Stream *stream;
    if (!handle_follow(context, HANDLE_CONTEXT)) {
        return fail(ACL_ERROR_RT_CONTEXT_NULL, "another thread destroyed the context");
    }
    aclError status = stream_prepare(context, priority, flags, &stream);
    status = status == ACL_SUCCESS ? stream_enter(stream, context) : status;
    handle_drop(context);
    if (status == ACL_SUCCESS) {
        *out = stream;
    }
    return status;
}

int32_t stream_device(const Stream *stream)
{
    return stream->device;
}

Context *stream_context(const Stream *stream)
{
    return stream->context;
}

uint32_t stream_id(const Stream *stream)
{
    return stream->id;
}

bool stream_idle(const Stream *stream)
{
    return atomic_load_explicit(&stream->completed, memory_order_acquire)
           == atomic_load_explicit(&stream->submitted, memory_order_acquire);
}

aclError stream_check(aclrtStream handle)
{
    if (handle != NULL && !handle_is(handle, HANDLE_STREAM)) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is not a live stream", handle);
    }
    return ACL_SUCCESS;
}

aclError stream_follow(aclrtStream handle, Stream **stream)
{
    if (!handle_follow(handle, HANDLE_STREAM)) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is not a live stream", handle);
    }
    *stream = handle;
    return ACL_SUCCESS;
}

void stream_unref(Stream *const *stream)
{
    if (*stream != NULL) {
        handle_drop(*stream);
    }
}

aclError stream_resolve_any(aclrtStream handle, Stream **stream)
{
    Context *context;
    TRY(stream_check(handle));
    TRY(context_require(&context));
    if (handle != NULL) {
        return stream_follow(handle, stream);
    }
    Stream *found = context->default_stream;
    if (!handle_follow(found, HANDLE_STREAM)) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "the default stream was destroyed");
    }
    *stream = found;
    return ACL_SUCCESS;
}

aclError stream_resolve(aclrtStream handle, Stream **stream)
{
    TRY(stream_resolve_any(handle, stream));
    if ((*stream)->context != context_current()) {
        return fail(ACL_ERROR_RT_STREAM_CONTEXT, "stream %p belongs to another context", handle);
    }
    return ACL_SUCCESS;
}

/* Puts a task into the queue, or into the graph of a capture or an update; the lock is held. */
static aclError stream_put(Stream *stream, const TaskClass *sort, const void *payload, size_t size)
{
    struct Graph *graph = atomic_load_explicit(&stream->graph, memory_order_relaxed);
    if (SIM_LIKELY(graph == NULL && stream->updating == NULL)) {
        if (races_on()) {
            race_submitted(stream, sort, payload);
        }
        return queue_push(stream, sort, payload, size);
    }
    return graph != NULL ? captures.push(stream, graph, sort, payload, size)
                         : captures.replace(stream->updating, sort, payload, size);
}

aclError stream_submit(Stream *stream, const TaskClass *sort, const void *payload, size_t size)
{
    aclError status;
    pthread_mutex_lock(&stream->lock);
    if (atomic_load_explicit(&stream->closing, memory_order_relaxed)) {
        status = fail(ACL_ERROR_RT_INVALID_HANDLE, "stream %u is being destroyed", stream->id);
    } else {
        status = stream_put(stream, sort, payload, size);
    }
    if (status == ACL_SUCCESS) {
        last_submission.tasks++;
        last_submission.stream_id = stream->id;
        last_submission.task_id = stream->next_task_id++;
    }
    pthread_mutex_unlock(&stream->lock);
    return status;
}

typedef struct Target {
    const Stream *stream;
    uint64_t count;
} Target;

static bool target_reached(const void *argument)
{
    const Target *target = argument;
    return atomic_load(&target->stream->completed) >= target->count;
}

/* Waits in slices; between them the checker looks for streams that wait for each other. */
static bool wait_checked(const Target *target, int64_t deadline_ns)
{
    for (;;) {
        int64_t slice = now_ns() + 100000000;
        bool last = deadline_ns != FOREVER && deadline_ns <= slice;
        if (park_wait(&target->stream->completed, target_reached, target, last ? deadline_ns : slice)) {
            return true;
        }
        if (last) {
            return false;
        }
        checks.cycle(target->stream);
    }
}

bool stream_wait(const Stream *stream, int64_t deadline_ns)
{
    Target target = {stream, atomic_load(&stream->submitted)};
    RaceBox *place = races_on() ? race_place(stream) : NULL;
    bool reached = check_on(CHECK_ORDER)
                       ? wait_checked(&target, deadline_ns)
                       : park_wait(&stream->completed, target_reached, &target, deadline_ns);
    if (place != NULL) {
        race_saw(place, reached);
    }
    return reached;
}

/* Returns the status of the first task that failed. The status is then forgotten, unless the
 * stream stops on failures. */
static aclError failure_tell(Stream *stream)
{
    char reason[REASON_BYTES];
    pthread_mutex_lock(&stream->lock);
    aclError status = atomic_load(&stream->status);
    strcpy(reason, stream->reason);
    if ((atomic_load(&stream->failure_mode) & 1) == 0) {
        atomic_store(&stream->status, ACL_SUCCESS);
    }
    pthread_mutex_unlock(&stream->lock);
    if (status == ACL_SUCCESS) {
        return ACL_SUCCESS; /* another thread took the status first */
    }
    return error_set("aclrtSynchronizeStream", status, "a task of stream %u failed%s%s", stream->id,
                     reason[0] != '\0' ? ": " : "", reason);
}

static aclError synchronize_held(Stream *stream, int64_t deadline_ns)
{
    TRY(capture_check_stream(stream));
    if (!stream_wait(stream, deadline_ns)) {
        return fail(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT,
            "stream %u did not finish its work before the timeout", stream->id);
    }
    if (atomic_load(&stream->status) == ACL_SUCCESS) {
        return ACL_SUCCESS;
    }
    return failure_tell(stream);
}

/* Returns success if another thread has destroyed the stream, because nothing is left to wait for. */
aclError stream_synchronize_until(Stream *stream, int64_t deadline_ns)
{
    if ((stream->flags & STREAM_SELF_RUNNING) != 0 || !handle_hold(stream)) {
        return ACL_SUCCESS;
    }
    aclError status = synchronize_held(stream, deadline_ns);
    handle_drop(stream);
    return status;
}

aclError stream_synchronize(Stream *stream, int32_t timeout_ms)
{
    return stream_synchronize_until(stream, deadline_after_ms(timeout_ms));
}

aclError streams_synchronize(const Context *context, int64_t deadline_ns)
{
    aclError first = ACL_SUCCESS;
    TRY(capture_forbids_sync());
    for (Stream *s = handle_next_held(HANDLE_STREAM, NULL); s != NULL;
         s = handle_next_held(HANDLE_STREAM, s)) {
        if (s->context == context) {
            aclError status = stream_synchronize_until(s, deadline_ns);
            first = first == ACL_SUCCESS ? status : first;
        }
    }
    return first;
}

void streams_drain(const Context *context)
{
    for (Stream *s = handle_next_held(HANDLE_STREAM, NULL); s != NULL;
         s = handle_next_held(HANDLE_STREAM, s)) {
        if (s->context == context) {
            stream_wait(s, FOREVER);
        }
    }
}

/* Makes the worker drop all tasks before `number`. The limit never decreases. */
static void drop_before(Stream *stream, uint64_t number)
{
    uint64_t limit = atomic_load(&stream->drop_until);
    while (limit < number
           && !atomic_compare_exchange_weak(&stream->drop_until, &limit, number)) {
    }
    uintptr_t key = atomic_load(&stream->parked);
    if (key != 0) {
        park_wake((const void *)key);
    }
}

void stream_abort(Stream *stream)
{
    drop_before(stream, atomic_load(&stream->submitted));
}

void stream_skip(Stream *stream)
{
    drop_before(stream, atomic_load(&stream->completed) + 1);
}

/* If the running task waits, ends that wait; later tasks are not touched. If `completed` did not
 * change while `parked` was read, the wait belongs to the task of number `completed`. */
void stream_stop(Stream *stream)
{
    uint64_t number;
    bool waits;
    do {
        number = atomic_load(&stream->completed);
        waits = atomic_load(&stream->parked) != 0;
    } while (atomic_load(&stream->completed) != number);
    if (waits) {
        drop_before(stream, number + 1);
    }
}

static bool worker_is_gone_or_in_callback(const void *argument)
{
    const Stream *stream = argument;
    return atomic_load(&stream->leavers) != 0 || atomic_load(&stream->in_callback);
}

/* Called by the two threads that need the stream: its worker, and the thread that ends it. The
 * second call frees the stream. */
void stream_leave(Stream *stream)
{
    bool last = atomic_exchange(&stream->leavers, 1) != 0;
    park_wake(&stream->completed);
    if (last) {
        handle_retire(stream);
    }
}

bool stream_end(Stream *stream, StreamEnd how)
{
    bool own = stream_running() == stream;
    stream_state_tell(stream, ACL_RT_STREAM_STATE_DESTROY_PRE);
    if (how == STREAM_END_DRAINED && !own) {
        stream_wait(stream, FOREVER);
    }
    if (!handle_kill(stream)) {
        return false;
    }
    atomic_fetch_sub(&live[stream->device], 1);
    Stream *of_context = stream; /* the exchange clears the context's default stream only if it is this one */
    atomic_compare_exchange_strong(&stream->context->default_stream, &of_context, NULL);
    pthread_mutex_lock(&stream->lock);
    atomic_store(&stream->closing, true);
    bool started = stream->started;
    pthread_mutex_unlock(&stream->lock);
    captures.stream_gone(stream);
    report_stream_gone(stream);
    if (!started) {
        race_stream_gone(stream);
        handle_retire(stream);
        return true;
    }
    stream_abort(stream);
    park_wake(&stream->submitted);
    if (!own) {
        park_wait(&stream->completed, worker_is_gone_or_in_callback, stream, FOREVER);
    }
    if (races_on()) {
        race_stream_ended(stream);
    }
    stream_leave(stream);
    return true;
}

StreamSubmission stream_last_submission(void)
{
    return last_submission;
}
