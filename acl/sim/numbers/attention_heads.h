/* attention_heads.h: the arithmetic of attention.c on rows of REAL; attention.c includes it once
   for float and once for double. Before that it defines REAL, REAL_TYPE (its aclDataType),
   REAL_IS_DOUBLE, NAME(x), EXP and TANH. There is no include guard, because the file is included
   twice. */

typedef struct NAME(Scratch) {
    REAL *q, *k, *v, *scores, *out;
    void *gemm;
} NAME(Scratch);

#if REAL_IS_DOUBLE
static void NAME(scores_multiply)(const Attend *a, const NAME(Scratch) *s, unsigned threads)
{
    int64_t keys = a->past + a->fresh;
    (void)threads;
    for (int64_t i = 0; i < a->queries * a->size; i++) {
        s->q[i] *= a->scale;
    }
    exact_run(&(Exact){.m = a->queries, .n = keys, .k = a->size, .type = ACL_DOUBLE, .a = s->q,
        .a_row = a->size, .a_column = 1, .b = s->k, .b_row = 1, .b_column = a->size,
        .c = s->scores});
}

static void NAME(values_multiply)(const Attend *a, const NAME(Scratch) *s, unsigned threads)
{
    int64_t keys = a->past + a->fresh;
    (void)threads;
    exact_run(&(Exact){.m = a->queries, .n = a->value_size, .k = keys, .type = ACL_DOUBLE,
        .a = s->scores, .a_row = keys, .a_column = 1, .b = s->v, .b_row = a->value_size,
        .b_column = 1, .c = s->out});
}
#else
static void NAME(scores_multiply)(const Attend *a, const NAME(Scratch) *s, unsigned threads)
{
    int64_t keys = a->past + a->fresh;
    Gemm scores = {
        .m = a->queries, .n = keys, .k = a->size, .a = s->q, .a_type = ACL_FLOAT,
        .a_row = a->size, .a_column = 1, .b = s->k, .b_type = ACL_FLOAT, .b_row = 1,
        .b_column = a->size, .c = s->scores, .c_row = keys, .alpha = (float)a->scale,
    };
    gemm_run(&scores, s->gemm, threads);
}

static void NAME(values_multiply)(const Attend *a, const NAME(Scratch) *s, unsigned threads)
{
    int64_t keys = a->past + a->fresh;
    Gemm values = {
        .m = a->queries, .n = a->value_size, .k = keys, .a = s->scores, .a_type = ACL_FLOAT,
        .a_row = keys, .a_column = 1, .b = s->v, .b_type = ACL_FLOAT, .b_row = a->value_size,
        .b_column = 1, .c = s->out, .c_row = a->value_size, .alpha = 1.0F,
    };
    gemm_run(&values, s->gemm, threads);
}
#endif

static int64_t NAME(scratch_plan)(const Attend *a, REAL *base, NAME(Scratch) *scratch)
{
    int64_t keys = a->past + a->fresh, at = 0;
    int64_t sizes[] = {a->queries * a->size, keys * a->size, keys * a->value_size,
        a->queries * keys, a->queries * a->value_size};
    REAL **places[] = {&scratch->q, &scratch->k, &scratch->v, &scratch->scores, &scratch->out};
    for (int i = 0; i < 5; i++) {
        *places[i] = base == NULL ? NULL : base + at;
        at += (sizes[i] + 15) / 16 * 16;
    }
    scratch->gemm = base == NULL ? NULL : base + at;
    return at * (int64_t)sizeof(REAL) + products_scratch(a);
}


static void NAME(rows_load)(const Heads *heads, int64_t batch, int64_t head, int64_t count, int64_t size,
    REAL *to)
{
    for (int64_t i = 0; i < count; i++) {
        convert(to + i * size, REAL_TYPE, row_at(heads, batch, head, i), heads->type, 1, size);
    }
}

static void NAME(scores_put)(
    const Attend *a, int which, int64_t batch, int64_t head, int64_t query, const REAL *scores)
{
    if (a->scores.data != NULL && a->scores_are == which) {
        convert(row_at(&a->scores, batch, head, query), a->scores.type, scores, REAL_TYPE, 1,
            a->past + a->fresh);
    }
}

