/* op_lrn.c: operators that sum over neighbouring elements: LRN, LpPool, GlobalLpPool, and Col2Im, which adds unfolded
   columns to an image. */
#include "numbers/vmath.h"
#include "layers/conv_window.h"

#include <math.h>
#include <string.h>

static bool float_check(const OpCall *call)
{
    aclDataType type = call->inputs[0]->type;
    return type_is_float(type)
        || op_fail(call, "input 0: %s is not defined for %s", call->kind->name, type_name(type));
}

static void value_store(const Tensor *out, int64_t at, double value)
{
    convert((char *)out->data + at * type_size(out->type), out->type, &value, ACL_DOUBLE, 1, 1);
}

/* --- LRN: divides each element by a power of the sum of the squares of the channels around it --- */

static bool lrn_infer(OpCall *call)
{
    const Tensor *in = call->inputs[0];
    if (!float_check(call)) {
        return false;
    }
    if (in->rank < 2 || attr_int(call, "size", 0) < 1) {
        return op_fail(call, "expected a channel dimension and a size of at least 1");
    }
    return op_same(call, 0);
}

enum { BLOCK = 256 };

WIDE static void squares_add(double *sums, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        sums[i] += x[i] * x[i];
    }
}

typedef struct Response {
    int64_t size;
    double scale, beta, bias;
} Response;

/* Divides x by (bias + scale * sums)^beta. For the usual beta of 3/4, two square roots replace the slower pow. */
WIDE static void response_divide(const Response *r, const double *sums, double *x, int64_t n)
{
    if (r->beta >= 0.75 && r->beta <= 0.75) {
        for (int64_t i = 0; i < n; i++) {
            double root = sqrt(r->bias + r->scale * sums[i]);
            x[i] /= root * sqrt(root);
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        x[i] /= pow(r->bias + r->scale * sums[i], r->beta);
    }
}

/* Computes `n` elements of one channel, from the element `at` of the tensor on. Elements of neighbouring channels are
   one plane apart in memory. */
static void lrn_block(const OpCall *call, const Response *r, int64_t channel, int64_t at, int64_t n)
{
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    double sums[BLOCK] = {0}, x[BLOCK];
    int64_t plane = dims_count(in->dims + 2, in->rank - 2), channels = in->dims[1];
    int64_t before = (r->size - 1) / 2, after = r->size / 2, size = type_size(in->type);
    int64_t from = channel < before ? 0 : channel - before;
    int64_t to = channels - 1 - channel < after ? channels - 1 : channel + after;
    for (int64_t k = from; k <= to; k++) {
        convert(x, ACL_DOUBLE, (const char *)in->data + (at + (k - channel) * plane) * size,
            in->type, 1, n);
        squares_add(sums, x, n);
    }
    convert(x, ACL_DOUBLE, (const char *)in->data + at * size, in->type, 1, n);
    response_divide(r, sums, x, n);
    convert((char *)out->data + at * size, out->type, x, ACL_DOUBLE, 1, n);
}

static bool lrn_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0];
    int64_t plane = dims_count(in->dims + 2, in->rank - 2);
    Response r = {attr_int(call, "size", 1), attr_float(call, "alpha", 1e-4),
        attr_float(call, "beta", 0.75), attr_float(call, "bias", 1.0)};
    r.scale /= (double)r.size;
    for (int64_t line = 0; line < in->dims[0] * in->dims[1]; line++) {
        for (int64_t i = 0; i < plane; i += BLOCK) {
            int64_t n = plane - i < BLOCK ? plane - i : BLOCK;
            lrn_block(call, &r, line % in->dims[1], line * plane + i, n);
        }
        if (!op_goes_on(call)) {
            return false;
        }
    }
    return true;
}

/* --- LpPool, GlobalLpPool --- */

