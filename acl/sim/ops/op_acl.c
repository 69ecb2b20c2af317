/* op_acl.c: operators that ACL has and ONNX lacks, as far as frameworks' eager modes use them:
   views with explicit strides, masks, scaled sums, stacking. */
#include "ops/op.h"
#include "numbers/broadcast.h"
#include "numbers/strided.h"

#include <math.h>
#include <string.h>

/* --- AsStrided, ViewCopy --- */

typedef struct View {
    int rank;
    int64_t size[TENSOR_RANK_MAX], stride[TENSOR_RANK_MAX], offset;
} View;

/* Reads a view (size, stride, offset) from three inputs; false unless all of the view lies inside `within`. */
static bool view_read(const OpCall *call, int first, const Tensor *within, View *view)
{
    IntList size, stride, offset;
    if (!op_ints(call, "size", first, &size) || !op_ints(call, "stride", first + 1, &stride)
        || !op_ints(call, "storage_offset", first + 2, &offset)) {
        return false;
    }
    if (size.count < 0 || size.count > TENSOR_RANK_MAX || stride.count != size.count) {
        return op_fail(call,
            "size and stride: expected at most %d integers each, got %lld and %lld",
            (int)TENSOR_RANK_MAX, (long long)size.count, (long long)stride.count);
    }
    *view = (View){.rank = (int)size.count, .offset = offset.count > 0 ? offset.values[0] : 0};
    int64_t low = view->offset, high = view->offset;
    bool empty = false;
    for (int d = 0; d < view->rank; d++) {
        view->size[d] = size.values[d];
        view->stride[d] = stride.values[d];
        empty = empty || size.values[d] == 0;
        int64_t span;
        if (size.values[d] < 0
            || __builtin_mul_overflow(size.values[d] - 1, stride.values[d], &span)
            || __builtin_add_overflow(low, span < 0 ? span : 0, &low)
            || __builtin_add_overflow(high, span > 0 ? span : 0, &high)) {
            return op_fail(call, "size and stride: dimension %d is %lld by %lld", d,
                (long long)size.values[d], (long long)stride.values[d]);
        }
    }
    return empty || (low >= 0 && high < tensor_count(within))
        || op_fail(call, "the view reaches [%lld, %lld] of %lld elements", (long long)low,
            (long long)high, (long long)tensor_count(within));
}

/* Returns how many elements of its tensor a view reaches: the highest offset that it uses, plus one. */
static int64_t view_reach(const OpCall *call, int first, const Tensor *within)
{
    View view;
    if (!view_read(call, first, within, &view)) {
        return -1;
    }
    int64_t end = view.offset + 1;
    for (int d = 0; d < view.rank; d++) {
        if (view.size[d] == 0) {
            return 0;
        }
        end += view.stride[d] > 0 ? (view.size[d] - 1) * view.stride[d] : 0;
    }
    return end;
}

int64_t op_reach(const OpCall *call, int input)
{
    bool viewed = (call->kind->flags & OP_STRIDED) != 0 && (input == 0 || input == 4);
    return viewed ? view_reach(call, input + 1, call->inputs[input]) : -1;
}

static bool strided_infer(OpCall *call)
{
    View view;
    if (!view_read(call, 1, call->inputs[0], &view)) {
        return false;
    }
    call->outputs[0].type = call->inputs[0]->type;
    call->outputs[0].rank = view.rank;
    memcpy(call->outputs[0].dims, view.size, sizeof view.size);
    return true;
}

static bool strided_run(const OpCall *call)
{
    View view;
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    if (!view_read(call, 1, in, &view)) {
        return false;
    }
    Strided box = {.rank = view.rank};
    Tensor shape = {.rank = view.rank};
    memcpy(shape.dims, view.size, sizeof view.size);
    strides_of(&shape, box.to);
    memcpy(box.dims, view.size, sizeof view.size);
    memcpy(box.from, view.stride, sizeof view.stride);
    int64_t size = type_size(in->type);
    if (tensor_count(&shape) > 0) {
        strided_copy(&box, out->data, (const char *)in->data + view.offset * size, size);
    }
    return true;
}

/* Inputs 0 to 3 are the destination and its view, inputs 4 to 7 the source and its view. The output
   is the destination. */
static bool viewcopy_infer(OpCall *call)
{
    View to, from;
    if (call->inputs[0]->type != call->inputs[4]->type) {
        return op_fail(call, "input 4: expected %s like input 0, got %s",
            type_name(call->inputs[0]->type), type_name(call->inputs[4]->type));
    }
    if (!view_read(call, 1, call->inputs[0], &to) || !view_read(call, 5, call->inputs[4], &from)) {
        return false;
    }
    if (to.rank != from.rank || memcmp(to.size, from.size, sizeof to.size) != 0) {
        return op_fail(call, "the two views differ in size");
    }
    return op_same(call, 0);
}

