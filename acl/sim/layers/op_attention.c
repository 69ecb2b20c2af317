/* op_attention.c: ONNX's operators Attention and TensorScatter.

   Attention follows the rules of operator set 24 also for models of set 23, because set 24 corrected them: the
   softcap is applied before the mask, and query i of a causal attention sees all past keys and the first i + 1 new
   keys. Arithmetic is float32, for float64 tensors float64. */
#include "numbers/attention.h"
#include "ops/op.h"

#include <math.h>
#include <string.h>

enum { Q, K, V, MASK, PAST_K, PAST_V, LENGTHS };

/* --- Attention --- */

static bool attention_fail(const OpCall *call, int input, const char *expected)
{
    char text[128];
    return op_fail(call, "input %d: expected %s, got shape %s", input, expected,
        shape_text(call->inputs[input], text, sizeof text));
}

static bool inputs_look(const OpCall *call)
{
    const Tensor *q = call->inputs[Q];
    if (q->rank != 3 && q->rank != 4) {
        return attention_fail(call, Q, "three or four dimensions");
    }
    for (int i = Q; i <= V; i++) {
        if (!type_is_float(call->inputs[i]->type)) {
            return op_fail(call, "input %d: Attention is not defined for %s", i,
                type_name(call->inputs[i]->type));
        }
        if (call->inputs[i]->rank != q->rank || call->inputs[i]->dims[0] != q->dims[0]) {
            return attention_fail(call, i, "the rank and the batch of input 0");
        }
    }
    if ((op_input(call, PAST_K) == NULL) != (op_input(call, PAST_V) == NULL)) {
        return op_fail(call, "inputs 4 and 5: expected past keys and past values, or neither");
    }
    return true;
}

/* Computes the numbers of heads of queries and of keys, and the lengths of their rows. False, with a message, if the
   shapes do not fit. */
static bool heads_plan(const OpCall *call, Attend *a)
{
    const Tensor *q = call->inputs[Q], *k = call->inputs[K], *v = call->inputs[V];
    bool flat = q->rank == 3;
    a->heads = flat ? attr_int(call, "q_num_heads", 0) : q->dims[1];
    a->kv_heads = flat ? attr_int(call, "kv_num_heads", 0) : k->dims[1];
    if (a->heads < 1 || a->kv_heads < 1 || a->heads % a->kv_heads != 0) {
        return op_fail(call, "expected a number of heads that is a multiple of that of the keys, "
            "got %lld and %lld", (long long)a->heads, (long long)a->kv_heads);
    }
    if (flat && (q->dims[2] % a->heads != 0 || k->dims[2] % a->kv_heads != 0
                    || v->dims[2] % a->kv_heads != 0)) {
        return op_fail(call, "%lld and %lld heads do not divide the last dimensions",
            (long long)a->heads, (long long)a->kv_heads);
    }
    int row = q->rank - 2;
    a->batches = q->dims[0];
    a->queries = q->dims[row];
    a->fresh = k->dims[row];
    a->size = flat ? q->dims[2] / a->heads : q->dims[3];
    a->value_size = flat ? v->dims[2] / a->kv_heads : v->dims[3];
    int64_t key_size = flat ? k->dims[2] / a->kv_heads : k->dims[3];
    if (key_size != a->size || (!flat && v->dims[1] != a->kv_heads)) {
        return attention_fail(call, K, "heads of the size of input 0");
    }
    return v->dims[row] == a->fresh || attention_fail(call, V, "as many rows as input 1");
}

static bool past_plan(const OpCall *call, Attend *a)
{
    a->past = op_input(call, PAST_K) == NULL ? 0 : call->inputs[PAST_K]->dims[2];
    a->offset = a->past;
    for (int i = PAST_K; i <= PAST_V; i++) {
        const Tensor *past = op_input(call, i);
        int64_t size = i == PAST_K ? a->size : a->value_size;
        if (past != NULL
            && (past->rank != 4 || past->dims[0] != a->batches || past->dims[1] != a->kv_heads
                || past->dims[2] != a->past || past->dims[3] != size
                || past->type != call->inputs[i == PAST_K ? K : V]->type)) {
            return attention_fail(call, i, "[batch, heads, past, size] like inputs 1 and 2");
        }
    }
    return true;
}

