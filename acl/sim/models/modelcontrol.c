/* modelcontrol.c: If, Loop and Scan: running their bodies within a run.

   The values that a body computes are allocated by the run's own allocator, node by node, like all
   other values. The calling thread must know which branch to run, and whether to run another
   iteration (in this file: turn). So if a kernel computes the condition, the thread waits for it. A
   value that a body returns is shared, not copied: its block is freed when its last user is queued.
   Slices that Scan takes along the first axis are views. The outputs that a Loop or a Scan collects
   are joined after its last iteration. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory/memory.h"
#include "models/modelrun.h"
#include "streams/stream.h"

/* Messages name the function that the user called, not the function here that found the error. */
#undef fail
#define fail(code, ...) error_set("aclmdlExecute", (code), __VA_ARGS__)

/* --- values --- */

static void body_clear(Run *run, const Body *body)
{
    for (int v = body->first_value; v >= 0; v = run->net->values[v].sibling) {
        slot_reset(run, v);
    }
}

aclError host_copy(Run *run, const void *data, size_t bytes, const void **host)
{
    void *copy = malloc(bytes + 1);
    if (copy == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory");
    }
    memcpy(copy, data, bytes);
    TRY(run_own(run, copy));
    *host = copy;
    return ACL_SUCCESS;
}

aclError value_look(Run *run, int value, Tensor *view)
{
    const Slot *slot = &run->slots[value];
    *view = slot->tensor;
    if (slot->host != NULL) {
        view->data = (void *)(uintptr_t)slot->host;
        return ACL_SUCCESS;
    }
    TRY(stream_synchronize(run->stream, FOREVER));
    return memory_for_task(run->stream, "a value that decides", slot->tensor.data,
                           (size_t)tensor_bytes(view), false, &view->data);
}

aclError number_read(Run *run, const NetNode *node, int value, int64_t *number)
{
    Tensor view;
    if (run->slots[value].sequence != NULL || tensor_count(&run->slots[value].tensor) != 1) {
        return node_fail(run, node, (aclError)ACL_ERROR_GE_SHAPE_INVALID,
            "a condition, count or position has not exactly one element");
    }
    TRY(value_look(run, value, &view));
    *number = tensor_get_int(&view, 0);
    return ACL_SUCCESS;
}

/* --- If --- */

static aclError if_run(Run *run, const NetNode *node)
{
    int64_t condition;
    TRY(number_read(run, node, node->inputs[0], &condition));
    const Body *body = node->bodies[condition != 0 ? 0 : 1];
    TRY(body_run(run, body));
    for (int i = 0; i < node->output_count; i++) {
        if (node->outputs[i] >= 0) {
            slot_share(run, &run->slots[node->outputs[i]], &run->slots[body->outputs[i]]);
        }
    }
    body_clear(run, body);
    return ACL_SUCCESS;
}

/* --- Loop and Scan --- */

/* One run of a Loop or Scan node: the values carried from one iteration (turn) to the next, and the
   collected outputs. */
typedef struct Turns {
    Run *run;
    const NetNode *node;
    const Body *body;
    int states, first_in, first_out; /* number of carried values; index of the first of them among the body's inputs;
                                        the same for its outputs */
    int first_given;                 /* index of the first carried value among the node's inputs */
    int collected;                   /* number of collected outputs */
    int64_t count, room;             /* iterations run so far; iterations for which `parts` has room */
    Slot *state;
    Slot *parts;                     /* the collected outputs, `collected` of them for each iteration */
} Turns;

static aclError turns_start(Turns *turns)
{
    const NetNode *node = turns->node;
    turns->collected = turns->body->output_count - turns->first_out - turns->states;
    turns->state = calloc((size_t)turns->states + 1, sizeof *turns->state);
    if (turns->state == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory");
    }
    for (int i = 0; i < turns->states; i++) {
        int given = node->inputs[turns->first_given + i];
        slot_share(turns->run, &turns->state[i], &turns->run->slots[given]);
    }
    return ACL_SUCCESS;
}

/* Releases the loop-carried values and the collected outputs. If the run failed, the model keeps
   their blocks. */
