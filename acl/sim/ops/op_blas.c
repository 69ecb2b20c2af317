/* op_blas.c: GEMM, the operator behind aclblas: C = alpha * A * B + beta * C.

   Inputs: A, B, C, alpha, beta. The output is the new C, in the memory of the old one or elsewhere.
   A matrix of rank 2 is stored row by row. One of rank 4 is stored in tiles, as the chip's matrix
   unit reads them (FRACTAL_NZ, and FRACTAL_Z for a B of int8).  Sums are float32 for float16 and
   int32 for int8.  If beta is 0, the old C is not read. */
#include "numbers/gemm.h"
#include "numbers/parallel.h"
#include "ops/op.h"

#include <string.h>

enum { TILE = 16 };

enum { INPUT_A, INPUT_B, INPUT_C, INPUT_ALPHA, INPUT_BETA };

/* The layout of a matrix in memory. With `width` 0 its rows follow each other. Otherwise it consists of tiles of
   16 rows and `width` columns, one column of tiles after another. `swapped`: the matrix is transposed. */
typedef struct Layout {
    bool swapped;
    int64_t width;
    int64_t pitch;         /* elements from one row to the next, or tiles in a column of tiles */
    int64_t rows, columns; /* size of the memory, including padding */
} Layout;

typedef struct Plan {
    int64_t m, n, k;
    Layout a, b, c;
    bool whole; /* the operands are int8, not float16 */
} Plan;

static int64_t layout_at(const Layout *layout, int64_t row, int64_t column)
{
    int64_t r = layout->swapped ? column : row, c = layout->swapped ? row : column;
    if (layout->width == 0) {
        return r * layout->pitch + c;
    }
    int64_t tile = c / layout->width * layout->pitch + r / TILE;
    return (tile * TILE + r % TILE) * layout->width + c % layout->width;
}

static Layout layout_of(const Tensor *tensor, bool swapped)
{
    bool tiled = tensor->rank == 4;
    Layout made = {.swapped = swapped,
        .width = tiled ? tensor->dims[3] : 0,
        .pitch = tensor->dims[1],
        .rows = tiled ? tensor->dims[1] * TILE : tensor->dims[0],
        .columns = tiled ? tensor->dims[0] * tensor->dims[3] : tensor->dims[1]};
    if (swapped) {
        int64_t rows = made.rows;
        made.rows = made.columns;
        made.columns = rows;
    }
    return made;
}

static bool layout_holds(const Layout *layout, int64_t rows, int64_t columns)
{
    int64_t row_unit = layout->width == 0 ? 1 : layout->swapped ? layout->width : TILE;
    int64_t column_unit = layout->width == 0 ? 1 : layout->swapped ? TILE : layout->width;
    return layout->rows == (rows + row_unit - 1) / row_unit * row_unit
        && layout->columns == (columns + column_unit - 1) / column_unit * column_unit;
}

/* True for the four combinations of types that the operator supports. */
static bool types_known(const Tensor *a, const Tensor *b, const Tensor *c)
{
    bool half = a->type == ACL_FLOAT16 && (c->type == ACL_FLOAT16 || c->type == ACL_FLOAT);
    bool whole = a->type == ACL_INT8 && (c->type == ACL_INT32 || c->type == ACL_FLOAT);
    return a->type == b->type && (half || whole);
}

static bool form_known(const Tensor *tensor, bool wide)
{
    return tensor->rank == 2
        || (tensor->rank == 4 && tensor->dims[2] == TILE
            && tensor->dims[3] == (wide ? 2 * TILE : TILE));
}

static bool plan_make(const OpCall *call, Plan *plan)
{
    const Tensor *a = call->inputs[INPUT_A], *b = call->inputs[INPUT_B];
    const Tensor *c = call->inputs[INPUT_C];
    plan->whole = a->type == ACL_INT8;
    if (!form_known(a, plan->whole) || !form_known(b, plan->whole) || !form_known(c, false)) {
        return false;
    }
    bool b_tiled = b->rank == 4;
    plan->a = layout_of(a, a->rank == 2 && attr_int(call, "transpose_a", 0) != 0);
    plan->b = layout_of(b, b_tiled ? plan->whole : attr_int(call, "transpose_b", 0) != 0);
    plan->c = layout_of(c, false);
    plan->m = c->rank == 2 ? plan->c.rows : plan->a.rows;
    plan->n = c->rank == 2 ? plan->c.columns : plan->b.columns;
    plan->k = a->rank == 2 ? plan->a.columns : plan->b.rows;
    return layout_holds(&plan->a, plan->m, plan->k) && layout_holds(&plan->b, plan->k, plan->n)
        && layout_holds(&plan->c, plan->m, plan->n);
}

