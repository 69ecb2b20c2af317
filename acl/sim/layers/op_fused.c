/* op_fused.c: fused activations and normalisations, which ONNX Runtime's optimiser makes for transformers.

   Operators of the domain com.microsoft: the forms of Gelu that add a bias, sums that are then
   normalised, and the embeddings at the beginning of a model. All compute rows of float32 in the
   workspace. */
#include "ops/op.h"
#include "numbers/vmath.h"

#include <math.h>
#include <string.h>

static bool float_check(const OpCall *call, int input)
{
    const Tensor *tensor = call->inputs[input];
    return type_is_float(tensor->type) || op_fail(call, "input %d: %s is not defined for %s", input,
        call->kind->name, type_name(tensor->type));
}

static int64_t last_dim(const Tensor *tensor)
{
    return tensor->rank == 0 ? 1 : tensor->dims[tensor->rank - 1];
}

static int64_t row_count(const Tensor *tensor)
{
    return tensor->rank == 0 ? 1 : dims_count(tensor->dims, tensor->rank - 1);
}

/* Checks that an input was left out or is a vector of `length` floats. Returns false, with a message, if not. */
static bool vector_check(const OpCall *call, int input, int64_t length)
{
    char text[128];
    const Tensor *vector = op_input(call, input);
    return vector == NULL || (type_is_float(vector->type) && tensor_count(vector) == length)
        || op_fail(call, "input %d: expected %lld numbers, as long as a row, got shape %s", input,
            (long long)length, shape_text(vector, text, sizeof text));
}

static void row_load(const Tensor *tensor, int64_t row, int64_t length, float *to)
{
    const char *from = (const char *)tensor->data + row * length * type_size(tensor->type);
    convert(to, ACL_FLOAT, from, tensor->type, 1, length);
}

static void row_store(const Tensor *tensor, int64_t row, int64_t length, const float *from)
{
    char *to = (char *)tensor->data + row * length * type_size(tensor->type);
    convert(to, tensor->type, from, ACL_FLOAT, 1, length);
}

static void row_add(float *to, const float *from, int64_t length)
{
    for (int64_t i = 0; i < length; i++) {
        to[i] += from[i];
    }
}

/* --- activations with a bias --- */

enum { GELU_ERF, GELU_TANH, GELU_QUICK };

static bool gelu_infer(OpCall *call)
{
    return float_check(call, 0) && vector_check(call, 1, last_dim(call->inputs[0]))
        && op_same(call, 0);
}

static int64_t gelu_workspace(const OpCall *call)
{
    return 2 * last_dim(call->inputs[0]) * (int64_t)sizeof(float);
}

WIDE static void row_gelu(float *x, int64_t length, int variant, float alpha)
{
    if (variant == GELU_ERF) {
        for (int64_t i = 0; i < length; i++) {
            x[i] = 0.5F * x[i] * (1.0F + erf_fast(x[i] * 0.70710678F));
        }
    } else if (variant == GELU_TANH) {
        for (int64_t i = 0; i < length; i++) {
            float inner = 0.79788456F * (x[i] + 0.044715F * x[i] * x[i] * x[i]);
            x[i] = 0.5F * x[i] * (1.0F + tanh_fast(inner));
        }
    } else {
        for (int64_t i = 0; i < length; i++) {
            x[i] = x[i] * sigmoid_fast(alpha * x[i]);
        }
    }
}

static bool gelu_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0], *bias = op_input(call, 1);
    int64_t length = last_dim(in);
    float *row = call->workspace, *add = row + length;
    float alpha = (float)attr_float(call, "alpha", 1.702);
    if (bias != NULL) {
        row_load(bias, 0, length, add);
    }
    for (int64_t r = 0; r < row_count(in) && length > 0; r++) {
        row_load(in, r, length, row);
        if (bias != NULL) {
            row_add(row, add, length);
        }
        row_gelu(row, length, call->kind->variant, alpha);
        row_store(&call->outputs[0], r, length, row);
    }
    return true;
}

/* --- normalised sums --- */

typedef struct Norm {
    const float *gamma, *beta; /* scale and bias of each element of a row; beta is NULL if there is no bias */
    float epsilon;
    bool plain;                /* true: the mean is not subtracted (RMS normalisation) */
    float mean, scale;         /* results: mean and 1 / deviation of the last row that row_norm computed */
} Norm;

static void row_norm(Norm *norm, const float *in, int64_t length, float *out)
{
    double sum = 0.0, spread = 0.0;
    for (int64_t i = 0; i < length && !norm->plain; i++) {
        sum += (double)in[i];
    }
    norm->mean = (float)(sum / (double)length);
    for (int64_t i = 0; i < length; i++) {
        double d = (double)(in[i] - norm->mean);
        spread += d * d;
    }
    norm->scale = (float)(1.0 / sqrt(spread / (double)length + (double)norm->epsilon));
    for (int64_t i = 0; i < length; i++) {
        float y = (in[i] - norm->mean) * norm->scale * norm->gamma[i];
        out[i] = norm->beta == NULL ? y : y + norm->beta[i];
    }
}

