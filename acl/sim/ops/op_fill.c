/* op_fill.c: operators that make tensors from shapes or scalars (Shape, Range, OneHot, ...), and Where and Pad. */
#include "ops/op.h"
#include "numbers/broadcast.h"
#include "numbers/strided.h"
#include "numbers/vmath.h"

#include <math.h>
#include <string.h>

/* --- Shape, Size --- */

static bool shape_infer(OpCall *call)
{
    const Tensor *in = call->inputs[0];
    int64_t start = attr_int(call, "start", 0), end = attr_int(call, "end", in->rank);
    start = start < 0 ? start + in->rank : start;
    end = end < 0 ? end + in->rank : end;
    start = start < 0 ? 0 : start > in->rank ? in->rank : start;
    end = end < start ? start : end > in->rank ? in->rank : end;
    call->outputs[0].type = ACL_INT64;
    call->outputs[0].rank = 1;
    call->outputs[0].dims[0] = end - start;
    return true;
}

static bool shape_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    int64_t start = attr_int(call, "start", 0);
    start = start < 0 ? start + in->rank : start;
    start = start < 0 ? 0 : start > in->rank ? in->rank : start;
    memcpy(out->data, in->dims + start, (size_t)tensor_bytes(out));
    return true;
}

static bool size_infer(OpCall *call)
{
    call->outputs[0].type = ACL_INT64;
    call->outputs[0].rank = 0;
    return true;
}

static bool size_run(const OpCall *call)
{
    *(int64_t *)call->outputs[0].data = tensor_count(call->inputs[0]);
    return true;
}

/* --- filling --- */

static bool shape_take(OpCall *call, const char *attribute, int input)
{
    IntList shape;
    if (!op_ints(call, attribute, input, &shape)) {
        return false;
    }
    if (shape.count < 0 || shape.count > TENSOR_RANK_MAX) {
        return op_fail(call, "%s: expected at most %d dimensions", attribute, (int)TENSOR_RANK_MAX);
    }
    call->outputs[0].rank = (int)shape.count;
    memcpy(call->outputs[0].dims, shape.values, sizeof call->outputs[0].dims);
    return true;
}

static bool constant_infer(OpCall *call)
{
    const Attr *value = attr_find(call, "value");
    call->outputs[0].type =
        value != NULL && value->kind == ATTR_TENSOR ? value->tensor.type : ACL_FLOAT;
    return shape_take(call, "shape", 0);
}

static bool constant_run(const OpCall *call)
{
    const Attr *value = attr_find(call, "value");
    const Tensor *out = &call->outputs[0];
    float zero = 0.0F;
    bool given = value != NULL && value->kind == ATTR_TENSOR && tensor_count(&value->tensor) > 0;
    convert(out->data, out->type, given ? value->tensor.data : &zero,
        given ? value->tensor.type : ACL_FLOAT, 0, tensor_count(out));
    return true;
}

static bool fill_infer(OpCall *call)
{
    const Tensor *value = call->inputs[call->input_count - 1];
    if (tensor_count(value) != 1) {
        return op_fail(call, "input %d: expected one value, got %lld", call->input_count - 1,
            (long long)tensor_count(value));
    }
    call->outputs[0].type = value->type;
    return shape_take(call, "dims", call->input_count == 2 ? 0 : -1);
}

static bool fill_run(const OpCall *call)
{
    const Tensor *value = call->inputs[call->input_count - 1], *out = &call->outputs[0];
    convert(out->data, out->type, value->data, value->type, 0, tensor_count(out));
    return true;
}

static bool like_infer(OpCall *call)
{
    return op_same(call, 0);
}

static bool like_run(const OpCall *call)
{
    const Tensor *out = &call->outputs[0];
    int32_t value = call->kind->variant;
    convert(out->data, out->type, &value, ACL_INT32, 0, tensor_count(out));
    return true;
}

static bool eye_infer(OpCall *call)
{
    const Tensor *in = call->inputs[0];
    if (in->rank != 2) {
        return op_fail(call, "input 0: expected rank 2, got %d", in->rank);
    }
    op_same(call, 0);
    int64_t type = attr_int(call, "dtype", 0);
    if (type != 0) {
        call->outputs[0].type = type_from_onnx(type);
    }
    return true;
}

