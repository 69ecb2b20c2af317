/* op_norm.c: Softmax, Hardmax and the normalisations.

   All operators except Hardmax compute on lines of float, or of double for float64 (norm_lines.h). A line that is
   contiguous and of this type is used where it is; any other line is first converted into the workspace. */
#include "ops/op.h"
#include "numbers/vmath.h"

#include <math.h>
#include <string.h>

enum { SOFTMAX, LOGSOFTMAX, LP };
enum { STORE_BLOCK = 64 };

/* The lines of a tensor along one axis: element j of line (o, i) has the index (o * length + j) * inner + i. */
typedef struct Lines {
    int64_t outer, length, inner;
} Lines;

static Lines lines_along(const Tensor *tensor, int axis)
{
    return (Lines){
        .outer = dims_count(tensor->dims, axis),
        .length = tensor->dims[axis],
        .inner = dims_count(tensor->dims + axis + 1, tensor->rank - axis - 1),
    };
}

#define SPREAD_LOOP(T) \
    for (int64_t i = 0; i < n; i++) { \
        ((T *)to)[i * stride] = ((const T *)from)[i]; \
    } \
    break

/* Copies `n` contiguous elements of `size` bytes to addresses that are `stride` elements apart. */
static void elements_spread(void *to, int64_t stride, const void *from, int64_t size, int64_t n)
{
    switch (size) {
    case 2:
        SPREAD_LOOP(uint16_t);
    case 4:
        SPREAD_LOOP(uint32_t);
    default:
        SPREAD_LOOP(uint64_t);
    }
}

#define REAL float
#define REAL_TYPE ACL_FLOAT
#define NAME(x) x##_f32
#define EXP exp_fast
#define LOG logf
#define SQRT sqrtf
#include "layers/norm_lines.h"

#define REAL double
#define REAL_TYPE ACL_DOUBLE
#define NAME(x) x##_f64
#define EXP exp
#define LOG log
#define SQRT sqrt
#include "layers/norm_lines.h"

static bool in_double(const OpCall *call)
{
    return call->inputs[0]->type == ACL_DOUBLE;
}

static int64_t real_size(const OpCall *call)
{
    return in_double(call) ? (int64_t)sizeof(double) : (int64_t)sizeof(float);
}

/* --- Softmax, LogSoftmax, LpNormalization --- */

/* True for operator sets before 13, where a softmax covers all dimensions from the axis on, and the default axis is 1.
   False for LpNormalization. */
static bool softmax_flat(const OpCall *call)
{
    return call->opset > 0 && call->opset < 13 && call->kind->variant != LP;
}

static int softmax_axis(const OpCall *call)
{
    const Tensor *in = call->inputs[0];
    const Attr *axes = attr_find(call, "axes");
    int64_t axis = attr_int(call, "axis", softmax_flat(call) ? 1 : -1);
    if (call->kind->domain == OP_ACL && axes != NULL && axes->kind == ATTR_INTS
        && axes->count > 0) {
        axis = axes->ints[0];
    }
    return axis_normal(axis, in->rank);
}

static bool float_check(const OpCall *call)
{
    aclDataType type = call->inputs[0]->type;
    if (!type_is_float(type)) {
        return op_fail(
            call, "input 0: %s is not defined for %s", call->kind->name, type_name(type));
    }
    return true;
}

static bool softmax_infer(OpCall *call)
{
    if (!float_check(call)) {
        return false;
    }
    if (softmax_axis(call) < 0) {
        return op_fail(call, "axis %lld is outside the rank %d of input 0",
            (long long)attr_int(call, "axis", -1), call->inputs[0]->rank);
    }
    return op_same(call, 0);
}

static Lines softmax_lines(const OpCall *call)
{
    Lines lines = lines_along(call->inputs[0], softmax_axis(call));
    return softmax_flat(call) ? (Lines){lines.outer, lines.length * lines.inner, 1} : lines;
}

static int64_t softmax_workspace(const OpCall *call)
{
    aclDataType type = call->inputs[0]->type;
    Lines lines = softmax_lines(call);
    bool direct = (type == ACL_FLOAT || type == ACL_DOUBLE) && lines.inner == 1;
    return direct ? 0 : 2 * lines.length * real_size(call);
}

static bool softmax_run(const OpCall *call)
{
    Lines lines = softmax_lines(call);
    (in_double(call) ? softmax_lines_run_f64 : softmax_lines_run_f32)(call, &lines);
    return true;
}

/* --- LayerNormalization: outputs Y, Mean and InvStdDev (or Variance, for ACL) --- */

static int layer_axis(const OpCall *call)
{
    bool acl = call->kind->domain == OP_ACL;
    int64_t axis = acl ? attr_int(call, "begin_norm_axis", 0) : attr_int(call, "axis", -1);
    return axis_normal(axis, call->inputs[0]->rank);
}

static Lines layer_lines(const OpCall *call)
{
    const Tensor *in = call->inputs[0];
    int axis = layer_axis(call);
    return (Lines){dims_count(in->dims, axis), dims_count(in->dims + axis, in->rank - axis), 1};
}

