/* broadcast.h: walking several operands under broadcasting, row by row.

   A Spread is the output's shape with neighbouring dimensions merged where every operand allows it,
   and one list of strides per operand (0 = repeated). A row is a run of the innermost dimension. */
#ifndef SIM_BROADCAST_H
#define SIM_BROADCAST_H

#include "numbers/tensor.h"

enum { SPREAD_OPERANDS = 3 };

typedef struct Spread {
    int operands;
    int rank;
    int64_t dims[TENSOR_RANK_MAX];
    int64_t strides[SPREAD_OPERANDS][TENSOR_RANK_MAX];
    int64_t rows;                       /* product of all dims but the last */
    int64_t inner;                      /* the last dim */
    int64_t inner_stride[SPREAD_OPERANDS];
} Spread;

void spread_plan(Spread *spread, const Tensor *out, const Tensor *const *operands, int count);

/* Computes where in each operand row `row` begins, in elements. */
void spread_offsets(const Spread *spread, int64_t row, int64_t *offsets);

#endif
