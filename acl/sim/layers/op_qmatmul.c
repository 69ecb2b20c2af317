/* op_qmatmul.c: products of quantised matrices: MatMulInteger and QLinearMatMul.

   First the zero points are subtracted. Then an exact product of small integers is computed (quant.h). The
   workspace contains both operands after this subtraction, the sums, and scratch memory. */
#include "numbers/gemm.h"
#include "ops/op.h"
#include "numbers/product.h"
#include "numbers/quant.h"
#include "numbers/broadcast.h"

enum { INTEGER, QLINEAR };

/* The indices of the inputs, by operator; -1: the operator has no such input. */
typedef struct Places {
    int b, a_zero, b_zero, a_scale, b_scale, y_scale, y_zero;
} Places;

static const Places places[] = {
    [INTEGER] = {.b = 1, .a_zero = 2, .b_zero = 3, .a_scale = -1, .b_scale = -1, .y_scale = -1,
        .y_zero = -1},
    [QLINEAR] = {.b = 3, .a_scale = 1, .a_zero = 2, .b_scale = 4, .b_zero = 5, .y_scale = 6,
        .y_zero = 7},
};

static bool plan(const OpCall *call, Product *p)
{
    const Tensor *a = call->inputs[0], *b = call->inputs[places[call->kind->variant].b];
    char x[128], y[128];
    p->a_transposed = p->b_transposed = false;
    if (!quant_is_byte(a->type) || !quant_is_byte(b->type)) {
        return op_fail(call, "expected matrices of int8 or uint8, got %s and %s",
            type_name(a->type), type_name(b->type));
    }
    return product_plan(a, b, p)
        || op_fail(call, "shapes %s and %s do not multiply", shape_text(a, x, sizeof x),
            shape_text(b, y, sizeof y));
}

/* Checks a parameter, which must be one number, or one number for each of `lines` rows or columns. Returns false,
   with a message, if it is not. */
static bool parameter_check(const OpCall *call, int place, int64_t lines, aclDataType type)
{
    const Tensor *given = op_input(call, place);
    char text[128];
    if (given == NULL) {
        return true;
    }
    if (given->type != type) {
        return op_fail(call, "input %d: expected %s, got %s", place, type_name(type),
            type_name(given->type));
    }
    return tensor_count(given) == 1 || (given->rank == 1 && given->dims[0] == lines)
        || op_fail(call, "input %d: expected one value or %lld, got shape %s", place,
            (long long)lines, shape_text(given, text, sizeof text));
}

static bool parameters_check(const OpCall *call, const Product *p)
{
    const Places *at = &places[call->kind->variant];
    return parameter_check(call, at->a_zero, p->m, call->inputs[0]->type)
        && parameter_check(call, at->b_zero, p->n, call->inputs[at->b]->type)
        && (at->a_scale < 0
            || (parameter_check(call, at->a_scale, p->m, call->inputs[at->a_scale]->type)
                && parameter_check(call, at->b_scale, p->n, call->inputs[at->a_scale]->type)
                && parameter_check(call, at->y_scale, 1, call->inputs[at->a_scale]->type)
                && parameter_check(call, at->y_zero, 1, call->inputs[at->y_zero]->type)));
}

static bool infer(OpCall *call)
{
    Product p;
    const Places *at = &places[call->kind->variant];
    if (!plan(call, &p) || !parameters_check(call, &p)) {
        return false;
    }
    Tensor *out = &call->outputs[0];
    product_shape(&p, call->inputs[0], call->inputs[at->b], out);
    out->type = at->y_zero < 0 ? ACL_INT32 : call->inputs[at->y_zero]->type;
    return at->y_zero < 0 || quant_is_byte(out->type)
        || op_fail(call, "input %d: expected int8 or uint8, got %s", at->y_zero,
            type_name(out->type));
}

/* If all rows have the same zero point and the same scale, merges the batches into one product with more rows. */
static void rows_join(const OpCall *call, Product *p)
{
    const Tensor *zero = op_input(call, places[call->kind->variant].a_zero);
    const Tensor *scale = op_input(call, places[call->kind->variant].a_scale);
    if ((zero == NULL || tensor_count(zero) == 1) && (scale == NULL || tensor_count(scale) == 1)) {
        product_flatten(p, call->inputs[0]);
    }
}

static int64_t rounded(int64_t count)
{
    return (count + 15) / 16 * 16;
}

