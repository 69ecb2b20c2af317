/* Conditional tasks of graphs: `if`, `while` and `switch` tasks, which run other graphs.
 *
 * The condition is a number in device memory that kernels write. If its handle was made with
 * ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT, each execution first sets it to its default value. The
 * graphs that a conditional task runs are its branches; the task has a reference to each. For a
 * branch the caller passes a graph; otherwise the task makes one, into which the caller captures.
 *
 * Thread rule: as for graphs; the conditions of a graph end with the graph. */
#include "graphs/capture.h"
#include "generated/exports.h"
#include "memory/memory.h"

#include <stdlib.h>

typedef struct Condition {
    Graph *graph;
    uint64_t *value; /* device address of the value */
    uint32_t initial;
    bool assigns;
    _Atomic uint32_t users;  /* number of references: its graph, and each conditional task of any graph that uses it */
    struct Condition *other; /* next condition of the same graph */
} Condition;

static void condition_release(Condition *condition)
{
    if (atomic_fetch_sub(&condition->users, 1) == 1) {
        (void)sim_aclrtFree(condition->value);
        handle_retire(condition);
    }
}

/* Sets the condition to its default value. Does nothing if the device's last reset has freed its memory. */
static void condition_assign(const Condition *condition)
{
    void *at = memory_at(condition->value, sizeof(uint64_t), true);
    if (at != NULL) {
        atomic_store((_Atomic uint64_t *)at, condition->initial);
    }
}

/* The condition's memory is allocated and freed by the simulator's own aclrtMalloc and aclrtFree. */
aclError sim_aclmdlRICondHandleCreate(aclmdlRI modelRI, uint32_t defaultLaunchValue,
                                      aclmdlRICondHandleFlag flag, aclmdlRICondHandle *handle)
{
    GRAPH_REF(graph);
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
    *made = (Condition){.graph = graph, .value = memory, .initial = defaultLaunchValue,
                        .assigns = flag != 0};
    atomic_init(&made->users, 1);
    condition_assign(made);
    pthread_mutex_lock(&graph->lock);
    made->other = graph->conditions;
    graph->conditions = made;
    pthread_mutex_unlock(&graph->lock);
    handle_show(made);
    *handle = made;
    return ACL_SUCCESS;
}

/* Gives the condition of a handle, and its graph with a reference; the condition is valid as long as
 * this reference is held. */
static aclError condition_resolve(aclmdlRICondHandle handle, Graph **graph, Condition **condition)
{
    *graph = graph_of_part(handle, HANDLE_COND);
    if (*graph == NULL) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is not a live condition", handle);
    }
    *condition = handle;
    return ACL_SUCCESS;
}

aclError sim_aclmdlRICondHandleGetCondPtr(aclmdlRICondHandle handle, uint64_t **ptr)
{
    GRAPH_REF(graph);
    Condition *condition;
    REQUIRE(handle != NULL);
    REQUIRE(ptr != NULL);
    TRY(condition_resolve(handle, &graph, &condition));
    *ptr = condition->value;
    return ACL_SUCCESS;
}

/* Reads the value of the condition. If the device's last reset has freed the memory, returns an error,
 * with which the stream fails. */
static aclError condition_value(const Condition *condition, const Stream *stream, uint64_t *value)
{
    void *at;
    TRY(memory_for_task(stream, "a condition", condition->value, sizeof *value, false, &at));
    *value = atomic_load((_Atomic uint64_t *)at);
    return ACL_SUCCESS;
}

void conditions_begin(Graph *graph)
{
    pthread_mutex_lock(&graph->lock);
    for (Condition *c = graph->conditions; c != NULL; c = c->other) {
        if (c->assigns) {
            condition_assign(c);
        }
    }
    pthread_mutex_unlock(&graph->lock);
}

void conditions_end(Graph *graph)
{
    while (graph->conditions != NULL) {
        Condition *condition = graph->conditions;
        graph->conditions = condition->other;
        (void)handle_kill(condition);
        condition_release(condition);
    }
}

/* ---- the task -------------------------------------------------------------------------------- */

enum { BRANCHES_MAX = 64 };

typedef struct CondTask {
    Condition *condition;
    aclmdlRICondTaskType type;
    uint32_t count;
    uint64_t made;    /* bit i: the task made branch i, which ends with the task */
    Graph **branches; /* `count` graphs; the task has a reference to each */
} CondTask;

/* Runs a branch. This counts as an execution of the branch, so that no call changes its tasks. */
static aclError branch_run(Graph *branch, Stream *stream)
{
    TRY(graph_begin(branch));
    aclError status = graph_execute(branch, stream);
    graph_finish(branch);
    return status;
}

static aclError cond_run(Stream *stream, const void *payload)
{
    const CondTask *task = payload;
    uint64_t value;
    TRY(condition_value(task->condition, stream, &value));
    switch (task->type) {
    case ACL_MODEL_RI_COND_TYPE_IF:
        if (value != 0) {
            return branch_run(task->branches[0], stream);
        }
        return task->count > 1 ? branch_run(task->branches[1], stream) : ACL_SUCCESS;
    case ACL_MODEL_RI_COND_TYPE_WHILE:
        while (value != 0 && !stream_is_dropping(stream)) {
            TRY(branch_run(task->branches[0], stream));
            TRY(condition_value(task->condition, stream, &value));
        }
        return ACL_SUCCESS;
    default:
        return value < task->count ? branch_run(task->branches[value], stream) : ACL_SUCCESS;
    }
}

