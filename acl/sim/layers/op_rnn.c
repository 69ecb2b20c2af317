/* op_rnn.c: LSTM, GRU and RNN with ONNX's layouts and default activations.

   One matrix product computes the products of the inputs of all time steps with the weights. Each step then adds the
   product of the state with its weights. The state is float32 for all types of tensors. */
#include "numbers/gemm.h"
#include "ops/op.h"
#include "numbers/vmath.h"

#include <math.h>
#include <string.h>

enum { LSTM, GRU, RNN };

typedef struct Net {
    int64_t steps, batch, width, hidden, gates, directions;
} Net;

static bool net_plan(const OpCall *call, Net *net)
{
    const Tensor *x = call->inputs[0], *w = call->inputs[1], *r = call->inputs[2];
    int kind = call->kind->variant;
    if (x->rank != 3 || w->rank != 3 || r->rank != 3) {
        return op_fail(call, "inputs 0 to 2: expected rank 3");
    }
    net->gates = kind == LSTM ? 4 : kind == GRU ? 3 : 1;
    net->steps = x->dims[0];
    net->batch = x->dims[1];
    net->width = x->dims[2];
    net->hidden = r->dims[2];
    net->directions = w->dims[0];
    const char *direction = attr_string(call, "direction", "forward");
    bool both = strcmp(direction, "bidirectional") == 0;
    if (!both && strcmp(direction, "forward") != 0 && strcmp(direction, "reverse") != 0) {
        return op_fail(call, "attribute direction: %s is not supported", direction);
    }
    if (attr_int(call, "hidden_size", net->hidden) != net->hidden) {
        return op_fail(call, "attribute hidden_size is %lld, the weights are for %lld",
            (long long)attr_int(call, "hidden_size", 0), (long long)net->hidden);
    }
    if (net->directions != (both ? 2 : 1) || w->dims[1] != net->gates * net->hidden
        || w->dims[2] != net->width || r->dims[0] != net->directions || r->dims[1] != w->dims[1]) {
        char a[128], b[128];
        return op_fail(call, "weights %s and %s do not fit the input", shape_text(w, a, sizeof a),
            shape_text(r, b, sizeof b));
    }
    return true;
}

bool rnn_accept(const OpCall *call)
{
    static const char *const refused[] = {"activations", "clip", "input_forget", "layout"};
    for (int i = 0; i < 4; i++) {
        const Attr *attr = attr_find(call, refused[i]);
        bool harmless = attr == NULL || (attr->kind == ATTR_INT && attr->i == 0);
        if (i == 0 && attr != NULL && attr->kind == ATTR_STRINGS) {
            static const char *const usual[3][3] = {
                {"Sigmoid", "Tanh", "Tanh"}, {"Sigmoid", "Tanh"}, {"Tanh"}};
            bool plain = call->kind->variant == RNN;
            int64_t each = call->kind->variant == LSTM ? 3 : call->kind->variant == GRU ? 2 : 1;
            harmless = true;
            for (int64_t j = 0; j < attr->count; j++) {
                const char *name = attr->strings[j];
                bool other = plain && strcmp(name, "Relu") == 0;
                harmless = harmless
                    && (other || strcmp(name, usual[call->kind->variant][j % each]) == 0);
            }
        }
        if (!harmless) {
            return op_fail(call, "attribute %s: only the default is supported", refused[i]);
        }
    }
    return call->input_count < 8 || op_fail(call, "input 7 (peepholes) is not supported");
}

static bool state_check(const OpCall *call, const Net *net)
{
    for (int i = 5; i < 7; i++) {
        const Tensor *state = op_input(call, i);
        if (state != NULL && tensor_count(state) != net->directions * net->batch * net->hidden) {
            char text[128];
            return op_fail(call, "input %d: expected [%lld, %lld, %lld], got %s", i,
                (long long)net->directions, (long long)net->batch, (long long)net->hidden,
                shape_text(state, text, sizeof text));
        }
    }
    const Tensor *bias = op_input(call, 3), *lengths = op_input(call, 4);
    if (bias != NULL && tensor_count(bias) != net->directions * 2 * net->gates * net->hidden) {
        return op_fail(call, "input 3: expected %lld biases, got %lld",
            (long long)(net->directions * 2 * net->gates * net->hidden),
            (long long)tensor_count(bias));
    }
    return lengths == NULL
        || (tensor_count(lengths) == net->batch && type_is_integer(lengths->type))
        || op_fail(call, "input 4: expected %lld lengths, integers", (long long)net->batch);
}

