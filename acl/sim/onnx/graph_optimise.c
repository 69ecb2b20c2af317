/* graph_optimise.c: makes a graph ready for the node loop. See graph_ir.h.

   Which nodes run on the host depends only on the graph, not on shapes. A host value is a constant,
   the result of Shape or Size, the length of a sequence, a Loop's counter or condition, or the
   result of a node whose inputs are all host values. A node whose inputs are all constants is
   computed once, here. The other nodes run on the device. A body is prepared when its node is: then
   it is known which of the values that it captures are constants. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/graph_ir.h"

static bool body_prepare(Net *net, Body *body);

/* --- constants --- */

static bool constant_scalar(
    Net *net, const NetNode *node, aclDataType type, const void *data, int64_t count)
{
    Tensor *tensor = pile_take(&net->pile, sizeof *tensor);
    if (tensor == NULL) {
        return net_fail(net, "no host memory");
    }
    *tensor = (Tensor){.type = type, .rank = count < 0 ? 0 : 1, .dims = {count < 0 ? 0 : count}};
    tensor->data = pile_take(&net->pile, (size_t)tensor_bytes(tensor) + 1);
    if (tensor->data == NULL) {
        return net_fail(net, "no host memory");
    }
    memcpy(tensor->data, data, (size_t)tensor_bytes(tensor));
    net->values[node->outputs[0]].constant = tensor;
    return true;
}

/* Handles a node Constant: its attribute becomes the constant value of its output. */
static bool constant_node(Net *net, const NetNode *node)
{
    for (int i = 0; i < node->attrs.count && node->output_count == 1; i++) {
        const Attr *attr = &node->attrs.items[i];
        float single = (float)attr->f;
        if (strcmp(attr->name, "value") == 0 && attr->kind == ATTR_TENSOR) {
            net->values[node->outputs[0]].constant = (Tensor *)(uintptr_t)&attr->tensor;
            return true;
        }
        if (strcmp(attr->name, "value_int") == 0 && attr->kind == ATTR_INT) {
            return constant_scalar(net, node, ACL_INT64, &attr->i, -1);
        }
        if (strcmp(attr->name, "value_float") == 0 && attr->kind == ATTR_FLOAT) {
            return constant_scalar(net, node, ACL_FLOAT, &single, -1);
        }
        if (strcmp(attr->name, "value_ints") == 0 && attr->kind == ATTR_INTS) {
            return constant_scalar(net, node, ACL_INT64, attr->ints, attr->count);
        }
        if (strcmp(attr->name, "value_floats") == 0 && attr->kind == ATTR_FLOATS) {
            return constant_scalar(net, node, ACL_FLOAT, attr->floats, attr->count);
        }
    }
    return net_fail(net, "node %s (Constant) has no supported value", node->name);
}

/* --- finding operators --- */

/* True if the operator's row accepts the node's variant. This is checked at load, so that another engine
   can run a model with other variants. */
static bool kind_accept(Net *net, const NetNode *node)
{
    char message[OP_MESSAGE_ROOM];
    OpCall call = {
        .kind = node->kind, .attrs = &node->attrs, .opset = node->opset, .message = message,
        .input_count = node->input_count, .output_count = node->output_count,
    };
    return op_accept(&call)
        || net_fail(net, "node %s (%s): %s", node_name(net, node), node->type, message);
}

static bool kind_find(Net *net, NetNode *node)
{
    bool plain = node->domain[0] == '\0' || strcmp(node->domain, "ai.onnx") == 0;
    bool ort = strcmp(node->domain, "com.microsoft") == 0;
    node->kind = plain ? op_find(node->type, OP_ONNX) : ort ? op_find(node->type, OP_ORT) : NULL;
    if (node->kind != NULL || node->control != CONTROL_NONE) {
        return node->control != CONTROL_NONE || kind_accept(net, node);
    }
    return net_fail(net,
        "node %s: the operator %s%s%s is not one of the built-in engine's; "
        "the ONNX Runtime engine may have it: pip install aclpool[onnx]",
        node_name(net, node), node->domain, plain ? "" : ".", node->type);
}

/* --- order --- */

static bool producers_find(Net *net, const Body *body)
{
    for (int n = 0; n < body->node_count; n++) {
        const NetNode *node = &body->nodes[n];
        for (int i = 0; i < node->output_count; i++) {
            NetValue *value = node->outputs[i] < 0 ? NULL : &net->values[node->outputs[i]];
            if (value == NULL) {
                continue;
            }
            if (value->owner != body->id || value->producer >= 0 || value->constant != NULL) {
                return net_fail(net, "%s has two producers", value->name);
            }
            value->producer = n;
        }
    }
    return true;
}

