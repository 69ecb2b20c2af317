/* op_select.c: TopK, and the operators whose output size depends on data: NonZero,
   NonMaxSuppression.

   For the latter infer does the work of counting; run repeats it and writes. */
#include "op.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Ranked {
    double value;
    int64_t index;
} Ranked;

/* --- TopK: a heap of the best k, its root the worst of them --- */

static bool ranks_before(const Ranked *a, const Ranked *b, bool largest)
{
    if (a->value > b->value || a->value < b->value) {
        return (a->value > b->value) == largest;
    }
    return a->index < b->index;
}

static void heap_sink(Ranked *heap, int64_t count, int64_t at, bool largest)
{
    for (;;) {
        int64_t worst = at, left = 2 * at + 1;
        for (int64_t child = left; child < left + 2 && child < count; child++) {
            if (ranks_before(&heap[worst], &heap[child], largest)) {
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
    for (int64_t i = 0; i < length && k > 0; i++) {
        Ranked next = {tensor_get_real(in, base + i * step), i};
        if (i < k) {
            heap[i] = next;
            for (int64_t at = k / 2; i == k - 1 && at-- > 0;) {
                heap_sink(heap, k, at, largest);
            }
        } else if (ranks_before(&next, &heap[0], largest)) {
            heap[0] = next;
            heap_sink(heap, k, 0, largest);
        }
    }
    for (int64_t count = k; count > 1; count--) { /* the worst to the end, again and again */
        Ranked worst = heap[0];
        heap[0] = heap[count - 1];
        heap[count - 1] = worst;
        heap_sink(heap, count - 1, 0, largest);
    }
}

static int topk_axis(const OpCall *call)
{
    return axis_normal(
        attr_int(call, call->kind->domain == OP_ACL ? "dim" : "axis", -1), call->inputs[0]->rank);
}

/* An attribute before operator set 10. */
static int64_t topk_count(const OpCall *call)
{
    const Tensor *k = op_input(call, 1);
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

/* ONNX has a row for each dimension; ACL, without its attribute transpose, one for each place. */
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
    if (centered) { /* x, y, width, height */
        return (Box){v[1] - v[3] / 2, v[0] - v[2] / 2, v[1] + v[3] / 2, v[0] + v[2] / 2};
    }
    return (Box){fmin(v[0], v[2]), fmin(v[1], v[3]), fmax(v[0], v[2]), fmax(v[1], v[3])};
}

static double box_overlap(const Box *a, const Box *b)
{
    double height = fmin(a->y2, b->y2) - fmax(a->y1, b->y1);
    double width = fmin(a->x2, b->x2) - fmax(a->x1, b->x1);
    if (height <= 0.0 || width <= 0.0) {
        return 0.0;
    }
    double both = height * width;
    double sum = (a->y2 - a->y1) * (a->x2 - a->x1) + (b->y2 - b->y1) * (b->x2 - b->x1);
    return both / (sum - both);
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
    return ranks_before(a, b, true) ? -1 : 1;
}

/* The boxes of one class that survive, best first, into `kept`; returns how many. */
static int64_t class_suppress(const OpCall *call, const Suppression *s, int64_t batch, int64_t row,
    Ranked *ranked, int64_t *kept)
{
    const Tensor *boxes = call->inputs[0], *scores = call->inputs[1];
    int64_t count = scores->dims[2], candidates = 0, survivors = 0;
    for (int64_t i = 0; i < count; i++) {
        double value = tensor_get_real(scores, row * count + i);
        if (!s->scored || value > s->score) {
            ranked[candidates++] = (Ranked){value, i};
        }
    }
    qsort(ranked, (size_t)candidates, sizeof *ranked, ranked_compare);
    for (int64_t i = 0; i < candidates && survivors < s->most; i++) {
        Box box = box_at(boxes, batch * count + ranked[i].index, s->centered);
        bool free = true;
        for (int64_t j = 0; j < survivors && free; j++) {
            Box other = box_at(boxes, batch * count + kept[j], s->centered);
            free = box_overlap(&box, &other) <= s->overlap;
        }
        if (free) {
            kept[survivors++] = ranked[i].index;
        }
    }
    return survivors;
}

/* Writes [batch, class, box] triples where out is not NULL; returns their number, -1 without
 * memory. */
static int64_t boxes_suppress(const OpCall *call, int64_t *out)
{
    const Tensor *scores = call->inputs[1];
    Suppression s = suppression_read(call);
    size_t count = (size_t)scores->dims[2] + 1;
    Ranked *ranked = malloc(count * sizeof *ranked);
    int64_t *kept = malloc(count * sizeof *kept), total = 0;
    for (int64_t row = 0; ranked != NULL && kept != NULL && row < scores->dims[0] * scores->dims[1];
        row++) {
        int64_t batch = row / scores->dims[1];
        int64_t found = class_suppress(call, &s, batch, row, ranked, kept);
        for (int64_t i = 0; out != NULL && i < found; i++) {
            int64_t *triple = out + 3 * (total + i);
            triple[0] = batch;
            triple[1] = row % scores->dims[1];
            triple[2] = kept[i];
        }
        total += found;
    }
    bool failed = ranked == NULL || kept == NULL;
    free(ranked);
    free(kept);
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

const OpKind ops_select[] = {
    {"TopK", OP_ONNX, 1, 2, 2, 2, topk_infer, topk_workspace, topk_run, 0, 0},
    {"TopKV2", OP_ACL, 2, 2, 2, 2, topk_infer, topk_workspace, topk_run, 0, 0},
    {"NonZero", OP_ACL, 1, 1, 1, 1, nonzero_infer, NULL, nonzero_run, 0, OP_DATA_SIZED},
    {"NonZero", OP_ONNX, 1, 1, 1, 1, nonzero_infer, NULL, nonzero_run, 0, OP_DATA_SIZED},
    {"NonMaxSuppression", OP_ONNX, 2, 5, 1, 31, nms_infer, NULL, nms_run, 0, OP_DATA_SIZED},
    {0},
};