static bool net_infer(OpCall *call)
{
    Net net;
    if (type_compute(call->inputs[0]->type) != ACL_FLOAT) {
        return op_fail(call, "input 0: %s is not defined for %s", call->kind->name,
            type_name(call->inputs[0]->type));
    }
    if (!net_plan(call, &net) || !state_check(call, &net)) {
        return false;
    }
    for (int i = 0; i < call->output_count; i++) {
        Tensor *out = &call->outputs[i];
        int64_t dims[4] = {net.steps, net.directions, net.batch, net.hidden};
        out->type = call->inputs[0]->type;
        out->rank = i == 0 ? 4 : 3;
        memcpy(out->dims, dims + (i == 0 ? 0 : 1), (size_t)out->rank * sizeof dims[0]);
    }
    return true;
}

/* The parts of the workspace: the products of the inputs, those of the state, the states h and c, the biases, and
   scratch memory for gemm_run. */
typedef struct Room {
    float *inputs, *state, *h, *c, *bias, *scratch;
} Room;

static int64_t room_floats(const Net *net)
{
    int64_t wide = net->gates * net->hidden;
    return (net->steps + 1) * net->batch * wide + 2 * net->batch * net->hidden + 2 * wide;
}

static int64_t net_workspace(const OpCall *call)
{
    Net net;
    if (!net_plan(call, &net)) {
        return 0;
    }
    int64_t wide = net.gates * net.hidden;
    int64_t a = gemm_scratch(net.steps * net.batch, wide, net.width);
    int64_t b = gemm_scratch(net.batch, wide, net.hidden);
    return room_floats(&net) * (int64_t)sizeof(float) + (a > b ? a : b);
}

static Room room_cut(const OpCall *call, const Net *net)
{
    int64_t wide = net->gates * net->hidden;
    Room room = {.inputs = call->workspace};
    room.state = room.inputs + net->steps * net->batch * wide;
    room.h = room.state + net->batch * wide;
    room.c = room.h + net->batch * net->hidden;
    room.bias = room.c + net->batch * net->hidden;
    room.scratch = room.bias + 2 * wide;
    return room;
}

/* Computes out = in * W^T, where `in` is [rows, k], `out` is [rows, gates * hidden] and W is one direction of
   `weight`. */
static void weights_multiply(const OpCall *call, const Net *net, const Tensor *weight,
    int64_t direction, const void *in, aclDataType type, int64_t rows, int64_t k, float *out,
    float *scratch)
{
    int64_t wide = net->gates * net->hidden;
    Gemm gemm = {
        .m = rows,
        .n = wide,
        .k = k,
        .alpha = 1.0F,
        .a = in,
        .a_type = type,
        .a_row = k,
        .a_column = 1,
        .b = (const char *)weight->data + direction * wide * k * type_size(weight->type),
        .b_type = weight->type,
        .b_row = 1,
        .b_column = k,
        .c = out,
        .c_row = wide,
    };
    gemm_run(&gemm, scratch, call->threads);
}

static void state_load(
    const OpCall *call, int input, const Net *net, int64_t direction, float *state)
{
    const Tensor *given = op_input(call, input);
    int64_t count = net->batch * net->hidden;
    float zero = 0.0F;
    if (given == NULL) {
        convert(state, ACL_FLOAT, &zero, ACL_FLOAT, 0, count);
        return;
    }
    const char *from = (const char *)given->data + direction * count * type_size(given->type);
    convert(state, ACL_FLOAT, from, given->type, 1, count);
}

