/* op_move.c: operators that move elements without using their values: Transpose, Slice, Concat,
   Split, Expand, Tile, ReverseSequence, CenterCropPad. Most of them copy a box of elements from one
   set of strides to another (strided.h). */
#include "ops/op.h"
#include "numbers/strided.h"

#include <string.h>

/* --- Transpose, Permute --- */

enum { TRANSPOSE, PERMUTE };

static bool permutation_read(const OpCall *call, IntList *order)
{
    const Tensor *in = call->inputs[0];
    bool permute = call->kind->variant == PERMUTE;
    if (!op_ints(call, permute ? "order" : "perm", call->kind->domain == OP_ACL ? 1 : -1, order)) {
        return false;
    }
    if (permute && order->count < 0) {
        order->count = 1; /* the default of this operator: the first dimension alone */
        order->values[0] = 0;
    }
    bool seen[TENSOR_RANK_MAX] = {false};
    if (order->count < 0) {
        order->count = in->rank;
        for (int d = 0; d < in->rank; d++) {
            order->values[d] = in->rank - 1 - d;
        }
    }
    bool right = order->count == in->rank;
    for (int64_t d = 0; right && d < order->count; d++) {
        int axis = axis_normal(order->values[d], in->rank);
        right = axis >= 0 && !seen[axis];
        if (right) {
            seen[axis] = true;
            order->values[d] = axis;
        }
    }
    return right || op_fail(call, "%s is not a permutation of %d dimensions",
                        permute ? "order" : "perm", in->rank);
}

static bool transpose_infer(OpCall *call)
{
    IntList order;
    const Tensor *in = call->inputs[0];
    if (!permutation_read(call, &order)) {
        return false;
    }
    call->outputs[0].type = in->type;
    call->outputs[0].rank = in->rank;
    for (int d = 0; d < in->rank; d++) {
        call->outputs[0].dims[d] = in->dims[order.values[d]];
    }
    return true;
}

static bool transpose_run(const OpCall *call)
{
    IntList order;
    int64_t strides[TENSOR_RANK_MAX];
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    if (!permutation_read(call, &order)) {
        return false;
    }
    Strided box = {.rank = in->rank};
    strides_of(in, strides);
    strides_of(out, box.to);
    for (int d = 0; d < in->rank; d++) {
        box.dims[d] = out->dims[d];
        box.from[d] = strides[order.values[d]];
    }
    strided_copy(&box, out->data, in->data, type_size(in->type));
    return true;
}

/* --- Slice: ONNX's (starts, ends, axes, steps) and ACL's forms --- */

enum { SLICE, SLICE_SIZES, SLICE_STRIDED };

typedef struct Cut {
    int64_t start[TENSOR_RANK_MAX], step[TENSOR_RANK_MAX], count[TENSOR_RANK_MAX];
    bool gone[TENSOR_RANK_MAX];   /* dimensions that StridedSlice removes */
} Cut;

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* Sets the slice of one axis by Python's rules for bounds that are negative or out of range. */
static void cut_axis(Cut *cut, int axis, int64_t length, int64_t start, int64_t end, int64_t step)
{
    start = start < 0 ? start + length : start;
    end = end < 0 ? end + length : end;
    start = step > 0 ? clamp(start, 0, length) : clamp(start, 0, length - 1);
    end = step > 0 ? clamp(end, 0, length) : clamp(end, -1, length - 1);
    int64_t span = step > 0 ? end - start : start - end;
    int64_t stride = step > 0 ? step : -step;
    cut->start[axis] = start;
    cut->count[axis] = span <= 0 || length == 0 ? 0 : (span - 1) / stride + 1;
    cut->step[axis] = cut->count[axis] > 1 ? step : 1; /* for one element the step does not matter */
}

static void cut_whole(const Tensor *in, Cut *cut)
{
    memset(cut, 0, sizeof *cut);
    for (int d = 0; d < in->rank; d++) {
        cut->step[d] = 1;
        cut->count[d] = in->dims[d];
    }
}

