/* exact.h: matrix products in double, or in integers that wrap, for types for which the float32
   arithmetic of gemm.h is not exact enough. */
#ifndef SIM_EXACT_H
#define SIM_EXACT_H

#include "numbers/tensor.h"

/* C[m x n] = A[m x k] * B[k x n], all of one type, float64 or an integer; A and B with any strides,
   C row after row. Strides count elements. */
typedef struct Exact {
    int64_t m, n, k;
    aclDataType type;
    const void *a;
    int64_t a_row, a_column;
    const void *b;
    int64_t b_row, b_column;
    void *c;
} Exact;

void exact_run(const Exact *exact);

#endif