/* Returns the node of this body that computes a value; -1 if none does. */
static int producer_in(const Net *net, const Body *body, int value)
{
    bool own = value >= 0 && net->values[value].owner == body->id;
    return own ? net->values[value].producer : -1;
}

/* Puts the node that computes a value on the stack, unless it is marked already. The nodes' `host`
   field is the mark. */
static int mark(const Net *net, const Body *body, int value, int *stack, int depth)
{
    int producer = producer_in(net, body, value);
    if (producer >= 0 && !body->nodes[producer].host) {
        body->nodes[producer].host = true;
        stack[depth++] = producer;
    }
    return depth;
}

/* Marks the nodes that the outputs need. */
static bool needed_mark(Net *net, const Body *body)
{
    int *stack = pile_take(
        &net->pile, ((size_t)body->node_count + (size_t)body->output_count + 1) * sizeof *stack);
    int depth = 0;
    if (stack == NULL) {
        return net_fail(net, "no host memory");
    }
    for (int i = 0; i < body->output_count; i++) {
        depth = mark(net, body, body->outputs[i], stack, depth);
    }
    while (depth > 0) {
        const NetNode *node = &body->nodes[stack[--depth]];
        for (int i = 0; i < node->input_count; i++) {
            depth = mark(net, body, node->inputs[i], stack, depth);
        }
    }
    return true;
}

static bool node_ready(const NetNode *node, const bool *known)
{
    for (int i = 0; i < node->input_count; i++) {
        if (node->inputs[i] >= 0 && !known[node->inputs[i]]) {
            return false;
        }
    }
    return true;
}

/* Marks the values that a body has before any of its nodes runs: constants, its inputs, captured
   values. */
static void known_mark(const Net *net, const Body *body, bool *known)
{
    for (int v = body->first_value; v >= 0; v = net->values[v].sibling) {
        known[v] = net->values[v].constant != NULL;
    }
    for (int i = 0; i < body->input_count; i++) {
        known[body->inputs[i]] = true;
    }
    for (int i = 0; i < body->capture_count; i++) {
        known[body->captures[i]] = true;
    }
}

/* Moves the needed nodes whose inputs are known to `ordered`; returns the number of nodes there. */
static int nodes_pass(Body *body, NetNode *ordered, int count, bool *known)
{
    for (int n = 0; n < body->node_count; n++) {
        NetNode *node = &body->nodes[n];
        if (!node->host || !node_ready(node, known)) {
            continue;
        }
        ordered[count] = *node;
        ordered[count++].host = false;
        node->host = false;
        for (int i = 0; i < node->output_count; i++) {
            if (node->outputs[i] >= 0) {
                known[node->outputs[i]] = true;
            }
        }
    }
    return count;
}

/* Puts the needed nodes in an order in which producers are first; otherwise the file's order is
   kept. */
static bool nodes_order(Net *net, Body *body)
{
    NetNode *ordered = pile_take(&net->pile, ((size_t)body->node_count + 1) * sizeof *ordered);
    bool *known = calloc((size_t)net->value_count + 1, sizeof *known);
    int count = 0, before = -1;
    if (ordered == NULL || known == NULL) {
        free(known);
        return net_fail(net, "no host memory");
    }
    known_mark(net, body, known);
    while (count > before) {
        before = count;
        count = nodes_pass(body, ordered, count, known);
    }
    free(known);
    for (int n = 0; n < body->node_count; n++) {
        if (body->nodes[n].host) {
            return net_fail(net,
                "node %s has an input that nothing produces, or is part of a cycle",
                node_name(net, &body->nodes[n]));
        }
    }
    body->nodes = ordered;
    body->node_count = count;
    return true;
}

/* --- folding --- */

static bool inputs_all(const Net *net, const NetNode *node, bool constant)
{
    for (int i = 0; i < node->input_count; i++) {
        const NetValue *value = node->inputs[i] < 0 ? NULL : &net->values[node->inputs[i]];
        if (value != NULL && (constant ? value->constant == NULL : !value->host)) {
            return false;
        }
    }
    return true;
}

