/* op_quant.c: QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear.

   There is one scale and one zero point for the whole tensor, or for each index of one axis, or for each block of
   indices of one axis. Quotients are rounded to the nearest integer, ties to even; results saturate. The arithmetic is
   float32. */
#include "ops/op.h"
#include "numbers/quant.h"
#include "numbers/vmath.h"

#include <math.h>

enum { BLOCK = 256 };

bool quant_limits(aclDataType type, int32_t *low, int32_t *high)
{
    switch (type) {
    case ACL_INT8:
        *low = INT8_MIN, *high = INT8_MAX;
        return true;
    case ACL_UINT8:
        *low = 0, *high = UINT8_MAX;
        return true;
    case ACL_INT16:
        *low = INT16_MIN, *high = INT16_MAX;
        return true;
    case ACL_UINT16:
        *low = 0, *high = UINT16_MAX;
        return true;
    default:
        return false;
    }
}

double quant_parameter(const Tensor *tensor, int64_t line)
{
    return tensor == NULL ? 0.0 : tensor_get_real(tensor, tensor_count(tensor) == 1 ? 0 : line);
}

/* --- which parameter belongs to which element --- */

/* The tensor as [outer, length, inner], where `length` is the axis of the parameters. Element (o, a, i) has the
   parameter with index a; with blocks, with index (o * blocks + a / block) * inner + i. */
typedef struct Layout {
    int64_t outer, length, inner;
    int64_t block, blocks;    /* indices of the axis in a block, and number of blocks; 0: there are no blocks */
} Layout;

static bool layout_fail(const OpCall *call)
{
    char x[128], scale[128];
    return op_fail(call,
        "input 1: a scale of shape %s does not go with %s, axis %lld and block_size %lld",
        shape_text(call->inputs[1], scale, sizeof scale),
        shape_text(call->inputs[0], x, sizeof x), (long long)attr_int(call, "axis", 1),
        (long long)attr_int(call, "block_size", 0));
}

static bool layout_blocked(const OpCall *call, int axis, Layout *layout)
{
    const Tensor *in = call->inputs[0], *scale = call->inputs[1];
    layout->block = attr_int(call, "block_size", 0);
    if (layout->block < 1 || layout->block > INT32_MAX || scale->rank != in->rank) {
        return layout_fail(call);
    }
    layout->blocks = (in->dims[axis] + layout->block - 1) / layout->block;
    for (int d = 0; d < in->rank; d++) {
        if (scale->dims[d] != (d == axis ? layout->blocks : in->dims[d])) {
            return layout_fail(call);
        }
    }
    return true;
}

static bool layout_plan(const OpCall *call, Layout *layout)
{
    const Tensor *in = call->inputs[0], *scale = call->inputs[1];
    int axis = axis_normal(attr_int(call, "axis", 1), in->rank);
    *layout = (Layout){.outer = 1, .length = 1, .inner = tensor_count(in)};
    if (scale->rank <= 1 && tensor_count(scale) == 1) {
        return true;
    }
    if (axis < 0) {
        return layout_fail(call);
    }
    layout->outer = dims_count(in->dims, axis);
    layout->length = in->dims[axis];
    layout->inner = dims_count(in->dims + axis + 1, in->rank - axis - 1);
    if (attr_int(call, "block_size", 0) != 0) {
        return layout_blocked(call, axis, layout);
    }
    return (scale->rank == 1 && scale->dims[0] == layout->length) || layout_fail(call);
}

/* --- lines of elements --- */

typedef struct Parameters {
    float scale[BLOCK];
    int32_t zero[BLOCK];
} Parameters;

/* Loads the parameters of `count` elements: that of element k has the index first + k * step. */
static void parameters_load(
    const OpCall *call, int64_t first, int64_t step, int64_t count, Parameters *to)
{
    const Tensor *scale = call->inputs[1], *zero = op_input(call, 2);
    const int32_t none = 0;
    convert(to->scale, ACL_FLOAT, (const char *)scale->data + first * type_size(scale->type),
        scale->type, step, count);
    if (zero == NULL) {
        convert(to->zero, ACL_INT32, &none, ACL_INT32, 0, count);
    } else {
        convert(to->zero, ACL_INT32, (const char *)zero->data + first * type_size(zero->type),
            zero->type, step, count);
    }
}

typedef void (*Line)(const OpCall *call, int64_t at, int64_t count, const Parameters *with);