static void bias_load(const OpCall *call, const Net *net, int64_t direction, float *bias)
{
    const Tensor *given = op_input(call, 3);
    int64_t count = 2 * net->gates * net->hidden;
    float zero = 0.0F;
    const char *from = given == NULL ? (const char *)&zero
        : (const char *)given->data + direction * count * type_size(given->type);
    convert(bias, ACL_FLOAT, from, given == NULL ? ACL_FLOAT : given->type, given != NULL, count);
}

/* True if the operator is RNN and its activation in this direction is Relu. Otherwise the activation of an RNN is
 * tanh. */
static bool direction_relu(const OpCall *call, int64_t direction)
{
    const Attr *attr = attr_find(call, "activations");
    return call->kind->variant == RNN && attr != NULL && attr->kind == ATTR_STRINGS
        && direction < attr->count && strcmp(attr->strings[direction], "Relu") == 0;
}

/* The data of one batch element in one step. x and s are the products of the input and of the state with their weights,
   in the order of the gates; w and r are the biases of x and s; h and c are the state. */
typedef struct Row {
    int64_t n;
    const float *x, *s, *w, *r;
    float *h, *c;
} Row;

INLINED float row_gate(const Row *row, int64_t gate, int64_t j)
{
    int64_t at = gate * row->n + j;
    return row->x[at] + row->s[at] + row->w[at] + row->r[at];
}

/* Computes one step of an LSTM. The gates are in the order i, o, f, c. */
WIDE static void lstm_step(const Row *row)
{
    float *restrict h = row->h, *restrict c = row->c;
    const Row own = *row;
    for (int64_t j = 0; j < own.n; j++) {
        float in = sigmoid_fast(row_gate(&own, 0, j));
        float out = sigmoid_fast(row_gate(&own, 1, j));
        float forget = sigmoid_fast(row_gate(&own, 2, j));
        float fresh = tanh_fast(row_gate(&own, 3, j));
        c[j] = forget * c[j] + in * fresh;
        h[j] = out * tanh_fast(c[j]);
    }
}

/* Computes one step of a GRU. The gates are in the order z, r, h. If `late`, the reset gate is multiplied with the
   product of the state; else gru_reset has written the product of the reset state to c. */
WIDE static void gru_step(const Row *row, bool late)
{
    float *restrict h = row->h;
    const float *restrict c = row->c;
    const Row own = *row;
    for (int64_t j = 0; j < own.n; j++) {
        float keep = sigmoid_fast(row_gate(&own, 0, j));
        float reset = sigmoid_fast(row_gate(&own, 1, j));
        float bias = own.r[2 * own.n + j];
        float past = late ? reset * (own.s[2 * own.n + j] + bias) : c[j] + bias;
        float fresh = tanh_fast(own.x[2 * own.n + j] + past + own.w[2 * own.n + j]);
        h[j] = (1.0F - keep) * fresh + keep * h[j];
    }
}

WIDE static void rnn_step(const Row *row, bool relu)
{
    float *restrict h = row->h;
    const Row own = *row;
    for (int64_t j = 0; j < own.n; j++) {
        float sum = row_gate(&own, 0, j);
        h[j] = !relu ? tanh_fast(sum) : sum > 0.0F ? sum : 0.0F;
    }
}

static void row_step(const OpCall *call, const Row *row, bool relu)
{
    if (call->kind->variant == LSTM) {
        lstm_step(row);
    } else if (call->kind->variant == RNN) {
        rnn_step(row, relu);
    } else {
        gru_step(row, attr_int(call, "linear_before_reset", 0) != 0);
    }
}

/* Computes the reset of a GRU that is not late: c = (r * h) * Rh^T for each batch element, where r is the reset
   gate and Rh the weights of the state for gate h. */
