/* op_attention_ms.c: Attention and MultiHeadAttention of com.microsoft, which ONNX Runtime's optimiser makes.

   Attention computes queries, keys and values by a product with a matrix of weights; MultiHeadAttention gets
   them as three tensors, and a bias. A large negative number is added to masked scores, as in ONNX Runtime. When
   the model is loaded, these variants are refused: caches that share a buffer with the past keys, sinks, quantised
   caches, and beam search. */
#include "numbers/attention.h"
#include "numbers/gemm.h"
#include "ops/op.h"
#include "numbers/rope.h"

#include <math.h>
#include <string.h>

enum { PROJECTED, MULTI };

/* The indices of the inputs, by variant; -1: the variant has no such input. */
static const struct Places {
    int bias, mask, add, past, past_v;
} places[] = {
    [PROJECTED] = {2, 3, 5, 4, -1},
    [MULTI] = {3, 4, 5, 6, 7},
};

typedef struct Plan {
    Attend attend;
    int64_t sizes[3];           /* number of elements in a row of queries, keys and values, all heads together */
    bool copied;                /* queries, keys and values are computed in the workspace */
    const Tensor *bias, *mask, *add, *past, *past_v;
    int64_t mask_heads;         /* number of heads of the mask in the workspace; 0: there is no mask */
} Plan;

static bool shape_fail(const OpCall *call, int input, const char *expected)
{
    char text[128];
    return op_fail(call, "input %d: expected %s, got shape %s", input, expected,
        shape_text(call->inputs[input], text, sizeof text));
}

/* --- what is refused at load --- */

static bool attr_zero(const OpCall *call, const char *name)
{
    return attr_int(call, name, 0) <= 0
        || op_fail(call, "attribute %s: only the default is supported", name);
}

bool heads_accept(const OpCall *call)
{
    static const char *const switches[] = {
        "do_rotary", "past_present_share_buffer", "smooth_softmax", "qk_output", "sliding_window",
    };
    bool group = strcmp(call->kind->name, "GroupQueryAttention") == 0;
    int most = group ? 11 : call->kind->variant == MULTI ? 8 : 6;
    for (size_t i = group ? 1 : 0; i < sizeof switches / sizeof switches[0]; i++) {
        if (!attr_zero(call, switches[i])) {
            return false;
        }
    }
    if (strcmp(attr_string(call, "k_quant_type", "NONE"), "NONE") != 0
        || strcmp(attr_string(call, "v_quant_type", "NONE"), "NONE") != 0) {
        return op_fail(call, "attributes k_quant_type and v_quant_type: only NONE is supported");
    }
    if (call->input_count > most) {
        return op_fail(call, "inputs from %d on are not supported", most);
    }
    if (attr_int(call, "num_heads", 0) < 1 || (group && attr_int(call, "kv_num_heads", 0) < 1)) {
        return op_fail(call, "attribute %s: expected at least 1",
            attr_int(call, "num_heads", 0) < 1 ? "num_heads" : "kv_num_heads");
    }
    return true;
}

/* --- shapes --- */

static bool projected_plan(const OpCall *call, Plan *plan)
{
    Attend *a = &plan->attend;
    const Tensor *in = call->inputs[0], *weights = call->inputs[1];
    IntList sizes;
    if (in->rank != 3 || weights->rank != 2 || weights->dims[0] != in->dims[2]) {
        return shape_fail(call, 1, "a matrix for rows of input 0");
    }
    if (!op_ints(call, "qkv_hidden_sizes", -1, &sizes)) {
        return false;
    }
    for (int i = 0; i < 3; i++) {
        plan->sizes[i] = sizes.count == 3 ? sizes.values[i] : weights->dims[1] / 3;
    }
    if (plan->sizes[0] != plan->sizes[1] || plan->sizes[0] < 1 || plan->sizes[2] < 1
        || plan->sizes[0] + plan->sizes[1] + plan->sizes[2] != weights->dims[1]) {
        return shape_fail(call, 1, "columns for queries, keys and values");
    }
    plan->copied = true;
    a->batches = in->dims[0];
    a->queries = a->fresh = in->dims[1];
    return true;
}