static bool eye_run(const OpCall *call)
{
    const Tensor *out = &call->outputs[0];
    int64_t size = type_size(out->type), shift = attr_int(call, "k", 0);
    shift = shift < -out->dims[0] ? -out->dims[0] : shift > out->dims[1] ? out->dims[1] : shift;
    int32_t one = 1;
    memset(out->data, 0, (size_t)tensor_bytes(out));
    for (int64_t row = 0; row < out->dims[0]; row++) {
        if (row + shift >= 0 && row + shift < out->dims[1]) {
            char *place = (char *)out->data + (row * out->dims[1] + row + shift) * size;
            convert(place, out->type, &one, ACL_INT32, 1, 1);
        }
    }
    return true;
}

/* --- Range --- */

/* Returns the length of the range from `start` to `limit` (excluded) in steps of `delta`, without overflow. */
static uint64_t whole_count(int64_t start, int64_t limit, int64_t delta)
{
    if (delta > 0 ? limit <= start : limit >= start) {
        return 0;
    }
    uint64_t span = delta > 0 ? (uint64_t)limit - (uint64_t)start
                              : (uint64_t)start - (uint64_t)limit;
    uint64_t step = delta > 0 ? (uint64_t)delta : 0 - (uint64_t)delta;
    return (span - 1) / step + 1;
}

static bool range_infer(OpCall *call)
{
    const Tensor *start = call->inputs[0], *limit = call->inputs[1], *delta = call->inputs[2];
    double step = tensor_get_real(delta, 0), count;
    if (limit->type != start->type || delta->type != start->type || start->type == ACL_BOOL) {
        return op_fail(call, "expected three numbers of one type, got %s, %s and %s",
            type_name(start->type), type_name(limit->type), type_name(delta->type));
    }
    if (type_is_float(start->type)) {
        count = ceil((tensor_get_real(limit, 0) - tensor_get_real(start, 0)) / step);
    } else {
        count = tensor_get_int(delta, 0) == 0 ? NAN
            : (double)whole_count(tensor_get_int(start, 0), tensor_get_int(limit, 0),
                  tensor_get_int(delta, 0));
    }
    if (!(step < 0.0 || step > 0.0) || !(count <= 0x1p40)) {
        return op_fail(call, "the range is endless, or has no number");
    }
    call->outputs[0].type = start->type;
    call->outputs[0].rank = 1;
    call->outputs[0].dims[0] = count > 0.0 ? (int64_t)count : 0;
    return true;
}

static bool range_run(const OpCall *call)
{
    const Tensor *start = call->inputs[0], *delta = call->inputs[2], *out = &call->outputs[0];
    bool real = type_is_float(out->type);
    double from = tensor_get_real(start, 0), by = tensor_get_real(delta, 0);
    uint64_t first = (uint64_t)tensor_get_int(start, 0), step = (uint64_t)tensor_get_int(delta, 0);
    for (int64_t i = 0; out->type == ACL_INT64 && i < out->dims[0]; i++) {
        ((uint64_t *)out->data)[i] = first + (uint64_t)i * step;
    }
    for (int64_t i = 0; out->type == ACL_FLOAT && i < out->dims[0]; i++) {
        ((float *)out->data)[i] = (float)(from + (double)i * by);
    }
    bool done = out->type == ACL_INT64 || out->type == ACL_FLOAT;
    for (int64_t i = 0; !done && i < out->dims[0]; i++) {
        char *place = (char *)out->data + i * type_size(out->type);
        if (real) {
            double value = from + (double)i * by;
            convert(place, out->type, &value, ACL_DOUBLE, 1, 1);
        } else {
            uint64_t value = first + (uint64_t)i * step;
            convert(place, out->type, &value, ACL_INT64, 1, 1);
        }
    }
    return true;
}

/* --- OneHot --- */

static bool onehot_infer(OpCall *call)
{
    const Tensor *in = call->inputs[0];
    int64_t depth = tensor_get_int(call->inputs[1], 0), axis = attr_int(call, "axis", -1);
    axis = axis < 0 ? axis + in->rank + 1 : axis;
    if (axis < 0 || axis > in->rank || depth < 1 || in->rank == TENSOR_RANK_MAX
        || tensor_count(call->inputs[2]) != 2) {
        return op_fail(call,
            "expected a depth of at least 1, two values and an axis within rank %d", in->rank + 1);
    }
    Tensor *out = &call->outputs[0];
    out->type = call->inputs[2]->type;
    out->rank = in->rank + 1;
    for (int d = 0; d < out->rank; d++) {
        out->dims[d] = d < axis ? in->dims[d] : d == axis ? depth : in->dims[d - 1];
    }
    return true;
}