static void cond_drop(void *payload)
{
    CondTask *task = payload;
    for (uint32_t i = 0; i < task->count; i++) {
        if ((task->made >> i & 1) != 0) {
            (void)graph_end(task->branches[i]);
        }
        graph_release(task->branches[i]);
    }
    free(task->branches);
    condition_release(task->condition);
}

static void cond_touch(const void *payload, Touch *touch)
{
    (void)payload;
    touch_choice(touch);
}

static const TaskClass cond_task = {
    .name = "condition",
    .run = cond_run,
    .drop = cond_drop,
    .touch = cond_touch,
};

/* Held while a conditional task is added. Without it, two calls at the same time could make two graphs run each
   other. */
FILE_LOCK(adding);

/* True if `graph` is `target` or runs it as a branch; `adding` is held. */
static bool graph_reaches(Graph *graph, const Graph *target)
{
    bool reaches = graph == target;
    pthread_mutex_lock(&graph->lock);
    for (size_t i = 0; i < graph->count && !reaches; i++) {
        if (graph->tasks[i]->task.sort == &cond_task) {
            const CondTask *task = task_payload(&graph->tasks[i]->task);
            for (uint32_t k = 0; k < task->count && !reaches; k++) {
                reaches = graph_reaches(task->branches[k], target);
            }
        }
    }
    pthread_mutex_unlock(&graph->lock);
    return reaches;
}

static aclError cond_check(const aclmdlRICondTaskParams *params)
{
    static const uint32_t most[] = {2, 1, BRANCHES_MAX};
    REQUIRE_RT((unsigned)params->type <= ACL_MODEL_RI_COND_TYPE_SWITCH);
    REQUIRE_RT(params->modelRIArray != NULL);
    REQUIRE_RT(params->size != 0 && params->size <= most[params->type]);
    return ACL_SUCCESS;
}

/* True if the caller passes a graph for a branch. The array of handles is also an output: entries that
 * are not live graphs, and graphs that another conditional task has made, are ignored. */
static bool branch_is_given(aclmdlRI handle)
{
    return handle_is(handle, HANDLE_MODEL_RI) && !((const Graph *)handle)->is_branch;
}

static aclError branch_make(CondTask *task, Context *context)
{
    Graph **branch = &task->branches[task->count];
    TRY(graph_new(context, GRAPH_READY, branch));
    (*branch)->is_branch = true;
    (void)graph_try_hold(*branch);
    task->made |= UINT64_C(1) << task->count;
    return ACL_SUCCESS;
}

static aclError branch_take(CondTask *task, aclmdlRI handle, const Graph *parent)
{
    Graph **branch = &task->branches[task->count];
    TRY(graph_resolve(handle, branch));
    if (graph_reaches(*branch, parent)) {
        graph_release(*branch);
        return fail(ACL_ERROR_RT_MODEL_CAPTURED, "modelRI %u would run itself as a branch",
                    parent->id);
    }
    return ACL_SUCCESS;
}

/* Takes a reference to each branch that the caller passes, and makes all other branches; `adding` is held. */
static aclError branches_hold(CondTask *task, aclmdlRI *handles, const Graph *parent,
                              Context *context)
{
    uint32_t count = task->count;
    for (task->count = 0; task->count < count; task->count++) {
        aclmdlRI handle = handles[task->count];
        TRY(branch_is_given(handle) ? branch_take(task, handle, parent)
                                    : branch_make(task, context));
    }
    return ACL_SUCCESS;
}

static void branches_tell(const CondTask *task, aclmdlRI *handles)
{
    for (uint32_t i = 0; i < task->count; i++) {
        handles[i] = task->branches[i];
    }
}

static aclError cond_submit(Stream *on, const aclmdlRICondTaskParams *params, CondTask *task)
{
    pthread_mutex_lock(&adding);
    const Graph *parent = atomic_load(&on->graph);
    aclError status = branches_hold(task, params->modelRIArray, parent, on->context);
    if (status == ACL_SUCCESS) {
        status = stream_submit(on, &cond_task, task, sizeof *task);
    }
    if (status == ACL_SUCCESS) {
        branches_tell(task, params->modelRIArray);
    }
    pthread_mutex_unlock(&adding);
    return status;
}

aclError sim_aclmdlRIAddCondTask(aclmdlRICondTaskParams params, aclrtStream stream, uint32_t flags)
{
    STREAM_REF(on);
    GRAPH_REF(graph);
    Condition *condition;
    REQUIRE(params.handle != NULL);
    REQUIRE_RT(flags == 0);
    TRY(stream_resolve(stream, &on));
    TRY(condition_resolve(params.handle, &graph, &condition));
    TRY(cond_check(&params));
    if (atomic_load(&on->graph) == NULL) {
        return fail(ACL_ERROR_RT_STREAM_NOT_CAPTURED,
            "stream %u is not being captured and not bound to a modelRI", on->id);
    }
    CondTask task = {condition, params.type, params.size, 0,
                     calloc(params.size, sizeof(Graph *))};
    if (task.branches == NULL) {
        return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "out of host memory");
    }
    atomic_fetch_add(&condition->users, 1);
    aclError status = cond_submit(on, &params, &task);
    if (status != ACL_SUCCESS) {
        cond_drop(&task);
    }
    return status;
}