/* Plans keys and values, which are two tensors of three or four dimensions, or one tensor that contains both. */
static bool keys_plan(const OpCall *call, Plan *plan)
{
    Attend *a = &plan->attend;
    const Tensor *k = call->inputs[1], *v = op_input(call, 2);
    if (k->rank == 5) {
        a->fresh = k->dims[1];
        plan->sizes[1] = plan->sizes[2] = k->dims[2] * k->dims[4];
        return (v == NULL && k->dims[3] == 2) || shape_fail(call, 1, "[batch, row, head, 2, size]");
    }
    if (v == NULL || v->rank != k->rank || (k->rank != 3 && k->rank != 4)
        || v->dims[0] != a->batches || k->dims[0] != a->batches
        || v->dims[k->rank == 3 ? 1 : 2] != k->dims[k->rank == 3 ? 1 : 2]) {
        return shape_fail(
            call, 1, "keys and values of three or four dimensions each, of one length");
    }
    a->fresh = k->dims[k->rank == 3 ? 1 : 2];
    plan->sizes[1] = k->rank == 3 ? k->dims[2] : k->dims[1] * k->dims[3];
    plan->sizes[2] = k->rank == 3 ? v->dims[2] : v->dims[1] * v->dims[3];
    return true;
}

static bool multi_plan(const OpCall *call, Plan *plan)
{
    Attend *a = &plan->attend;
    const Tensor *q = call->inputs[0];
    a->batches = q->dims[0];
    a->queries = a->fresh = q->dims[1];
    if (op_input(call, 1) != NULL) {
        plan->sizes[0] = q->dims[q->rank - 1];
        return q->rank == 3 ? keys_plan(call, plan) : shape_fail(call, 0, "three dimensions");
    }
    if (q->rank != 5 || q->dims[3] != 3) {
        return shape_fail(call, 0, "[batch, row, head, 3, size] without input 1");
    }
    plan->sizes[0] = plan->sizes[1] = plan->sizes[2] = q->dims[2] * q->dims[4];
    return true;
}

static bool past_plan(const OpCall *call, Plan *plan)
{
    Attend *a = &plan->attend;
    const struct Places *at = &places[call->kind->variant];
    bool both = at->past_v < 0; /* true: past keys and past values are in one tensor [2, batch, head, row, size] */
    plan->past = op_input(call, at->past);
    plan->past_v = op_input(call, at->past_v);
    if (plan->past == NULL) {
        return true;
    }
    int lead = both ? 1 : 0;
    const int64_t *dims = plan->past->dims + lead;
    a->past = plan->past->rank == 4 + lead ? dims[2] : -1;
    bool fits = a->past >= 0 && dims[0] == a->batches && dims[1] == a->heads && dims[3] == a->size
        && (both ? plan->past->dims[0] == 2 && a->size == a->value_size
                 : plan->past_v != NULL && plan->past_v->rank == 4
                    && plan->past_v->dims[2] == a->past && plan->past_v->dims[3] == a->value_size
                    && plan->past_v->dims[0] == a->batches && plan->past_v->dims[1] == a->heads);
    return fits || shape_fail(call, at->past, "what is past, [batch, head, row, size]");
}

/* Plans the masks. The padding mask has the shape [batch], [batch, key] or [batch, query, key]. The tensor that is
   added to the scores has the shape [batch, head, query, key]; its first two dimensions may be 1. */
static bool masks_plan(const OpCall *call, Plan *plan)
{
    const Attend *a = &plan->attend;
    const struct Places *at = &places[call->kind->variant];
    int64_t keys = a->past + a->fresh;
    plan->mask = op_input(call, at->mask);
    plan->add = op_input(call, at->add);
    plan->mask_heads = plan->mask != NULL || plan->add != NULL;
    const Tensor *m = plan->mask, *add = plan->add;
    bool fits = m == NULL || (m->rank == 1 && m->dims[0] == a->batches)
        || (m->rank == 2 && m->dims[0] == a->batches && m->dims[1] == keys)
        || (m->rank == 3 && m->dims[0] == a->batches && m->dims[1] == a->queries
            && m->dims[2] == keys);
    if (!fits || (m != NULL && !type_is_integer(m->type))) {
        return shape_fail(call, at->mask, "integers [batch], [batch, key] or [batch, query, key]");
    }
    if (add == NULL) {
        return true;
    }
    plan->mask_heads = add->rank == 4 ? add->dims[1] : 0;
    fits = add->rank == 4 && (add->dims[0] == 1 || add->dims[0] == a->batches)
        && (add->dims[1] == 1 || add->dims[1] == a->heads) && add->dims[2] == a->queries
        && add->dims[3] == keys;
    return fits || shape_fail(call, at->add, "[batch or 1, head or 1, query, key]");
}