WIDE static void numbers_quantize(const float *values, const Parameters *with, int64_t count,
    int32_t low, int32_t high, int32_t *made)
{
    for (int64_t i = 0; i < count; i++) {
        made[i] = quant_round(values[i] / with->scale[i], with->zero[i], low, high);
    }
}

static void quantize_line(const OpCall *call, int64_t at, int64_t count, const Parameters *with)
{
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    float values[BLOCK];
    int32_t made[BLOCK], low = 0, high = 0;
    (void)quant_limits(out->type, &low, &high);
    convert(values, ACL_FLOAT, (const char *)in->data + at * type_size(in->type), in->type, 1,
        count);
    numbers_quantize(values, with, count, low, high, made);
    convert((char *)out->data + at * type_size(out->type), out->type, made, ACL_INT32, 1, count);
}

/* Dequantises `count` numbers: (value - zero point) * scale. The difference is computed in double, where it is
 * exact. */
WIDE static void numbers_dequantize(
    const int32_t *values, const Parameters *with, int64_t count, float *made)
{
    for (int64_t i = 0; i < count; i++) {
        made[i] = (float)((double)values[i] - (double)with->zero[i]) * with->scale[i];
    }
}

static void dequantize_line(const OpCall *call, int64_t at, int64_t count, const Parameters *with)
{
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    int32_t values[BLOCK];
    float made[BLOCK];
    convert(values, ACL_INT32, (const char *)in->data + at * type_size(in->type), in->type, 1,
        count);
    numbers_dequantize(values, with, count, made);
    convert((char *)out->data + at * type_size(out->type), out->type, made, ACL_FLOAT, 1, count);
}

static void lines_run(const OpCall *call, const Layout *layout, Line line)
{
    Parameters with;
    int64_t step = layout->block != 0, inner = layout->inner;
    for (int64_t row = 0; row < layout->outer * layout->length; row++) {
        int64_t place = row % layout->length, first = place;
        if (layout->block != 0) {
            first = (row / layout->length * layout->blocks + place / layout->block) * inner;
        }
        for (int64_t i = 0; i < inner; i += BLOCK) {
            int64_t count = inner - i < BLOCK ? inner - i : BLOCK;
            if (i == 0 || step != 0) {
                parameters_load(call, first + i * step, step, count, &with);
            }
            line(call, row * inner + i, count, &with);
        }
    }
}

/* --- the operators --- */

static bool parameters_check(const OpCall *call)
{
    const Tensor *scale = call->inputs[1], *zero = op_input(call, 2);
    if (type_compute(scale->type) != ACL_FLOAT) {
        return op_fail(call, "input 1: expected a scale of float32, float16 or bfloat16, got %s",
            type_name(scale->type));
    }
    if (zero != NULL && tensor_count(zero) != tensor_count(scale)) {
        char a[128], b[128];
        return op_fail(call, "input 2: expected a zero point of shape %s like the scale, got %s",
            shape_text(scale, a, sizeof a), shape_text(zero, b, sizeof b));
    }
    return true;
}

static bool quantize_infer(OpCall *call)
{
    Layout layout;
    const Tensor *in = call->inputs[0], *zero = op_input(call, 2);
    int64_t asked = attr_int(call, "output_dtype", 0);
    aclDataType type = zero != NULL ? zero->type : asked != 0 ? type_from_onnx(asked) : ACL_UINT8;
    int32_t low, high;
    if (!parameters_check(call) || !layout_plan(call, &layout)) {
        return false;
    }
    if (type_compute(in->type) != ACL_FLOAT && in->type != ACL_INT32) {
        return op_fail(
            call, "input 0: QuantizeLinear is not defined for %s", type_name(in->type));
    }
    if (zero != NULL && zero->narrow) {
        return op_fail(call, "input 2: QuantizeLinear to four bits is not supported");
    }
    if (!quant_limits(type, &low, &high) || (asked != 0 && type_from_onnx(asked) != type)) {
        return op_fail(call,
            "expected a zero point or output_dtype of int8, uint8, int16 or uint16, got %s and "
            "output_dtype %lld",
            zero == NULL ? "none" : type_name(zero->type), (long long)asked);
    }
    (void)op_same(call, 0);
    call->outputs[0].type = type;
    return true;
}

static bool quantize_run(const OpCall *call)
{
    Layout layout;
    if (!layout_plan(call, &layout)) {
        return false;
    }
    lines_run(call, &layout, quantize_line);
    return true;
}

