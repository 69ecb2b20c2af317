/* op_select.c: TopK, and the operators whose output size depends on data: NonZero, Compress,
   NonMaxSuppression.

   If the output size depends on data, infer already computes the result to count its elements; run
   computes it again and writes it. */
#include "ops/op.h"
#include "numbers/vmath.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An element's index and key. Keys compare as the elements' values do, or inversely if the smallest
   values are wanted. */
typedef struct Ranked {
    uint64_t key;
    int64_t index;
} Ranked;

enum { BLOCK = 256 };

/* --- TopK: a heap of the best k, its root the worst of them --- */

static bool ranks_before(const Ranked *a, const Ranked *b)
{
    return a->key != b->key ? a->key > b->key : a->index < b->index;
}

/* Returns the key of a number. NaN ranks above everything; -0 and +0 have the same key. */
INLINED uint64_t real_key(double value)
{
    uint64_t bits;
    value = value != value ? (double)NAN : value + 0.0;
    memcpy(&bits, &value, sizeof bits);
    return bits ^ ((0 - (bits >> 63)) | (uint64_t)1 << 63);
}

WIDE static void keys_of_reals(uint64_t *keys, const double *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        keys[i] = real_key(values[i]);
    }
}

/* Computes the keys of up to BLOCK elements that are `stride` apart. */
static void keys_load(
    const Tensor *in, int64_t at, int64_t stride, int64_t n, bool largest, uint64_t *keys)
{
    bool wide = in->type == ACL_UINT64;
    uint64_t flip = largest ? 0 : ~(uint64_t)0;
    double values[BLOCK];
    const char *from = (const char *)in->data + at * type_size(in->type);
    if (type_is_float(in->type)) {
        convert(values, ACL_DOUBLE, from, in->type, stride, n);
        keys_of_reals(keys, values, n);
    } else {
        convert(keys, wide ? ACL_UINT64 : ACL_INT64, from, in->type, stride, n);
        flip ^= wide ? 0 : (uint64_t)1 << 63;
    }
    for (int64_t i = 0; i < n && flip != 0; i++) {
        keys[i] ^= flip;
    }
}

static void heap_sink(Ranked *heap, int64_t count, int64_t at)
{
    for (;;) {
        int64_t worst = at, left = 2 * at + 1;
        for (int64_t child = left; child < left + 2 && child < count; child++) {
            if (ranks_before(&heap[worst], &heap[child])) {
                worst = child;
            }
        }
        if (worst == at) {
            return;
        }
        Ranked moved = heap[at];
        heap[at] = heap[worst];
        heap[worst] = moved;
        at = worst;
    }
}

static void line_rank(const Tensor *in, int64_t base, int64_t step, int64_t length, int64_t k,
    bool largest, Ranked *heap)
{
    uint64_t keys[BLOCK];
    for (int64_t first = 0; first < length && k > 0; first += BLOCK) {
        int64_t n = length - first < BLOCK ? length - first : BLOCK, i = 0;
        keys_load(in, base + first * step, step, n, largest, keys);
        for (; i < n && first + i < k; i++) {
            heap[first + i] = (Ranked){keys[i], first + i};
            for (int64_t at = k / 2; first + i == k - 1 && at-- > 0;) {
                heap_sink(heap, k, at);
            }
        }
        for (; i < n; i++) {
            if (keys[i] > heap[0].key) { /* not >=: of equal elements the first is kept */
                heap[0] = (Ranked){keys[i], first + i};
                heap_sink(heap, k, 0);
            }
        }
    }
    for (int64_t count = k; count > 1; count--) { /* heap sort: move the worst element to the end */
        Ranked worst = heap[0];
        heap[0] = heap[count - 1];
        heap[count - 1] = worst;
        heap_sink(heap, count - 1, 0);
    }
}

static int topk_axis(const OpCall *call)
{
    return axis_normal(
        attr_int(call, call->kind->domain == OP_ACL ? "dim" : "axis", -1), call->inputs[0]->rank);
}

/* The count k is an attribute before operator set 10, and for TopKD. TopKD's second input is a
   table for the chip, which is not read. */
enum { TOPK, TOPK_D };

static int64_t topk_count(const OpCall *call)
{
    const Tensor *k = call->kind->variant == TOPK_D ? NULL : op_input(call, 1);
    return k == NULL ? attr_int(call, "k", -1) : tensor_count(k) == 1 ? tensor_get_int(k, 0) : -1;
}