static bool heads_plan(const OpCall *call, Plan *plan)
{
    Attend *a = &plan->attend;
    bool projected = call->kind->variant == PROJECTED;
    *plan = (Plan){.attend = {.left = -1, .right = -1}};
    if (!type_is_float(call->inputs[0]->type)) {
        return op_fail(call, "input 0: %s is not defined for %s", call->kind->name,
            type_name(call->inputs[0]->type));
    }
    if (!(projected ? projected_plan(call, plan) : multi_plan(call, plan))) {
        return false;
    }
    a->heads = a->kv_heads = attr_int(call, "num_heads", 1);
    if (plan->sizes[0] % a->heads != 0 || plan->sizes[2] % a->heads != 0
        || plan->sizes[1] != plan->sizes[0]) {
        return op_fail(call, "%lld heads do not divide rows of %lld, %lld and %lld",
            (long long)a->heads, (long long)plan->sizes[0], (long long)plan->sizes[1],
            (long long)plan->sizes[2]);
    }
    a->size = plan->sizes[0] / a->heads;
    a->value_size = plan->sizes[2] / a->heads;
    a->scale = attr_float(call, "scale", 0.0);
    a->scale = a->scale != 0.0 ? a->scale : 1.0 / sqrt((double)(a->size > 0 ? a->size : 1));
    a->causal = attr_int(call, "unidirectional", 0) != 0;
    plan->bias = op_input(call, places[call->kind->variant].bias);
    plan->copied = plan->copied || plan->bias != NULL;
    int64_t numbers = plan->sizes[0] + plan->sizes[1] + plan->sizes[2];
    if (plan->bias != NULL && tensor_count(plan->bias) != numbers) {
        return shape_fail(call, places[call->kind->variant].bias, "a number for each column");
    }
    if (!past_plan(call, plan) || !masks_plan(call, plan)) {
        return false;
    }
    a->offset = a->past;
    return true;
}

static bool heads_infer(OpCall *call)
{
    Plan plan;
    if (!heads_plan(call, &plan)) {
        return false;
    }
    const Attend *a = &plan.attend;
    aclDataType type = call->inputs[0]->type;
    int64_t keys = a->past + a->fresh;
    for (int i = 0; i < call->output_count; i++) {
        void *data = call->outputs[i].data;
        call->outputs[i] = (Tensor){.type = type, .rank = 4, .data = data,
            .dims = {a->batches, a->heads, i == 3 ? a->queries : keys,
                i == 3 ? keys : i == 2 ? a->value_size : a->size}};
        if (i == 0) {
            call->outputs[0] = (Tensor){.type = type, .rank = 3, .data = data,
                .dims = {a->batches, a->queries, plan.sizes[2]}};
        } else if (call->kind->variant == PROJECTED) {
            call->outputs[i] = (Tensor){.type = type, .rank = 5, .data = data,
                .dims = {2, a->batches, a->heads, keys, a->size}};
        }
    }
    return true;
}

/* --- the workspace --- */

typedef struct Carved {
    float *rows[3];             /* queries, keys, values */
    float *mask, *bias;
    char *scratch;              /* memory for the product with the weights, and later for attend_run */
    int64_t bytes;
} Carved;

static float *carve(char *base, int64_t count, int64_t *at)
{
    float *part = base == NULL ? NULL : (float *)(void *)(base + *at);
    *at += (count * (int64_t)sizeof(float) + 63) / 64 * 64;
    return part;
}

static Carved workspace_carve(const OpCall *call, const Plan *plan, char *base)
{
    const Attend *a = &plan->attend;
    Carved carved;
    int64_t at = 0, all = plan->sizes[0] + plan->sizes[1] + plan->sizes[2];
    for (int i = 0; i < 3; i++) {
        int64_t rows = a->batches * (i == 0 ? a->queries : a->fresh);
        carved.rows[i] = carve(base, plan->copied ? rows * plan->sizes[i] : 0, &at);
    }
    carved.bias = carve(base, plan->bias == NULL ? 0 : all, &at);
    carved.mask = carve(base,
        a->batches * plan->mask_heads * a->queries * (a->past + a->fresh), &at);
    int64_t room = attend_workspace(a);
    if (call->kind->variant == PROJECTED) {
        int64_t most = plan->sizes[0] > plan->sizes[2] ? plan->sizes[0] : plan->sizes[2];
        int64_t product =
            gemm_scratch(a->batches * a->queries, most, call->inputs[1]->dims[0]);
        room = product > room ? product : room;
    }
    carved.scratch = base == NULL ? NULL : base + at;
    carved.bytes = at + room;
    return carved;
}

static int64_t heads_workspace(const OpCall *call)
{
    Plan plan;
    return heads_plan(call, &plan) ? workspace_carve(call, &plan, NULL).bytes : 0;
}

