/* strided.h: copying a box of elements from one set of strides to another.

   Transpose, Slice, Expand, Tile, Concat and Split are such copies; only their strides differ. */
#ifndef SIM_STRIDED_H
#define SIM_STRIDED_H

#include "numbers/tensor.h"

enum { STRIDED_RANK = 2 * TENSOR_RANK_MAX };

typedef struct Strided {
    int rank;
    int64_t dims[STRIDED_RANK];
    int64_t to[STRIDED_RANK];     /* strides in elements; those of `from` may be 0 or negative */
    int64_t from[STRIDED_RANK];
} Strided;

/* Computes the strides of a row-major tensor, in elements. */
void strides_of(const Tensor *tensor, int64_t *strides);

/* Copies elements of `size` bytes (1, 2, 4 or 8). */
void strided_copy(const Strided *box, void *to, const void *from, int64_t size);

#endif
