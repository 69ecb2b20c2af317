/* op_conv.c: convolution (grouped, depthwise, dilated) and transposed convolution.

   Conv unfolds the input into columns (im2col), for a bounded number of output positions at a time, and
   multiplies them by the weights with gemm_run. A depthwise convolution is summed directly, because to
   unfold its input would take longer than the sums. The workspace contains the columns, the packed panels
   of gemm_run and, for float16 and bfloat16, the sums as float32. */
#include "layers/conv.h"
#include "numbers/gemm.h"

#include <string.h>

enum { COLUMNS_MAX = 1 << 20 }; /* floats of unfolded input at a time: 4 MiB */

static bool weight_check(const OpCall *call)
{
    const Tensor *in = call->inputs[0], *weight = call->inputs[1];
    if (type_compute(in->type) != ACL_FLOAT || weight->type != in->type) {
        return op_fail(call,
            "inputs 0 and 1: expected one of float32, float16, bfloat16, got %s and %s",
            type_name(in->type), type_name(weight->type));
    }
    if (weight->rank != in->rank || in->rank < 3) {
        return op_fail(
            call, "input 1: expected rank %d like input 0, got %d", in->rank, weight->rank);
    }
    return true;
}

bool conv_measure(const OpCall *call, const Tensor *weight, Conv *conv)
{
    if (weight->rank != call->inputs[0]->rank) {
        return op_fail(call, "the weight has rank %d, input 0 has %d", weight->rank,
            call->inputs[0]->rank);
    }
    if (!window_plan(call, weight->dims + 2, &conv->w)) {
        return false;
    }
    conv->groups = attr_int(call, "group", 1);
    conv->filters = weight->dims[0];
    conv->in_group = weight->dims[1];
    if (conv->groups < 1 || conv->groups > conv->filters
        || conv->in_group * conv->groups != conv->w.channels
        || conv->filters % conv->groups != 0) {
        return op_fail(call, "input 0 has %lld channels; %lld groups of %lld were expected",
            (long long)conv->w.channels, (long long)conv->groups, (long long)conv->in_group);
    }
    conv->out_group = conv->filters / conv->groups;
    conv->depth = conv->in_group * conv->w.kernel_plane;
    int64_t tile = conv->depth == 0 ? 1 : COLUMNS_MAX / conv->depth;
    int64_t row = conv->w.out[2];
    tile = tile < row ? row : tile / row * row; /* rounded down to whole output rows, at least one */
    conv->tile = tile > conv->w.out_plane ? conv->w.out_plane : tile;
    return true;
}

static bool conv_plan(const OpCall *call, Conv *conv)
{
    return weight_check(call) && conv_measure(call, call->inputs[1], conv);
}

static bool bias_check(const OpCall *call, int64_t filters)
{
    const Tensor *bias = op_input(call, 2);
    if (bias != NULL && tensor_count(bias) != filters) {
        return op_fail(call, "input 2: expected a bias for %lld filters, got %lld values",
            (long long)filters, (long long)tensor_count(bias));
    }
    return true;
}

bool conv_infer(OpCall *call)
{
    Conv conv;
    if (!conv_plan(call, &conv) || !bias_check(call, conv.filters)) {
        return false;
    }
    window_shape(call, &conv.w, conv.filters);
    return true;
}

static bool conv_depthwise(const Conv *conv)
{
    return conv->in_group == 1 && conv->out_group <= 2;
}

/* True for a 1x1 kernel without stride and pads. The input is then used as the unfolded matrix, without a copy. */
static bool conv_pointwise(const Window *w)
{
    return w->kernel_plane == 1 && w->in_plane == w->out_plane && w->stride[0] == 1
        && w->stride[1] == 1 && w->stride[2] == 1
        && w->pad_begin[0] + w->pad_begin[1] + w->pad_begin[2] == 0;
}

int64_t conv_workspace(const OpCall *call)
{
    Conv conv;
    if (!conv_plan(call, &conv)) {
        return 0;
    }
    if (conv_depthwise(&conv)) {
        return (conv.w.in_plane + conv.w.out_plane) * (int64_t)sizeof(float);
    }
    int64_t tile = conv_pointwise(&conv.w) ? conv.w.out_plane : conv.tile;
    int64_t bytes = gemm_scratch(conv.out_group, tile, conv.depth);
    bytes += conv_pointwise(&conv.w) ? 0 : conv.depth * conv.tile * (int64_t)sizeof(float);
    if (call->inputs[0]->type != ACL_FLOAT) {
        bytes += conv.out_group * tile * (int64_t)sizeof(float);
    }
    return bytes;
}

