/* Graphs built by hand (aclmdlRIBuildBegin), and the control flow that only such graphs have.
 *
 * Tasks that are submitted to a bound stream are added to the graph, on the stream's lane.  An
 * execution runs the lanes of the streams that were bound with ACL_MODEL_STREAM_FLAG_HEAD, one after
 * another.  A switch by label jumps to the label; aclrtActiveStream and aclrtSwitchStream run the
 * lane of another bound stream.  Outside such a graph these calls return 107005.
 *
 * Thread rule: one thread at a time builds a graph; the graph's lock guards the tasks. */
#include "graphs/build_graph.h"
#include "generated/exports.h"
#include "memory/memory.h"

#include <stdlib.h>

enum { DEPTH_MAX = 64 };

typedef struct LabelList {
    size_t count;
    Label **labels;
} LabelList;

typedef struct LabelSwitch {
    const uint32_t *index; /* device address of the index of the label to jump to */
    uint32_t count;
    LabelList *list;
} LabelSwitch;

typedef struct StreamSwitch {
    const void *left, *right; /* device addresses of the two values to compare */
    aclrtCondition condition;
    aclrtCompareDataType type;
    Stream *if_true;
} StreamSwitch;

/* The run function of tasks that change the control flow. It does nothing, because lane_run executes such tasks. */
static aclError control_run(Stream *stream, const void *payload)
{
    (void)stream;
    (void)payload;
    return ACL_SUCCESS;
}

static void choice_touch(const void *payload, Touch *touch)
{
    (void)payload;
    touch_choice(touch);
}

static const TaskClass label_task = {.name = "label", .run = control_run};
static void list_release(LabelList *list)
{
    if (handle_drop(list)) {
        free(list->labels);
        handle_retire(list);
    }
}

static void label_switch_drop(void *payload)
{
    list_release(((LabelSwitch *)payload)->list);
}

static const TaskClass label_switch_task = {
    .name = "switch label",
    .run = control_run,
    .drop = label_switch_drop,
    .touch = choice_touch,
};
static const TaskClass active_task = {
    .name = "active stream",
    .run = control_run,
    .touch = choice_touch,
};
static const TaskClass stream_switch_task = {
    .name = "switch stream",
    .run = control_run,
    .touch = choice_touch,
};

/* ---- execution ------------------------------------------------------------------------------- */

static aclError lane_run(const Graph *graph, Stream *on, uint32_t lane, size_t from, int depth);

static aclError stream_run(const Graph *graph, Stream *on, const Stream *bound, int depth)
{
    for (uint32_t i = 0; i < graph->lane_count; i++) {
        if (graph->lanes[i].stream == bound) {
            return lane_run(graph, on, i, 0, depth);
        }
    }
    return ACL_ERROR_RT_STREAM_MODEL;
}

/* Finds the position after a label in the graph: the label whose index is in device memory, or the
 * last label of the list if the index is too large. */
static aclError label_find(const Graph *graph, const Stream *on, const LabelSwitch *jump,
                           uint32_t *lane, size_t *at)
{
    void *index;
    TRY(memory_for_task(on, "a label's number", jump->index, sizeof(uint32_t), false, &index));
    uint32_t chosen = atomic_load((const _Atomic uint32_t *)index);
    const Label *label = jump->list->labels[chosen < jump->count ? chosen : jump->count - 1];
    for (size_t i = 0; i < graph->count; i++) {
        const Task *task = &graph->tasks[i]->task;
        if (task->sort == &label_task && *(Label *const *)task_payload(task) == label) {
            *lane = graph->tasks[i]->lane;
            *at = i + 1;
            return ACL_SUCCESS;
        }
    }
    return ACL_ERROR_RT_PARAM_INVALID;
}

static aclError operand_read(const Stream *on, const StreamSwitch *jump, const void *address,
                             int64_t *value)
{
    size_t size = jump->type == ACL_RT_SWITCH_INT32 ? sizeof(int32_t) : sizeof(int64_t);
    void *at;
    TRY(memory_for_task(on, "a switch's operand", address, size, false, &at));
    *value = size == sizeof(int32_t) ? atomic_load((const _Atomic int32_t *)at)
                                     : atomic_load((const _Atomic int64_t *)at);
    return ACL_SUCCESS;
}

