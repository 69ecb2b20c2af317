/* blas.c: aclblas: matrix products, computed by the library's operator GEMM (op_blas.c).

   As in CANN, all functions call aclblasGemmEx, and a vector is a matrix of one column.  Matrices are in device
   memory.  So are alpha and beta, or they are in host memory and are read before the call returns.

   Thread rule: no state; any thread. */
#include "tensors/databuffer.h"
#include "generated/exports.h"
#include "memory/memory.h"
#include "single_ops/opapi.h"

enum { GEMM_INPUTS = 5, TILE = 16, TILE_WIDE = 32, LEADING = -1 };

/* The sizes, types and layouts of a call's three matrices. */
typedef struct Form {
    aclTransType trans_a, trans_b, trans_c;
    int m, n, k;
    aclDataType type_a, type_b, type_c;
    aclComputeType compute;
} Form;

/* Descriptions and buffers of A, B, C, alpha and beta. */
typedef struct Ends {
    aclTensorDesc *descs[GEMM_INPUTS];
    aclopAttr *attr;
} Ends;

/* ---- checks ---------------------------------------------------------------------------------- */

static aclError form_check(const char *function, const Form *form)
{
    if (form->m <= 0 || form->n <= 0 || form->k <= 0) {
        return error_set(function, ACL_ERROR_INVALID_PARAM,
            "the sizes m, n, k are %d, %d, %d, expected more than 0", form->m, form->n, form->k);
    }
    if ((unsigned)form->trans_a >= ACL_TRANS_NZ_T || (unsigned)form->trans_b >= ACL_TRANS_NZ_T) {
        return error_set(function, ACL_ERROR_INVALID_PARAM,
            "transA and transB are %d and %d, expected ACL_TRANS_N, ACL_TRANS_T or ACL_TRANS_NZ",
            (int)form->trans_a, (int)form->trans_b);
    }
    if (form->trans_c != ACL_TRANS_N && form->trans_c != ACL_TRANS_NZ) {
        return error_set(function, ACL_ERROR_INVALID_PARAM,
            "transC is %d, expected ACL_TRANS_N or ACL_TRANS_NZ", (int)form->trans_c);
    }
    if (form->compute != ACL_COMPUTE_HIGH_PRECISION) {
        return error_set(function, ACL_ERROR_INVALID_PARAM,
            "type is %d, expected ACL_COMPUTE_HIGH_PRECISION", (int)form->compute);
    }
    return ACL_SUCCESS;
}

/* Returns an error if there is no operator for these types. On a device the search for the operator fails. */
static aclError types_check(const char *function, const Form *form)
{
    bool half = form->type_a == ACL_FLOAT16 &&
                (form->type_c == ACL_FLOAT16 || form->type_c == ACL_FLOAT);
    bool whole =
        form->type_a == ACL_INT8 && (form->type_c == ACL_INT32 || form->type_c == ACL_FLOAT);
    if (form->type_a != form->type_b || !(half || whole)) {
        return error_set(function, ACL_ERROR_OP_NOT_FOUND,
            "data types %d x %d to %d are not supported: expected float16 x float16 to float16 or "
            "float, or int8 x int8 to int32 or float",
            (int)form->type_a, (int)form->type_b, (int)form->type_c);
    }
    return ACL_SUCCESS;
}

/* ---- descriptions ---------------------------------------------------------------------------- */

static int64_t tiles(int64_t count, int64_t width)
{
    return (count + width - 1) / width;
}

/* Describes a matrix as its flag says: row-major, transposed, or in tiles of 16 rows (FRACTAL_NZ). */
static aclTensorDesc *matrix_new(aclDataType type, aclTransType trans, int64_t rows,
    int64_t columns)
{
    int64_t width = type == ACL_INT8 ? TILE_WIDE : TILE;
    if (trans == ACL_TRANS_NZ) {
        const int64_t tiled[] = {tiles(columns, width), tiles(rows, TILE), TILE, width};
        return tensordesc_new(type, 4, tiled, ACL_FORMAT_FRACTAL_NZ);
    }
    bool turned = trans == ACL_TRANS_T;
    const int64_t plain[] = {turned ? columns : rows, turned ? rows : columns};
    return tensordesc_new(type, 2, plain, ACL_FORMAT_ND);
}

/* Describes matrix B. If its type is int8 and it is stored in tiles, its format is FRACTAL_Z: transposed tiles. */
static aclTensorDesc *b_new(const Form *form)
{
    if (form->trans_b == ACL_TRANS_NZ && form->type_b == ACL_INT8) {
        const int64_t tiled[] = {tiles(form->k, TILE_WIDE), tiles(form->n, TILE), TILE, TILE_WIDE};
        return tensordesc_new(form->type_b, 4, tiled, ACL_FORMAT_FRACTAL_Z);
    }
    return matrix_new(form->type_b, form->trans_b, form->k, form->n);
}