/* --- unfolding --- */

/* Writes one row of the unfolded matrix: for each output position of the rows [row_first, row_first + rows), the input
   element under the kernel element `tap` (z, y, x). An output row has all positions of one pair (z, y). */
static void tap_unfold(const Window *w, const char *plane, aclDataType type, const int64_t *tap,
    int64_t row_first, int64_t rows, float *out)
{
    int64_t size = type_size(type), width = w->out[2], first, last;
    int64_t offset = tap[2] * w->dilation[2] - w->pad_begin[2];
    window_steps(width, w->stride[2], offset, w->in[2], &first, &last);
    for (int64_t row = row_first; row < row_first + rows; row++, out += width) {
        int64_t z = row / w->out[1] * w->stride[0] - w->pad_begin[0] + tap[0] * w->dilation[0];
        int64_t y = row % w->out[1] * w->stride[1] - w->pad_begin[1] + tap[1] * w->dilation[1];
        if (z < 0 || z >= w->in[0] || y < 0 || y >= w->in[1]) {
            memset(out, 0, (size_t)width * sizeof *out);
            continue;
        }
        memset(out, 0, (size_t)first * sizeof *out);
        memset(out + last, 0, (size_t)(width - last) * sizeof *out);
        int64_t at = (z * w->in[1] + y) * w->in[2] + first * w->stride[2] + offset;
        convert(out + first, ACL_FLOAT, plane + at * size, type, w->stride[2], last - first);
    }
}

static void tap_split(const Window *w, int64_t tap, int64_t *parts)
{
    parts[2] = tap % w->kernel[2];
    parts[1] = tap / w->kernel[2] % w->kernel[1];
    parts[0] = tap / w->kernel[2] / w->kernel[1];
}

void conv_unfold(const Conv *conv, const void *image, aclDataType type, int64_t first,
    int64_t count, float *columns)
{
    const Window *w = &conv->w;
    for (int64_t c = 0; c < conv->in_group; c++) {
        const char *plane = (const char *)image + c * w->in_plane * type_size(type);
        for (int64_t k = 0; k < w->kernel_plane; k++, columns += count) {
            int64_t tap[SPATIAL];
            tap_split(w, k, tap);
            tap_unfold(w, plane, type, tap, first / w->out[2], count / w->out[2], columns);
        }
    }
}

/* --- one group of one image --- */

static void bias_rows(
    const OpCall *call, int64_t filter, int64_t filters, float *c, int64_t c_row, int64_t count)
{
    const Tensor *bias = op_input(call, 2);
    for (int64_t f = 0; bias != NULL && f < filters; f++) {
        float value = (float)tensor_get_real(bias, filter + f);
        for (int64_t j = 0; j < count; j++) {
            c[f * c_row + j] += value;
        }
    }
}

typedef struct Part {
    const char *image;    /* the input channels of the group */
    const char *weight;
    char *out;
    int64_t filter;       /* the first filter of the group */
} Part;

static void tile_multiply(
    const OpCall *call, const Conv *conv, const Part *part, int64_t first, int64_t count)
{
    aclDataType type = call->inputs[0]->type;
    bool pointwise = conv_pointwise(&conv->w), apart = type != ACL_FLOAT;
    int64_t tile = pointwise ? conv->w.out_plane : conv->tile;
    float *sums = (float *)call->workspace;
    float *columns = sums + (apart ? conv->out_group * tile : 0);
    float *scratch = columns + (pointwise ? 0 : conv->depth * conv->tile);
    if (!pointwise) {
        conv_unfold(conv, part->image, type, first, count, columns);
    }
    float *c = apart ? sums : (float *)(void *)part->out + first;
    Gemm gemm = {
        .m = conv->out_group,
        .n = count,
        .k = conv->depth,
        .alpha = 1.0F,
        .a = part->weight,
        .a_type = type,
        .a_row = conv->depth,
        .a_column = 1,
        .b = pointwise ? (const void *)part->image : columns,
        .b_type = pointwise ? type : ACL_FLOAT,
        .b_row = count,
        .b_column = 1,
        .c = c,
        .c_row = apart ? count : conv->w.out_plane,
    };
    gemm_run(&gemm, scratch, call->threads);
    bias_rows(call, part->filter, conv->out_group, c, gemm.c_row, count);
    for (int64_t f = 0; apart && f < conv->out_group; f++) {
        char *to = part->out + (f * conv->w.out_plane + first) * type_size(type);
        convert(to, type, sums + f * count, ACL_FLOAT, 1, count);
    }
}

