/* gemm.h: dense matrix products, which take most of the time of inference. */
#ifndef SIM_GEMM_H
#define SIM_GEMM_H

#include "numbers/tensor.h"

/* C[m x n] = alpha * A[m x k] * B[k x n] + beta * C, row-major. A and B are float32, float16 or
   bfloat16 with any strides (to transpose a matrix, swap its two strides). C is float32; its rows
   are `c_row` apart. Strides count elements. */
typedef struct Gemm {
    int64_t m, n, k;
    const void *a;
    aclDataType a_type;
    int64_t a_row, a_column;
    const void *b;
    aclDataType b_type;
    int64_t b_row, b_column;
    float *c;
    int64_t c_row;
    float alpha, beta;
} Gemm;

/* Returns the bytes of scratch memory that gemm_run needs for this size, with any number of threads. */
int64_t gemm_scratch(int64_t m, int64_t n, int64_t k);

void gemm_run(const Gemm *gemm, void *scratch, unsigned threads);

#endif
