/* op_gather.c: operators that read or write elements at the indices in another tensor.

   If the values are only known on the stream, an index outside its dimension cannot be refused when
   the call is queued. Then `run` reports it, and the stream fails, as on a device. */
#include "ops/op.h"
#include "numbers/strided.h"
#include "numbers/vmath.h"

#include <string.h>

enum { SCATTER_NONE, SCATTER_ADD, SCATTER_MUL, SCATTER_MAX, SCATTER_MIN, SCATTER_UNKNOWN };

static bool index_check(const OpCall *call, int input)
{
    aclDataType type = call->inputs[input]->type;
    if (type != ACL_INT32 && type != ACL_INT64) {
        return op_fail(
            call, "input %d: expected int32 or int64 indices, got %s", input, type_name(type));
    }
    return true;
}

static bool index_get(
    const OpCall *call, const Tensor *indices, int64_t at, int64_t length, int64_t *value)
{
    int64_t index = tensor_get_int(indices, at);
    *value = index < 0 ? index + length : index;
    if (*value < 0 || *value >= length) {
        return op_fail(
            call, "index %lld is outside a dimension of %lld", (long long)index, (long long)length);
    }
    return true;
}

/* --- Gather --- */

static int gather_axis(const OpCall *call)
{
    const Tensor *axis = call->kind->domain == OP_ACL ? op_input(call, 2) : NULL;
    int64_t asked = axis != NULL ? tensor_get_int(axis, 0) : attr_int(call, "axis", 0);
    return axis_normal(asked, call->inputs[0]->rank);
}

static bool gather_infer(OpCall *call)
{
    const Tensor *in = call->inputs[0], *indices = call->inputs[1];
    Tensor *out = &call->outputs[0];
    int axis = gather_axis(call);
    if (!index_check(call, 1)) {
        return false;
    }
    if (axis < 0 || in->rank - 1 + indices->rank > TENSOR_RANK_MAX) {
        return op_fail(call,
            "axis is outside the rank %d of input 0, or the result has too many dimensions",
            in->rank);
    }
    out->type = in->type;
    out->rank = 0;
    for (int d = 0; d < in->rank; d++) {
        if (d != axis) {
            out->dims[out->rank++] = in->dims[d];
            continue;
        }
        for (int i = 0; i < indices->rank; i++) {
            out->dims[out->rank++] = indices->dims[i];
        }
    }
    return true;
}

static bool gather_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0], *indices = call->inputs[1];
    int axis = gather_axis(call);
    int64_t outer = dims_count(in->dims, axis), length = in->dims[axis],
            picks = tensor_count(indices);
    int64_t run = dims_count(in->dims + axis + 1, in->rank - axis - 1) * type_size(in->type);
    char *out = call->outputs[0].data;
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t i = 0; i < picks && run > 0; i++, out += run) {
            int64_t index;
            if (!index_get(call, indices, i, length, &index)) {
                return false;
            }
            memcpy(out, (const char *)in->data + (o * length + index) * run, (size_t)run);
        }
    }
    return true;
}

/* --- GatherElements, ScatterElements: the index tensor has the rank of the data --- */

static int elements_axis(const OpCall *call)
{
    return axis_normal(attr_int(call, "axis", 0), call->inputs[0]->rank);
}

static bool elements_check(const OpCall *call)
{
    const Tensor *in = call->inputs[0], *indices = call->inputs[1];
    int axis = elements_axis(call);
    bool fits = axis >= 0 && indices->rank == in->rank;
    for (int d = 0; fits && d < in->rank; d++) {
        fits = d == axis || indices->dims[d] <= in->dims[d];
    }
    if (!fits) {
        char a[128], b[128];
        return op_fail(call, "indices of shape %s do not fit data of shape %s",
            shape_text(indices, a, sizeof a), shape_text(in, b, sizeof b));
    }
    return index_check(call, 1);
}

static bool pick_infer(OpCall *call)
{
    if (!elements_check(call)) {
        return false;
    }
    call->outputs[0].type = call->inputs[0]->type;
    tensor_shape_copy(&call->outputs[0], call->inputs[1]);
    return true;
}

/* The state of element_place, which finds the offset in the data for element `at` of the index
   tensor. It is kept between calls, because `at` grows by one from call to call. */
typedef struct ElementRow {
    int64_t strides[TENSOR_RANK_MAX];
    int64_t base;       /* offset of the row, with index 0 on the indexed axis */
    int axis, last;
} ElementRow;

