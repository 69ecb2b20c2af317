/* op_fusedconv.c: FusedConv of com.microsoft: a convolution, the addition of an optional tensor, and an activation.

   An attribute has the name of the activation. An unknown name is refused when the model is loaded. */
#include "layers/conv.h"
#include "ops/op.h"
#include "numbers/vmath.h"

#include <string.h>

enum { CHUNK = 512 };

typedef enum Act { ACT_NONE, RELU, TANH, SIGMOID, LEAKY, CLIP, HARD_SIGMOID, ACT_UNKNOWN } Act;

static Act act_of(const OpCall *call)
{
    static const char *const names[] = {
        "", "Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid",
    };
    const char *name = attr_string(call, "activation", "");
    int act = ACT_NONE;
    while (act < ACT_UNKNOWN && strcmp(names[act], name) != 0) {
        act++;
    }
    return (Act)act;
}

static float act_number(const OpCall *call, int64_t i, float otherwise)
{
    const Attr *attr = attr_find(call, "activation_params");
    return attr != NULL && attr->kind == ATTR_FLOATS && i < attr->count ? attr->floats[i]
                                                                        : otherwise;
}

bool fusedconv_accept(const OpCall *call)
{
    return act_of(call) != ACT_UNKNOWN || op_fail(call, "attribute activation: %s is not supported",
        attr_string(call, "activation", ""));
}

static bool fusedconv_infer(OpCall *call)
{
    const Tensor *sum = op_input(call, 3);
    if (!conv_infer(call)) {
        return false;
    }
    char a[128], b[128];
    return sum == NULL || (tensor_same_shape(sum, &call->outputs[0])
        && sum->type == call->outputs[0].type)
        || op_fail(call, "input 3: expected the output's shape %s, got %s",
            shape_text(&call->outputs[0], a, sizeof a), shape_text(sum, b, sizeof b));
}

WIDE static void act_run(Act act, float p, float q, float *x, int64_t n)
{
    for (int64_t i = 0; act == RELU && i < n; i++) {
        x[i] = x[i] < 0.0F ? 0.0F : x[i];
    }
    for (int64_t i = 0; act == TANH && i < n; i++) {
        x[i] = tanh_fast(x[i]);
    }
    for (int64_t i = 0; act == SIGMOID && i < n; i++) {
        x[i] = sigmoid_fast(x[i]);
    }
    for (int64_t i = 0; act == LEAKY && i < n; i++) {
        x[i] = x[i] < 0.0F ? p * x[i] : x[i];
    }
    for (int64_t i = 0; act == CLIP && i < n; i++) {
        x[i] = x[i] < p ? p : x[i] > q ? q : x[i];
    }
    for (int64_t i = 0; act == HARD_SIGMOID && i < n; i++) {
        float y = p * x[i] + q;
        x[i] = y < 0.0F ? 0.0F : y > 1.0F ? 1.0F : y;
    }
}

static bool fusedconv_run(const OpCall *call)
{
    const Tensor *out = &call->outputs[0], *sum = op_input(call, 3);
    Act act = act_of(call);
    bool clip = act == CLIP;
    float p = act_number(call, 0, clip ? -3.4028235e38F : act == LEAKY ? 0.01F : 0.2F);
    float q = act_number(call, 1, clip ? 3.4028235e38F : 0.5F);
    float x[CHUNK], y[CHUNK];
    int64_t count = tensor_count(out), size = type_size(out->type);
    if (!conv_run(call)) {
        return false;
    }
    for (int64_t at = 0; at < count; at += CHUNK) {
        int64_t n = count - at < CHUNK ? count - at : CHUNK;
        char *place = (char *)out->data + at * size;
        convert(x, ACL_FLOAT, place, out->type, 1, n);
        if (sum != NULL) {
            convert(y, ACL_FLOAT, (const char *)sum->data + at * size, sum->type, 1, n);
        }
        for (int64_t i = 0; sum != NULL && i < n; i++) {
            x[i] += y[i];
        }
        act_run(act, p, q, x, n);
        convert(place, out->type, x, ACL_FLOAT, 1, n);
    }
    return true;
}

const OpKind ops_fusedconv[] = {
    {"FusedConv", OP_ORT, 2, 4, 1, 0, fusedconv_infer, conv_workspace, fusedconv_run, 0, 0},
    {0},
};
