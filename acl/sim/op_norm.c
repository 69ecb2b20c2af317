/* op_norm.c: Softmax and the normalisations.

   All work on lines of float32: a float32 line that is contiguous is used in place, any other is
   brought into the workspace first. float64 is computed in float32 too. */
#include "op.h"
#include "vmath.h"

#include <math.h>
#include <string.h>

enum { SOFTMAX, LOGSOFTMAX, LP };

/* A set of equal lines: element j of line (o, i) is at (o * length + j) * inner + i. */
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

static const float *line_load(const Tensor *in, const Lines *lines, int64_t line, float *buffer)
{
    int64_t at = line / lines->inner * lines->length * lines->inner + line % lines->inner;
    const char *place = (const char *)in->data + at * type_size(in->type);
    if (in->type == ACL_FLOAT && lines->inner == 1) {
        return (const float *)(const void *)place;
    }
    convert(buffer, ACL_FLOAT, place, in->type, lines->inner, lines->length);
    return buffer;
}

static void line_store(const Tensor *out, const Lines *lines, int64_t line, const float *buffer)
{
    int64_t size = type_size(out->type);
    int64_t at = line / lines->inner * lines->length * lines->inner + line % lines->inner;
    char *place = (char *)out->data + at * size;
    if (lines->inner == 1) {
        convert(place, out->type, buffer, ACL_FLOAT, 1, lines->length);
        return;
    }
    for (int64_t j = 0; j < lines->length; j++) {
        convert(place + j * lines->inner * size, out->type, buffer + j, ACL_FLOAT, 1, 1);
    }
}

/* --- arithmetic on one line --- */

WIDE static float line_max(const float *in, int64_t n)
{
    float best = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        best = in[i] > best ? in[i] : best;
    }
    return best;
}

WIDE static float line_sum(const float *in, int64_t n)
{
    float lanes[16] = {0};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (int l = 0; l < 16; l++) {
            lanes[l] += in[i + l];
        }
    }
    double total = 0.0;
    for (int l = 0; l < 16; l++) {
        total += (double)lanes[l];
    }
    for (; i < n; i++) {
        total += (double)in[i];
    }
    return (float)total;
}

WIDE static float line_spread(const float *in, float mean, int64_t n)
{
    float lanes[16] = {0};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (int l = 0; l < 16; l++) {
            float d = in[i + l] - mean;
            lanes[l] += d * d;
        }
    }
    double total = 0.0;
    for (int l = 0; l < 16; l++) {
        total += (double)lanes[l];
    }
    for (; i < n; i++) {
        total += (double)((in[i] - mean) * (in[i] - mean));
    }
    return (float)total;
}

WIDE static void line_softmax(const float *in, float *out, int64_t n, bool logarithm)
{
    float top = line_max(in, n);
    for (int64_t i = 0; i < n; i++) {
        out[i] = exp_fast(in[i] - top);
    }
    float sum = line_sum(out, n);
    if (logarithm) {
        float shift = top + logf(sum);
        for (int64_t i = 0; i < n; i++) {
            out[i] = in[i] - shift;
        }
        return;
    }
    float scale = 1.0F / sum;
    for (int64_t i = 0; i < n; i++) {
        out[i] *= scale;
    }
}

static void line_lp(const float *in, float *out, int64_t n, int64_t p)
{
    double total = 0.0;
    for (int64_t i = 0; i < n; i++) {
        total += p == 1 ? fabs((double)in[i]) : (double)in[i] * (double)in[i];
    }
    double norm = p == 1 ? total : sqrt(total);
    for (int64_t i = 0; i < n; i++) {
        out[i] = norm > 0.0 ? (float)((double)in[i] / norm) : 0.0F;
    }
}

/* --- Softmax, LogSoftmax, LpNormalization --- */

/* Before operator set 13 a softmax runs over all dimensions from the axis on, which is 1. */
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
    const Tensor *in = call->inputs[0];
    Lines lines = softmax_lines(call);
    return in->type == ACL_FLOAT && lines.inner == 1 ? 0
                                                     : 2 * lines.length * (int64_t)sizeof(float);
}

static bool softmax_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0];
    Tensor *out = &call->outputs[0];
    Lines lines = softmax_lines(call);
    bool direct = call->workspace == NULL;
    for (int64_t line = 0; line < lines.outer * lines.inner && lines.length > 0; line++) {
        float *buffer = call->workspace;
        const float *from = line_load(in, &lines, line, buffer);
        float *to = direct ? (float *)out->data + line * lines.length : buffer + lines.length;
        if (call->kind->variant == LP) {
            line_lp(from, to, lines.length, attr_int(call, "p", 2));
        } else {
            line_softmax(from, to, lines.length, call->kind->variant == LOGSOFTMAX);
        }
        if (!direct) {
            line_store(out, &lines, line, to);
        }
    }
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
    return 4 * layer_lines(call).length * (int64_t)sizeof(float);
}

