/* op_pool.c: MaxPool and AveragePool, and their global forms.

   Arithmetic is float, or double for float64 (pool_planes.h). A row of output elements is computed at a time: for
   each kernel element, one loop updates the whole row. If the kernel is wider than the row, or if the indices of
   the maxima are an output, each output element is computed by itself from its window. */
#include "numbers/vmath.h"
#include "layers/conv_window.h"

#include <math.h>
#include <string.h>

enum { MAX, AVERAGE, GLOBAL_MAX, GLOBAL_AVERAGE };

static bool pool_plan(const OpCall *call, Window *w)
{
    const Tensor *in = call->inputs[0];
    if (!type_is_float(in->type) && call->kind->variant != MAX) {
        return op_fail(
            call, "input 0: %s is not defined for %s", call->kind->name, type_name(in->type));
    }
    if (call->kind->variant >= GLOBAL_MAX) {
        return window_plan(call, in->dims + 2, w);
    }
    IntList kernel;
    if (!op_ints(call, "kernel_shape", -1, &kernel)) {
        return false;
    }
    if (kernel.count != in->rank - 2) {
        return op_fail(call, "kernel_shape: expected %d integers, got %lld", in->rank - 2,
            (long long)kernel.count);
    }
    return window_plan(call, kernel.values, w);
}

static bool pool_infer(OpCall *call)
{
    Window w;
    if (!pool_plan(call, &w)) {
        return false;
    }
    window_shape(call, &w, w.channels);
    if (call->output_count > 1) {
        call->outputs[1].type = ACL_INT64;
        tensor_shape_copy(&call->outputs[1], &call->outputs[0]);
    }
    return true;
}

static bool in_double(const OpCall *call)
{
    return call->inputs[0]->type == ACL_DOUBLE;
}

static int64_t pool_workspace(const OpCall *call)
{
    Window w;
    bool direct = call->inputs[0]->type == ACL_FLOAT || in_double(call);
    int64_t size = in_double(call) ? (int64_t)sizeof(double) : (int64_t)sizeof(float);
    return pool_plan(call, &w) ? (2 * w.out[2] + w.in[2] + (direct ? 0 : w.in_plane)) * size : 0;
}

/* The part of an output element's window that is inside the input: for each dimension, the input index at which the
   window starts (may be in the padding), and the range [first, last) of kernel indices inside the input. */
typedef struct Reach {
    int64_t start[SPATIAL], first[SPATIAL], last[SPATIAL];
} Reach;

static void reach_dimension(const Window *w, int d, int64_t at, Reach *reach)
{
    reach->start[d] = at * w->stride[d] - w->pad_begin[d];
    window_steps(w->kernel[d], w->dilation[d], reach->start[d], w->in[d], &reach->first[d],
        &reach->last[d]);
}

/* Returns the reach of the row of output elements that begins at `place`. */
static Reach reach_at(const Window *w, int64_t place)
{
    Reach reach;
    reach_dimension(w, 0, place / w->out[2] / w->out[1], &reach);
    reach_dimension(w, 1, place / w->out[2] % w->out[1], &reach);
    reach_dimension(w, 2, 0, &reach);
    return reach;
}

/* Returns the number of kernel elements along a dimension by which an average is divided: those inside the input; if
   `padded`, also those in the padding. */
static int64_t reach_size(const Window *w, const Reach *r, int d, bool padded)
{
    int64_t first = r->first[d], last = r->last[d];
    if (padded) {
        window_steps(w->kernel[d], w->dilation[d], r->start[d] + w->pad_begin[d],
            w->in[d] + w->pad_begin[d] + w->pad_end[d], &first, &last);
    }
    return last - first;
}

/* Converts an index in a plane from row-major to column-major order. */
static int64_t column_major(const Window *w, int64_t at)
{
    int64_t x = at % w->in[2], y = at / w->in[2] % w->in[1], z = at / w->in[2] / w->in[1];
    return (x * w->in[1] + y) * w->in[0] + z;
}

static void place_put(
    const OpCall *call, const Window *w, int64_t index, int64_t at, int64_t where)
{
    bool columns = attr_int(call, "storage_order", 0) != 0;
    where = where < 0 ? 0 : columns ? column_major(w, where) : where;
    ((int64_t *)call->outputs[1].data)[at] = index * w->in_plane + where;
}

#define REAL float
#define REAL_TYPE ACL_FLOAT
#define NAME(x) x##_f32
#include "layers/pool_planes.h"

#define REAL double
#define REAL_TYPE ACL_DOUBLE
#define NAME(x) x##_f64
#include "layers/pool_planes.h"

static bool pool_run(const OpCall *call)
{
    Window w;
    if (!pool_plan(call, &w)) {
        return false;
    }
    for (int64_t i = 0; i < w.batch * w.channels; i++) {
        (in_double(call) ? plane_run_f64 : plane_run_f32)(call, &w, i);
        if (!op_goes_on(call)) {
            return false;
        }
    }
    return true;
}

#define POOL(NAME, OUTPUTS, VARIANT) \
    {NAME, OP_ONNX, 1, 1, OUTPUTS, 0, pool_infer, pool_workspace, pool_run, VARIANT, 0}

const OpKind ops_pool[] = {
    POOL("MaxPool", 2, MAX), POOL("AveragePool", 1, AVERAGE), POOL("GlobalMaxPool", 1, GLOBAL_MAX),
    POOL("GlobalAveragePool", 1, GLOBAL_AVERAGE),
    {0},
};