static bool viewcopy_run(const OpCall *call)
{
    View to, from;
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    if (!view_read(call, 1, in, &to) || !view_read(call, 5, call->inputs[4], &from)) {
        return false;
    }
    if (out->data != in->data) {
        memmove(out->data, in->data, (size_t)tensor_bytes(in));
    }
    Strided box = {.rank = to.rank};
    memcpy(box.dims, to.size, sizeof to.size);
    memcpy(box.to, to.stride, sizeof to.stride);
    memcpy(box.from, from.stride, sizeof from.stride);
    int64_t size = type_size(in->type);
    if (dims_count(to.size, to.rank) > 0) {
        strided_copy(&box, (char *)out->data + to.offset * size,
            (const char *)call->inputs[4]->data + from.offset * size, size);
    }
    return true;
}

/* --- sums with a factor: a + f * b, a + f * b * c, a + f * b / c, a + f * (b - a) --- */

enum { AXPY, ADDCMUL, ADDCDIV, LERP };

static int factor_input(const OpCall *call)
{
    return call->kind->variant == AXPY || call->kind->variant == LERP ? 2 : 3;
}

static bool factor_infer(OpCall *call)
{
    int terms = factor_input(call);
    Tensor *out = &call->outputs[0];
    op_same(call, 0);
    for (int i = 1; i < terms; i++) {
        Tensor so_far = *out;
        if (call->inputs[i]->type != out->type || !dims_broadcast(&so_far, call->inputs[i], out)) {
            char a[128], b[128];
            return op_fail(call, "input %d: %s %s does not go with %s %s", i,
                type_name(call->inputs[i]->type), shape_text(call->inputs[i], a, sizeof a),
                type_name(out->type), shape_text(&so_far, b, sizeof b));
        }
    }
    const Tensor *factor = op_input(call, terms);
    return factor == NULL || tensor_count(factor) == 1
        || op_fail(call, "input %d: expected one value", terms);
}

static double factor_real(int variant, double f, double a, double b, double c)
{
    switch (variant) {
    case ADDCMUL: return a + f * b * c;
    case ADDCDIV: return a + f * b / c;
    case LERP: return a + f * (b - a);
    default: return a + f * b;
    }
}

static bool factor_run(const OpCall *call)
{
    Spread spread;
    int terms = factor_input(call), variant = call->kind->variant;
    const Tensor *out = &call->outputs[0], *factor = op_input(call, terms);
    double f = factor != NULL ? tensor_get_real(factor, 0) : attr_float(call, "alpha", 1.0);
    spread_plan(&spread, out, call->inputs, terms);
    for (int64_t row = 0; row < spread.rows; row++) {
        int64_t at[SPREAD_OPERANDS] = {0};
        spread_offsets(&spread, row, at);
        for (int64_t i = 0; i < spread.inner; i++) {
            double v[SPREAD_OPERANDS] = {0.0, 0.0, 1.0};
            for (int t = 0; t < terms; t++) {
                v[t] = tensor_get_real(call->inputs[t], at[t] + i * spread.inner_stride[t]);
            }
            double value = factor_real(variant, f, v[0], v[1], v[2]);
            char *place = (char *)out->data + (row * spread.inner + i) * type_size(out->type);
            convert(place, out->type, &value, ACL_DOUBLE, 1, 1);
        }
    }
    return true;
}

/* --- masks --- */

static bool fill_infer(OpCall *call)
{
    const Tensor *in = call->inputs[0], *mask = call->inputs[1];
    if (mask->type != ACL_BOOL || !dims_broadcast(in, mask, &call->outputs[0])
        || tensor_count(call->inputs[2]) != 1) {
        return op_fail(call, "expected a bool mask that fits input 0, and one value");
    }
    call->outputs[0].type = in->type;
    return true;
}

static bool fill_run(const OpCall *call)
{
    Spread spread;
    uint64_t value = 0;
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    int64_t size = type_size(in->type);
    const uint8_t *mask = call->inputs[1]->data;
    convert(&value, in->type, call->inputs[2]->data, call->inputs[2]->type, 1, 1);
    spread_plan(&spread, out, call->inputs, 2);
    for (int64_t row = 0; row < spread.rows; row++) {
        int64_t at[2];
        spread_offsets(&spread, row, at);
        for (int64_t i = 0; i < spread.inner; i++) {
            bool masked = mask[at[1] + i * spread.inner_stride[1]] != 0;
            const char *from = (const char *)in->data + (at[0] + i * spread.inner_stride[0]) * size;
            memcpy((char *)out->data + (row * spread.inner + i) * size,
                masked ? (const char *)&value : from, (size_t)size);
        }
    }
    return true;
}

