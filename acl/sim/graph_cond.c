/* Conditional tasks of graphs: if, while and switch over other graphs.
 *
 * The condition is a number in device memory that kernels write; at the start of an execution it
 * gets its default value if the handle was made so.  The graphs that a conditional task runs are
 * held by it.
 *
 * Thread rule: as for graphs; the conditions of a graph live as long as it does. */
#include "capture.h"
#include "exports.h"

#include <stdlib.h>

typedef struct Condition {
    Graph *graph;
    uint64_t *value; /* device memory */
    uint32_t initial;
    bool assigns;
} Condition;

/* Device memory is got and given back by the memory part's own entry points. */
aclError sim_aclmdlRICondHandleCreate(aclmdlRI modelRI, uint32_t defaultLaunchValue,
                                      aclmdlRICondHandleFlag flag, aclmdlRICondHandle *handle)
{
    Graph *graph;
    void *memory;
    REQUIRE(modelRI != NULL);
    REQUIRE(handle != NULL);
    TRY(graph_resolve(modelRI, &graph));
    REQUIRE_RT((unsigned)flag <= ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT);
    Condition *made = handle_prepare(HANDLE_COND, sizeof *made);
    if (made == NULL) {
        return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "too many conditions");
    }
    aclError status = sim_aclrtMalloc(&memory, sizeof(uint64_t), ACL_MEM_MALLOC_NORMAL_ONLY);
    if (status != ACL_SUCCESS) {
        handle_retire(made);
        return status;
    }
    *made = (Condition){graph, memory, defaultLaunchValue, flag != 0};
    *(uint64_t *)memory_inner(memory, sizeof(uint64_t)) = defaultLaunchValue;
    handle_show(made);
    *handle = made;
    return ACL_SUCCESS;
}

static aclError condition_resolve(aclmdlRICondHandle handle, Condition **condition)
{
    if (!handle_is(handle, HANDLE_COND)) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is no condition that lives", handle);
    }
    *condition = handle;
    return ACL_SUCCESS;
}

aclError sim_aclmdlRICondHandleGetCondPtr(aclmdlRICondHandle handle, uint64_t **ptr)
{
    Condition *condition;
    REQUIRE(handle != NULL);
    REQUIRE(ptr != NULL);
    TRY(condition_resolve(handle, &condition));
    *ptr = condition->value;
    return ACL_SUCCESS;
}

static uint64_t condition_value(const Condition *condition)
{
    return atomic_load((_Atomic uint64_t *)memory_inner(condition->value, sizeof(uint64_t)));
}

void conditions_begin(const Graph *graph)
{
    for (Condition *c = handle_next(HANDLE_COND, NULL); c != NULL;
         c = handle_next(HANDLE_COND, c)) {
        if (c->graph == graph && c->assigns) {
            atomic_store((_Atomic uint64_t *)memory_inner(c->value, sizeof(uint64_t)), c->initial);
        }
    }
}

void conditions_end(const Graph *graph)
{
    for (Condition *c = handle_next(HANDLE_COND, NULL); c != NULL;
         c = handle_next(HANDLE_COND, c)) {
        if (c->graph == graph) {
            (void)sim_aclrtFree(c->value);
            handle_retire(c);
        }
    }
}

/* ---- the task -------------------------------------------------------------------------------- */

enum { BRANCHES_MAX = 64 };

typedef struct CondTask {
    Condition *condition;
    aclmdlRICondTaskType type;
    uint32_t count;
    Graph **branches; /* each held */
} CondTask;

static aclError cond_run(Stream *stream, const void *payload)
{
    const CondTask *task = payload;
    uint64_t value = condition_value(task->condition);
    switch (task->type) {
    case ACL_MODEL_RI_COND_TYPE_IF:
        if (value != 0) {
            return graph_execute(task->branches[0], stream);
        }
        return task->count > 1 ? graph_execute(task->branches[1], stream) : ACL_SUCCESS;
    case ACL_MODEL_RI_COND_TYPE_WHILE:
        while (value != 0 && !stream_is_dropping(stream)) {
            TRY(graph_execute(task->branches[0], stream));
            value = condition_value(task->condition);
        }
        return ACL_SUCCESS;
    default:
        return value < task->count ? graph_execute(task->branches[value], stream) : ACL_SUCCESS;
    }
}

static void cond_drop(void *payload)
{
    CondTask *task = payload;
    for (uint32_t i = 0; i < task->count; i++) {
        graph_release(task->branches[i]);
    }
    free(task->branches);
}

static const TaskClass cond_task = {.name = "condition", .run = cond_run, .drop = cond_drop};

static aclError cond_check(const aclmdlRICondTaskParams *params, Condition **condition)
{
    static const uint32_t most[] = {2, 1, BRANCHES_MAX};
    Graph *graph;
    TRY(condition_resolve(params->handle, condition));
    REQUIRE_RT((unsigned)params->type <= ACL_MODEL_RI_COND_TYPE_SWITCH);
    REQUIRE_RT(params->modelRIArray != NULL);
    REQUIRE_RT(params->size != 0 && params->size <= most[params->type]);
    for (uint32_t i = 0; i < params->size; i++) {
        TRY(graph_resolve(params->modelRIArray[i], &graph));
    }
    return ACL_SUCCESS;
}

aclError sim_aclmdlRIAddCondTask(aclmdlRICondTaskParams params, aclrtStream stream, uint32_t flags)
{
    Stream *on;
    Condition *condition;
    REQUIRE(params.handle != NULL);
    REQUIRE_RT(flags == 0);
    TRY(stream_resolve(stream, &on));
    TRY(cond_check(&params, &condition));
    if (atomic_load(&on->graph) == NULL) {
        return fail(ACL_ERROR_RT_STREAM_NOT_CAPTURED, "stream %u feeds no modelRI", on->id);
    }
    CondTask task = {condition, params.type, params.size, calloc(params.size, sizeof(Graph *))};
    if (task.branches == NULL) {
        return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "out of host memory");
    }
    for (uint32_t i = 0; i < params.size; i++) {
        task.branches[i] = params.modelRIArray[i];
        atomic_fetch_add(&task.branches[i]->users, 1);
    }
    aclError status = stream_submit(on, &cond_task, &task, sizeof task);
    if (status != ACL_SUCCESS) {
        cond_drop(&task);
    }
    return status;
}
