/* op_matmul.c: matrix products: MatMul, Gemm, and ACL's MatMul and BatchMatMul.

   Every form becomes a batch of gemm_run calls (gemm.h). Products of float32 go straight into the
   output; those of smaller types are accumulated in float32 in the workspace. float64 and integers
   have a product of their own (exact.h). */
#include "numbers/exact.h"
#include "numbers/gemm.h"
#include "ops/op.h"
#include "numbers/product.h"
#include "numbers/broadcast.h"

#include <math.h>
#include <string.h>

enum { MATMUL, GEMM, ACL_MATMUL, ACL_BATCH, FUSED };

static Tensor leading(const Tensor *tensor)
{
    Tensor lead = {.type = tensor->type,
        .rank = tensor->rank < 2 ? 0 : tensor->rank - 2,
        .data = tensor->data};
    memcpy(lead.dims, tensor->dims, sizeof lead.dims);
    return lead;
}

static void flags_read(const OpCall *call, bool *a, bool *b)
{
    switch (call->kind->variant) {
    case GEMM: case FUSED:
        *a = attr_int(call, "transA", 0) != 0;
        *b = attr_int(call, "transB", 0) != 0;
        break;
    case ACL_MATMUL:
        *a = attr_int(call, "transpose_x1", 0) != 0;
        *b = attr_int(call, "transpose_x2", 0) != 0;
        break;
    case ACL_BATCH:
        *a = attr_int(call, "adj_x1", 0) != 0;
        *b = attr_int(call, "adj_x2", 0) != 0;
        break;
    default:
        *a = *b = false;
    }
}

bool fused_accept(const OpCall *call)
{
    return (attr_int(call, "transBatchA", 0) == 0 && attr_int(call, "transBatchB", 0) == 0)
        || op_fail(call, "attributes transBatchA and transBatchB: only 0 is supported");
}

static double product_factor(const OpCall *call)
{
    bool scaled = call->kind->variant == GEMM || call->kind->variant == FUSED;
    return scaled ? attr_float(call, "alpha", 1.0) : 1.0;
}

static bool product_fail(const OpCall *call)
{
    char a[128], b[128];
    return op_fail(call, "shapes %s and %s do not multiply",
        shape_text(call->inputs[0], a, sizeof a), shape_text(call->inputs[1], b, sizeof b));
}

bool product_plan(const Tensor *a, const Tensor *b, Product *p)
{
    if (a->rank == 0 || b->rank == 0) {
        return false;
    }
    int64_t a_rows = a->rank == 1 ? 1 : a->dims[a->rank - 2], a_columns = a->dims[a->rank - 1];
    int64_t b_rows = b->rank == 1 ? b->dims[0] : b->dims[b->rank - 2];
    int64_t b_columns = b->rank == 1 ? 1 : b->dims[b->rank - 1];
    p->m = p->a_transposed ? a_columns : a_rows;
    p->k = p->a_transposed ? a_rows : a_columns;
    p->n = p->b_transposed ? b_rows : b_columns;
    p->a_batch = leading(a);
    p->b_batch = leading(b);
    if ((p->b_transposed ? b_columns : b_rows) != p->k
        || !dims_broadcast(&p->a_batch, &p->b_batch, &p->batch_shape)) {
        return false;
    }
    p->batches = tensor_count(&p->batch_shape);
    return true;
}

void product_shape(const Product *p, const Tensor *a, const Tensor *b, Tensor *out)
{
    tensor_shape_copy(out, &p->batch_shape);
    if (a->rank > 1) {
        out->dims[out->rank++] = p->m;
    }
    if (b->rank > 1) {
        out->dims[out->rank++] = p->n;
    }
}

void product_flatten(Product *p, const Tensor *a)
{
    if (tensor_count(&p->b_batch) == 1 && !p->a_transposed && a->rank > 2
        && tensor_count(&p->a_batch) == p->batches) {
        p->m *= p->batches;
        p->batches = 1;
        p->a_batch.rank = p->b_batch.rank = p->batch_shape.rank = 0;
    }
}

