/* quant.h: what the operators on quantised numbers share: rounding, limits, exact products.

   A quantised number q stands for (q - zero) * scale. Nothing here depends on ONNX's operators. */
#ifndef SIM_QUANT_H
#define SIM_QUANT_H

#include "numbers/tensor.h"

/* Gives the range of int8, uint8, int16 or uint16; false for other types. */
bool quant_limits(aclDataType type, int32_t *low, int32_t *high);

/* True for int8 and uint8, the types of which quant.c computes exact products. */
static inline bool quant_is_byte(aclDataType type)
{
    return type == ACL_INT8 || type == ACL_UINT8;
}

/* Rounds `value` (halves to even), adds `zero`, and limits the result to [low, high]. */
static inline int32_t quant_round(float value, int32_t zero, int32_t low, int32_t high)
{
    float least = (float)(low - zero), most = (float)(high - zero);
    float bounded = !(value > least) ? least : value < most ? value : most; /* NaN becomes the lower limit */
    /* Adding 1.5 * 2^23 rounds to the nearest integer, and halves to the even one. */
    return (int32_t)((bounded + 12582912.0F) - 12582912.0F) + zero;
}

/* Returns the scale or zero point of one filter, row or column. A tensor with one element serves all of
   them; NULL stands for 0. */
double quant_parameter(const Tensor *tensor, int64_t line);

/* C[m x n] = A[m x k] * B[k x n], exactly. A and B are row-major floats that hold integers of at
   most 255 in magnitude; their products are summed as floats only where that is exact. `partial`
   has m * n floats, `scratch` gemm_scratch(m, n, k) bytes. */
typedef struct WholeProduct {
    int64_t m, n, k;
    const float *a, *b;
    int32_t *c;
    float *partial;
    void *scratch;
    unsigned threads;
} WholeProduct;

void whole_product(const WholeProduct *product);

#endif