/* Returns the number of elements that the mask selects, and writes them to `out` unless it is NULL. */
static int64_t selected(const OpCall *call, char *out)
{
    Spread spread;
    Tensor shape = {0};
    const Tensor *in = call->inputs[0];
    const uint8_t *mask = call->inputs[1]->data;
    int64_t size = type_size(in->type), found = 0;
    (void)dims_broadcast(in, call->inputs[1], &shape);
    spread_plan(&spread, &shape, call->inputs, 2);
    for (int64_t row = 0; row < spread.rows; row++) {
        int64_t at[2];
        spread_offsets(&spread, row, at);
        for (int64_t i = 0; i < spread.inner; i++) {
            if (mask[at[1] + i * spread.inner_stride[1]] == 0) {
                continue;
            }
            if (out != NULL) {
                memcpy(out + found * size,
                    (const char *)in->data + (at[0] + i * spread.inner_stride[0]) * size,
                    (size_t)size);
            }
            found++;
        }
    }
    return found;
}

static bool select_infer(OpCall *call)
{
    Tensor shape;
    if (call->inputs[1]->type != ACL_BOOL
        || !dims_broadcast(call->inputs[0], call->inputs[1], &shape)) {
        return op_fail(call, "input 1: expected a bool mask that fits input 0");
    }
    call->outputs[0].type = call->inputs[0]->type;
    call->outputs[0].rank = 1;
    call->outputs[0].dims[0] = selected(call, NULL);
    return true;
}

static bool select_run(const OpCall *call)
{
    (void)selected(call, call->outputs[0].data);
    return true;
}

/* --- Tril, Triu --- */

static bool triangle_infer(OpCall *call)
{
    return call->inputs[0]->rank >= 2 ? op_same(call, 0)
        : op_fail(call, "input 0: expected rank 2 or more, got %d", call->inputs[0]->rank);
}

static bool triangle_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    int64_t k = attr_int(call, "diagonal", 0), size = type_size(in->type);
    int64_t rows = in->dims[in->rank - 2], columns = in->dims[in->rank - 1];
    bool upper = call->kind->variant != 0;
    k = k < -rows ? -rows : k > columns ? columns : k;
    for (int64_t i = 0; i < tensor_count(in); i++) {
        int64_t column = i % columns, row = i / columns % rows;
        bool kept = upper ? column >= row + k : column <= row + k;
        if (kept) {
            memcpy((char *)out->data + i * size, (const char *)in->data + i * size, (size_t)size);
        } else {
            memset((char *)out->data + i * size, 0, (size_t)size);
        }
    }
    return true;
}

/* --- Pack, Unpack --- */

static bool pack_infer(OpCall *call)
{
    const Tensor *first = call->inputs[0];
    Tensor *out = &call->outputs[0];
    int axis = axis_normal(attr_int(call, "axis", 0), first->rank + 1);
    if (axis < 0 || first->rank == TENSOR_RANK_MAX) {
        return op_fail(call, "axis %lld is outside the rank %d",
            (long long)attr_int(call, "axis", 0), first->rank + 1);
    }
    for (int i = 1; i < call->input_count; i++) {
        if (call->inputs[i] == NULL || call->inputs[i]->type != first->type
            || !tensor_same_shape(call->inputs[i], first)) {
            return op_fail(call, "input %d differs from input 0 in type or shape", i);
        }
    }
    out->type = first->type;
    out->rank = first->rank + 1;
    for (int d = 0; d < out->rank; d++) {
        out->dims[d] = d < axis ? first->dims[d]
            : d == axis         ? call->input_count
                                : first->dims[d - 1];
    }
    return true;
}

static bool pack_run(const OpCall *call)
{
    const Tensor *first = call->inputs[0];
    int axis = axis_normal(attr_int(call, "axis", 0), first->rank + 1);
    int64_t outer = dims_count(first->dims, axis);
    int64_t run = dims_count(first->dims + axis, first->rank - axis) * type_size(first->type);
    char *out = call->outputs[0].data;
    for (int64_t o = 0; o < outer && run > 0; o++) {
        for (int i = 0; i < call->input_count; i++, out += run) {
            memcpy(out, (const char *)call->inputs[i]->data + o * run, (size_t)run);
        }
    }
    return true;
}

static bool unpack_infer(OpCall *call)
{
    const Tensor *in = call->inputs[0];
    int axis = axis_normal(attr_int(call, "axis", 0), in->rank);
    if (axis < 0 || in->dims[axis] != call->output_count) {
        return op_fail(call, "axis %lld of input 0 does not have %d parts",
            (long long)attr_int(call, "axis", 0), call->output_count);
    }
    for (int i = 0; i < call->output_count; i++) {
        call->outputs[i].type = in->type;
        call->outputs[i].rank = in->rank - 1;
        for (int d = 0; d < in->rank - 1; d++) {
            call->outputs[i].dims[d] = in->dims[d < axis ? d : d + 1];
        }
    }
    return true;
}

