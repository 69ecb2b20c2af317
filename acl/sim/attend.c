/* attend.c: see attend.h.

   The rows of a head are brought into the workspace as float32, so products are those of gemm.h
   without regard to types and strides: a copy of (queries + keys) * size beside a product of
   queries * keys * size. */
#include "attend.h"

#include <math.h>
#include <string.h>

#include "gemm.h"
#include "vmath.h"

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

static void rows_load(const Heads *heads, int64_t batch, int64_t head, int64_t count, int64_t size,
    float *to)
{
    for (int64_t i = 0; i < count; i++) {
        convert(to + i * size, ACL_FLOAT, row_at(heads, batch, head, i), heads->type, 1, size);
    }
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

/* --- the workspace --- */

typedef struct Scratch {
    float *q, *k, *v, *scores, *out;
    void *gemm;
} Scratch;

static int64_t scratch_plan(const Attend *a, unsigned threads, float *base, Scratch *scratch)
{
    int64_t keys = a->past + a->fresh, at = 0;
    int64_t sizes[] = {a->queries * a->size, keys * a->size, keys * a->value_size,
        a->queries * keys, a->queries * a->value_size};
    float **places[] = {&scratch->q, &scratch->k, &scratch->v, &scratch->scores, &scratch->out};
    for (int i = 0; i < 5; i++) {
        *places[i] = base == NULL ? NULL : base + at;
        at += (sizes[i] + 15) / 16 * 16;
    }
    scratch->gemm = base == NULL ? NULL : base + at;
    int64_t first = gemm_scratch(a->queries, keys, a->size, threads);
    int64_t second = gemm_scratch(a->queries, a->value_size, keys, threads);
    return at * (int64_t)sizeof(float) + (first > second ? first : second);
}

int64_t attend_workspace(const Attend *attend, unsigned threads)
{
    Scratch scratch;
    return scratch_plan(attend, threads, NULL, &scratch) + 64;
}

/* --- one row of scores --- */

/* The keys that a query may see whatever the mask says: [first, last). */
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
    if (a->right >= 0 && end > place + a->right + 1) {
        end = place + a->right + 1;
    }
    if (a->mask.data != NULL && end > a->mask_keys) {
        end = a->mask_keys;
    }
    *first = a->left >= 0 && place - a->left > 0 ? place - a->left : 0;
    *last = end > *first ? end : *first;
}

static void scores_put(
    const Attend *a, int which, int64_t batch, int64_t head, int64_t query, const float *scores)
{
    if (a->scores.data != NULL && a->scores_are == which) {
        convert(row_at(&a->scores, batch, head, query), a->scores.type, scores, ACL_FLOAT, 1,
            a->past + a->fresh);
    }
}

/* Adds the mask in [first, last); whether any key there is seen at all. */
static bool mask_add(const Attend *a, const char *mask, int64_t first, int64_t last, float *scores)
{
    Tensor row = {.type = a->mask.type, .data = (void *)(uintptr_t)mask};
    bool any = false;
    for (int64_t j = first; j < last; j++) {
        int64_t at = j * a->mask_column;
        float add = row.type == ACL_FLOAT ? ((const float *)row.data)[at]
            : row.type == ACL_BOOL ? (((const uint8_t *)row.data)[at] != 0 ? 0.0F : -INFINITY)
                                   : (float)tensor_get_real(&row, at);
        any = any || !isinf(add) || add > 0;
        scores[j] = isinf(add) && add < 0 ? add : scores[j] + add;
    }
    return any;
}

WIDE static void row_softmax(float *scores, int64_t keys)
{
    float top = -INFINITY, sum = 0.0F;
    for (int64_t j = 0; j < keys; j++) {
        top = scores[j] > top ? scores[j] : top;
    }
    top = top == -INFINITY ? 0.0F : top;
    for (int64_t j = 0; j < keys; j++) {
        scores[j] = exp_fast(scores[j] - top);
    }
    for (int64_t j = 0; j < keys; j++) {
        sum += scores[j];
    }
    float scale = sum == 0.0F ? 0.0F : 1.0F / sum;
    for (int64_t j = 0; j < keys; j++) {
        scores[j] *= scale;
    }
}