/* Computes the strides of the mask broadcast to [batch, head, query, key]. The mask may have fewer keys than there
   are. */
static bool mask_plan(const OpCall *call, Attend *a)
{
    const Tensor *mask = op_input(call, MASK);
    if (mask == NULL) {
        return true;
    }
    int64_t wanted[4] = {a->batches, a->heads, a->queries, a->past + a->fresh};
    int64_t strides[4] = {0}, stride = 1;
    if (mask->rank > 4 || mask->rank < 1) {
        return attention_fail(call, MASK, "one to four dimensions");
    }
    for (int d = mask->rank - 1, w = 3; d >= 0; d--, w--) {
        bool fits = mask->dims[d] == wanted[w] || mask->dims[d] == 1
            || (w == 3 && mask->dims[d] < wanted[w]);
        if (!fits) {
            return attention_fail(call, MASK, "a mask for [batch, heads, queries, keys]");
        }
        strides[w] = mask->dims[d] == 1 ? 0 : stride;
        stride *= mask->dims[d];
    }
    int64_t keys = mask->dims[mask->rank - 1];
    a->mask = (Heads){mask->data, mask->type, strides[0], strides[1], strides[2]};
    a->mask_column = strides[3];
    a->mask_keys = keys == 1 && a->lengths == NULL ? wanted[3] : keys;
    return true;
}

static bool lengths_plan(const OpCall *call, Attend *a)
{
    const Tensor *lengths = op_input(call, LENGTHS);
    if (lengths != NULL && tensor_count(lengths) != a->batches) {
        return attention_fail(call, LENGTHS, "one number for each batch");
    }
    a->lengths = lengths;
    a->offset_by_length = lengths != NULL && op_input(call, PAST_K) == NULL;
    return true;
}

static bool attention_plan(const OpCall *call, Attend *a)
{
    *a = (Attend){0};
    if (!inputs_look(call) || !heads_plan(call, a) || !past_plan(call, a)
        || !lengths_plan(call, a) || !mask_plan(call, a)) {
        return false;
    }
    a->wide = call->inputs[Q]->type == ACL_DOUBLE;
    a->scale = attr_find(call, "scale") != NULL ? attr_float(call, "scale", 1.0)
        : a->size == 0                          ? 1.0
                                                : 1.0 / sqrt((double)a->size);
    a->softcap = attr_float(call, "softcap", 0.0);
    a->causal = attr_int(call, "is_causal", 0) != 0;
    a->left = attr_int(call, "left_window_size", -1);
    a->right = attr_int(call, "right_window_size", -1);
    a->scores_are = (int)attr_int(call, "qk_matmul_output_mode", 0);
    return true;
}

static void tensor_shape(Tensor *tensor, aclDataType type, int rank, const int64_t *dims)
{
    tensor->type = type;
    tensor->rank = rank;
    memcpy(tensor->dims, dims, (size_t)rank * sizeof *dims);
}

static bool attention_infer(OpCall *call)
{
    Attend a;
    if (!attention_plan(call, &a)) {
        return false;
    }
    aclDataType type = call->inputs[Q]->type;
    int64_t keys = a.past + a.fresh;
    if (call->inputs[Q]->rank == 3) {
        int64_t dims[] = {a.batches, a.queries, a.heads * a.value_size};
        tensor_shape(&call->outputs[0], type, 3, dims);
    } else {
        int64_t dims[] = {a.batches, a.heads, a.queries, a.value_size};
        tensor_shape(&call->outputs[0], type, 4, dims);
    }
    int64_t shapes[3][4] = {
        {a.batches, a.kv_heads, keys, a.size},
        {a.batches, a.kv_heads, keys, a.value_size},
        {a.batches, a.heads, a.queries, keys},
    };
    for (int i = 1; i < call->output_count; i++) {
        tensor_shape(&call->outputs[i], i == 2 ? call->inputs[V]->type : type, 4, shapes[i - 1]);
    }
    return true;
}

static int64_t attention_workspace(const OpCall *call)
{
    Attend a;
    return attention_plan(call, &a) ? attend_workspace(&a) : 0;
}

static Heads heads_out(const OpCall *call, int output, int64_t heads)
{
    bool wanted = output < call->output_count && call->outputs[output].data != NULL;
    return wanted ? heads_of(&call->outputs[output], heads) : (Heads){0};
}

