/* op_rotary.c: RotaryEmbedding of ONNX and of com.microsoft: rotates pairs of numbers of a row by angles that
   depend on the row's position.

   The two operators differ in the order of their inputs and in the form of the positions. A row of the tables of
   cosines and sines has one number for each pair. */
#include "ops/op.h"
#include "numbers/rope.h"

#include <string.h>

void rotary_row(const Rotary *rotary, int64_t place, const float *in, float *out)
{
    const float *cosine = rotary->cosine + place * rotary->half;
    const float *sine = rotary->sine + place * rotary->half;
    for (int64_t i = 0; i < rotary->half; i++) {
        int64_t a = rotary->interleaved ? 2 * i : i;
        int64_t b = rotary->interleaved ? 2 * i + 1 : i + rotary->half;
        out[a] = cosine[i] * in[a] - sine[i] * in[b];
        out[b] = sine[i] * in[a] + cosine[i] * in[b];
    }
    for (int64_t i = 2 * rotary->half; i < rotary->size; i++) {
        out[i] = in[i];
    }
}

/* As rotary_row, but in double, with tables of double. */
static void rotary_row_wide(const Rotary *rotary, const double *cosine, const double *sine,
    int64_t place, const double *in, double *out)
{
    const double *c = cosine + place * rotary->half, *s = sine + place * rotary->half;
    for (int64_t i = 0; i < rotary->half; i++) {
        int64_t a = rotary->interleaved ? 2 * i : i;
        int64_t b = rotary->interleaved ? 2 * i + 1 : i + rotary->half;
        out[a] = c[i] * in[a] - s[i] * in[b];
        out[b] = s[i] * in[a] + c[i] * in[b];
    }
    for (int64_t i = 2 * rotary->half; i < rotary->size; i++) {
        out[i] = in[i];
    }
}

typedef struct Plan {
    Rotary rotary;
    const Tensor *places, *cosine, *sine;
    int64_t batches, heads, rows;
    bool heads_first;           /* shape of input 0: true: [batch, head, row, size]; false: [batch, row, head * size] */
    bool by_place;              /* true: the tables have a row for each position; false: for each row of each batch */
    bool first_place;           /* true: `places` is one number, the position of the first row */
    int64_t table;              /* number of rows in each table */
} Plan;

static bool rotary_fail(const OpCall *call, const Tensor *tensor, const char *expected)
{
    char text[128];
    return op_fail(call, "expected %s, got shape %s", expected,
        shape_text(tensor, text, sizeof text));
}

static bool shape_plan(const OpCall *call, Plan *plan)
{
    const Tensor *in = call->inputs[0];
    int64_t heads = attr_int(call, "num_heads", 0), turned, size;
    if (!type_is_float(in->type) || (in->rank != 3 && in->rank != 4)) {
        return rotary_fail(call, in, "floats of three or four dimensions");
    }
    plan->heads_first = in->rank == 4;
    plan->batches = in->dims[0];
    plan->rows = in->dims[plan->heads_first ? 2 : 1];
    turned = attr_int(call, "rotary_embedding_dim", 0);
    if (!plan->heads_first && heads == 0) { /* the size of a head follows from the width of the tables */
        size = turned > 0 ? 0 : 2 * plan->cosine->dims[plan->cosine->rank - 1];
        heads = size == 0 ? 0 : in->dims[2] / size;
    }
    heads = plan->heads_first ? in->dims[1] : heads;
    if (!plan->heads_first && (heads < 1 || in->dims[2] % heads != 0)) {
        return op_fail(call, "num_heads %lld does not divide the last dimension of input 0",
            (long long)heads);
    }
    plan->heads = heads;
    size = plan->heads_first ? in->dims[3] : in->dims[2] / heads;
    turned = turned == 0 ? size : turned;
    plan->rotary = (Rotary){.size = size, .half = turned / 2,
        .interleaved = attr_int(call, "interleaved", 0) != 0};
    return (turned >= 0 && turned <= size && turned % 2 == 0)
        || op_fail(call, "rotary_embedding_dim %lld does not fit heads of %lld", (long long)turned,
            (long long)size);
}

