/* op_along.c: operators that walk along one axis with a running result: ArgMax, ArgMin and CumSum.

   A tensor is seen as [outer, length, inner], where `length` is the axis. Whatever the axis is, the
   input is read in pieces of up to BLOCK neighbouring elements: parts of a row of `inner` elements
   or, if `inner` is 1, parts of a line along the axis. Computations are in double for the float
   types, in int64_t or uint64_t for integers. */
#include "ops/op.h"
#include "numbers/vmath.h"

#include <math.h>
#include <string.h>

enum { LARGEST, SMALLEST };
enum { BLOCK = 512 };

typedef union Block {
    double real[BLOCK];
    int64_t whole[BLOCK];
    uint64_t bits[BLOCK];
} Block;

typedef struct Axis {
    int64_t outer, length, inner;
    aclDataType compute;
} Axis;

static Axis axis_of(const Tensor *in, int axis)
{
    return (Axis){dims_count(in->dims, axis), in->dims[axis],
        dims_count(in->dims + axis + 1, in->rank - axis - 1),
        type_is_float(in->type)      ? ACL_DOUBLE
            : in->type == ACL_UINT64 ? ACL_UINT64
                                     : ACL_INT64};
}

static void block_load(const Axis *axis, const Tensor *in, int64_t at, int64_t n, Block *block)
{
    const char *from = (const char *)in->data + at * type_size(in->type);
    convert(block, axis->compute, from, in->type, 1, n);
}

/* --- ArgMax, ArgMin --- */

static int64_t arg_asked(const OpCall *call)
{
    bool onnx = call->kind->domain == OP_ONNX;
    const Tensor *dimension = onnx ? NULL : op_input(call, 1);
    return dimension != NULL ? tensor_get_int(dimension, 0)
        : onnx               ? attr_int(call, "axis", 0)
                             : attr_int(call, "dimension", INT64_MIN);
}

static bool arg_infer(OpCall *call)
{
    const Tensor *in = call->inputs[0];
    int64_t asked = arg_asked(call);
    int axis = axis_normal(asked, in->rank);
    bool onnx = call->kind->domain == OP_ONNX;
    if (axis < 0 || in->dims[axis] == 0) {
        return op_fail(call, "axis %lld of input 0 does not exist or is empty", (long long)asked);
    }
    Tensor *out = &call->outputs[0];
    bool keep = attr_int(call, onnx ? "keepdims" : "keep_dims", onnx) != 0;
    out->type = onnx ? ACL_INT64 : (aclDataType)attr_int(call, "dtype", ACL_INT32);
    out->rank = 0;
    for (int d = 0; d < in->rank; d++) {
        if (d != axis || keep) {
            out->dims[out->rank++] = d == axis ? 1 : in->dims[d];
        }
    }
    return out->type == ACL_INT64 || out->type == ACL_INT32
        || op_fail(call, "attribute dtype: expected int32 (%d) or int64 (%d), got %d",
            (int)ACL_INT32, (int)ACL_INT64, (int)out->type);
}

/* True if the element X replaces A, the best so far. Of equal elements the first wins, or the last
   if `last`. NaN wins over every number, as in NumPy. */
#define ARG_REAL(X, A) \
    ((largest ? (X) > (A) : (X) < (A)) || (isnan(X) && (last || !isnan(A))) \
        || (last && (X) <= (A) && (X) >= (A)))
#define ARG_WHOLE(X, A) ((largest ? (X) > (A) : (X) < (A)) || (last && (X) == (A)))

/* Two loops: the first compares one row, which holds element `index` of each line, with the best element of
   each line so far; the second goes through one line. */
#define ARG_LOOPS(NAME, T, BEFORE) \
    WIDE static void arg_rows_##NAME( \
        const T *x, T *best, int64_t *place, int64_t index, int64_t n, bool largest, bool last) \
    { \
        for (int64_t i = 0; i < n; i++) { \
            bool better = BEFORE(x[i], best[i]); \
            best[i] = better ? x[i] : best[i]; \
            place[i] = better ? index : place[i]; \
        } \
    } \
    static void arg_run_##NAME( \
        const T *x, T *best, int64_t *place, int64_t index, int64_t n, bool largest, bool last) \
    { \
        for (int64_t i = 0; i < n; i++) { \
            if (BEFORE(x[i], *best)) { \
                *best = x[i]; \
                *place = index + i; \
            } \
        } \
    }

ARG_LOOPS(real, double, ARG_REAL)
ARG_LOOPS(whole, int64_t, ARG_WHOLE)
ARG_LOOPS(bits, uint64_t, ARG_WHOLE)

typedef struct Best {
    bool largest, last;
    Block value;
    int64_t place[BLOCK];
} Best;

static void best_take(const Axis *axis, const Block *x, int64_t index, int64_t n, Best *best)
{
    bool run = axis->inner == 1, largest = best->largest, last = best->last;
    if (index == 0) { /* the first of each line is the best so far */
        memcpy(&best->value, x, (size_t)(run ? 1 : n) * sizeof x->whole[0]);
        memset(best->place, 0, (size_t)(run ? 1 : n) * sizeof best->place[0]);
    }
    if (axis->compute == ACL_DOUBLE) {
        (run ? arg_run_real : arg_rows_real)(
            x->real, best->value.real, best->place, index, n, largest, last);
    } else if (axis->compute == ACL_INT64) {
        (run ? arg_run_whole : arg_rows_whole)(
            x->whole, best->value.whole, best->place, index, n, largest, last);
    } else {
        (run ? arg_run_bits : arg_rows_bits)(
            x->bits, best->value.bits, best->place, index, n, largest, last);
    }
}