static bool slice_plan(const OpCall *call, Cut *cut)
{
    IntList starts, ends, axes, steps;
    const Tensor *in = call->inputs[0];
    cut_whole(in, cut);
    if (!op_ints(call, "starts", 1, &starts) || !op_ints(call, "ends", 2, &ends)
        || !op_ints(call, "axes", 3, &axes) || !op_ints(call, "steps", 4, &steps)) {
        return false;
    }
    if (starts.count < 0 || starts.count != ends.count
        || (axes.count >= 0 && axes.count != starts.count)
        || (steps.count >= 0 && steps.count != starts.count)) {
        return op_fail(call, "starts, ends, axes and steps differ in length");
    }
    for (int i = 0; i < (int)starts.count; i++) {
        int axis = axis_normal(axes.count < 0 ? i : axes.values[i], in->rank);
        int64_t step = steps.count < 0 ? 1 : steps.values[i];
        if (axis < 0 || step == 0 || step == INT64_MIN) {
            return op_fail(
                call, "axes and steps: entry %d is out of range for rank %d", i, in->rank);
        }
        cut_axis(cut, axis, in->dims[axis], starts.values[i], ends.values[i], step);
    }
    return true;
}

/* Plans ACL's Slice, which has offsets and sizes; the size -1 means up to the end. */
static bool sizes_plan(const OpCall *call, Cut *cut)
{
    IntList offsets, sizes;
    const Tensor *in = call->inputs[0];
    cut_whole(in, cut);
    if (!op_ints(call, "offsets", 1, &offsets) || !op_ints(call, "size", 2, &sizes)) {
        return false;
    }
    if (offsets.count != in->rank || sizes.count != in->rank) {
        return op_fail(call, "offsets and size: expected %d integers", in->rank);
    }
    for (int d = 0; d < in->rank; d++) {
        int64_t first = offsets.values[d], count = sizes.values[d];
        count = count == -1 ? in->dims[d] - first : count;
        if (first < 0 || count < 0 || first > in->dims[d] - count) {
            return op_fail(call, "offsets and size: dimension %d of %lld has no part [%lld, +%lld)",
                d, (long long)in->dims[d], (long long)first, (long long)count);
        }
        cut->start[d] = first;
        cut->count[d] = count;
    }
    return true;
}

/* Plans ACL's StridedSlice, in which bit i of each mask concerns axis i. Ellipses and new axes are refused. */
static bool strided_plan(const OpCall *call, Cut *cut)
{
    IntList begin, end, steps;
    const Tensor *in = call->inputs[0];
    cut_whole(in, cut);
    if (!op_ints(call, "begin", 1, &begin) || !op_ints(call, "end", 2, &end)
        || !op_ints(call, "strides", 3, &steps)) {
        return false;
    }
    int64_t begins = attr_int(call, "begin_mask", 0), ends = attr_int(call, "end_mask", 0);
    int64_t shrink = attr_int(call, "shrink_axis_mask", 0);
    if (attr_int(call, "ellipsis_mask", 0) != 0 || attr_int(call, "new_axis_mask", 0) != 0) {
        return op_fail(call, "ellipsis_mask and new_axis_mask are not supported");
    }
    if (begin.count < 0 || begin.count != end.count || begin.count > in->rank
        || (steps.count >= 0 && steps.count != begin.count)) {
        return op_fail(call, "begin, end and strides: expected up to %d integers each", in->rank);
    }
    for (int d = 0; d < (int)begin.count; d++) {
        int64_t step = steps.count < 0 ? 1 : steps.values[d], length = in->dims[d];
        int64_t first = (begins >> d & 1) != 0 ? (step < 0 ? length - 1 : 0) : begin.values[d];
        int64_t last = (ends >> d & 1) != 0 ? (step < 0 ? -length - 1 : length) : end.values[d];
        if (step == 0 || step == INT64_MIN) {
            return op_fail(call, "strides: entry %d is out of range", d);
        }
        if ((shrink >> d & 1) != 0) {
            first = first < 0 ? first + length : first;
            if (first < 0 || first >= length) {
                return op_fail(call, "begin: %lld is outside dimension %d of %lld",
                    (long long)first, d, (long long)length);
            }
            last = first + 1;
            step = 1;
            cut->gone[d] = true;
        }
        cut_axis(cut, d, length, first, last, step);
    }
    return true;
}