static bool condition_holds(aclrtCondition condition, int64_t left, int64_t right)
{
    switch (condition) {
    case ACL_RT_EQUAL:
        return left == right;
    case ACL_RT_NOT_EQUAL:
        return left != right;
    case ACL_RT_GREATER:
        return left > right;
    case ACL_RT_GREATER_OR_EQUAL:
        return left >= right;
    case ACL_RT_LESS:
        return left < right;
    default:
        return left <= right;
    }
}

/* Gives the stream that a switch selects; NULL if its condition does not hold. */
static aclError switch_decide(const Stream *on, const StreamSwitch *jump, const Stream **next)
{
    int64_t left, right;
    TRY(operand_read(on, jump, jump->left, &left));
    TRY(operand_read(on, jump, jump->right, &right));
    *next = condition_holds(jump->condition, left, right) ? jump->if_true : NULL;
    return ACL_SUCCESS;
}

static aclError lane_run(const Graph *graph, Stream *on, uint32_t lane, size_t from, int depth)
{
    if (depth > DEPTH_MAX) {
        return ACL_ERROR_RT_OVER_LIMIT;
    }
    for (size_t i = from; i < graph->count && !stream_is_dropping(on); i++) {
        const GraphTask *entry = graph->tasks[i];
        const void *payload = task_payload(&entry->task);
        if (entry->lane != lane || entry->disabled) {
            continue;
        }
        if (entry->task.sort == &label_switch_task) {
            size_t target;
            TRY(label_find(graph, on, payload, &lane, &target));
            i = target - 1;
        } else if (entry->task.sort == &active_task) {
            TRY(stream_run(graph, on, *(Stream *const *)payload, depth + 1));
        } else if (entry->task.sort == &stream_switch_task) {
            const Stream *next;
            TRY(switch_decide(on, payload, &next));
            if (next != NULL) {
                return stream_run(graph, on, next, depth + 1);
            }
        } else {
            TRY(entry->task.sort->run(on, payload));
        }
    }
    return ACL_SUCCESS;
}

aclError built_run(const Graph *graph, Stream *on)
{
    for (uint32_t i = 0; i < graph->lane_count; i++) {
        if (graph->lanes[i].is_head) {
            TRY(lane_run(graph, on, i, 0, 0));
        }
    }
    return ACL_SUCCESS;
}

/* ---- building -------------------------------------------------------------------------------- */

aclError sim_aclmdlRIBuildBegin(aclmdlRI *modelRI, uint32_t flag)
{
    Context *context;
    Graph *graph;
    REQUIRE(modelRI != NULL);
    if (flag != 0) {
        return fail_quiet(ACL_ERROR_RT_PARAM_INVALID, "flag is %u, expected 0", flag);
    }
    TRY(context_require(&context));
    TRY(graph_new(context, GRAPH_BUILDING, &graph));
    *modelRI = graph;
    return ACL_SUCCESS;
}

static aclError building_resolve(aclmdlRI modelRI, aclrtStream handle, Graph **graph,
                                 Stream **stream)
{
    REQUIRE(modelRI != NULL);
    REQUIRE_RT(handle != NULL);
    TRY(graph_resolve(modelRI, graph));
    TRY(stream_resolve(handle, stream));
    if (!(*graph)->is_built) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "modelRI %u was captured, not built", (*graph)->id);
    }
    return ACL_SUCCESS;
}

/* Binds the stream to the graph; the locks of the graph and of the stream are held. */
static aclError stream_bind_locked(Graph *graph, Stream *stream, bool is_head)
{
    if (atomic_load(&graph->state) != GRAPH_BUILDING) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "modelRI %u is complete", graph->id);
    }
    if (atomic_load(&stream->graph) != NULL || atomic_load(&stream->closing)) {
        return fail(ACL_ERROR_RT_STREAM_MODEL, "stream %u is bound already", stream->id);
    }
    uint32_t lane = graph_lane(graph, stream);
    if (lane == UINT32_MAX) {
        return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "out of host memory");
    }
    graph->lanes[lane].is_head = is_head;
    atomic_store(&stream->graph, graph);
    return ACL_SUCCESS;
}

static aclError stream_bind(Graph *graph, Stream *stream, bool is_head)
{
    pthread_mutex_lock(&stream->lock);
    pthread_mutex_lock(&graph->lock);
    aclError status = stream_bind_locked(graph, stream, is_head);
    pthread_mutex_unlock(&graph->lock);
    pthread_mutex_unlock(&stream->lock);
    return status;
}

