/* op_reduce.c: sums, means, extremes and norms along axes; ArgMax and ArgMin; CumSum.

   The input is seen as [outer, reduced, inner] runs. Axes that do not form one run are moved there
   first, by walking with strides, so a reduction over any set of axes is one loop nest. Sums of
   float32 and smaller accumulate in pairs of blocks to keep rounding errors small. */
#include "op.h"

#include <math.h>
#include <string.h>

enum { SUM, MEAN, MAX, MIN, PROD, L1, L2, SUMSQUARE, LOGSUM, LOGSUMEXP, ALL, ANY };

/* --- which axes --- */

static bool axes_mark(const OpCall *call, bool *reduced)
{
    const Tensor *in = call->inputs[0];
    IntList axes;
    if (!op_ints(call, "axes", 1, &axes)) {
        return false;
    }
    memset(reduced, 0, TENSOR_RANK_MAX * sizeof *reduced);
    if (axes.count <= 0) {
        bool nothing = attr_int(call, "noop_with_empty_axes", 0) != 0;
        for (int d = 0; d < in->rank && !nothing; d++) {
            reduced[d] = true;
        }
        return true;
    }
    for (int64_t i = 0; i < axes.count; i++) {
        int axis = axis_normal(axes.values[i], in->rank);
        if (axis < 0) {
            return op_fail(call, "axes: %lld is outside the rank %d of input 0",
                (long long)axes.values[i], in->rank);
        }
        reduced[axis] = true;
    }
    return true;
}

static int64_t keep_default(const OpCall *call)
{
    return call->kind->domain == OP_ACL ? attr_int(call, "keep_dims", 0)
                                        : attr_int(call, "keepdims", 1);
}

static bool reduce_infer(OpCall *call)
{
    bool reduced[TENSOR_RANK_MAX];
    const Tensor *in = call->inputs[0];
    if (!axes_mark(call, reduced)) {
        return false;
    }
    int variant = call->kind->variant;
    bool logical = variant == ALL || variant == ANY;
    if (logical != (in->type == ACL_BOOL)
        && !(in->type == ACL_BOOL && (variant == MAX || variant == MIN))) {
        return op_fail(
            call, "input 0: %s is not defined for %s", call->kind->name, type_name(in->type));
    }
    Tensor *out = &call->outputs[0];
    out->type = in->type;
    out->rank = 0;
    for (int d = 0; d < in->rank; d++) {
        if (!reduced[d]) {
            out->dims[out->rank++] = in->dims[d];
        } else if (keep_default(call) != 0) {
            out->dims[out->rank++] = 1;
        }
    }
    return true;
}

/* --- one output element --- */

/* The places that make up one output element: a walk over the reduced dimensions. */
typedef struct Walk {
    int rank;
    int64_t dims[TENSOR_RANK_MAX];
    int64_t strides[TENSOR_RANK_MAX];
    int64_t count;
} Walk;

static void walks_make(const Tensor *in, const bool *reduced, Walk *kept, Walk *gone)
{
    int64_t stride[TENSOR_RANK_MAX + 1];
    stride[in->rank] = 1;
    for (int d = in->rank - 1; d >= 0; d--) {
        stride[d] = stride[d + 1] * in->dims[d];
    }
    *kept = (Walk){.count = 1};
    *gone = (Walk){.count = 1};
    for (int d = 0; d < in->rank; d++) {
        Walk *walk = reduced[d] ? gone : kept;
        int last = walk->rank - 1;
        if (last >= 0 && walk->strides[last] == stride[d + 1] * in->dims[d]) {
            walk->dims[last] *= in->dims[d]; /* one run with its neighbour */
            walk->strides[last] = stride[d + 1];
        } else {
            walk->dims[walk->rank] = in->dims[d];
            walk->strides[walk->rank++] = stride[d + 1];
        }
        walk->count *= in->dims[d];
    }
}