static bool blas_infer(OpCall *call)
{
    Plan plan;
    char a[128], b[128], c[128];
    const Tensor *const *in = call->inputs;
    if (!types_known(in[INPUT_A], in[INPUT_B], in[INPUT_C])) {
        return op_fail(call,
            "expected float16 x float16 to float16 or float32, or int8 x int8 to int32 or "
            "float32, got %s x %s to %s",
            type_name(in[INPUT_A]->type), type_name(in[INPUT_B]->type),
            type_name(in[INPUT_C]->type));
    }
    for (int i = INPUT_ALPHA; i <= INPUT_BETA; i++) {
        if (in[i]->type != in[INPUT_C]->type || tensor_count(in[i]) != 1) {
            return op_fail(call, "input %d: expected one %s, as C has, got %s %s", i,
                type_name(in[INPUT_C]->type), type_name(in[i]->type),
                shape_text(in[i], a, sizeof a));
        }
    }
    if (!plan_make(call, &plan)) {
        return op_fail(call, "the shapes do not multiply: A %s, B %s, C %s",
            shape_text(in[INPUT_A], a, sizeof a), shape_text(in[INPUT_B], b, sizeof b),
            shape_text(in[INPUT_C], c, sizeof c));
    }
    return op_same(call, INPUT_C);
}

/* --- workspace: the sums, row-major copies of A and B if needed, and the memory of gemm_run --- */

typedef struct Room {
    int64_t a, b, scratch, total; /* byte offsets in the workspace (the sums are at 0), and its size */
} Room;

static int64_t room_round(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* True if a matrix must be copied into rows first: one in tiles, or a transposed one of int8. */
static bool must_unpack(const Plan *plan, const Layout *layout)
{
    return layout->width != 0 || (plan->whole && layout->swapped);
}

static Room room_plan(const Plan *plan)
{
    int64_t size = plan->whole ? 1 : 2;
    Room room = {.a = room_round(plan->m * plan->n * 4)};
    room.b = room.a + (must_unpack(plan, &plan->a) ? room_round(plan->m * plan->k * size) : 0);
    room.scratch = room.b
        + (must_unpack(plan, &plan->b) ? room_round(plan->k * plan->n * size) : 0);
    room.total =
        room.scratch + (plan->whole ? 0 : gemm_scratch(plan->m, plan->n, plan->k));
    return room;
}

static int64_t blas_workspace(const OpCall *call)
{
    Plan plan;
    return plan_make(call, &plan) ? room_plan(&plan).total : 0;
}

/* Returns the matrix in rows, and sets `layout` to that form. If the matrix is in another form, it
   is copied to `to`. */
static const void *unpacked(
    const Plan *plan, const Tensor *from, Layout *layout, int64_t rows, int64_t columns, char *to)
{
    int64_t size = type_size(from->type);
    if (!must_unpack(plan, layout)) {
        return from->data;
    }
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++) {
            memcpy(to + (r * columns + c) * size,
                (const char *)from->data + layout_at(layout, r, c) * size, (size_t)size);
        }
    }
    *layout = (Layout){.pitch = columns, .rows = rows, .columns = columns};
    return to;
}

/* --- sums --- */

typedef struct Whole {
    const Plan *plan;
    const int8_t *a, *b;
    uint32_t *sums;
} Whole;

/* Computes one row of integer products. The sums wrap, as those of the chip's matrix unit do. */
static void whole_row(void *context, int64_t row)
{
    const Whole *whole = context;
    const Plan *plan = whole->plan;
    uint32_t *sums = whole->sums + row * plan->n;
    memset(sums, 0, (size_t)plan->n * sizeof *sums);
    for (int64_t p = 0; p < plan->k; p++) {
        int32_t factor = whole->a[layout_at(&plan->a, row, p)];
        const int8_t *b = whole->b + p * plan->n;
        for (int64_t j = 0; j < plan->n; j++) {
            sums[j] += (uint32_t)(factor * b[j]);
        }
    }
}

