/* op_loss.c: NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss, for models that were exported with their
   loss.

   Scores have the shape [batch, class, place...], labels [batch, place...]. Sums are computed in double. */
#include "ops/op.h"
#include "numbers/vmath.h"

#include <math.h>
#include <string.h>

enum { LIKELIHOOD, ENTROPY };

typedef struct Plan {
    int64_t batch, classes, places;
    bool each, mean;            /* each: reduction "none"; mean: reduction "mean"; both false: reduction "sum" */
    bool ignores;
    int64_t ignored;
} Plan;

static bool loss_plan(const OpCall *call, Plan *plan)
{
    const Tensor *in = call->inputs[0], *labels = call->inputs[1], *weight = op_input(call, 2);
    const char *reduction = attr_string(call, "reduction", "mean");
    bool fits = in->rank >= 2 && labels->rank == in->rank - 1 && type_is_float(in->type)
        && type_is_integer(labels->type) && labels->dims[0] == in->dims[0];
    for (int d = 2; fits && d < in->rank; d++) {
        fits = labels->dims[d - 1] == in->dims[d];
    }
    char a[128], b[128];
    if (!fits) {
        return op_fail(call, "labels of shape %s do not fit scores of shape %s",
            shape_text(labels, a, sizeof a), shape_text(in, b, sizeof b));
    }
    *plan = (Plan){in->dims[0], in->dims[1], dims_count(in->dims + 2, in->rank - 2),
        strcmp(reduction, "none") == 0, strcmp(reduction, "mean") == 0,
        attr_find(call, "ignore_index") != NULL, attr_int(call, "ignore_index", 0)};
    if (weight != NULL && tensor_count(weight) != plan->classes) {
        return op_fail(call, "input 2: expected a weight for each of %lld classes, got shape %s",
            (long long)plan->classes, shape_text(weight, a, sizeof a));
    }
    return plan->each || plan->mean || strcmp(reduction, "sum") == 0
        || op_fail(call, "attribute reduction: %s is not supported", reduction);
}

static bool loss_infer(OpCall *call)
{
    Plan plan;
    if (!loss_plan(call, &plan)) {
        return false;
    }
    Tensor *out = &call->outputs[0];
    out->type = call->inputs[0]->type;
    tensor_shape_copy(out, call->inputs[1]);
    out->rank = plan.each ? out->rank : 0;
    if (call->output_count > 1) {
        call->outputs[1].type = call->inputs[0]->type;
        tensor_shape_copy(&call->outputs[1], call->inputs[0]);
    }
    return true;
}

static void real_put(const Tensor *out, int64_t at, double value)
{
    convert((char *)out->data + at * type_size(out->type), out->type, &value, ACL_DOUBLE, 1, 1);
}

enum { BLOCK = 256, LANES = 16 };

/* Loads the scores of `n` classes of one position. In memory, neighbouring classes are `places` elements apart. */
static void scores_load(const Tensor *in, const Plan *plan, int64_t at, int64_t n, double *to)
{
    const char *from = (const char *)in->data + at * type_size(in->type);
    convert(to, ACL_DOUBLE, from, in->type, plan->places, n);
}

/* Returns the sum of exp(x - top). The exponential is computed in float32, for scores that are not float64. */
WIDE static double powers_sum(const double *x, double top, int64_t n)
{
    double lanes[LANES] = {0}, sum = 0.0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            lanes[l] += (double)exp_fast((float)(x[i + l] - top));
        }
    }
    for (; i < n; i++) {
        sum += (double)exp_fast((float)(x[i] - top));
    }
    for (int l = 0; l < LANES; l++) {
        sum += lanes[l];
    }
    return sum;
}

static double powers_sum_exact(const double *x, double top, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += exp(x[i] - top);
    }
    return sum;
}

/* Returns the number to subtract from each score of a position to get the logarithm of the softmax. */
static double softmax_shift(const Tensor *in, const Plan *plan, int64_t base)
{
    double block[BLOCK], top = -INFINITY, sum = 0.0;
    for (int64_t c = 0; c < plan->classes; c += BLOCK) {
        int64_t n = plan->classes - c < BLOCK ? plan->classes - c : BLOCK;
        scores_load(in, plan, base + c * plan->places, n, block);
        for (int64_t i = 0; i < n; i++) {
            top = block[i] > top ? block[i] : top;
        }
    }
    for (int64_t c = 0; c < plan->classes; c += BLOCK) {
        int64_t n = plan->classes - c < BLOCK ? plan->classes - c : BLOCK;
        scores_load(in, plan, base + c * plan->places, n, block);
        sum += (in->type == ACL_DOUBLE ? powers_sum_exact : powers_sum)(block, top, n);
    }
    return top + log(sum);
}

static bool loss_run(const OpCall *call)
{
    Plan plan;
    const Tensor *in = call->inputs[0], *labels = call->inputs[1], *weight = op_input(call, 2);
    double total = 0.0, weights = 0.0;
    if (!loss_plan(call, &plan)) {
        return false;
    }
    bool wanted = call->output_count > 1 && call->outputs[1].data != NULL;
    for (int64_t i = 0; i < plan.batch * plan.places; i++) {
        int64_t base = i / plan.places * plan.classes * plan.places + i % plan.places;
        int64_t label = tensor_get_int(labels, i);
        bool counts = !plan.ignores || label != plan.ignored;
        if (counts && (label < 0 || label >= plan.classes)) {
            return op_fail(call, "label %lld is outside the %lld classes", (long long)label,
                (long long)plan.classes);
        }
        double shift = call->kind->variant == ENTROPY ? softmax_shift(in, &plan, base) : 0.0;
        for (int64_t c = 0; wanted && c < plan.classes; c++) {
            int64_t at = base + c * plan.places;
            real_put(&call->outputs[1], at, tensor_get_real(in, at) - shift);
        }
        double w = !counts ? 0.0 : weight == NULL ? 1.0 : tensor_get_real(weight, label);
        double loss =
            counts ? w * (shift - tensor_get_real(in, base + label * plan.places)) : 0.0;
        if (plan.each) {
            real_put(&call->outputs[0], i, loss);
        }
        total += loss;
        weights += w;
    }
    if (!plan.each) {
        real_put(&call->outputs[0], 0, plan.mean ? total / weights : total);
    }
    return true;
}

const OpKind ops_loss[] = {
    {"NegativeLogLikelihoodLoss", OP_ONNX, 2, 3, 1, 0, loss_infer, NULL, loss_run, LIKELIHOOD, 0},
    {"SoftmaxCrossEntropyLoss", OP_ONNX, 2, 3, 2, 0, loss_infer, NULL, loss_run, ENTROPY, 0},
    {0},
};
