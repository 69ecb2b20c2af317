/* conv_window.c: see conv_window.h. */
#include "layers/conv_window.h"

#include <string.h>

/* Largest stride, dilation, pad or kernel dimension. With this limit, the product of three such numbers, or of two
   such numbers and a dimension of a tensor, does not overflow. */
enum { WINDOW_MAX = 1 << 20 };

static bool list_read(const OpCall *call, const char *name, int64_t otherwise, int from, int count,
    int64_t *values)
{
    IntList list;
    if (!op_ints(call, name, -1, &list)) {
        return false;
    }
    int whole = strcmp(name, "pads") == 0 ? 2 * count : count;
    if (list.count >= 0 && list.count != whole) {
        return op_fail(call, "attribute %s: expected %d integers, got %lld", name, whole,
            (long long)list.count);
    }
    for (int d = 0; d < SPATIAL; d++) {
        values[d] = otherwise;
    }
    for (int d = 0; d < count; d++) {
        values[SPATIAL - count + d] = list.count < 0 ? otherwise : list.values[from + d];
    }
    return true;
}

static bool base_read(const OpCall *call, const int64_t *kernel, Window *w)
{
    const Tensor *in = call->inputs[0];
    memset(w, 0, sizeof *w);
    w->spatial = in->rank - 2;
    if (w->spatial < 1 || w->spatial > SPATIAL) {
        return op_fail(call, "input 0: expected rank 3 to 5, got %d", in->rank);
    }
    w->batch = in->dims[0];
    w->channels = in->dims[1];
    for (int d = 0; d < SPATIAL; d++) {
        int own = d - (SPATIAL - w->spatial);
        w->in[d] = own < 0 ? 1 : in->dims[2 + own];
        w->kernel[d] = own < 0 ? 1 : kernel[own];
    }
    if (!list_read(call, "strides", 1, 0, w->spatial, w->stride)
        || !list_read(call, "dilations", 1, 0, w->spatial, w->dilation)
        || !list_read(call, "pads", 0, 0, w->spatial, w->pad_begin)
        || !list_read(call, "pads", 0, w->spatial, w->spatial, w->pad_end)) {
        return false;
    }
    for (int d = 0; d < SPATIAL; d++) {
        if (w->stride[d] < 1 || w->dilation[d] < 1 || w->kernel[d] < 1) {
            return op_fail(call, "strides, dilations and kernel must be at least 1");
        }
        if (w->stride[d] > WINDOW_MAX || w->dilation[d] > WINDOW_MAX || w->kernel[d] > WINDOW_MAX
            || w->pad_begin[d] < -WINDOW_MAX || w->pad_begin[d] > WINDOW_MAX
            || w->pad_end[d] < -WINDOW_MAX || w->pad_end[d] > WINDOW_MAX) {
            return op_fail(call, "strides, dilations, pads and kernel: expected at most %d",
                (int)WINDOW_MAX);
        }
    }
    w->in_plane = dims_count(w->in, SPATIAL);
    w->kernel_plane = dims_count(w->kernel, SPATIAL);
    return true;
}

/* Sets the pads of SAME_UPPER and SAME_LOWER, with which the output size is the input size divided by the stride,
   rounded up. If the sum of both pads is odd, the pad at the end (upper) or at the start (lower) is larger by one. */
static void pads_same(Window *w, int d, bool upper)
{
    int64_t steps = (w->in[d] + w->stride[d] - 1) / w->stride[d];
    int64_t extent = (w->kernel[d] - 1) * w->dilation[d] + 1;
    int64_t pads = (steps - 1) * w->stride[d] + extent - w->in[d];
    pads = pads < 0 ? 0 : pads;
    w->pad_begin[d] = upper ? pads / 2 : pads - pads / 2;
    w->pad_end[d] = pads - w->pad_begin[d];
}

static bool automatic_check(const OpCall *call, const char *automatic)
{
    static const char *const known[] = {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(automatic, known[i]) == 0) {
            return true;
        }
    }
    return op_fail(call, "attribute auto_pad: %s is not supported", automatic);
}