/* Computes output channel `f` of a group of a depthwise convolution: for each kernel element, adds the shifted plane
   of the input, multiplied by this element. */
static void depthwise_plane(const OpCall *call, const Conv *conv, const Part *part, int64_t f)
{
    const Window *w = &conv->w;
    const Tensor *weight = call->inputs[1], *bias = op_input(call, 2);
    float *in = call->workspace, *out = in + w->in_plane;
    int64_t filter = part->filter + f;
    float start = bias == NULL ? 0.0F : (float)tensor_get_real(bias, filter);
    convert(in, ACL_FLOAT, part->image, call->inputs[0]->type, 1, w->in_plane);
    convert(out, ACL_FLOAT, &start, ACL_FLOAT, 0, w->out_plane);
    for (int64_t k = 0; k < w->kernel_plane; k++) {
        int64_t tap[SPATIAL], first, last;
        tap_split(w, k, tap);
        float scale = (float)tensor_get_real(weight, filter * w->kernel_plane + k);
        int64_t offset = tap[2] * w->dilation[2] - w->pad_begin[2];
        window_steps(w->out[2], w->stride[2], offset, w->in[2], &first, &last);
        for (int64_t row = 0; row < w->out[0] * w->out[1]; row++) {
            int64_t z = row / w->out[1] * w->stride[0] - w->pad_begin[0] + tap[0] * w->dilation[0];
            int64_t y = row % w->out[1] * w->stride[1] - w->pad_begin[1] + tap[1] * w->dilation[1];
            if (z < 0 || z >= w->in[0] || y < 0 || y >= w->in[1]) {
                continue;
            }
            const float *from = in + (z * w->in[1] + y) * w->in[2];
            float *to = out + row * w->out[2];
            for (int64_t x = first; x < last; x++) {
                to[x] += scale * from[x * w->stride[2] + offset];
            }
        }
    }
    char *place = part->out + f * w->out_plane * type_size(call->outputs[0].type);
    convert(place, call->outputs[0].type, out, ACL_FLOAT, 1, w->out_plane);
}

static void part_run(const OpCall *call, const Conv *conv, const Part *part)
{
    if (conv_depthwise(conv)) {
        for (int64_t f = 0; f < conv->out_group; f++) {
            depthwise_plane(call, conv, part, f);
        }
        return;
    }
    int64_t step = conv_pointwise(&conv->w) ? conv->w.out_plane : conv->tile;
    for (int64_t first = 0; first < conv->w.out_plane; first += step) {
        int64_t left = conv->w.out_plane - first;
        tile_multiply(call, conv, part, first, left < step ? left : step);
    }
}

/* Calls `run` for each group of each image. `weights` is the number of weights of a group. */
static void parts_run(const OpCall *call, const Conv *conv, int64_t weights,
                      void (*run)(const OpCall *call, const Conv *conv, const Part *part))
{
    int64_t size = type_size(call->inputs[0]->type);
    for (int64_t i = 0; i < conv->w.batch * conv->groups; i++) {
        int64_t group = i % conv->groups;
        Part part = {
            .image =
                (const char *)call->inputs[0]->data + i * conv->in_group * conv->w.in_plane * size,
            .weight = (const char *)call->inputs[1]->data + group * weights * size,
            .out = (char *)call->outputs[0].data + i * conv->out_group * conv->w.out_plane * size,
            .filter = group * conv->out_group,
        };
        run(call, conv, &part);
    }
}

bool conv_run(const OpCall *call)
{
    Conv conv;
    if (!conv_plan(call, &conv)) {
        return false;
    }
    parts_run(call, &conv, conv.out_group * conv.depth, part_run);
    return true;
}

/* --- transposed: computes the products of W^T and the input, and adds each to the output element under its kernel
   element --- */

