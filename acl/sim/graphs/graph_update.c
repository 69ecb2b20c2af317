/* Task groups: tasks of a captured graph that a program can replace later.
 *
 * Between aclmdlRICaptureTaskUpdateBegin and aclmdlRICaptureTaskUpdateEnd, each task that is submitted
 * to the stream replaces the next task of the group; it must be of the same kind as that task.
 *
 * Thread rule: the stream's lock, then the graph's. */
#include "graphs/capture.h"
#include "generated/exports.h"

#include <stdlib.h>

typedef struct TaskGroup TaskGroup;

struct TaskGroup {
    Graph *graph;
    uint32_t lane;
    size_t first, end; /* index of the group's first task in the graph; index of its last task + 1 */
    size_t next;       /* index from which the next task to replace is searched */
    TaskGroup *other;  /* next group of the same graph */
};

void groups_end(Graph *graph)
{
    while (graph->groups != NULL) {
        TaskGroup *group = graph->groups;
        graph->groups = group->other;
        handle_retire(group);
    }
}

static aclError capturing_resolve(aclrtStream handle, Stream **stream, Graph **graph)
{
    REQUIRE(handle != NULL);
    TRY(stream_resolve(handle, stream));
    *graph = capture_of(*stream);
    if (*graph == NULL) {
        return fail(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "stream %u is not being captured",
                    (*stream)->id);
    }
    return ACL_SUCCESS;
}

/* Opens a group on the stream; false if the stream has an open group or is not captured into the graph. The program
 * gets the group's handle when the group is closed. */
static bool group_open(Graph *graph, Stream *on, TaskGroup *group)
{
    pthread_mutex_lock(&on->lock);
    bool opens = on->group == NULL && atomic_load(&on->graph) == graph;
    if (opens) {
        pthread_mutex_lock(&graph->lock);
        *group = (TaskGroup){.graph = graph, .lane = graph_lane(graph, on),
                             .first = graph->count, .other = graph->groups};
        graph->groups = group;
        pthread_mutex_unlock(&graph->lock);
        on->group = group;
    }
    pthread_mutex_unlock(&on->lock);
    return opens;
}

aclError sim_aclmdlRICaptureTaskGrpBegin(aclrtStream stream)
{
    STREAM_REF(on);
    GRAPH_REF(graph);
    TRY(capturing_resolve(stream, &on, &graph));
    TaskGroup *group = handle_prepare(HANDLE_TASK_GROUP, sizeof *group);
    if (group == NULL) {
        return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "too many task groups");
    }
    if (!group_open(graph, on, group)) {
        handle_retire(group);
        return fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "a task group is open on stream %u",
                    on->id);
    }
    return ACL_SUCCESS;
}

aclError sim_aclmdlRICaptureTaskGrpEnd(aclrtStream stream, aclrtTaskGrp *handle)
{
    STREAM_REF(on);
    GRAPH_REF(graph);
    REQUIRE(handle != NULL);
    TRY(capturing_resolve(stream, &on, &graph));
    pthread_mutex_lock(&on->lock);
    TaskGroup *group = on->group;
    if (group != NULL) {
        pthread_mutex_lock(&graph->lock);
        group->end = graph->count;
        pthread_mutex_unlock(&graph->lock);
        handle_show(group);
        on->group = NULL;
    }
    pthread_mutex_unlock(&on->lock);
    if (group == NULL) {
        return fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "no task group is open on stream %u",
                    on->id);
    }
    *handle = group;
    return ACL_SUCCESS;
}

/* Begins the update of the group by the stream, which has a reference to the graph until the update
 * ends. False if the stream is updating another group, is captured or is being destroyed. */
static bool group_enter(Stream *on, TaskGroup *group, Graph *graph)
{
    pthread_mutex_lock(&on->lock);
    bool enters = on->updating == NULL && atomic_load(&on->graph) == NULL
                  && !atomic_load(&on->closing) && graph_try_hold(graph);
    if (enters) {
        group->next = group->first;
        on->updating = group;
    }
    pthread_mutex_unlock(&on->lock);
    return enters;
}

void group_leave(Stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    TaskGroup *group = stream->updating;
    stream->updating = NULL;
    pthread_mutex_unlock(&stream->lock);
    if (group != NULL) {
        graph_release(group->graph);
    }
}

aclError sim_aclmdlRICaptureTaskUpdateBegin(aclrtStream stream, aclrtTaskGrp handle)
{
    STREAM_REF(on);
    GRAPH_REF(graph);
    REQUIRE(stream != NULL);
    REQUIRE(handle != NULL);
    TRY(stream_resolve(stream, &on));
    graph = graph_of_part(handle, HANDLE_TASK_GROUP);
    if (graph == NULL || !handle_is(graph, HANDLE_MODEL_RI)) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is not a live task group", handle);
    }
    if (!group_enter(on, handle, graph)) {
        return fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS,
            "stream %u is already updating a task group, or is being captured", on->id);
    }
    return ACL_SUCCESS;
}

/* Returns the next task of the group to replace; NULL after the last one. The graph's lock is held. */
static GraphTask *group_next(TaskGroup *group)
{
    while (group->next < group->end) {
        GraphTask *task = group->graph->tasks[group->next++];
        if (task->lane == group->lane) {
            return task;
        }
    }
    return NULL;
}

static bool group_is_through(TaskGroup *group)
{
    pthread_mutex_lock(&group->graph->lock); /* a capture may add tasks to the graph at the same time */
    bool through = group_next(group) == NULL;
    pthread_mutex_unlock(&group->graph->lock);
    return through;
}

aclError sim_aclmdlRICaptureTaskUpdateEnd(aclrtStream stream)
{
    STREAM_REF(on);
    REQUIRE(stream != NULL);
    TRY(stream_resolve(stream, &on));
    pthread_mutex_lock(&on->lock);
    TaskGroup *group = on->updating;
    bool complete = group != NULL && group_is_through(group);
    pthread_mutex_unlock(&on->lock);
    group_leave(on);
    if (group == NULL) {
        return fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "stream %u is not updating a task group", on->id);
    }
    return complete ? ACL_SUCCESS
                    : fail(ACL_ERROR_STREAM_TASK_GROUP_INTR, "the update has fewer tasks than the task group");
}

static aclError task_replace(TaskGroup *group, const TaskClass *sort, Task *fresh)
{
    TRY(graph_check_still(group->graph));
    GraphTask *old = group_next(group);
    if (old == NULL) {
        return fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "the update has more tasks than the task group");
    }
    if (old->task.sort != sort) {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT_UPDATE_OP,
                    "a task '%s' cannot replace a task '%s' of the task group", sort->name,
                    old->task.sort->name);
    }
    fresh->id = old->task.id;
    task_drop(&old->task);
    old->task = *fresh;
    return ACL_SUCCESS;
}

aclError group_replace(TaskGroup *group, const TaskClass *sort, const void *payload, size_t size)
{
    Graph *graph = group->graph;
    Task fresh;
    if (!handle_is(graph, HANDLE_MODEL_RI)) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "the group's modelRI %u was destroyed", graph->id);
    }
    TRY(task_fill(&fresh, sort, payload, size));
    pthread_mutex_lock(&graph->lock);
    aclError status = task_replace(group, sort, &fresh);
    pthread_mutex_unlock(&graph->lock);
    if (status != ACL_SUCCESS) {
        free(fresh.far);
    }
    return status;
}
