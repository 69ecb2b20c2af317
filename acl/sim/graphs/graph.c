/* Graphs: tasks recorded by a capture or a build, which can be executed any number of times.
 *
 * The tasks are kept in the order in which they were recorded. This order respects every edge,
 * because an event is recorded before a stream waits for it. So an execution runs the tasks one after
 * another on one stream; it switches between lanes only if a task would have to wait (graph_run.c).
 *
 * Thread rule: `graph->lock` guards the tasks while they are recorded; a ready graph's tasks do
 * not change while an execution is queued. A function that uses a pointer to a graph holds a
 * reference. */
#include "graphs/build_graph.h"
#include "generated/exports.h"

#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t next_number = 1;

aclError graph_new(Context *context, GraphState state, Graph **out)
{
    Graph *graph = handle_prepare(HANDLE_MODEL_RI, sizeof *graph);
    if (graph == NULL) {
        return fail(ACL_ERROR_RT_NO_MODEL_RESOURCE, "too many graphs");
    }
    graph->number = atomic_fetch_add(&next_number, 1);
    graph->id = (uint32_t)graph->number;
    graph->context = context;
    graph->is_built = state == GRAPH_BUILDING;
    graph->owner = pthread_self();
    atomic_store(&graph->state, state);
    atomic_store(&graph->users, 1);
    pthread_mutex_init(&graph->lock, NULL);
    *out = graph;
    handle_show(graph);
    return ACL_SUCCESS;
}

bool graph_try_hold(Graph *graph)
{
    uint32_t users = atomic_load(&graph->users);
    while (users != 0 && !atomic_compare_exchange_weak(&graph->users, &users, users + 1)) {
    }
    return users != 0;
}

void graph_ref_end(Graph **graph)
{
    if (*graph != NULL) {
        graph_release(*graph);
    }
}

aclError graph_resolve(aclmdlRI handle, Graph **graph)
{
    Graph *found = handle;
    bool held = false;
    if (handle_follow(found, HANDLE_MODEL_RI)) {
        held = graph_try_hold(found);
        handle_drop(found);
    }
    if (!held) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is not a live modelRI", handle);
    }
    *graph = found;
    return ACL_SUCCESS;
}

/* The handle of a graph's part dies before the slot of the graph is used again. So if the handle is
 * still live after a reference to the graph was taken, the part belongs to that graph. */
Graph *graph_of_part(const void *part, HandleKind kind)
{
    if (!handle_follow(part, kind)) {
        return NULL;
    }
    Graph *graph = *(Graph *const *)part;
    bool held = graph_try_hold(graph);
    if (held && !handle_is(part, kind)) {
        graph_release(graph);
        held = false;
    }
    handle_drop(part);
    return held ? graph : NULL;
}

aclError graph_push(Graph *graph, uint32_t lane, const TaskClass *sort, const void *payload,
                    size_t size)
{
    if (graph->count == graph->room) {
        size_t room = graph->room == 0 ? 16 : graph->room * 2;
        GraphTask **more = realloc(graph->tasks, room * sizeof *more);
        if (more == NULL) {
            return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "out of host memory");
        }
        graph->tasks = more;
        graph->room = room;
    }
    GraphTask *made = aligned_alloc(16, sizeof *made);
    if (made == NULL) {
        return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "out of host memory");
    }
    memset(made, 0, sizeof *made);
    aclError status = task_fill(&made->task, sort, payload, size);
    if (status != ACL_SUCCESS) {
        free(made);
        return status;
    }
    made->lane = lane;
    made->task.id = (uint32_t)graph->count;
    graph->lanes[lane].steps++;
    graph->tasks[graph->count++] = made;
    if (races_on()) {
        race_captured_task(graph, lane);
    }
    return ACL_SUCCESS;
}

static void graph_free(Graph *graph)
{
    conditions_end(graph);
    groups_end(graph);
    race_graph_gone(graph);
    for (size_t i = 0; i < graph->count; i++) {
        GraphTask *task = graph->tasks[i];
        task_drop(&task->task);
        if (task->handle != NULL) {
            handle_retire(task->handle);
        }
        free(task);
    }
    free(graph->tasks);
    graph_lanes_free(graph);
    while (graph->on_destroy != NULL) {
        DestroyCallback *next = graph->on_destroy->next;
        free(graph->on_destroy);
        graph->on_destroy = next;
    }
    handle_retire(graph);
}

void graph_release(Graph *graph)
{
    if (atomic_fetch_sub(&graph->users, 1) == 1) {
        graph_free(graph);
    }
}

