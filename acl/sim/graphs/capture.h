/* Captured graphs (aclmdlRI): the interface for the files of this folder. */
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
    void *handle; /* the handle that aclmdlRIGetTasksByStream gave, or NULL */
} GraphTask;

/* A lane as an entry of its stream's list (graph_lanes.c). */
typedef struct GraphPart GraphPart;

/* A stream that takes part in a graph. A step is a task or a wait. */
typedef struct GraphLane {
    Stream *stream;
    uint32_t stream_id;
    uint32_t steps;  /* number of steps so far */
    uint32_t joined; /* number of the last step that another lane waited for */
    bool is_head;    /* in a built graph: runs when the graph is executed */
    GraphPart *part;
} GraphLane;

/* Lane `to` may run task `at` when two conditions hold: lane `from` has run its tasks before
 * `before`, and the edges to `from` among the first `known` edges are met. */
typedef struct GraphEdge {
    uint32_t to, from;
    size_t at, before, known;
} GraphEdge;

typedef struct DestroyCallback {
    struct DestroyCallback *next;
    aclrtCallback function;
    void *argument;
} DestroyCallback;

/* A stream that is executing a graph; lies on its worker's stack. */
typedef struct Execution {
    Stream *on;
    struct Execution *other;
} Execution;

typedef enum GraphState { GRAPH_CAPTURING, GRAPH_BUILDING, GRAPH_READY, GRAPH_INVALID } GraphState;

typedef struct Graph {
    uint64_t number; /* unique number, never 0 */
    uint32_t id;
    char name[128];
    Context *context;
    aclmdlRICaptureMode mode;
    bool is_built;   /* made by aclmdlRIBuildBegin, not captured */
    bool is_branch;  /* made with a conditional task; its handle ends with the task */
    pthread_t owner; /* the thread that began the capture */
    _Atomic GraphState state;
    _Atomic uint32_t users;   /* references: the handle, each queued execution, each call that uses the graph */
    _Atomic uint32_t running; /* executions queued and not done; raised from 0 only under the lock */
    pthread_mutex_t lock;     /* guards the fields below; taken after a stream's lock */
    GraphTask **tasks;
    size_t count, room;
    GraphLane *lanes;
    uint32_t lane_count;
    GraphEdge *edges; /* in the order of the capture */
    size_t edge_count, edge_room;
    uint32_t origin;         /* lane of the stream that the capture began with */
    struct Condition *conditions;
    struct TaskGroup *groups;
    struct Execution *executions; /* list of the executions that are running */
    struct Graph *next_capture; /* next in the list of open captures; guarded by graph_lanes.c's lock */
    DestroyCallback *on_destroy;
    struct RaceGraph *race; /* for the order checker */
} Graph;

/* Returns the capture that the stream takes part in, with a reference, or NULL. */
struct Graph *capture_of(Stream *stream);
/* graph_run.c: runs the tasks from that one on, with the lanes side by side. */
aclError graph_run_lanes(const Graph *graph, Stream *stream, size_t from);

/* graph_lanes.c */
/* Adds an edge; false without memory. The graph's lock is held. */
bool graph_edge(Graph *graph, GraphEdge edge);
void capture_enter(Graph *graph);
/* Ends a capture: its streams queue their tasks again. False if it had ended before. */
bool capture_leave(Graph *graph);
/* Returns an open capture for which fits() is true, with a reference; or NULL. */
Graph *capture_find(bool (*fits)(const Graph *graph, const void *argument), const void *argument);
/* Returns the stream's lane, which is made if needed; UINT32_MAX without memory. The graph's lock
 * is held. */
uint32_t graph_lane(Graph *graph, Stream *stream);
void graph_lanes_free(Graph *graph);
void graph_unbind(Graph *graph);
/* Returns the newest graph that the stream is part of, with a reference, and its lane there; or
 * NULL. */
Graph *graph_of_stream(Stream *stream, uint32_t *lane);
void stream_leave_graphs(Stream *stream);

/* graph_cond.c: conditions_begin is called at the start of an execution, conditions_end when the
 * graph ends. */
void conditions_begin(Graph *graph);
void conditions_end(Graph *graph);

/* graph_update.c */
/* The task takes the place of the next task of the group; the stream's lock is held. */
aclError group_replace(struct TaskGroup *group, const TaskClass *sort, const void *payload,
                       size_t size);
/* The stream no longer updates a group. */
void group_leave(Stream *stream);
void groups_end(Graph *graph);

/* graph.c */
aclError graph_new(Context *context, GraphState state, Graph **graph);
/* Gives the live graph of that handle with a reference; 107017 if there is none. It remains valid
 * until graph_release, even if another thread destroys it. Declare the variable as GRAPH_REF:
 * then the end of the scope releases the graph. */
aclError graph_resolve(aclmdlRI handle, Graph **graph);
bool graph_try_hold(Graph *graph);
/* Ends the graph's handle; false if that was done before. */
bool graph_end(Graph *graph);
void graph_release(Graph *graph);
void graph_ref_end(Graph **graph);
#define GRAPH_REF(name) Graph *name __attribute__((cleanup(graph_ref_end))) = NULL
/* Returns the graph of a part, with a reference; the part begins with a pointer to its graph.
 * NULL if the part is dead or of another kind. The part is valid as long as the reference is
 * held. */
Graph *graph_of_part(const void *part, HandleKind kind);
/* Appends a task; the graph's lock is held. */
aclError graph_push(Graph *graph, uint32_t lane, const TaskClass *sort, const void *payload,
                    size_t size);
/* Returns 107037 if an execution is queued; the graph's lock is held. */
aclError graph_check_still(const Graph *graph);
/* Counts an execution: until it ends, the graph's tasks cannot change. 107027 if the graph is not
 * complete. */
aclError graph_begin(Graph *graph);
void graph_finish(Graph *graph);
/* Runs the graph's tasks, on the stream's worker. */
aclError graph_execute(Graph *graph, Stream *on);
aclError graph_submit(Graph *graph, Stream *stream);

#endif