static int64_t walk_offset(const Walk *walk, int64_t index)
{
    int64_t offset = 0;
    for (int d = walk->rank - 1; d >= 0; d--) {
        offset += index % walk->dims[d] * walk->strides[d];
        index /= walk->dims[d];
    }
    return offset;
}


static double element_term(int variant, double value, double shift)
{
    switch (variant) {
    case L1:
        return fabs(value);
    case L2: case SUMSQUARE:
        return value * value;
    case LOGSUMEXP:
        return exp(value - shift);
    default:
        return value;
    }
}

static double run_extreme(const Tensor *in, const Walk *gone, int64_t base, bool largest)
{
    double best = largest ? -INFINITY : INFINITY;
    for (int64_t i = 0; i < gone->count; i++) {
        double value = tensor_get_real(in, base + walk_offset(gone, i));
        if (isnan(value)) {
            return value;
        }
        best = (largest ? value > best : value < best) ? value : best;
    }
    return best;
}

static double real_reduce(int variant, const Tensor *in, const Walk *gone, int64_t base)
{
    if (variant == MAX || variant == MIN) {
        return run_extreme(in, gone, base, variant == MAX);
    }
    double shift = variant == LOGSUMEXP ? run_extreme(in, gone, base, true) : 0.0;
    shift = isinf(shift) ? 0.0 : shift;
    double total = variant == PROD ? 1.0 : 0.0;
    for (int64_t i = 0; i < gone->count; i++) {
        double value = tensor_get_real(in, base + walk_offset(gone, i));
        if (variant == PROD) {
            total *= value;
        } else {
            total += element_term(variant, value, shift);
        }
    }
    switch (variant) {
    case MEAN:
        return total / (double)gone->count;
    case L2:
        return sqrt(total);
    case LOGSUM:
        return log(total);
    case LOGSUMEXP:
        return log(total) + shift;
    default:
        return total;
    }
}

static int64_t whole_reduce(int variant, const Tensor *in, const Walk *gone, int64_t base)
{
    uint64_t total = variant == PROD ? 1 : 0;
    int64_t best = 0;
    for (int64_t i = 0; i < gone->count; i++) {
        int64_t value = tensor_get_int(in, base + walk_offset(gone, i));
        uint64_t term = variant == L1 && value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
        best = i == 0 || (variant == MAX || variant == ANY ? value > best : value < best) ? value
                                                                                          : best;
        if (variant == PROD) {
            total *= term;
        } else {
            total += variant == SUMSQUARE || variant == L2 ? term * term : term;
        }
    }
    if (variant == MAX || variant == MIN || variant == ALL || variant == ANY) {
        return gone->count == 0 ? variant == ALL : best;
    }
    if (variant == MEAN) {
        return gone->count == 0 ? 0 : (int64_t)total / gone->count;
    }
    return variant == L2 ? (int64_t)sqrt((double)total) : (int64_t)total;
}

/* --- the fast path: float32 sums and extremes over the last dimension --- */

static float line_sum(const float *in, int64_t count)
{
    enum { LANES = 16 };
    float lanes[LANES] = {0};
    double total = 0.0;
    int64_t i = 0;
    while (i + LANES <= count) { /* short runs in float, joined in double */
        int64_t stop = i + 64 * LANES < count ? i + 64 * LANES : count;
        memset(lanes, 0, sizeof lanes);
        for (; i + LANES <= stop; i += LANES) {
            for (int l = 0; l < LANES; l++) {
                lanes[l] += in[i + l];
            }
        }
        for (int l = 0; l < LANES; l++) {
            total += (double)lanes[l];
        }
    }
    for (; i < count; i++) {
        total += (double)in[i];
    }
    return (float)total;
}

