/* op_einsum.c: Einsum of one to three operands.

   Each letter is a dimension with a stride in every operand and in the output. The dimensions under
   an ellipsis have digits as names, counted from the right. If an operand has a letter twice, its
   diagonal is meant: the strides are added. Two operands of float32, float16 or bfloat16 become
   products of matrices (gemm.h), in place or after packing. Everything else is a loop over all
   dimensions. */
#include "numbers/exact.h"
#include "numbers/gemm.h"
#include "ops/op.h"
#include "numbers/strided.h"
#include "numbers/vmath.h"

#include <ctype.h>
#include <string.h>

enum { LETTERS = STRIDED_RANK, OPERANDS = 3 };

typedef struct Sum {
    int letters;
    char name[LETTERS];
    int64_t length[LETTERS];
    int64_t stride[OPERANDS + 1][LETTERS]; /* the last row is the output's; 0: the letter is not in that tensor */
    bool kept[LETTERS];
    char output[LETTERS + 1];
    int hidden; /* dimensions under the longest ellipsis */
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
    sum->length[sum->letters] = -1;
    return sum->letters++;
}

/* Writes the term with its ellipsis replaced by `hidden` digits. Returns false if the term is malformed. */
static bool term_expand(const char *term, int hidden, char *text, size_t room)
{
    size_t used = 0;
    for (const char *p = term; *p != '\0'; p++) {
        bool dots = strncmp(p, "...", 3) == 0;
        int more = dots ? hidden : 1;
        if (used + (size_t)more >= room || (!dots && !isalpha((unsigned char)*p))) {
            return false;
        }
        for (int d = more - 1; dots && d >= 0; d--) {
            text[used++] = (char)('0' + d);
        }
        if (!dots) {
            text[used++] = *p;
        }
        p += dots ? 2 : 0;
    }
    text[used] = '\0';
    return true;
}

/* Merges a dimension of one operand into a letter's length. Dimensions under an ellipsis are broadcast;
   lengths of a letter must be equal. */
static bool letter_join(
    const OpCall *call, Sum *sum, int operand, char name, int64_t length, int64_t stride)
{
    int letter = letter_find(sum, name);
    bool wide = isdigit((unsigned char)name);
    if (letter < 0) {
        return op_fail(call, "the equation has more than %d letters", (int)LETTERS);
    }
    int64_t known = sum->length[letter];
    if (known >= 0 && known != length && !(wide && (known == 1 || length == 1))) {
        return op_fail(call, "%s %c is %lld and %lld long", wide ? "dimension" : "letter", name,
            (long long)known, (long long)length);
    }
    sum->length[letter] = known < 0 || (wide && known == 1) ? length : known;
    sum->stride[operand][letter] += wide && length == 1 ? 0 : stride;
    return true;
}

static bool operand_read(const OpCall *call, Sum *sum, int operand, const char *term)
{
    const Tensor *in = call->inputs[operand];
    int64_t strides[TENSOR_RANK_MAX];
    char text[TENSOR_RANK_MAX + 1];
    bool dots = strstr(term, "...") != NULL;
    int hidden = dots ? in->rank + 3 - (int)strlen(term) : 0;
    strides_of(in, strides);
    if (hidden < 0 || !term_expand(term, hidden, text, sizeof text)
        || (int)strlen(text) != in->rank) {
        return op_fail(
            call, "term %s does not fit the rank %d of input %d", term, in->rank, operand);
    }
    sum->hidden = hidden > sum->hidden ? hidden : sum->hidden;
    for (int d = 0; d < in->rank; d++) {
        if (!letter_join(call, sum, operand, text[d], in->dims[d], strides[d])) {
            return false;
        }
    }
    return true;
}

/* Computes the output term if the equation has no "->": the ellipsis, then all letters that occur once, in
   alphabetical order. */
