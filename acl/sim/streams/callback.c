/* Host functions: tasks of a stream that call a function of the user.
 *
 * As in the runtime, one thread for each device runs the host functions of all its streams: the
 * stream's worker hands the call to that thread and waits until the function has returned. So two
 * host functions of one device never run at the same time.
 *
 * When an interpreter shuts down, its callbacks must not be called any more:
 * acl_sim_callbacks_detach stops further calls and waits for the callbacks that are running.
 *
 * Thread rule: any thread; no lock is held while a user's function runs. */
#include "streams/callback.h"
#include "generated/exports.h"
#include "base/fork.h"
#include "races/race.h"
#include "streams/stream.h"

#include <string.h>

static _Atomic bool detached;
static _Atomic uint32_t inside;

bool callback_begin(void)
{
    atomic_fetch_add(&inside, 1);
    if (atomic_load(&detached)) {
        callback_end();
        return false;
    }
    return true;
}

void callback_end(void)
{
    if (atomic_fetch_sub(&inside, 1) == 1) {
        park_wake(&inside);
    }
}

static bool nobody_inside(const void *argument)
{
    (void)argument;
    return atomic_load(&inside) == 0;
}

aclError acl_sim_callbacks_detach(int32_t timeout_ms)
{
    atomic_store(&detached, true);
    bool left = park_wait(&inside, nobody_inside, NULL, deadline_after_ms(timeout_ms));
    return left ? ACL_SUCCESS : ACL_ERROR_RT_STREAM_SYNC_TIMEOUT;
}

void callback_waits(Stream *stream, bool waits)
{
    atomic_store(&stream->in_callback, waits);
    if (waits) {
        park_wake(&stream->completed);
    }
}

/* A host function in the queue of its device's thread. The thread removes it from the queue before
 * it calls the function. */
typedef struct HostCall {
    struct HostCall *next;
    Stream *stream;
    aclrtHostFunc function;
    void *argument;
    _Atomic bool done;
} HostCall;

typedef struct HostThread {
    pthread_mutex_t lock;
    HostCall *first, *last;
    _Atomic uint64_t queued;
    bool started;
} HostThread;

static HostThread threads[DEVICE_MAX];

__attribute__((constructor(105))) static void threads_make(void)
{
    for (size_t i = 0; i < DEVICE_MAX; i++) {
        pthread_mutex_init(&threads[i].lock, NULL);
    }
}

void host_threads_forked(void)
{
    memset(threads, 0, sizeof threads);
    threads_make();
    atomic_store(&inside, 0);
}

static bool calls_are_queued(const void *argument)
{
    const HostThread *thread = argument;
    return atomic_load(&thread->queued) != 0;
}

static HostCall *call_take(HostThread *thread)
{
    pthread_mutex_lock(&thread->lock);
    HostCall *call = thread->first;
    if (call != NULL) { /* the queue is empty if its only call was withdrawn */
        thread->first = call->next;
        atomic_fetch_sub(&thread->queued, 1);
        callback_waits(call->stream, true);
    }
    pthread_mutex_unlock(&thread->lock);
    return call;
}

/* Removes the call from the queue. Returns false if its function has begun already. */
static bool call_withdraw(HostThread *thread, const HostCall *call)
{
    pthread_mutex_lock(&thread->lock);
    HostCall *before = NULL, *at = thread->first;
    while (at != NULL && at != call) {
        before = at;
        at = at->next;
    }
    if (at != NULL) {
        *(before != NULL ? &before->next : &thread->first) = at->next;
        thread->last = at->next == NULL ? before : thread->last;
        atomic_fetch_sub(&thread->queued, 1);
    }
    pthread_mutex_unlock(&thread->lock);
    return at != NULL;
}

static void *host_thread_work(void *argument)
{
    HostThread *thread = argument;
    for (;;) {
        park_wait(&thread->queued, calls_are_queued, thread, FOREVER);
        HostCall *call = call_take(thread);
        if (call == NULL) {
            continue;
        }
        /* If the stream was aborted, but its worker has not yet withdrawn this call, the function is skipped. */
        if (!stream_is_dropping(call->stream) && callback_begin()) {
            stream_set_running(call->stream);
            call->function(call->argument);
            stream_set_running(NULL);
            callback_end();
        }
        order_release(call);
        atomic_store(&call->done, true);
        park_wake(call); /* uses only the address: the call is on the worker's stack and may be gone */
    }
    return NULL;
}

/* Starts the device's thread if it is not running; the caller holds the lock. */
static int host_thread_start(HostThread *thread)
{
    if (thread->started) {
        return 0;
    }
    int error = thread_start(host_thread_work, thread);
    thread->started = error == 0;
    return error;
}

static bool call_is_done(const void *argument)
{
    const HostCall *call = argument;
    return atomic_load(&call->done);
}

typedef struct HostFunction {
    aclrtHostFunc function;
    void *argument;
} HostFunction;

static aclError host_function_run(Stream *stream, const void *payload)
{
    const HostFunction *task = payload;
    HostThread *thread = &threads[stream->device];
    if (races_on()) {
        race_seen(stream);
    }
    HostCall call = {NULL, stream, task->function, task->argument, false};
    pthread_mutex_lock(&thread->lock);
    int error = host_thread_start(thread);
    if (error != 0) {
        pthread_mutex_unlock(&thread->lock);
        return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "no thread for host functions: %s",
                    strerror(error));
    }
    if (thread->first == NULL) {
        thread->first = &call;
    } else {
        thread->last->next = &call;
    }
    thread->last = &call;
    order_release(&thread->queued);
    atomic_fetch_add(&thread->queued, 1);
    pthread_mutex_unlock(&thread->lock);
    park_wake(&thread->queued);
    if (!stream_park(stream, &call, call_is_done, &call, FOREVER)
        && !call_withdraw(thread, &call)) {
        park_wait(&call, call_is_done, &call, FOREVER); /* the function has begun, so the call cannot be withdrawn */
    }
    callback_waits(stream, false);
    if (races_on()) {
        race_take_host(stream);
    }
    return ACL_SUCCESS;
}

/* For the order checker: what the function waits for, and what is ordered after it, is known only
 * when it has returned. */
static void host_function_touch(const void *payload, Touch *touch)
{
    (void)payload;
    touch_late(touch);
}

static const TaskClass host_function_task = {
    .name = "host function",
    .run = host_function_run,
    .touch = host_function_touch,
};

aclError sim_aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc fn, void *args)
{
    STREAM_REF(resolved);
    HostFunction task = {fn, args};
    TRY(stream_check(stream));
    REQUIRE_RT(fn != NULL);
    TRY(stream_resolve(stream, &resolved));
    if (report_subscribed(resolved, SUBSCRIBED_HOST_FUNCTIONS)) {
        return report_launch(resolved, SUBSCRIBED_HOST_FUNCTIONS, fn, args, true);
    }
    if (report_subscribed(resolved, SUBSCRIBED_REPORTS)) {
        return fail(ACL_ERROR_RT_STREAM_SUBSCRIBE,
                    "stream %u is subscribed by aclrtSubscribeReport", resolved->id);
    }
    atomic_store_explicit(&resolved->host_functions, true, memory_order_relaxed);
    return stream_submit(resolved, &host_function_task, &task, sizeof task);
}