static ElementRow row_start(const OpCall *call)
{
    const Tensor *in = call->inputs[0];
    ElementRow row = {.axis = elements_axis(call), .last = in->rank - 1};
    strides_of(in, row.strides);
    return row;
}

static void row_base(const OpCall *call, ElementRow *row, int64_t rest)
{
    const Tensor *indices = call->inputs[1];
    row->base = 0;
    for (int d = row->last - 1; d >= 0; d--) {
        row->base += d != row->axis ? rest % indices->dims[d] * row->strides[d] : 0;
        rest /= indices->dims[d];
    }
}

static bool element_place(const OpCall *call, ElementRow *row, int64_t at, int64_t *place)
{
    const Tensor *in = call->inputs[0], *indices = call->inputs[1];
    int64_t width = indices->dims[row->last], column = at % width, index;
    if (column == 0) {
        row_base(call, row, at / width);
    }
    if (!index_get(call, indices, at, in->dims[row->axis], &index)) {
        return false;
    }
    *place = row->base + index * row->strides[row->axis]
        + (row->axis != row->last ? column * row->strides[row->last] : 0);
    return true;
}

/* Makes negative indices of an axis with `length` elements positive. Returns false if one is out of range. */
WIDE static bool places_count(int64_t *index, int64_t n, int64_t length)
{
    int64_t outside = 0;
    for (int64_t i = 0; i < n; i++) {
        index[i] += index[i] < 0 ? length : 0;
        outside |= index[i] < 0 || index[i] >= length;
    }
    return outside == 0;
}

#define PICK(T) \
    for (int64_t i = 0; i < n; i++) { \
        ((T *)to)[i] = ((const T *)from)[index[i] * stride + i * step]; \
    } \
    break

/* Copies `n` elements; element i is at index[i] * stride + i * step. */
static void places_pick(void *to, const void *from, const int64_t *index, int64_t n,
    int64_t stride, int64_t step, int64_t size)
{
    switch (size) {
    case 1: PICK(uint8_t);
    case 2: PICK(uint16_t);
    case 4: PICK(uint32_t);
    default: PICK(uint64_t);
    }
}

static bool pick_run(const OpCall *call)
{
    enum { BLOCK = 512 };
    const Tensor *in = call->inputs[0], *indices = call->inputs[1];
    int64_t size = type_size(in->type), count = tensor_count(indices), place, index[BLOCK];
    ElementRow row = row_start(call);
    int64_t width = count == 0 ? 1 : indices->dims[row.last];
    int64_t stride = row.strides[row.axis], step = row.axis != row.last;
    for (int64_t at = 0; at < count; at += width) {
        for (int64_t i = 0; i < width; i += BLOCK) {
            int64_t n = width - i < BLOCK ? width - i : BLOCK;
            const char *from = (const char *)indices->data + (at + i) * type_size(indices->type);
            convert(index, ACL_INT64, from, indices->type, 1, n);
            bool inside = places_count(index, n, in->dims[row.axis]);
            for (int64_t j = i; !inside && j < i + n; j++) { /* find the index that is out of range */
                if (!element_place(call, &row, at + j, &place)) {
                    return false;
                }
            }
            row_base(call, &row, at / width);
            places_pick((char *)call->outputs[0].data + (at + i) * size,
                (const char *)in->data + (row.base + i * step) * size, index, n, stride, step,
                size);
        }
    }
    return true;
}

/* --- scattering --- */

static int reduction_read(const OpCall *call)
{
    static const char *const names[] = {"none", "add", "mul", "max", "min"};
    const char *name = attr_string(call, "reduction", "none");
    for (int i = 0; i < SCATTER_UNKNOWN; i++) {
        if (strcmp(names[i], name) == 0) {
            return i;
        }
    }
    return SCATTER_UNKNOWN;
}

#define JOIN(EXPRESSION) \
    for (int64_t i = 0; i < n; i++) { \
        a[i] = (EXPRESSION); \
    } \
    break

WIDE static void reals_join(int how, double *a, const double *b, int64_t n)
{
    switch (how) {
    case SCATTER_ADD: JOIN(a[i] + b[i]);
    case SCATTER_MUL: JOIN(a[i] * b[i]);
    case SCATTER_MAX: JOIN(a[i] > b[i] ? a[i] : b[i]);
    default: JOIN(a[i] < b[i] ? a[i] : b[i]);
    }
}

