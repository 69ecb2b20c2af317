/* broadcast.c: see broadcast.h. */
#include "numbers/broadcast.h"

#include <string.h>

/* Computes the operand's stride along each dimension of the output. */
static void strides_fill(int64_t *strides, const Tensor *out, const Tensor *operand)
{
    int64_t step = 1;
    memset(strides, 0, TENSOR_RANK_MAX * sizeof *strides);
    for (int i = 1; i <= operand->rank; i++) {
        int64_t length = operand->dims[operand->rank - i];
        strides[out->rank - i] = length == 1 ? 0 : step;
        step *= length;
    }
}

/* True if, in every operand, dimension d follows dimension `last` without a gap, so that the two can be merged. */
static bool dims_merge(const Spread *spread, int last, const int64_t (*strides)[TENSOR_RANK_MAX],
    int d, int64_t length)
{
    for (int o = 0; o < spread->operands; o++) {
        if (spread->strides[o][last] != strides[o][d] * length) {
            return false;
        }
    }
    return true;
}

void spread_plan(Spread *spread, const Tensor *out, const Tensor *const *operands, int count)
{
    int64_t strides[SPREAD_OPERANDS][TENSOR_RANK_MAX];
    *spread = (Spread){.operands = count};
    for (int o = 0; o < count; o++) {
        strides_fill(strides[o], out, operands[o]);
    }
    for (int d = 0; d < out->rank; d++) {
        int64_t length = out->dims[d];
        if (length == 1) {
            continue;
        }
        int last = spread->rank - 1;
        if (last >= 0
            && dims_merge(spread, last, (const int64_t (*)[TENSOR_RANK_MAX])strides, d, length)) {
            spread->dims[last] *= length;
        } else {
            last = spread->rank++;
            spread->dims[last] = length;
        }
        for (int o = 0; o < count; o++) {
            spread->strides[o][last] = strides[o][d];
        }
    }
    if (spread->rank == 0) {
        spread->dims[spread->rank++] = 1;
    }
    spread->inner = spread->dims[spread->rank - 1];
    spread->rows = dims_count(spread->dims, spread->rank - 1);
    for (int o = 0; o < count; o++) {
        spread->inner_stride[o] = spread->strides[o][spread->rank - 1];
    }
}

void spread_offsets(const Spread *spread, int64_t row, int64_t *offsets)
{
    memset(offsets, 0, (size_t)spread->operands * sizeof *offsets);
    for (int d = spread->rank - 2; d >= 0; d--) {
        int64_t at = row % spread->dims[d];
        row /= spread->dims[d];
        for (int o = 0; o < spread->operands; o++) {
            offsets[o] += at * spread->strides[o][d];
        }
    }
}