static bool topk_infer(OpCall *call)
{
    const Tensor *in = call->inputs[0];
    int axis = topk_axis(call);
    int64_t k = topk_count(call);
    if (axis < 0 || k < 0 || k > in->dims[axis]) {
        char text[128];
        return op_fail(call, "k = %lld does not fit shape %s along axis %lld", (long long)k,
            shape_text(in, text, sizeof text), (long long)attr_int(call, "axis", -1));
    }
    for (int i = 0; i < call->output_count; i++) {
        call->outputs[i].type = i == 0     ? in->type
            : call->kind->domain == OP_ACL ? ACL_INT32
                                           : ACL_INT64;
        tensor_shape_copy(&call->outputs[i], in);
        call->outputs[i].dims[axis] = k;
    }
    return true;
}

static int64_t topk_workspace(const OpCall *call)
{
    return (topk_count(call) + 1) * (int64_t)sizeof(Ranked);
}

static bool topk_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0], *values = &call->outputs[0];
    int axis = topk_axis(call);
    int64_t k = values->dims[axis], inner = dims_count(in->dims + axis + 1, in->rank - axis - 1);
    int64_t lines = dims_count(in->dims, axis) * inner, size = type_size(in->type);
    Ranked *heap = call->workspace;
    for (int64_t line = 0; line < lines; line++) {
        int64_t base = line / inner * in->dims[axis] * inner + line % inner;
        line_rank(in, base, inner, in->dims[axis], k, attr_int(call, "largest", 1) != 0, heap);
        for (int64_t i = 0; i < k; i++) {
            int64_t to = line / inner * k * inner + line % inner + i * inner;
            if (values->data != NULL) {
                const char *from = (const char *)in->data + (base + heap[i].index * inner) * size;
                memcpy((char *)values->data + to * size, from, (size_t)size);
            }
            if (call->output_count > 1 && call->outputs[1].data != NULL) {
                const Tensor *places = &call->outputs[1];
                convert((char *)places->data + to * type_size(places->type), places->type,
                    &heap[i].index, ACL_INT64, 1, 1);
            }
        }
    }
    return true;
}

/* --- NonZero --- */

/* True if the output has one row for each element that is not zero, as that of ACL's NonZero
   without the attribute `transpose`. Otherwise it has one row for each dimension, as that of ONNX's
   NonZero. */
static bool nonzero_rows(const OpCall *call)
{
    return call->kind->domain == OP_ACL && attr_int(call, "transpose", 0) == 0;
}

static bool nonzero_infer(OpCall *call)
{
    const Tensor *in = call->inputs[0];
    int64_t found = 0;
    for (int64_t i = 0; i < tensor_count(in); i++) {
        double value = tensor_get_real(in, i);
        found += value < 0.0 || value > 0.0 || isnan(value);
    }
    bool rows = nonzero_rows(call);
    call->outputs[0].type =
        call->kind->domain == OP_ACL ? (aclDataType)attr_int(call, "dtype", ACL_INT64) : ACL_INT64;
    call->outputs[0].rank = 2;
    call->outputs[0].dims[rows ? 1 : 0] = in->rank;
    call->outputs[0].dims[rows ? 0 : 1] = found;
    return call->outputs[0].type == ACL_INT64 || op_fail(call, "dtype: only int64 is supported");
}

static bool nonzero_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    bool rows = nonzero_rows(call);
    int64_t *place = out->data, found = 0, total = out->dims[rows ? 0 : 1];
    for (int64_t i = 0; i < tensor_count(in) && found < total; i++) {
        double value = tensor_get_real(in, i);
        if (!(value < 0.0 || value > 0.0 || isnan(value))) {
            continue;
        }
        int64_t rest = i;
        for (int d = in->rank - 1; d >= 0; d--) {
            place[rows ? found * in->rank + d : d * total + found] = rest % in->dims[d];
            rest /= in->dims[d];
        }
        found++;
    }
    return true;
}

/* --- NonMaxSuppression --- */

typedef struct Box {
    double y1, x1, y2, x2;
} Box;

static Box box_at(const Tensor *boxes, int64_t at, bool centered)
{
    double v[4];
    for (int i = 0; i < 4; i++) {
        v[i] = tensor_get_real(boxes, at * 4 + i);
    }
    if (centered) { /* the box is given as x, y, width, height */
        return (Box){v[1] - v[3] / 2, v[0] - v[2] / 2, v[1] + v[3] / 2, v[0] + v[2] / 2};
    }
    return (Box){fmin(v[0], v[2]), fmin(v[1], v[3]), fmax(v[0], v[2]), fmax(v[1], v[3])};
}