static bool cut_plan(const OpCall *call, Cut *cut)
{
    switch (call->kind->variant) {
    case SLICE_SIZES:
        return sizes_plan(call, cut);
    case SLICE_STRIDED:
        return strided_plan(call, cut);
    default:
        return slice_plan(call, cut);
    }
}

static bool slice_infer(OpCall *call)
{
    Cut cut;
    const Tensor *in = call->inputs[0];
    Tensor *out = &call->outputs[0];
    if (!cut_plan(call, &cut)) {
        return false;
    }
    out->type = in->type;
    out->rank = 0;
    for (int d = 0; d < in->rank; d++) {
        if (!cut.gone[d]) {
            out->dims[out->rank++] = cut.count[d];
        }
    }
    return true;
}

static bool slice_run(const OpCall *call)
{
    Cut cut;
    int64_t strides[TENSOR_RANK_MAX], first = 0;
    const Tensor *in = call->inputs[0];
    if (!cut_plan(call, &cut)) {
        return false;
    }
    Strided box = {.rank = in->rank};
    Tensor shape = {.rank = in->rank};
    memcpy(shape.dims, cut.count, sizeof shape.dims);
    strides_of(&shape, box.to);
    strides_of(in, strides);
    for (int d = 0; d < in->rank; d++) {
        box.dims[d] = cut.count[d];
        box.from[d] = strides[d] * cut.step[d];
        first += strides[d] * cut.start[d];
    }
    int64_t size = type_size(in->type);
    if (tensor_count(&shape) > 0) {
        strided_copy(&box, call->outputs[0].data, (const char *)in->data + first * size, size);
    }
    return true;
}

/* --- Concat --- */

static int64_t concat_axis(const OpCall *call)
{
    int64_t axis = attr_int(call, call->kind->domain == OP_ACL ? "concat_dim" : "axis", 0);
    return axis_normal(axis, call->inputs[0]->rank);
}

static bool concat_infer(OpCall *call)
{
    int64_t axis = concat_axis(call);
    Tensor *out = &call->outputs[0];
    if (axis < 0) {
        return op_fail(call, "the axis is outside the rank %d of input 0", call->inputs[0]->rank);
    }
    op_same(call, 0);
    for (int i = 1; i < call->input_count; i++) {
        const Tensor *in = call->inputs[i];
        bool fits = in != NULL && in->type == out->type && in->rank == out->rank;
        for (int d = 0; fits && d < in->rank; d++) {
            fits = d == axis || in->dims[d] == out->dims[d];
        }
        if (!fits) {
            char a[128], b[128];
            return op_fail(call, "input %d: %s %s does not join %s %s", i,
                in == NULL ? "nothing" : type_name(in->type),
                in == NULL ? "" : shape_text(in, a, sizeof a), type_name(out->type),
                shape_text(call->inputs[0], b, sizeof b));
        }
        out->dims[axis] += in->dims[axis];
    }
    return true;
}

static bool concat_run(const OpCall *call)
{
    int axis = (int)concat_axis(call);
    const Tensor *out = &call->outputs[0];
    int64_t size = type_size(out->type), outer = dims_count(out->dims, axis);
    int64_t row = dims_count(out->dims + axis, out->rank - axis) * size, at = 0;
    for (int i = 0; i < call->input_count; i++) {
        const Tensor *in = call->inputs[i];
        int64_t run = dims_count(in->dims + axis, in->rank - axis) * size;
        for (int64_t o = 0; o < outer && run > 0; o++) {
            memcpy((char *)out->data + o * row + at, (const char *)in->data + o * run, (size_t)run);
        }
        at += run;
    }
    return true;
}