/* Returns the index of the input with the bias. The inputs after the first two are scale, beta and bias; the variant
   without a mean (Simplified) has no beta. */
static int skip_bias(const OpCall *call)
{
    return call->kind->variant != 0 ? 3 : 4;
}

/* True if the dimensions of `skip` are the last dimensions of `in`, with ones before them. It is then repeated along
   the other dimensions of `in`. */
static bool skip_repeats(const Tensor *in, const Tensor *skip)
{
    bool ones = false;
    for (int d = 1; d <= skip->rank; d++) {
        int64_t here = skip->dims[skip->rank - d];
        bool same = d <= in->rank && here == in->dims[in->rank - d];
        ones = ones || !same;
        if (ones && here != 1) {
            return false;
        }
    }
    return skip->rank > 0 && skip->dims[skip->rank - 1] == in->dims[in->rank - 1];
}

static bool skip_infer(OpCall *call)
{
    const Tensor *in = call->inputs[0], *skip = call->inputs[1];
    int64_t length = last_dim(in);
    if (!float_check(call, 0) || !float_check(call, 1) || in->rank < 1) {
        return in->rank < 1 ? op_fail(call, "input 0: expected a dimension at least") : false;
    }
    if (!skip_repeats(in, skip)) {
        char a[128], b[128];
        return op_fail(call, "inputs 0 and 1: expected one shape, or one to be repeated, got %s "
            "and %s", shape_text(in, a, sizeof a), shape_text(skip, b, sizeof b));
    }
    for (int i = 2; i <= 4; i++) {
        if (!vector_check(call, i, length)) {
            return false;
        }
    }
    for (int i = 0; i < call->output_count; i++) {
        call->outputs[i].type = i == 1 || i == 2 ? ACL_FLOAT : in->type;
        tensor_shape_copy(&call->outputs[i], in);
        if (i == 1 || i == 2) {
            call->outputs[i].dims[in->rank - 1] = 1;
        }
    }
    return true;
}

static int64_t skip_workspace(const OpCall *call)
{
    return 5 * last_dim(call->inputs[0]) * (int64_t)sizeof(float);
}

static void number_put(const OpCall *call, int output, int64_t row, float value)
{
    if (output < call->output_count && call->outputs[output].data != NULL) {
        ((float *)call->outputs[output].data)[row] = value;
    }
}

static bool skip_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0], *skip = call->inputs[1];
    const Tensor *beta = call->kind->variant != 0 ? NULL : op_input(call, 3);
    const Tensor *bias = op_input(call, skip_bias(call));
    int64_t length = last_dim(in), repeat = row_count(skip);
    float *row = call->workspace, *other = row + length;
    float *gamma = other + length, *shift = gamma + length, *add = shift + length;
    Norm norm = {.gamma = gamma, .beta = beta == NULL ? NULL : shift,
        .epsilon = (float)attr_float(call, "epsilon", 1e-5), .plain = call->kind->variant != 0};
    row_load(call->inputs[2], 0, length, gamma);
    if (beta != NULL) {
        row_load(beta, 0, length, shift);
    }
    if (bias != NULL) {
        row_load(bias, 0, length, add);
    }
    for (int64_t r = 0; r < row_count(in) && length > 0; r++) {
        row_load(in, r, length, row);
        row_load(skip, r % repeat, length, other);
        row_add(row, other, length);
        if (bias != NULL) {
            row_add(row, add, length);
        }
        if (call->output_count > 3 && call->outputs[3].data != NULL) {
            row_store(&call->outputs[3], r, length, row);
        }
        row_norm(&norm, row, length, other);
        row_store(&call->outputs[0], r, length, other);
        number_put(call, 1, r, norm.mean);
        number_put(call, 2, r, norm.scale);
    }
    return true;
}

/* --- embeddings: the sum of the table rows of a word, its position and its segment, normalised --- */

enum { WORDS, SEGMENTS, WORD_TABLE, PLACE_TABLE, SEGMENT_TABLE, GAMMA, BETA, MASK, PLACES };