static bool node_fold(Net *net, const NetNode *node)
{
    char message[OP_MESSAGE_ROOM];
    const Tensor **inputs = pile_take(&net->pile, ((size_t)node->input_count + 1) * sizeof *inputs);
    Tensor *outputs = pile_take(&net->pile, ((size_t)node->output_count + 1) * sizeof *outputs);
    if (inputs == NULL || outputs == NULL) {
        return net_fail(net, "no host memory");
    }
    for (int i = 0; i < node->input_count; i++) {
        inputs[i] = node->inputs[i] < 0 ? NULL : net->values[node->inputs[i]].constant;
    }
    if (!node_run_host(node, inputs, outputs, net->folded_max - net->folded, message)) {
        return net_fail(net, "node %s (%s): %s", node_name(net, node), node->type, message);
    }
    for (int i = 0; i < node->output_count; i++) {
        size_t bytes = (size_t)tensor_bytes(&outputs[i]);
        net->folded += (int64_t)bytes;
        bool fits = net->folded <= net->folded_max;
        void *kept = fits ? pile_take(&net->pile, bytes + 1) : NULL;
        if (kept != NULL) {
            memcpy(kept, outputs[i].data, bytes);
        }
        free(outputs[i].data);
        outputs[i].data = kept;
        if (kept == NULL) {
            for (int j = i + 1; j < node->output_count; j++) {
                free(outputs[j].data);
            }
            return fits ? net_fail(net, "no host memory")
                        : net_fail(net, "node %s (%s): the model's computed constants take more "
                            "than %lld bytes", node_name(net, node), node->type,
                            (long long)net->folded_max);
        }
        if (node->outputs[i] >= 0) {
            net->values[node->outputs[i]].constant = &outputs[i];
            net->values[node->outputs[i]].host = true;
        }
    }
    return true;
}

static bool bodies_prepare(Net *net, const NetNode *node)
{
    for (int b = 0; b < BODIES_MAX && node->bodies[b] != NULL; b++) {
        if (!body_prepare(net, node->bodies[b])) {
            return false;
        }
    }
    return true;
}

/* Prepares one node; *kept says whether it remains. */
static bool node_prepare(Net *net, NetNode *node, bool *kept)
{
    *kept = false;
    if (strcmp(node->type, "Constant") == 0) {
        return constant_node(net, node);
    }
    if (!kind_find(net, node)) {
        return false;
    }
    if (node->control == CONTROL_NONE && node->input_count > 0 && inputs_all(net, node, true)) {
        return node_fold(net, node);
    }
    *kept = true;
    return bodies_prepare(net, node);
}

/* Finds each node's row in the operator table; computes nodes of constants and removes them. */
static bool nodes_fold(Net *net, Body *body)
{
    int count = 0;
    for (int n = 0; n < body->node_count; n++) {
        bool kept;
        if (!node_prepare(net, &body->nodes[n], &kept)) {
            return false;
        }
        if (kept) {
            body->nodes[count++] = body->nodes[n];
        }
    }
    body->node_count = count;
    return true;
}

/* --- which values the host has --- */

static void hosts_find(Net *net, Body *body);

static bool host_is(const Net *net, int value)
{
    return value < 0 || net->values[value].host;
}

static bool host_set(Net *net, int value, bool host)
{
    if (value >= 0) {
        net->values[value].host = host;
    }
    return host;
}

static void hosts_if(Net *net, const NetNode *node)
{
    hosts_find(net, node->bodies[0]);
    hosts_find(net, node->bodies[1]);
    for (int i = 0; i < node->output_count; i++) {
        (void)host_set(net, node->outputs[i],
            host_is(net, node->bodies[0]->outputs[i]) && host_is(net, node->bodies[1]->outputs[i]));
    }
}

/* Finds the carried values (states) that are host values. A state is a host value if it is one
   before the first iteration and after each one, which may depend on the other states. So first
   every state that begins as a host value is assumed to be one; then states whose output is not a
   host value are removed until nothing changes. */
static void hosts_states(Net *net, const NetNode *node, int inputs, int outputs, int states)
{
    Body *body = node->bodies[0];
    int first = node->control == CONTROL_LOOP ? 2 : 0;
    for (int i = 0; i < states; i++) {
        (void)host_set(net, body->inputs[inputs + i], host_is(net, node->inputs[first + i]));
    }
    for (bool changed = true; changed;) {
        changed = false;
        hosts_find(net, body);
        for (int i = 0; i < states; i++) {
            int in = body->inputs[inputs + i];
            if (host_is(net, in) && !host_is(net, body->outputs[outputs + i])) {
                changed = !host_set(net, in, false);
            }
        }
    }
    for (int i = 0; i < node->output_count; i++) {
        int from = i < states ? body->inputs[inputs + i] : body->outputs[outputs + i];
        (void)host_set(net, node->outputs[i], host_is(net, from));
    }
}