/* --- Split --- */

static bool split_infer(OpCall *call)
{
    IntList sizes;
    const Tensor *in = call->inputs[0];
    int axis = axis_normal(attr_int(call, "axis", 0), in->rank);
    if (axis < 0) {
        return op_fail(call, "axis %lld is outside the rank %d of input 0",
            (long long)attr_int(call, "axis", 0), in->rank);
    }
    if (!op_ints(call, "split", 1, &sizes)) {
        return false;
    }
    int64_t length = in->dims[axis], parts = call->output_count, total = 0;
    int64_t each = parts == 0 ? 0 : (length + parts - 1) / parts;
    if (sizes.count >= 0 && sizes.count != parts) {
        return op_fail(
            call, "split: expected %lld sizes, got %lld", (long long)parts, (long long)sizes.count);
    }
    for (int i = 0; i < parts; i++) {
        int64_t left = length - total;
        int64_t here = sizes.count >= 0 ? sizes.values[i] : left < each ? left : each;
        if (here < 0 || here > left) {
            return op_fail(call, "split: size %d is %lld, of dimension %d are %lld left", i,
                (long long)here, axis, (long long)left);
        }
        call->outputs[i].type = in->type;
        tensor_shape_copy(&call->outputs[i], in);
        call->outputs[i].dims[axis] = here;
        total += here;
    }
    if (total != length) {
        return op_fail(call, "split: the sizes sum to %lld, dimension %d is %lld", (long long)total,
            axis, (long long)length);
    }
    return true;
}

static bool split_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0];
    int axis = axis_normal(attr_int(call, "axis", 0), in->rank);
    int64_t size = type_size(in->type), outer = dims_count(in->dims, axis);
    int64_t row = dims_count(in->dims + axis, in->rank - axis) * size, at = 0;
    for (int i = 0; i < call->output_count; i++) {
        const Tensor *out = &call->outputs[i];
        int64_t run = dims_count(out->dims + axis, out->rank - axis) * size;
        for (int64_t o = 0; o < outer && run > 0 && out->data != NULL; o++) {
            memcpy((char *)out->data + o * run, (const char *)in->data + o * row + at, (size_t)run);
        }
        at += run;
    }
    return true;
}

/* --- Expand, Tile --- */

static bool expand_infer(OpCall *call)
{
    IntList shape;
    const Tensor *in = call->inputs[0];
    Tensor target = {.rank = 0};
    if (!op_ints(call, "shape", 1, &shape)) {
        return false;
    }
    bool fits = shape.count >= 0 && shape.count <= TENSOR_RANK_MAX;
    target.rank = fits ? (int)shape.count : 0;
    memcpy(target.dims, shape.values, sizeof target.dims);
    call->outputs[0].type = in->type;
    if (!fits || !dims_broadcast(in, &target, &call->outputs[0])) {
        char a[128], b[128];
        return op_fail(call, "shape %s does not expand to %s", shape_text(in, a, sizeof a),
            shape_text(&target, b, sizeof b));
    }
    return true;
}

static bool expand_run(const OpCall *call)
{
    int64_t strides[TENSOR_RANK_MAX];
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    Strided box = {.rank = out->rank};
    strides_of(in, strides);
    strides_of(out, box.to);
    for (int d = 0; d < out->rank; d++) {
        int own = d - (out->rank - in->rank);
        box.dims[d] = out->dims[d];
        box.from[d] = own < 0 || in->dims[own] == 1 ? 0 : strides[own];
    }
    strided_copy(&box, out->data, in->data, type_size(in->type));
    return true;
}

