/* strided.c: see strided.h. */
#include "numbers/strided.h"

#include <string.h>

void strides_of(const Tensor *tensor, int64_t *strides)
{
    int64_t step = 1;
    for (int d = tensor->rank - 1; d >= 0; d--) {
        strides[d] = step;
        step *= tensor->dims[d];
    }
}

/* Removes dimensions of size 1, and merges neighbouring dimensions that are contiguous in source and target. */
static Strided box_merge(const Strided *box)
{
    Strided merged = {0};
    for (int d = 0; d < box->rank; d++) {
        int last = merged.rank - 1;
        if (box->dims[d] == 1) {
            continue;
        }
        if (last >= 0 && merged.to[last] == box->to[d] * box->dims[d]
            && merged.from[last] == box->from[d] * box->dims[d]) {
            merged.dims[last] *= box->dims[d];
        } else {
            last = merged.rank++;
            merged.dims[last] = box->dims[d];
        }
        merged.to[last] = box->to[d];
        merged.from[last] = box->from[d];
    }
    return merged;
}

#define RUN_LOOP(T) \
    do { \
        T *out = to; \
        const T *in = from; \
        for (int64_t i = 0; i < count; i++) { \
            out[i * to_stride] = in[i * from_stride]; \
        } \
    } while (0)

static void run_copy(void *to, const void *from, int64_t to_stride, int64_t from_stride,
    int64_t count, int64_t size)
{
    if (to_stride == 1 && from_stride == 1) {
        memcpy(to, from, (size_t)(count * size));
        return;
    }
    switch (size) {
    case 1:
        RUN_LOOP(uint8_t);
        break;
    case 2:
        RUN_LOOP(uint16_t);
        break;
    case 4:
        RUN_LOOP(uint32_t);
        break;
    default:
        RUN_LOOP(uint64_t);
    }
}

void strided_copy(const Strided *box, void *to, const void *from, int64_t size)
{
    Strided b = box_merge(box);
    int64_t at[STRIDED_RANK] = {0};
    int64_t rows = dims_count(b.dims, b.rank - 1), count = b.rank == 0 ? 1 : b.dims[b.rank - 1];
    int64_t to_stride = b.rank == 0 ? 1 : b.to[b.rank - 1],
            from_stride = b.rank == 0 ? 1 : b.from[b.rank - 1];
    char *out = to;
    const char *in = from;
    for (int64_t row = 0; row < rows && count > 0; row++) {
        run_copy(out, in, to_stride, from_stride, count, size);
        for (int d = b.rank - 2; d >= 0; d--) { /* the next row: an odometer over the outer dims */
            out += b.to[d] * size;
            in += b.from[d] * size;
            if (++at[d] < b.dims[d]) {
                break;
            }
            out -= b.to[d] * b.dims[d] * size;
            in -= b.from[d] * b.dims[d] * size;
            at[d] = 0;
        }
    }
}