bool window_plan(const OpCall *call, const int64_t *kernel, Window *w)
{
    if (!base_read(call, kernel, w)) {
        return false;
    }
    const char *automatic = attr_string(call, "auto_pad", "NOTSET");
    bool ceiling = attr_int(call, "ceil_mode", 0) != 0;
    if (!automatic_check(call, automatic)) {
        return false;
    }
    for (int d = 0; d < SPATIAL; d++) {
        if (strncmp(automatic, "SAME", 4) == 0) {
            pads_same(w, d, strcmp(automatic, "SAME_UPPER") == 0);
        } else if (strcmp(automatic, "VALID") == 0) {
            w->pad_begin[d] = w->pad_end[d] = 0;
        }
        int64_t extent = (w->kernel[d] - 1) * w->dilation[d] + 1;
        int64_t room = w->in[d] + w->pad_begin[d] + w->pad_end[d] - extent;
        if (room < 0) {
            return op_fail(call,
                "spatial dimension of %lld is smaller than the kernel's extent of %lld",
                (long long)w->in[d], (long long)extent);
        }
        w->out[d] = (room + (ceiling ? w->stride[d] - 1 : 0)) / w->stride[d] + 1;
        if (ceiling && (w->out[d] - 1) * w->stride[d] >= w->in[d] + w->pad_begin[d]) {
            w->out[d]--; /* the last window must not begin in the padding at the end */
        }
    }
    w->out_plane = dims_count(w->out, SPATIAL);
    return true;
}

bool window_plan_transposed(const OpCall *call, const int64_t *kernel, Window *w)
{
    int64_t extra[SPATIAL], wanted[SPATIAL];
    if (!base_read(call, kernel, w) || !list_read(call, "output_padding", 0, 0, w->spatial, extra)
        || !list_read(call, "output_shape", -1, 0, w->spatial, wanted)) {
        return false;
    }
    const char *automatic = attr_string(call, "auto_pad", "NOTSET");
    if (!automatic_check(call, automatic)) {
        return false;
    }
    bool same = strncmp(automatic, "SAME", 4) == 0;
    for (int d = 0; d < SPATIAL; d++) {
        if (extra[d] < 0 || extra[d] > WINDOW_MAX || wanted[d] > INT32_MAX) {
            return op_fail(call, "output_padding and output_shape: expected at most %d and %d",
                (int)WINDOW_MAX, INT32_MAX);
        }
        int64_t full =
            (w->in[d] - 1) * w->stride[d] + extra[d] + (w->kernel[d] - 1) * w->dilation[d] + 1;
        bool own = d >= SPATIAL - w->spatial;
        if (own && (wanted[d] >= 0 || same)) {
            int64_t target = wanted[d] >= 0 ? wanted[d] : w->in[d] * w->stride[d];
            int64_t pads = full > target ? full - target : 0;
            bool upper = strcmp(automatic, "SAME_UPPER") == 0;
            w->pad_begin[d] = upper ? pads / 2 : pads - pads / 2;
            w->pad_end[d] = pads - w->pad_begin[d];
            w->out[d] = target;
        } else {
            w->out[d] = full - w->pad_begin[d] - w->pad_end[d];
        }
        if (w->out[d] < 1) {
            return op_fail(call, "the output would have a dimension of %lld", (long long)w->out[d]);
        }
    }
    w->out_plane = dims_count(w->out, SPATIAL);
    return true;
}

void window_shape(const OpCall *call, const Window *w, int64_t channels)
{
    Tensor *out = &call->outputs[0];
    out->type = call->inputs[0]->type;
    out->rank = w->spatial + 2;
    out->dims[0] = w->batch;
    out->dims[1] = channels;
    for (int d = 0; d < w->spatial; d++) {
        out->dims[2 + d] = w->out[SPATIAL - w->spatial + d];
    }
}

void window_steps(
    int64_t steps, int64_t stride, int64_t offset, int64_t size, int64_t *first, int64_t *last)
{
    int64_t low = offset < 0 ? (-offset + stride - 1) / stride : 0;
    int64_t high = size > offset ? (size - offset + stride - 1) / stride : 0;
    *first = low > steps ? steps : low;
    *last = high > steps ? steps : high;
    if (*last < *first) {
        *last = *first;
    }
}