static void ends_free(Ends *ends)
{
    for (int i = 0; i < GEMM_INPUTS; i++) {
        sim_aclDestroyTensorDesc(ends->descs[i]);
    }
    sim_aclopDestroyAttr(ends->attr);
}

static aclError ends_new(const Form *form, Ends *ends)
{
    *ends = (Ends){{matrix_new(form->type_a, form->trans_a, form->m, form->k), b_new(form),
                       matrix_new(form->type_c, form->trans_c, form->m, form->n),
                       tensordesc_new(form->type_c, 0, NULL, ACL_FORMAT_ND),
                       tensordesc_new(form->type_c, 0, NULL, ACL_FORMAT_ND)},
        sim_aclopCreateAttr()};
    bool made = ends->attr != NULL &&
                sim_aclopSetAttrBool(ends->attr, "transpose_a", form->trans_a == ACL_TRANS_T) ==
                    ACL_SUCCESS &&
                sim_aclopSetAttrBool(ends->attr, "transpose_b", form->trans_b == ACL_TRANS_T) ==
                    ACL_SUCCESS;
    for (int i = 0; i < GEMM_INPUTS; i++) {
        made = made && ends->descs[i] != NULL;
    }
    if (!made) {
        ends_free(ends);
        return fail(ACL_ERROR_BAD_ALLOC, "no memory for the description of a product");
    }
    return ACL_SUCCESS;
}

/* ---- the two calls that all other calls use --------------------------------------------------- */

/* Describes alpha or beta. A factor in host memory is read now, one in device memory when the product runs. */
static void factor_place(aclTensorDesc *desc, const void *factor)
{
    Memory memory;
    bool device = memory_find(factor, &memory) && memory_on_device(memory.kind);
    desc->place = device ? ACL_MEMTYPE_DEVICE : ACL_MEMTYPE_HOST;
}

static aclError gemm_queue(
    const Form *form, const void *const data[GEMM_INPUTS], aclrtStream stream)
{
    Ends ends;
    aclDataBuffer *buffers[GEMM_INPUTS] = {NULL};
    TRY(ends_new(form, &ends));
    bool made = true;
    for (int i = 0; i < GEMM_INPUTS; i++) {
        buffers[i] = sim_aclCreateDataBuffer(
            (void *)(uintptr_t)data[i], sim_aclGetTensorDescSize(ends.descs[i]));
        made = made && buffers[i] != NULL;
    }
    factor_place(ends.descs[3], data[3]);
    factor_place(ends.descs[4], data[4]);
    const OpEnds call = {GEMM_INPUTS, 1, ends.descs, buffers, &ends.descs[2], &buffers[2], false};
    aclError status = made ? op_execute("GEMM", &call, ends.attr, stream)
                           : fail(ACL_ERROR_BAD_ALLOC, "no memory for the buffers of a product");
    for (int i = 0; i < GEMM_INPUTS; i++) {
        (void)sim_aclDestroyDataBuffer(buffers[i]);
    }
    ends_free(&ends);
    return status;
}

aclError sim_aclblasGemmEx(aclTransType transA, aclTransType transB, aclTransType transC, int m,
    int n, int k, const void *alpha, const void *matrixA, int lda, aclDataType dataTypeA,
    const void *matrixB, int ldb, aclDataType dataTypeB, const void *beta, void *matrixC, int ldc,
    aclDataType dataTypeC, aclComputeType type, aclrtStream stream)
{
    const Form form = {
        transA, transB, transC, m, n, k, dataTypeA, dataTypeB, dataTypeC, type};
    REQUIRE(alpha);
    REQUIRE(beta);
    REQUIRE(matrixA);
    REQUIRE(matrixB);
    REQUIRE(matrixC);
    TRY(form_check(__func__, &form));
    REQUIRE(lda == LEADING && ldb == LEADING && ldc == LEADING);
    TRY(types_check(__func__, &form));
    return gemm_queue(
        &form, (const void *const[]){matrixA, matrixB, matrixC, alpha, beta}, stream);
}

aclError sim_aclblasCreateHandleForGemmEx(aclTransType transA, aclTransType transB,
    aclTransType transC, int m, int n, int k, aclDataType dataTypeA, aclDataType dataTypeB,
    aclDataType dataTypeC, aclComputeType type, aclopHandle **handle)
{
    Ends ends;
    const Form form = {
        transA, transB, transC, m, n, k, dataTypeA, dataTypeB, dataTypeC, type};
    REQUIRE(handle);
    TRY(form_check(__func__, &form));
    TRY(types_check(__func__, &form));
    TRY(ends_new(&form, &ends));
    aclError status = sim_aclopCreateHandle("GEMM", GEMM_INPUTS,
        (const aclTensorDesc *const *)ends.descs, 1, (const aclTensorDesc *const *)&ends.descs[2],
        ends.attr, handle);
    ends_free(&ends);
    return status;
}