/* ---- execution ------------------------------------------------------------------------------- */

/* The longest time that aclmdlRIDestroy waits for queued executions, as in the runtime. */
enum { DESTROY_PATIENCE_MS = 10000 };

static bool graph_is_still(const void *argument)
{
    return atomic_load(&((const Graph *)argument)->running) == 0;
}

aclError graph_check_still(const Graph *graph)
{
    if (atomic_load(&graph->running) != 0) {
        return fail(ACL_ERROR_RT_MODEL_RUNNING, "modelRI %u is being executed", graph->id);
    }
    return ACL_SUCCESS;
}

/* Counts an execution; 107026 if the graph is not complete. The caller holds the graph's lock. */
static aclError running_raise(Graph *graph)
{
    if (atomic_load(&graph->state) != GRAPH_READY) {
        return fail(ACL_ERROR_RT_MODEL_CAPTURED, "modelRI %u is not complete", graph->id);
    }
    atomic_fetch_add(&graph->running, 1);
    return ACL_SUCCESS;
}

aclError graph_begin(Graph *graph)
{
    pthread_mutex_lock(&graph->lock);
    aclError status = running_raise(graph);
    pthread_mutex_unlock(&graph->lock);
    return status;
}

/* Counts an execution of a graph given by its handle, which another thread may have destroyed
 * after it was resolved. */
static aclError handle_begin(Graph *graph)
{
    pthread_mutex_lock(&graph->lock);
    aclError status = handle_is(graph, HANDLE_MODEL_RI)
                          ? running_raise(graph)
                          : fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is not a live modelRI",
                                 (void *)graph);
    pthread_mutex_unlock(&graph->lock);
    return status;
}

void graph_finish(Graph *graph)
{
    atomic_fetch_sub(&graph->running, 1);
    park_wake(&graph->running);
}

static aclError captured_run(const Graph *graph, Stream *stream)
{
    for (size_t i = 0; i < graph->count && !stream_is_dropping(stream); i++) {
        const GraphTask *task = graph->tasks[i];
        const void *payload = task_payload(&task->task);
        if (task->disabled) {
            continue;
        }
        if (graph->edge_count != 0 && task->task.sort->waits != NULL
            && task->task.sort->waits(payload)) {
            return graph_run_lanes(graph, stream, i);
        }
        TRY(task->task.sort->run(stream, payload));
    }
    return ACL_SUCCESS;
}

static void execution_enter(Graph *graph, Execution *self)
{
    pthread_mutex_lock(&graph->lock);
    self->other = graph->executions;
    graph->executions = self;
    pthread_mutex_unlock(&graph->lock);
}

static void execution_leave(Graph *graph, const Execution *self)
{
    pthread_mutex_lock(&graph->lock);
    Execution **link = &graph->executions;
    while (*link != self) {
        link = &(*link)->other;
    }
    *link = self->other;
    pthread_mutex_unlock(&graph->lock);
}

/* The depth is limited, because a graph can run other graphs as branches of conditional tasks. */
aclError graph_execute(Graph *graph, Stream *on)
{
    enum { DEPTH_MAX = 64 };
    static _Thread_local int depth;
    if (depth == DEPTH_MAX) {
        return fail(ACL_ERROR_RT_OVER_LIMIT, "modelRI %u: branches are nested %d deep, which is the maximum",
                    graph->id, depth);
    }
    Execution self = {.on = on};
    depth++;
    conditions_begin(graph);
    execution_enter(graph, &self);
    aclError status = graph->is_built ? built_run(graph, on) : captured_run(graph, on);
    execution_leave(graph, &self);
    depth--;
    return status;
}

/* A queued execution. */
typedef struct Launch {
    Graph *graph;
    EventBounds *bounds; /* NULL: no task is bound */
} Launch;

static aclError graph_run(Stream *stream, const void *payload)
{
    const Launch *launch = payload;
    const EventBounds *before = event_bounds_use(launch->bounds);
    aclError status = graph_execute(launch->graph, stream);
    (void)event_bounds_use(before);
    return status;
}

static void graph_drop(void *payload)
{
    Launch *launch = payload;
    for (size_t i = 0; launch->bounds != NULL && i < launch->bounds->count; i++) {
        event_unbind(&launch->bounds->at[i]);
    }
    free(launch->bounds);
    graph_finish(launch->graph);
    graph_release(launch->graph);
}

static void graph_touch(const void *payload, Touch *touch)
{
    touch_graph(touch, ((const Launch *)payload)->graph);
}

