/* op_gqa.c: GroupQueryAttention of com.microsoft: several query heads share a key head; rows may be rotated by
   their position; the number of used rows in the cache of keys and values may differ for each batch.

   The returned cache has as many rows as the given cache, or as the longest batch if that is more; unused rows are
   zero. heads_accept in op_attention_ms.c refuses the variants that are not supported, when the model is loaded. */
#include "numbers/attention.h"
#include "ops/op.h"
#include "numbers/rope.h"

#include <math.h>
#include <string.h>

enum { Q, K, V, PAST_K, PAST_V, LENGTHS, TOTAL, COSINE, SINE, PLACES, ADD };

typedef struct Plan {
    Attend attend;
    int64_t cache;              /* number of rows of the given cache, for each batch and head */
    int64_t present;            /* number of rows of the returned cache, for each batch and head */
    bool packed;                /* true: input 0 contains queries, keys and values */
    bool first;                 /* true: there are no keys of earlier calls */
    Rotary rotary;              /* if `half` is 0, rows are not rotated */
    int64_t table;              /* number of rows in the tables of cosines and sines */
} Plan;

static bool shape_fail(const OpCall *call, int input, const char *expected)
{
    char text[128];
    return op_fail(call, "input %d: expected %s, got shape %s", input, expected,
        shape_text(call->inputs[input], text, sizeof text));
}

static bool rows_plan(const OpCall *call, Plan *plan)
{
    Attend *a = &plan->attend;
    const Tensor *q = call->inputs[Q], *k = op_input(call, K), *v = op_input(call, V);
    plan->packed = k == NULL;
    a->heads = attr_int(call, "num_heads", 1);
    a->kv_heads = attr_int(call, "kv_num_heads", 1);
    int64_t all = plan->packed ? a->heads + 2 * a->kv_heads : a->heads;
    if (q->rank != 3 || !type_is_float(q->type) || q->dims[2] % all != 0
        || a->heads % a->kv_heads != 0) {
        return shape_fail(call, Q, "floats [batch, row, heads * size]");
    }
    a->batches = q->dims[0];
    a->queries = q->dims[1];
    a->size = a->value_size = q->dims[2] / all;
    bool fits = plan->packed
        || (v != NULL && tensor_same_shape(k, v) && k->rank == 3 && k->dims[0] == a->batches
            && k->dims[1] == a->queries && k->dims[2] == a->kv_heads * a->size);
    return fits || shape_fail(call, K, "keys and values for the rows of input 0");
}

static bool cache_plan(const OpCall *call, Plan *plan)
{
    Attend *a = &plan->attend;
    const Tensor *lengths = call->inputs[LENGTHS], *total = call->inputs[TOTAL];
    const Tensor *past = op_input(call, PAST_K), *past_v = op_input(call, PAST_V);
    if (tensor_count(lengths) != a->batches || tensor_count(total) != 1) {
        return shape_fail(call, LENGTHS, "a length for each batch, and one total");
    }
    int64_t keys = tensor_get_int(total, 0);
    plan->cache = past == NULL || past->rank != 4 ? 0 : past->dims[2];
    if (past != NULL
        && (past->rank != 4 || past_v == NULL || !tensor_same_shape(past, past_v)
            || past->dims[0] != a->batches || past->dims[1] != a->kv_heads
            || past->dims[3] != a->size || past->type != call->inputs[Q]->type)) {
        return shape_fail(call, PAST_K, "a cache [batch, head, row, size], and one of values");
    }
    plan->first = keys == a->queries;
    plan->present = plan->cache > keys ? plan->cache : keys;
    a->fresh = plan->present;
    return keys >= a->queries
        || op_fail(call, "input 6: a total of %lld is less than the rows of input 0",
            (long long)keys);
}

static bool turn_plan(const OpCall *call, Plan *plan)
{
    const Tensor *cosine = op_input(call, COSINE), *sine = op_input(call, SINE);
    if (attr_int(call, "do_rotary", 0) == 0) {
        return true;
    }
    if (cosine == NULL || sine == NULL || cosine->rank != 2 || !tensor_same_shape(cosine, sine)
        || 2 * cosine->dims[1] > plan->attend.size) {
        return op_fail(call, "inputs 7 and 8: expected tables of cosines and sines");
    }
    plan->table = cosine->dims[0];
    plan->rotary = (Rotary){.size = plan->attend.size, .half = cosine->dims[1],
        .interleaved = attr_int(call, "rotary_interleaved", 0) != 0};
    const Tensor *places = op_input(call, PLACES);
    return places == NULL || tensor_count(places) == plan->attend.batches * plan->attend.queries
        || shape_fail(call, PLACES, "a place for each row");
}

