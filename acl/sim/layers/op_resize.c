/* op_resize.c: Resize and Upsample (nearest, linear, cubic), DepthToSpace and SpaceToDepth.

   Resizing is separable: for each output index of an axis there are a few input indices with weights
   ("taps"), which are computed once for each call. Only the last three dimensions may change their size;
   each index of the dimensions before them is one Plane. Antialiasing and cropping are refused. */
#include "ops/op.h"
#include "numbers/strided.h"

#include <math.h>
#include <string.h>

enum { AXES = 3, TAPS = 4 };

typedef struct Tap {
    int64_t index[TAPS];
    double weight[TAPS];
} Tap;

typedef struct Resize {
    double scale[TENSOR_RANK_MAX];
    int64_t out[TENSOR_RANK_MAX];
    int taps;                      /* taps of an output index: 1 (nearest), 2 (linear) or 4 (cubic) */
} Resize;

enum { RESIZE, UPSAMPLE };

/* True for Upsample, and for Resize before operator set 11. They have no input for a region, and their default
   coordinate transformation is "asymmetric". */
static bool resize_old(const OpCall *call)
{
    return call->kind->variant == UPSAMPLE || call->opset < 11;
}

static const char *transform_of(const OpCall *call)
{
    return attr_string(call, "coordinate_transformation_mode",
        resize_old(call) ? "asymmetric" : "half_pixel");
}

static bool modes_check(const OpCall *call, Resize *resize)
{
    static const char *const transforms[] = {
        "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric",
    };
    const char *mode = attr_string(call, "mode", "nearest");
    const char *transform = transform_of(call);
    bool known = false;
    for (size_t i = 0; i < sizeof transforms / sizeof transforms[0]; i++) {
        known = known || strcmp(transform, transforms[i]) == 0;
    }
    if (!known || attr_int(call, "antialias", 0) != 0 || attr_int(call, "exclude_outside", 0) != 0
        || strcmp(attr_string(call, "keep_aspect_ratio_policy", "stretch"), "stretch") != 0) {
        return op_fail(call,
            "coordinate_transformation_mode %s with antialias %lld is not supported", transform,
            (long long)attr_int(call, "antialias", 0));
    }
    resize->taps = strcmp(mode, "nearest") == 0 ? 1
        : strcmp(mode, "linear") == 0 || strcmp(mode, "bilinear") == 0 ? 2
        : strcmp(mode, "cubic") == 0            ? 4
                                                : 0;
    return resize->taps != 0 || op_fail(call, "mode %s is not supported", mode);
}

bool resize_accept(const OpCall *call)
{
    Resize resize;
    return modes_check(call, &resize);
}

static bool target_check(const OpCall *call, const Resize *resize)
{
    const Tensor *in = call->inputs[0];
    for (int d = 0; d < in->rank; d++) {
        if (resize->out[d] < 0
            || (resize->out[d] != in->dims[d] && (d < in->rank - AXES || in->dims[d] == 0))) {
            return op_fail(call,
                "dimension %d: %lld cannot become %lld (only the last %d may change)", d,
                (long long)in->dims[d], (long long)resize->out[d], (int)AXES);
        }
    }
    return true;
}

/* Returns the scale of dimension i, from the input of the scales, or from the attribute of the oldest Upsample. */
static double scale_at(const OpCall *call, int64_t i)
{
    const Tensor *scales = op_input(call, resize_old(call) ? 1 : 2);
    return scales != NULL ? tensor_get_real(scales, i)
                          : (double)attr_find(call, "scales")->floats[i];
}

static int64_t scales_count(const OpCall *call)
{
    const Tensor *scales = op_input(call, resize_old(call) ? 1 : 2);
    const Attr *attr = scales == NULL ? attr_find(call, "scales") : NULL;
    return scales != NULL ? tensor_count(scales)
        : attr != NULL && attr->kind == ATTR_FLOATS ? attr->count : 0;
}

