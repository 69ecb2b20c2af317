/* Streams: the interface for other folders of the simulator. */
#ifndef SIM_STREAM_H
#define SIM_STREAM_H

#include "streams/callback.h"
#include "base/core.h"

enum { TASK_INLINE = 96, QUEUE_TASKS = 32, STREAM_PRIORITIES = 8 };
enum { REASON_BYTES = 256 };

/* Flags of streams that a graph or another stream starts: waiting for such a stream returns at
 * once. */
#define STREAM_SELF_RUNNING \
    (ACL_STREAM_PERSISTENT | ACL_STREAM_DEVICE_USE_ONLY | ACL_STREAM_CPU_SCHEDULE)

typedef struct Task {
    const TaskClass *sort;
    void *far;     /* malloc'ed payload, if it is too big for `near` */
    uint32_t size; /* bytes of the payload */
    uint32_t id;
    uint32_t thread; /* kernel's id (gettid) of the thread that submitted it */
    _Alignas(16) unsigned char near[TASK_INLINE];
} Task;

/* A part of a stream's queue. The submitter fills a slot, then raises `submitted`, which makes
 * the slot visible. */
typedef struct TaskBlock {
    struct TaskBlock *next;
    Task tasks[QUEUE_TASKS];
} TaskBlock;

struct Graph;
struct GraphPart;
struct Reporter;
struct TaskGroup;

struct Stream {
    Context *context;
    int32_t device;
    uint32_t id;
    uint32_t flags;
    _Atomic uint32_t priority;

    /* Numbers of tasks submitted, and of tasks done or dropped: the queue is empty when they are
     * equal. */
    _Alignas(64) _Atomic uint64_t submitted;
    _Atomic uint64_t drop_until; /* tasks before this number are dropped */
    _Atomic bool closing;        /* the worker ends as soon as the queue is empty */
    pthread_mutex_t lock;        /* guards the fields that submitters change */
    TaskBlock *last;
    bool started;
    uint32_t next_task_id;
    struct TaskGroup *group;    /* the open task group in a capture */
    struct TaskGroup *updating; /* not NULL: new tasks replace the tasks of this group */
    char reason[REASON_BYTES];  /* message of the first task that failed */
    _Atomic(struct Graph *) graph; /* not NULL: tasks are put into this graph; changed under the lock */
    struct GraphPart *parts;       /* list of the stream's parts in graphs; guarded by graph_lanes.c's lock */

    _Alignas(64) _Atomic uint64_t completed;
    _Atomic aclError status;       /* status of the first task that failed */
    _Atomic bool in_callback;      /* the running task is in a user's function */
    _Atomic int leavers;           /* 1 when either the worker or the thread that ends the stream no longer needs it */
    _Atomic uintptr_t parked;      /* key of park_wait on which the running task waits; 0: it does not wait */
    TaskBlock *first;              /* oldest part of the queue, which the worker reads */
    struct RaceThread *race;       /* the order checker's state of this stream, or NULL; guarded by race_lock */

    _Alignas(64) _Atomic uint64_t failure_mode;
    struct Reporter *subscribers[SUBSCRIPTIONS]; /* the subscribed thread of each kind; guarded by report_thread.c's
                                                    lock */
    atomic_bool host_functions; /* aclrtLaunchHostFunc was called, so no thread can subscribe the stream any more */
    _Atomic uint32_t overflow_switch;
    _Atomic uint32_t user_tag;
    _Atomic uint32_t cache_op_info;
};

typedef enum StreamEnd {
    STREAM_END_DRAINED, /* the stream ends when all its tasks are done */
    STREAM_END_NOW      /* queued tasks are dropped; only a running task is waited for */
} StreamEnd;

aclError stream_new(Context *context, uint32_t priority, uint32_t flags, Stream **stream);
/* Makes a stream as stream_new does, in a context that another thread may destroy: then the
 * stream is refused, or destroyed with the context. The caller gets a reference, for STREAM_REF. */
aclError stream_open(Context *context, uint32_t priority, uint32_t flags, Stream **stream);
/* Ends the stream; false if another thread did so first. */
bool stream_end(Stream *stream, StreamEnd how);
/* Called once by the worker at its end, and once by stream_end. The second of these calls frees the stream. */
void stream_leave(Stream *stream);
/* Drops all queued tasks. */
void stream_abort(Stream *stream);
/* If the running task is in a wait, ends that wait. */
void stream_stop(Stream *stream);
/* Drops only the running task. The caller makes sure that the task does not end during the call. */
void stream_skip(Stream *stream);
/* Waits until the tasks that are queued now have run or were dropped; false if the deadline passed first. */
bool stream_wait(const Stream *stream, int64_t deadline_ns);
/* Waits for each stream of a context as stream_synchronize_until does, and returns the first status that is not
 * success. Returns 107030 without waiting if a capture forbids the calling thread to wait. */
aclError streams_synchronize(const Context *context, int64_t deadline_ns);
/* Waits until all queued tasks of the context's streams are done or dropped, and ignores
 * failures. */
void streams_drain(const Context *context);
aclError stream_synchronize_until(Stream *stream, int64_t deadline_ns);

/* Adds 1 to *count; false if it is already `most`. */
static inline bool count_take(_Atomic uint32_t *count, uint32_t most)
{
    uint32_t made = atomic_load(count);
    while (made < most) {
        if (atomic_compare_exchange_weak(count, &made, made + 1)) {
            return true;
        }
    }
    return false;
}

/* Returns how many more streams the device can have. */
uint32_t streams_available(int32_t device);

/* The last task that a thread submitted. */
typedef struct StreamSubmission {
    uint64_t tasks;     /* number of tasks that the thread has submitted; if 0, the other fields are not valid */
    uint32_t stream_id; /* id of the stream of the last of these tasks */
    uint32_t task_id;   /* number of the last of these tasks within its stream */
} StreamSubmission;
StreamSubmission stream_last_submission(void);

/* ---- worker.c -------------------------------------------------------------------------------- */
/* Sets what stream_running returns in this thread. Threads that run a stream's host functions call it. */
void stream_set_running(Stream *stream);
/* Copies the task into the queue; the lock is held. */
aclError queue_push(Stream *stream, const TaskClass *sort, const void *payload, size_t size);
aclError task_fill(Task *task, const TaskClass *sort, const void *payload, size_t size);
void task_drop(Task *task);
static inline const void *task_payload(const Task *task)
{
    return task->far != NULL ? task->far : task->near;
}

/* ---- report_thread.c ------------------------------------------------------------------------- */
/* Ends the stream's subscription. */
void report_stream_gone(Stream *stream);

/* Refuses a timeout below -1 with 107000, which does not become the thread's last error. */
aclError timeout_check_sign(int32_t timeout, const char *function);

/* ---- sysparam.c ------------------------------------------------------------------------------ */
/* The limit for a stream's wait for an event, set by aclrtSetOpWaitTimeout; 0: for ever. */
uint32_t op_wait_timeout_s(void);

/* ---- context.c, device.c --------------------------------------------------------------------- */
void context_make_current(Context *context);
aclError device_lost(int32_t device);

#endif
