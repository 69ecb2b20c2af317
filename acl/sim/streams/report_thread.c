/* Callbacks that run on a thread of the user: subscribe, launch, process.
 *
 * A thread of the user subscribes streams. When a stream reaches a launched callback, the callback
 * is put into that thread's queue, and the thread runs it inside aclrtProcessReport.
 * aclrtSubscribeHostFunc does the same for host functions. A stream may have a subscription of each
 * kind.
 *
 * Thread rule: `lock` guards the list of threads, their queues and which thread subscribed a
 * stream.  It is not held while a callback runs. */
#include "streams/callback.h"
#include "generated/exports.h"
#include "base/fork.h"
#include "races/race.h"
#include "streams/stream.h"

#include <stdlib.h>

typedef struct ReportCall {
    struct ReportCall *next;
    Stream *stream;
    aclrtCallback function;
    void *argument;
    _Atomic int users; /* references: one of the queue, one of the task that waits */
    _Atomic bool done;
    bool blocks;       /* the stream's task waits for the call */
} ReportCall;

/* A thread that subscribed to one kind of callback. The record is never freed, because few threads subscribe. */
typedef struct Reporter {
    struct Reporter *next;
    uint64_t thread;
    Subscription sort;
    uint32_t streams;
    ReportCall *first, *last;
    _Atomic uint32_t queued;
} Reporter;

FILE_LOCK(lock);
static Reporter *reporters;

void reports_forked(void)
{
    reporters = NULL;
}

static void call_release(ReportCall *call)
{
    if (atomic_fetch_sub(&call->users, 1) == 1) {
        free(call);
    }
}

static void call_finish(ReportCall *call)
{
    atomic_store(&call->done, true);
    park_wake(call);
    call_release(call);
}

/* Returns the record of the thread for that kind, or NULL; the caller holds the lock. */
static Reporter *reporter_find(uint64_t thread, Subscription sort)
{
    Reporter *found = reporters;
    while (found != NULL && (found->thread != thread || found->sort != sort)) {
        found = found->next;
    }
    return found;
}

static Reporter *reporter_make(uint64_t thread, Subscription sort)
{
    Reporter *made = calloc(1, sizeof *made);
    if (made != NULL) {
        made->thread = thread;
        made->sort = sort;
        made->next = reporters;
        reporters = made;
    }
    return made;
}

bool report_subscribed(Stream *stream, Subscription sort)
{
    pthread_mutex_lock(&lock);
    bool subscribed = stream->subscribers[sort] != NULL;
    pthread_mutex_unlock(&lock);
    return subscribed;
}

/* Refuses a stream on which aclrtLaunchHostFunc was called: its host functions run on the runtime's
 * own thread, so no thread of the user can subscribe it. A NULL handle is accepted. */
static aclError served_check(aclrtStream handle)
{
    const Stream *stream = handle;
    TRY(stream_check(handle));
    if (stream != NULL && atomic_load_explicit(&stream->host_functions, memory_order_relaxed)) {
        return fail(ACL_ERROR_RT_STREAM_SUBSCRIBE, "stream %u already uses aclrtLaunchHostFunc: take another stream",
                    stream->id);
    }
    return ACL_SUCCESS;
}

