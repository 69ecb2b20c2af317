/* op_pool.c: MaxPool and AveragePool, and their global forms. */
#include "window.h"

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

static int64_t pool_workspace(const OpCall *call)
{
    Window w;
    bool direct = call->inputs[0]->type == ACL_FLOAT;
    return direct || !pool_plan(call, &w) ? 0 : w.in_plane * (int64_t)sizeof(float);
}

/* The part of the window at one output place that lies inside the input, in steps of the kernel. */
typedef struct Reach {
    int64_t start[SPATIAL], first[SPATIAL], last[SPATIAL];
} Reach;

static Reach reach_at(const Window *w, int64_t place)
{
    int64_t at[SPATIAL] = {
        place / w->out[2] / w->out[1], place / w->out[2] % w->out[1], place % w->out[2],
    };
    Reach reach;
    for (int d = 0; d < SPATIAL; d++) {
        reach.start[d] = at[d] * w->stride[d] - w->pad_begin[d];
        window_steps(w->kernel[d], w->dilation[d], reach.start[d], w->in[d], &reach.first[d],
            &reach.last[d]);
    }
    return reach;
}

static float reach_fold(
    const Window *w, const Reach *r, const float *plane, bool largest, int64_t *where)
{
    float value = largest ? -INFINITY : 0.0F;
    *where = 0;
    for (int64_t z = r->first[0]; z < r->last[0]; z++) {
        for (int64_t y = r->first[1]; y < r->last[1]; y++) {
            int64_t row =
                ((r->start[0] + z * w->dilation[0]) * w->in[1] + r->start[1] + y * w->dilation[1])
                * w->in[2];
            for (int64_t x = r->first[2]; x < r->last[2]; x++) {
                int64_t at = row + r->start[2] + x * w->dilation[2];
                if (!largest) {
                    value += plane[at];
                } else if (plane[at] > value || isnan(plane[at])) {
                    value = plane[at];
                    *where = at;
                }
            }
        }
    }
    return value;
}

/* What an average divides by: the places inside the input, or with the padding that was asked for.
 */
static float reach_size(const Window *w, const Reach *r, bool padded)
{
    int64_t size = 1;
    for (int d = 0; d < SPATIAL; d++) {
        int64_t first = r->first[d], last = r->last[d];
        if (padded) {
            window_steps(w->kernel[d], w->dilation[d], r->start[d] + w->pad_begin[d],
                w->in[d] + w->pad_begin[d] + w->pad_end[d], &first, &last);
        }
        size *= last - first;
    }
    return size == 0 ? 1.0F : (float)size;
}

/* A place in a plane, counted with the first axis fastest instead of the last. */
static int64_t column_major(const Window *w, int64_t at)
{
    int64_t x = at % w->in[2], y = at / w->in[2] % w->in[1], z = at / w->in[2] / w->in[1];
    return (x * w->in[1] + y) * w->in[0] + z;
}

static void plane_run(const OpCall *call, const Window *w, int64_t index)
{
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    bool largest = call->kind->variant == MAX || call->kind->variant == GLOBAL_MAX;
    bool padded = attr_int(call, "count_include_pad", 0) != 0;
    bool columns = attr_int(call, "storage_order", 0) != 0;
    const char *place = (const char *)in->data + index * w->in_plane * type_size(in->type);
    const float *plane = (const float *)(const void *)place;
    if (in->type != ACL_FLOAT) {
        convert(call->workspace, ACL_FLOAT, place, in->type, 1, w->in_plane);
        plane = call->workspace;
    }
    for (int64_t i = 0; i < w->out_plane; i++) {
        Reach reach = reach_at(w, i);
        int64_t where, at = index * w->out_plane + i;
        float value = reach_fold(w, &reach, plane, largest, &where);
        value = largest ? value : value / reach_size(w, &reach, padded);
        convert((char *)out->data + at * type_size(out->type), out->type, &value, ACL_FLOAT, 1, 1);
        if (call->output_count > 1 && call->outputs[1].data != NULL) {
            where = columns ? column_major(w, where) : where;
            ((int64_t *)call->outputs[1].data)[at] = index * w->in_plane + where;
        }
    }
}

static bool pool_run(const OpCall *call)
{
    Window w;
    if (!pool_plan(call, &w)) {
        return false;
    }
    for (int64_t i = 0; i < w.batch * w.channels; i++) {
        plane_run(call, &w, i);
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