static bool lp_plan(const OpCall *call, Window *w)
{
    IntList kernel;
    const Tensor *in = call->inputs[0];
    if (!float_check(call) || attr_int(call, "p", 2) < 1) {
        return type_is_float(in->type) ? op_fail(call, "attribute p: expected at least 1") : false;
    }
    if (call->kind->variant != 0) {
        return window_plan(call, in->dims + 2, w);
    }
    if (!op_ints(call, "kernel_shape", -1, &kernel)) {
        return false;
    }
    return kernel.count == in->rank - 2 ? window_plan(call, kernel.values, w)
                                        : op_fail(call, "kernel_shape: expected %d integers",
                                              in->rank - 2);
}

static bool lp_infer(OpCall *call)
{
    Window w;
    if (!lp_plan(call, &w)) {
        return false;
    }
    window_shape(call, &w, w.channels);
    return true;
}

/* Returns the p-norm of the input elements in the window of output element `i`. The padding does not count. */
static double lp_norm(const OpCall *call, const Window *w, int64_t i)
{
    int64_t p = attr_int(call, "p", 2), out = i % w->out_plane;
    int64_t at[SPATIAL] = {
        out / w->out[2] / w->out[1], out / w->out[2] % w->out[1], out % w->out[2]};
    int64_t start[SPATIAL], first[SPATIAL], last[SPATIAL];
    double sum = 0.0;
    for (int d = 0; d < SPATIAL; d++) {
        start[d] = at[d] * w->stride[d] - w->pad_begin[d];
        window_steps(w->kernel[d], w->dilation[d], start[d], w->in[d], &first[d], &last[d]);
    }
    for (int64_t z = first[0]; z < last[0]; z++) {
        for (int64_t y = first[1]; y < last[1]; y++) {
            int64_t row = i / w->out_plane * w->in_plane
                + ((start[0] + z * w->dilation[0]) * w->in[1] + start[1] + y * w->dilation[1])
                    * w->in[2] + start[2];
            for (int64_t x = first[2]; x < last[2]; x++) {
                double value = fabs(tensor_get_real(call->inputs[0], row + x * w->dilation[2]));
                sum += p == 1 ? value : p == 2 ? value * value : pow(value, (double)p);
            }
        }
    }
    return p == 1 ? sum : p == 2 ? sqrt(sum) : pow(sum, 1.0 / (double)p);
}

static bool lp_run(const OpCall *call)
{
    Window w;
    if (!lp_plan(call, &w)) {
        return false;
    }
    for (int64_t i = 0; i < w.batch * w.channels * w.out_plane; i++) {
        if (i % w.out_plane == 0 && !op_goes_on(call)) {
            return false;
        }
        value_store(&call->outputs[0], i, lp_norm(call, &w, i));
    }
    return true;
}

/* --- Col2Im: adds each column to the elements of the image that im2col would have taken it from --- */

/* Plans the window with which im2col would unfold the image. Each column belongs to one position of the window. */
static bool fold_plan(OpCall *call, Tensor *image, Window *w)
{
    IntList sizes, block;
    const Tensor *in = call->inputs[0];
    if (!float_check(call) || !op_ints(call, "image_shape", 1, &sizes)
        || !op_ints(call, "block_shape", 2, &block)) {
        return false;
    }
    int64_t steps = block.count < 1 || block.count > SPATIAL ? 0
                                                             : dims_count(block.values,
                                                                   (int)block.count);
    if (in->rank != 3 || sizes.count != block.count || steps < 1 || in->dims[1] % steps != 0) {
        return op_fail(call, "expected [n, c * block, places] and a block of 1 to 3 dimensions");
    }
    *image = (Tensor){.type = in->type, .rank = (int)sizes.count + 2,
        .dims = {in->dims[0], in->dims[1] / steps}};
    memcpy(image->dims + 2, sizes.values, (size_t)sizes.count * sizeof image->dims[0]);
    const Tensor *unfolded[] = {image};
    OpCall window = *call;
    window.inputs = unfolded;
    if (!tensor_fits(image) || !window_plan(&window, block.values, w)) {
        return tensor_fits(image) ? false : op_fail(call, "input 1: the image is too large");
    }
    return w->out_plane == in->dims[2]
        || op_fail(call, "input 0 has %lld places, the image %lld", (long long)in->dims[2],
            (long long)w->out_plane);
}