static bool add_plan(const OpCall *call, Plan *plan)
{
    Attend *a = &plan->attend;
    const Tensor *add = op_input(call, ADD);
    if (add == NULL) {
        return true;
    }
    if (add->rank != 4 || (add->dims[0] != 1 && add->dims[0] != a->batches)
        || (add->dims[1] != 1 && add->dims[1] != a->heads) || add->dims[2] != a->queries) {
        return shape_fail(call, ADD, "[batch or 1, head or 1, query, key]");
    }
    int64_t row = add->dims[3], plane = row * add->dims[2];
    a->mask = (Heads){add->data, add->type, add->dims[0] == 1 ? 0 : add->dims[1] * plane,
        add->dims[1] == 1 ? 0 : plane, row};
    a->mask_column = 1;
    a->mask_keys = row;
    return true;
}

static bool group_plan(const OpCall *call, Plan *plan)
{
    Attend *a = &plan->attend;
    *plan = (Plan){.attend = {.right = -1, .causal = true}};
    if (op_input(call, LENGTHS) == NULL || op_input(call, TOTAL) == NULL) {
        return op_fail(call, "inputs 5 and 6 are required: the lengths and their total");
    }
    if (!rows_plan(call, plan) || !cache_plan(call, plan) || !turn_plan(call, plan)
        || !add_plan(call, plan)) {
        return false;
    }
    int64_t window = attr_int(call, "local_window_size", -1);
    a->left = window > 0 ? window - 1 : -1;
    a->softcap = attr_float(call, "softcap", 0.0);
    a->scale = attr_float(call, "scale", 0.0);
    a->scale = a->scale != 0.0 ? a->scale : 1.0 / sqrt((double)(a->size > 0 ? a->size : 1));
    a->lengths = call->inputs[LENGTHS];
    a->lengths_extra = 1;
    a->offset_by_length = !plan->first;
    return true;
}

static bool group_infer(OpCall *call)
{
    Plan plan;
    if (!group_plan(call, &plan)) {
        return false;
    }
    const Attend *a = &plan.attend;
    aclDataType type = call->inputs[Q]->type;
    call->outputs[0] = (Tensor){.type = type, .rank = 3, .data = call->outputs[0].data,
        .dims = {a->batches, a->queries, a->heads * a->size}};
    for (int i = 1; i < call->output_count; i++) {
        call->outputs[i] = (Tensor){.type = type, .rank = 4, .data = call->outputs[i].data,
            .dims = {a->batches, a->kv_heads, plan.present, a->size}};
    }
    return true;
}

/* --- the workspace: queries, cached keys and values, tables, and the scratch memory of attend_run --- */

typedef struct Carved {
    float *q, *k, *v, *cosine, *sine, *row;
    char *scratch;
    int64_t bytes;
} Carved;

static Carved workspace_carve(const Plan *plan, char *base)
{
    const Attend *a = &plan->attend;
    Carved carved = {0};
    int64_t kept = a->batches * a->kv_heads * plan->present * a->size, at = 0;
    int64_t turns = plan->rotary.half * plan->table;
    int64_t counts[] = {a->batches * a->heads * a->queries * a->size, kept, kept, turns, turns,
        2 * a->size};
    float **parts[] = {&carved.q, &carved.k, &carved.v, &carved.cosine, &carved.sine, &carved.row};
    for (int i = 0; i < 6; i++) {
        *parts[i] = base == NULL ? NULL : (float *)(void *)(base + at);
        at += (counts[i] * (int64_t)sizeof(float) + 63) / 64 * 64;
    }
    carved.scratch = base == NULL ? NULL : base + at;
    carved.bytes = at + attend_workspace(a);
    return carved;
}

static int64_t group_workspace(const OpCall *call)
{
    Plan plan;
    return group_plan(call, &plan) ? workspace_carve(&plan, NULL).bytes : 0;
}

/* --- running --- */

/* Returns how many rows of the cache of a batch earlier calls have filled. */
static int64_t past_rows(const OpCall *call, const Plan *plan, int64_t batch)
{
    int64_t before = plan->first ? 0
        : tensor_get_int(call->inputs[LENGTHS], batch) + 1 - plan->attend.queries;
    return before;
}

/* Loads one row of a head as float32, and rotates it if `turned`. Returns false, with a message, if the tables have no
   such position. */
static bool row_turn(const OpCall *call, const Plan *plan, const Carved *carved, const char *from,
    int64_t batch, int64_t row, bool turned, float *to)
{
    const Tensor *places = op_input(call, PLACES);
    int64_t place = places == NULL
        ? past_rows(call, plan, batch) + row
        : tensor_get_int(places, batch * plan->attend.queries + row);
    if (!turned || plan->rotary.half == 0) {
        convert(to, ACL_FLOAT, from, call->inputs[Q]->type, 1, plan->attend.size);
        return true;
    }
    if (place < 0 || place >= plan->table) {
        return op_fail(call, "index %lld is outside a dimension of %lld", (long long)place,
            (long long)plan->table);
    }
    convert(carved->row, ACL_FLOAT, from, call->inputs[Q]->type, 1, plan->attend.size);
    rotary_row(&plan->rotary, place, carved->row, to);
    return true;
}

