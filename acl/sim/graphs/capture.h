/* Captured graphs (aclmdlRI): the interface for the files of this folder. */
#ifndef SIM_CAPTURE_H
#define SIM_CAPTURE_H

#include "streams/capturing.h"
#include "streams/event.h"
#include "races/race.h"
#include "streams/stream.h"

typedef struct GraphTask {
    Task task;
    uint32_t lane; /* index of its lane in the graph */
    bool disabled;
    void *handle; /* the handle that aclmdlRIGetTasksByStream returned, or NULL */
} GraphTask;

/* The entry of a lane in the list that its stream has (graph_lanes.c). */
typedef struct GraphPart GraphPart;

/* A lane: the tasks and waits of a graph that come from one stream. A step is a task or a wait. */
typedef struct GraphLane {
    Stream *stream;
    uint32_t stream_id;
    uint32_t steps;  /* number of steps so far */
    uint32_t joined; /* another lane has waited for the first `joined` steps */
    bool is_head;    /* only in a built graph: an execution of the graph runs this lane */
    GraphPart *part;
} GraphLane;

/* An edge: lane `to` may run its tasks from index `at` of the graph on when two conditions hold: lane
 * `from` has run its tasks with an index below `before`, and those of the graph's first `known` edges
 * that lead to lane `from` are met. */
typedef struct GraphEdge {
    uint32_t to, from;
    size_t at, before, known;
} GraphEdge;

typedef struct DestroyCallback {
    struct DestroyCallback *next;
    aclrtCallback function;
    void *argument;
} DestroyCallback;

/* A stream that is executing a graph; the struct lies on the stack of the stream's worker thread. */
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
    bool is_branch;  /* made by a conditional task for itself; its handle ends with the task */
    pthread_t owner; /* the thread that began the capture */
    _Atomic GraphState state;
    _Atomic uint32_t users;   /* number of references: the handle, each queued execution, each call that uses it */
    _Atomic uint32_t running; /* number of executions that are queued and not done; changed from 0 only under `lock` */
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
    struct Execution *executions; /* list of the executions that are running now */
    struct Graph *next_capture; /* next in the list of open captures; guarded by graph_lanes.c's lock */
    DestroyCallback *on_destroy;
    struct RaceGraph *race; /* for the order checker */
} Graph;

/* Returns the graph of the capture in which the stream takes part, with a reference; NULL if there is none. */
struct Graph *capture_of(Stream *stream);
/* Runs the tasks from index `from` on; while a task would have to wait, runs tasks of other lanes (graph_run.c). */
aclError graph_run_lanes(const Graph *graph, Stream *stream, size_t from);

/* Functions of graph_lanes.c. */
/* Adds an edge; false without memory. The graph's lock is held. */
bool graph_edge(Graph *graph, GraphEdge edge);
void capture_enter(Graph *graph);
/* Ends a capture: its streams queue their tasks again. False if the capture had ended before. */
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

/* Functions of graph_cond.c. conditions_begin is called at the start of an execution, conditions_end
 * when the graph ends. */
void conditions_begin(Graph *graph);
void conditions_end(Graph *graph);

/* Functions of graph_update.c. */
/* Replaces the next task of the group by the given task; the stream's lock is held. */
aclError group_replace(struct TaskGroup *group, const TaskClass *sort, const void *payload,
                       size_t size);
/* Ends the stream's update of a group, if it has one. */
void group_leave(Stream *stream);
void groups_end(Graph *graph);

/* Functions of graph.c. */
aclError graph_new(Context *context, GraphState state, Graph **graph);
/* Gives the graph of a handle, with a reference; 107017 if the handle is not live. The graph remains
 * valid until graph_release, even if another thread destroys it. A variable declared with GRAPH_REF
 * releases the graph at the end of its scope. */
aclError graph_resolve(aclmdlRI handle, Graph **graph);
bool graph_try_hold(Graph *graph);
/* Ends the graph's handle; false if that was done before. */
bool graph_end(Graph *graph);
void graph_release(Graph *graph);
void graph_ref_end(Graph **graph);
#define GRAPH_REF(name) Graph *name __attribute__((cleanup(graph_ref_end))) = NULL
/* Returns the graph to which an object with a handle of its own belongs (a task, group or condition),
 * with a reference. The object begins with a pointer to its graph, and remains valid as long as the
 * reference is held. NULL if the object is dead or of another kind. */
Graph *graph_of_part(const void *part, HandleKind kind);
/* Appends a task; the graph's lock is held. */
aclError graph_push(Graph *graph, uint32_t lane, const TaskClass *sort, const void *payload,
                    size_t size);
/* Returns 107037 if an execution is queued; the graph's lock is held. */
aclError graph_check_still(const Graph *graph);
/* Counts an execution: until graph_finish, the graph's tasks cannot change. 107026 if the graph is not
 * complete. */
aclError graph_begin(Graph *graph);
void graph_finish(Graph *graph);
/* Runs the graph's tasks, on the stream's worker. */
aclError graph_execute(Graph *graph, Stream *on);
aclError graph_submit(Graph *graph, Stream *stream);

#endif