WIDE static void wholes_join(int how, int64_t *a, const int64_t *b, int64_t n)
{
    switch (how) {
    case SCATTER_ADD: JOIN((int64_t)((uint64_t)a[i] + (uint64_t)b[i]));
    case SCATTER_MUL: JOIN((int64_t)((uint64_t)a[i] * (uint64_t)b[i]));
    case SCATTER_MAX: JOIN(a[i] > b[i] ? a[i] : b[i]);
    default: JOIN(a[i] < b[i] ? a[i] : b[i]);
    }
}

static void run_join(
    const Tensor *out, int64_t to, const Tensor *updates, int64_t from, int64_t count, int how)
{
    int64_t size = type_size(out->type);
    if (how == SCATTER_NONE) {
        memcpy((char *)out->data + to * size, (const char *)updates->data + from * size,
            (size_t)(count * size));
        return;
    }
    if (count == 1 && out->type == ACL_FLOAT) { /* the usual case */
        float *place = (float *)out->data + to;
        double so_far = (double)*place, more = (double)((const float *)updates->data)[from];
        reals_join(how, &so_far, &more, 1);
        *place = (float)so_far;
        return;
    }
    enum { BLOCK = 256 };
    bool real = type_is_float(out->type);
    aclDataType compute = real ? ACL_DOUBLE : ACL_INT64;
    double a[BLOCK], b[BLOCK];
    for (int64_t i = 0; i < count; i += BLOCK) {
        int64_t n = count - i < BLOCK ? count - i : BLOCK;
        char *place = (char *)out->data + (to + i) * size;
        convert(a, compute, place, out->type, 1, n);
        convert(b, compute, (const char *)updates->data + (from + i) * size, out->type, 1, n);
        if (real) {
            reals_join(how, a, b, n);
        } else {
            wholes_join(how, (int64_t *)(void *)a, (const int64_t *)(const void *)b, n);
        }
        convert(place, out->type, a, compute, 1, n);
    }
}

static bool scatter_check(const OpCall *call)
{
    if (reduction_read(call) == SCATTER_UNKNOWN) {
        return op_fail(call, "reduction %s is not supported", attr_string(call, "reduction", ""));
    }
    if (call->inputs[2]->type != call->inputs[0]->type) {
        return op_fail(call, "input 2: expected %s like input 0, got %s",
            type_name(call->inputs[0]->type), type_name(call->inputs[2]->type));
    }
    return true;
}

static bool put_infer(OpCall *call)
{
    if (!elements_check(call) || !scatter_check(call)) {
        return false;
    }
    if (!tensor_same_shape(call->inputs[1], call->inputs[2])) {
        return op_fail(call, "inputs 1 and 2: indices and updates differ in shape");
    }
    return op_same(call, 0);
}

static bool put_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0];
    int64_t place;
    int how = reduction_read(call);
    ElementRow row = row_start(call);
    memcpy(call->outputs[0].data, in->data, (size_t)tensor_bytes(in));
    for (int64_t i = 0; i < tensor_count(call->inputs[1]); i++) {
        if (!element_place(call, &row, i, &place)) {
            return false;
        }
        run_join(&call->outputs[0], place, call->inputs[2], i, 1, how);
    }
    return true;
}

/* --- GatherND, ScatterND: the last dimension of the indices holds the numbers of one index --- */

typedef struct Places {
    int64_t batch;     /* product of the leading dimensions that data and indices share */
    int batch_dims;
    int depth;         /* numbers that form one index */
    int64_t count;     /* indices in one batch */
    int64_t run;       /* contiguous elements that one index selects */
    int64_t span;      /* elements of the data in one batch */
} Places;

static bool places_plan(const OpCall *call, Places *p)
{
    const Tensor *in = call->inputs[0], *indices = call->inputs[1];
    int64_t batch_dims = call->kind->variant != 0 ? 0 : attr_int(call, "batch_dims", 0);
    bool fits = indices->rank > 0 && batch_dims >= 0 && batch_dims < indices->rank
        && indices->dims[indices->rank - 1] <= in->rank - batch_dims;
    for (int d = 0; fits && d < batch_dims; d++) {
        fits = in->dims[d] == indices->dims[d];
    }
    if (!fits) {
        char a[128], b[128];
        return op_fail(call, "indices of shape %s do not fit data of shape %s",
            shape_text(indices, a, sizeof a), shape_text(in, b, sizeof b));
    }
    int skip = (int)batch_dims;
    p->batch_dims = skip;
    p->depth = (int)indices->dims[indices->rank - 1];
    p->batch = dims_count(in->dims, skip);
    p->count = dims_count(indices->dims + skip, indices->rank - 1 - skip);
    p->run = dims_count(in->dims + skip + p->depth, in->rank - skip - p->depth);
    p->span = dims_count(in->dims + skip, in->rank - skip);
    return index_check(call, 1);
}