static void gru_reset(
    const OpCall *call, const Net *net, const Room *room, const float *x, int64_t direction)
{
    int64_t n = net->hidden, wide = 3 * n;
    const Tensor *r = call->inputs[2];
    const float *wb = room->bias, *rb = room->bias + wide;
    for (int64_t b = 0; b < net->batch; b++) {
        float *reset = room->state + b * wide + 2 * n; /* overwrites the product of the third gate, which is not used */
        for (int64_t j = 0; j < n; j++) {
            float gate =
                x[b * wide + n + j] + room->state[b * wide + n + j] + wb[n + j] + rb[n + j];
            reset[j] = sigmoid_fast(gate) * room->h[b * n + j];
        }
    }
    Gemm gemm = {
        .m = net->batch, .n = n, .k = n, .alpha = 1.0F, .a = room->state + 2 * n,
        .a_type = ACL_FLOAT, .a_row = wide, .a_column = 1,
        .b = (const char *)r->data + (direction * wide + 2 * n) * n * type_size(r->type),
        .b_type = r->type, .b_row = 1, .b_column = n, .c = room->c, .c_row = n,
    };
    gemm_run(&gemm, room->scratch, call->threads);
}

static void output_store(
    const OpCall *call, int output, int64_t at, const float *from, int64_t count)
{
    if (output < call->output_count && call->outputs[output].data != NULL) {
        const Tensor *out = &call->outputs[output];
        convert(
            (char *)out->data + at * type_size(out->type), out->type, from, ACL_FLOAT, 1, count);
    }
}

static void step_run(
    const OpCall *call, const Net *net, const Room *room, int64_t direction, int64_t t)
{
    int64_t n = net->hidden, wide = net->gates * n;
    const Tensor *lengths = op_input(call, 4);
    const float *x = room->inputs + t * net->batch * wide;
    float nothing = 0.0F;
    weights_multiply(call, net, call->inputs[2], direction, room->h, ACL_FLOAT, net->batch, n,
        room->state, room->scratch);
    if (call->kind->variant == GRU && attr_int(call, "linear_before_reset", 0) == 0) {
        gru_reset(call, net, room, x, direction);
    }
    for (int64_t b = 0; b < net->batch; b++) {
        float *h = room->h + b * n;
        int64_t at = ((t * net->directions + direction) * net->batch + b) * n;
        if (lengths != NULL && t >= tensor_get_int(lengths, b)) {
            for (int64_t j = 0; j < n; j++) {
                output_store(call, 0, at + j, &nothing, 1);
            }
            continue;
        }
        Row row = {n, x + b * wide, room->state + b * wide, room->bias, room->bias + wide, h,
            room->c + b * n};
        row_step(call, &row, direction_relu(call, direction));
        output_store(call, 0, at, h, n);
    }
}

static bool net_run(const OpCall *call)
{
    Net net;
    if (!net_plan(call, &net)) {
        return false;
    }
    Room room = room_cut(call, &net);
    const Tensor *x = call->inputs[0];
    bool reverse = strcmp(attr_string(call, "direction", "forward"), "reverse") == 0;
    for (int64_t d = 0; d < net.directions; d++) {
        bias_load(call, &net, d, room.bias);
        state_load(call, 5, &net, d, room.h);
        state_load(call, call->kind->variant == LSTM ? 6 : 64, &net, d, room.c);
        weights_multiply(call, &net, call->inputs[1], d, x->data, x->type, net.steps * net.batch,
            net.width, room.inputs, room.scratch);
        for (int64_t i = 0; i < net.steps; i++) {
            step_run(call, &net, &room, d, reverse || d == 1 ? net.steps - 1 - i : i);
        }
        int64_t at = d * net.batch * net.hidden;
        output_store(call, 1, at, room.h, net.batch * net.hidden);
        output_store(call, 2, at, room.c, net.batch * net.hidden);
    }
    return true;
}

const OpKind ops_rnn[] = {
    {"LSTM", OP_ONNX, 3, 8, 3, 0, net_infer, net_workspace, net_run, LSTM, 0},
    {"GRU", OP_ONNX, 3, 6, 2, 0, net_infer, net_workspace, net_run, GRU, 0},
    {"RNN", OP_ONNX, 3, 6, 2, 0, net_infer, net_workspace, net_run, RNN, 0},
    {0},
};