static bool resize_plan(const OpCall *call, Resize *resize)
{
    IntList axes, sizes;
    const Tensor *in = call->inputs[0];
    if (!modes_check(call, resize) || !op_ints(call, "axes", -1, &axes)) {
        return false;
    }
    bool by_size = op_input(call, 3) != NULL && tensor_count(call->inputs[3]) > 0;
    sizes.count = -1;
    if (by_size && !op_ints(call, "sizes", 3, &sizes)) {
        return false;
    }
    int64_t named = axes.count < 0 ? in->rank : axes.count;
    int64_t given = by_size ? sizes.count : scales_count(call);
    if (given != named) {
        return op_fail(call, "%s: expected %lld values, got %lld", by_size ? "sizes" : "scales",
            (long long)named, (long long)given);
    }
    for (int d = 0; d < in->rank; d++) {
        resize->out[d] = in->dims[d];
        resize->scale[d] = 1.0;
    }
    for (int i = 0; i < (int)named; i++) {
        int d = axis_normal(axes.count < 0 ? i : axes.values[i], in->rank);
        double scale = by_size ? 1.0 : scale_at(call, i);
        if (d < 0 || !(scale > 0.0 && scale < 0x1p20)) {
            return op_fail(call, "axes and scales: entry %d is out of range", i);
        }
        resize->out[d] = by_size ? sizes.values[i] : (int64_t)floor((double)in->dims[d] * scale);
        resize->scale[d] = by_size ? (double)sizes.values[i] / (double)in->dims[d] : scale;
    }
    return target_check(call, resize);
}

static bool resize_infer(OpCall *call)
{
    Resize resize;
    if (!resize_plan(call, &resize)) {
        return false;
    }
    op_same(call, 0);
    memcpy(call->outputs[0].dims, resize.out, sizeof resize.out);
    return true;
}

static int64_t axis_or_one(const int64_t *dims, int rank, int axis)
{
    int d = rank - AXES + axis;
    return d < 0 ? 1 : dims[d];
}

static int64_t resize_workspace(const OpCall *call)
{
    Resize resize;
    int64_t places = 0;
    if (!resize_plan(call, &resize)) {
        return 0;
    }
    for (int a = 0; a < AXES; a++) {
        places += axis_or_one(resize.out, call->inputs[0]->rank, a);
    }
    int64_t row = axis_or_one(call->inputs[0]->dims, call->inputs[0]->rank, AXES - 1);
    int64_t wide = 2 * row + axis_or_one(resize.out, call->inputs[0]->rank, AXES - 1);
    return places * (int64_t)sizeof(Tap) + wide * (int64_t)sizeof(double);
}

/* --- the input position that belongs to an output index --- */

static double source_place(const char *transform, int64_t at, double scale, int64_t in, int64_t out)
{
    double x = (double)at;
    switch (transform[0]) {
    case 'a':
        if (transform[1] == 's') {
            return x / scale;
        }
        return out <= 1 ? 0.0 : x * (double)(in - 1) / (double)(out - 1);
    case 'p':
        return out <= 1 ? 0.0 : (x + 0.5) / scale - 0.5;
    default:
        if (strcmp(transform, "half_pixel_symmetric") == 0) {
            double adjust = (double)out / (scale * (double)in), center = (double)in / 2.0;
            return center * (1.0 - adjust) + (x + 0.5) / scale - 0.5;
        }
        return (x + 0.5) / scale - 0.5;
    }
}

static int64_t nearest_place(const char *mode, double x)
{
    if (strcmp(mode, "floor") == 0) {
        return (int64_t)floor(x);
    }
    if (strcmp(mode, "ceil") == 0) {
        return (int64_t)ceil(x);
    }
    if (strcmp(mode, "round_prefer_ceil") == 0) {
        return (int64_t)floor(x + 0.5);
    }
    return (int64_t)ceil(x - 0.5);
}

static void cubic_weights(double t, double a, double *weight)
{
    double d[TAPS] = {1.0 + t, t, 1.0 - t, 2.0 - t};
    for (int i = 0; i < TAPS; i++) {
        double x = d[i];
        weight[i] = x <= 1.0 ? ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
                             : ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
    }
}

static void taps_fill(const OpCall *call, const Resize *resize, int d, Tap *taps)
{
    const Tensor *in = call->inputs[0];
    const char *transform = transform_of(call);
    const char *nearest =
        attr_string(call, "nearest_mode", resize_old(call) ? "floor" : "round_prefer_floor");
    int64_t length = d < 0 ? 1 : in->dims[d], count = d < 0 ? 1 : resize->out[d];
    bool still = d < 0 || (resize->scale[d] == 1.0 && length == count);
    for (int64_t i = 0; i < count; i++) {
        double x = still ? (double)i : source_place(transform, i, resize->scale[d], length, count);
        int64_t low = resize->taps == 1 ? nearest_place(nearest, x) : (int64_t)floor(x);
        double part = x - floor(x);
        taps[i] = (Tap){.weight = {1.0 - part, part}};
        if (resize->taps == TAPS) {
            cubic_weights(part, attr_float(call, "cubic_coeff_a", -0.75), taps[i].weight);
        } else if (resize->taps == 1) {
            taps[i].weight[0] = 1.0;
        }
        for (int t = 0; t < resize->taps; t++) {
            int64_t at = low + t - (resize->taps == TAPS ? 1 : 0);
            taps[i].index[t] = at < 0 ? 0 : at >= length ? length - 1 : at;
        }
    }
}

