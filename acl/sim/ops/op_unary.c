/* op_unary.c: operators that compute each output element from one input element.

   float16 and bfloat16 are converted to float32, block by block. Integers have loops if ONNX defines the
   operator for them. Each loop gets up to three parameters, such as alpha and beta. */
#include "ops/op.h"
#include "numbers/vmath.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 512 };

/* `by` holds the parameters p, q and r. */
typedef void (*Loop)(const void *in, void *out, int64_t n, const double *by);

#define LOOP(NAME, T, R, EXPRESSION) \
    WIDE static void NAME(const void *pin, void *pout, int64_t n, const double *by) \
    { \
        const T *in = pin; \
        R *out = pout; \
        T p = (T)by[0], q = (T)by[1], r = (T)by[2]; \
        (void)p; \
        (void)q; \
        (void)r; \
        for (int64_t i = 0; i < n; i++) { \
            T x = in[i]; \
            out[i] = (R)(EXPRESSION); \
        } \
    }

#define REAL(NAME, SINGLE, TWICE) \
    LOOP(NAME##_f32, float, float, SINGLE) \
    LOOP(NAME##_f64, double, double, TWICE)

/* Loops for 64-bit integers. They have no parameters, because a double cannot hold all of them. */
#define WHOLE_LOOP(NAME, T, EXPRESSION) \
    WIDE static void NAME(const void *pin, void *pout, int64_t n, const double *by) \
    { \
        const T *in = pin; \
        T *out = pout; \
        (void)by; \
        for (int64_t i = 0; i < n; i++) { \
            T x = in[i]; \
            out[i] = (T)(EXPRESSION); \
        } \
    }

#define WHOLE(NAME, EXPRESSION, UNSIGNED) \
    WHOLE_LOOP(NAME##_i32, int32_t, EXPRESSION) \
    WHOLE_LOOP(NAME##_i64, int64_t, EXPRESSION) \
    WHOLE_LOOP(NAME##_u64, uint64_t, UNSIGNED)

#define INF_TEST (isinf(x) && (x > 0 ? q != 0 : p != 0))
/* Limits X to [LOW, HIGH]. NaN stays NaN. */
#define BETWEEN(X, LOW, HIGH) ((X) < (LOW) ? (LOW) : (X) > (HIGH) ? (HIGH) : (X))
#define GELU_TANH(T, TANH) \
    ((T)0.5 * x * ((T)1 + TANH((T)0.7978845608028654 * (x + (T)0.044715 * x * x * x))))

REAL(abs, fabsf(x), fabs(x))
WHOLE(abs, x < 0 ? 0 - (uint64_t)x : (uint64_t)x, x)
REAL(neg, -x, -x)
WHOLE(neg, 0 - (uint64_t)x, 0 - x)
REAL(sign, x > 0 ? 1 : x < 0 ? -1 : x, x > 0 ? 1 : x < 0 ? -1 : x)
WHOLE(sign, x > 0 ? 1 : x < 0 ? -1 : 0, x != 0)
REAL(exp, exp_fast(x), exp(x))
REAL(log, logf(x), log(x))
REAL(sqrt, sqrtf(x), sqrt(x))
REAL(rsqrt, 1.0F / sqrtf(x), 1.0 / sqrt(x))
REAL(reciprocal, 1.0F / x, 1.0 / x)
REAL(square, x *x, x *x)
WHOLE(square, (uint64_t)x * (uint64_t)x, x *x)
REAL(floor, floorf(x), floor(x))
REAL(ceil, ceilf(x), ceil(x))
REAL(round, rintf(x), rint(x))
REAL(sigmoid, sigmoid_fast(x), 1.0 / (1.0 + exp(-x)))
REAL(tanh, tanh_fast(x), tanh(x))
REAL(erf, erf_fast(x), erf(x))
REAL(gelu, 0.5F * x * (1.0F + erf_fast(x * 0.70710678F)),
    0.5 * x * (1.0 + erf(x * 0.7071067811865476)))
REAL(gelutanh, GELU_TANH(float, tanh_fast), GELU_TANH(double, tanh))
REAL(fastgelu, x *sigmoid_fast(1.702F * x), x / (1.0 + exp(-1.702 * x)))
REAL(relu, x < 0 ? 0 : x, x < 0 ? 0 : x)
WHOLE(relu, x < 0 ? 0 : x, x)
REAL(leaky, x < 0 ? p * x : x, x < 0 ? p * x : x)
REAL(elu, q *(x < 0 ? p * expm1f(r * x) : x), q *(x < 0 ? p * expm1(r * x) : x))
REAL(expof, exp_fast(p * x + q), exp(p *x + q))
REAL(logof, p *logf(q *x + r), p *log(q *x + r))
REAL(selu, q *(x > 0 ? x : p * expm1f(x)), q *(x > 0 ? x : p * expm1(x)))
REAL(celu, x < 0 ? p *expm1f(x / p) : x, x < 0 ? p *expm1(x / p) : x)
REAL(softplus, (x > 0 ? x : 0) + log1pf(expf(-fabsf(x))), (x > 0 ? x : 0) + log1p(exp(-fabs(x))))
REAL(softsign, x / (1.0F + fabsf(x)), x / (1.0 + fabs(x)))
REAL(hardsigmoid, BETWEEN(p * x + q, 0, 1), BETWEEN(p *x + q, 0, 1))
REAL(hardswish, x *BETWEEN(x / 6.0F + 0.5F, 0, 1), x *BETWEEN(x / 6.0 + 0.5, 0, 1))
REAL(swish, x *sigmoid_fast(p * x), x / (1.0 + exp(-p * x)))
REAL(mish, mish_fast(x), x *tanh(log1p(exp(x))))
REAL(threshold, x > p ? x : 0, x > p ? x : 0)
REAL(shrink, x < -p ? x + q : x > p ? x - q : 0, x < -p ? x + q : x > p ? x - q : 0)
LOOP(sin_f64, double, double, sin(x))
LOOP(cos_f64, double, double, cos(x))
REAL(tan, tanf(x), tan(x))
REAL(asin, asin_fast(x), asin(x))
REAL(acos, acos_fast(x), acos(x))
REAL(atan, atan_fast(x), atan(x))
REAL(sinh, sinhf(x), sinh(x))
REAL(cosh, coshf(x), cosh(x))
REAL(asinh, asinhf(x), asinh(x))
REAL(acosh, acoshf(x), acosh(x))
REAL(atanh, atanhf(x), atanh(x))
REAL(log1p, log1pf(x), log1p(x))
REAL(expm1, expm1f(x), expm1(x))
REAL(same, x, x)
WHOLE(same, x, x)
WHOLE(not, x == 0, x == 0)
WHOLE(bitnot, ~x, ~x)
LOOP(isnan_f32, float, uint8_t, isnan(x))
LOOP(isnan_f64, double, uint8_t, isnan(x))
LOOP(isfinite_f32, float, uint8_t, isfinite(x))
LOOP(isfinite_f64, double, uint8_t, isfinite(x))
LOOP(isinf_f32, float, uint8_t, INF_TEST)
LOOP(isinf_f64, double, uint8_t, INF_TEST)
REAL(clip, x < p ? (p > q ? q : p) : x > q ? q : x, x < p ? (p > q ? q : p) : x > q ? q : x)

WIDE static bool angles_are_small(const float *x, int64_t n)
{
    int large = 0;
    for (int64_t i = 0; i < n; i++) {
        large |= fabsf(x[i]) > ANGLE_MAX;
    }
    return large == 0;
}

WIDE static void small_sines(const float *in, float *out, int64_t n, int64_t quarters)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = sine_fast(in[i], quarters);
    }
}

/* Computes the sine of each angle; blocks with large angles use libm. */
static void sines(const float *in, float *out, int64_t count, int64_t quarters,
    float (*exact)(float))
{
    for (int64_t at = 0; at < count; at += BLOCK) {
        int64_t n = count - at < BLOCK ? count - at : BLOCK;
        bool small = angles_are_small(in + at, n);
        if (small) {
            small_sines(in + at, out + at, n, quarters);
        }
        for (int64_t i = at; !small && i < at + n; i++) {
            out[i] = fabsf(in[i]) > ANGLE_MAX ? exact(in[i]) : sine_fast(in[i], quarters);
        }
    }
}

static void sin_f32(const void *in, void *out, int64_t n, const double *by)
{
    (void)by;
    sines(in, out, n, 0, sinf);
}

static void cos_f32(const void *in, void *out, int64_t n, const double *by)
{
    (void)by;
    sines(in, out, n, 1, cosf);
}

/* Clip for 64-bit integers. A double cannot hold all bounds, so it carries the bits of the integer instead. */
#define CLIP_WHOLE(NAME, T) \
    WIDE static void NAME(const void *pin, void *pout, int64_t n, const double *by) \
    { \
        const T *in = pin; \
        T *out = pout, bounds[2]; \
        memcpy(bounds, by, sizeof bounds); \
        for (int64_t i = 0; i < n; i++) { \
            T x = in[i] < bounds[0] ? bounds[0] : in[i]; \
            out[i] = x > bounds[1] ? bounds[1] : x; \
        } \
    }
CLIP_WHOLE(clip_i64, int64_t)
CLIP_WHOLE(clip_u64, uint64_t)

enum { FLOATS = 1, WHOLES = 2, ANY = 3, BOOLS = 4 };

typedef struct Family {
    Loop f32, f64, i32, i64, u64;
    int accepts;
    bool tests;            /* the output is bool */
    const char *p_name, *q_name, *r_name;
    double p, q, r;        /* defaults of the attributes */
} Family;

enum {
    ABS, NEG, SIGN, EXP, LOG, SQRT, RSQRT, RECIPROCAL, SQUARE, FLOOR, CEIL, ROUND, SIGMOID, TANH,
    ERF, GELU, GELUTANH, FASTGELU, RELU, LEAKY, ELU, SELU, CELU, SOFTPLUS, SOFTSIGN, HARDSIGMOID,
    HARDSWISH, SWISH, SILU, MISH, THRESHOLD, SHRINK, SIN, COS, TAN, ASIN, ACOS, ATAN, SINH, COSH,
    ASINH, ACOSH, ATANH, LOG1P, EXPM1, SAME, NOT, BITNOT, ISNAN, ISFINITE, ISINF, CLIP, EXPOF,
    LOGOF, HARDSIGMOID_ACL,
};

#define F(NAME) .f32 = NAME##_f32, .f64 = NAME##_f64
#define I(NAME) .i32 = NAME##_i32, .i64 = NAME##_i64, .u64 = NAME##_u64
#define ONLY(NAME) {F(NAME), .accepts = FLOATS}

static const Family families[] = {
    [ABS] = {F(abs), I(abs), .accepts = ANY}, [NEG] = {F(neg), I(neg), .accepts = ANY},
    [SIGN] = {F(sign), I(sign), .accepts = ANY}, [EXP] = ONLY(exp), [LOG] = ONLY(log),
    [SQRT] = ONLY(sqrt), [RSQRT] = ONLY(rsqrt), [RECIPROCAL] = ONLY(reciprocal),
    [SQUARE] = {F(square), I(square), .accepts = ANY}, [FLOOR] = ONLY(floor),
    [CEIL] = ONLY(ceil), [ROUND] = ONLY(round), [SIGMOID] = ONLY(sigmoid), [TANH] = ONLY(tanh),
    [ERF] = ONLY(erf), [GELU] = ONLY(gelu), [GELUTANH] = ONLY(gelutanh),
    [FASTGELU] = ONLY(fastgelu), [RELU] = {F(relu), I(relu), .accepts = ANY},
    [LEAKY] = {F(leaky), .accepts = FLOATS, .p_name = "alpha", .p = 0.01},
    [ELU] = {F(elu), .accepts = FLOATS, .p_name = "alpha", .q_name = "scale",
        .r_name = "input_scale", .p = 1.0, .q = 1.0, .r = 1.0},
    [EXPOF] = {F(expof), .accepts = FLOATS}, [LOGOF] = {F(logof), .accepts = FLOATS},
    [HARDSIGMOID_ACL] = {F(hardsigmoid), .accepts = FLOATS, .p_name = "alpha", .q_name = "beta",
        .p = 0.16666666, .q = 0.5},
    [SELU] = {F(selu), .accepts = FLOATS, .p_name = "alpha", .q_name = "gamma",
        .p = 1.67326319217681884765625, .q = 1.05070102214813232421875},
    [CELU] = {F(celu), .accepts = FLOATS, .p_name = "alpha", .p = 1.0},
    [SOFTPLUS] = ONLY(softplus), [SOFTSIGN] = ONLY(softsign),
    [HARDSIGMOID] = {F(hardsigmoid), .accepts = FLOATS, .p_name = "alpha", .q_name = "beta",
        .p = 0.2, .q = 0.5},
    [HARDSWISH] = ONLY(hardswish),
    [SWISH] = {F(swish), .accepts = FLOATS, .p_name = "scale", .p = 1.0},
    [SILU] = {F(swish), .accepts = FLOATS, .p_name = "alpha", .p = 1.0},
    [MISH] = ONLY(mish),
    [THRESHOLD] = {F(threshold), .accepts = FLOATS, .p_name = "alpha", .p = 1.0},
    [SHRINK] = {F(shrink), .accepts = FLOATS, .p_name = "lambd", .q_name = "bias", .p = 0.5},
    [SIN] = ONLY(sin), [COS] = ONLY(cos), [TAN] = ONLY(tan), [ASIN] = ONLY(asin),
    [ACOS] = ONLY(acos), [ATAN] = ONLY(atan), [SINH] = ONLY(sinh), [COSH] = ONLY(cosh),
    [ASINH] = ONLY(asinh), [ACOSH] = ONLY(acosh), [ATANH] = ONLY(atanh), [LOG1P] = ONLY(log1p),
    [EXPM1] = ONLY(expm1), [SAME] = {F(same), I(same), .accepts = ANY | BOOLS},
    [NOT] = {I(not), .accepts = BOOLS}, [BITNOT] = {I(bitnot), .accepts = WHOLES},
    [ISNAN] = {F(isnan), .accepts = FLOATS, .tests = true},
    [ISFINITE] = {F(isfinite), .accepts = FLOATS, .tests = true},
    [ISINF] = {F(isinf), .accepts = FLOATS, .tests = true, .p_name = "detect_negative",
        .q_name = "detect_positive", .p = 1.0, .q = 1.0},
    [CLIP] = {F(clip), .i64 = clip_i64, .u64 = clip_u64, .accepts = ANY},
};

static bool unary_infer(OpCall *call)
{
    const Family *family = &families[call->kind->variant];
    const Tensor *in = call->inputs[0];
    int is = type_is_float(in->type) ? FLOATS : in->type == ACL_BOOL ? BOOLS : WHOLES;
    if ((family->accepts & is) == 0) {
        return op_fail(call, "input 0: %s is not defined for %s", call->kind->name,
            type_name(in->type));
    }
    op_same(call, 0);
    if (family->tests) {
        call->outputs[0].type = ACL_BOOL;
    }
    return true;
}

static void blocks_run(Loop loop, aclDataType compute, const Tensor *in, const Tensor *out,
    bool tests, const double *parameters)
{
    int64_t count = tensor_count(in);
    if (in->type == compute && (tests || out->type == compute)) {
        loop(in->data, out->data, count, parameters);
        return;
    }
    _Alignas(64) char x[BLOCK * 8], y[BLOCK * 8];
    for (int64_t at = 0; at < count; at += BLOCK) {
        int64_t n = count - at < BLOCK ? count - at : BLOCK;
        convert(x, compute, (const char *)in->data + at * type_size(in->type), in->type, 1, n);
        loop(x, y, n, parameters);
        convert((char *)out->data + at * type_size(out->type), out->type, y,
            tests ? ACL_BOOL : compute, 1, n);
    }
}

WIDE static void bytes_not(const uint8_t *in, uint8_t *out, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        out[i] = in[i] == 0;
    }
}

static void family_run(const Family *family, const Tensor *in, const Tensor *out,
    const double *parameters)
{
    aclDataType compute = type_compute(in->type);
    if (compute == ACL_INT32 && family->i32 == NULL) {
        compute = ACL_INT64;
    }
    Loop loop = compute == ACL_FLOAT ? family->f32 : compute == ACL_DOUBLE ? family->f64
        : compute == ACL_INT32 ? family->i32 : compute == ACL_UINT64 ? family->u64 : family->i64;
    blocks_run(loop, compute, in, out, family->tests, parameters);
}

static double parameter(const OpCall *call, const char *name, double otherwise)
{
    return name == NULL ? otherwise : attr_float(call, name, otherwise);
}

static bool unary_run(const OpCall *call)
{
    int variant = call->kind->variant;
    if (variant == GELU && strcmp(attr_string(call, "approximate", "none"), "tanh") == 0) {
        variant = GELUTANH;
    }
    const Family *family = &families[variant];
    if (variant == NOT) {
        bytes_not(call->inputs[0]->data, call->outputs[0].data, tensor_count(call->inputs[0]));
        return true;
    }
    double parameters[] = {
        parameter(call, family->p_name, family->p), parameter(call, family->q_name, family->q),
        parameter(call, family->r_name, family->r),
    };
    family_run(family, call->inputs[0], &call->outputs[0], parameters);
    return true;
}

/* --- ACL's Exp and Log: base ^ (scale * x + shift), and its inverse. A base of -1 is e. --- */

static bool power_run(const OpCall *call)
{
    double base = attr_float(call, "base", -1.0), scale = attr_float(call, "scale", 1.0);
    double shift = attr_float(call, "shift", 0.0);
    double logarithm = base <= 0.0 ? 1.0 : log(base);
    double exponent[] = {scale * logarithm, shift * logarithm, 0.0};
    double inverse[] = {1.0 / logarithm, scale, shift};
    family_run(&families[call->kind->variant], call->inputs[0], &call->outputs[0],
        call->kind->variant == EXPOF ? exponent : inverse);
    return true;
}

static bool power_infer(OpCall *call)
{
    double base = attr_float(call, "base", -1.0);
    bool known = base > 0.0 || (base >= -1.0 && base <= -1.0);
    return known ? unary_infer(call)
                 : op_fail(call, "attribute base: expected -1 or more than 0, got %g", base);
}

/* --- Clip: its bounds are inputs --- */

static bool clip_infer(OpCall *call)
{
    for (int i = 1; i < call->input_count; i++) {
        const Tensor *bound = call->inputs[i];
        if (bound != NULL && bound->type != call->inputs[0]->type) {
            return op_fail(call, "input %d: expected %s like input 0, got %s", i,
                type_name(call->inputs[0]->type), type_name(bound->type));
        }
    }
    return unary_infer(call);
}

static bool clip_run(const OpCall *call)
{
    const Tensor *low = op_input(call, 1), *high = op_input(call, 2);
    double parameters[3] = {
        low == NULL ? attr_float(call, "min", -INFINITY) : tensor_get_real(low, 0),
        high == NULL ? attr_float(call, "max", INFINITY) : tensor_get_real(high, 0),
    };
    if (!type_is_float(call->inputs[0]->type)) {
        bool wide = call->inputs[0]->type == ACL_UINT64;
        int64_t bounds[2] = {
            low != NULL ? tensor_get_int(low, 0) : wide ? 0 : INT64_MIN,
            high != NULL ? tensor_get_int(high, 0) : wide ? -1 : INT64_MAX,
        };
        memcpy(parameters, bounds, sizeof bounds);
    }
    family_run(&families[CLIP], call->inputs[0], &call->outputs[0], parameters);
    return true;
}

#define MAP(NAME, DOMAIN, VARIANT) \
    {NAME, DOMAIN, 1, 1, 1, 0, unary_infer, NULL, unary_run, VARIANT, 0}

#define POWER(NAME, VARIANT) \
    {NAME, OP_ACL, 1, 1, 1, 0, power_infer, NULL, power_run, VARIANT, 0}

const OpKind ops_unary[] = {
    MAP("Abs", OP_BOTH, ABS), MAP("Neg", OP_BOTH, NEG), MAP("Sign", OP_BOTH, SIGN),
    MAP("Exp", OP_ONNX, EXP), MAP("Log", OP_ONNX, LOG), POWER("Exp", EXPOF), POWER("Log", LOGOF),
    MAP("Sqrt", OP_BOTH, SQRT),
    MAP("Rsqrt", OP_ACL, RSQRT), MAP("Reciprocal", OP_BOTH, RECIPROCAL),
    MAP("Square", OP_ACL, SQUARE), MAP("Floor", OP_BOTH, FLOOR), MAP("Ceil", OP_BOTH, CEIL),
    MAP("Round", OP_BOTH, ROUND), MAP("Sigmoid", OP_BOTH, SIGMOID), MAP("Tanh", OP_BOTH, TANH),
    MAP("Erf", OP_BOTH, ERF), MAP("Gelu", OP_ONNX, GELU), MAP("Gelu", OP_ACL, GELUTANH),
    MAP("FastGelu", OP_ACL, FASTGELU), MAP("Relu", OP_BOTH, RELU),
    MAP("LeakyRelu", OP_ONNX, LEAKY), MAP("Elu", OP_BOTH, ELU), MAP("Selu", OP_BOTH, SELU),
    MAP("Celu", OP_ONNX, CELU), MAP("Softplus", OP_BOTH, SOFTPLUS),
    MAP("Softsign", OP_BOTH, SOFTSIGN), MAP("HardSigmoid", OP_ONNX, HARDSIGMOID),
    MAP("HardSigmoid", OP_ACL, HARDSIGMOID_ACL),
    MAP("HardSwish", OP_BOTH, HARDSWISH), MAP("Swish", OP_ACL, SWISH),
    MAP("Swish", OP_ONNX, SILU), MAP("Mish", OP_BOTH, MISH),
    MAP("ThresholdedRelu", OP_ONNX, THRESHOLD), MAP("Shrink", OP_ONNX, SHRINK),
    MAP("Sin", OP_BOTH, SIN),
    MAP("Cos", OP_BOTH, COS), MAP("Tan", OP_BOTH, TAN), MAP("Asin", OP_BOTH, ASIN),
    MAP("Acos", OP_BOTH, ACOS), MAP("Atan", OP_BOTH, ATAN), MAP("Sinh", OP_BOTH, SINH),
    MAP("Cosh", OP_BOTH, COSH), MAP("Asinh", OP_BOTH, ASINH), MAP("Acosh", OP_BOTH, ACOSH),
    MAP("Atanh", OP_BOTH, ATANH), MAP("Log1p", OP_ACL, LOG1P), MAP("Expm1", OP_ACL, EXPM1),
    MAP("Not", OP_ONNX, NOT), MAP("LogicalNot", OP_ACL, NOT), MAP("BitwiseNot", OP_ONNX, BITNOT),
    MAP("IsNaN", OP_ONNX, ISNAN), MAP("IsInf", OP_ONNX, ISINF),
    MAP("IsFinite", OP_ACL, ISFINITE), MAP("IsNan", OP_ACL, ISNAN), MAP("Rint", OP_ACL, ROUND),
    MAP("Inv", OP_ACL, RECIPROCAL),
    MAP("Identity", OP_ACL, SAME),
    {"Clip", OP_ONNX, 1, 3, 1, 0, clip_infer, NULL, clip_run, CLIP, 0},
    {"ClipByValue", OP_ACL, 3, 3, 1, 0, clip_infer, NULL, clip_run, CLIP, 0},
    {"ClipByValueV2", OP_ACL, 3, 3, 1, 0, clip_infer, NULL, clip_run, CLIP, 0},
    {0},
};