static int64_t workspace(const OpCall *call)
{
    Product p;
    if (!plan(call, &p)) {
        return 0;
    }
    rows_join(call, &p);
    int64_t numbers = rounded(p.m * p.k) + rounded(p.k * p.n) + 2 * rounded(p.m * p.n);
    return numbers * (int64_t)sizeof(float) + gemm_scratch(p.m, p.n, p.k);
}

/* Loads `rows` x `columns` numbers as floats and subtracts the zero points. If there are several, there is one for each
   row (`by_row`) or for each column. */
static void operand_load(const Tensor *from, int64_t rows, int64_t columns, const Tensor *zero,
    bool by_row, float *to)
{
    bool varies = zero != NULL && tensor_count(zero) > 1;
    for (int64_t r = 0; r < rows; r++, to += columns) {
        float common = (float)quant_parameter(zero, by_row ? r : 0);
        convert(to, ACL_FLOAT, (const char *)from->data + r * columns, from->type, 1, columns);
        for (int64_t c = 0; c < columns; c++) {
            to[c] -= varies && !by_row ? (float)quant_parameter(zero, c) : common;
        }
    }
}

/* Writes the sums, for QLinearMatMul in the output's scale. */
static void sums_store(const OpCall *call, const Product *p, const int32_t *sums, char *out)
{
    const Places *at = &places[call->kind->variant];
    aclDataType type = call->outputs[0].type;
    int32_t low, high;
    if (!quant_limits(type, &low, &high)) {
        convert(out, ACL_INT32, sums, ACL_INT32, 1, p->m * p->n);
        return;
    }
    int32_t zero = (int32_t)quant_parameter(op_input(call, at->y_zero), 0);
    float y_scale = (float)quant_parameter(op_input(call, at->y_scale), 0);
    for (int64_t i = 0; i < p->m; i++, sums += p->n, out += p->n) {
        float a_scale = (float)quant_parameter(op_input(call, at->a_scale), i);
        for (int64_t j = 0; j < p->n; j++) {
            float b_scale = (float)quant_parameter(op_input(call, at->b_scale), j);
            float value = (float)sums[j] * (a_scale * b_scale / y_scale);
            out[j] = (char)quant_round(value, zero, low, high);
        }
    }
}

static void one_product(
    const OpCall *call, const Product *p, const Tensor *a, const Tensor *b, char *out)
{
    const Places *at = &places[call->kind->variant];
    float *left = call->workspace, *right = left + rounded(p->m * p->k);
    float *partial = right + rounded(p->k * p->n);
    int32_t *sums = (int32_t *)(void *)(partial + rounded(p->m * p->n));
    operand_load(a, p->m, p->k, op_input(call, at->a_zero), true, left);
    operand_load(b, p->k, p->n, op_input(call, at->b_zero), false, right);
    WholeProduct product = {
        .m = p->m, .n = p->n, .k = p->k, .a = left, .b = right, .c = sums, .partial = partial,
        .scratch = sums + rounded(p->m * p->n), .threads = call->threads,
    };
    whole_product(&product);
    sums_store(call, p, sums, out);
}

static bool run(const OpCall *call)
{
    Product p;
    Spread spread;
    if (!plan(call, &p)) {
        return false;
    }
    rows_join(call, &p);
    Tensor a = *call->inputs[0], b = *call->inputs[places[call->kind->variant].b];
    const char *a_data = a.data, *b_data = b.data;
    char *out = call->outputs[0].data;
    int64_t size = type_size(call->outputs[0].type);
    spread_plan(&spread, &p.batch_shape, (const Tensor *const[]){&p.a_batch, &p.b_batch}, 2);
    for (int64_t i = 0; i < p.batches; i++) {
        int64_t offsets[2], column = i % spread.inner;
        spread_offsets(&spread, i / spread.inner, offsets);
        a.data = (char *)(uintptr_t)(a_data
            + (offsets[0] + column * spread.inner_stride[0]) * p.m * p.k);
        b.data = (char *)(uintptr_t)(b_data
            + (offsets[1] + column * spread.inner_stride[1]) * p.k * p.n);
        one_product(call, &p, &a, &b, out + i * p.m * p.n * size);
    }
    return true;
}

const OpKind ops_qmatmul[] = {
    {"MatMulInteger", OP_ONNX, 2, 4, 1, 0, infer, workspace, run, INTEGER, 0},
    {"QLinearMatMul", OP_ONNX, 8, 8, 1, 0, infer, workspace, run, QLINEAR, 0},
    {0},
};