/* The selected boxes of one class, stored so that overlaps with them are computed in one loop. */
typedef struct Survivors {
    int64_t count;
    int64_t *index;
    double *y1, *x1, *y2, *x2, *area;
} Survivors;

/* True if the intersection over union with any selected box exceeds `limit`. */
WIDE static bool survivors_cover(const Survivors *s, const Box *box, double limit)
{
    enum { PART = 64 };
    double area = (box->y2 - box->y1) * (box->x2 - box->x1);
    int64_t covered = 0;
    for (int64_t at = 0; at < s->count && covered == 0; at += PART) {
        int64_t end = s->count - at < PART ? s->count : at + PART;
        for (int64_t j = at; j < end; j++) {
            double bottom = box->y2 < s->y2[j] ? box->y2 : s->y2[j];
            double top = box->y1 > s->y1[j] ? box->y1 : s->y1[j];
            double right = box->x2 < s->x2[j] ? box->x2 : s->x2[j];
            double left = box->x1 > s->x1[j] ? box->x1 : s->x1[j];
            double both = (bottom - top) * (right - left);
            double overlap = both / (area + s->area[j] - both);
            overlap = bottom <= top || right <= left ? 0.0 : overlap;
            covered |= !(overlap <= limit);
        }
    }
    return covered != 0;
}

static void survivors_add(Survivors *s, const Box *box, int64_t index)
{
    int64_t at = s->count++;
    s->index[at] = index;
    s->y1[at] = box->y1, s->x1[at] = box->x1, s->y2[at] = box->y2, s->x2[at] = box->x2;
    s->area[at] = (box->y2 - box->y1) * (box->x2 - box->x1);
}

typedef struct Suppression {
    int64_t most;
    double overlap, score;
    bool centered, scored;
} Suppression;

static Suppression suppression_read(const OpCall *call)
{
    const Tensor *most = op_input(call, 2), *overlap = op_input(call, 3),
                 *score = op_input(call, 4);
    return (Suppression){
        .most = most == NULL || tensor_count(most) == 0 ? 0 : tensor_get_int(most, 0),
        .overlap =
            overlap == NULL || tensor_count(overlap) == 0 ? 0.0 : tensor_get_real(overlap, 0),
        .scored = score != NULL && tensor_count(score) > 0,
        .score = score == NULL || tensor_count(score) == 0 ? 0.0 : tensor_get_real(score, 0),
        .centered = attr_int(call, "center_point_box", 0) != 0,
    };
}

static int ranked_compare(const void *a, const void *b)
{
    return ranks_before(a, b) ? -1 : 1;
}

/* Selects the boxes of one class, in the order of their scores. */
static void class_suppress(const OpCall *call, const Suppression *s, int64_t batch, int64_t row,
    Ranked *ranked, Survivors *kept)
{
    const Tensor *boxes = call->inputs[0], *scores = call->inputs[1];
    int64_t count = scores->dims[2], candidates = 0;
    for (int64_t i = 0; i < count; i++) {
        double value = tensor_get_real(scores, row * count + i);
        if (!s->scored || value > s->score) {
            ranked[candidates++] = (Ranked){real_key(value), i};
        }
    }
    qsort(ranked, (size_t)candidates, sizeof *ranked, ranked_compare);
    kept->count = 0;
    for (int64_t i = 0; i < candidates && kept->count < s->most; i++) {
        Box box = box_at(boxes, batch * count + ranked[i].index, s->centered);
        if (!survivors_cover(kept, &box, s->overlap)) {
            survivors_add(kept, &box, ranked[i].index);
        }
    }
}

/* Returns the number of selected boxes, or -1 if there is no host memory. Writes them as [batch, class, box]
   unless `out` is NULL. */
static int64_t boxes_suppress(const OpCall *call, int64_t *out)
{
    const Tensor *scores = call->inputs[1];
    Suppression s = suppression_read(call);
    size_t count = (size_t)scores->dims[2] + 1;
    Ranked *ranked = malloc(count * sizeof *ranked);
    double *places = malloc(5 * count * sizeof *places);
    int64_t *index = malloc(count * sizeof *index), total = 0;
    bool failed = ranked == NULL || places == NULL || index == NULL;
    for (int64_t row = 0; !failed && row < scores->dims[0] * scores->dims[1]; row++) {
        int64_t batch = row / scores->dims[1];
        Survivors kept = {.index = index, .y1 = places, .x1 = places + count,
            .y2 = places + 2 * count, .x2 = places + 3 * count, .area = places + 4 * count};
        class_suppress(call, &s, batch, row, ranked, &kept);
        for (int64_t i = 0; out != NULL && i < kept.count; i++) {
            int64_t *triple = out + 3 * (total + i);
            triple[0] = batch;
            triple[1] = row % scores->dims[1];
            triple[2] = index[i];
        }
        total += kept.count;
    }
    free(ranked);
    free(places);
    free(index);
    return failed ? -1 : total;
}