static void output_guess(const char *terms, char *output)
{
    int used = strstr(terms, "...") == NULL ? 0 : 3;
    memcpy(output, "...", (size_t)used);
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
    char given[LETTERS + 1];
    memcpy(given, sum->output, sizeof given);
    if (!term_expand(given, sum->hidden, sum->output, sizeof sum->output)) {
        return op_fail(call, "output term %s is malformed", given);
    }
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
        if (strlen(arrow + 2) > TENSOR_RANK_MAX + 3) {
            return op_fail(
                call, "output term %s has more than %d letters", arrow + 2, (int)TENSOR_RANK_MAX);
        }
        memcpy(sum->output, arrow + 2, strlen(arrow + 2) + 1);
    } else {
        output_guess(text, sum->output);
    }
    char *rest = text;
    for (int i = 0; i < call->input_count; i++) {
        if (call->inputs[i] == NULL) {
            return op_fail(call, "input %d was left out; Einsum has no optional inputs", i);
        }
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

/* A letter's part in the product of two operands. */
typedef enum Role { BATCH, ROWS, COLUMNS, DEPTH, ROLES } Role;

typedef struct Roles {
    int m, n, k;                 /* indices of the letters for rows, columns and depth; -1 = none */
    int batch[LETTERS], batches; /* the letters of role BATCH, and their number */
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

/* --- any other pair of operands: packed into the shape of a batched product --- */

static Role role_of(const Sum *sum, int letter)
{
    bool a = sum->stride[0][letter] != 0, b = sum->stride[1][letter] != 0;
    return !sum->kept[letter] ? DEPTH : a && b ? BATCH : a ? ROWS : b ? COLUMNS : BATCH;
}

typedef struct Packed {
    int64_t count[ROLES];          /* elements along the dimensions of each role */
    char *a, *b, *out;
    float *c;
    void *scratch;
    int64_t bytes;
} Packed;

static bool pair_packs(const OpCall *call)
{
    return call->input_count == 2 && call->inputs[0]->type != ACL_BOOL;
}

static int64_t rounded(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static Packed pair_plan(const OpCall *call, const Sum *sum, char *base)
{
    Packed p = {.count = {1, 1, 1, 1}};
    int64_t size = type_size(call->inputs[0]->type), at = 0;
    for (int i = 0; i < sum->letters; i++) {
        p.count[role_of(sum, i)] *= sum->length[i];
    }
    int64_t all = p.count[BATCH] * p.count[ROWS] * p.count[COLUMNS];
    p.a = base;
    at += rounded(p.count[BATCH] * p.count[ROWS] * p.count[DEPTH] * size);
    p.b = base == NULL ? NULL : base + at;
    at += rounded(p.count[BATCH] * p.count[COLUMNS] * p.count[DEPTH] * size);
    p.out = base == NULL ? NULL : base + at;
    at += rounded(all * size);
    p.c = base == NULL ? NULL : (float *)(void *)(base + at);
    at += rounded(all * (int64_t)sizeof(float));
    p.scratch = base == NULL ? NULL : base + at;
    p.bytes = at
        + gemm_scratch(p.count[ROWS], p.count[COLUMNS], p.count[DEPTH]);
    return p;
}

/* Copies between an operand and a row-major tensor with the dimensions of three roles; `pack` says which way. */
static void pair_copy(const Sum *sum, const Role *order, int operand, bool pack, void *to,
    const void *from, int64_t size)
{
    Strided box = {0};
    int64_t step = 1;
    for (int r = 0; r < 3; r++) {
        for (int i = 0; i < sum->letters; i++) {
            if (role_of(sum, i) == order[r]) {
                box.dims[box.rank] = sum->length[i];
                (pack ? box.from : box.to)[box.rank++] = sum->stride[operand][i];
            }
        }
    }
    for (int d = box.rank - 1; d >= 0; d--) {
        (pack ? box.to : box.from)[d] = step;
        step *= box.dims[d];
    }
    strided_copy(&box, to, from, size);
}

static void pair_run(const OpCall *call, const Sum *sum)
{
    static const Role a_order[] = {BATCH, ROWS, DEPTH}, b_order[] = {BATCH, DEPTH, COLUMNS},
                      out_order[] = {BATCH, ROWS, COLUMNS};
    const Tensor *a = call->inputs[0], *b = call->inputs[1], *out = &call->outputs[0];
    int64_t size = type_size(a->type);
    Packed p = pair_plan(call, sum, call->workspace);
    int64_t m = p.count[ROWS], n = p.count[COLUMNS], k = p.count[DEPTH];
    pair_copy(sum, a_order, 0, true, p.a, a->data, size);
    pair_copy(sum, b_order, 1, true, p.b, b->data, size);
    bool exact = type_compute(a->type) != ACL_FLOAT;
    for (int64_t i = 0; exact && i < p.count[BATCH]; i++) {
        exact_run(&(Exact){
            .m = m, .n = n, .k = k, .type = a->type, .c = p.out + i * m * n * size,
            .a = p.a + i * m * k * size, .a_row = k, .a_column = 1,
            .b = p.b + i * k * n * size, .b_row = n, .b_column = 1,
        });
    }
    for (int64_t i = 0; !exact && i < p.count[BATCH]; i++) {
        Gemm gemm = {
            .m = m, .n = n, .k = k, .alpha = 1.0F, .c = p.c + i * m * n, .c_row = n,
            .a = p.a + i * m * k * size, .a_type = a->type, .a_row = k, .a_column = 1,
            .b = p.b + i * k * n * size, .b_type = b->type, .b_row = n, .b_column = 1,
        };
        gemm_run(&gemm, p.scratch, call->threads);
    }
    if (!exact) {
        convert(p.out, out->type, p.c, ACL_FLOAT, 1, p.count[BATCH] * m * n);
    }
    pair_copy(sum, out_order, OPERANDS, false, out->data, p.out, size);
}

static int64_t einsum_workspace(const OpCall *call)
{
    Sum sum;
    Roles roles;
    if (!equation_read(call, &sum)) {
        return 0;
    }
    if (!roles_find(call, &sum, &roles)) {
        return pair_packs(call) ? pair_plan(call, &sum, NULL).bytes : 0;
    }
    int64_t m = sum.length[roles.m], n = sum.length[roles.n];
    return gemm_scratch(m, n, sum.length[roles.k]) + m * n * (int64_t)sizeof(float);
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
        int64_t row = sum->stride[OPERANDS][roles->m], column = sum->stride[OPERANDS][roles->n];
        int64_t size = type_size(out->type);
        char *to = (char *)out->data + offset[OPERANDS] * size;
        for (int64_t i = 0; i < m && column == 1; i++) {
            convert(to + i * row * size, out->type, c + i * n, ACL_FLOAT, 1, n);
        }
        for (int64_t i = 0; i < m * n && column != 1; i++) {
            int64_t at = i / n * row + i % n * column;
            convert(to + at * size, out->type, c + i, ACL_FLOAT, 1, 1);
        }
    }
}

/* --- the general sum --- */

/* A sum. Sums of integers are uint64_t, which wrap and are exact in the low bits. */
typedef union Number {
    double real;
    uint64_t whole;
} Number;

enum { BLOCK = 256 };

typedef union Block {
    double real[BLOCK];
    uint64_t whole[BLOCK];
} Block;

WIDE static void block_multiply(Block *by, const Block *x, int64_t n, bool real)
{
    for (int64_t i = 0; i < n && real; i++) {
        by->real[i] *= x->real[i];
    }
    for (int64_t i = 0; i < n && !real; i++) {
        by->whole[i] *= x->whole[i];
    }
}

WIDE static Number block_sum(const Block *x, int64_t n, bool real)
{
    enum { LANES = 16 };
    Number lanes[LANES] = {{.whole = 0}}, total = {.whole = 0};
    int64_t i = 0;
    for (; i + LANES <= n && real; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            lanes[l].real += x->real[i + l];
        }
    }
    for (int l = 0; l < LANES && i > 0; l++) {
        total.real += lanes[l].real;
    }
    for (; i < n; i++) {
        if (real) {
            total.real += x->real[i];
        } else {
            total.whole += x->whole[i];
        }
    }
    return total;
}

/* Multiplies the operands at `n` positions, which are `step` apart in each operand. */
static void block_products(const OpCall *call, const int64_t *at, const int64_t (*step)[LETTERS],
    int letter, int64_t n, Block *products)
{
    bool real = type_is_float(call->outputs[0].type);
    for (int o = 0; o < call->input_count; o++) {
        Block x;
        const Tensor *in = call->inputs[o];
        const char *from = (const char *)in->data + at[o] * type_size(in->type);
        convert(o == 0 ? products : &x, real ? ACL_DOUBLE : ACL_INT64, from, in->type,
            step[o][letter], n);
        if (o > 0) {
            block_multiply(products, &x, n, real);
        }
    }
}

/* Returns the first letter from `letter` on that is summed over; the number of letters if there is none. */
static int letter_next(const Sum *sum, int letter)
{
    while (letter < sum->letters && sum->kept[letter]) {
        letter++;
    }
    return letter;
}

/* Returns the sum over the summed letters from `letter` on. `last` is the last of them, or -1 if there is
   none. */
static Number place_sum(
    const OpCall *call, const Sum *sum, const int64_t *base, int letter, int last)
{
    bool real = type_is_float(call->outputs[0].type);
    Number total = {.whole = 0}, more; /* all bits zero: 0 as an integer and as a double */
    Block products;
    int64_t at[OPERANDS], step = letter >= last ? BLOCK : 1;
    int64_t length = last < 0 ? 1 : sum->length[letter];
    memcpy(at, base, sizeof at);
    for (int64_t i = 0; i < length; i += step) {
        int64_t n = length - i < step ? length - i : step;
        if (letter >= last) {
            block_products(call, at, sum->stride, letter, n, &products);
            more = block_sum(&products, n, real);
        } else {
            more = place_sum(call, sum, at, letter_next(sum, letter + 1), last);
        }
        if (real) {
            total.real += more.real;
        } else {
            total.whole += more.whole;
        }
        for (int o = 0; o < OPERANDS; o++) {
            at[o] += n * sum->stride[o][letter];
        }
    }
    return total;
}

/* Handles an equation of one operand without a sum by copying its elements in the new order. Returns false for
   other equations. */
static bool einsum_moves(const OpCall *call, const Sum *sum)
{
    Strided box = {.rank = sum->letters};
    for (int i = 0; i < sum->letters; i++) {
        if (!sum->kept[i] || call->input_count > 1) {
            return false;
        }
    }
    for (int i = 0, d = 0; i < sum->letters; i++, d++) {
        const char *place = memchr(sum->name, sum->output[i], (size_t)sum->letters);
        int64_t letter = place - sum->name;
        box.dims[d] = sum->length[letter];
        box.from[d] = sum->stride[0][letter];
        box.to[d] = sum->stride[OPERANDS][letter];
    }
    strided_copy(&box, call->outputs[0].data, call->inputs[0]->data,
        type_size(call->inputs[0]->type));
    return true;
}

static bool einsum_run(const OpCall *call)
{
    Sum sum;
    Roles roles;
    const Tensor *out = &call->outputs[0];
    if (!equation_read(call, &sum)) {
        return false;
    }
    if (tensor_count(out) > 0 && einsum_moves(call, &sum)) {
        return true;
    }
    if (call->workspace != NULL && roles_find(call, &sum, &roles)) {
        product_run(call, &sum, &roles);
        return true;
    }
    if (call->workspace != NULL && pair_packs(call)) {
        pair_run(call, &sum);
        return true;
    }
    int first = letter_next(&sum, 0), last = -1;
    for (int i = first; i < sum.letters; i = letter_next(&sum, i + 1)) {
        last = i;
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
        if (i % 1024 == 1023 && !op_goes_on(call)) {
            return false;
        }
        Number value = place_sum(call, &sum, base, last < 0 ? 0 : first, last);
        convert((char *)out->data + i * type_size(out->type), out->type, &value,
            type_is_float(out->type) ? ACL_DOUBLE : ACL_INT64, 1, 1);
    }
    return true;
}

const OpKind ops_einsum[] = {
    {"Einsum", OP_ONNX, 1, 3, 1, 0, einsum_infer, einsum_workspace, einsum_run, 0, 0},
    {0},
};
