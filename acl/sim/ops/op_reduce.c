/* op_reduce.c: sums, means, extremes and norms along axes.

   Each dimension is kept or reduced. If the last one is reduced, each output element combines runs of
   the input. If it is kept, one input row after another is combined into a row of output elements.
   Either way the input is read in order, in blocks that are converted to the type of the computation: double for the
   float types, int64_t or uint64_t for integers. */
#include "ops/op.h"
#include "numbers/vmath.h"

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

/* --- offsets of elements: one walk over the kept dimensions, one over the reduced dimensions --- */

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
        walk->count *= in->dims[d];
        if (in->dims[d] == 1) {
            continue;
        }
        if (last >= 0 && walk->strides[last] == stride[d + 1] * in->dims[d]) {
            walk->dims[last] *= in->dims[d]; /* contiguous with its neighbour: merge them */
            walk->strides[last] = stride[d + 1];
        } else {
            walk->dims[walk->rank] = in->dims[d];
            walk->strides[walk->rank++] = stride[d + 1];
        }
    }
}

/* Returns the offset of position `index` in the first `rank` dimensions. */
static int64_t walk_offset(const Walk *walk, int rank, int64_t index)
{
    int64_t offset = 0;
    for (int d = rank - 1; d >= 0; d--) {
        offset += index % walk->dims[d] * walk->strides[d];
        index /= walk->dims[d];
    }
    return offset;
}

/* Returns the length of the walk's last dimension; `times` becomes the number of such runs. */
static int64_t walk_run(const Walk *walk, int64_t *times)
{
    int64_t run = walk->rank == 0 ? 1 : walk->dims[walk->rank - 1];
    *times = run == 0 ? 0 : walk->count / run;
    return run;
}

/* --- folding --- */

enum { BLOCK = 512, LANES = 32 };

static double real_larger(double a, double b)
{
    return b > a || isnan(b) ? b : a; /* the result is NaN if one operand is */
}

static double real_smaller(double a, double b)
{
    return b < a || isnan(b) ? b : a;
}

/* Two loops for each variant: one combines a row into a row of results, the other a run into one number. X is
   the element, S is subtracted before exp, and A is the result so far. */
#define FOLD_ROW(EXPRESSION) \
    for (int64_t i = 0; i < n; i++) { \
        FOLD_TYPE X = x[i], A = to[i], S = shift[i]; \
        (void)S; \
        to[i] = (FOLD_TYPE)(EXPRESSION); \
    } \
    break

#define FOLD_RUN(EXPRESSION, TERM) \
    for (; i + LANES <= n; i += LANES) { \
        for (int l = 0; l < LANES; l++) { \
            FOLD_TYPE X = x[i + l]; \
            lanes[l] += (FOLD_TYPE)(TERM); \
        } \
    } \
    for (int l = 0; l < LANES; l++) { \
        A += lanes[l]; \
    } \
    for (; i < n; i++) { \
        FOLD_TYPE X = x[i]; \
        A = (FOLD_TYPE)(EXPRESSION); \
    } \
    break

#define FOLD_BEST(BEFORE) \
    for (int l = 0; l < LANES; l++) { \
        lanes[l] = A; \
    } \
    for (; i + LANES <= n; i += LANES) { \
        for (int l = 0; l < LANES; l++) { \
            lanes[l] = x[i + l] BEFORE lanes[l] ? x[i + l] : lanes[l]; \
        } \
    } \
    for (int l = 0; l < LANES; l++) { \
        A = lanes[l] BEFORE A ? lanes[l] : A; \
    } \
    for (; i < n; i++) { \
        A = x[i] BEFORE A ? x[i] : A; \
    } \
    break

#define FOLD_ALONG(EXPRESSION) \
    for (; i < n; i++) { \
        FOLD_TYPE X = x[i]; \
        A = (FOLD_TYPE)(EXPRESSION); \
    } \
    break