static bool unpack_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0];
    int axis = axis_normal(attr_int(call, "axis", 0), in->rank);
    int64_t outer = dims_count(in->dims, axis);
    int64_t run = dims_count(in->dims + axis + 1, in->rank - axis - 1) * type_size(in->type);
    const char *from = in->data;
    for (int64_t o = 0; o < outer && run > 0; o++) {
        for (int i = 0; i < call->output_count; i++, from += run) {
            memcpy((char *)call->outputs[i].data + o * run, from, (size_t)run);
        }
    }
    return true;
}

/* --- ArgMaxWithValue, ArgMinWithValue: outputs indices and values --- */

static bool argvalue_infer(OpCall *call)
{
    const Tensor *in = call->inputs[0];
    int axis = axis_normal(attr_int(call, "dimension", 0), in->rank);
    bool keep = attr_int(call, "keep_dims", 0) != 0;
    if (axis < 0 || in->dims[axis] == 0) {
        return op_fail(call, "dimension %lld of input 0 does not exist or is empty",
            (long long)attr_int(call, "dimension", 0));
    }
    for (int o = 0; o < call->output_count; o++) {
        Tensor *out = &call->outputs[o];
        out->type = o == 0 ? ACL_INT32 : in->type;
        out->rank = 0;
        for (int d = 0; d < in->rank; d++) {
            if (d != axis || keep) {
                out->dims[out->rank++] = d == axis ? 1 : in->dims[d];
            }
        }
    }
    return true;
}

static bool argvalue_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0];
    int axis = axis_normal(attr_int(call, "dimension", 0), in->rank);
    int64_t inner = dims_count(in->dims + axis + 1, in->rank - axis - 1),
            size = type_size(in->type);
    int64_t length = in->dims[axis], lines = dims_count(in->dims, axis) * inner;
    for (int64_t i = 0; i < lines; i++) {
        int64_t base = i / inner * length * inner + i % inner, best = 0;
        double value = tensor_get_real(in, base);
        for (int64_t j = 1; j < length && !isnan(value); j++) {
            double other = tensor_get_real(in, base + j * inner);
            if (isnan(other) || (call->kind->variant == 0 ? other > value : other < value)) {
                value = other;
                best = j;
            }
        }
        if (call->outputs[0].data != NULL) {
            ((int32_t *)call->outputs[0].data)[i] = (int32_t)best;
        }
        if (call->output_count > 1 && call->outputs[1].data != NULL) {
            memcpy((char *)call->outputs[1].data + i * size,
                (const char *)in->data + (base + best * inner) * size, (size_t)size);
        }
    }
    return true;
}

const OpKind ops_acl[] = {
    {"AsStrided", OP_ACL, 3, 4, 1, 14, strided_infer, NULL, strided_run, 0, OP_STRIDED},
    {"ViewCopy", OP_ACL, 8, 8, 1, 238, viewcopy_infer, NULL, viewcopy_run, 0,
        OP_IN_PLACE | OP_STRIDED},
    {"AxpyV2", OP_ACL, 3, 3, 1, 0, factor_infer, NULL, factor_run, AXPY, 0},
    {"Axpy", OP_ACL, 2, 2, 1, 0, factor_infer, NULL, factor_run, AXPY, 0},
    {"Addcmul", OP_ACL, 4, 4, 1, 0, factor_infer, NULL, factor_run, ADDCMUL, 0},
    {"Addcdiv", OP_ACL, 4, 4, 1, 0, factor_infer, NULL, factor_run, ADDCDIV, 0},
    {"Lerp", OP_ACL, 3, 3, 1, 0, factor_infer, NULL, factor_run, LERP, 0},
    {"MaskedFill", OP_ACL, 3, 3, 1, 0, fill_infer, NULL, fill_run, 0, 0},
    {"MaskedSelect", OP_ACL, 2, 2, 1, 3, select_infer, NULL, select_run, 0, OP_DATA_SIZED},
    {"Tril", OP_ACL, 1, 1, 1, 0, triangle_infer, NULL, triangle_run, 0, 0},
    {"Triu", OP_ACL, 1, 1, 1, 0, triangle_infer, NULL, triangle_run, 1, 0},
    {"Pack", OP_ACL, 1, OP_INPUTS_ALL, 1, 0, pack_infer, NULL, pack_run, 0, 0},
    {"Unpack", OP_ACL, 1, 1, OP_INPUTS_ALL, 0, unpack_infer, NULL, unpack_run, 0, 0},
    {"ArgMaxWithValue", OP_ACL, 1, 1, 2, 0, argvalue_infer, NULL, argvalue_run, 0, 0},
    {"ArgMinWithValue", OP_ACL, 1, 1, 2, 0, argvalue_infer, NULL, argvalue_run, 1, 0},
    {0},
};
