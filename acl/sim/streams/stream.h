/* Streams, as the rooms see them. */
#ifndef SIM_STREAM_H
#define SIM_STREAM_H

#include "streams/callback.h"
#include "base/core.h"

enum { TASK_INLINE = 96, QUEUE_TASKS = 32, STREAM_PRIORITIES = 8, STREAM_IDS = 2048 };
enum { REASON_BYTES = 256 };

/* Streams that a graph or another stream starts: waiting for one returns at once. */
#define STREAM_SELF_RUNNING \
    (ACL_STREAM_PERSISTENT | ACL_STREAM_DEVICE_USE_ONLY | ACL_STREAM_CPU_SCHEDULE)

typedef struct Task {
    const TaskClass *sort;
    void *far;     /* the payload if it is too big for `near`; malloc'ed */
    uint32_t size; /* of the payload */
    uint32_t id;
    uint32_t thread; /* thread that submitted it */
    _Alignas(16) unsigned char near[TASK_INLINE];
} Task;

/* A part of a stream's queue.  The submitter fills a slot, then publishes it by `submitted`. */
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

    /* Tasks put in, and tasks done or dropped: the queue is empty when they are equal. */
    _Alignas(64) _Atomic uint64_t submitted;
    _Atomic uint64_t drop_until; /* tasks before this number are dropped */
    _Atomic bool closing;        /* the worker ends when the queue is empty */
    pthread_mutex_t lock;        /* guards what submitters change */
    TaskBlock *last;
    bool started;
    uint32_t next_task_id;
    struct TaskGroup *group;    /* open in a capture */
    struct TaskGroup *updating; /* not NULL: tasks replace its tasks */
    char reason[REASON_BYTES];  /* what the first failed task said */
    _Atomic(struct Graph *) graph; /* not NULL: tasks go into it; changed under the lock */
    struct GraphPart *parts;       /* in graphs; guarded by graph_lanes.c's lock */

    _Alignas(64) _Atomic uint64_t completed;
    _Atomic aclError status;       /* of the first task that failed */
    _Atomic bool in_callback;      /* the running task is in a user's function */
    _Atomic int leavers;           /* threads done with it: the worker, and the one that ends it */
    _Atomic uintptr_t parked;      /* key that the running task waits on */
    TaskBlock *first;              /* the worker's end of the queue */
    struct RaceThread *race;       /* the order checker's, or NULL; guarded by its lock */

    _Alignas(64) _Atomic uint64_t failure_mode;
    struct Reporter *subscribers[SUBSCRIPTIONS]; /* whose threads run what; report_thread.c's lock */
    atomic_bool host_functions; /* aclrtLaunchHostFunc was called: no subscription any more */
    _Atomic uint32_t overflow_switch;
    _Atomic uint32_t user_tag;
    _Atomic uint32_t cache_op_info;
};

typedef enum StreamEnd {
    STREAM_END_DRAINED, /* after all its tasks */
    STREAM_END_NOW      /* what is queued is dropped; only a running task is waited for */
} StreamEnd;

aclError stream_new(Context *context, uint32_t priority, uint32_t flags, Stream **stream);
/* As stream_new, in a context that another thread may destroy: then the stream is destroyed with
 * it, or refused. It is held: for STREAM_REF. */
aclError stream_open(Context *context, uint32_t priority, uint32_t flags, Stream **stream);
/* False if another thread ended it first. */
bool stream_end(Stream *stream, StreamEnd how);
/* For the worker at its end, and for stream_end. */
void stream_leave(Stream *stream);
/* Drops what is queued. */
void stream_abort(Stream *stream);
/* Ends the wait of the running task, if it is in one. */
void stream_stop(Stream *stream);
/* Drops the running task, which does not end meanwhile, and nothing behind it. */
void stream_skip(Stream *stream);
/* Until what is queued now is done; false at the deadline. */
bool stream_wait(const Stream *stream, int64_t deadline_ns);
/* Waits for all streams of a context. */
aclError streams_synchronize(const Context *context, int64_t deadline_ns);
/* Waits until all that they have queued is done, whatever came of it. */
void streams_drain(const Context *context);
aclError stream_synchronize_until(Stream *stream, int64_t deadline_ns);

/* Number of the last task that the calling thread submitted. */
uint32_t stream_last_task_id(void);

/* worker.c */
/* What stream_running says in this thread: for threads that run a stream's host functions. */
void stream_set_running(Stream *stream);
/* Puts a copy of the task in; the lock is held. */
aclError queue_push(Stream *stream, const TaskClass *sort, const void *payload, size_t size);
aclError task_fill(Task *task, const TaskClass *sort, const void *payload, size_t size);
void task_drop(Task *task);
static inline const void *task_payload(const Task *task)
{
    return task->far != NULL ? task->far : task->near;
}

/* report_thread.c */
/* Gives up the stream's subscription. */
void report_stream_gone(Stream *stream);

/* 107000, not remembered as the last error, for a timeout below -1. */
aclError timeout_check_sign(int32_t timeout, const char *function);

/* sysparam.c */
/* How long a stream waits for an event, as aclrtSetOpWaitTimeout said; 0: for ever. */
uint32_t op_wait_timeout_s(void);

/* context.c, device.c */
void context_make_current(Context *context);
aclError device_lost(int32_t device);

#endif
