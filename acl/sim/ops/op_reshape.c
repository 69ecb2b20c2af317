/* op_reshape.c: operators that give the same elements another shape.

   A caller may let the output share the input's memory (OP_VIEW). If it does not, `run` copies the
   elements. */
#include "ops/op.h"

#include <string.h>

static bool count_check(const OpCall *call)
{
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    if (!tensor_fits(out) || tensor_count(in) != tensor_count(out)) {
        char a[128], b[128];
        return op_fail(call, "shape %s cannot become %s", shape_text(in, a, sizeof a),
            shape_text(out, b, sizeof b));
    }
    return true;
}

static bool reshape_infer(OpCall *call)
{
    IntList shape;
    const Tensor *in = call->inputs[0];
    Tensor *out = &call->outputs[0];
    if (!op_ints(call, "shape", 1, &shape)) {
        return false;
    }
    if (shape.count < 0 || shape.count > TENSOR_RANK_MAX) {
        return op_fail(call, "shape: expected at most %d dimensions", (int)TENSOR_RANK_MAX);
    }
    bool zero_is_zero = attr_int(call, "allowzero", 0) != 0;
    int64_t known = 1;
    int open = -1;
    out->type = in->type;
    out->rank = (int)shape.count;
    for (int d = 0; d < out->rank; d++) {
        int64_t value = shape.values[d];
        if (value == 0 && !zero_is_zero && d < in->rank) {
            value = in->dims[d];
        }
        out->dims[d] = value;
        if (value == -1 && open < 0) {
            open = d;
        } else if (__builtin_mul_overflow(known, value, &known) || value < 0) {
            return op_fail(call, "shape: dimension %d is %lld", d, (long long)value);
        }
    }
    if (open >= 0) {
        out->dims[open] = known == 0 ? 0 : tensor_count(in) / known;
    }
    return count_check(call);
}

static bool flatten_infer(OpCall *call)
{
    const Tensor *in = call->inputs[0];
    Tensor *out = &call->outputs[0];
    int64_t axis = attr_int(call, "axis", 1);
    axis = axis < 0 ? axis + in->rank : axis;
    if (axis < 0 || axis > in->rank) {
        return op_fail(
            call, "axis %lld is outside the rank %d of input 0", (long long)axis, in->rank);
    }
    out->type = in->type;
    out->rank = 2;
    out->dims[0] = dims_count(in->dims, (int)axis);
    out->dims[1] = dims_count(in->dims + axis, in->rank - (int)axis);
    return true;
}

static bool squeeze_infer(OpCall *call)
{
    IntList axes;
    bool drop[TENSOR_RANK_MAX] = {false};
    const Tensor *in = call->inputs[0];
    Tensor *out = &call->outputs[0];
    if (!op_ints(call, call->kind->domain == OP_ACL ? "axis" : "axes", 1, &axes)) {
        return false;
    }
    for (int64_t i = 0; i < axes.count; i++) {
        int axis = axis_normal(axes.values[i], in->rank);
        if (axis < 0 || in->dims[axis] != 1) {
            return op_fail(
                call, "axes: dimension %lld of input 0 is not 1", (long long)axes.values[i]);
        }
        drop[axis] = true;
    }
    out->type = in->type;
    out->rank = 0;
    for (int d = 0; d < in->rank; d++) {
        if (axes.count <= 0 ? in->dims[d] != 1 : !drop[d]) {
            out->dims[out->rank++] = in->dims[d];
        }
    }
    return true;
}

static bool unsqueeze_infer(OpCall *call)
{
    IntList axes;
    bool added[TENSOR_RANK_MAX] = {false};
    const Tensor *in = call->inputs[0];
    Tensor *out = &call->outputs[0];
    if (!op_ints(call, "axes", 1, &axes)) {
        return false;
    }
    int rank = in->rank + (axes.count < 0 ? 0 : (int)axes.count);
    if (axes.count < 0 || rank > TENSOR_RANK_MAX) {
        return op_fail(call, "axes: expected axes for at most %d dimensions", (int)TENSOR_RANK_MAX);
    }
    for (int64_t i = 0; i < axes.count; i++) {
        int axis = axis_normal(axes.values[i], rank);
        if (axis < 0 || added[axis]) {
            return op_fail(call, "axes: %lld is outside the rank %d or given twice",
                (long long)axes.values[i], rank);
        }
        added[axis] = true;
    }
    out->type = in->type;
    out->rank = rank;
    for (int d = 0, from = 0; d < rank; d++) {
        out->dims[d] = added[d] ? 1 : in->dims[from++];
    }
    return true;
}

static bool view_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    if (in->data != out->data) {
        memcpy(out->data, in->data, (size_t)tensor_bytes(in));
    }
    return true;
}

#define VIEW(NAME, DOMAIN, MOST, INFER) \
    {NAME, DOMAIN, 1, MOST, 1, MOST == 2 ? 2 : 0, INFER, NULL, view_run, 0, OP_VIEW}

const OpKind ops_reshape[] = {
    VIEW("Reshape", OP_BOTH, 2, reshape_infer), VIEW("Flatten", OP_ONNX, 1, flatten_infer),
    VIEW("Squeeze", OP_BOTH, 2, squeeze_infer), VIEW("Unsqueeze", OP_BOTH, 2, unsqueeze_infer),
    {0},
};