typedef struct Plane {
    int64_t in[AXES], out[AXES];
    const Tap *taps[AXES];
    int count[AXES];    /* how many taps are used along each axis */
} Plane;

/* Computes the weighted sum of the input rows on which an output row depends, as one row of doubles, `sum`. */
static void rows_sum(const Plane *p, const Tensor *in, int64_t base, const Tap *z, const Tap *y,
    double *sum, double *load)
{
    int64_t width = p->in[2], size = type_size(in->type);
    for (int a = 0; a < p->count[0]; a++) {
        for (int b = 0; b < p->count[1]; b++) {
            int64_t row = base + (z->index[a] * p->in[1] + y->index[b]) * width;
            double weight = z->weight[a] * y->weight[b];
            bool first = a + b == 0;
            double *to = first ? sum : load;
            convert(to, ACL_DOUBLE, (const char *)in->data + row * size, in->type, 1, width);
            for (int64_t i = 0; i < width; i++) {
                sum[i] = first ? sum[i] * weight : sum[i] + weight * load[i];
            }
        }
    }
}

/* Converts a weighted sum to an integer in [low, high]: truncates it, but rounds it if it is within 1e-6 of an integer,
   because the difference is then a rounding error. */
static double whole_of(double value, double low, double high)
{
    double near = rint(value);
    double whole = fabs(value - near) < 1e-6 ? near : trunc(value);
    return whole < low ? low : whole > high ? high : whole;
}

static void row_bound(aclDataType type, double *row, int64_t n)
{
    bool is_signed = type == ACL_INT8 || type == ACL_INT16 || type == ACL_INT32
        || type == ACL_INT64;
    double span = exp2(8.0 * (double)type_size(type) - (is_signed ? 1.0 : 0.0));
    for (int64_t i = 0; i < n; i++) {
        row[i] = whole_of(row[i], is_signed ? -span : 0.0, span - 1.0);
    }
}

static void row_interpolate(const Plane *p, const double *from, double *to)
{
    int taps = p->count[2];
    for (int64_t i = 0; i < p->out[2]; i++) {
        const Tap *x = &p->taps[2][i];
        double sum = x->weight[0] * from[x->index[0]];
        for (int c = 1; c < taps; c++) {
            sum += x->weight[c] * from[x->index[c]];
        }
        to[i] = sum;
    }
}

#define PICK_LOOP(T) \
    for (int64_t i = 0; i < p->out[2]; i++) { \
        ((T *)to)[i] = ((const T *)from)[p->taps[2][i].index[0]]; \
    } \
    break

static void row_pick(const Plane *p, const void *from, void *to, int64_t size)
{
    switch (size) {
    case 1: PICK_LOOP(uint8_t);
    case 2: PICK_LOOP(uint16_t);
    case 4: PICK_LOOP(uint32_t);
    default: PICK_LOOP(uint64_t);
    }
}

static void plane_run(
    const OpCall *call, const Plane *p, bool nearest, int64_t index, double *buffers)
{
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    int64_t size = type_size(in->type);
    int64_t base = index * p->in[0] * p->in[1] * p->in[2];
    double *sum = buffers, *load = sum + p->in[2], *made = load + p->in[2];
    int64_t before = -1;
    for (int64_t row = 0; row < p->out[0] * p->out[1]; row++) {
        const Tap *z = &p->taps[0][row / p->out[1]], *y = &p->taps[1][row % p->out[1]];
        int64_t to = (index * p->out[0] * p->out[1] + row) * p->out[2];
        char *place = (char *)out->data + to * size;
        if (nearest) {
            int64_t from = base + (z->index[0] * p->in[1] + y->index[0]) * p->in[2];
            if (from == before) { /* the input row is that of the last output row, which is copied */
                memcpy(place, place - p->out[2] * size, (size_t)(p->out[2] * size));
            } else {
                row_pick(p, (const char *)in->data + from * size, place, size);
            }
            before = from;
            continue;
        }
        rows_sum(p, in, base, z, y, sum, load);
        row_interpolate(p, sum, made);
        if (!type_is_float(out->type)) {
            row_bound(out->type, made, p->out[2]);
        }
        convert(place, out->type, made, ACL_DOUBLE, 1, p->out[2]);
    }
}