static bool rotary_plan(const OpCall *call, Plan *plan)
{
    bool ort = call->kind->domain == OP_ORT;
    *plan = (Plan){0};
    plan->places = op_input(call, ort ? 1 : 3);
    plan->cosine = call->inputs[ort ? 2 : 1];
    plan->sine = call->inputs[ort ? 3 : 2];
    if (!tensor_same_shape(plan->cosine, plan->sine) || plan->cosine->rank < 2
        || !type_is_float(plan->cosine->type) || !type_is_float(plan->sine->type)) {
        return rotary_fail(call, plan->sine, "tables of cosines and sines of one shape");
    }
    if (!shape_plan(call, plan)) {
        return false;
    }
    int64_t count = plan->places == NULL ? 0 : tensor_count(plan->places);
    plan->by_place = plan->places != NULL;
    plan->first_place = ort && count == 1;
    plan->table = dims_count(plan->cosine->dims, plan->cosine->rank - 1);
    bool fits = plan->by_place ? plan->first_place || count == plan->batches * plan->rows
                               : plan->table == plan->batches * plan->rows;
    if (plan->cosine->dims[plan->cosine->rank - 1] != plan->rotary.half || !fits) {
        return rotary_fail(call, plan->cosine, "a row of half the turned part for each place");
    }
    return true;
}

static bool rotary_infer(OpCall *call)
{
    Plan plan;
    if (attr_int(call, "is_packed_batching", 0) != 0) {
        return op_fail(call, "attribute is_packed_batching: only 0 is supported");
    }
    return rotary_plan(call, &plan) && op_same(call, 0);
}

static int64_t rotary_workspace(const OpCall *call)
{
    Plan plan;
    if (!rotary_plan(call, &plan)) {
        return 0;
    }
    return (2 * plan.rotary.size + 2 * plan.rotary.half * plan.table) * (int64_t)sizeof(double);
}

/* Returns the index of the table row for a row of a batch; -1, with a message, if the tables have no such row. */
static int64_t place_of(const OpCall *call, const Plan *plan, int64_t batch, int64_t row)
{
    int64_t at = batch * plan->rows + row;
    int64_t place = !plan->by_place ? at
        : plan->first_place ? tensor_get_int(plan->places, 0) + row
                            : tensor_get_int(plan->places, at);
    if (place < 0 || place >= plan->table) {
        op_explain(call, "index %lld is outside a dimension of %lld", (long long)place,
            (long long)plan->table);
        return -1;
    }
    return place;
}

static bool rotary_run(const OpCall *call)
{
    Plan plan;
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    if (!rotary_plan(call, &plan)) {
        return false;
    }
    int64_t size = plan.rotary.size, numbers = plan.rotary.half * plan.table;
    bool wide = in->type == ACL_DOUBLE;
    double *from_wide = call->workspace, *to_wide = from_wide + size, *tables = to_wide + size;
    float *from = call->workspace, *to = from + size, *cosine = to + size, *sine = cosine + numbers;
    convert(wide ? (void *)tables : cosine, wide ? ACL_DOUBLE : ACL_FLOAT, plan.cosine->data,
        plan.cosine->type, 1, numbers);
    convert(wide ? (void *)(tables + numbers) : sine, wide ? ACL_DOUBLE : ACL_FLOAT,
        plan.sine->data, plan.sine->type, 1, numbers);
    plan.rotary.cosine = cosine;
    plan.rotary.sine = sine;
    for (int64_t r = 0; r < plan.batches * plan.heads * plan.rows && size > 0; r++) {
        int64_t batch = r / (plan.heads * plan.rows);
        int64_t row = plan.heads_first ? r % plan.rows : r / plan.heads % plan.rows;
        int64_t place = place_of(call, &plan, batch, row);
        if (place < 0) {
            return false;
        }
        const char *source = (const char *)in->data + r * size * type_size(in->type);
        char *target = (char *)out->data + r * size * type_size(out->type);
        if (wide) {
            memcpy(from_wide, source, (size_t)size * sizeof(double));
            rotary_row_wide(&plan.rotary, tables, tables + numbers, place, from_wide, to_wide);
            memcpy(target, to_wide, (size_t)size * sizeof(double));
            continue;
        }
        convert(from, ACL_FLOAT, source, in->type, 1, size);
        rotary_row(&plan.rotary, place, from, to);
        convert(target, out->type, to, ACL_FLOAT, 1, size);
    }
    return true;
}

const OpKind ops_rotary[] = {
    {"RotaryEmbedding", OP_ONNX, 3, 4, 1, 0, rotary_infer, rotary_workspace, rotary_run, 0, 0},
    {"RotaryEmbedding", OP_ORT, 4, 4, 1, 0, rotary_infer, rotary_workspace, rotary_run, 0, 0},
    {0},
};
