/* A stream's queue, and the worker: the thread that runs the tasks in it.
 *
 * Submitters append under the stream's lock. The worker reads without it: a task is visible to it
 * when `submitted` counts the task. The first task starts the thread, which ends with the stream.
 *
 * Thread rule: queue_push under stream->lock; stream_park only in a running task; the other
 * functions that stream.h or core.h declares in any thread. */
#include "streams/callback.h"
#include "streams/exception.h"
#include "races/race.h"
#include "streams/stream.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Thread_local Stream *running;
static _Thread_local uint32_t own_thread;

static uint32_t thread_number(void)
{
    if (own_thread == 0) {
        own_thread = (uint32_t)syscall(SYS_gettid);
    }
    return own_thread;
}

Stream *stream_running(void)
{
    return running;
}

void stream_set_running(Stream *stream)
{
    running = stream;
}

aclError task_fill(Task *task, const TaskClass *sort, const void *payload, size_t size)
{
    task->far = NULL;
    if (size > TASK_INLINE) {
        task->far = malloc(size);
        if (task->far == NULL) {
            return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "out of host memory");
        }
    }
    task->sort = sort;
    task->thread = thread_number();
    task->size = (uint32_t)size;
    if (size != 0) {
        memcpy(task->far != NULL ? task->far : task->near, payload, size);
    }
    return ACL_SUCCESS;
}

void task_drop(Task *task)
{
    if (task->sort->drop != NULL) {
        task->sort->drop(task->far != NULL ? task->far : task->near);
    }
    free(task->far);
    task->far = NULL;
}

bool stream_is_dropping(const Stream *stream)
{
    return atomic_load(&stream->completed) < atomic_load(&stream->drop_until);
}

/* Keeps the first failure and its task's message for the thread that waits for the stream. */
static void failure_keep(Stream *stream, aclError status, const char *reason)
{
    aclError none = ACL_SUCCESS;
    pthread_mutex_lock(&stream->lock);
    if (atomic_compare_exchange_strong(&stream->status, &none, status)) {
        strcpy(stream->reason, reason);
    }
    pthread_mutex_unlock(&stream->lock);
}

static void task_do(Stream *stream, Task *task)
{
    bool stopped = (atomic_load_explicit(&stream->failure_mode, memory_order_relaxed) & 1) != 0
                   && atomic_load_explicit(&stream->status, memory_order_relaxed) != ACL_SUCCESS;
    uint64_t number = atomic_load_explicit(&stream->completed, memory_order_relaxed);
    if (races_on()) {
        race_begins(stream, number);
    }
    if (!stopped && !stream_is_dropping(stream)) {
        aclError status = task->sort->run(stream, task_payload(task));
        if (status != ACL_SUCCESS) {
            char reason[REASON_BYTES];
            error_take(reason, sizeof reason);
            exception_report(stream, task, status);
            failure_keep(stream, status, reason);
        }
    }
    if (races_on()) {
        race_ends(stream, number);
    }
    task_drop(task);
}

static bool work_is_there(const void *argument)
{
    const Stream *stream = argument;
    return atomic_load(&stream->submitted) != atomic_load_explicit(&stream->completed,
                                                                   memory_order_relaxed)
           || atomic_load(&stream->closing);
}

static void *stream_work(void *argument)
{
    Stream *stream = argument;
    char name[16];
    snprintf(name, sizeof name, "acl-stream-%u", stream->id % 10000);
    pthread_setname_np(pthread_self(), name);
    running = stream;
    for (;;) {
        uint64_t done = atomic_load_explicit(&stream->completed, memory_order_relaxed);
        park_wait(&stream->submitted, work_is_there, stream, FOREVER);
        if (atomic_load_explicit(&stream->submitted, memory_order_acquire) == done) {
            break;
        }
        task_do(stream, &stream->first->tasks[done % QUEUE_TASKS]);
        if ((done + 1) % QUEUE_TASKS == 0) {
            TaskBlock *empty = stream->first;
            stream->first = empty->next;
            free(empty);
        }
        order_release(&stream->completed);
        atomic_store_explicit(&stream->completed, done + 1, memory_order_release);
        park_wake(&stream->completed);
    }
    free(stream->first);
    running = NULL;
    race_stream_gone(stream);
    stream_leave(stream);
    return NULL;
}

int thread_start(void *(*work)(void *), void *argument)
{
    sigset_t all, before;
    pthread_attr_t detached;
    pthread_t thread;
    sigfillset(&all);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, &detached, work, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    return error;
}

static aclError worker_start(Stream *stream)
{
    stream->first = stream->last = calloc(1, sizeof(TaskBlock));
    int error = stream->first != NULL ? thread_start(stream_work, stream) : ENOMEM;
    if (error != 0) {
        free(stream->first);
        return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "no thread for the stream: %s",
                    strerror(error));
    }
    stream->started = true;
    return ACL_SUCCESS;
}

aclError queue_push(Stream *stream, const TaskClass *sort, const void *payload, size_t size)
{
    uint64_t number = atomic_load_explicit(&stream->submitted, memory_order_relaxed);
    TaskBlock *next = NULL;
    if (!stream->started) {
        TRY(worker_start(stream));
    }
    if ((number + 1) % QUEUE_TASKS == 0) {
        next = calloc(1, sizeof *next);
        if (next == NULL) {
            return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "out of host memory");
        }
    }
    Task *task = &stream->last->tasks[number % QUEUE_TASKS];
    aclError status = task_fill(task, sort, payload, size);
    if (status != ACL_SUCCESS) {
        free(next);
        return status;
    }
    task->id = stream->next_task_id;
    if (next != NULL) {
        stream->last->next = next;
        stream->last = next;
    }
    order_release(&stream->submitted);
    atomic_store(&stream->submitted, number + 1);
    park_wake(&stream->submitted);
    return ACL_SUCCESS;
}

typedef struct ParkInTask {
    const Stream *stream;
    ParkReady ready;
    const void *argument;
    bool is_ready; /* result of the last check, which is not repeated: it may take a notify's bit */
} ParkInTask;

static bool ready_or_aborted(const void *argument)
{
    ParkInTask *wait = (ParkInTask *)(uintptr_t)argument;
    wait->is_ready = wait->ready(wait->argument);
    return wait->is_ready || stream_is_dropping(wait->stream);
}

bool stream_park(Stream *stream, const void *key, ParkReady ready, const void *argument,
                 int64_t deadline_ns)
{
    ParkInTask wait = {stream, ready, argument, false};
    atomic_store(&stream->parked, (uintptr_t)key);
    park_wait(key, ready_or_aborted, &wait, deadline_ns);
    atomic_store(&stream->parked, 0);
    return wait.is_ready;
}