static void turns_end(Turns *turns, bool good)
{
    for (int i = 0; turns->state != NULL && i < turns->states; i++) {
        slot_drop(turns->run, &turns->state[i], good);
    }
    for (int64_t i = 0; i < turns->count * turns->collected; i++) {
        slot_drop(turns->run, &turns->parts[i], good);
    }
    free(turns->state);
    free(turns->parts);
}

static aclError parts_keep(Turns *turns)
{
    size_t width = (size_t)turns->collected;
    if (turns->count == turns->room && width > 0) {
        int64_t room = turns->room == 0 ? 16 : 2 * turns->room;
        Slot *wider = realloc(turns->parts, (size_t)room * width * sizeof *wider);
        if (wider == NULL) {
            return fail(ACL_ERROR_BAD_ALLOC, "no host memory");
        }
        turns->parts = wider;
        turns->room = room;
    }
    for (size_t k = 0; k < width; k++) {
        Slot *part = &turns->parts[(size_t)turns->count * width + k];
        int value = turns->body->outputs[turns->first_out + turns->states + (int)k];
        *part = (Slot){.output = -1};
        slot_share(turns->run, part, &turns->run->slots[value]);
    }
    turns->count++;
    return ACL_SUCCESS;
}

/* Runs the body once. Its inputs that are not carried values are in their slots already. */
static aclError turn_run(Turns *turns)
{
    Run *run = turns->run;
    const Body *body = turns->body;
    for (int i = 0; i < turns->states; i++) {
        Slot *slot = &run->slots[body->inputs[turns->first_in + i]];
        slot_share(run, slot, &turns->state[i]);
        slot_drop(run, &turns->state[i], true);
    }
    TRY(body_run(run, body));
    for (int i = 0; i < turns->states; i++) {
        slot_share(run, &turns->state[i], &run->slots[body->outputs[turns->first_out + i]]);
    }
    return parts_keep(turns);
}

/* --- joining --- */

static const Slot *part_at(const Turns *turns, int64_t turn, int k)
{
    return &turns->parts[turn * turns->collected + k];
}

/* Gives the shape of a collected output: that of its parts, or, if there was no iteration, the one
   that the body declares. */
static aclError joined_shape(const Turns *turns, int k, Tensor *joined)
{
    const NetValue *value =
        &turns->run->net->values[turns->body->outputs[turns->first_out + turns->states + k]];
    Tensor each = {.type = value->type, .rank = value->rank < 0 ? 0 : value->rank};
    for (int d = 0; d < each.rank; d++) {
        each.dims[d] = value->dims[d] < 0 ? 0 : value->dims[d];
    }
    if (turns->count > 0) {
        each = part_at(turns, 0, k)->tensor;
    }
    if (turns->count > 0 && part_at(turns, 0, k)->sequence != NULL) {
        return node_fail(turns->run, turns->node, (aclError)ACL_ERROR_GE_SHAPE_INVALID,
            "an output that is collected is a sequence");
    }
    for (int64_t t = 1; t < turns->count; t++) {
        const Tensor *other = &part_at(turns, t, k)->tensor;
        if (!tensor_same_shape(&each, other) || each.type != other->type) {
            return node_fail(turns->run, turns->node, (aclError)ACL_ERROR_GE_SHAPE_INVALID,
                "an output that is collected changes its shape from turn to turn");
        }
    }
    *joined = (Tensor){.type = each.type, .rank = each.rank + 1, .dims = {turns->count}};
    if (type_size(each.type) == 0 || each.rank == TENSOR_RANK_MAX) {
        return node_fail(turns->run, turns->node, (aclError)ACL_ERROR_GE_SHAPE_INVALID,
            "an output that is collected has an unknown type or too many dimensions");
    }
    memcpy(joined->dims + 1, each.dims, (size_t)each.rank * sizeof each.dims[0]);
    return tensor_fits(joined) ? ACL_SUCCESS
                               : node_fail(turns->run, turns->node,
                                     (aclError)ACL_ERROR_GE_SHAPE_INVALID,
                                     "an output that is collected is too large");
}

static bool parts_on_host(const Turns *turns, int k)
{
    for (int64_t t = 0; t < turns->count; t++) {
        if (part_at(turns, t, k)->host == NULL) {
            return false;
        }
    }
    return true;
}