static bool attention_run(const OpCall *call)
{
    Attend a;
    if (!attention_plan(call, &a)) {
        return false;
    }
    a.q = heads_of(call->inputs[Q], a.heads);
    a.k = heads_of(call->inputs[K], a.kv_heads);
    a.v = heads_of(call->inputs[V], a.kv_heads);
    if (op_input(call, PAST_K) != NULL) {
        a.past_k = heads_of(call->inputs[PAST_K], a.kv_heads);
        a.past_v = heads_of(call->inputs[PAST_V], a.kv_heads);
    }
    a.out = heads_out(call, 0, a.heads);
    a.scores = heads_out(call, 3, a.heads);
    Heads present_k = heads_out(call, 1, a.kv_heads), present_v = heads_out(call, 2, a.kv_heads);
    if (present_k.data != NULL) {
        heads_join(&a, &a.past_k, &a.k, a.size, &present_k);
    }
    if (present_v.data != NULL) {
        heads_join(&a, &a.past_v, &a.v, a.value_size, &present_v);
    }
    if (a.out.data != NULL || a.scores.data != NULL) {
        attend_run(&a, call->workspace, call->threads);
    }
    return true;
}

/* --- TensorScatter: writes an update into a cache, at an index along one axis that may differ for each batch --- */

typedef struct Cache {
    /* outer: the product of the dimensions before the axis; batch: this product without dimension 0; length: the size
       of the axis in the cache; fresh: the size of the axis in the update; run: bytes of one index of the axis */
    int64_t outer, batch, length, fresh, run;
} Cache;

static bool cache_plan(const OpCall *call, Cache *c)
{
    const Tensor *past = call->inputs[0], *update = call->inputs[1], *at = op_input(call, 2);
    int axis = axis_normal(attr_int(call, "axis", -2), past->rank);
    bool fits = axis > 0 && update->rank == past->rank && update->type == past->type;
    for (int d = 0; fits && d < past->rank; d++) {
        fits = d == axis ? update->dims[d] <= past->dims[d] : update->dims[d] == past->dims[d];
    }
    if (!fits || (at != NULL && tensor_count(at) != past->dims[0])) {
        char a[128], b[128];
        return op_fail(call, "an update of shape %s does not fit a cache of %s",
            shape_text(update, a, sizeof a), shape_text(past, b, sizeof b));
    }
    *c = (Cache){dims_count(past->dims, axis), dims_count(past->dims + 1, axis - 1),
        past->dims[axis], update->dims[axis],
        dims_count(past->dims + axis + 1, past->rank - axis - 1) * type_size(past->type)};
    return true;
}

static bool cache_infer(OpCall *call)
{
    Cache cache;
    return cache_plan(call, &cache) && op_same(call, 0);
}

static bool cache_run(const OpCall *call)
{
    Cache c;
    const Tensor *past = call->inputs[0], *update = call->inputs[1], *at = op_input(call, 2);
    bool circular = strcmp(attr_string(call, "mode", "linear"), "circular") == 0;
    char *out = call->outputs[0].data;
    if (!cache_plan(call, &c)) {
        return false;
    }
    memcpy(out, past->data, (size_t)tensor_bytes(past));
    for (int64_t o = 0; o < c.outer; o++) {
        int64_t first = at == NULL ? 0 : tensor_get_int(at, o / c.batch);
        if (first < 0 || (!circular && first > c.length - c.fresh)) {
            return op_fail(call, "index %lld: %lld rows do not fit a cache of %lld",
                (long long)first, (long long)c.fresh, (long long)c.length);
        }
        for (int64_t i = 0; i < c.fresh; i++) {
            memcpy(out + (o * c.length + (first % c.length + i) % c.length) * c.run,
                (const char *)update->data + (o * c.fresh + i) * c.run, (size_t)c.run);
        }
    }
    return true;
}

const OpKind ops_attention[] = {
    {"Attention", OP_ONNX, 3, 7, 4, 0, attention_infer, attention_workspace, attention_run, 0, 0},
    {"TensorScatter", OP_ONNX, 2, 3, 1, 0, cache_infer, NULL, cache_run, 0, 0},
    {0},
};
