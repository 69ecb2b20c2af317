/* Listing a graph's streams and tasks, changing a task's parameters, and printing a graph.
 *
 * A task's handle is valid as long as its graph. A call that changes parameters has effect immediately;
 * aclmdlRIUpdate only checks that the graph may be changed.
 *
 * Thread rule: the graph's lock; a graph with a queued execution is refused (107037). */
#include "graphs/capture.h"
#include "generated/exports.h"

#include <stdio.h>
#include <string.h>

/* The object to which an aclmdlRITask points. */
typedef struct TaskHandle {
    Graph *graph;
    GraphTask *task;
} TaskHandle;

static aclError task_resolve(aclmdlRITask handle, Graph **graph, GraphTask **task)
{
    *graph = graph_of_part(handle, HANDLE_MODEL_RI_TASK);
    if (*graph == NULL) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is not a task of a live modelRI", handle);
    }
    *task = ((TaskHandle *)handle)->task;
    return ACL_SUCCESS;
}

/* ---- streams and tasks ----------------------------------------------------------------------- */

static aclError room_check(uint32_t have, uint32_t needed)
{
    if (have < needed) {
        return fail(ACL_ERROR_RT_INSUFFICIENT_INPUT_ARRAY, "the array has %u entries, expected at least %u", have,
                    needed);
    }
    return ACL_SUCCESS;
}

/* Gives the graph's streams. On input *numStreams is the array's length, on output the number of streams.
 * The array may be NULL. */
aclError sim_aclmdlRIGetStreams(aclmdlRI modelRI, aclrtStream *streams, uint32_t *numStreams)
{
    GRAPH_REF(graph);
    REQUIRE_RT(modelRI != NULL);
    REQUIRE_RT(numStreams != NULL);
    TRY(graph_resolve(modelRI, &graph));
    pthread_mutex_lock(&graph->lock);
    uint32_t room = *numStreams, count = graph->lane_count;
    for (uint32_t i = 0; streams != NULL && room >= count && i < count; i++) {
        streams[i] = graph->lanes[i].stream;
    }
    pthread_mutex_unlock(&graph->lock);
    *numStreams = count;
    return streams != NULL ? room_check(room, count) : ACL_SUCCESS;
}

/* Returns the task's handle; makes it if the task has none. NULL without memory. The graph's lock is held. */
static void *task_handle(Graph *graph, GraphTask *task)
{
    if (task->handle == NULL) {
        TaskHandle *made = handle_new(HANDLE_MODEL_RI_TASK, sizeof *made);
        if (made != NULL) {
            *made = (TaskHandle){graph, task};
            task->handle = made;
        }
    }
    return task->handle;
}

static aclError lane_tasks(Graph *graph, uint32_t lane, aclmdlRITask *tasks, uint32_t room,
                           uint32_t *count)
{
    aclError status = ACL_SUCCESS;
    *count = 0;
    pthread_mutex_lock(&graph->lock);
    for (size_t i = 0; i < graph->count && status == ACL_SUCCESS; i++) {
        if (graph->tasks[i]->lane != lane) {
            continue;
        }
        if (tasks != NULL && *count < room) {
            tasks[*count] = task_handle(graph, graph->tasks[i]);
            status = tasks[*count] != NULL ? ACL_SUCCESS : ACL_ERROR_RT_RESOURCE_ALLOC_FAIL;
        }
        ++*count;
    }
    pthread_mutex_unlock(&graph->lock);
    return status;
}

aclError sim_aclmdlRIGetTasksByStream(aclrtStream stream, aclmdlRITask *tasks, uint32_t *numTasks)
{
    STREAM_REF(resolved);
    uint32_t lane = 0, count;
    GRAPH_REF(graph);
    REQUIRE_RT(stream != NULL);
    REQUIRE_RT(numTasks != NULL);
    TRY(stream_resolve_any(stream, &resolved));
    graph = graph_of_stream(resolved, &lane);
    if (graph == NULL) {
        return fail(ACL_ERROR_RT_STREAM_MODEL, "stream %u does not belong to a modelRI", resolved->id);
    }
    TRY(lane_tasks(graph, lane, tasks, *numTasks, &count));
    uint32_t room = *numTasks;
    *numTasks = count;
    return tasks != NULL ? room_check(room, count) : ACL_SUCCESS;
}

/* Returns the type of the task. Reads it under the graph's lock, because an update may replace the task. */
static aclmdlRITaskType task_type(Graph *graph, const GraphTask *task)
{
    pthread_mutex_lock(&graph->lock);
    aclmdlRITaskType type = task->task.sort->type;
    pthread_mutex_unlock(&graph->lock);
    return type;
}

aclError sim_aclmdlRITaskGetType(aclmdlRITask task, aclmdlRITaskType *type)
{
    GRAPH_REF(graph);
    GraphTask *resolved;
    REQUIRE_RT(task != NULL);
    REQUIRE_RT(type != NULL);
    TRY(task_resolve(task, &graph, &resolved));
    *type = task_type(graph, resolved);
    return ACL_SUCCESS;
}

aclError sim_aclmdlRITaskGetSeqId(aclmdlRITask task, uint32_t *id)
{
    GRAPH_REF(graph);
    GraphTask *resolved;
    REQUIRE_RT(task != NULL);
    REQUIRE_RT(id != NULL);
    TRY(task_resolve(task, &graph, &resolved));
    pthread_mutex_lock(&graph->lock);
    *id = resolved->task.id;
    pthread_mutex_unlock(&graph->lock);
    return ACL_SUCCESS;
}

/* ---- parameters ------------------------------------------------------------------------------ */