static bool place_find(const OpCall *call, const Places *p, int64_t at, int64_t *place)
{
    const Tensor *in = call->inputs[0], *indices = call->inputs[1];
    *place = 0;
    for (int d = 0; d < p->depth; d++) {
        int64_t length = in->dims[p->batch_dims + d], index;
        if (!index_get(call, indices, at * p->depth + d, length, &index)) {
            return false;
        }
        *place = *place * length + index;
    }
    *place = *place * p->run + at / (p->count == 0 ? 1 : p->count) * p->span;
    return true;
}

static bool gathernd_infer(OpCall *call)
{
    Places p;
    const Tensor *in = call->inputs[0], *indices = call->inputs[1];
    Tensor *out = &call->outputs[0];
    if (!places_plan(call, &p)) {
        return false;
    }
    int tail = in->rank - p.batch_dims - p.depth;
    if (indices->rank - 1 + tail > TENSOR_RANK_MAX) {
        return op_fail(call, "the result would have %d dimensions", indices->rank - 1 + tail);
    }
    out->type = in->type;
    tensor_shape_copy(out, indices);
    out->rank = indices->rank - 1;
    for (int d = 0; d < tail; d++) {
        out->dims[out->rank++] = in->dims[p.batch_dims + p.depth + d];
    }
    return true;
}

static bool gathernd_run(const OpCall *call)
{
    Places p;
    const Tensor *in = call->inputs[0];
    int64_t size = type_size(in->type), place;
    if (!places_plan(call, &p)) {
        return false;
    }
    for (int64_t i = 0; i < p.batch * p.count; i++) {
        if (!place_find(call, &p, i, &place)) {
            return false;
        }
        memcpy((char *)call->outputs[0].data + i * p.run * size,
            (const char *)in->data + place * size, (size_t)(p.run * size));
    }
    return true;
}

static bool scatternd_infer(OpCall *call)
{
    Places p;
    if (!places_plan(call, &p) || !scatter_check(call)) {
        return false;
    }
    if (tensor_count(call->inputs[2]) != p.count * p.run) {
        return op_fail(call, "input 2: expected %lld updates, got %lld",
            (long long)(p.count * p.run), (long long)tensor_count(call->inputs[2]));
    }
    return op_same(call, 0);
}

static bool scatternd_run(const OpCall *call)
{
    Places p;
    const Tensor *in = call->inputs[0];
    int64_t place;
    if (!places_plan(call, &p)) {
        return false;
    }
    memcpy(call->outputs[0].data, in->data, (size_t)tensor_bytes(in));
    for (int64_t i = 0; i < p.count; i++) {
        if (!place_find(call, &p, i, &place)) {
            return false;
        }
        run_join(&call->outputs[0], place, call->inputs[2], i * p.run, p.run, reduction_read(call));
    }
    return true;
}

const OpKind ops_gather[] = {
    {"Gather", OP_ONNX, 2, 2, 1, 0, gather_infer, NULL, gather_run, 0, 0},
    {"GatherV2", OP_ACL, 2, 3, 1, 4, gather_infer, NULL, gather_run, 0, 0},
    {"GatherV2D", OP_ACL, 2, 2, 1, 0, gather_infer, NULL, gather_run, 0, 0},
    {"GatherElements", OP_ONNX, 2, 2, 1, 0, pick_infer, NULL, pick_run, 0, 0},
    {"ScatterElements", OP_ONNX, 3, 3, 1, 0, put_infer, NULL, put_run, 0, 0},
    {"Scatter", OP_ONNX, 3, 3, 1, 0, put_infer, NULL, put_run, 0, 0},
    {"GatherND", OP_ONNX, 2, 2, 1, 0, gathernd_infer, NULL, gathernd_run, 0, 0},
    {"ScatterND", OP_ONNX, 3, 3, 1, 0, scatternd_infer, NULL, scatternd_run, 1, 0},
    {0},
};
