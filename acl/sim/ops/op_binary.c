/* op_binary.c: operators of two operands under broadcasting, and their n-ary folds.

   Each operator has a loop for each of the five types of arithmetic (tensor.h, type_compute).
   Elements of other types are converted to one of these, block by block. Integer arithmetic wraps;
   division by zero gives 0. */
#include "ops/op.h"
#include "numbers/broadcast.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 512 };

typedef void (*Loop)(const void *a, int64_t sa, const void *b, int64_t sb, void *out, int64_t n);

#define LOOP(NAME, T, R, EXPRESSION) \
    static void NAME(const void *pa, int64_t sa, const void *pb, int64_t sb, void *po, int64_t n) \
    { \
        const T *a = pa; \
        const T *b = pb; \
        R *out = po; \
        if (sa == 1 && sb == 1) { \
            for (int64_t i = 0; i < n; i++) { \
                T x = a[i], y = b[i]; \
                out[i] = (R)(EXPRESSION); \
            } \
        } else if (sa == 1 && sb == 0) { \
            T y = b[0]; \
            for (int64_t i = 0; i < n; i++) { \
                T x = a[i]; \
                out[i] = (R)(EXPRESSION); \
            } \
        } else { \
            for (int64_t i = 0; i < n; i++) { \
                T x = a[i * sa], y = b[i * sb]; \
                out[i] = (R)(EXPRESSION); \
            } \
        } \
    }

