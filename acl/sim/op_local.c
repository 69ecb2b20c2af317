/* op_local.c: sums over neighbourhoods that are neither a convolution nor a maximum: LRN, LpPool and
   its global form, and Col2Im, the fold that undoes an unfolding. */
#include "window.h"

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

/* --- LRN: each element over a power of the squares of the channels around it --- */

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

static bool lrn_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    int64_t size = attr_int(call, "size", 1), channels = in->dims[1];
    int64_t plane = dims_count(in->dims + 2, in->rank - 2);
    double alpha = attr_float(call, "alpha", 1e-4), beta = attr_float(call, "beta", 0.75);
    double bias = attr_float(call, "bias", 1.0);
    for (int64_t i = 0; i < tensor_count(in); i++) {
        int64_t c = i / plane % channels, sum_from = c - (size - 1) / 2, sum_to = c + size / 2;
        double squares = 0.0;
        sum_from = sum_from < 0 ? 0 : sum_from;
        sum_to = sum_to >= channels ? channels - 1 : sum_to;
        for (int64_t k = sum_from; k <= sum_to; k++) {
            double x = tensor_get_real(in, i + (k - c) * plane);
            squares += x * x;
        }
        double x = tensor_get_real(in, i);
        value_store(out, i, x / pow(bias + alpha / (double)size * squares, beta));
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

/* The place in a plane under one step of the kernel; -1 in the padding. */
static int64_t place_under(const Window *w, int64_t out, int64_t step)
{
    int64_t at[SPATIAL] = {
        out / w->out[2] / w->out[1], out / w->out[2] % w->out[1], out % w->out[2]};
    int64_t tap[SPATIAL] = {step / w->kernel[2] / w->kernel[1],
        step / w->kernel[2] % w->kernel[1], step % w->kernel[2]};
    int64_t place = 0;
    for (int d = 0; d < SPATIAL; d++) {
        int64_t x = at[d] * w->stride[d] - w->pad_begin[d] + tap[d] * w->dilation[d];
        if (x < 0 || x >= w->in[d]) {
            return -1;
        }
        place = place * w->in[d] + x;
    }
    return place;
}

static bool lp_run(const OpCall *call)
{
    Window w;
    if (!lp_plan(call, &w)) {
        return false;
    }
    double p = (double)attr_int(call, "p", 2);
    for (int64_t i = 0; i < w.batch * w.channels * w.out_plane; i++) {
        double sum = 0.0;
        for (int64_t step = 0; step < w.kernel_plane; step++) {
            int64_t place = place_under(&w, i % w.out_plane, step);
            double x = place < 0 ? 0.0
                                 : fabs(tensor_get_real(call->inputs[0],
                                       i / w.out_plane * w.in_plane + place));
            sum += pow(x, p);
        }
        value_store(&call->outputs[0], i, pow(sum, 1.0 / p));
    }
    return true;
}

/* --- Col2Im: columns are added where they were taken from --- */

/* The window that unfolds the image; the columns are its output places. */
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
    for (int64_t i = 0; i < tensor_count(in); i++) {
        int64_t row = i / w.out_plane, step = row % w.kernel_plane;
        int64_t place = place_under(&w, i % w.out_plane, step);
        if (place >= 0) {
            int64_t at = row / w.kernel_plane * w.in_plane + place;
            value_store(out, at, tensor_get_real(out, at) + tensor_get_real(in, i));
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