aclError sim_aclmdlRIBindStream(aclmdlRI modelRI, aclrtStream stream, uint32_t flag)
{
    GRAPH_REF(graph);
    STREAM_REF(bound);
    REQUIRE(modelRI != NULL);
    if (flag != ACL_MODEL_STREAM_FLAG_HEAD && flag != ACL_MODEL_STREAM_FLAG_DEFAULT) {
        return fail_quiet(ACL_ERROR_RT_PARAM_INVALID, "flag is 0x%x", flag);
    }
    TRY(building_resolve(modelRI, stream, &graph, &bound));
    REQUIRE_RT((bound->flags & ACL_STREAM_PERSISTENT) != 0);
    return stream_bind(graph, bound, flag == ACL_MODEL_STREAM_FLAG_HEAD);
}

static aclError bound_check(const Graph *graph, const Stream *stream)
{
    if (atomic_load(&stream->graph) != graph) {
        return fail(ACL_ERROR_RT_STREAM_MODEL, "stream %u is not bound to modelRI %u", stream->id,
                    graph->id);
    }
    return ACL_SUCCESS;
}

aclError sim_aclmdlRIUnbindStream(aclmdlRI modelRI, aclrtStream stream)
{
    GRAPH_REF(graph);
    STREAM_REF(bound);
    TRY(building_resolve(modelRI, stream, &graph, &bound));
    TRY(bound_check(graph, bound));
    pthread_mutex_lock(&bound->lock);
    Graph *expected = graph;
    atomic_compare_exchange_strong(&bound->graph, &expected, NULL);
    pthread_mutex_unlock(&bound->lock);
    return ACL_SUCCESS;
}

aclError sim_aclmdlRIEndTask(aclmdlRI modelRI, aclrtStream stream)
{
    GRAPH_REF(graph);
    STREAM_REF(bound);
    TRY(building_resolve(modelRI, stream, &graph, &bound));
    return bound_check(graph, bound);
}

aclError sim_aclmdlRIBuildEnd(aclmdlRI modelRI, void *reserve)
{
    GRAPH_REF(graph);
    GraphState state = GRAPH_BUILDING;
    REQUIRE(modelRI != NULL);
    REQUIRE(reserve == NULL);
    TRY(graph_resolve(modelRI, &graph));
    if (!atomic_compare_exchange_strong(&graph->state, &state, GRAPH_READY)) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "modelRI %u is not being built", graph->id);
    }
    return ACL_SUCCESS;
}

/* ---- labels and switches --------------------------------------------------------------------- */

/* Returns 107005 unless the stream is bound to a graph that is being built. */
static aclError model_check(Stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    const Graph *graph = atomic_load(&stream->graph);
    bool bound = graph != NULL && graph->is_built;
    pthread_mutex_unlock(&stream->lock);
    if (!bound) {
        return fail(ACL_ERROR_RT_STREAM_MODEL, "stream %u is not bound to a model", stream->id);
    }
    return ACL_SUCCESS;
}

static aclError label_resolve(const void *handle, Label **label)
{
    if (!handle_is(handle, HANDLE_LABEL)) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is not a live label", handle);
    }
    *label = (Label *)(uintptr_t)handle;
    return ACL_SUCCESS;
}

aclError sim_aclrtCreateLabel(aclrtLabel *label)
{
    Context *context;
    REQUIRE(label != NULL);
    TRY(context_require(&context));
    *label = handle_new(HANDLE_LABEL, sizeof(Label));
    return *label != NULL ? ACL_SUCCESS
                          : fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "too many labels");
}

aclError sim_aclrtDestroyLabel(aclrtLabel label)
{
    Label *resolved;
    REQUIRE(label != NULL);
    TRY(label_resolve(label, &resolved));
    handle_retire(resolved);
    return ACL_SUCCESS;
}

aclError sim_aclrtSetLabel(aclrtLabel label, aclrtStream stream)
{
    Label *resolved;
    STREAM_REF(on);
    REQUIRE(label != NULL);
    REQUIRE(stream != NULL);
    TRY(label_resolve(label, &resolved));
    TRY(stream_resolve(stream, &on));
    TRY(model_check(on));
    if (resolved->is_set) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "the label is set already");
    }
    TRY(stream_submit(on, &label_task, &resolved, sizeof resolved));
    resolved->is_set = true;
    return ACL_SUCCESS;
}