static void row_finish(const Attend *a, int64_t batch, int64_t head, int64_t query, float *scores)
{
    int64_t keys = a->past + a->fresh, first, last;
    scores_put(a, SCORES_RAW, batch, head, query, scores);
    if (a->softcap > 0.0) {
        float cap = (float)a->softcap;
        for (int64_t j = 0; j < keys; j++) {
            scores[j] = cap * tanh_fast(scores[j] / cap);
        }
    }
    scores_put(a, SCORES_CAPPED, batch, head, query, scores);
    keys_seen(a, batch, query, &first, &last);
    for (int64_t j = 0; j < keys; j++) {
        scores[j] = j < first || j >= last ? -INFINITY : scores[j];
    }
    bool any = last > first;
    if (a->mask.data != NULL) {
        any = mask_add(a, row_at(&a->mask, batch, head, query), first, last, scores);
    }
    scores_put(a, SCORES_BIASED, batch, head, query, scores);
    if (any) {
        row_softmax(scores, keys);
    } else {
        memset(scores, 0, (size_t)keys * sizeof *scores); /* nobody to attend to: zeros */
    }
    scores_put(a, SCORES_SOFTMAX, batch, head, query, scores);
}

/* --- one head --- */

static void kv_load(const Attend *a, int64_t batch, int64_t head, const Scratch *s)
{
    if (a->past > 0) {
        rows_load(&a->past_k, batch, head, a->past, a->size, s->k);
        rows_load(&a->past_v, batch, head, a->past, a->value_size, s->v);
    }
    rows_load(&a->k, batch, head, a->fresh, a->size, s->k + a->past * a->size);
    rows_load(&a->v, batch, head, a->fresh, a->value_size, s->v + a->past * a->value_size);
}

static void head_run(
    const Attend *a, int64_t batch, int64_t head, const Scratch *s, unsigned threads)
{
    int64_t keys = a->past + a->fresh;
    Gemm scores = {
        .m = a->queries, .n = keys, .k = a->size, .a = s->q, .a_type = ACL_FLOAT,
        .a_row = a->size, .a_column = 1, .b = s->k, .b_type = ACL_FLOAT, .b_row = 1,
        .b_column = a->size, .c = s->scores, .c_row = keys, .alpha = (float)a->scale,
    };
    Gemm values = {
        .m = a->queries, .n = a->value_size, .k = keys, .a = s->scores, .a_type = ACL_FLOAT,
        .a_row = keys, .a_column = 1, .b = s->v, .b_type = ACL_FLOAT, .b_row = a->value_size,
        .b_column = 1, .c = s->out, .c_row = a->value_size, .alpha = 1.0F,
    };
    rows_load(&a->q, batch, head, a->queries, a->size, s->q);
    gemm_run(&scores, s->gemm, threads);
    for (int64_t i = 0; i < a->queries; i++) {
        row_finish(a, batch, head, i, s->scores + i * keys);
    }
    gemm_run(&values, s->gemm, threads);
    for (int64_t i = 0; i < a->queries; i++) {
        convert(row_at(&a->out, batch, head, i), a->out.type, s->out + i * a->value_size,
            ACL_FLOAT, 1, a->value_size);
    }
}

void attend_run(const Attend *attend, void *workspace, unsigned threads)
{
    Scratch scratch;
    uintptr_t base = ((uintptr_t)workspace + 63) / 64 * 64;
    (void)scratch_plan(attend, threads, (float *)base, &scratch);
    int64_t together = attend->kv_heads == 0 ? 1 : attend->heads / attend->kv_heads;
    for (int64_t at = 0; at < attend->batches * attend->heads; at++) {
        int64_t batch = at / attend->heads, head = at % attend->heads;
        if (head % together == 0) {
            kv_load(attend, batch, head / together, &scratch);
        }
        head_run(attend, batch, head, &scratch, threads);
    }
}