/* --- where the heads are in memory --- */

/* Computes the queries (`which` 0), keys (1) or values (2): the product of the input with some columns of the
 * weights. */
static void rows_project(const OpCall *call, const Plan *plan, int which, const Carved *carved)
{
    const Tensor *in = call->inputs[0], *weights = call->inputs[1];
    int64_t first = 0;
    for (int i = 0; i < which; i++) {
        first += plan->sizes[i];
    }
    Gemm gemm = {
        .m = in->dims[0] * in->dims[1], .n = plan->sizes[which], .k = weights->dims[0],
        .a = in->data, .a_type = in->type, .a_row = weights->dims[0], .a_column = 1,
        .b = (const char *)weights->data + first * type_size(weights->type),
        .b_type = weights->type, .b_row = weights->dims[1], .b_column = 1,
        .c = carved->rows[which], .c_row = plan->sizes[which], .alpha = 1.0F,
    };
    gemm_run(&gemm, carved->scratch, call->threads);
}

static void bias_add(const Plan *plan, int which, int64_t rows, const Carved *carved)
{
    int64_t first = 0, size = plan->sizes[which];
    for (int i = 0; i < which; i++) {
        first += plan->sizes[i];
    }
    for (int64_t r = 0; r < rows && plan->bias != NULL; r++) {
        for (int64_t j = 0; j < size; j++) {
            carved->rows[which][r * size + j] += carved->bias[first + j];
        }
    }
}

/* Describes the heads of one part (index `part`) of a packed tensor [batch, row, head, parts, size]. */
static Heads heads_packed(const Tensor *tensor, int part)
{
    const int64_t *dims = tensor->dims;
    return (Heads){(char *)tensor->data + part * dims[4] * type_size(tensor->type), tensor->type,
        dims[1] * dims[2] * dims[3] * dims[4], dims[3] * dims[4], dims[2] * dims[3] * dims[4]};
}

static Heads heads_given(const OpCall *call, const Plan *plan, int which)
{
    const Tensor *key = call->kind->variant == MULTI ? op_input(call, 1) : NULL;
    if (key == NULL) {
        return heads_packed(call->inputs[0], which);
    }
    if (which > 0 && key->rank == 5) {
        return heads_packed(key, which - 1);
    }
    return heads_of(call->inputs[which], plan->attend.heads);
}

/* Writes the queries, keys or values to the workspace as float32, computes them if needed, and adds the bias. */
static Heads heads_copied(const OpCall *call, const Plan *plan, int which, const Carved *carved)
{
    const Attend *a = &plan->attend;
    int64_t rows = which == 0 ? a->queries : a->fresh, size = plan->sizes[which];
    Tensor made = {.type = ACL_FLOAT, .rank = 3, .dims = {a->batches, rows, size},
        .data = carved->rows[which]};
    Heads to = heads_of(&made, a->heads);
    if (call->kind->variant == PROJECTED) {
        rows_project(call, plan, which, carved);
    } else {
        Heads from = heads_given(call, plan, which);
        int64_t width = size / a->heads, wide = type_size(from.type);
        for (int64_t i = 0; i < a->batches * a->heads * rows; i++) {
            int64_t b = i / (a->heads * rows), h = i / rows % a->heads, r = i % rows;
            convert((float *)(void *)to.data + b * to.batch + h * to.head + r * to.row, ACL_FLOAT,
                from.data + (b * from.batch + h * from.head + r * from.row) * wide, from.type, 1,
                width);
        }
    }
    bool done = which > 0 && call->kind->variant == MULTI && op_input(call, 1) != NULL
        && call->inputs[1]->rank == 4; /* keys and values of rank 4 contain the bias already */
    if (!done) {
        bias_add(plan, which, a->batches * rows, carved);
    }
    return to;
}

/* Returns the number that both masks together add to one score. `filter` is the number for a masked score. */
static float mask_value(const Plan *plan, int64_t batch, int64_t head, int64_t query, int64_t key,
    float filter)
{
    const Attend *a = &plan->attend;
    int64_t keys = a->past + a->fresh;
    const Tensor *m = plan->mask, *add = plan->add;
    float value = 0.0F;
    if (m != NULL && m->rank == 1) {
        value = key < tensor_get_int(m, batch) ? 0.0F : filter;
    } else if (m != NULL) {
        int64_t row = m->rank == 2 ? batch : batch * a->queries + query;
        value = tensor_get_int(m, row * keys + key) != 0 ? 0.0F : filter;
    }
    if (add != NULL) {
        int64_t b = add->dims[0] == 1 ? 0 : batch;
        value += (float)tensor_get_real(
            add, ((b * add->dims[1] + head) * a->queries + query) * keys + key);
    }
    return value;
}