static bool transposed_plan(const OpCall *call, Conv *conv)
{
    const Tensor *weight = call->inputs[1];
    if (!weight_check(call) || !window_plan_transposed(call, weight->dims + 2, &conv->w)) {
        return false;
    }
    conv->groups = attr_int(call, "group", 1);
    if (conv->groups < 1 || weight->dims[0] != conv->w.channels
        || conv->w.channels % conv->groups != 0) {
        return op_fail(call, "input 0 has %lld channels; the weight is for %lld in %lld groups",
            (long long)conv->w.channels, (long long)weight->dims[0], (long long)conv->groups);
    }
    conv->in_group = conv->w.channels / conv->groups;
    conv->out_group = weight->dims[1];
    conv->filters = conv->out_group * conv->groups;
    conv->depth = conv->out_group * conv->w.kernel_plane;
    return true;
}

static bool transposed_infer(OpCall *call)
{
    Conv conv;
    if (!transposed_plan(call, &conv) || !bias_check(call, conv.filters)) {
        return false;
    }
    window_shape(call, &conv.w, conv.filters);
    return true;
}

static int64_t transposed_workspace(const OpCall *call)
{
    Conv conv;
    if (!transposed_plan(call, &conv)) {
        return 0;
    }
    int64_t floats = conv.depth * conv.w.in_plane + conv.out_group * conv.w.out_plane;
    return floats * (int64_t)sizeof(float)
        + gemm_scratch(conv.depth, conv.w.in_plane, conv.in_group);
}

/* Adds the products of one kernel element `tap`, one for each input position, to the output plane. */
static void tap_fold(const Window *w, const float *products, const int64_t *tap, float *plane)
{
    int64_t offset = tap[2] * w->dilation[2] - w->pad_begin[2], first, last;
    window_steps(w->in[2], w->stride[2], offset, w->out[2], &first, &last);
    for (int64_t row = 0; row < w->in[0] * w->in[1]; row++, products += w->in[2]) {
        int64_t z = row / w->in[1] * w->stride[0] - w->pad_begin[0] + tap[0] * w->dilation[0];
        int64_t y = row % w->in[1] * w->stride[1] - w->pad_begin[1] + tap[1] * w->dilation[1];
        if (z < 0 || z >= w->out[0] || y < 0 || y >= w->out[1]) {
            continue;
        }
        float *to = plane + (z * w->out[1] + y) * w->out[2] + offset;
        for (int64_t x = first; x < last; x++) {
            to[x * w->stride[2]] += products[x];
        }
    }
}

static void transposed_part(const OpCall *call, const Conv *conv, const Part *part)
{
    const Window *w = &conv->w;
    aclDataType type = call->inputs[0]->type;
    float *products = call->workspace;
    float *sums = products + conv->depth * w->in_plane;
    float *scratch = sums + conv->out_group * w->out_plane;
    Gemm gemm = {
        .m = conv->depth, .n = w->in_plane, .k = conv->in_group, .alpha = 1.0F,
        .a = part->weight, .a_type = type, .a_row = 1, .a_column = conv->depth,
        .b = part->image, .b_type = type, .b_row = w->in_plane, .b_column = 1,
        .c = products, .c_row = w->in_plane,
    };
    gemm_run(&gemm, scratch, call->threads);
    memset(sums, 0, (size_t)(conv->out_group * w->out_plane) * sizeof *sums);
    bias_rows(call, part->filter, conv->out_group, sums, w->out_plane, w->out_plane);
    for (int64_t row = 0; row < conv->depth; row++) {
        int64_t tap[SPATIAL];
        tap_split(w, row % w->kernel_plane, tap);
        tap_fold(w, products + row * w->in_plane, tap, sums + row / w->kernel_plane * w->out_plane);
    }
    convert(part->out, type, sums, ACL_FLOAT, 1, conv->out_group * w->out_plane);
}

static bool transposed_run(const OpCall *call)
{
    Conv conv;
    if (!transposed_plan(call, &conv)) {
        return false;
    }
    parts_run(call, &conv, conv.in_group * conv.depth, transposed_part);
    return true;
}

const OpKind ops_conv[] = {
    {"Conv", OP_ONNX, 2, 3, 1, 0, conv_infer, conv_workspace, conv_run, 0, 0},
    {"ConvTranspose", OP_ONNX, 2, 3, 1, 0, transposed_infer, transposed_workspace, transposed_run,
        0, 0},
    {0},
};
