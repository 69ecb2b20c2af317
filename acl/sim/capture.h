/* Captured graphs (aclmdlRI), as the spine's own files see them. */
#ifndef SIM_CAPTURE_H
#define SIM_CAPTURE_H

#include "event.h"
#include "stream.h"

typedef struct GraphTask {
    Task task;
    uint32_t lane;
    bool disabled;
    void *handle; /* what aclmdlRIGetTasksByStream gave out, or NULL */
} GraphTask;

/* A stream that takes part.  A step is a task or a wait. */
typedef struct GraphLane {
    Stream *stream;
    uint32_t stream_id;
    uint32_t steps;  /* taken */
    uint32_t joined; /* of them, those that another lane waited for */
    bool is_head;    /* of a built graph: runs when it is executed */
} GraphLane;

typedef struct DestroyCallback {
    struct DestroyCallback *next;
    aclrtCallback function;
    void *argument;
} DestroyCallback;

typedef enum GraphState { GRAPH_CAPTURING, GRAPH_BUILDING, GRAPH_READY, GRAPH_INVALID } GraphState;

typedef struct Graph {
    uint64_t number; /* never used twice, never 0 */
    uint32_t id;
    char name[128];
    Context *context;
    aclmdlRICaptureMode mode;
    bool is_built;   /* by aclmdlRIBuildBegin, not captured */
    pthread_t owner; /* thread that began the capture */
    _Atomic GraphState state;
    _Atomic uint32_t users;   /* the handle, and each queued execution */
    _Atomic uint32_t running; /* executions queued and not done */
    _Atomic(Stream *) runner; /* stream that executes it just now (the last, if several), or NULL */
    pthread_mutex_t lock;     /* guards the rest; taken after a stream's */
    GraphTask **tasks;
    size_t count, room;
    GraphLane *lanes; /* [0] is the stream that the capture began with */
    uint32_t lane_count;
    DestroyCallback *on_destroy;
} Graph;

bool stream_is_capturing(const Stream *stream);
/* 107027 if the stream is being captured. */
aclError capture_check_stream(const Stream *stream);
/* A record or wait inside a capture becomes an edge of the graph, not a task. */
aclError capture_record_event(Stream *stream, Event *event);
aclError capture_wait_event(Stream *stream, Event *event);
/* Puts a task into the stream's graph; the stream's lock is held. */
aclError capture_push(Stream *stream, Graph *graph, const TaskClass *sort, const void *payload,
                      size_t size);
/* A capture of that stream can never be completed. */
void capture_stream_gone(Stream *stream);
/* Waits with captures in other modes than relaxed are refused (107030). */
bool captures_are_active(void);

/* graph_cond.c: at the start of an execution, and with the graph's end. */
void conditions_begin(const Graph *graph);
void conditions_end(const Graph *graph);

/* graph_update.c */
/* Takes the place of the group's next task; the stream's lock is held. */
aclError group_replace(struct TaskGroup *group, const TaskClass *sort, const void *payload,
                       size_t size);
void groups_end(const Graph *graph);

/* graph.c */
aclError graph_new(Context *context, GraphState state, Graph **graph);
aclError graph_resolve(aclmdlRI handle, Graph **graph);
/* Appends; the graph's lock is held. */
aclError graph_push(Graph *graph, uint32_t lane, const TaskClass *sort, const void *payload,
                    size_t size);
/* The stream's lane, made if need be; UINT32_MAX without memory.  The graph's lock is held. */
uint32_t graph_lane(Graph *graph, Stream *stream);
/* Runs its tasks, on the stream's worker. */
aclError graph_execute(Graph *graph, Stream *on);
void graph_unbind(Graph *graph);
void graph_release(Graph *graph);
aclError graph_submit(Graph *graph, Stream *stream);

#endif