static aclError report_subscribe(uint64_t thread, aclrtStream handle, Subscription sort)
{
    STREAM_REF(stream);
    aclError status = ACL_SUCCESS;
    TRY(stream_resolve_any(handle, &stream));
    pthread_mutex_lock(&lock);
    if (stream->subscribers[sort] != NULL) {
        status = fail(ACL_ERROR_RT_STREAM_SUBSCRIBE, "stream %u is subscribed already", stream->id);
    } else {
        Reporter *reporter = reporter_find(thread, sort);
        reporter = reporter != NULL ? reporter : reporter_make(thread, sort);
        stream->subscribers[sort] = reporter;
        if (reporter == NULL) {
            status = fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "out of host memory");
        } else {
            reporter->streams++;
        }
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* Takes all calls of the stream, or only the call `only`, out of the queue; the lock is held. */
static ReportCall *calls_withdraw(Reporter *reporter, const Stream *stream, const ReportCall *only)
{
    ReportCall *taken = NULL;
    ReportCall **link = &reporter->first;
    reporter->last = NULL;
    while (*link != NULL) {
        ReportCall *call = *link;
        if (call->stream == stream && (only == NULL || only == call)) {
            *link = call->next;
            call->next = taken;
            taken = call;
            atomic_fetch_sub(&reporter->queued, 1);
        } else {
            reporter->last = call;
            link = &call->next;
        }
    }
    return taken;
}

static ReportCall *subscription_end(Stream *stream, Subscription sort)
{
    Reporter *reporter = stream->subscribers[sort];
    stream->subscribers[sort] = NULL;
    reporter->streams--;
    return calls_withdraw(reporter, stream, NULL);
}

static void calls_finish(ReportCall *call)
{
    while (call != NULL) {
        ReportCall *next = call->next;
        call_finish(call);
        call = next;
    }
}

void report_stream_gone(Stream *stream)
{
    for (Subscription sort = 0; sort < SUBSCRIPTIONS; sort++) {
        pthread_mutex_lock(&lock);
        bool subscribed = stream->subscribers[sort] != NULL;
        ReportCall *withdrawn = subscribed ? subscription_end(stream, sort) : NULL;
        pthread_mutex_unlock(&lock);
        calls_finish(withdrawn);
    }
}

static aclError report_unsubscribe(uint64_t thread, aclrtStream handle, Subscription sort)
{
    STREAM_REF(stream);
    aclError status = ACL_SUCCESS;
    ReportCall *withdrawn = NULL;
    TRY(stream_resolve_any(handle, &stream));
    pthread_mutex_lock(&lock);
    if (reporter_find(thread, sort) == NULL) {
        status = fail(ACL_ERROR_RT_THREAD_SUBSCRIBE, "thread %llu has not subscribed to any stream",
                      (unsigned long long)thread);
    } else if (stream->subscribers[sort] == NULL || stream->subscribers[sort]->thread != thread) {
        status = fail(ACL_ERROR_RT_STREAM_SUBSCRIBE, "stream %u is not subscribed to by the given thread",
                      stream->id);
    } else {
        withdrawn = subscription_end(stream, sort);
    }
    pthread_mutex_unlock(&lock);
    calls_finish(withdrawn);
    return status;
}

/* ---- the stream's side ----------------------------------------------------------------------- */

typedef struct ReportTask {
    Subscription sort;
    aclrtCallback function;
    void *argument;
    bool blocks;
} ReportTask;

static bool call_is_done(const void *argument)
{
    const ReportCall *call = argument;
    return atomic_load(&call->done);
}

/* Queues a call for the thread that subscribed the stream; false if no thread subscribes it any more. */
static bool call_queue(Stream *stream, Subscription sort, ReportCall *call)
{
    pthread_mutex_lock(&lock);
    Reporter *reporter = stream->subscribers[sort];
    if (reporter != NULL) {
        if (reporter->first == NULL) {
            reporter->first = call;
        } else {
            reporter->last->next = call;
        }
        reporter->last = call;
        atomic_fetch_add(&reporter->queued, 1);
    }
    pthread_mutex_unlock(&lock);
    if (reporter != NULL) {
        park_wake(reporter);
    }
    return reporter != NULL;
}

/* Waits until the call has run; ends early if the stream drops the call before it has begun. */
static void call_wait(Stream *stream, Subscription sort, ReportCall *call)
{
    ReportCall *withdrawn = NULL;
    if (stream_park(stream, call, call_is_done, call, FOREVER)) {
        return;
    }
    pthread_mutex_lock(&lock);
    if (stream->subscribers[sort] != NULL) {
        withdrawn = calls_withdraw(stream->subscribers[sort], stream, call);
    }
    pthread_mutex_unlock(&lock);
    calls_finish(withdrawn);
    park_wait(call, call_is_done, call, FOREVER); /* the function runs already, so the call cannot be withdrawn */
}

static aclError report_run(Stream *stream, const void *payload)
{
    const ReportTask *task = payload;
    ReportCall *call = calloc(1, sizeof *call);
    if (call == NULL) {
        return ACL_ERROR_RT_RESOURCE_ALLOC_FAIL;
    }
    call->stream = stream;
    call->function = task->function;
    call->argument = task->argument;
    call->blocks = task->blocks;
    atomic_store(&call->users, 2);
    if (races_on()) {
        race_seen(stream);
    }
    if (!call_queue(stream, task->sort, call)) {
        free(call);
        return ACL_SUCCESS;
    }
    if (task->blocks) {
        call_wait(stream, task->sort, call);
        callback_waits(stream, false);
        if (races_on()) {
            race_take_host(stream);
        }
    }
    call_release(call);
    return ACL_SUCCESS;
}

static void report_touch(const void *payload, Touch *touch)
{
    if (((const ReportTask *)payload)->blocks) {
        touch_late(touch);
    } else {
        touch_marked(touch);
    }
}

static const TaskClass report_task = {.name = "callback", .run = report_run, .touch = report_touch};

aclError report_launch(Stream *stream, Subscription sort, aclrtCallback function, void *argument,
                       bool blocks)
{
    ReportTask task = {sort, function, argument, blocks};
    return stream_submit(stream, &report_task, &task, sizeof task);
}

aclError sim_aclrtLaunchCallback(aclrtCallback fn, void *userData, aclrtCallbackBlockType blockType,
                                 aclrtStream stream)
{
    STREAM_REF(resolved);
    REQUIRE(blockType == ACL_CALLBACK_NO_BLOCK || blockType == ACL_CALLBACK_BLOCK);
    TRY(stream_check(stream));
    REQUIRE_RT(fn != NULL);
    TRY(served_check(stream));
    TRY(stream_resolve(stream, &resolved));
    if (!report_subscribed(resolved, SUBSCRIBED_REPORTS)) {
        return fail(ACL_ERROR_RT_STREAM_NO_CB_REG,
            "stream %u has no subscribed thread: call aclrtSubscribeReport first",
                    resolved->id);
    }
    return report_launch(resolved, SUBSCRIBED_REPORTS, fn, userData, blockType == ACL_CALLBACK_BLOCK);
}

/* ---- the thread's side ----------------------------------------------------------------------- */

static bool calls_are_queued(const void *argument)
{
    const Reporter *reporter = argument;
    return atomic_load(&reporter->queued) != 0;
}

static ReportCall *call_take(Reporter *reporter)
{
    pthread_mutex_lock(&lock);
    ReportCall *call = reporter->first;
    if (call != NULL) {
        reporter->first = call->next;
        atomic_fetch_sub(&reporter->queued, 1);
        if (call->blocks) {
            callback_waits(call->stream, true);
        }
    }
    pthread_mutex_unlock(&lock);
    return call;
}

static aclError report_process(int32_t timeout, Subscription sort, const char *function)
{
    uint64_t self = (uint64_t)(uintptr_t)pthread_self();
    pthread_mutex_lock(&lock);
    Reporter *reporter = reporter_find(self, sort);
    bool subscribed = reporter != NULL && reporter->streams != 0;
    pthread_mutex_unlock(&lock);
    if (!subscribed) {
        return error_set(function, ACL_ERROR_RT_THREAD_SUBSCRIBE,
                         "this thread is subscribed to no stream");
    }
    int64_t deadline_ns = deadline_after_ms(timeout);
    ReportCall *call = NULL;
    while (call == NULL && park_wait(reporter, calls_are_queued, reporter, deadline_ns)) {
        call = call_take(reporter);
        if (call != NULL && call->blocks && stream_is_dropping(call->stream)) {
            call_finish(call); /* not called, because its stream was aborted */
            call = NULL;
        }
    }
    if (call == NULL) {
        return error_set(function, ACL_ERROR_RT_REPORT_TIMEOUT, "no callback within %d ms",
                         timeout);
    }
    call->function(call->argument);
    call_finish(call);
    return ACL_SUCCESS;
}

static aclError timeout_check(int32_t timeout, const char *function)
{
    if (timeout < -1 || timeout == 0) {
        return error_set(function, ACL_ERROR_INVALID_PARAM,
                         "timeout %d, expected -1 or more than 0", timeout);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtSubscribeReport(uint64_t threadId, aclrtStream stream)
{
    TRY(served_check(stream));
    return report_subscribe(threadId, stream, SUBSCRIBED_REPORTS);
}

aclError sim_aclrtUnSubscribeReport(uint64_t threadId, aclrtStream stream)
{
    TRY(served_check(stream));
    return report_unsubscribe(threadId, stream, SUBSCRIBED_REPORTS);
}

aclError sim_aclrtProcessReport(int32_t timeout)
{
    TRY(timeout_check(timeout, __func__));
    return report_process(timeout, SUBSCRIBED_REPORTS, __func__);
}

aclError sim_aclrtSubscribeHostFunc(uint64_t hostFuncThreadId, aclrtStream exeStream)
{
    return report_subscribe(hostFuncThreadId, exeStream, SUBSCRIBED_HOST_FUNCTIONS);
}

aclError sim_aclrtUnSubscribeHostFunc(uint64_t hostFuncThreadId, aclrtStream exeStream)
{
    return report_unsubscribe(hostFuncThreadId, exeStream, SUBSCRIBED_HOST_FUNCTIONS);
}

aclError sim_aclrtProcessHostFunc(int32_t timeout)
{
    TRY(timeout_check(timeout, __func__));
    return report_process(timeout, SUBSCRIBED_HOST_FUNCTIONS, __func__);
}