/* Plans the product of the call's operands, with its flags for transposition. */
static bool call_plan(const OpCall *call, Product *p)
{
    const Tensor *a = call->inputs[0], *b = call->inputs[1];
    bool flat = call->kind->variant == GEMM || call->kind->variant == ACL_MATMUL;
    flags_read(call, &p->a_transposed, &p->b_transposed);
    bool fits = !flat || (a->rank == 2 && b->rank == 2);
    return (fits && product_plan(a, b, p)) || product_fail(call);
}

static bool bias_check(const OpCall *call, const Product *p)
{
    const Tensor *bias = op_input(call, 2);
    if (bias == NULL || call->kind->variant == MATMUL) {
        return true;
    }
    Tensor shape = call->outputs[0], joined;
    if (!dims_broadcast(&shape, bias, &joined) || !tensor_same_shape(&shape, &joined)) {
        char text[128];
        return op_fail(call, "input 2: expected a bias for [%lld, %lld], got shape %s",
            (long long)p->m, (long long)p->n, shape_text(bias, text, sizeof text));
    }
    return true;
}

static bool matmul_infer(OpCall *call)
{
    Product p;
    const Tensor *a = call->inputs[0], *b = call->inputs[1];
    if (a->type != b->type || a->type == ACL_BOOL) {
        return op_fail(call, "inputs 0 and 1: expected one number type, got %s and %s",
            type_name(a->type), type_name(b->type));
    }
    if (!call_plan(call, &p)) {
        return false;
    }
    Tensor *out = &call->outputs[0];
    out->type = a->type;
    product_shape(&p, a, b, out);
    return bias_check(call, &p);
}

static bool accumulates_apart(aclDataType type)
{
    return type == ACL_FLOAT16 || type == ACL_BF16;
}

static int64_t matmul_workspace(const OpCall *call)
{
    Product p;
    aclDataType type = call->inputs[0]->type;
    if (type_compute(type) != ACL_FLOAT || !call_plan(call, &p)) {
        return 0;
    }
    product_flatten(&p, call->inputs[0]);
    int64_t bytes = gemm_scratch(p.m, p.n, p.k);
    if (accumulates_apart(type)) {
        bytes += p.m * p.n * (int64_t)sizeof(float);
    }
    return bytes;
}

static void one_product(const OpCall *call, const Product *p, const Tensor *a, const Tensor *b,
    const Tensor *out)
{
    if (type_compute(a->type) != ACL_FLOAT) {
        exact_run(&(Exact){
            .m = p->m, .n = p->n, .k = p->k, .type = a->type, .c = out->data,
            .a = a->data, .a_row = p->a_transposed ? 1 : p->k,
            .a_column = p->a_transposed ? p->m : 1,
            .b = b->data, .b_row = p->b_transposed ? 1 : p->n,
            .b_column = p->b_transposed ? p->k : 1,
        });
        return;
    }
    float *c = out->data;
    char *scratch = call->workspace;
    if (accumulates_apart(out->type)) {
        c = (float *)call->workspace;
        scratch += p->m * p->n * (int64_t)sizeof(float);
    }
    Gemm gemm = {
        .m = p->m, .n = p->n, .k = p->k, .c = c, .c_row = p->n,
        .a = a->data, .a_type = a->type, .b = b->data, .b_type = b->type,
        .a_row = p->a_transposed ? 1 : p->k, .a_column = p->a_transposed ? p->m : 1,
        .b_row = p->b_transposed ? 1 : p->n, .b_column = p->b_transposed ? p->k : 1,
        .alpha = (float)product_factor(call), .beta = 0.0F,
    };
    gemm_run(&gemm, scratch, call->threads);
    if (c != out->data) {
        convert(out->data, out->type, c, ACL_FLOAT, 1, p->m * p->n);
    }
}

/* Makes output element `at` alpha times itself plus beta * bias. If the type is an integer, and alpha and beta
   are whole numbers, this is exact. */