static bool onehot_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0], *values = call->inputs[2], *out = &call->outputs[0];
    int64_t depth = tensor_get_int(call->inputs[1], 0), axis = attr_int(call, "axis", -1);
    axis = axis < 0 ? axis + in->rank + 1 : axis;
    int64_t inner = dims_count(in->dims + axis, in->rank - (int)axis), size = type_size(out->type);
    convert(out->data, out->type, values->data, values->type, 0, tensor_count(out));
    for (int64_t i = 0; i < tensor_count(in); i++) {
        int64_t hot = tensor_get_int(in, i);
        hot = hot < 0 ? hot + depth : hot;
        if (hot >= 0 && hot < depth) {
            int64_t at = (i / inner * depth + hot) * inner + i % inner;
            memcpy((char *)out->data + at * size, (const char *)values->data + size, (size_t)size);
        }
    }
    return true;
}

/* --- Trilu --- */

static bool trilu_infer(OpCall *call)
{
    if (call->inputs[0]->rank < 2) {
        return op_fail(call, "input 0: expected rank 2 or more, got %d", call->inputs[0]->rank);
    }
    return op_same(call, 0);
}

static bool trilu_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0], *out = &call->outputs[0], *shift = op_input(call, 1);
    int64_t k = shift == NULL ? 0 : tensor_get_int(shift, 0), size = type_size(in->type);
    int64_t rows = in->dims[in->rank - 2], columns = in->dims[in->rank - 1];
    k = k < -rows ? -rows : k > columns ? columns : k;
    bool upper = attr_int(call, "upper", 1) != 0;
    memset(out->data, 0, (size_t)tensor_bytes(out));
    for (int64_t row = 0; columns > 0 && row < tensor_count(in) / columns; row++) {
        int64_t edge = row % rows + k; /* kept columns: [edge, columns) if `upper`, else [0, edge] */
        int64_t first = upper ? (edge < 0 ? 0 : edge) : 0;
        int64_t last = upper ? columns : (edge + 1 > columns ? columns : edge + 1);
        if (last > first) {
            int64_t at = (row * columns + first) * size;
            memcpy((char *)out->data + at, (const char *)in->data + at,
                (size_t)((last - first) * size));
        }
    }
    return true;
}

/* --- Where --- */

static bool where_infer(OpCall *call)
{
    const Tensor *condition = call->inputs[0], *yes = call->inputs[1], *no = call->inputs[2];
    Tensor *out = &call->outputs[0], joined;
    if (condition->type != ACL_BOOL || yes->type != no->type) {
        return op_fail(call, "expected bool and two values of one type, got %s, %s, %s",
            type_name(condition->type), type_name(yes->type), type_name(no->type));
    }
    out->type = yes->type;
    if (!dims_broadcast(yes, no, &joined) || !dims_broadcast(&joined, condition, out)) {
        char a[128], b[128], c[128];
        return op_fail(call, "shapes %s, %s and %s cannot be broadcast together",
            shape_text(condition, a, sizeof a), shape_text(yes, b, sizeof b),
            shape_text(no, c, sizeof c));
    }
    return true;
}

#define CHOOSE_LOOP(T) \
    do { \
        const T *a = yes; \
        const T *b = no; \
        T *o = out; \
        if (stride[0] == 1 && stride[1] == 1 && stride[2] == 1) { \
            for (int64_t i = 0; i < n; i++) { \
                T x = a[i], y = b[i]; \
                o[i] = c[i] != 0 ? x : y; \
            } \
            break; \
        } \
        for (int64_t i = 0; i < n; i++) { \
            o[i] = c[i * stride[0]] != 0 ? a[i * stride[1]] : b[i * stride[2]]; \
        } \
    } while (0)

WIDE static void row_choose(const uint8_t *c, const void *yes, const void *no, void *out,
    const int64_t *stride, int64_t n, int64_t size)
{
    switch (size) {
    case 1:
        CHOOSE_LOOP(uint8_t);
        break;
    case 2:
        CHOOSE_LOOP(uint16_t);
        break;
    case 4:
        CHOOSE_LOOP(uint32_t);
        break;
    default:
        CHOOSE_LOOP(uint64_t);
    }
}