#define FOLD_TYPE double
WIDE static void rows_real(
    int variant, double *to, const double *shift, const double *x, int64_t n)
{
    switch (variant) {
    case MAX: FOLD_ROW(real_larger(A, X));
    case MIN: FOLD_ROW(real_smaller(A, X));
    case PROD: FOLD_ROW(A * X);
    case L1: FOLD_ROW(A + fabs(X));
    case L2: case SUMSQUARE: FOLD_ROW(A + X * X);
    case LOGSUMEXP: FOLD_ROW(A + exp(X - S));
    default: FOLD_ROW(A + X);
    }
}

/* Returns the largest of `so_far` and all sign * x; NaN if one of them is. */
WIDE static double run_extreme(double so_far, double sign, const double *x, int64_t n)
{
    double lanes[LANES], best = so_far;
    int64_t odd[LANES] = {0}, any = 0, i = 0;
    for (int l = 0; l < LANES; l++) {
        lanes[l] = so_far;
    }
    for (; i + LANES <= n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            double value = sign * x[i + l];
            odd[l] |= isnan(value);
            lanes[l] = value > lanes[l] ? value : lanes[l];
        }
    }
    for (int l = 0; l < LANES; l++) {
        best = real_larger(best, lanes[l]);
        any |= odd[l];
    }
    for (; i < n; i++) {
        best = real_larger(best, sign * x[i]);
    }
    return any != 0 ? (double)NAN : best;
}

WIDE static double run_real(int variant, double A, double S, const double *x, int64_t n)
{
    double lanes[LANES] = {0};
    int64_t i = 0;
    switch (variant) {
    case MAX: return run_extreme(A, 1.0, x, n);
    case MIN: return -run_extreme(-A, -1.0, x, n);
    case PROD: FOLD_ALONG(A * X);
    case L1: FOLD_RUN(A + fabs(X), fabs(X));
    case L2: case SUMSQUARE: FOLD_RUN(A + X * X, X * X);
    case LOGSUMEXP: FOLD_ALONG(A + exp(X - S));
    default: FOLD_RUN(A + X, X);
    }
    return A;
}
#undef FOLD_TYPE

/* The loops for integers, which wrap. uint64_t differs from int64_t only in comparisons. */
#define WHOLE_FOLDS(NAME, T, ABSOLUTE) \
    WIDE static void rows_##NAME(int variant, T *to, const T *shift, const T *x, int64_t n) \
    { \
        switch (variant) { \
        case MAX: case ANY: FOLD_ROW(X > A ? X : A); \
        case MIN: case ALL: FOLD_ROW(X < A ? X : A); \
        case PROD: FOLD_ROW((uint64_t)A * (uint64_t)X); \
        case L1: FOLD_ROW((uint64_t)A + (ABSOLUTE)); \
        case SUMSQUARE: FOLD_ROW((uint64_t)A + (uint64_t)X * (uint64_t)X); \
        default: FOLD_ROW((uint64_t)A + (uint64_t)X); \
        } \
    } \
    WIDE static T run_##NAME(int variant, T A, const T *x, int64_t n) \
    { \
        T lanes[LANES]; \
        int64_t i = 0; \
        switch (variant) { \
        case MAX: case ANY: FOLD_BEST(>); \
        case MIN: case ALL: FOLD_BEST(<); \
        case PROD: FOLD_ALONG((uint64_t)A * (uint64_t)X); \
        case L1: FOLD_ALONG((uint64_t)A + (ABSOLUTE)); \
        case SUMSQUARE: FOLD_ALONG((uint64_t)A + (uint64_t)X * (uint64_t)X); \
        default: FOLD_ALONG((uint64_t)A + (uint64_t)X); \
        } \
        return A; \
    }

#define FOLD_TYPE int64_t
WHOLE_FOLDS(whole, int64_t, X < 0 ? 0 - (uint64_t)X : (uint64_t)X)
#undef FOLD_TYPE
#define FOLD_TYPE uint64_t
WHOLE_FOLDS(unsigned, uint64_t, X)
#undef FOLD_TYPE

/* --- a block of numbers, of any of the three types --- */

typedef union Block {
    double real[BLOCK];
    int64_t whole[BLOCK];
    uint64_t bits[BLOCK];
} Block;

typedef struct Job {
    int variant;
    aclDataType compute; /* ACL_DOUBLE, ACL_INT64 or ACL_UINT64 */
    const Tensor *in, *out;
    Walk kept, gone;
} Job;