static bool lines_reduce(const OpCall *call, const Walk *gone)
{
    const Tensor *in = call->inputs[0];
    int variant = call->kind->variant;
    bool line = gone->rank == 1 && gone->strides[0] == 1 && gone->count > 0;
    if (!line || in->type != ACL_FLOAT || (variant != SUM && variant != MEAN)) {
        return false;
    }
    float *out = call->outputs[0].data;
    const float *from = in->data;
    int64_t lines = tensor_count(&call->outputs[0]);
    for (int64_t i = 0; i < lines; i++) {
        float total = line_sum(from + i * gone->count, gone->count);
        out[i] = variant == MEAN ? total / (float)gone->count : total;
    }
    return true;
}

static bool reduce_run(const OpCall *call)
{
    bool reduced[TENSOR_RANK_MAX];
    Walk kept, gone;
    const Tensor *in = call->inputs[0];
    Tensor *out = &call->outputs[0];
    if (!axes_mark(call, reduced)) {
        return false;
    }
    walks_make(in, reduced, &kept, &gone);
    if (lines_reduce(call, &gone)) {
        return true;
    }
    int64_t size = type_size(out->type);
    for (int64_t i = 0; i < kept.count; i++) {
        int64_t base = walk_offset(&kept, i);
        char *place = (char *)out->data + i * size;
        if (type_is_float(in->type)) {
            double value = real_reduce(call->kind->variant, in, &gone, base);
            convert(place, out->type, &value, ACL_DOUBLE, 1, 1);
        } else {
            int64_t value = whole_reduce(call->kind->variant, in, &gone, base);
            convert(place, out->type, &value, ACL_INT64, 1, 1);
        }
    }
    return true;
}

/* --- ArgMax, ArgMin --- */

static bool arg_infer(OpCall *call)
{
    const Tensor *in = call->inputs[0];
    const Tensor *dimension = call->kind->domain == OP_ACL ? op_input(call, 1) : NULL;
    int64_t asked = dimension != NULL ? tensor_get_int(dimension, 0) : attr_int(call, "axis", 0);
    int axis = axis_normal(asked, in->rank);
    if (axis < 0 || in->dims[axis] == 0) {
        return op_fail(call, "axis %lld of input 0 does not exist or is empty", (long long)asked);
    }
    Tensor *out = &call->outputs[0];
    bool keep = call->kind->domain == OP_ONNX && attr_int(call, "keepdims", 1) != 0;
    out->type =
        call->kind->domain == OP_ONNX ? ACL_INT64 : (aclDataType)attr_int(call, "dtype", ACL_INT32);
    out->rank = 0;
    for (int d = 0; d < in->rank; d++) {
        if (d != axis || keep) {
            out->dims[out->rank++] = d == axis ? 1 : in->dims[d];
        }
    }
    return true;
}

static bool arg_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0];
    const Tensor *dimension = call->kind->domain == OP_ACL ? op_input(call, 1) : NULL;
    int64_t asked = dimension != NULL ? tensor_get_int(dimension, 0) : attr_int(call, "axis", 0);
    int axis = axis_normal(asked, in->rank);
    bool last = attr_int(call, "select_last_index", 0) != 0, largest = call->kind->variant == MAX;
    int64_t inner = dims_count(in->dims + axis + 1, in->rank - axis - 1);
    int64_t length = in->dims[axis], outer = dims_count(in->dims, axis);
    Tensor *out = &call->outputs[0];
    for (int64_t i = 0; i < outer * inner; i++) {
        int64_t base = i / inner * length * inner + i % inner, best = 0;
        double value = tensor_get_real(in, base);
        for (int64_t j = 1; j < length; j++) {
            double other = tensor_get_real(in, base + j * inner);
            if ((largest ? other > value : other < value)
                || (last && other >= value && other <= value)) {
                value = other;
                best = j;
            }
        }
        convert((char *)out->data + i * type_size(out->type), out->type, &best, ACL_INT64, 1, 1);
    }
    return true;
}

/* --- CumSum --- */

