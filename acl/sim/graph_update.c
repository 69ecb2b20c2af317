/* Task groups: tasks of a capture that can be replaced later by submitting others.
 *
 * Between aclmdlRICaptureTaskUpdateBegin and End, what is submitted to the stream replaces the
 * group's tasks one after another, each by one of its own sort.
 *
 * Thread rule: the stream's lock, then the graph's. */
#include "capture.h"
#include "exports.h"

typedef struct TaskGroup TaskGroup;

struct TaskGroup {
    Graph *graph;
    uint32_t lane;
    size_t first, end; /* positions in the graph */
    size_t next;       /* the task that the next submission replaces */
};

void groups_end(const Graph *graph)
{
    for (TaskGroup *g = handle_next(HANDLE_TASK_GROUP, NULL); g != NULL;
         g = handle_next(HANDLE_TASK_GROUP, g)) {
        if (g->graph == graph) {
            handle_retire(g);
        }
    }
}

static aclError capturing_resolve(aclrtStream handle, Stream **stream, Graph **graph)
{
    REQUIRE(handle != NULL);
    TRY(stream_resolve(handle, stream));
    *graph = atomic_load(&(*stream)->graph);
    if (!stream_is_capturing(*stream)) {
        return fail(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "stream %u is not being captured",
                    (*stream)->id);
    }
    return ACL_SUCCESS;
}

aclError sim_aclmdlRICaptureTaskGrpBegin(aclrtStream stream)
{
    Stream *on;
    Graph *graph;
    TRY(capturing_resolve(stream, &on, &graph));
    if (on->group != NULL && on->group->graph == graph) {
        return fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "a task group is open on stream %u",
                    on->id);
    }
    TaskGroup *group = handle_prepare(HANDLE_TASK_GROUP, sizeof *group);
    if (group == NULL) {
        return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "too many task groups");
    }
    pthread_mutex_lock(&graph->lock);
    group->graph = graph;
    group->lane = graph_lane(graph, on);
    group->first = graph->count;
    pthread_mutex_unlock(&graph->lock);
    handle_show(group);
    on->group = group;
    return ACL_SUCCESS;
}

aclError sim_aclmdlRICaptureTaskGrpEnd(aclrtStream stream, aclrtTaskGrp *handle)
{
    Stream *on;
    Graph *graph;
    REQUIRE(handle != NULL);
    TRY(capturing_resolve(stream, &on, &graph));
    TaskGroup *group = on->group;
    if (group == NULL || group->graph != graph) {
        return fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "no task group is open on stream %u",
                    on->id);
    }
    pthread_mutex_lock(&graph->lock);
    group->end = graph->count;
    pthread_mutex_unlock(&graph->lock);
    on->group = NULL;
    *handle = group;
    return ACL_SUCCESS;
}

aclError sim_aclmdlRICaptureTaskUpdateBegin(aclrtStream stream, aclrtTaskGrp handle)
{
    Stream *on;
    REQUIRE(stream != NULL);
    REQUIRE(handle != NULL);
    TRY(stream_resolve(stream, &on));
    TaskGroup *group = handle;
    if (!handle_is(group, HANDLE_TASK_GROUP) || !handle_is(group->graph, HANDLE_MODEL_RI)) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is no task group that lives", handle);
    }
    if (on->updating != NULL || atomic_load(&on->graph) != NULL) {
        return fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "stream %u is updating or captured",
                    on->id);
    }
    pthread_mutex_lock(&on->lock);
    group->next = group->first;
    on->updating = group;
    pthread_mutex_unlock(&on->lock);
    return ACL_SUCCESS;
}

/* The next task of the group's stream, or NULL. */
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

aclError sim_aclmdlRICaptureTaskUpdateEnd(aclrtStream stream)
{
    Stream *on;
    REQUIRE(stream != NULL);
    TRY(stream_resolve(stream, &on));
    pthread_mutex_lock(&on->lock);
    TaskGroup *group = on->updating;
    bool complete = group != NULL && group_next(group) == NULL;
    on->updating = NULL;
    pthread_mutex_unlock(&on->lock);
    if (group == NULL) {
        return fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "stream %u is not updating", on->id);
    }
    return complete ? ACL_SUCCESS
                    : fail(ACL_ERROR_STREAM_TASK_GROUP_INTR, "tasks of the group were left out");
}

aclError group_replace(TaskGroup *group, const TaskClass *sort, const void *payload, size_t size)
{
    Graph *graph = group->graph;
    Task fresh;
    if (atomic_load(&graph->running) != 0) {
        return fail(ACL_ERROR_RT_MODEL_RUNNING, "modelRI %u is being executed", graph->id);
    }
    GraphTask *old = group_next(group);
    if (old == NULL) {
        return fail(ACL_ERROR_STREAM_TASK_GROUP_STATUS, "more tasks than the group has");
    }
    if (old->task.sort != sort) {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT_UPDATE_OP,
                    "a task '%s' cannot take the place of a task '%s'", sort->name,
                    old->task.sort->name);
    }
    TRY(task_fill(&fresh, sort, payload, size));
    fresh.id = old->task.id;
    pthread_mutex_lock(&graph->lock);
    task_drop(&old->task);
    old->task = fresh;
    pthread_mutex_unlock(&graph->lock);
    return ACL_SUCCESS;
}