static bool tile_infer(OpCall *call)
{
    IntList repeats;
    const Tensor *in = call->inputs[0];
    if (!op_ints(call, call->kind->domain == OP_ACL ? "multiples" : "repeats", 1, &repeats)) {
        return false;
    }
    if (repeats.count != in->rank) {
        return op_fail(
            call, "repeats: expected %d integers, got %lld", in->rank, (long long)repeats.count);
    }
    op_same(call, 0);
    for (int d = 0; d < in->rank; d++) {
        if (repeats.values[d] < 0
            || __builtin_mul_overflow(in->dims[d], repeats.values[d], &call->outputs[0].dims[d])) {
            return op_fail(call, "repeats: entry %d is %lld", d, (long long)repeats.values[d]);
        }
    }
    return true;
}

/* Copies a box that has two dimensions for each dimension of the input: the number of the copy, and
   the index within the copy. */
static bool tile_run(const OpCall *call)
{
    int64_t in_strides[TENSOR_RANK_MAX], out_strides[TENSOR_RANK_MAX];
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    Strided box = {.rank = 2 * in->rank};
    strides_of(in, in_strides);
    strides_of(out, out_strides);
    for (int d = 0; d < in->rank && tensor_count(out) > 0; d++) {
        box.dims[2 * d] = out->dims[d] / in->dims[d];
        box.to[2 * d] = out_strides[d] * in->dims[d];
        box.dims[2 * d + 1] = in->dims[d];
        box.to[2 * d + 1] = out_strides[d];
        box.from[2 * d + 1] = in_strides[d];
    }
    if (tensor_count(out) > 0) {
        strided_copy(&box, out->data, in->data, type_size(in->type));
    }
    return true;
}

/* --- ReverseSequence: the first `length` steps of each batch entry backwards --- */

static bool reverse_infer(OpCall *call)
{
    const Tensor *in = call->inputs[0], *lengths = call->inputs[1];
    int64_t time = attr_int(call, "time_axis", 0), batch = attr_int(call, "batch_axis", 1);
    if (in->rank < 2 || time < 0 || time > 1 || batch != 1 - time || lengths->rank != 1
        || lengths->dims[0] != in->dims[batch]) {
        char a[128], b[128];
        return op_fail(call,
            "expected axes 0 and 1 and a length for each batch entry, got %s and %s",
            shape_text(in, a, sizeof a), shape_text(lengths, b, sizeof b));
    }
    return op_same(call, 0);
}

static bool reverse_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0];
    int time = attr_int(call, "time_axis", 0) != 0;
    int64_t steps = in->dims[time], entries = in->dims[1 - time];
    int64_t step = time == 0 ? entries : 1, entry = time == 0 ? 1 : steps;
    size_t bytes = (size_t)(dims_count(in->dims + 2, in->rank - 2) * type_size(in->type));
    for (int64_t i = 0; i < steps * entries; i++) {
        int64_t b = i % entries, t = i / entries, length = tensor_get_int(call->inputs[1], b);
        if (length < 0 || length > steps) {
            return op_fail(call, "input 1: length %lld of %lld steps", (long long)length,
                (long long)steps);
        }
        int64_t from = t < length ? length - 1 - t : t;
        memcpy((char *)call->outputs[0].data + (size_t)(t * step + b * entry) * bytes,
            (const char *)in->data + (size_t)(from * step + b * entry) * bytes, bytes);
    }
    return true;
}

/* --- CenterCropPad: dimensions cut or filled with zeros on both sides --- */

static bool center_infer(OpCall *call)
{
    IntList axes, sizes;
    const Tensor *in = call->inputs[0];
    if (!op_ints(call, "axes", -1, &axes) || !op_ints(call, "shape", 1, &sizes)) {
        return false;
    }
    (void)op_same(call, 0);
    int64_t named = axes.count < 0 ? in->rank : axes.count;
    for (int64_t i = 0; i < named; i++) {
        int d = axis_normal(axes.count < 0 ? i : axes.values[i], in->rank);
        if (d < 0 || sizes.count != named || sizes.values[i] < 0) {
            return op_fail(call, "input 1: expected %lld sizes for axes within rank %d",
                (long long)named, in->rank);
        }
        call->outputs[0].dims[d] = sizes.values[i];
    }
    return true;
}