static bool nms_infer(OpCall *call)
{
    const Tensor *boxes = call->inputs[0], *scores = call->inputs[1];
    if (boxes->rank != 3 || scores->rank != 3 || boxes->dims[2] != 4
        || boxes->dims[0] != scores->dims[0] || boxes->dims[1] != scores->dims[2]) {
        char a[128], b[128];
        return op_fail(call, "expected boxes [n, m, 4] and scores [n, classes, m], got %s and %s",
            shape_text(boxes, a, sizeof a), shape_text(scores, b, sizeof b));
    }
    int64_t found = boxes_suppress(call, NULL);
    if (found < 0) {
        return op_fail(call, "no host memory for %lld boxes", (long long)boxes->dims[1]);
    }
    call->outputs[0].type = ACL_INT64;
    call->outputs[0].rank = 2;
    call->outputs[0].dims[0] = found;
    call->outputs[0].dims[1] = 3;
    return true;
}

static bool nms_run(const OpCall *call)
{
    return boxes_suppress(call, call->outputs[0].data) >= 0 || op_fail(call, "no host memory");
}

/* --- Compress: where a condition holds, along an axis or over all elements --- */

static bool compress_infer(OpCall *call)
{
    const Tensor *in = call->inputs[0], *condition = call->inputs[1];
    Tensor *out = &call->outputs[0];
    bool flat = attr_find(call, "axis") == NULL;
    int axis = flat ? 0 : axis_normal(attr_int(call, "axis", 0), in->rank);
    int64_t length = flat ? tensor_count(in) : axis < 0 ? 0 : in->dims[axis], kept = 0;
    if (condition->type != ACL_BOOL || condition->rank != 1 || axis < 0
        || condition->dims[0] > length) {
        char text[128];
        return op_fail(call, "input 1: expected a bool vector of at most %lld, got %s %s",
            (long long)length, type_name(condition->type),
            shape_text(condition, text, sizeof text));
    }
    for (int64_t i = 0; i < condition->dims[0]; i++) {
        kept += tensor_get_int(condition, i) != 0;
    }
    (void)op_same(call, 0);
    if (flat) {
        out->rank = 1;
    }
    out->dims[axis] = kept;
    return true;
}

static bool compress_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0], *condition = call->inputs[1];
    bool flat = attr_find(call, "axis") == NULL;
    int axis = flat ? 0 : axis_normal(attr_int(call, "axis", 0), in->rank);
    int64_t length = flat ? tensor_count(in) : in->dims[axis];
    int64_t inner = flat ? 1 : dims_count(in->dims + axis + 1, in->rank - axis - 1);
    int64_t outer = flat ? 1 : dims_count(in->dims, axis);
    size_t bytes = (size_t)(inner * type_size(in->type));
    char *to = call->outputs[0].data;
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t i = 0; i < condition->dims[0]; i++) {
            if (tensor_get_int(condition, i) != 0) {
                memcpy(to, (const char *)in->data + (size_t)(o * length + i) * bytes, bytes);
                to += bytes;
            }
        }
    }
    return true;
}

const OpKind ops_select[] = {
    {"TopK", OP_ONNX, 1, 2, 2, 2, topk_infer, topk_workspace, topk_run, 0, 0},
    {"TopKV2", OP_ACL, 2, 2, 2, 2, topk_infer, topk_workspace, topk_run, TOPK, 0},
    {"TopKD", OP_ACL, 1, 2, 2, 0, topk_infer, topk_workspace, topk_run, TOPK_D, 0},
    {"NonZero", OP_ACL, 1, 1, 1, 1, nonzero_infer, NULL, nonzero_run, 0, OP_DATA_SIZED},
    {"NonZero", OP_ONNX, 1, 1, 1, 1, nonzero_infer, NULL, nonzero_run, 0, OP_DATA_SIZED},
    {"NonMaxSuppression", OP_ONNX, 2, 5, 1, 31, nms_infer, NULL, nms_run, 0, OP_DATA_SIZED},
    {"Compress", OP_ONNX, 2, 2, 1, 2, compress_infer, NULL, compress_run, 0, 0},
    {0},
};