static aclError join_host(const Turns *turns, int k, bool backwards, const Tensor *joined)
{
    size_t bytes = (size_t)tensor_bytes(joined);
    size_t each = turns->count == 0 ? 0 : bytes / (size_t)turns->count;
    Slot *slot = &turns->run->slots[turns->node->outputs[k + turns->states]];
    char *data = malloc(bytes + 1);
    if (data == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory");
    }
    for (int64_t t = 0; t < turns->count; t++) {
        int64_t place = backwards ? turns->count - 1 - t : t;
        memcpy(data + (size_t)place * each, part_at(turns, t, k)->host, each);
    }
    TRY(run_own(turns->run, data));
    slot->tensor = *joined;
    slot->host = data;
    return ACL_SUCCESS;
}

static aclError join(const Turns *turns, int k, bool backwards)
{
    Tensor joined;
    int output = turns->states + k;
    TRY(joined_shape(turns, k, &joined));
    if (parts_on_host(turns, k)) {
        return join_host(turns, k, backwards, &joined);
    }
    TRY(output_place(turns->run, turns->node, output, &joined));
    size_t each = (size_t)tensor_bytes(&joined) / (size_t)turns->count;
    for (int64_t t = 0; t < turns->count; t++) {
        const Slot *part = part_at(turns, t, k);
        int64_t place = backwards ? turns->count - 1 - t : t;
        const void *from = part->tensor.data != NULL ? part->tensor.data : part->host;
        TRY(run_copy(turns->run, (char *)joined.data + (size_t)place * each, from, each));
    }
    return ACL_SUCCESS;
}

/* Stores the carried values and the collected outputs as the node's outputs. */
static aclError turns_deliver(const Turns *turns, const int64_t *directions)
{
    const NetNode *node = turns->node;
    for (int i = 0; i < node->output_count; i++) {
        if (node->outputs[i] < 0) {
            continue;
        }
        if (i < turns->states) {
            slot_share(turns->run, &turns->run->slots[node->outputs[i]], &turns->state[i]);
        } else {
            int k = i - turns->states;
            TRY(join(turns, k, directions != NULL && directions[k] != 0));
        }
    }
    return ACL_SUCCESS;
}

/* --- Loop --- */

enum { LOOP_TURNS_MAX = 1000000 };

/* Reads ACL_SIM_LOOP_TURNS, the most iterations of one loop: it ends a loop whose condition never becomes false. */
static int64_t loop_limit(void)
{
    const char *text = setting("ACL_SIM_LOOP_TURNS");
    return text == NULL ? LOOP_TURNS_MAX : strtoll(text, NULL, 10);
}

static aclError loop_stop(const Turns *turns, int64_t turn, bool aborted)
{
    char message[OP_MESSAGE_ROOM];
    (void)snprintf(message, sizeof message,
        aborted ? "interrupted after %lld turns: its stream was aborted or is being destroyed"
                : "the loop ran %lld turns, which is the work limit (ACL_SIM_LOOP_TURNS)",
        (long long)turn);
    return node_fail(turns->run, turns->node, (aclError)ACL_ERROR_GE_INTERNAL_ERROR, message);
}

static aclError loop_turns(Turns *turns, int64_t trip, bool more)
{
    static const uint8_t yes = 1;
    Run *run = turns->run;
    const Body *body = turns->body;
    uint64_t dropped = atomic_load(&run->stream->drop_until);
    int64_t most = loop_limit();
    for (int64_t turn = 0; turn < trip && more; turn++) {
        bool aborted = atomic_load(&run->stream->drop_until) != dropped;
        if (aborted || turn >= most) {
            return loop_stop(turns, turn, aborted);
        }
        Slot *counter = &run->slots[body->inputs[0]], *condition = &run->slots[body->inputs[1]];
        int64_t again;
        counter->tensor = (Tensor){.type = ACL_INT64};
        TRY(host_copy(run, &turn, sizeof turn, &counter->host));
        condition->tensor = (Tensor){.type = ACL_BOOL};
        condition->host = &yes;
        TRY(turn_run(turns));
        TRY(number_read(run, turns->node, body->outputs[0], &again));
        more = again != 0;
        body_clear(run, body);
    }
    return turns_deliver(turns, NULL);
}