/* ---- the other calls, whose types are in their names ------------------------------------------ */

aclError sim_aclblasHgemm(aclTransType transA, aclTransType transB, aclTransType transC, int m,
    int n, int k, const aclFloat16 *alpha, const aclFloat16 *matrixA, int lda,
    const aclFloat16 *matrixB, int ldb, const aclFloat16 *beta, aclFloat16 *matrixC, int ldc,
    aclComputeType type, aclrtStream stream)
{
    return sim_aclblasGemmEx(transA, transB, transC, m, n, k, alpha, matrixA, lda, ACL_FLOAT16,
        matrixB, ldb, ACL_FLOAT16, beta, matrixC, ldc, ACL_FLOAT16, type, stream);
}

aclError sim_aclblasCreateHandleForHgemm(aclTransType transA, aclTransType transB,
    aclTransType transC, int m, int n, int k, aclComputeType type, aclopHandle **handle)
{
    return sim_aclblasCreateHandleForGemmEx(transA, transB, transC, m, n, k, ACL_FLOAT16,
        ACL_FLOAT16, ACL_FLOAT16, type, handle);
}

aclError sim_aclblasS8gemm(aclTransType transA, aclTransType transB, aclTransType transC, int m,
    int n, int k, const int32_t *alpha, const int8_t *matrixA, int lda, const int8_t *matrixB,
    int ldb, const int32_t *beta, int32_t *matrixC, int ldc, aclComputeType type,
    aclrtStream stream)
{
    return sim_aclblasGemmEx(transA, transB, transC, m, n, k, alpha, matrixA, lda, ACL_INT8,
        matrixB, ldb, ACL_INT8, beta, matrixC, ldc, ACL_INT32, type, stream);
}

aclError sim_aclblasCreateHandleForS8gemm(aclTransType transA, aclTransType transB,
    aclTransType transC, int m, int n, int k, aclComputeType type, aclopHandle **handle)
{
    return sim_aclblasCreateHandleForGemmEx(
        transA, transB, transC, m, n, k, ACL_INT8, ACL_INT8, ACL_INT32, type, handle);
}

/* A has m rows and n columns; x and y are column vectors. */
aclError sim_aclblasGemvEx(aclTransType transA, int m, int n, const void *alpha, const void *a,
    int lda, aclDataType dataTypeA, const void *x, int incx, aclDataType dataTypeX,
    const void *beta, void *y, int incy, aclDataType dataTypeY, aclComputeType type,
    aclrtStream stream)
{
    return sim_aclblasGemmEx(transA, ACL_TRANS_N, ACL_TRANS_N, m, 1, n, alpha, a, lda, dataTypeA,
        x, incx, dataTypeX, beta, y, incy, dataTypeY, type, stream);
}

aclError sim_aclblasCreateHandleForGemvEx(aclTransType transA, int m, int n, aclDataType dataTypeA,
    aclDataType dataTypeX, aclDataType dataTypeY, aclComputeType type, aclopHandle **handle)
{
    return sim_aclblasCreateHandleForGemmEx(transA, ACL_TRANS_N, ACL_TRANS_N, m, 1, n, dataTypeA,
        dataTypeX, dataTypeY, type, handle);
}

aclError sim_aclblasHgemv(aclTransType transA, int m, int n, const aclFloat16 *alpha,
    const aclFloat16 *a, int lda, const aclFloat16 *x, int incx, const aclFloat16 *beta,
    aclFloat16 *y, int incy, aclComputeType type, aclrtStream stream)
{
    return sim_aclblasGemvEx(transA, m, n, alpha, a, lda, ACL_FLOAT16, x, incx, ACL_FLOAT16, beta,
        y, incy, ACL_FLOAT16, type, stream);
}

aclError sim_aclblasCreateHandleForHgemv(
    aclTransType transA, int m, int n, aclComputeType type, aclopHandle **handle)
{
    return sim_aclblasCreateHandleForGemvEx(
        transA, m, n, ACL_FLOAT16, ACL_FLOAT16, ACL_FLOAT16, type, handle);
}

aclError sim_aclblasS8gemv(aclTransType transA, int m, int n, const int32_t *alpha,
    const int8_t *a, int lda, const int8_t *x, int incx, const int32_t *beta, int32_t *y, int incy,
    aclComputeType type, aclrtStream stream)
{
    return sim_aclblasGemvEx(transA, m, n, alpha, a, lda, ACL_INT8, x, incx, ACL_INT8, beta, y,
        incy, ACL_INT32, type, stream);
}

aclError sim_aclblasCreateHandleForS8gemv(
    aclTransType transA, int m, int n, aclComputeType type, aclopHandle **handle)
{
    return sim_aclblasCreateHandleForGemvEx(
        transA, m, n, ACL_INT8, ACL_INT8, ACL_INT32, type, handle);
}
