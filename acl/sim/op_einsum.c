/* op_einsum.c: Einsum of one to three operands.

   Each letter is a dimension with a stride in every operand and in the output; the sum is a loop
   over all of them. Two float32 operands of the shape of a batched product go through gemm_run. The
   ellipsis and repeated letters within one operand are refused. */
#include "gemm.h"
#include "op.h"
#include "strided.h"

#include <ctype.h>
#include <string.h>

enum { LETTERS = STRIDED_RANK, OPERANDS = 3 };

typedef struct Sum {
    int letters;
    char name[LETTERS];
    int64_t length[LETTERS];
    int64_t stride[OPERANDS + 1][LETTERS]; /* the last row is the output's; 0 = not in it */
    bool kept[LETTERS];
    char output[LETTERS + 1];
} Sum;

static int letter_find(Sum *sum, char name)
{
    for (int i = 0; i < sum->letters; i++) {
        if (sum->name[i] == name) {
            return i;
        }
    }
    if (sum->letters == LETTERS) {
        return -1;
    }
    sum->name[sum->letters] = name;
    sum->length[sum->letters] = 0;
    return sum->letters++;
}

static bool operand_read(const OpCall *call, Sum *sum, int operand, const char *term)
{
    const Tensor *in = call->inputs[operand];
    int64_t strides[TENSOR_RANK_MAX];
    strides_of(in, strides);
    if ((int)strlen(term) != in->rank) {
        return op_fail(
            call, "term %s does not fit the rank %d of input %d", term, in->rank, operand);
    }
    for (int d = 0; d < in->rank; d++) {
        int letter = isalpha((unsigned char)term[d]) ? letter_find(sum, term[d]) : -1;
        if (letter < 0 || strchr(term + d + 1, term[d]) != NULL) {
            return op_fail(call, "term %s: repeated letters and ellipses are not supported", term);
        }
        if (sum->length[letter] != 0 && sum->length[letter] != in->dims[d]) {
            return op_fail(call, "letter %c is %lld and %lld long", term[d],
                (long long)sum->length[letter], (long long)in->dims[d]);
        }
        sum->length[letter] = in->dims[d];
        sum->stride[operand][letter] = strides[d];
    }
    return true;
}

/* Without "->": the letters that occur once, in alphabetical order. */
static void output_guess(const char *terms, char *output)
{
    int used = 0;
    for (int c = 'A'; c <= 'z'; c++) {
        const char *first = isalpha(c) ? strchr(terms, c) : NULL;
        if (first != NULL && strchr(first + 1, c) == NULL && used < LETTERS) {
            output[used++] = (char)c;
        }
    }
    output[used] = '\0';
}

static bool output_read(const OpCall *call, Sum *sum)
{
    int64_t step = 1;
    for (int d = (int)strlen(sum->output) - 1; d >= 0; d--) {
        const char *place = memchr(sum->name, sum->output[d], (size_t)sum->letters);
        if (place == NULL || sum->kept[place - sum->name]) {
            return op_fail(call, "output term %s is not made of the inputs' letters", sum->output);
        }
        sum->kept[place - sum->name] = true;
        sum->stride[OPERANDS][place - sum->name] = step;
        step *= sum->length[place - sum->name];
    }
    return true;
}

static bool equation_read(const OpCall *call, Sum *sum)
{
    char text[128];
    size_t used = 0;
    for (const char *p = attr_string(call, "equation", ""); *p != '\0' && used + 1 < sizeof text;
        p++) {
        if (*p != ' ') {
            text[used++] = *p;
        }
    }
    text[used] = '\0';
    memset(sum, 0, sizeof *sum);
    char *arrow = strstr(text, "->");
    if (arrow != NULL) {
        *arrow = '\0';
        if (strlen(arrow + 2) > TENSOR_RANK_MAX) {
            return op_fail(
                call, "output term %s has more than %d letters", arrow + 2, (int)TENSOR_RANK_MAX);
        }
        memcpy(sum->output, arrow + 2, strlen(arrow + 2) + 1);
    } else {
        output_guess(text, sum->output);
    }
    char *rest = text;
    for (int i = 0; i < call->input_count; i++) {
        char *comma = strchr(rest, ',');
        if ((comma == NULL) != (i == call->input_count - 1)) {
            return op_fail(call, "the equation does not have %d terms", call->input_count);
        }
        if (comma != NULL) {
            *comma = '\0';
        }
        if (!operand_read(call, sum, i, rest)) {
            return false;
        }
        rest = comma == NULL ? rest : comma + 1;
    }
    return output_read(call, sum);
}

static bool einsum_infer(OpCall *call)
{
    Sum sum;
    if (!equation_read(call, &sum)) {
        return false;
    }
    for (int i = 1; i < call->input_count; i++) {
        if (call->inputs[i]->type != call->inputs[0]->type) {
            return op_fail(
                call, "input %d: expected %s like input 0", i, type_name(call->inputs[0]->type));
        }
    }
    Tensor *out = &call->outputs[0];
    out->type = call->inputs[0]->type;
    out->rank = (int)strlen(sum.output);
    if (out->rank > TENSOR_RANK_MAX) {
        return op_fail(
            call, "output term %s has more than %d letters", sum.output, (int)TENSOR_RANK_MAX);
    }
    for (int d = 0; d < out->rank; d++) {
        const char *place = memchr(sum.name, sum.output[d], (size_t)sum.letters);
        out->dims[d] = sum.length[place - sum.name];
    }
    return true;
}

