/* Executions of captured graphs in which a task has to wait for a task of another lane.
 *
 * An execution runs the tasks in the order of their capture, which respects every edge. But a task may
 * have to wait for a notify, a value or an event from outside the graph, which a task of another lane
 * will set. From such a task on, the one thread switches between the lanes and runs each as far as its
 * edges and its waits allow. Waits inside branches of conditional tasks are not considered.
 *
 * Thread rule: the stream's worker; a graph does not change while it runs. */
#include "graphs/capture.h"

#include <stdlib.h>

enum { LOOK_NS = 200000 };

typedef struct Progress {
    const Graph *graph;
    bool *done;    /* for each task: it has run */
    bool *met;     /* for each edge: it is met; once true, it stays true */
    bool *stopped; /* for each lane: its next task cannot run now; cleared at the start of each pass */
    size_t left;   /* number of tasks that have not run */
} Progress;

/* True if the lane's tasks with an index below `before` are done, and if those of the first `known`
 * edges that lead to the lane are met. */
static bool lane_reached(Progress *progress, uint32_t lane, size_t before, size_t known)
{
    const Graph *graph = progress->graph;
    for (size_t i = 0; i < before; i++) {
        if (graph->tasks[i]->lane == lane && !progress->done[i]) {
            return false;
        }
    }
    for (size_t k = 0; k < known; k++) {
        const GraphEdge *edge = &graph->edges[k];
        if (edge->to == lane && !progress->met[k]) {
            progress->met[k] = lane_reached(progress, edge->from, edge->before, edge->known);
            if (!progress->met[k]) {
                return false;
            }
        }
    }
    return true;
}

static bool task_may_run(Progress *progress, size_t index)
{
    const Graph *graph = progress->graph;
    const GraphTask *task = graph->tasks[index];
    size_t known = 0; /* number of edges made before the task; they are in the order of the capture */
    while (known < graph->edge_count && graph->edges[known].at <= index) {
        known++;
    }
    return lane_reached(progress, task->lane, index, known)
           && (task->disabled || task->task.sort->waits == NULL
               || !task->task.sort->waits(task_payload(&task->task)));
}

static aclError task_run(Progress *progress, Stream *stream, size_t index)
{
    const GraphTask *task = progress->graph->tasks[index];
    progress->done[index] = true;
    progress->left--;
    return task->disabled ? ACL_SUCCESS
                          : task->task.sort->run(stream, task_payload(&task->task));
}

/* Goes through all tasks once and runs each that can run now; *ran is true if any task ran. */
static aclError lanes_pass(Progress *progress, Stream *stream, bool *ran)
{
    const Graph *graph = progress->graph;
    *ran = false;
    for (uint32_t lane = 0; lane < graph->lane_count; lane++) {
        progress->stopped[lane] = false;
    }
    for (size_t i = 0; i < graph->count && !stream_is_dropping(stream); i++) {
        bool *stopped = &progress->stopped[graph->tasks[i]->lane];
        if (progress->done[i] || *stopped) {
            continue;
        }
        *stopped = !task_may_run(progress, i);
        if (!*stopped) {
            TRY(task_run(progress, stream, i));
            *ran = true;
        }
    }
    return ACL_SUCCESS;
}

/* If only one lane has tasks left, returns the index of its first task; else the number of tasks in the graph. */
static size_t only_task(const Progress *progress)
{
    const Graph *graph = progress->graph;
    size_t first = graph->count;
    for (size_t i = 0; i < graph->count; i++) {
        if (!progress->done[i] && first == graph->count) {
            first = i;
        } else if (!progress->done[i] && graph->tasks[i]->lane != graph->tasks[first]->lane) {
            return graph->count;
        }
    }
    return first;
}

static bool never(const void *argument)
{
    (void)argument;
    return false;
}

static aclError lanes_loop(Progress *progress, Stream *stream)
{
    while (progress->left != 0 && !stream_is_dropping(stream)) {
        bool ran;
        TRY(lanes_pass(progress, stream, &ran));
        size_t only = ran ? progress->graph->count : only_task(progress);
        if (only != progress->graph->count) {
            TRY(task_run(progress, stream, only)); /* the run function waits, with the time limit of the task */
        } else if (!ran) {
            (void)stream_park(stream, progress, never, NULL, now_ns() + LOOK_NS);
        }
    }
    return ACL_SUCCESS;
}

aclError graph_run_lanes(const Graph *graph, Stream *stream, size_t from)
{
    size_t flags = graph->count + graph->edge_count + graph->lane_count;
    bool *memory = calloc(flags, sizeof *memory);
    if (memory == NULL) {
        return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "out of host memory");
    }
    Progress progress = {.graph = graph, .done = memory, .met = memory + graph->count,
                         .stopped = memory + graph->count + graph->edge_count,
                         .left = graph->count - from};
    for (size_t i = 0; i < from; i++) {
        progress.done[i] = true;
    }
    aclError status = lanes_loop(&progress, stream);
    free(memory);
    return status;
}