/* Returns the type of the computation: double for variants with logarithms or roots, also of integers. */
static aclDataType compute_of(int variant, aclDataType type)
{
    bool real = variant == LOGSUM || variant == LOGSUMEXP || variant == L2;
    return real || type_is_float(type) ? ACL_DOUBLE
        : type == ACL_UINT64           ? ACL_UINT64
                                       : ACL_INT64;
}

/* Returns the lowest or the highest number of an integer type. */
static int64_t type_bound(aclDataType type, bool largest)
{
    int bits = type == ACL_BOOL ? 1 : 8 * (int)type_size(type);
    bool is_signed = type == ACL_INT8 || type == ACL_INT16 || type == ACL_INT32
        || type == ACL_INT64;
    uint64_t all = bits == 64 ? UINT64_MAX : ((uint64_t)1 << bits) - 1;
    int64_t top = (int64_t)(is_signed ? all >> 1 : all);
    return largest ? top : is_signed ? -top - 1 : 0;
}

/* Sets `n` results to the value of an empty reduction. */
static void block_begin(const Job *job, int variant, Block *block, int64_t n)
{
    bool extreme = variant == MAX || variant == MIN || variant == ALL || variant == ANY;
    bool least = variant == MAX || variant == ANY;
    int64_t whole = variant == PROD ? 1 : extreme ? type_bound(job->in->type, !least) : 0;
    double real = variant == PROD ? 1.0 : !extreme ? 0.0 : least ? -INFINITY : INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (job->compute == ACL_DOUBLE) {
            block->real[i] = real;
        } else {
            block->whole[i] = whole;
        }
    }
}

static void block_load(const Job *job, int64_t at, int64_t n, Block *block)
{
    const char *from = (const char *)job->in->data + at * type_size(job->in->type);
    convert(block, job->compute, from, job->in->type, 1, n);
}

static void block_rows(const Job *job, int variant, Block *to, const Block *shift, const Block *x,
    int64_t first, int64_t n)
{
    if (job->compute == ACL_DOUBLE) {
        rows_real(variant, to->real, shift->real, x->real + first, n);
    } else if (job->compute == ACL_INT64) {
        rows_whole(variant, to->whole, shift->whole, x->whole + first, n);
    } else {
        rows_unsigned(variant, to->bits, shift->bits, x->bits + first, n);
    }
}

static void block_run(const Job *job, int variant, Block *to, const Block *shift, const Block *x,
    int64_t place, int64_t first, int64_t n)
{
    if (job->compute == ACL_DOUBLE) {
        double from = shift->real[place];
        to->real[place] = run_real(variant, to->real[place], from, x->real + first, n);
    } else if (job->compute == ACL_INT64) {
        to->whole[place] = run_whole(variant, to->whole[place], x->whole + first, n);
    } else {
        to->bits[place] = run_unsigned(variant, to->bits[place], x->bits + first, n);
    }
}

/* Finishes `n` results (division, root or logarithm) and writes them to the output from element `at` on. */
static void block_end(const Job *job, Block *block, const Block *shift, int64_t at, int64_t n)
{
    double count = (double)job->gone.count;
    for (int64_t i = 0; i < n && job->compute == ACL_DOUBLE; i++) {
        double total = block->real[i];
        block->real[i] = job->variant == MEAN ? total / count
            : job->variant == L2              ? sqrt(total)
            : job->variant == LOGSUM          ? log(total)
            : job->variant == LOGSUMEXP       ? log(total) + shift->real[i]
                                              : total;
    }
    for (int64_t i = 0; i < n && job->compute != ACL_DOUBLE && job->variant == MEAN; i++) {
        int64_t by = job->gone.count == 0 ? 1 : job->gone.count;
        block->whole[i] = job->compute == ACL_INT64 ? block->whole[i] / by
                                                    : (int64_t)(block->bits[i] / (uint64_t)by);
    }
    char *place = (char *)job->out->data + at * type_size(job->out->type);
    convert(place, job->out->type, block, job->compute, 1, n);
}

/* --- the last dimension is reduced: runs of the input --- */