static bool fold_infer(OpCall *call)
{
    Window w;
    return fold_plan(call, &call->outputs[0], &w);
}

#define ADD_LOOP(T) \
    for (int64_t i = 0; i < n; i++) { \
        ((T *)to)[i * stride] += ((const T *)from)[i]; \
    } \
    break

/* Adds `n` elements of a row of columns to elements of a row of the image that are `stride` apart. */
static void run_add(aclDataType type, void *to, const void *from, int64_t stride, int64_t n)
{
    const Tensor row = {.type = type, .data = to};
    const Tensor run = {.type = type, .data = (void *)(uintptr_t)from};
    switch (type) {
    case ACL_FLOAT: ADD_LOOP(float);
    case ACL_DOUBLE: ADD_LOOP(double);
    default:
        for (int64_t i = 0; i < n; i++) {
            value_store(
                &row, i * stride, tensor_get_real(&row, i * stride) + tensor_get_real(&run, i));
        }
    }
}

/* Adds one row of the input to the image. The row belongs to one kernel element and has an element for each position
   of the window. */
static void columns_add(const Tensor *out, const Window *w, int64_t row, const char *columns)
{
    int64_t step = row % w->kernel_plane, size = type_size(out->type);
    int64_t tap[SPATIAL] = {step / w->kernel[2] / w->kernel[1],
        step / w->kernel[2] % w->kernel[1], step % w->kernel[2]};
    int64_t offset[SPATIAL], first[SPATIAL], last[SPATIAL];
    for (int d = 0; d < SPATIAL; d++) {
        offset[d] = tap[d] * w->dilation[d] - w->pad_begin[d];
        window_steps(w->out[d], w->stride[d], offset[d], w->in[d], &first[d], &last[d]);
    }
    char *image = (char *)out->data + row / w->kernel_plane * w->in_plane * size;
    for (int64_t z = first[0]; z < last[0]; z++) {
        for (int64_t y = first[1]; y < last[1] && first[2] < last[2]; y++) {
            int64_t from = (z * w->out[1] + y) * w->out[2] + first[2];
            int64_t to = ((z * w->stride[0] + offset[0]) * w->in[1] + y * w->stride[1] + offset[1])
                    * w->in[2] + first[2] * w->stride[2] + offset[2];
            run_add(out->type, image + to * size, columns + from * size, w->stride[2],
                last[2] - first[2]);
        }
    }
}

static bool fold_run(const OpCall *call)
{
    Window w;
    Tensor image;
    OpCall planned = *call;
    if (!fold_plan(&planned, &image, &w)) {
        return false;
    }
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    memset(out->data, 0, (size_t)tensor_bytes(out));
    for (int64_t row = 0; row < in->dims[0] * in->dims[1]; row++) {
        columns_add(out, &w, row,
            (const char *)in->data + row * w.out_plane * type_size(in->type));
        if (!op_goes_on(call)) {
            return false;
        }
    }
    return true;
}

const OpKind ops_local[] = {
    {"LRN", OP_ONNX, 1, 1, 1, 0, lrn_infer, NULL, lrn_run, 0, 0},
    {"LpPool", OP_ONNX, 1, 1, 1, 0, lp_infer, NULL, lp_run, 0, 0},
    {"GlobalLpPool", OP_ONNX, 1, 1, 1, 0, lp_infer, NULL, lp_run, 1, 0},
    {"Col2Im", OP_ONNX, 3, 3, 1, 6, fold_infer, NULL, fold_run, 0, 0},
    {0},
};