/* Returns the address of a row of a head in the inputs; `which`: 0 queries, 1 keys, 2 values. */
static const char *row_from(
    const OpCall *call, const Plan *plan, int which, int64_t batch, int64_t head, int64_t row)
{
    const Attend *a = &plan->attend;
    const Tensor *in = call->inputs[plan->packed ? Q : which];
    int64_t before = !plan->packed || which == 0 ? 0 : a->heads + (which == 2 ? a->kv_heads : 0);
    int64_t at = (batch * a->queries + row) * in->dims[2] + (before + head) * a->size;
    return (const char *)in->data + at * type_size(in->type);
}

static bool queries_load(const OpCall *call, const Plan *plan, const Carved *carved)
{
    const Attend *a = &plan->attend;
    for (int64_t i = 0; i < a->batches * a->heads * a->queries; i++) {
        int64_t b = i / (a->heads * a->queries), h = i / a->queries % a->heads, r = i % a->queries;
        if (!row_turn(call, plan, carved, row_from(call, plan, 0, b, h, r), b, r, true,
                carved->q + i * a->size)) {
            return false;
        }
    }
    return true;
}

/* Copies the keys or values (`which` 1 or 2) of the given cache and of this call to `to`, as float32. */
static bool cache_load(
    const OpCall *call, const Plan *plan, const Carved *carved, int which, float *to)
{
    const Attend *a = &plan->attend;
    const Tensor *past = op_input(call, which == 1 ? PAST_K : PAST_V);
    memset(to, 0, (size_t)(a->batches * a->kv_heads * plan->present * a->size) * sizeof *to);
    for (int64_t head = 0; head < a->batches * a->kv_heads; head++) {
        int64_t b = head / a->kv_heads, before = past_rows(call, plan, b);
        float *rows = to + head * plan->present * a->size;
        if (before < 0 || before > plan->cache || before + a->queries > plan->present) {
            return op_fail(call, "input 5: a length of %lld does not fit a cache of %lld rows",
                (long long)(before + a->queries), (long long)plan->present);
        }
        if (before > 0) {
            const char *from = (const char *)past->data
                + head * plan->cache * a->size * type_size(past->type);
            convert(rows, ACL_FLOAT, from, past->type, 1, before * a->size);
        }
        for (int64_t r = 0; r < a->queries; r++) {
            if (!row_turn(call, plan, carved, row_from(call, plan, which, b, head % a->kv_heads, r),
                    b, r, which == 1, rows + (before + r) * a->size)) {
                return false;
            }
        }
    }
    return true;
}

static Heads heads_made(float *data, int64_t heads, int64_t rows, int64_t size)
{
    return (Heads){(char *)data, ACL_FLOAT, heads * rows * size, rows * size, size};
}

static bool group_run(const OpCall *call)
{
    Plan plan;
    if (!group_plan(call, &plan)) {
        return false;
    }
    Attend *a = &plan.attend;
    Carved carved = workspace_carve(&plan, call->workspace);
    int64_t turns = plan.rotary.half * plan.table;
    if (turns > 0) {
        convert(carved.cosine, ACL_FLOAT, call->inputs[COSINE]->data, call->inputs[COSINE]->type,
            1, turns);
        convert(carved.sine, ACL_FLOAT, call->inputs[SINE]->data, call->inputs[SINE]->type, 1,
            turns);
    }
    plan.rotary.cosine = carved.cosine;
    plan.rotary.sine = carved.sine;
    if (!queries_load(call, &plan, &carved) || !cache_load(call, &plan, &carved, 1, carved.k)
        || !cache_load(call, &plan, &carved, 2, carved.v)) {
        return false;
    }
    for (int i = 1; i < 3 && i < call->output_count; i++) {
        if (call->outputs[i].data != NULL) {
            convert(call->outputs[i].data, call->outputs[i].type, i == 1 ? carved.k : carved.v,
                ACL_FLOAT, 1, tensor_count(&call->outputs[i]));
        }
    }
    a->q = heads_made(carved.q, a->heads, a->queries, a->size);
    a->k = heads_made(carved.k, a->kv_heads, plan.present, a->size);
    a->v = heads_made(carved.v, a->kv_heads, plan.present, a->size);
    a->out = heads_of(&call->outputs[0], a->heads);
    attend_run(a, carved.scratch, call->threads);
    return true;
}

const OpKind ops_group[] = {
    {"GroupQueryAttention", OP_ORT, 1, 11, 3, 1 << TOTAL, group_infer, group_workspace, group_run,
        0, 0},
    {0},
};