/* Computes `n` output elements from `first` on, each from runs of the input. */
static void runs_fold(
    const Job *job, int variant, int64_t first, int64_t n, Block *to, const Block *shift)
{
    Block x;
    int64_t times, run = walk_run(&job->gone, &times);
    bool whole_lines = times == 1 && job->kept.rank <= 1 && run <= BLOCK
        && (job->kept.rank == 0 || job->kept.strides[0] == run);
    int64_t lines = whole_lines ? BLOCK / run : 1;
    for (int64_t i = 0; i < n; i += lines) {
        int64_t here = n - i < lines ? n - i : lines;
        int64_t base = walk_offset(&job->kept, job->kept.rank, first + i);
        for (int64_t t = 0; t < times; t++) {
            int64_t at = base + walk_offset(&job->gone, job->gone.rank - 1, t);
            for (int64_t j = 0; j < run; j += BLOCK) {
                int64_t part = run - j < BLOCK ? run - j : BLOCK;
                block_load(job, at + j, here * part, &x);
                for (int64_t l = 0; l < here; l++) {
                    block_run(job, variant, to, shift, &x, i + l, l * part, part);
                }
            }
        }
    }
}

/* --- the last dimension is kept: rows of the input --- */

/* Computes `n` neighbouring output elements from rows of the input. The first element's input begins at
   `base`. */
static void rows_fold(
    const Job *job, int variant, int64_t base, int64_t n, Block *to, const Block *shift)
{
    Block x;
    int64_t times, run = walk_run(&job->gone, &times);
    int64_t stride = job->gone.rank == 0 ? 0 : job->gone.strides[job->gone.rank - 1];
    int64_t rows = stride == n && n > 0 ? BLOCK / n : 1; /* rows that are converted together */
    for (int64_t t = 0; t < times; t++) {
        int64_t at = base + walk_offset(&job->gone, job->gone.rank - 1, t);
        for (int64_t r = 0; r < run; r += rows) {
            int64_t here = run - r < rows ? run - r : rows;
            block_load(job, at + r * stride, here * n, &x);
            for (int64_t i = 0; i < here; i++) {
                block_rows(job, variant, to, shift, &x, i * n, n);
            }
        }
    }
}

/* --- all of it --- */

static void part_fold(const Job *job, bool rows, int64_t first, int64_t base, int64_t n)
{
    Block to, shift;
    memset(&shift, 0, sizeof shift);
    if (job->variant == LOGSUMEXP) {
        block_begin(job, MAX, &shift, n);
        Block none = {{0.0}};
        rows ? rows_fold(job, MAX, base, n, &shift, &none)
             : runs_fold(job, MAX, first, n, &shift, &none);
        for (int64_t i = 0; i < n; i++) {
            shift.real[i] = isinf(shift.real[i]) ? 0.0 : shift.real[i];
        }
    }
    block_begin(job, job->variant, &to, n);
    if (rows) {
        rows_fold(job, job->variant, base, n, &to, &shift);
    } else {
        runs_fold(job, job->variant, first, n, &to, &shift);
    }
    block_end(job, &to, &shift, first, n);
}

static bool reduce_run(const OpCall *call)
{
    bool reduced[TENSOR_RANK_MAX];
    int variant = call->kind->variant;
    Job job = {.variant = variant, .in = call->inputs[0], .out = &call->outputs[0],
        .compute = compute_of(variant, call->inputs[0]->type)};
    if (!axes_mark(call, reduced)) {
        return false;
    }
    walks_make(job.in, reduced, &job.kept, &job.gone);
    int last = job.kept.rank - 1;
    bool rows = last >= 0 && job.kept.strides[last] == 1;
    int64_t line = rows ? job.kept.dims[last] : job.kept.count, times;
    times = line == 0 ? 0 : job.kept.count / line;
    for (int64_t t = 0; t < times; t++) {
        int64_t base = rows ? walk_offset(&job.kept, last, t) : 0;
        for (int64_t i = 0; i < line; i += BLOCK) {
            part_fold(&job, rows, t * line + i, base + i, line - i < BLOCK ? line - i : BLOCK);
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
    {0},
};