static void half_sums(
    const OpCall *call, const Plan *plan, const void *a, const void *b, float *sums, void *scratch)
{
    Gemm gemm = {
        .m = plan->m, .n = plan->n, .k = plan->k,
        .a = a, .a_type = ACL_FLOAT16, .b = b, .b_type = ACL_FLOAT16, .c = sums, .c_row = plan->n,
        .a_row = plan->a.swapped ? 1 : plan->a.pitch,
        .a_column = plan->a.swapped ? plan->a.pitch : 1,
        .b_row = plan->b.swapped ? 1 : plan->b.pitch,
        .b_column = plan->b.swapped ? plan->b.pitch : 1,
        .alpha = 1.0F, .beta = 0.0F,
    };
    gemm_run(&gemm, scratch, call->threads);
}

/* --- C --- */

static void whole_finish(const OpCall *call, const Plan *plan, const int32_t *sums)
{
    int64_t alpha = tensor_get_int(call->inputs[INPUT_ALPHA], 0);
    int64_t beta = tensor_get_int(call->inputs[INPUT_BETA], 0);
    const int32_t *old = call->inputs[INPUT_C]->data;
    int32_t *out = call->outputs[0].data;
    for (int64_t i = 0; i < plan->m * plan->n; i++) {
        int64_t at = layout_at(&plan->c, i / plan->n, i % plan->n);
        uint64_t kept = beta == 0 ? 0 : (uint64_t)beta * (uint64_t)(int64_t)old[at];
        out[at] = (int32_t)(uint32_t)((uint64_t)alpha * (uint64_t)(int64_t)sums[i] + kept);
    }
}

static void real_finish(const OpCall *call, const Plan *plan, const void *sums)
{
    double alpha = tensor_get_real(call->inputs[INPUT_ALPHA], 0);
    double beta = tensor_get_real(call->inputs[INPUT_BETA], 0);
    const Tensor *old = call->inputs[INPUT_C], *out = &call->outputs[0];
    int64_t size = type_size(out->type);
    for (int64_t i = 0; i < plan->m * plan->n; i++) {
        int64_t at = layout_at(&plan->c, i / plan->n, i % plan->n);
        double sum = plan->whole ? (double)((const int32_t *)sums)[i]
                                 : (double)((const float *)sums)[i];
        double value = alpha * sum + (beta == 0.0 ? 0.0 : beta * tensor_get_real(old, at));
        convert((char *)out->data + at * size, out->type, &value, ACL_DOUBLE, 1, 1);
    }
}

/* Fills the part of the tiles outside of the matrix with zeros. */
static void padding_clear(const OpCall *call, const Plan *plan)
{
    const Tensor *out = &call->outputs[0];
    int64_t size = type_size(out->type);
    for (int64_t r = 0; plan->c.width != 0 && r < plan->c.rows; r++) {
        for (int64_t c = r < plan->m ? plan->n : 0; c < plan->c.columns; c++) {
            memset((char *)out->data + layout_at(&plan->c, r, c) * size, 0, (size_t)size);
        }
    }
}

static bool blas_run(const OpCall *call)
{
    Plan plan;
    if (!plan_make(call, &plan)) {
        return op_fail(call, "the shapes do not multiply");
    }
    Room room = room_plan(&plan);
    char *memory = call->workspace;
    const void *a = unpacked(&plan, call->inputs[INPUT_A], &plan.a, plan.m, plan.k,
        memory + room.a);
    const void *b = unpacked(&plan, call->inputs[INPUT_B], &plan.b, plan.k, plan.n,
        memory + room.b);
    if (plan.whole) {
        Whole whole = {&plan, a, b, (uint32_t *)(void *)memory};
        parallel_for(call->threads, plan.m, whole_row, &whole);
    } else {
        half_sums(call, &plan, a, b, (float *)(void *)memory, memory + room.scratch);
    }
    if (call->outputs[0].type == ACL_INT32) {
        whole_finish(call, &plan, (const int32_t *)(const void *)memory);
    } else {
        real_finish(call, &plan, memory);
    }
    padding_clear(call, &plan);
    return true;
}

const OpKind ops_blas[] = {
    {"GEMM", OP_ACL, 5, 5, 1, 0, blas_infer, blas_workspace, blas_run, 0, 0},
    {0},
};
