/* Captured graphs (aclmdlRI), as the files of this room see them. */
#ifndef SIM_CAPTURE_H
#define SIM_CAPTURE_H

#include "streams/capturing.h"
#include "streams/event.h"
#include "races/race.h"
#include "streams/stream.h"

typedef struct GraphTask {
    Task task;
    uint32_t lane;
    bool disabled;
    void *handle; /* what aclmdlRIGetTasksByStream gave out, or NULL */
} GraphTask;

/* A lane, as its stream's list has it (graph_lanes.c). */
typedef struct GraphPart GraphPart;

/* A stream that takes part.  A step is a task or a wait. */
typedef struct GraphLane {
    Stream *stream;
    uint32_t stream_id;
    uint32_t steps;  /* taken */
    uint32_t joined; /* of them, those that another lane waited for */
    bool is_head;    /* of a built graph: runs when it is executed */
    GraphPart *part;
} GraphLane;

/* Lane `to` continues with task `at` when lane `from` has done its tasks before `before`, and when
 * the edges of `from` among the first `known` are met. */
typedef struct GraphEdge {
    uint32_t to, from;
    size_t at, before, known;
} GraphEdge;

typedef struct DestroyCallback {
    struct DestroyCallback *next;
    aclrtCallback function;
    void *argument;
} DestroyCallback;

/* A stream that executes a graph just now; on its worker's stack. */
typedef struct Execution {
    Stream *on;
    struct Execution *other;
} Execution;

typedef enum GraphState { GRAPH_CAPTURING, GRAPH_BUILDING, GRAPH_READY, GRAPH_INVALID } GraphState;

typedef struct Graph {
    uint64_t number; /* never used twice, never 0 */
    uint32_t id;
    char name[128];
    Context *context;
    aclmdlRICaptureMode mode;
    bool is_built;   /* by aclmdlRIBuildBegin, not captured */
    bool is_branch;  /* made with a conditional task, whose end is the handle's, too */
    pthread_t owner; /* thread that began the capture */
    _Atomic GraphState state;
    _Atomic uint32_t users;   /* the handle, each queued execution, each call that looks at it */
    _Atomic uint32_t running; /* executions queued and not done; from 0 only under the lock */
    pthread_mutex_t lock;     /* guards the rest; taken after a stream's */
    GraphTask **tasks;
    size_t count, room;
    GraphLane *lanes;
    uint32_t lane_count;
    GraphEdge *edges; /* in the order of capture */
    size_t edge_count, edge_room;
    uint32_t origin;         /* lane of the stream that the capture began with */
    struct Condition *conditions;
    struct TaskGroup *groups;
    struct Execution *executions; /* that go on just now */
    struct Graph *next_capture; /* that is going on; guarded by graph_lanes.c's lock */
    DestroyCallback *on_destroy;
    struct RaceGraph *race; /* the order checker's */
} Graph;

/* The capture that the stream takes part in, held, or NULL. */
struct Graph *capture_of(Stream *stream);
/* graph_run.c: the tasks from that one on, lanes side by side. */
aclError graph_run_lanes(const Graph *graph, Stream *stream, size_t from);

/* graph_lanes.c */
/* False without memory; the graph's lock is held. */
bool graph_edge(Graph *graph, GraphEdge edge);
void capture_enter(Graph *graph);
/* False if it had ended before; else its streams queue their tasks again. */
bool capture_leave(Graph *graph);
/* A capture that is going on and for which fits() is true, held; or NULL. */
Graph *capture_find(bool (*fits)(const Graph *graph, const void *argument), const void *argument);
/* The stream's lane, made if need be; UINT32_MAX without memory.  The graph's lock is held. */
uint32_t graph_lane(Graph *graph, Stream *stream);
void graph_lanes_free(Graph *graph);
void graph_unbind(Graph *graph);
/* The youngest graph that the stream is part of, held, and as which lane; or NULL. */
Graph *graph_of_stream(Stream *stream, uint32_t *lane);
void stream_leave_graphs(Stream *stream);

/* graph_cond.c: at the start of an execution, and with the graph's end. */
void conditions_begin(Graph *graph);
void conditions_end(Graph *graph);

/* graph_update.c */
/* Takes the place of the group's next task; the stream's lock is held. */
aclError group_replace(struct TaskGroup *group, const TaskClass *sort, const void *payload,
                       size_t size);
/* The stream updates no group any more. */
void group_leave(Stream *stream);
void groups_end(Graph *graph);

/* graph.c */
aclError graph_new(Context *context, GraphState state, Graph **graph);
/* The live graph of that handle; 107017 if it is none.  It is held, even if another thread destroys
 * it, until graph_release: declare what takes it as GRAPH_REF, and the end of the block releases
 * it. */
aclError graph_resolve(aclmdlRI handle, Graph **graph);
bool graph_try_hold(Graph *graph);
/* Takes its handle away; false if that was done before. */
bool graph_end(Graph *graph);
void graph_release(Graph *graph);
void graph_ref_end(Graph **graph);
#define GRAPH_REF(name) Graph *name __attribute__((cleanup(graph_ref_end))) = NULL
/* The graph of a handle of one of its parts, which begins with a pointer to it: held; NULL if it is
 * not a live part of that kind.  As long as the graph is held, so does the part. */
Graph *graph_of_part(const void *part, HandleKind kind);
/* Appends; the graph's lock is held. */
aclError graph_push(Graph *graph, uint32_t lane, const TaskClass *sort, const void *payload,
                    size_t size);
/* 107037 if an execution is queued; the graph's lock is held. */
aclError graph_check_still(const Graph *graph);
/* Counts an execution, during which its tasks stay as they are; 107027 if it is not complete. */
aclError graph_begin(Graph *graph);
void graph_finish(Graph *graph);
/* Runs its tasks, on the stream's worker. */
aclError graph_execute(Graph *graph, Stream *on);
aclError graph_submit(Graph *graph, Stream *stream);

#endif