static void hosts_control(Net *net, const NetNode *node)
{
    const Body *body = node->bodies[0];
    if (node->control >= CONTROL_CONSTRUCT) {
        for (int i = 0; i < node->output_count; i++) {
            (void)host_set(net, node->outputs[i], node->control == CONTROL_LENGTH);
        }
    } else if (node->control == CONTROL_IF) {
        hosts_if(net, node);
    } else if (node->control == CONTROL_LOOP) {
        (void)host_set(net, body->inputs[0], true); /* inputs 0 and 1: the counter, and the condition */
        (void)host_set(net, body->inputs[1], true);
        hosts_states(net, node, 2, 1, body->input_count - 2);
    } else {
        int slices = (int)net_attr_int(node, "num_scan_inputs", 0);
        for (int i = body->input_count - slices; i < body->input_count; i++) {
            (void)host_set(net, body->inputs[i], host_is(net, node->inputs[i]));
        }
        hosts_states(net, node, 0, 0, body->input_count - slices);
    }
}

/* Sets `host` of the body's nodes and values, from the inputs and the captured values. */
static void hosts_find(Net *net, Body *body)
{
    for (int v = body->first_value; v >= 0; v = net->values[v].sibling) {
        net->values[v].host = net->values[v].host || net->values[v].constant != NULL;
    }
    for (int n = 0; n < body->node_count; n++) {
        NetNode *node = &body->nodes[n];
        if (node->control != CONTROL_NONE) {
            hosts_control(net, node);
            continue;
        }
        bool shape = strcmp(node->type, "Shape") == 0 || strcmp(node->type, "Size") == 0;
        node->host = shape || inputs_all(net, node, false);
        for (int i = 0; i < node->output_count; i++) {
            (void)host_set(net, node->outputs[i], node->host);
        }
    }
}

/* --- last uses, and which constants the device needs --- */

static void uses_find(Net *net, const Body *body);

static void input_use(Net *net, const Body *body, const NetNode *node, int n, int i)
{
    NetValue *value = &net->values[node->inputs[i]];
    if (value->owner == body->id) {
        value->last_use = n;
    }
    if (node->control == CONTROL_NONE || node->control >= CONTROL_CONSTRUCT) {
        value->on_device = value->on_device || !node->host;
    } else if (node->control != CONTROL_IF && i < node->own_inputs) {
        value->on_device = value->on_device || !host_is(net, node->bodies[0]->inputs[i]);
    }
}

static void uses_find(Net *net, const Body *body)
{
    for (int n = 0; n < body->node_count; n++) {
        const NetNode *node = &body->nodes[n];
        for (int b = 0; b < BODIES_MAX && node->bodies[b] != NULL; b++) {
            uses_find(net, node->bodies[b]);
        }
        for (int i = 0; i < node->output_count; i++) {
            if (node->outputs[i] >= 0) {
                net->values[node->outputs[i]].producer = n;
                net->values[node->outputs[i]].last_use = n;
            }
        }
        for (int i = 0; i < node->input_count; i++) {
            if (node->inputs[i] >= 0) {
                input_use(net, body, node, n, i);
            }
        }
    }
    for (int i = 0; i < body->output_count; i++) {
        NetValue *value = &net->values[body->outputs[i]];
        if (value->owner == body->id) {
            value->last_use = INT_MAX;
        }
        value->on_device = value->on_device || body == &net->main;
    }
}

/* --- checks --- */

static bool is_input(const Body *body, int value)
{
    for (int i = 0; i < body->input_count; i++) {
        if (body->inputs[i] == value) {
            return true;
        }
    }
    return false;
}

static bool outputs_check(Net *net, const Body *body)
{
    for (int i = 0; i < body->output_count; i++) {
        const NetValue *value = &net->values[body->outputs[i]];
        bool made = value->owner != body->id || value->producer >= 0 || value->constant != NULL;
        if (!made && !is_input(body, body->outputs[i])) {
            return net_fail(net, "output %s is produced by no node", value->name);
        }
    }
    return true;
}

static bool body_prepare(Net *net, Body *body)
{
    return producers_find(net, body) && outputs_check(net, body) && needed_mark(net, body)
        && nodes_order(net, body) && nodes_fold(net, body);
}

bool net_prepare(Net *net)
{
    for (int i = 0; i < net->input_count; i++) {
        const NetValue *value = &net->values[net->inputs[i]];
        if (type_size(value->type) == 0) {
            return net_fail(net, "input %s has an unsupported data type", value->name);
        }
    }
    for (int i = 0; i < net->output_count; i++) {
        if (net->values[net->outputs[i]].no_tensor) {
            return net_fail(
                net, "output %s is not a tensor", net->values[net->outputs[i]].name);
        }
    }
    if (net->output_count == 0) {
        return net_fail(net, "the model has no outputs");
    }
    if (!body_prepare(net, &net->main)) {
        return false;
    }
    hosts_find(net, &net->main);
    uses_find(net, &net->main);
    return true;
}