static bool dequantize_infer(OpCall *call)
{
    Layout layout;
    const Tensor *in = call->inputs[0], *zero = op_input(call, 2);
    int32_t low, high;
    if (!parameters_check(call) || !layout_plan(call, &layout)) {
        return false;
    }
    if (!quant_limits(in->type, &low, &high) && in->type != ACL_INT32) {
        return op_fail(
            call, "input 0: DequantizeLinear is not defined for %s", type_name(in->type));
    }
    if (zero != NULL && zero->type != in->type) {
        return op_fail(call, "input 2: expected a zero point of %s like input 0, got %s",
            type_name(in->type), type_name(zero->type));
    }
    (void)op_same(call, 0);
    int64_t asked = attr_int(call, "output_dtype", 0);
    call->outputs[0].type = asked != 0 ? type_from_onnx(asked) : call->inputs[1]->type;
    return type_is_float(call->outputs[0].type)
        || op_fail(call, "attribute output_dtype: ONNX data type %lld is not a float type",
            (long long)asked);
}

static bool dequantize_run(const OpCall *call)
{
    Layout layout;
    if (!layout_plan(call, &layout)) {
        return false;
    }
    lines_run(call, &layout, dequantize_line);
    return true;
}

/* --- DynamicQuantizeLinear: computes scale and zero point from the range of the values --- */

static bool dynamic_infer(OpCall *call)
{
    if (call->inputs[0]->type != ACL_FLOAT) {
        return op_fail(call, "input 0: expected float32, got %s", type_name(call->inputs[0]->type));
    }
    static const aclDataType types[] = {ACL_UINT8, ACL_FLOAT, ACL_UINT8};
    (void)op_same(call, 0);
    for (int o = 0; o < call->output_count; o++) {
        call->outputs[o].type = types[o];
        call->outputs[o].rank = o == 0 ? call->inputs[0]->rank : 0;
    }
    return true;
}

/* Extends the range [*low, *high] to cover the numbers; NaN is ignored. */
WIDE static void numbers_bound(const float *in, int64_t count, float *low, float *high)
{
    enum { LANES = 16 };
    float least[LANES], most[LANES];
    int64_t i = 0;
    for (int l = 0; l < LANES; l++) {
        least[l] = *low;
        most[l] = *high;
    }
    for (; i + LANES <= count; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            least[l] = in[i + l] < least[l] ? in[i + l] : least[l];
            most[l] = in[i + l] > most[l] ? in[i + l] : most[l];
        }
    }
    for (int l = 0; l < LANES; l++) {
        *low = least[l] < *low ? least[l] : *low;
        *high = most[l] > *high ? most[l] : *high;
    }
    for (; i < count; i++) {
        *low = in[i] < *low ? in[i] : *low;
        *high = in[i] > *high ? in[i] : *high;
    }
}

WIDE static void bytes_quantize(
    const float *in, float scale, int32_t zero, int64_t count, uint8_t *out)
{
    for (int64_t i = 0; i < count; i++) {
        out[i] = (uint8_t)quant_round(in[i] / scale, zero, 0, UINT8_MAX);
    }
}

static bool dynamic_run(const OpCall *call)
{
    const float *in = call->inputs[0]->data;
    int64_t count = tensor_count(call->inputs[0]);
    float low = 0.0F, high = 0.0F;
    numbers_bound(in, count, &low, &high);
    float scale = high > low ? (high - low) / 255.0F : 1.0F;
    int32_t zero = quant_round(-low / scale, 0, 0, UINT8_MAX);
    uint8_t *out = call->outputs[0].data;
    if (out != NULL) {
        bytes_quantize(in, scale, zero, count, out);
    }
    if (call->output_count > 1 && call->outputs[1].data != NULL) {
        *(float *)call->outputs[1].data = scale;
    }
    if (call->output_count > 2 && call->outputs[2].data != NULL) {
        *(uint8_t *)call->outputs[2].data = (uint8_t)zero;
    }
    return true;
}

const OpKind ops_quant[] = {
    {"QuantizeLinear", OP_ONNX, 2, 3, 1, 0, quantize_infer, NULL, quantize_run, 0, 0},
    {"DequantizeLinear", OP_ONNX, 2, 3, 1, 0, dequantize_infer, NULL, dequantize_run, 0, 0},
    {"DynamicQuantizeLinear", OP_ONNX, 1, 1, 3, 0, dynamic_infer, NULL, dynamic_run, 0, 0},
    {0},
};