static aclError loop_run(Run *run, const NetNode *node)
{
    int64_t trip = INT64_MAX, more = 1;
    Turns turns = {.run = run, .node = node, .body = node->bodies[0], .first_in = 2,
        .first_out = 1, .first_given = 2, .states = node->bodies[0]->input_count - 2};
    if (node->inputs[0] >= 0) {
        TRY(number_read(run, node, node->inputs[0], &trip));
    }
    if (node->inputs[1] >= 0) {
        TRY(number_read(run, node, node->inputs[1], &more));
    }
    aclError status = turns_start(&turns);
    status = status == ACL_SUCCESS ? loop_turns(&turns, trip, more != 0) : status;
    turns_end(&turns, status == ACL_SUCCESS);
    return status;
}

/* --- Scan --- */

/* Reads the directions of the scanned inputs or of the collected outputs: 0 = forward, 1 = backward. */
static void directions_read(const NetNode *node, const char *name, int count, int64_t *directions)
{
    memset(directions, 0, (size_t)count * sizeof *directions);
    for (int i = 0; i < node->attrs.count; i++) {
        const Attr *attr = &node->attrs.items[i];
        if (attr->kind == ATTR_INTS && strcmp(attr->name, name) == 0) {
            int64_t given = attr->count < count ? attr->count : count;
            memcpy(directions, attr->ints, (size_t)given * sizeof *directions);
        }
    }
}

/* Makes `to` a view of one slice of the first axis of `from`. */
static void slice_view(Run *run, Slot *to, const Slot *from, int64_t index)
{
    slot_share(run, to, from);
    to->tensor.rank--;
    memmove(to->tensor.dims, to->tensor.dims + 1,
        (size_t)to->tensor.rank * sizeof to->tensor.dims[0]);
    int64_t offset = index * tensor_bytes(&to->tensor);
    to->tensor.data = to->tensor.data == NULL ? NULL : (char *)to->tensor.data + offset;
    to->host = to->host == NULL ? NULL : (const char *)to->host + offset;
}

static aclError scan_length(const Turns *turns, int64_t *length)
{
    for (int i = turns->states; i < turns->body->input_count; i++) {
        const Tensor *scanned = &turns->run->slots[turns->node->inputs[i]].tensor;
        if (scanned->rank < 1 || (i > turns->states && scanned->dims[0] != *length)) {
            return node_fail(turns->run, turns->node, (aclError)ACL_ERROR_GE_SHAPE_INVALID,
                "the inputs that are scanned are not equally long");
        }
        *length = scanned->dims[0];
    }
    return ACL_SUCCESS;
}

static aclError scan_turns(Turns *turns, int64_t *directions)
{
    Run *run = turns->run;
    const Body *body = turns->body;
    int64_t length = 0, *out = directions + (body->input_count - turns->states);
    TRY(scan_length(turns, &length));
    directions_read(
        turns->node, "scan_input_directions", body->input_count - turns->states, directions);
    directions_read(turns->node, "scan_output_directions", turns->collected, out);
    for (int64_t turn = 0; turn < length; turn++) {
        for (int i = turns->states; i < body->input_count; i++) {
            bool backwards = directions[i - turns->states] != 0;
            slice_view(run, &run->slots[body->inputs[i]], &run->slots[turns->node->inputs[i]],
                backwards ? length - 1 - turn : turn);
        }
        TRY(turn_run(turns));
        body_clear(run, body);
    }
    return turns_deliver(turns, out);
}

static aclError scan_run(Run *run, const NetNode *node)
{
    const Body *body = node->bodies[0];
    int slices = (int)net_attr_int(node, "num_scan_inputs", 0);
    Turns turns = {.run = run, .node = node, .body = body, .states = body->input_count - slices};
    int64_t *directions =
        calloc((size_t)body->input_count + (size_t)body->output_count + 1, sizeof *directions);
    if (directions == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory");
    }
    aclError status = turns_start(&turns);
    status = status == ACL_SUCCESS ? scan_turns(&turns, directions) : status;
    turns_end(&turns, status == ACL_SUCCESS);
    free(directions);
    return status;
}

aclError control_run(Run *run, const NetNode *node)
{
    return node->control == CONTROL_IF ? if_run(run, node)
        : node->control == CONTROL_LOOP ? loop_run(run, node)
                                        : scan_run(run, node);
}
