/* modelsequence.c: ONNX's sequences of tensors, to which TorchScript's lists are converted.

   A sequence is a list on the host, held by the run. Its tensors are not copied; a tensor's block
   is freed when no sequence and no value uses it. A sequence never changes: an insertion makes a
   new one that shares the items. Lengths and positions are computed on the host. */
#include <stdlib.h>
#include <string.h>

#include "models/modelrun.h"

/* Messages name the function that the user called, not the function here that found the error. */
#undef fail
#define fail(code, ...) error_set("aclmdlExecute", (code), __VA_ARGS__)

struct Sequence {
    int users;
    int64_t count;
    Slot items[];
};

/* --- life --- */

static aclError sequence_new(int64_t count, Sequence **out)
{
    Sequence *made = count > INT32_MAX
        ? NULL
        : calloc(1, sizeof *made + (size_t)count * sizeof made->items[0]);
    if (made == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory for a sequence");
    }
    made->users = 1;
    made->count = count;
    *out = made;
    return ACL_SUCCESS;
}

void sequence_share(Sequence *sequence)
{
    if (sequence != NULL) {
        sequence->users++;
    }
}

void sequence_drop(Run *run, Sequence **sequence, bool good)
{
    Sequence *gone = *sequence;
    *sequence = NULL;
    if (gone == NULL || --gone->users > 0) {
        return;
    }
    for (int64_t i = 0; i < gone->count; i++) {
        slot_drop(run, &gone->items[i], good);
    }
    free(gone);
}

/* --- a node's inputs and outputs --- */

static aclError sequence_fail(const Run *run, const NetNode *node, const char *message)
{
    return node_fail(run, node, (aclError)ACL_ERROR_GE_SHAPE_INVALID, message);
}

static aclError sequence_input(Run *run, const NetNode *node, const Sequence **sequence)
{
    *sequence = run->slots[node->inputs[0]].sequence;
    return *sequence != NULL ? ACL_SUCCESS : sequence_fail(run, node, "input 0 is not a sequence");
}

/* Sets output 0 of the node to a new sequence. */
static aclError sequence_output(Run *run, const NetNode *node, Sequence *made)
{
    Slot *slot = &run->slots[node->outputs[0]];
    slot_drop(run, slot, true);
    slot->tensor = (Tensor){0};
    slot->host = NULL;
    slot->sequence = made;
    return ACL_SUCCESS;
}

/* Gives the position that input `input` states (counted from the end if negative), or `otherwise`
   if that input is missing. */
static aclError position_read(
    Run *run, const NetNode *node, int input, int64_t limit, int64_t otherwise, int64_t *position)
{
    int64_t length = run->slots[node->inputs[0]].sequence->count;
    *position = otherwise;
    if (input < node->input_count && node->inputs[input] >= 0) {
        TRY(number_read(run, node, node->inputs[input], position));
        *position += *position < 0 ? length : 0;
    }
    return *position >= 0 && *position < limit
        ? ACL_SUCCESS
        : sequence_fail(run, node, "the position is outside the sequence");
}

/* --- making sequences --- */

static aclError construct_run(Run *run, const NetNode *node)
{
    Sequence *made = NULL;
    TRY(sequence_new(node->input_count, &made));
    for (int i = 0; i < node->input_count; i++) {
        slot_share(run, &made->items[i], &run->slots[node->inputs[i]]);
    }
    return sequence_output(run, node, made);
}

static aclError insert_run(Run *run, const NetNode *node)
{
    const Sequence *from;
    Sequence *made = NULL;
    int64_t place = 0;
    TRY(sequence_input(run, node, &from));
    TRY(position_read(run, node, 2, from->count + 1, from->count, &place));
    TRY(sequence_new(from->count + 1, &made));
    for (int64_t i = 0; i < made->count; i++) {
        const Slot *item = i == place ? &run->slots[node->inputs[1]]
                                      : &from->items[i < place ? i : i - 1];
        slot_share(run, &made->items[i], item);
    }
    return sequence_output(run, node, made);
}