/* Scale and bias as float32, ones and zeros where they are left out. */
static void affine_load(
    const OpCall *call, int scale, int bias, int64_t length, float *gamma, float *beta)
{
    const Tensor *s = op_input(call, scale), *b = op_input(call, bias);
    float one = 1.0F, zero = 0.0F;
    convert(gamma, ACL_FLOAT, s == NULL ? &one : s->data, s == NULL ? ACL_FLOAT : s->type,
        s != NULL, length);
    convert(beta, ACL_FLOAT, b == NULL ? &zero : b->data, b == NULL ? ACL_FLOAT : b->type,
        b != NULL, length);
}

static void output_put(const OpCall *call, int output, int64_t index, float value)
{
    if (output < call->output_count && call->outputs[output].data != NULL) {
        const Tensor *out = &call->outputs[output];
        convert(
            (char *)out->data + index * type_size(out->type), out->type, &value, ACL_FLOAT, 1, 1);
    }
}

static bool layer_run(const OpCall *call)
{
    Lines lines = layer_lines(call);
    int64_t n = lines.length;
    float *buffer = call->workspace, *to = buffer + n, *gamma = to + n, *beta = gamma + n;
    bool acl = call->kind->domain == OP_ACL, plain = call->kind->variant != 0;
    float epsilon = (float)attr_float(call, "epsilon", acl ? 1e-7 : 1e-5);
    affine_load(call, 1, 2, n, gamma, beta);
    for (int64_t line = 0; line < lines.outer && n > 0; line++) {
        const float *from = line_load(call->inputs[0], &lines, line, buffer);
        float mean = plain ? 0.0F : line_sum(from, n) / (float)n;
        float variance = line_spread(from, mean, n) / (float)n;
        float scale = 1.0F / sqrtf(variance + epsilon);
        for (int64_t j = 0; j < n; j++) {
            to[j] = (from[j] - mean) * scale * gamma[j] + beta[j];
        }
        line_store(&call->outputs[0], &lines, line, to);
        output_put(call, 1, line, plain ? scale : mean);
        output_put(call, 2, line, acl ? variance : scale);
    }
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
    int64_t groups = call->kind->variant == GROUP ? attr_int(call, "num_groups", 1) : in->dims[1];
    int64_t together = groups == 0 ? 0 : in->dims[1] / groups;
    *lines = (Lines){in->dims[0] * groups, together * plane, 1};
    return plane;
}

static int64_t channel_workspace(const OpCall *call)
{
    Lines lines;
    (void)channel_lines(call, &lines);
    return 2 * lines.length * (int64_t)sizeof(float);
}

static float channel_value(const Tensor *tensor, int64_t channel, int64_t channels)
{
    int64_t count = tensor_count(tensor);
    return (float)tensor_get_real(tensor, count == channels ? channel : channel * count / channels);
}

static bool channel_run(const OpCall *call)
{
    Lines lines;
    int64_t plane = channel_lines(call, &lines), channels = call->inputs[0]->dims[1];
    int64_t n = lines.length;
    float *buffer = call->workspace, *to = buffer + n;
    float epsilon = (float)attr_float(call, "epsilon", 1e-5);
    bool batch = call->kind->variant == BATCH;
    for (int64_t line = 0; line < lines.outer && n > 0; line++) {
        const float *from = line_load(call->inputs[0], &lines, line, buffer);
        int64_t first = line * (n / plane) % channels;
        float mean =
            batch ? channel_value(call->inputs[3], first, channels) : line_sum(from, n) / (float)n;
        float variance = batch ? channel_value(call->inputs[4], first, channels)
            : line_spread(from, mean, n) / (float)n;
        float scale = 1.0F / sqrtf(variance + epsilon);
        for (int64_t c = 0; c < n / plane; c++) {
            float gamma = channel_value(call->inputs[1], first + c, channels) * scale;
            float beta = channel_value(call->inputs[2], first + c, channels) - mean * gamma;
            for (int64_t j = c * plane; j < (c + 1) * plane; j++) {
                to[j] = from[j] * gamma + beta;
            }
        }
        line_store(&call->outputs[0], &lines, line, to);
    }
    return true;
}

#define LINEAR(NAME, DOMAIN, VARIANT) \
    {NAME, DOMAIN, 1, 1, 1, 0, softmax_infer, softmax_workspace, softmax_run, VARIANT, 0}

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
    {0},
};