static void mask_make(const OpCall *call, Plan *plan, float *to)
{
    Attend *a = &plan->attend;
    int64_t keys = a->past + a->fresh;
    float filter = (float)attr_float(call, "mask_filter_value", -10000.0);
    if (plan->mask_heads == 0) {
        return;
    }
    for (int64_t i = 0; i < a->batches * plan->mask_heads * a->queries * keys; i++) {
        int64_t key = i % keys, query = i / keys % a->queries, at = i / keys / a->queries;
        to[i] = mask_value(plan, at / plan->mask_heads, at % plan->mask_heads, query, key, filter);
    }
    int64_t plane = a->queries * keys;
    a->mask = (Heads){(char *)to, ACL_FLOAT, plan->mask_heads * plane,
        plan->mask_heads == 1 ? 0 : plane, keys};
    a->mask_column = 1;
    a->mask_keys = keys;
}

/* --- running --- */

/* Describes the heads of one half (index `part`) of a tensor [2, batch, head, row, size], or of a whole tensor
   [batch, head, row, size]. */
static Heads half_of(const Tensor *tensor, int part)
{
    Tensor half = *tensor;
    if (half.rank == 5) {
        half.rank = 4;
        memmove(half.dims, tensor->dims + 1, 4 * sizeof half.dims[0]);
        half.data = (char *)tensor->data + part * tensor_bytes(&half);
    }
    return heads_of(&half, 0);
}

/* Writes the past keys or values and behind them those of this call to the output, converted to its type. */
static void present_put(
    const Attend *a, const Heads *past, const Heads *fresh, int64_t size, const Heads *to)
{
    int64_t keys = a->past + a->fresh;
    for (int64_t i = 0; i < a->batches * a->heads * keys; i++) {
        int64_t b = i / (a->heads * keys), h = i / keys % a->heads, r = i % keys;
        const Heads *from = r < a->past ? past : fresh;
        int64_t row = r < a->past ? r : r - a->past;
        convert(to->data + (b * to->batch + h * to->head + r * to->row) * type_size(to->type),
            to->type, from->data
                + (b * from->batch + h * from->head + row * from->row) * type_size(from->type),
            from->type, 1, size);
    }
}

static bool output_wanted(const OpCall *call, int output)
{
    return output < call->output_count && call->outputs[output].data != NULL;
}

static bool heads_run(const OpCall *call)
{
    Plan plan;
    if (!heads_plan(call, &plan)) {
        return false;
    }
    Attend *a = &plan.attend;
    bool projected = call->kind->variant == PROJECTED;
    Carved carved = workspace_carve(call, &plan, call->workspace);
    Heads *heads[3] = {&a->q, &a->k, &a->v};
    if (plan.bias != NULL) {
        convert(carved.bias, ACL_FLOAT, plan.bias->data, plan.bias->type, 1,
            tensor_count(plan.bias));
    }
    for (int i = 0; i < 3; i++) {
        *heads[i] = plan.copied ? heads_copied(call, &plan, i, &carved)
                                : heads_given(call, &plan, i);
    }
    mask_make(call, &plan, carved.mask);
    if (plan.past != NULL) {
        a->past_k = half_of(plan.past, 0);
        a->past_v = projected ? half_of(plan.past, 1) : half_of(plan.past_v, 0);
    }
    a->out = heads_of(&call->outputs[0], a->heads);
    for (int part = 0; part < 2; part++) {
        int output = projected ? 1 : 1 + part;
        if (output_wanted(call, output)) {
            Heads to = half_of(&call->outputs[output], projected ? part : 0);
            present_put(a, part == 0 ? &a->past_k : &a->past_v, part == 0 ? &a->k : &a->v,
                part == 0 ? a->size : a->value_size, &to);
        }
    }
    if (!projected && output_wanted(call, 3)) {
        a->scores = heads_of(&call->outputs[3], a->heads);
        a->scores_are = SCORES_BIASED;
    }
    attend_run(a, carved.scratch, call->threads);
    return true;
}

const OpKind ops_heads[] = {
    {"Attention", OP_ORT, 2, 7, 2, 0, heads_infer, heads_workspace, heads_run, PROJECTED, 0},
    {"MultiHeadAttention", OP_ORT, 1, 10, 4, 0, heads_infer, heads_workspace, heads_run, MULTI, 0},
    {0},
};