static aclError erase_run(Run *run, const NetNode *node)
{
    const Sequence *from;
    Sequence *made = NULL;
    int64_t place = 0;
    TRY(sequence_input(run, node, &from));
    TRY(position_read(run, node, 1, from->count, from->count - 1, &place));
    TRY(sequence_new(from->count - 1, &made));
    for (int64_t i = 0; i < made->count; i++) {
        slot_share(run, &made->items[i], &from->items[i < place ? i : i + 1]);
    }
    return sequence_output(run, node, made);
}

/* --- looking at them --- */

static aclError at_run(Run *run, const NetNode *node)
{
    const Sequence *from;
    int64_t place = 0;
    TRY(sequence_input(run, node, &from));
    TRY(position_read(run, node, 1, from->count, 0, &place));
    slot_share(run, &run->slots[node->outputs[0]], &from->items[place]);
    return ACL_SUCCESS;
}

static aclError length_run(Run *run, const NetNode *node)
{
    const Sequence *from;
    Slot *slot = &run->slots[node->outputs[0]];
    TRY(sequence_input(run, node, &from));
    slot->tensor = (Tensor){.type = ACL_INT64};
    return host_copy(run, &from->count, sizeof from->count, &slot->host);
}

/* --- joining and splitting --- */

/* Gives the shape of the items joined along `axis`, which is a new axis if `stack`. */
static aclError joined_plan(
    const Run *run, const NetNode *node, const Sequence *from, bool stack, Tensor *joined,
    int *axis)
{
    if (from->count == 0) {
        return sequence_fail(run, node, "the sequence is empty");
    }
    const Tensor *first = &from->items[0].tensor;
    *joined = *first;
    joined->data = NULL;
    *axis = axis_normal(net_attr_int(node, "axis", 0), first->rank + stack);
    if (*axis < 0 || (stack && first->rank == TENSOR_RANK_MAX)) {
        return sequence_fail(run, node, "the axis is outside the rank of the items");
    }
    int64_t length = 0;
    for (int64_t i = 0; i < from->count; i++) {
        Tensor each = from->items[i].tensor;
        length += stack ? 1 : each.dims[*axis];
        each.dims[stack ? TENSOR_RANK_MAX - 1 : *axis] =
            first->dims[stack ? TENSOR_RANK_MAX - 1 : *axis];
        if (each.type != first->type || !tensor_same_shape(&each, first)) {
            return sequence_fail(run, node, "the items' types or shapes do not go together");
        }
    }
    if (stack) {
        memmove(joined->dims + *axis + 1, joined->dims + *axis,
            (size_t)(first->rank - *axis) * sizeof joined->dims[0]);
        joined->rank++;
    }
    joined->dims[*axis] = length;
    return tensor_fits(joined) ? ACL_SUCCESS : sequence_fail(run, node, "the result is too large");
}

static aclError concat_run(Run *run, const NetNode *node)
{
    const Sequence *from;
    Tensor joined;
    int axis = 0;
    bool stack = net_attr_int(node, "new_axis", 0) != 0;
    TRY(sequence_input(run, node, &from));
    TRY(joined_plan(run, node, from, stack, &joined, &axis));
    TRY(output_place(run, node, 0, &joined));
    int64_t rows = dims_count(joined.dims, axis);
    int64_t pitch = rows == 0 ? 0 : tensor_bytes(&joined) / rows;
    char *to = joined.data;
    for (int64_t i = 0; i < from->count; i++) {
        const Slot *item = &from->items[i];
        int64_t row = rows == 0 ? 0 : tensor_bytes(&item->tensor) / rows;
        Rows copy = {.rows = (size_t)rows, .bytes = (size_t)row, .from_pitch = (size_t)row,
            .to = to, .to_pitch = (size_t)pitch,
            .from = item->tensor.data != NULL ? item->tensor.data : item->host};
        TRY(run_copy_rows(run, &copy));
        to += row;
    }
    return ACL_SUCCESS;
}

/* Finds the lengths of the parts along the axis: input 1 states one length for all parts, or the
   length of each. */