/* --- the shape of a batched product: letters sorted into batch, rows, columns and depth --- */

typedef struct Roles {
    int m, n, k;                 /* the letter of each; -1 = none */
    int batch[LETTERS], batches; /* letters of the batch */
} Roles;

static bool roles_find(const OpCall *call, const Sum *sum, Roles *roles)
{
    *roles = (Roles){.m = -1, .n = -1, .k = -1};
    bool floats = call->input_count == 2 && type_compute(call->inputs[0]->type) == ACL_FLOAT;
    for (int i = 0; floats && i < sum->letters; i++) {
        bool a = sum->stride[0][i] != 0, b = sum->stride[1][i] != 0;
        bool out = sum->kept[i];
        int *role = a && b && !out ? &roles->k
            : a && !b && out       ? &roles->m
            : !a && b && out       ? &roles->n
                                   : NULL;
        if (a && b && out) {
            roles->batch[roles->batches++] = i;
        } else if (role == NULL || *role >= 0) {
            return false;
        } else {
            *role = i;
        }
    }
    return floats && roles->m >= 0 && roles->n >= 0 && roles->k >= 0;
}

static int64_t einsum_workspace(const OpCall *call)
{
    Sum sum;
    Roles roles;
    if (!equation_read(call, &sum) || !roles_find(call, &sum, &roles)) {
        return 0;
    }
    int64_t m = sum.length[roles.m], n = sum.length[roles.n];
    return gemm_scratch(m, n, sum.length[roles.k], call->threads) + m * n * (int64_t)sizeof(float);
}

static void product_run(const OpCall *call, const Sum *sum, const Roles *roles)
{
    const Tensor *a = call->inputs[0], *b = call->inputs[1], *out = &call->outputs[0];
    int64_t m = sum->length[roles->m], n = sum->length[roles->n], total = 1;
    for (int i = 0; i < roles->batches; i++) {
        total *= sum->length[roles->batch[i]];
    }
    float *c = call->workspace;
    for (int64_t at = 0; at < total; at++) {
        int64_t rest = at, offset[OPERANDS + 1] = {0};
        for (int i = roles->batches - 1; i >= 0; i--) {
            int letter = roles->batch[i];
            int64_t place = rest % sum->length[letter];
            rest /= sum->length[letter];
            for (int o = 0; o <= OPERANDS; o++) {
                offset[o] += place * sum->stride[o][letter];
            }
        }
        Gemm gemm = {
            .m = m, .n = n, .k = sum->length[roles->k], .alpha = 1.0F, .c = c, .c_row = n,
            .a = (const char *)a->data + offset[0] * type_size(a->type), .a_type = a->type,
            .a_row = sum->stride[0][roles->m], .a_column = sum->stride[0][roles->k],
            .b = (const char *)b->data + offset[1] * type_size(b->type), .b_type = b->type,
            .b_row = sum->stride[1][roles->k], .b_column = sum->stride[1][roles->n],
        };
        gemm_run(&gemm, c + m * n, call->threads);
        for (int64_t i = 0; i < m * n; i++) {
            int64_t to = offset[OPERANDS] + i / n * sum->stride[OPERANDS][roles->m]
                + i % n * sum->stride[OPERANDS][roles->n];
            convert(
                (char *)out->data + to * type_size(out->type), out->type, c + i, ACL_FLOAT, 1, 1);
        }
    }
}

/* --- the general sum --- */

static double place_sum(const OpCall *call, const Sum *sum, const int64_t *base, int letter)
{
    while (letter < sum->letters && sum->kept[letter]) {
        letter++;
    }
    if (letter == sum->letters) {
        double product = 1.0;
        for (int o = 0; o < call->input_count; o++) {
            product *= tensor_get_real(call->inputs[o], base[o]);
        }
        return product;
    }
    double total = 0.0;
    int64_t at[OPERANDS];
    memcpy(at, base, sizeof at);
    for (int64_t i = 0; i < sum->length[letter]; i++) {
        total += place_sum(call, sum, at, letter + 1);
        for (int o = 0; o < OPERANDS; o++) {
            at[o] += sum->stride[o][letter];
        }
    }
    return total;
}

static bool einsum_run(const OpCall *call)
{
    Sum sum;
    Roles roles;
    const Tensor *out = &call->outputs[0];
    if (!equation_read(call, &sum)) {
        return false;
    }
    if (call->workspace != NULL && roles_find(call, &sum, &roles)) {
        product_run(call, &sum, &roles);
        return true;
    }
    for (int64_t i = 0; i < tensor_count(out); i++) {
        int64_t rest = i, base[OPERANDS] = {0};
        for (int d = out->rank - 1; d >= 0; d--) {
            const char *name = memchr(sum.name, sum.output[d], (size_t)sum.letters);
            for (int o = 0; o < OPERANDS; o++) {
                base[o] += rest % out->dims[d] * sum.stride[o][name - sum.name];
            }
            rest /= out->dims[d];
        }
        double value = place_sum(call, &sum, base, 0);
        convert((char *)out->data + i * type_size(out->type), out->type, &value, ACL_DOUBLE, 1, 1);
    }
    return true;
}

const OpKind ops_einsum[] = {
    {"Einsum", OP_ONNX, 1, 3, 1, 0, einsum_infer, einsum_workspace, einsum_run, 0, 0},
    {0},
};