static bool arg_run(const OpCall *call)
{
    Block x;
    Best best = {.largest = call->kind->variant == LARGEST,
        .last = attr_int(call, "select_last_index", 0) != 0};
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    Axis axis = axis_of(in, axis_normal(arg_asked(call), in->rank));
    int64_t inner = axis.inner, step = inner == 1 ? BLOCK : 1, size = type_size(out->type);
    for (int64_t o = 0; o < axis.outer; o++) {
        for (int64_t i = 0; i < inner; i += BLOCK) {
            int64_t n = inner - i < BLOCK ? inner - i : BLOCK;
            for (int64_t j = 0; j < axis.length; j += step) {
                int64_t here = step == 1 ? n : axis.length - j < step ? axis.length - j : step;
                block_load(&axis, in, (o * axis.length + j) * inner + i, here, &x);
                best_take(&axis, &x, j, here, &best);
            }
            char *place = (char *)out->data + (o * inner + i) * size;
            convert(place, out->type, best.place, ACL_INT64, 1, n);
        }
    }
    return true;
}

/* --- CumSum --- */

static bool cumsum_infer(OpCall *call)
{
    const Tensor *in = call->inputs[0];
    int64_t asked = tensor_get_int(call->inputs[1], 0);
    if (axis_normal(asked, in->rank) < 0) {
        return op_fail(
            call, "axis %lld is outside the rank %d of input 0", (long long)asked, in->rank);
    }
    return op_same(call, 0);
}

/* Two loops: the first adds each element of a row to the sum of its line; the second adds up one line. */
#define SUM_LOOPS(NAME, T) \
    WIDE static void sum_rows_##NAME(T *x, T *sum, int64_t n, bool exclusive) \
    { \
        for (int64_t i = 0; i < n; i++) { \
            T before = sum[i]; \
            sum[i] += x[i]; \
            x[i] = exclusive ? before : sum[i]; \
        } \
    } \
    static void sum_run_##NAME(T *x, T *sum, int64_t n, bool exclusive, bool reverse) \
    { \
        T total = *sum; \
        for (int64_t i = 0; i < n; i++) { \
            int64_t at = reverse ? n - 1 - i : i; \
            T before = total; \
            total += x[at]; \
            x[at] = exclusive ? before : total; \
        } \
        *sum = total; \
    }

SUM_LOOPS(real, double)
SUM_LOOPS(bits, uint64_t)

static bool cumsum_run(const OpCall *call)
{
    Block x, sum;
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    Axis axis = axis_of(in, axis_normal(tensor_get_int(call->inputs[1], 0), in->rank));
    bool exclusive = attr_int(call, "exclusive", 0) != 0;
    bool reverse = attr_int(call, "reverse", 0) != 0, real = axis.compute == ACL_DOUBLE;
    int64_t inner = axis.inner, step = inner == 1 ? BLOCK : 1, size = type_size(out->type);
    for (int64_t o = 0; o < axis.outer; o++) {
        for (int64_t i = 0; i < inner; i += BLOCK) {
            int64_t n = inner - i < BLOCK ? inner - i : BLOCK;
            memset(&sum, 0, sizeof sum);
            for (int64_t j = 0; j < axis.length; j += step) {
                int64_t here = axis.length - j < step ? axis.length - j : step;
                int64_t first = reverse ? axis.length - j - here : j;
                int64_t at = (o * axis.length + first) * inner + i, count = step == 1 ? n : here;
                block_load(&axis, in, at, count, &x);
                if (step == 1 && real) {
                    sum_rows_real(x.real, sum.real, count, exclusive);
                } else if (step == 1) {
                    sum_rows_bits(x.bits, sum.bits, count, exclusive);
                } else if (real) {
                    sum_run_real(x.real, sum.real, count, exclusive, reverse);
                } else {
                    sum_run_bits(x.bits, sum.bits, count, exclusive, reverse);
                }
                convert((char *)out->data + at * size, out->type, &x, axis.compute, 1, count);
            }
        }
    }
    return true;
}

const OpKind ops_along[] = {
    {"ArgMax", OP_ONNX, 1, 1, 1, 0, arg_infer, NULL, arg_run, LARGEST, 0},
    {"ArgMin", OP_ONNX, 1, 1, 1, 0, arg_infer, NULL, arg_run, SMALLEST, 0},
    {"ArgMaxV2", OP_ACL, 2, 2, 1, 2, arg_infer, NULL, arg_run, LARGEST, 0},
    {"ArgMaxD", OP_ACL, 1, 1, 1, 0, arg_infer, NULL, arg_run, LARGEST, 0},
    {"ArgMinD", OP_ACL, 1, 1, 1, 0, arg_infer, NULL, arg_run, SMALLEST, 0},
    {"CumSum", OP_ONNX, 2, 2, 1, 2, cumsum_infer, NULL, cumsum_run, 0, 0},
    {"Cumsum", OP_ACL, 2, 2, 1, 2, cumsum_infer, NULL, cumsum_run, 0, 0},
    {0},
};