static bool embed_infer(OpCall *call)
{
    static const int needed[] = {WORD_TABLE, PLACE_TABLE, GAMMA, BETA};
    for (int i = 0; i < 4; i++) {
        if (op_input(call, needed[i]) == NULL) {
            return op_fail(call, "input %d is required", needed[i]);
        }
    }
    const Tensor *words = call->inputs[WORDS], *table = call->inputs[WORD_TABLE];
    if (words->rank != 2 || table->rank != 2 || !float_check(call, WORD_TABLE)) {
        return words->rank == 2 && table->rank == 2
            ? false : op_fail(call, "inputs 0 and 2: expected two dimensions each");
    }
    int64_t length = table->dims[1];
    for (int i = PLACE_TABLE; i <= SEGMENT_TABLE; i++) {
        const Tensor *other = op_input(call, i);
        if (other != NULL && (other->rank != 2 || other->dims[1] != length)) {
            return op_fail(call, "input %d: expected rows of %lld", i, (long long)length);
        }
    }
    const int like_words[] = {SEGMENTS, MASK};
    for (int i = 0; i < 2; i++) {
        const Tensor *ids = op_input(call, like_words[i]);
        if (ids != NULL && !tensor_same_shape(ids, words)) {
            return op_fail(call, "input %d: expected the shape of input 0", like_words[i]);
        }
    }
    if (op_input(call, PLACES) != NULL
        && (call->inputs[PLACES]->rank != 2 || call->inputs[PLACES]->dims[1] != words->dims[1])) {
        return op_fail(call, "input 8: expected a place for each word");
    }
    if (!vector_check(call, GAMMA, length) || !vector_check(call, BETA, length)) {
        return false;
    }
    for (int i = 0; i < call->output_count; i++) {
        call->outputs[i] = (Tensor){.type = i == 1 ? ACL_INT32 : table->type,
            .rank = i == 1 ? 1 : 3,
            .dims = {words->dims[0], words->dims[1], length}, .data = call->outputs[i].data};
    }
    return true;
}

static int64_t embed_workspace(const OpCall *call)
{
    return 4 * call->inputs[WORD_TABLE]->dims[1] * (int64_t)sizeof(float);
}

/* Adds row `index` of the table in input `table` to `row`; does nothing if this input was left out. Returns false, with
   a message, if the table has no such row. */
static bool table_add(const OpCall *call, int table, int64_t index, float *row, float *scratch)
{
    const Tensor *rows = op_input(call, table);
    if (rows == NULL) {
        return true;
    }
    if (index < 0 || index >= rows->dims[0]) {
        return op_fail(call, "index %lld is outside a dimension of %lld", (long long)index,
            (long long)rows->dims[0]);
    }
    row_load(rows, index, rows->dims[1], scratch);
    row_add(row, scratch, rows->dims[1]);
    return true;
}

/* Writes to output 1, if it is used, how many words of each batch the mask keeps. */
static void mask_count(const OpCall *call)
{
    const Tensor *words = call->inputs[WORDS], *mask = op_input(call, MASK);
    if (call->output_count < 2 || call->outputs[1].data == NULL) {
        return;
    }
    for (int64_t b = 0; b < words->dims[0]; b++) {
        int32_t count = 0;
        for (int64_t i = 0; mask != NULL && i < words->dims[1]; i++) {
            count += tensor_get_int(mask, b * words->dims[1] + i) == 1;
        }
        ((int32_t *)call->outputs[1].data)[b] = count;
    }
}

static bool embed_run(const OpCall *call)
{
    const Tensor *words = call->inputs[WORDS], *places = op_input(call, PLACES);
    const Tensor *segments = op_input(call, SEGMENTS);
    int64_t length = call->inputs[WORD_TABLE]->dims[1], turn = words->dims[1];
    float *row = call->workspace, *other = row + length, *gamma = other + length,
          *beta = gamma + length;
    Norm norm = {.gamma = gamma, .beta = beta,
        .epsilon = (float)attr_float(call, "epsilon", 1e-12)};
    row_load(call->inputs[GAMMA], 0, length, gamma);
    row_load(call->inputs[BETA], 0, length, beta);
    mask_count(call);
    for (int64_t r = 0; r < tensor_count(words); r++) {
        int64_t place = places == NULL ? r % turn
            : tensor_get_int(places, places->dims[0] == 1 ? r % turn : r);
        memset(row, 0, (size_t)length * sizeof *row);
        if (!table_add(call, WORD_TABLE, tensor_get_int(words, r), row, other)
            || !table_add(call, PLACE_TABLE, place, row, other)
            || !table_add(call, SEGMENT_TABLE, segments == NULL ? 0 : tensor_get_int(segments, r),
                row, other)) {
            return false;
        }
        if (call->output_count > 2 && call->outputs[2].data != NULL) {
            row_store(&call->outputs[2], r, length, row);
        }
        row_norm(&norm, row, length, other);
        row_store(&call->outputs[0], r, length, other);
    }
    return true;
}

#define GELU(NAME, LEAST, MOST, VARIANT) \
    {NAME, OP_ORT, LEAST, MOST, 1, 0, gelu_infer, gelu_workspace, gelu_run, VARIANT, 0}

const OpKind ops_fused[] = {
    GELU("Gelu", 1, 1, GELU_ERF), GELU("BiasGelu", 2, 2, GELU_ERF),
    GELU("FastGelu", 1, 2, GELU_TANH), GELU("QuickGelu", 1, 1, GELU_QUICK),
    {"SkipLayerNormalization", OP_ORT, 3, 5, 4, 0, skip_infer, skip_workspace, skip_run, 0, 0},
    {"SkipSimplifiedLayerNormalization", OP_ORT, 3, 4, 4, 0, skip_infer, skip_workspace, skip_run,
        1, 0},
    {"EmbedLayerNormalization", OP_ORT, 1, 9, 3, 0, embed_infer, embed_workspace, embed_run, 0, 0},
    {0},
};