static aclError split_plan(
    Run *run, const NetNode *node, int64_t length, int64_t *parts, int64_t *each, Tensor *lengths)
{
    *each = 1;
    lengths->data = NULL;
    if (node->input_count > 1) {
        const Slot *slot = &run->slots[node->inputs[1]];
        TRY(value_look(run, node->inputs[1], lengths));
        if (slot->tensor.rank > 0) {
            *parts = tensor_count(lengths);
            return ACL_SUCCESS;
        }
        *each = tensor_get_int(lengths, 0);
        lengths->data = NULL;
    }
    if (*each < 1) {
        return sequence_fail(run, node, "input 1: expected a length of at least 1");
    }
    *parts = (length + *each - 1) / *each;
    return ACL_SUCCESS;
}

/* Copies one part into a block of its own. */
static aclError part_copy(Run *run, const Slot *whole, int axis, int64_t first, Slot *part)
{
    int64_t size = type_size(whole->tensor.type);
    int64_t rows = dims_count(whole->tensor.dims, axis);
    int64_t inner =
        size * dims_count(whole->tensor.dims + axis + 1, whole->tensor.rank - axis - 1);
    const char *from = whole->tensor.data != NULL ? whole->tensor.data : whole->host;
    TRY(hold_take(run, tensor_padded((size_t)tensor_bytes(&part->tensor)), &part->hold));
    part->tensor.data = part->hold->block.address;
    size_t bytes = (size_t)(part->tensor.dims[axis] * inner);
    Rows copy = {.rows = (size_t)rows, .bytes = bytes, .to = part->tensor.data, .to_pitch = bytes,
        .from = from + first * inner, .from_pitch = (size_t)(whole->tensor.dims[axis] * inner)};
    return run_copy_rows(run, &copy);
}

static aclError parts_fill(Run *run, const NetNode *node, int axis, int64_t each,
    const Tensor *lengths, Sequence *made)
{
    const Slot *whole = &run->slots[node->inputs[0]];
    int64_t first = 0, all = whole->tensor.dims[axis];
    bool keep = lengths->data != NULL || node->input_count > 1
        || net_attr_int(node, "keepdims", 1) != 0;
    for (int64_t i = 0; i < made->count; i++) {
        Slot *part = &made->items[i];
        int64_t length = lengths->data != NULL ? tensor_get_int(lengths, i) : each;
        length = lengths->data == NULL && length > all - first ? all - first : length;
        if (length < 0 || length > all - first) {
            return sequence_fail(run, node, "input 1: the lengths pass the axis");
        }
        part->tensor = whole->tensor;
        part->tensor.dims[axis] = length;
        TRY(part_copy(run, whole, axis, first, part));
        first += length;
        if (!keep) {
            part->tensor.rank--;
            memmove(part->tensor.dims + axis, part->tensor.dims + axis + 1,
                (size_t)(part->tensor.rank - axis) * sizeof part->tensor.dims[0]);
        }
    }
    return first == all ? ACL_SUCCESS
                        : sequence_fail(run, node, "input 1: the lengths do not fill the axis");
}

static aclError split_run(Run *run, const NetNode *node)
{
    const Tensor *whole = &run->slots[node->inputs[0]].tensor;
    int axis = axis_normal(net_attr_int(node, "axis", 0), whole->rank);
    int64_t parts = 0, each = 1;
    Tensor lengths = {0};
    Sequence *made = NULL;
    if (axis < 0) {
        return sequence_fail(run, node, "the axis is outside the rank of input 0");
    }
    TRY(split_plan(run, node, whole->dims[axis], &parts, &each, &lengths));
    TRY(sequence_new(parts, &made));
    aclError status = parts_fill(run, node, axis, each, &lengths, made);
    if (status != ACL_SUCCESS) {
        sequence_drop(run, &made, false);
        return status;
    }
    return sequence_output(run, node, made);
}

aclError sequence_run(Run *run, const NetNode *node)
{
    static aclError (*const runs[])(Run *run, const NetNode *node) = {
        [CONTROL_CONSTRUCT] = construct_run, [CONTROL_INSERT] = insert_run,
        [CONTROL_ERASE] = erase_run, [CONTROL_AT] = at_run, [CONTROL_LENGTH] = length_run,
        [CONTROL_CONCAT] = concat_run, [CONTROL_SPLIT] = split_run,
    };
    return node->output_count == 0 || node->outputs[0] < 0 ? ACL_SUCCESS
                                                           : runs[node->control](run, node);
}