aclError sim_aclmdlRITaskGetParams(aclmdlRITask task, aclmdlRITaskParams *params)
{
    GRAPH_REF(graph);
    GraphTask *resolved;
    REQUIRE_RT(task != NULL);
    REQUIRE_RT(params != NULL);
    TRY(task_resolve(task, &graph, &resolved));
    memset(params, 0, sizeof *params);
    pthread_mutex_lock(&graph->lock);
    const Task *inner = &resolved->task;
    params->type = inner->sort->type;
    if (inner->sort->describe != NULL) {
        inner->sort->describe(task_payload(inner), params);
    }
    pthread_mutex_unlock(&graph->lock);
    return ACL_SUCCESS;
}

static aclError task_adopt(const Graph *graph, Task *task, const aclmdlRITaskParams *params)
{
    TRY(graph_check_still(graph));
    REQUIRE_RT(params->type == task->sort->type);
    if (task->sort->adopt == NULL) {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT_UPDATE_OP,
                    "the parameters of a task '%s' cannot be changed", task->sort->name);
    }
    return task->sort->adopt(task->far != NULL ? task->far : task->near, params);
}

aclError sim_aclmdlRITaskSetParams(aclmdlRITask task, aclmdlRITaskParams *params)
{
    GRAPH_REF(graph);
    GraphTask *resolved;
    REQUIRE_RT(task != NULL);
    REQUIRE_RT(params != NULL);
    TRY(task_resolve(task, &graph, &resolved));
    pthread_mutex_lock(&graph->lock);
    aclError status = task_adopt(graph, &resolved->task, params);
    pthread_mutex_unlock(&graph->lock);
    return status;
}

aclError sim_aclmdlRIKernelTaskGetAttribute(aclmdlRITask task, aclrtLaunchKernelAttrId attrId,
                                            aclrtLaunchKernelAttrValue *attrValue)
{
    GRAPH_REF(graph);
    GraphTask *resolved;
    REQUIRE(task != NULL);
    REQUIRE(attrValue != NULL);
    TRY(task_resolve(task, &graph, &resolved));
    REQUIRE_RT(task_type(graph, resolved) == ACL_MODEL_RI_TASK_KERNEL);
    return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                "the simulator does not support setting launch attribute %d", (int)attrId);
}

aclError sim_aclmdlRITaskDisable(aclmdlRITask task)
{
    GRAPH_REF(graph);
    GraphTask *resolved;
    REQUIRE_RT(task != NULL);
    TRY(task_resolve(task, &graph, &resolved));
    pthread_mutex_lock(&graph->lock);
    aclError status = graph_check_still(graph);
    resolved->disabled = resolved->disabled || status == ACL_SUCCESS;
    pthread_mutex_unlock(&graph->lock);
    return status;
}

aclError sim_aclmdlRIUpdate(aclmdlRI modelRI)
{
    GRAPH_REF(graph);
    REQUIRE_RT(modelRI != NULL);
    TRY(graph_resolve(modelRI, &graph));
    return graph_check_still(graph);
}

/* ---- printing -------------------------------------------------------------------------------- */

/* Prints the name as the content of a JSON string, without the quotes. */
static void name_print(const char *name, FILE *to)
{
    for (; *name != '\0'; name++) {
        if (*name == '"' || *name == '\\') {
            fprintf(to, "\\%c", *name);
        } else if ((unsigned char)*name < ' ') {
            fprintf(to, "\\u%04x", (unsigned)*name);
        } else {
            fputc(*name, to);
        }
    }
}

static void graph_print(Graph *graph, FILE *to, bool verbose)
{
    pthread_mutex_lock(&graph->lock);
    fprintf(to, "{\"modelRI\": %u, \"name\": \"", graph->id);
    name_print(graph->name, to);
    fprintf(to, "\", \"streams\": %u, \"tasks\": [", graph->lane_count);
    for (size_t i = 0; i < graph->count; i++) {
        const GraphTask *entry = graph->tasks[i];
        fprintf(to, "%s\n  {\"id\": %u, \"stream\": %u, \"task\": \"%s\"", i == 0 ? "" : ",",
                entry->task.id, graph->lanes[entry->lane].stream_id, entry->task.sort->name);
        if (verbose) {
            fprintf(to, ", \"thread\": %u, \"disabled\": %s", entry->task.thread,
                    entry->disabled ? "true" : "false");
        }
        fprintf(to, "}");
    }
    fprintf(to, "\n]}\n");
    pthread_mutex_unlock(&graph->lock);
}

aclError sim_aclmdlRIDebugPrint(aclmdlRI modelRI)
{
    GRAPH_REF(graph);
    REQUIRE(modelRI != NULL);
    TRY(graph_resolve(modelRI, &graph));
    graph_print(graph, stdout, false);
    return ACL_SUCCESS;
}

aclError sim_aclmdlRIDebugJsonPrint(aclmdlRI modelRI, const char *path, uint32_t flags)
{
    GRAPH_REF(graph);
    REQUIRE(modelRI != NULL);
    REQUIRE(path != NULL);
    TRY(graph_resolve(modelRI, &graph));
    REQUIRE_RT(flags <= ACL_MDLRI_DEBUG_JSON_PRINT_VERBOSE);
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return fail(ACL_ERROR_RT_FILE_OPEN, "cannot write %.200s", path);
    }
    graph_print(graph, file, flags == ACL_MDLRI_DEBUG_JSON_PRINT_VERBOSE);
    if (fclose(file) != 0) {
        return fail(ACL_ERROR_RT_FILE_WRITE, "cannot write %.200s", path);
    }
    return ACL_SUCCESS;
}