static bool resize_run(const OpCall *call)
{
    Resize resize;
    Plane plane;
    const Tensor *in = call->inputs[0];
    Tap *taps = call->workspace;
    if (!resize_plan(call, &resize)) {
        return false;
    }
    for (int a = 0; a < AXES; a++) {
        int d = in->rank - AXES + a;
        plane.in[a] = axis_or_one(in->dims, in->rank, a);
        plane.out[a] = axis_or_one(resize.out, in->rank, a);
        bool still = d < 0 || (resize.scale[d] == 1.0 && plane.in[a] == plane.out[a]);
        plane.count[a] = still ? 1 : resize.taps;
        taps_fill(call, &resize, d, taps);
        if (still) {
            for (int64_t i = 0; i < plane.out[a]; i++) {
                taps[i] = (Tap){.index = {i}, .weight = {1.0}};
            }
        }
        plane.taps[a] = taps;
        taps += plane.out[a];
    }
    int planes = in->rank > AXES ? in->rank - AXES : 0;
    for (int64_t i = 0; i < dims_count(in->dims, planes) && tensor_count(&call->outputs[0]) > 0;
        i++) {
        plane_run(call, &plane, resize.taps == 1, i, (double *)(void *)taps);
    }
    return true;
}

/* --- DepthToSpace, SpaceToDepth --- */

static bool blocks_infer(OpCall *call)
{
    const Tensor *in = call->inputs[0];
    int64_t b = attr_int(call, "blocksize", 0);
    bool deep = call->kind->variant == 0;
    bool fits = in->rank == 4 && b > 0 && b < 1 << 20
        && (deep ? in->dims[1] % (b * b) == 0 : in->dims[2] % b == 0 && in->dims[3] % b == 0);
    if (!fits) {
        char text[128];
        return op_fail(call, "blocksize %lld does not fit shape %s", (long long)b,
            shape_text(in, text, sizeof text));
    }
    op_same(call, 0);
    int64_t *dims = call->outputs[0].dims;
    dims[1] = deep ? dims[1] / (b * b) : dims[1] * b * b;
    dims[2] = deep ? dims[2] * b : dims[2] / b;
    dims[3] = deep ? dims[3] * b : dims[3] / b;
    return true;
}

/* Runs both operators. Each copies elements [n, block y, block x, channel, y, x]. Input 0 of DepthToSpace and the
   output of SpaceToDepth have the blocks as channels. */
static bool blocks_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    bool deep = call->kind->variant == 0;
    const Tensor *low = deep ? in : out, *high = deep ? out : in;
    int64_t b = attr_int(call, "blocksize", 0), c = high->dims[1], h = low->dims[2],
            w = low->dims[3];
    bool crd = strcmp(attr_string(call, "mode", "DCR"), "CRD") == 0;
    int64_t plane = h * w, channel = crd ? b * b * plane : plane, block = crd ? plane : c * plane;
    Strided box = {.rank = 6, .dims = {low->dims[0], b, b, c, h, w}};
    int64_t deep_strides[6] = {b * b * c * plane, b * block, block, channel, w, 1};
    int64_t wide_strides[6] = {b * b * c * plane, w * b, 1, b * b * plane, b * w * b, b};
    memcpy(box.from, deep ? deep_strides : wide_strides, sizeof deep_strides);
    memcpy(box.to, deep ? wide_strides : deep_strides, sizeof wide_strides);
    strided_copy(&box, out->data, in->data, type_size(in->type));
    return true;
}

const OpKind ops_resize[] = {
    {"Resize", OP_ONNX, 1, 4, 1, 14, resize_infer, resize_workspace, resize_run, RESIZE, 0},
    {"Upsample", OP_ONNX, 1, 2, 1, 2, resize_infer, resize_workspace, resize_run, UPSAMPLE, 0},
    {"DepthToSpace", OP_ONNX, 1, 1, 1, 0, blocks_infer, NULL, blocks_run, 0, 0},
    {"SpaceToDepth", OP_ONNX, 1, 1, 1, 0, blocks_infer, NULL, blocks_run, 1, 0},
    {0},
};