static void element_join(
    const Tensor *out, int64_t at, double alpha, double beta, const Tensor *bias, int64_t from)
{
    char *place = (char *)out->data + at * type_size(out->type);
    bool whole = !type_is_float(out->type) && alpha >= trunc(alpha) && alpha <= trunc(alpha)
        && beta >= trunc(beta) && beta <= trunc(beta) && fabs(alpha) < 0x1p53
        && fabs(beta) < 0x1p53;
    if (whole) {
        uint64_t add = bias == NULL ? 0 : (uint64_t)tensor_get_int(bias, from);
        uint64_t value = (uint64_t)(int64_t)alpha * (uint64_t)tensor_get_int(out, at)
            + (uint64_t)(int64_t)beta * add;
        convert(place, out->type, &value, ACL_INT64, 1, 1);
    } else {
        double add = bias == NULL ? 0.0 : beta * tensor_get_real(bias, from);
        double value = alpha * tensor_get_real(out, at) + add;
        convert(place, out->type, &value, ACL_DOUBLE, 1, 1);
    }
}

/* out = alpha * out + beta * bias, broadcast; `bias` may be NULL. */
static void bias_join(const OpCall *call, const Tensor *bias, double alpha)
{
    const Tensor *out = &call->outputs[0];
    Spread spread;
    double beta = call->kind->variant == GEMM ? attr_float(call, "beta", 1.0) : 1.0;
    spread_plan(&spread, out, &bias, bias == NULL ? 0 : 1);
    for (int64_t row = 0; row < spread.rows; row++) {
        int64_t from = 0, stride = bias == NULL ? 0 : spread.inner_stride[0];
        spread_offsets(&spread, row, &from);
        int64_t at = row * spread.inner;
        if (out->type == ACL_FLOAT && bias != NULL && bias->type == ACL_FLOAT) {
            const float *add = (const float *)bias->data + from;
            float *to = (float *)out->data + at, factor = (float)beta;
            for (int64_t j = 0; j < spread.inner; j++) {
                to[j] += factor * add[j * stride];
            }
            continue;
        }
        for (int64_t j = 0; j < spread.inner; j++) {
            element_join(out, at + j, alpha, beta, bias, from + j * stride);
        }
    }
}

static bool matmul_run(const OpCall *call)
{
    Product p;
    Spread spread;
    if (!call_plan(call, &p)) {
        return false;
    }
    product_flatten(&p, call->inputs[0]);
    Tensor a = *call->inputs[0], b = *call->inputs[1], out = call->outputs[0];
    spread_plan(&spread, &p.batch_shape, (const Tensor *const[]){&p.a_batch, &p.b_batch}, 2);
    for (int64_t i = 0; i < p.batches; i++) {
        int64_t offsets[2];
        spread_offsets(&spread, i / spread.inner, offsets);
        int64_t column = i % spread.inner;
        int64_t x = offsets[0] + column * spread.inner_stride[0];
        int64_t y = offsets[1] + column * spread.inner_stride[1];
        a.data = (char *)call->inputs[0]->data + x * p.m * p.k * type_size(a.type);
        b.data = (char *)call->inputs[1]->data + y * p.k * p.n * type_size(b.type);
        out.data = (char *)call->outputs[0].data + i * p.m * p.n * type_size(out.type);
        one_product(call, &p, &a, &b, &out);
        if (!op_goes_on(call)) {
            return false;
        }
    }
    const Tensor *bias = call->kind->variant == MATMUL ? NULL : op_input(call, 2);
    double alpha = type_compute(out.type) == ACL_FLOAT ? 1.0 : product_factor(call);
    if (bias != NULL || alpha < 1.0 || alpha > 1.0) {
        bias_join(call, bias, alpha);
    }
    return true;
}

#define PRODUCT(NAME, DOMAIN, MOST, VARIANT) \
    {NAME, DOMAIN, 2, MOST, 1, 0, matmul_infer, matmul_workspace, matmul_run, VARIANT, 0}

const OpKind ops_matmul[] = {
    PRODUCT("MatMul", OP_ONNX, 2, MATMUL), PRODUCT("Gemm", OP_ONNX, 3, GEMM),
    PRODUCT("FusedMatMul", OP_ORT, 2, FUSED),
    PRODUCT("MatMul", OP_ACL, 3, ACL_MATMUL), PRODUCT("MatMulV2", OP_ACL, 3, ACL_MATMUL),
    PRODUCT("BatchMatMul", OP_ACL, 2, ACL_BATCH), PRODUCT("BatchMatMulV2", OP_ACL, 3, ACL_BATCH),
    {0},
};