static const TaskClass graph_task = {
    .name = "graph",
    .run = graph_run,
    .drop = graph_drop,
    .touch = graph_touch,
};

static bool task_binds(const GraphTask *task)
{
    return !task->disabled && event_task_binds(task->task.sort, task_payload(&task->task));
}

/* Binds the external records and waits; on failure graph_drop ends what is bound. */
static aclError launch_bind(Launch *launch)
{
    const Graph *graph = launch->graph;
    size_t count = 0;
    for (size_t i = 0; i < graph->count; i++) {
        count += task_binds(graph->tasks[i]);
    }
    if (count == 0) {
        return ACL_SUCCESS;
    }
    launch->bounds = calloc(1, sizeof *launch->bounds + count * sizeof *launch->bounds->at);
    if (launch->bounds == NULL) {
        return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "out of host memory");
    }
    for (size_t i = 0; i < graph->count; i++) {
        const Task *task = &graph->tasks[i]->task;
        if (task_binds(graph->tasks[i])) {
            TRY(event_bind(task->sort, task_payload(task), &launch->bounds->at[launch->bounds->count]));
            launch->bounds->count++;
        }
    }
    return ACL_SUCCESS;
}

aclError graph_submit(Graph *graph, Stream *stream)
{
    Launch launch = {.graph = graph};
    TRY(handle_begin(graph));
    atomic_fetch_add(&graph->users, 1);
    /* An execution that goes into another graph is not bound: that graph may run it many times. */
    bool is_task = atomic_load_explicit(&stream->graph, memory_order_relaxed) != NULL;
    aclError status = is_task ? ACL_SUCCESS : launch_bind(&launch);
    if (status == ACL_SUCCESS) {
        status = stream_submit(stream, &graph_task, &launch, sizeof launch);
    }
    if (status != ACL_SUCCESS) {
        graph_drop(&launch);
    }
    return status;
}

aclError sim_aclmdlRIExecuteAsync(aclmdlRI modelRI, aclrtStream stream)
{
    GRAPH_REF(graph);
    STREAM_REF(on);
    REQUIRE(modelRI != NULL);
    TRY(graph_resolve(modelRI, &graph));
    TRY(stream_resolve(stream, &on));
    return graph_submit(graph, on);
}

/* Runs the graph on a stream that is made for this call and destroyed at its end. If the timeout
 * passes, the tasks that have not run are dropped. */
aclError sim_aclmdlRIExecute(aclmdlRI modelRI, int32_t timeout)
{
    GRAPH_REF(graph);
    STREAM_REF(stream);
    Context *context;
    REQUIRE(modelRI != NULL);
    if (timeout < -1 || timeout == 0) {
        return fail_quiet(ACL_ERROR_RT_PARAM_INVALID, "timeout %d, expected -1 or more than 0",
                          timeout);
    }
    TRY(graph_resolve(modelRI, &graph));
    TRY(context_require(&context));
    TRY(capture_forbids_sync());
    TRY(stream_open(context, 0, 0, &stream));
    aclError status = graph_submit(graph, stream);
    if (status == ACL_SUCCESS) {
        status = stream_synchronize(stream, timeout);
    }
    stream_end(stream, STREAM_END_NOW);
    return status;
}

static void callbacks_call(Graph *graph)
{
    pthread_mutex_lock(&graph->lock);
    DestroyCallback *call = graph->on_destroy;
    graph->on_destroy = NULL;
    pthread_mutex_unlock(&graph->lock);
    while (call != NULL) {
        DestroyCallback *next = call->next;
        call->function(call->argument);
        free(call);
        call = next;
    }
}

/* Second step of ending a graph, after its handle was killed: ends a capture, unbinds the streams, calls
 * the user's callbacks, and drops the handle's reference. */
static void graph_bury(Graph *graph)
{
    (void)capture_leave(graph);
    graph_unbind(graph);
    callbacks_call(graph);
    graph_release(graph); /* drops the handle's reference */
}

bool graph_end(Graph *graph)
{
    if (!handle_kill(graph)) {
        return false;
    }
    graph_bury(graph);
    return true;
}

/* Kills the handle if no execution is queued. The lock is held during both steps, so that no execution
 * begins between them. */
static aclError still_kill(Graph *graph)
{
    pthread_mutex_lock(&graph->lock);
    aclError status = graph_check_still(graph);
    if (status == ACL_SUCCESS && !handle_kill(graph)) {
        status = fail(ACL_ERROR_RT_INVALID_HANDLE, "%p was destroyed by another thread",
                      (void *)graph);
    }
    pthread_mutex_unlock(&graph->lock);
    return status;
}

