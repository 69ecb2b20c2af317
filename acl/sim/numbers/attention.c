/* attention.c: see attention.h.

   The rows of a head are copied into the workspace as float or as double (attention_heads.h). So
   gemm.h or exact.h can multiply them, whatever their types and strides are. The copy is cheap:
   (queries + keys) * size elements, compared with queries * keys * size multiplications. */
#include "numbers/attention.h"

#include <math.h>
#include <string.h>

#include "numbers/exact.h"
#include "numbers/gemm.h"
#include "numbers/vmath.h"

Heads heads_of(const Tensor *tensor, int64_t heads)
{
    const int64_t *dims = tensor->dims;
    Heads all = {.data = tensor->data, .type = tensor->type};
    if (tensor->rank == 4) {
        all.row = dims[3];
        all.head = dims[2] * all.row;
        all.batch = dims[1] * all.head;
    } else {
        all.row = dims[2];
        all.head = heads == 0 ? 0 : dims[2] / heads;
        all.batch = dims[1] * all.row;
    }
    return all;
}

static char *row_at(const Heads *heads, int64_t batch, int64_t head, int64_t row)
{
    return heads->data
        + (batch * heads->batch + head * heads->head + row * heads->row) * type_size(heads->type);
}

void heads_join(const Attend *attend, const Heads *past, const Heads *fresh, int64_t size,
    const Heads *to)
{
    for (int64_t at = 0; at < attend->batches * attend->kv_heads; at++) {
        int64_t batch = at / attend->kv_heads, head = at % attend->kv_heads;
        for (int64_t i = 0; i < attend->past + attend->fresh; i++) {
            const char *from = i < attend->past ? row_at(past, batch, head, i)
                                                : row_at(fresh, batch, head, i - attend->past);
            memcpy(row_at(to, batch, head, i), from, (size_t)(size * type_size(to->type)));
        }
    }
}

/* Computes the keys [first, last) that a query may see before the mask is applied. */
static void keys_seen(const Attend *a, int64_t batch, int64_t query, int64_t *first, int64_t *last)
{
    int64_t keys = a->past + a->fresh, length = keys;
    if (a->lengths != NULL) {
        length = tensor_get_int(a->lengths, batch) + a->lengths_extra;
        length = length > keys ? keys : length;
    }
    int64_t offset = a->offset_by_length ? length - a->queries : a->offset;
    int64_t place = offset + query, end = length;
    if (a->causal && end > place + 1) {
        end = place + 1;
    }
    if (a->right >= 0 && end - place - 1 > a->right) {
        end = place + a->right + 1;
    }
    if (a->mask.data != NULL && end > a->mask_keys) {
        end = a->mask_keys;
    }
    *first = a->left >= 0 && place - a->left > 0 ? place - a->left : 0;
    *last = end > *first ? end : *first;
}

/* --- the arithmetic --- */

static int64_t products_scratch(const Attend *a)
{
    int64_t keys = a->past + a->fresh;
    int64_t first = gemm_scratch(a->queries, keys, a->size);
    int64_t second = gemm_scratch(a->queries, a->value_size, keys);
    return first > second ? first : second;
}

#define REAL float
#define REAL_TYPE ACL_FLOAT
#define REAL_IS_DOUBLE 0
#define NAME(x) x##_f32
#define EXP exp_fast
#define TANH tanh_fast
#include "numbers/attention_heads.h"

#define REAL double
#define REAL_TYPE ACL_DOUBLE
#define REAL_IS_DOUBLE 1
#define NAME(x) x##_f64
#define EXP exp
#define TANH tanh
#include "numbers/attention_heads.h"

int64_t attend_workspace(const Attend *attend)
{
    Scratch_f32 narrow;
    Scratch_f64 wide;
    return 64 + (attend->wide ? scratch_plan_f64(attend, NULL, &wide)
                              : scratch_plan_f32(attend, NULL, &narrow));
}

void attend_run(const Attend *attend, void *workspace, unsigned threads)
{
    void *base = (void *)(((uintptr_t)workspace + 63) / 64 * 64);
    (attend->wide ? heads_run_f64 : heads_run_f32)(attend, base, threads);
}