static bool where_run(const OpCall *call)
{
    Spread spread;
    int64_t at[3], size = type_size(call->outputs[0].type);
    spread_plan(&spread, &call->outputs[0], call->inputs, 3);
    for (int64_t row = 0; row < spread.rows; row++) {
        spread_offsets(&spread, row, at);
        row_choose((const uint8_t *)call->inputs[0]->data + at[0],
            (const char *)call->inputs[1]->data + at[1] * size,
            (const char *)call->inputs[2]->data + at[2] * size,
            (char *)call->outputs[0].data + row * spread.inner * size, spread.inner_stride,
            spread.inner, size);
    }
    return true;
}

/* --- Pad --- */

/* Largest pad that is accepted, so that sums of pads and dimensions do not overflow. */
#define PAD_MAX ((int64_t)1 << 47)

typedef struct Pads {
    int64_t before[TENSOR_RANK_MAX], after[TENSOR_RANK_MAX];
} Pads;

static bool pads_read(const OpCall *call, Pads *pads)
{
    IntList list, axes;
    const Tensor *in = call->inputs[0];
    memset(pads, 0, sizeof *pads);
    if (!op_ints(call, call->kind->domain == OP_ACL ? "paddings" : "pads", 1, &list)
        || !op_ints(call, "axes", 3, &axes)) {
        return false;
    }
    int64_t count = axes.count < 0 ? in->rank : axes.count;
    if (list.count != 2 * count) {
        return op_fail(call, "pads: expected %lld integers, got %lld", (long long)(2 * count),
            (long long)list.count);
    }
    for (int i = 0; i < (int)count; i++) {
        int d = axis_normal(axes.count < 0 ? i : axes.values[i], in->rank);
        if (d < 0) {
            return op_fail(call, "axes: entry %d is outside the rank %d of input 0", i, in->rank);
        }
        bool pairs = call->kind->domain == OP_ACL; /* ACL lists [before, after] for each axis */
        pads->before[d] = list.values[pairs ? 2 * i : i];
        pads->after[d] = list.values[pairs ? 2 * i + 1 : (int)count + i];
    }
    return true;
}

/* Returns the first letter of the mode, which identifies it; 0 if the mode is unknown. */
static char pad_mode(const OpCall *call)
{
    static const char *const modes[] = {"constant", "edge", "reflect", "wrap"};
    const char *mode = attr_string(call, "mode", modes[0]);
    for (int i = 0; i < 4; i++) {
        if (strcmp(mode, modes[i]) == 0) {
            return mode[0];
        }
    }
    return 0;
}

/* Returns the length of a dimension after negative pads have cut it. */
static int64_t pad_kept(const Pads *pads, int d, int64_t length)
{
    int64_t before = pads->before[d] < 0 ? pads->before[d] : 0;
    return length + before + (pads->after[d] < 0 ? pads->after[d] : 0);
}

static bool pad_infer(OpCall *call)
{
    Pads pads;
    const Tensor *in = call->inputs[0];
    char mode = pad_mode(call);
    if (mode == 0) {
        return op_fail(
            call, "attribute mode: %s is not supported", attr_string(call, "mode", ""));
    }
    if (!pads_read(call, &pads)) {
        return false;
    }
    op_same(call, 0);
    for (int d = 0; d < in->rank; d++) {
        int64_t most = pads.before[d] > pads.after[d] ? pads.before[d] : pads.after[d];
        int64_t least = pads.before[d] < pads.after[d] ? pads.before[d] : pads.after[d];
        bool fits = most < PAD_MAX && least > -PAD_MAX;
        int64_t kept = fits ? pad_kept(&pads, d, in->dims[d]) : -1;
        bool filled = mode == 'c' || most <= 0 || (mode == 'r' ? most < kept : kept > 0);
        if (kept < 0 || !filled) {
            return op_fail(call, "pads: %lld and %lld do not fit dimension %d of %lld",
                (long long)pads.before[d], (long long)pads.after[d], d, (long long)in->dims[d]);
        }
        call->outputs[0].dims[d] += pads.before[d] + pads.after[d];
    }
    return true;
}