#define WHOLES(NAME, EXPRESSION, UNSIGNED) \
    LOOP(NAME##_i32, int32_t, int32_t, EXPRESSION) \
    LOOP(NAME##_i64, int64_t, int64_t, EXPRESSION) \
    LOOP(NAME##_u64, uint64_t, uint64_t, UNSIGNED)

#define LOOPS(NAME, REAL, WHOLE, UNSIGNED) \
    LOOP(NAME##_f32, float, float, REAL) \
    LOOP(NAME##_f64, double, double, REAL) \
    WHOLES(NAME, WHOLE, UNSIGNED)

#define TESTS(NAME, EXPRESSION) \
    LOOP(NAME##_f32, float, uint8_t, EXPRESSION) \
    LOOP(NAME##_f64, double, uint8_t, EXPRESSION) \
    LOOP(NAME##_i32, int32_t, uint8_t, EXPRESSION) \
    LOOP(NAME##_i64, int64_t, uint8_t, EXPRESSION) \
    LOOP(NAME##_u64, uint64_t, uint8_t, EXPRESSION)

#define WHOLE_ROW(NAME) {NULL, NULL, NAME##_i32, NAME##_i64, NAME##_u64}
#define ROW(NAME) {NAME##_f32, NAME##_f64, NAME##_i32, NAME##_i64, NAME##_u64}

/* --- integer helpers: nothing here may trap or overflow --- */

static int64_t whole_div(int64_t x, int64_t y)
{
    if (y == 0) {
        return 0;
    }
    return y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y;
}

static int64_t floor_div(int64_t x, int64_t y)
{
    int64_t q = whole_div(x, y);
    return y != 0 && y != -1 && x % y != 0 && (x < 0) != (y < 0) ? q - 1 : q;
}

static int64_t whole_rem(int64_t x, int64_t y)
{
    return y == 0 || y == -1 ? 0 : x % y;
}

/* Returns the remainder with the sign of the divisor, as in Python. */
static int64_t floor_mod(int64_t x, int64_t y)
{
    int64_t rest = whole_rem(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

static int64_t whole_pow(int64_t x, int64_t y)
{
    if (y < 0) {
        return x == 1 ? 1 : x == -1 ? (y % 2 == 0 ? 1 : -1) : 0;
    }
    uint64_t result = 1;
    for (uint64_t base = (uint64_t)x; y != 0; y >>= 1, base *= base) {
        result *= (y & 1) != 0 ? base : 1;
    }
    return (int64_t)result;
}

static uint64_t unsigned_pow(uint64_t x, uint64_t y)
{
    uint64_t result = 1;
    for (; y != 0; y >>= 1, x *= x) {
        result *= (y & 1) != 0 ? x : 1;
    }
    return result;
}

static double real_mod(double x, double y)
{
    double rest = fmod(x, y);
    return rest != 0.0 && (rest < 0.0) != (y < 0.0) ? rest + y : rest;
}

static double real_pow(double x, double y)
{
    return y == 2.0 ? x * x : pow(x, y);
}

#define NAN_OR(TEST) (isnan(x) ? x : isnan(y) ? y : (TEST) ? x : y)

LOOPS(add, x + y, (uint64_t)x + (uint64_t)y, x + y)
LOOPS(sub, x - y, (uint64_t)x - (uint64_t)y, x - y)
LOOPS(mul, x *y, (uint64_t)x * (uint64_t)y, x *y)
LOOPS(div, x / y, whole_div(x, y), y == 0 ? 0 : x / y)
LOOPS(floordiv, floor((double)x / (double)y), floor_div(x, y), y == 0 ? 0 : x / y)
LOOPS(mod, real_mod((double)x, (double)y), floor_mod(x, y), y == 0 ? 0 : x % y)
LOOPS(fmod, fmod((double)x, (double)y), whole_rem(x, y), y == 0 ? 0 : x % y)
LOOPS(pow, real_pow((double)x, (double)y), whole_pow(x, y), unsigned_pow(x, y))
LOOPS(min, NAN_OR(x < y), x < y ? x : y, x < y ? x : y)
LOOPS(max, NAN_OR(x > y), x > y ? x : y, x > y ? x : y)
LOOPS(prelu, x >= 0 ? x : x * y, x >= 0 ? (uint64_t)x : (uint64_t)x * (uint64_t)y,
    ((void)y, x))
LOOPS(sqdiff, (x - y) * (x - y), ((uint64_t)x - (uint64_t)y) * ((uint64_t)x - (uint64_t)y),
    (x - y) * (x - y))
WHOLES(bitand, x &y, x &y)
WHOLES(bitor, x | y, x | y)
WHOLES(bitxor, x ^ y, x ^ y)
WHOLES(shiftleft, y < 0 || y > 63 ? 0 : (uint64_t)x << y, y > 63 ? 0 : x << y)
WHOLES(shiftright, (int64_t)x >> (y < 0 || y > 63 ? 63 : y), y > 63 ? 0 : x >> y)
TESTS(equal, x == y)
TESTS(unequal, x != y)
TESTS(less, x < y)
TESTS(lessequal, x <= y)
TESTS(greater, x > y)
TESTS(greaterequal, x >= y)
TESTS(and, x != 0 && y != 0)
TESTS(or, x != 0 || y != 0)
TESTS(xor, (x != 0) != (y != 0))
LOOP(and_u8, uint8_t, uint8_t, (x != 0) & (y != 0))
LOOP(or_u8, uint8_t, uint8_t, (x != 0) | (y != 0))
LOOP(xor_u8, uint8_t, uint8_t, (x != 0) != (y != 0))

enum {
    ADD, SUB, MUL, DIV, FLOORDIV, MOD, FMOD, POW, MIN, MAX, PRELU, SQDIFF, BITAND, BITOR, BITXOR,
    SHIFTLEFT, SHIFTRIGHT,
    EQUAL, UNEQUAL, LESS, LESSEQUAL, GREATER, GREATEREQUAL, AND, OR, XOR, MEAN,
};

static const Loop loops[][5] = {
    [ADD] = ROW(add), [SUB] = ROW(sub), [MUL] = ROW(mul), [DIV] = ROW(div),
    [FLOORDIV] = ROW(floordiv), [MOD] = ROW(mod), [FMOD] = ROW(fmod), [POW] = ROW(pow),
    [MIN] = ROW(min), [MAX] = ROW(max), [PRELU] = ROW(prelu), [SQDIFF] = ROW(sqdiff),
    [BITAND] = WHOLE_ROW(bitand), [BITOR] = WHOLE_ROW(bitor), [BITXOR] = WHOLE_ROW(bitxor),
    [SHIFTLEFT] = WHOLE_ROW(shiftleft), [SHIFTRIGHT] = WHOLE_ROW(shiftright),
    [EQUAL] = ROW(equal), [UNEQUAL] = ROW(unequal), [LESS] = ROW(less),
    [LESSEQUAL] = ROW(lessequal), [GREATER] = ROW(greater), [GREATEREQUAL] = ROW(greaterequal),
    [AND] = ROW(and), [OR] = ROW(or), [XOR] = ROW(xor),
};

static bool variant_tests(int variant)
{
    return variant >= EQUAL && variant <= XOR;
}

static Loop loop_for(int variant, aclDataType compute)
{
    int column = compute == ACL_FLOAT ? 0
        : compute == ACL_DOUBLE       ? 1
        : compute == ACL_INT32        ? 2
        : compute == ACL_INT64        ? 3
                                      : 4;
    return loops[variant][column];
}

/* --- running one pair --- */

typedef struct Operand {
    const char *data;
    aclDataType type;
    int64_t stride;
} Operand;

/* Computes one row of a type that has no loop: converts it, block by block, to `compute` and back. */
static void row_converted(Loop loop, aclDataType compute, const Operand *a, const Operand *b,
    char *out, aclDataType out_type, bool tests, int64_t count)
{
    _Alignas(64) char x[BLOCK * 8], y[BLOCK * 8], z[BLOCK * 8];
    for (int64_t at = 0; at < count; at += BLOCK) {
        int64_t n = count - at < BLOCK ? count - at : BLOCK;
        const char *pa = a->data + at * a->stride * type_size(a->type);
        const char *pb = b->data + at * b->stride * type_size(b->type);
        convert(x, compute, pa, a->type, a->stride, a->stride == 0 ? 1 : n);
        convert(y, compute, pb, b->type, b->stride, b->stride == 0 ? 1 : n);
        loop(x, a->stride != 0, y, b->stride != 0, z, n);
        convert(out + at * type_size(out_type), out_type, z, tests ? ACL_BOOL : compute, 1, n);
    }
}

/* Returns the type in which both operands can be computed. */
static aclDataType pair_compute(int variant, const Tensor *a, const Tensor *b)
{
    if (variant == POW && a->type != b->type) {
        return type_is_float(a->type) || type_is_float(b->type) ? ACL_DOUBLE : ACL_INT64;
    }
    return type_compute(a->type);
}

static void pair_run(int variant, const Tensor *a, const Tensor *b, const Tensor *out)
{
    Spread spread;
    spread_plan(&spread, out, (const Tensor *const[]){a, b}, 2);
    aclDataType compute = pair_compute(variant, a, b);
    bool tests = variant_tests(variant);
    Loop loop = loop_for(variant, compute);
    bool native = a->type == compute && b->type == compute && (tests || out->type == compute);
    if (a->type == ACL_BOOL && (variant == AND || variant == OR || variant == XOR)) {
        loop = variant == AND ? and_u8 : variant == OR ? or_u8 : xor_u8;
        native = true;
    }
    int64_t out_size = type_size(out->type);
    for (int64_t row = 0; row < spread.rows; row++) {
        int64_t offsets[2];
        spread_offsets(&spread, row, offsets);
        const char *pa = (const char *)a->data + offsets[0] * type_size(a->type);
        const char *pb = (const char *)b->data + offsets[1] * type_size(b->type);
        char *po = (char *)out->data + row * spread.inner * out_size;
        if (native) {
            loop(pa, spread.inner_stride[0], pb, spread.inner_stride[1], po, spread.inner);
        } else {
            Operand x = {pa, a->type, spread.inner_stride[0]};
            Operand y = {pb, b->type, spread.inner_stride[1]};
            row_converted(loop, compute, &x, &y, po, out->type, tests, spread.inner);
        }
    }
}

/* --- the table's functions --- */

static bool broadcast_fail(const OpCall *call, const Tensor *a, const Tensor *b)
{
    char x[128], y[128];
    return op_fail(call, "shapes %s and %s cannot be broadcast together",
        shape_text(a, x, sizeof x), shape_text(b, y, sizeof y));
}

static bool types_check(const OpCall *call)
{
    const Tensor *a = call->inputs[0];
    int variant = call->kind->variant;
    for (int i = 1; i < call->input_count; i++) {
        aclDataType type = call->inputs[i]->type;
        if (type != a->type && variant != POW) {
            return op_fail(call, "input %d: expected %s like input 0, got %s", i,
                type_name(a->type), type_name(type));
        }
    }
    if (variant >= BITAND && variant <= SHIFTRIGHT && type_is_float(a->type)) {
        return op_fail(call, "input 0: expected an integer type, got %s", type_name(a->type));
    }
    bool is_signed = a->type == ACL_INT8 || a->type == ACL_INT16 || a->type == ACL_INT32
        || a->type == ACL_INT64;
    if (variant == SHIFTLEFT && is_signed && call->opset < 28) {
        return op_fail(call, "input 0: expected an unsigned type, got %s", type_name(a->type));
    }
    return true;
}

static bool binary_infer(OpCall *call)
{
    if (!types_check(call)) {
        return false;
    }
    Tensor *out = &call->outputs[0];
    out->type = variant_tests(call->kind->variant) ? ACL_BOOL : call->inputs[0]->type;
    tensor_shape_copy(out, call->inputs[0]);
    for (int i = 1; i < call->input_count; i++) {
        Tensor so_far = *out;
        if (!dims_broadcast(&so_far, call->inputs[i], out)) {
            return broadcast_fail(call, &so_far, call->inputs[i]);
        }
    }
    return true;
}

static bool binary_run(const OpCall *call)
{
    int variant = call->kind->variant;
    if (variant == MOD && attr_int(call, "fmod", 0) != 0) {
        variant = FMOD;
    }
    if (variant == SHIFTLEFT && strcmp(attr_string(call, "direction", "LEFT"), "RIGHT") == 0) {
        variant = SHIFTRIGHT;
    }
    pair_run(variant, call->inputs[0], call->inputs[1], &call->outputs[0]);
    return true;
}

/* Computes Sum, Mean, Min or Max of any number of inputs; the output is the accumulator. */
static bool fold_run(const OpCall *call)
{
    const Tensor *out = &call->outputs[0];
    int variant = call->kind->variant == MEAN ? ADD : call->kind->variant;
    int64_t zero = 0;
    Tensor neutral = {.type = out->type, .rank = 0, .data = &zero};
    pair_run(call->input_count == 1 ? ADD : variant, call->inputs[0],
        call->input_count == 1 ? &neutral : call->inputs[1], out);
    for (int i = 2; i < call->input_count; i++) {
        pair_run(variant, out, call->inputs[i], out);
    }
    if (call->kind->variant == MEAN) {
        double number = (double)call->input_count;
        Tensor divisor = {.type = ACL_DOUBLE, .rank = 0, .data = &number};
        int64_t room = 0;
        Tensor scalar = {.type = out->type, .rank = 0, .data = &room};
        convert(scalar.data, scalar.type, divisor.data, ACL_DOUBLE, 1, 1);
        pair_run(DIV, out, &scalar, out);
    }
    return true;
}

#define PAIR(NAME, DOMAIN, VARIANT) \
    {NAME, DOMAIN, 2, 2, 1, 0, binary_infer, NULL, binary_run, VARIANT, 0}
#define FOLD(NAME, DOMAIN, VARIANT) \
    {NAME, DOMAIN, 1, OP_INPUTS_ALL, 1, 0, binary_infer, NULL, fold_run, VARIANT, 0}

const OpKind ops_binary[] = {
    PAIR("Add", OP_BOTH, ADD), PAIR("Sub", OP_BOTH, SUB), PAIR("Mul", OP_BOTH, MUL),
    PAIR("Div", OP_BOTH, DIV), PAIR("RealDiv", OP_ACL, DIV), PAIR("FloorDiv", OP_ACL, FLOORDIV),
    PAIR("Mod", OP_ONNX, MOD), PAIR("FloorMod", OP_ACL, MOD), PAIR("Pow", OP_BOTH, POW),
    PAIR("PRelu", OP_ONNX, PRELU), PAIR("SquaredDifference", OP_ACL, SQDIFF),
    PAIR("BitwiseAnd", OP_BOTH, BITAND), PAIR("BitwiseOr", OP_BOTH, BITOR),
    PAIR("BitwiseXor", OP_BOTH, BITXOR), PAIR("BitShift", OP_ONNX, SHIFTLEFT),
    PAIR("Equal", OP_BOTH, EQUAL), PAIR("NotEqual", OP_ACL, UNEQUAL), PAIR("Less", OP_BOTH, LESS),
    PAIR("LessOrEqual", OP_ONNX, LESSEQUAL), PAIR("LessEqual", OP_ACL, LESSEQUAL),
    PAIR("Greater", OP_BOTH, GREATER), PAIR("GreaterOrEqual", OP_ONNX, GREATEREQUAL),
    PAIR("GreaterEqual", OP_ACL, GREATEREQUAL), PAIR("And", OP_ONNX, AND),
    PAIR("LogicalAnd", OP_ACL, AND), PAIR("Or", OP_ONNX, OR), PAIR("LogicalOr", OP_ACL, OR),
    PAIR("Xor", OP_ONNX, XOR), PAIR("LogicalXor", OP_ACL, XOR),
    PAIR("Minimum", OP_ACL, MIN), PAIR("Maximum", OP_ACL, MAX),
    FOLD("Min", OP_ONNX, MIN), FOLD("Max", OP_ONNX, MAX), FOLD("Sum", OP_ONNX, ADD),
    FOLD("Mean", OP_ONNX, MEAN), FOLD("AddN", OP_ACL, ADD), FOLD("Max", OP_ACL, MAX),
    {0},
};