static bool cumsum_infer(OpCall *call)
{
    const Tensor *in = call->inputs[0];
    if (axis_normal(tensor_get_int(call->inputs[1], 0), in->rank) < 0) {
        return op_fail(call, "axis %lld is outside the rank %d of input 0",
            (long long)tensor_get_int(call->inputs[1], 0), in->rank);
    }
    return op_same(call, 0);
}

static bool cumsum_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    int axis = axis_normal(tensor_get_int(call->inputs[1], 0), in->rank);
    bool exclusive = attr_int(call, "exclusive", 0) != 0,
         reverse = attr_int(call, "reverse", 0) != 0;
    int64_t inner = dims_count(in->dims + axis + 1, in->rank - axis - 1);
    int64_t length = in->dims[axis], outer = dims_count(in->dims, axis), size = type_size(in->type);
    for (int64_t i = 0; i < outer * inner; i++) {
        int64_t base = i / inner * length * inner + i % inner;
        double real = 0.0;
        uint64_t whole = 0;
        for (int64_t j = 0; j < length; j++) {
            int64_t at = base + (reverse ? length - 1 - j : j) * inner;
            double before = real;
            uint64_t whole_before = whole;
            char *place = (char *)out->data + at * size;
            if (type_is_float(in->type)) {
                real += tensor_get_real(in, at);
                convert(place, out->type, exclusive ? &before : &real, ACL_DOUBLE, 1, 1);
            } else {
                whole += (uint64_t)tensor_get_int(in, at);
                convert(place, out->type, exclusive ? &whole_before : &whole, ACL_INT64, 1, 1);
            }
        }
    }
    return true;
}

#define REDUCE(NAME, DOMAIN, VARIANT) \
    {NAME, DOMAIN, 1, 2, 1, 2, reduce_infer, NULL, reduce_run, VARIANT, 0}

const OpKind ops_reduce[] = {
    REDUCE("ReduceSum", OP_ONNX, SUM), REDUCE("ReduceMean", OP_ONNX, MEAN),
    REDUCE("ReduceMax", OP_ONNX, MAX), REDUCE("ReduceMin", OP_ONNX, MIN),
    REDUCE("ReduceProd", OP_ONNX, PROD), REDUCE("ReduceL1", OP_ONNX, L1),
    REDUCE("ReduceL2", OP_ONNX, L2), REDUCE("ReduceSumSquare", OP_ONNX, SUMSQUARE),
    REDUCE("ReduceLogSum", OP_ONNX, LOGSUM), REDUCE("ReduceLogSumExp", OP_ONNX, LOGSUMEXP),
    REDUCE("ReduceSum", OP_ACL, SUM), REDUCE("ReduceSumD", OP_ACL, SUM),
    REDUCE("ReduceMean", OP_ACL, MEAN), REDUCE("ReduceMeanD", OP_ACL, MEAN),
    REDUCE("ReduceMax", OP_ACL, MAX), REDUCE("ReduceMaxD", OP_ACL, MAX),
    REDUCE("ReduceMin", OP_ACL, MIN), REDUCE("ReduceMinD", OP_ACL, MIN),
    REDUCE("ReduceProd", OP_ACL, PROD), REDUCE("ReduceAll", OP_ACL, ALL),
    REDUCE("ReduceAny", OP_ACL, ANY),
    {"ArgMax", OP_ONNX, 1, 1, 1, 0, arg_infer, NULL, arg_run, MAX, 0},
    {"ArgMin", OP_ONNX, 1, 1, 1, 0, arg_infer, NULL, arg_run, MIN, 0},
    {"ArgMaxV2", OP_ACL, 2, 2, 1, 2, arg_infer, NULL, arg_run, MAX, 0},
    {"CumSum", OP_ONNX, 2, 2, 1, 2, cumsum_infer, NULL, cumsum_run, 0, 0},
    {"Cumsum", OP_ACL, 2, 2, 1, 2, cumsum_infer, NULL, cumsum_run, 0, 0},
    {0},
};