aclError sim_aclrtCreateLabelList(aclrtLabel *labels, size_t num, aclrtLabelList *labelList)
{
    Label *label;
    Context *context;
    REQUIRE(labels != NULL);
    REQUIRE(labelList != NULL);
    REQUIRE_RT(num != 0 && num <= UINT16_MAX);
    TRY(context_require(&context));
    for (size_t i = 0; i < num; i++) {
        REQUIRE_RT(labels[i] != NULL);
        TRY(label_resolve(labels[i], &label));
    }
    LabelList *list = handle_prepare(HANDLE_LABEL_LIST, sizeof *list);
    Label **copy = calloc(num, sizeof *copy);
    if (list == NULL || copy == NULL) {
        free(copy);
        if (list != NULL) {
            handle_retire(list);
        }
        return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "out of host memory");
    }
    for (size_t i = 0; i < num; i++) {
        copy[i] = labels[i];
    }
    list->count = num;
    list->labels = copy;
    *labelList = list;
    handle_show(list);
    return ACL_SUCCESS;
}

/* Gives the label list of a handle, with a hold for a task; 107017 if the handle is not live. */
static aclError list_resolve(aclrtLabelList handle, LabelList **list)
{
    *list = handle;
    if (!handle_follow(handle, HANDLE_LABEL_LIST)) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is not a live label list", handle);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtDestroyLabelList(aclrtLabelList labelList)
{
    REQUIRE(labelList != NULL);
    bool won = false;
    if (handle_follow(labelList, HANDLE_LABEL_LIST)) {
        won = handle_kill(labelList);
        list_release(labelList);
    }
    if (!won) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "%p is not a list of labels", labelList);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtSwitchLabelByIndex(void *ptr, uint32_t maxValue, aclrtLabelList labelList,
                                     aclrtStream stream)
{
    STREAM_REF(on);
    REQUIRE(ptr != NULL);
    REQUIRE(labelList != NULL);
    REQUIRE(stream != NULL);
    TRY(stream_resolve(stream, &on));
    TRY(model_check(on));
    LabelSwitch jump = {ptr, maxValue, NULL};
    TRY(list_resolve(labelList, &jump.list));
    aclError status = maxValue != 0 && maxValue <= jump.list->count
                          ? stream_submit(on, &label_switch_task, &jump, sizeof jump)
                          : fail(ACL_ERROR_RT_PARAM_INVALID, "maxValue is %u, expected 1 to %zu, the number of labels",
                                 maxValue, jump.list->count);
    if (status != ACL_SUCCESS) {
        list_release(jump.list);
    }
    return status;
}

aclError sim_aclrtActiveStream(aclrtStream activeStream, aclrtStream stream)
{
    STREAM_REF(target);
    STREAM_REF(on);
    REQUIRE(activeStream != NULL);
    REQUIRE(stream != NULL);
    TRY(stream_resolve(activeStream, &target));
    TRY(stream_resolve(stream, &on));
    TRY(model_check(on));
    TRY(model_check(target));
    return stream_submit(on, &active_task, &target, sizeof target);
}

aclError sim_aclrtSwitchStream(void *leftValue, aclrtCondition cond, void *rightValue,
                               aclrtCompareDataType dataType, aclrtStream trueStream,
                               aclrtStream falseStream, aclrtStream stream)
{
    STREAM_REF(if_true);
    STREAM_REF(on);
    REQUIRE(leftValue != NULL);
    REQUIRE(rightValue != NULL);
    REQUIRE(trueStream != NULL);
    REQUIRE(stream != NULL);
    REQUIRE(falseStream == NULL); /* reserved */
    REQUIRE_RT((unsigned)cond <= ACL_RT_LESS_OR_EQUAL);
    REQUIRE_RT((unsigned)dataType <= ACL_RT_SWITCH_INT64);
    TRY(stream_resolve(trueStream, &if_true));
    TRY(stream_resolve(stream, &on));
    TRY(model_check(on));
    StreamSwitch jump = {leftValue, rightValue, cond, dataType, if_true};
    return stream_submit(on, &stream_switch_task, &jump, sizeof jump);
}