static bool center_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    Strided box = {.rank = in->rank};
    int64_t size = type_size(in->type), from = 0, to = 0;
    memset(out->data, 0, (size_t)tensor_bytes(out));
    strides_of(in, box.from);
    strides_of(out, box.to);
    for (int d = 0; d < in->rank; d++) {
        int64_t cut = in->dims[d] - out->dims[d];
        box.dims[d] = cut > 0 ? out->dims[d] : in->dims[d];
        from += cut > 0 ? cut / 2 * box.from[d] : 0;
        to += cut < 0 ? -cut / 2 * box.to[d] : 0;
    }
    if (dims_count(box.dims, box.rank) > 0) {
        strided_copy(
            &box, (char *)out->data + to * size, (const char *)in->data + from * size, size);
    }
    return true;
}

const OpKind ops_move[] = {
    {"Transpose", OP_ONNX, 1, 1, 1, 0, transpose_infer, NULL, transpose_run, 0, 0},
    {"Transpose", OP_ACL, 1, 2, 1, 2, transpose_infer, NULL, transpose_run, 0, 0},
    {"TransposeD", OP_ACL, 1, 1, 1, 0, transpose_infer, NULL, transpose_run, TRANSPOSE, 0},
    {"Permute", OP_ACL, 1, 1, 1, 0, transpose_infer, NULL, transpose_run, PERMUTE, 0},
    {"Slice", OP_ONNX, 1, 5, 1, 30, slice_infer, NULL, slice_run, SLICE, 0},
    {"Slice", OP_ACL, 1, 3, 1, 6, slice_infer, NULL, slice_run, SLICE_SIZES, 0},
    {"SliceD", OP_ACL, 1, 1, 1, 0, slice_infer, NULL, slice_run, SLICE_SIZES, 0},
    {"StridedSlice", OP_ACL, 1, 4, 1, 14, slice_infer, NULL, slice_run, SLICE_STRIDED, 0},
    {"StridedSliceD", OP_ACL, 1, 1, 1, 0, slice_infer, NULL, slice_run, SLICE_STRIDED, 0},
    {"Concat", OP_ONNX, 1, OP_INPUTS_ALL, 1, 0, concat_infer, NULL, concat_run, 0, 0},
    {"ConcatD", OP_ACL, 1, OP_INPUTS_ALL, 1, 0, concat_infer, NULL, concat_run, 0, 0},
    {"Split", OP_ONNX, 1, 2, OP_INPUTS_ALL, 2, split_infer, NULL, split_run, 0, 0},
    {"Expand", OP_ONNX, 2, 2, 1, 2, expand_infer, NULL, expand_run, 0, 0},
    {"Expand", OP_ACL, 2, 2, 1, 2, expand_infer, NULL, expand_run, 0, 0},
    {"BroadcastTo", OP_ACL, 2, 2, 1, 2, expand_infer, NULL, expand_run, 0, 0},
    {"ExpandD", OP_ACL, 1, 1, 1, 0, expand_infer, NULL, expand_run, 0, 0},
    {"BroadcastToD", OP_ACL, 1, 1, 1, 0, expand_infer, NULL, expand_run, 0, 0},
    {"Tile", OP_ONNX, 2, 2, 1, 2, tile_infer, NULL, tile_run, 0, 0},
    {"Tile", OP_ACL, 2, 2, 1, 2, tile_infer, NULL, tile_run, 0, 0},
    {"TileD", OP_ACL, 1, 1, 1, 0, tile_infer, NULL, tile_run, 0, 0},
    {"ReverseSequence", OP_ONNX, 2, 2, 1, 0, reverse_infer, NULL, reverse_run, 0, 0},
    {"CenterCropPad", OP_ONNX, 2, 2, 1, 2, center_infer, NULL, center_run, 0, 0},
    {0},
};