/* Returns the input index for an output index along one axis; -1 if the output is the constant there. */
static int64_t pad_source(const Pads *pads, int d, int64_t at, int64_t length, char mode)
{
    int64_t first = pads->before[d] < 0 ? -pads->before[d] : 0;
    int64_t from = at - (pads->before[d] > 0 ? pads->before[d] : 0);
    int64_t kept = pad_kept(pads, d, length);
    if (from >= 0 && from < kept) {
        return first + from;
    }
    switch (mode) {
    case 'e':
        return first + (from < 0 ? 0 : kept - 1);
    case 'r':
        return first + (from < 0 ? -from : 2 * (kept - 1) - from);
    case 'w':
        return first + ((from % kept) + kept) % kept;
    default:
        return -1;
    }
}

static bool pad_run(const OpCall *call)
{
    Pads pads;
    const Tensor *in = call->inputs[0], *out = &call->outputs[0], *value = op_input(call, 2);
    int64_t strides[TENSOR_RANK_MAX], size = type_size(in->type);
    uint64_t other = 0;
    double given = attr_float(call, "value", 0.0); /* the pad value is an attribute before operator set 11 */
    char mode = pad_mode(call);
    convert(&other, in->type, &given, ACL_DOUBLE, 1, 1);
    const char *fill =
        value == NULL || tensor_count(value) == 0 ? (char *)&other : (const char *)value->data;
    if (!pads_read(call, &pads)) {
        return false;
    }
    strides_of(in, strides);
    int last = in->rank - 1;
    for (int64_t i = 0; i < tensor_count(out); i++) {
        int64_t rest = i, from = 0;
        bool inside = true;
        for (int d = in->rank - 1; d >= 0 && inside; d--) {
            int64_t source = pad_source(&pads, d, rest % out->dims[d], in->dims[d], mode);
            inside = source >= 0;
            from += source * strides[d];
            rest /= out->dims[d];
        }
        int64_t run = 1; /* elements that are contiguous in input and output, up to the end of the row */
        if (inside && last >= 0) {
            int64_t place = i % out->dims[last] - (pads.before[last] > 0 ? pads.before[last] : 0);
            int64_t kept = pad_kept(&pads, last, in->dims[last]);
            run = place >= 0 && place < kept ? kept - place : 1;
        }
        memcpy((char *)out->data + i * size, inside ? (const char *)in->data + from * size : fill,
            (size_t)(run * size));
        i += run - 1;
    }
    return true;
}

const OpKind ops_make[] = {
    {"Shape", OP_ONNX, 1, 1, 1, 0, shape_infer, NULL, shape_run, 0, OP_SHAPED},
    {"Size", OP_ONNX, 1, 1, 1, 0, size_infer, NULL, size_run, 0, OP_SHAPED},
    {"ConstantOfShape", OP_ONNX, 1, 1, 1, 1, constant_infer, NULL, constant_run, 0, 0},
    {"Fill", OP_ACL, 2, 2, 1, 1, fill_infer, NULL, fill_run, 0, 0},
    {"FillD", OP_ACL, 1, 1, 1, 0, fill_infer, NULL, fill_run, 0, 0},
    {"ZerosLike", OP_ACL, 1, 1, 1, 0, like_infer, NULL, like_run, 0, OP_SHAPED},
    {"OnesLike", OP_ACL, 1, 1, 1, 0, like_infer, NULL, like_run, 1, OP_SHAPED},
    {"EyeLike", OP_ONNX, 1, 1, 1, 0, eye_infer, NULL, eye_run, 0, OP_SHAPED},
    {"Range", OP_BOTH, 3, 3, 1, 7, range_infer, NULL, range_run, 0, 0},
    {"OneHot", OP_ONNX, 3, 3, 1, 2, onehot_infer, NULL, onehot_run, 0, 0},
    {"Trilu", OP_ONNX, 1, 2, 1, 0, trilu_infer, NULL, trilu_run, 0, 0},
    {"Where", OP_ONNX, 3, 3, 1, 0, where_infer, NULL, where_run, 0, 0},
    {"Select", OP_ACL, 3, 3, 1, 0, where_infer, NULL, where_run, 0, 0},
    {"SelectV2", OP_ACL, 3, 3, 1, 0, where_infer, NULL, where_run, 0, 0},
    {"Pad", OP_ONNX, 1, 4, 1, 10, pad_infer, NULL, pad_run, 0, 0},
    {"Pad", OP_ACL, 2, 2, 1, 2, pad_infer, NULL, pad_run, 0, 0},
    {"PadD", OP_ACL, 1, 1, 1, 0, pad_infer, NULL, pad_run, 0, 0},
    {0},
};