/* Adds the mask to the scores in [first, last). Returns true if at least one of these keys is seen. */
static bool NAME(mask_add)(const Attend *a, const char *mask, int64_t first, int64_t last, REAL *scores)
{
    Tensor row = {.type = a->mask.type, .data = (void *)(uintptr_t)mask};
    bool any = false;
    for (int64_t j = first; j < last; j++) {
        int64_t at = j * a->mask_column;
        REAL add = row.type == ACL_FLOAT ? (REAL)((const float *)row.data)[at]
            : row.type == ACL_BOOL ? (((const uint8_t *)row.data)[at] != 0 ? (REAL)0.0 : -INFINITY)
                                   : (REAL)tensor_get_real(&row, at);
        any = any || !isinf(add) || add > 0;
        scores[j] = isinf(add) && add < 0 ? add : scores[j] + add;
    }
    return any;
}

WIDE static void NAME(row_softmax)(REAL *scores, int64_t keys)
{
    REAL top = -INFINITY, sum = (REAL)0.0;
    for (int64_t j = 0; j < keys; j++) {
        top = scores[j] > top ? scores[j] : top;
    }
    top = top == -INFINITY ? (REAL)0.0 : top;
    for (int64_t j = 0; j < keys; j++) {
        scores[j] = EXP(scores[j] - top);
    }
    for (int64_t j = 0; j < keys; j++) {
        sum += scores[j];
    }
    REAL scale = sum == (REAL)0.0 ? (REAL)0.0 : (REAL)1.0 / sum;
    for (int64_t j = 0; j < keys; j++) {
        scores[j] *= scale;
    }
}

static void NAME(row_finish)(const Attend *a, int64_t batch, int64_t head, int64_t query, REAL *scores)
{
    int64_t keys = a->past + a->fresh, first, last;
    NAME(scores_put)(a, SCORES_RAW, batch, head, query, scores);
    if (a->softcap > 0.0) {
        REAL cap = (REAL)a->softcap;
        for (int64_t j = 0; j < keys; j++) {
            scores[j] = cap * TANH(scores[j] / cap);
        }
    }
    NAME(scores_put)(a, SCORES_CAPPED, batch, head, query, scores);
    keys_seen(a, batch, query, &first, &last);
    for (int64_t j = 0; j < keys; j++) {
        scores[j] = j < first || j >= last ? -INFINITY : scores[j];
    }
    bool any = last > first;
    if (a->mask.data != NULL) {
        any = NAME(mask_add)(a, row_at(&a->mask, batch, head, query), first, last, scores);
    }
    NAME(scores_put)(a, SCORES_BIASED, batch, head, query, scores);
    if (any) {
        NAME(row_softmax)(scores, keys);
    } else {
        memset(scores, 0, (size_t)keys * sizeof *scores); /* no key is seen: the result is zero */
    }
    NAME(scores_put)(a, SCORES_SOFTMAX, batch, head, query, scores);
}

/* --- one head --- */

static void NAME(kv_load)(const Attend *a, int64_t batch, int64_t head, const NAME(Scratch) *s)
{
    if (a->past > 0) {
        NAME(rows_load)(&a->past_k, batch, head, a->past, a->size, s->k);
        NAME(rows_load)(&a->past_v, batch, head, a->past, a->value_size, s->v);
    }
    NAME(rows_load)(&a->k, batch, head, a->fresh, a->size, s->k + a->past * a->size);
    NAME(rows_load)(&a->v, batch, head, a->fresh, a->value_size, s->v + a->past * a->value_size);
}

static void NAME(head_run)(
    const Attend *a, int64_t batch, int64_t head, const NAME(Scratch) *s, unsigned threads)
{
    int64_t keys = a->past + a->fresh;
    NAME(rows_load)(&a->q, batch, head, a->queries, a->size, s->q);
    NAME(scores_multiply)(a, s, threads);
    for (int64_t i = 0; i < a->queries; i++) {
        NAME(row_finish)(a, batch, head, i, s->scores + i * keys);
    }
    NAME(values_multiply)(a, s, threads);
    for (int64_t i = 0; i < a->queries; i++) {
        convert(row_at(&a->out, batch, head, i), a->out.type, s->out + i * a->value_size,
            REAL_TYPE, 1, a->value_size);
    }
}

static void NAME(heads_run)(const Attend *attend, void *workspace, unsigned threads)
{
    NAME(Scratch) scratch;
    (void)NAME(scratch_plan)(attend, workspace, &scratch);
    int64_t together = attend->kv_heads == 0 ? 1 : attend->heads / attend->kv_heads;
    for (int64_t at = 0; at < attend->batches * attend->heads; at++) {
        int64_t batch = at / attend->heads, head = at % attend->heads;
        if (head % together == 0) {
            NAME(kv_load)(attend, batch, head / together, &scratch);
        }
        NAME(head_run)(attend, batch, head, &scratch, threads);
    }
}

#undef REAL
#undef REAL_TYPE
#undef REAL_IS_DOUBLE
#undef NAME
#undef EXP
#undef TANH