aclError sim_aclmdlRIDestroy(aclmdlRI modelRI)
{
    GRAPH_REF(graph);
    REQUIRE(modelRI != NULL);
    TRY(graph_resolve(modelRI, &graph));
    if (atomic_load(&graph->state) == GRAPH_CAPTURING) {
        return fail(ACL_ERROR_RT_MODEL_CAPTURED, "modelRI %u is being captured", graph->id);
    }
    if (stream_running() == NULL) { /* a call from a task does not wait: it could wait for its own execution */
        park_wait(&graph->running, graph_is_still, graph, deadline_after_ms(DESTROY_PATIENCE_MS));
    }
    TRY(still_kill(graph));
    graph_bury(graph);
    return ACL_SUCCESS;
}

/* Ends the executions that are running; tasks that are queued on their streams behind them still run. */
aclError sim_aclmdlRIAbort(aclmdlRI modelRI)
{
    GRAPH_REF(graph);
    REQUIRE_RT(modelRI != NULL);
    TRY(graph_resolve(modelRI, &graph));
    pthread_mutex_lock(&graph->lock); /* while it is held, no execution ends, so their streams exist */
    for (const Execution *e = graph->executions; e != NULL; e = e->other) {
        stream_skip(e->on);
    }
    pthread_mutex_unlock(&graph->lock);
    return ACL_SUCCESS;
}

/* ---- names and callbacks --------------------------------------------------------------------- */

aclError sim_aclmdlRISetName(aclmdlRI modelRI, const char *name)
{
    GRAPH_REF(graph);
    REQUIRE(modelRI != NULL);
    REQUIRE(name != NULL);
    TRY(graph_resolve(modelRI, &graph));
    REQUIRE_RT(strlen(name) < sizeof graph->name);
    pthread_mutex_lock(&graph->lock);
    strcpy(graph->name, name);
    pthread_mutex_unlock(&graph->lock);
    return ACL_SUCCESS;
}

aclError sim_aclmdlRIGetName(aclmdlRI modelRI, uint32_t maxLen, char *name)
{
    GRAPH_REF(graph);
    REQUIRE(modelRI != NULL);
    REQUIRE(name != NULL);
    TRY(graph_resolve(modelRI, &graph));
    pthread_mutex_lock(&graph->lock);
    bool fits = strlen(graph->name) < maxLen;
    if (fits) {
        strcpy(name, graph->name);
    }
    pthread_mutex_unlock(&graph->lock);
    return fits ? ACL_SUCCESS
                : fail(ACL_ERROR_RT_PARAM_INVALID, "maxLen %u is too small for the name", maxLen);
}

aclError sim_aclmdlRIGetId(aclmdlRI modelRI, uint32_t *modelRIId)
{
    GRAPH_REF(graph);
    REQUIRE(modelRI != NULL);
    REQUIRE(modelRIId != NULL);
    TRY(graph_resolve(modelRI, &graph));
    *modelRIId = graph->id;
    return ACL_SUCCESS;
}

aclError sim_aclmdlRIDestroyRegisterCallback(aclmdlRI modelRI, aclrtCallback func, void *userData)
{
    GRAPH_REF(graph);
    REQUIRE_RT(modelRI != NULL);
    REQUIRE_RT(func != NULL);
    TRY(graph_resolve(modelRI, &graph));
    DestroyCallback *made = malloc(sizeof *made);
    if (made == NULL) {
        return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "out of host memory");
    }
    made->function = func;
    made->argument = userData;
    pthread_mutex_lock(&graph->lock);
    made->next = graph->on_destroy;
    graph->on_destroy = made;
    pthread_mutex_unlock(&graph->lock);
    return ACL_SUCCESS;
}

aclError sim_aclmdlRIDestroyUnregisterCallback(aclmdlRI modelRI, aclrtCallback func)
{
    GRAPH_REF(graph);
    DestroyCallback *found;
    REQUIRE_RT(modelRI != NULL);
    REQUIRE_RT(func != NULL);
    TRY(graph_resolve(modelRI, &graph));
    pthread_mutex_lock(&graph->lock);
    DestroyCallback **link = &graph->on_destroy;
    while (*link != NULL && (*link)->function != func) {
        link = &(*link)->next;
    }
    found = *link;
    if (found != NULL) {
        *link = found->next;
    }
    pthread_mutex_unlock(&graph->lock);
    free(found);
    return found != NULL ? ACL_SUCCESS
                         : fail(ACL_ERROR_RT_PARAM_INVALID, "that callback is not registered");
}