static bool layer_infer(OpCall *call)
{
    const Tensor *in = call->inputs[0];
    int axis = layer_axis(call);
    if (!float_check(call)) {
        return false;
    }
    if (axis < 0) {
        return op_fail(call, "axis is outside the rank %d of input 0", in->rank);
    }
    for (int i = 1; i < call->input_count; i++) {
        int64_t expected = layer_lines(call).length;
        if (call->inputs[i] != NULL && tensor_count(call->inputs[i]) != expected) {
            char text[128];
            return op_fail(call,
                "input %d: expected %lld elements (what is normalised), got shape %s", i,
                (long long)expected, shape_text(call->inputs[i], text, sizeof text));
        }
    }
    op_same(call, 0);
    for (int o = 1; o < call->output_count; o++) {
        call->outputs[o] = call->outputs[0];
        call->outputs[o].data = NULL;
        call->outputs[o].type = call->kind->domain == OP_ACL ? in->type : ACL_FLOAT;
        for (int d = axis; d < in->rank; d++) {
            call->outputs[o].dims[d] = 1;
        }
    }
    return true;
}

static int64_t layer_workspace(const OpCall *call)
{
    return 4 * layer_lines(call).length * real_size(call);
}

static bool layer_run(const OpCall *call)
{
    Lines lines = layer_lines(call);
    (in_double(call) ? layer_lines_run_f64 : layer_lines_run_f32)(call, &lines);
    return true;
}

/* --- normalisations by channel: batch, instance and group --- */

enum { BATCH, INSTANCE, GROUP };

bool batch_accept(const OpCall *call)
{
    return attr_int(call, "training_mode", 0) == 0
        || op_fail(call, "attribute training_mode: expected 0, for inference");
}

static bool channel_infer(OpCall *call)
{
    const Tensor *in = call->inputs[0];
    if (!float_check(call)) {
        return false;
    }
    if (in->rank < 2) {
        return op_fail(
            call, "input 0: expected a batch and a channel dimension, got rank %d", in->rank);
    }
    int64_t groups = attr_int(call, "num_groups", 1);
    bool grouped = call->kind->variant == GROUP;
    if (grouped && (groups < 1 || in->dims[1] % groups != 0)) {
        return op_fail(call, "num_groups %lld does not divide the %lld channels", (long long)groups,
            (long long)in->dims[1]);
    }
    for (int i = 1; i < call->input_count; i++) {
        int64_t count = tensor_count(call->inputs[i]);
        if (count != in->dims[1] && !(grouped && count == groups)) {
            return op_fail(call, "input %d: expected one value for each of %lld channels, got %lld",
                i, (long long)in->dims[1], (long long)count);
        }
    }
    return op_same(call, 0);
}

static int64_t channel_lines(const OpCall *call, Lines *lines)
{
    const Tensor *in = call->inputs[0];
    int64_t plane = dims_count(in->dims + 2, in->rank - 2);
    int64_t groups = call->kind->variant == GROUP ? attr_int(call, "num_groups", 1)
        : call->kind->variant == BATCH            ? 1
                                                  : in->dims[1];
    int64_t together = groups == 0 ? 0 : in->dims[1] / groups;
    *lines = (Lines){in->dims[0] * groups, together * plane, 1};
    return plane;
}

static int64_t channel_workspace(const OpCall *call)
{
    Lines lines;
    (void)channel_lines(call, &lines);
    return (call->kind->variant == BATCH ? 5 : 2) * lines.length * real_size(call);
}

static bool channel_run(const OpCall *call)
{
    Lines lines;
    int64_t plane = channel_lines(call, &lines);
    if (call->kind->variant == BATCH) {
        (in_double(call) ? batch_lines_run_f64 : batch_lines_run_f32)(call, &lines, plane);
    } else {
        (in_double(call) ? channel_lines_run_f64 : channel_lines_run_f32)(call, &lines, plane);
    }
    return true;
}

#define LINEAR(NAME, DOMAIN, VARIANT) \
    {NAME, DOMAIN, 1, 1, 1, 0, softmax_infer, softmax_workspace, softmax_run, VARIANT, 0}

/* --- Hardmax: 1 for the first largest element of each line, 0 for all others --- */

/* Returns the axis of Hardmax. Before operator set 13, Hardmax covers all dimensions from the axis on, and the default
   axis is 1. */
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

const OpKind ops_norm[] = {
    LINEAR("Softmax", OP_ONNX, SOFTMAX),
    LINEAR("LogSoftmax", OP_ONNX, LOGSOFTMAX),
    LINEAR("LpNormalization", OP_ONNX, LP),
    LINEAR("SoftmaxV2", OP_ACL, SOFTMAX),
    LINEAR("Softmax", OP_ACL, SOFTMAX),
    LINEAR("LogSoftmaxV2", OP_ACL, LOGSOFTMAX),
    {"LayerNormalization", OP_ONNX, 2, 3, 3, 0, layer_infer, layer_workspace, layer_run, 0, 0},
    {"LayerNorm", OP_ACL, 3, 3, 3, 0, layer_infer, layer_workspace, layer_run, 0, 0},
    {"RMSNormalization", OP_ONNX, 2, 2, 1, 0, layer_infer, layer_workspace, layer_run, 1, 0},
    {"SimplifiedLayerNormalization", OP_ONNX | OP_ORT, 2, 2, 2, 0, layer_infer, layer_workspace,
        layer_run, 1, 0},
    {"BatchNormalization", OP_ONNX, 5, 5, 1, 0, channel_infer, channel_workspace, channel_run,
        BATCH, 0},
    {"InstanceNormalization", OP_ONNX, 3, 3, 1, 0, channel_infer, channel_workspace, channel_run,
        INSTANCE, 0},
    {"GroupNormalization", OP_ONNX, 3, 3, 1, 0, channel_infer, channel_workspace, channel_run,
        GROUP, 0},
    {"Hardmax", OP_ONNX, 1, 1, 1, 0, hardmax_infer, NULL, hardmax_run, 0, 0},
    {0},
};
