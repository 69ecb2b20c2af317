/* op_pick.c: operators that take part of a tensor, or turn part of it round: Compress,
   ReverseSequence, CenterCropPad, Hardmax. */
#include "ops/op.h"
#include "numbers/strided.h"

#include <string.h>

/* --- Compress: where a condition holds, along an axis or over all elements --- */

static bool compress_infer(OpCall *call)
{
    const Tensor *in = call->inputs[0], *condition = call->inputs[1];
    Tensor *out = &call->outputs[0];
    bool flat = attr_find(call, "axis") == NULL;
    int axis = flat ? 0 : axis_normal(attr_int(call, "axis", 0), in->rank);
    int64_t length = flat ? tensor_count(in) : axis < 0 ? 0 : in->dims[axis], kept = 0;
    if (condition->type != ACL_BOOL || condition->rank != 1 || axis < 0
        || condition->dims[0] > length) {
        char text[128];
        return op_fail(call, "input 1: expected a bool vector of at most %lld, got %s %s",
            (long long)length, type_name(condition->type),
            shape_text(condition, text, sizeof text));
    }
    for (int64_t i = 0; i < condition->dims[0]; i++) {
        kept += tensor_get_int(condition, i) != 0;
    }
    (void)op_same(call, 0);
    if (flat) {
        out->rank = 1;
    }
    out->dims[axis] = kept;
    return true;
}

static bool compress_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0], *condition = call->inputs[1];
    bool flat = attr_find(call, "axis") == NULL;
    int axis = flat ? 0 : axis_normal(attr_int(call, "axis", 0), in->rank);
    int64_t length = flat ? tensor_count(in) : in->dims[axis];
    int64_t inner = flat ? 1 : dims_count(in->dims + axis + 1, in->rank - axis - 1);
    int64_t outer = flat ? 1 : dims_count(in->dims, axis);
    size_t bytes = (size_t)(inner * type_size(in->type));
    char *to = call->outputs[0].data;
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t i = 0; i < condition->dims[0]; i++) {
            if (tensor_get_int(condition, i) != 0) {
                memcpy(to, (const char *)in->data + (size_t)(o * length + i) * bytes, bytes);
                to += bytes;
            }
        }
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

/* --- Hardmax: one at the first largest element of each line, zero elsewhere --- */

/* Before operator set 13 over all dimensions from the axis on, which is 1. */
static int hardmax_axis(const OpCall *call)
{
    return axis_normal(attr_int(call, "axis", call->opset < 13 ? 1 : -1), call->inputs[0]->rank);
}

static bool hardmax_infer(OpCall *call)
{
    const Tensor *in = call->inputs[0];
    if (!type_is_float(in->type) || hardmax_axis(call) < 0) {
        return op_fail(call, "expected a float tensor and an axis within its rank, got %s",
            type_name(in->type));
    }
    return op_same(call, 0);
}

static bool hardmax_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    int axis = hardmax_axis(call);
    bool flat = call->opset < 13;
    int64_t behind = dims_count(in->dims + axis + 1, in->rank - axis - 1);
    int64_t inner = flat ? 1 : behind, length = in->dims[axis] * (flat ? behind : 1);
    int64_t lines = dims_count(in->dims, axis) * inner;
    const float one = 1.0F;
    memset(out->data, 0, (size_t)tensor_bytes(out));
    for (int64_t i = 0; length > 0 && i < lines; i++) {
        int64_t base = i / inner * length * inner + i % inner, best = 0;
        const float *floats = in->type == ACL_FLOAT ? in->data : NULL;
        for (int64_t j = 1; floats != NULL && j < length; j++) {
            best = floats[base + j * inner] > floats[base + best * inner] ? j : best;
        }
        for (int64_t j = 1; floats == NULL && j < length; j++) {
            if (tensor_get_real(in, base + j * inner)
                > tensor_get_real(in, base + best * inner)) {
                best = j;
            }
        }
        convert((char *)out->data + (base + best * inner) * type_size(out->type), out->type, &one,
            ACL_FLOAT, 1, 1);
    }
    return true;
}

const OpKind ops_pick[] = {
    {"Compress", OP_ONNX, 2, 2, 1, 2, compress_infer, NULL, compress_run, 0, 0},
    {"ReverseSequence", OP_ONNX, 2, 2, 1, 0, reverse_infer, NULL, reverse_run, 0, 0},
    {"CenterCropPad", OP_ONNX, 2, 2, 1, 2, center_infer, NULL, center_run, 0, 0},
    {"Hardmax", OP_ONNX, 1, 1, 1, 0, hardmax_infer, NULL, hardmax_run, 0, 0},
    {0},
};
