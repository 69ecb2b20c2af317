/* net.c: makes a graph ready for the node loop. See net.h.

   Which nodes run on the host follows from the graph alone, not from shapes: a value is the host's
   if it is a constant, the result of Shape or Size, or the result of a node all of whose inputs are
   the host's. Nodes of constants only are computed once, here. What remains goes to the device. */
#include "net.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- memory and names --- */

enum { PILE_BLOCK = 1 << 16, PILE_ALIGN = 64 };

struct PileBlock {
    struct PileBlock *next;
    char padding[PILE_ALIGN - sizeof(struct PileBlock *)];
};

void *pile_take(Pile *pile, size_t bytes)
{
    if (bytes > (size_t)1 << 47) {
        return NULL;
    }
    bytes = (bytes + PILE_ALIGN - 1) / PILE_ALIGN * PILE_ALIGN;
    if (pile->blocks == NULL || bytes > pile->room - pile->used) {
        size_t room = bytes > PILE_BLOCK ? bytes : PILE_BLOCK;
        struct PileBlock *block = aligned_alloc(PILE_ALIGN, sizeof *block + room);
        if (block == NULL) {
            return NULL;
        }
        memset(block + 1, 0, room);
        block->next = pile->blocks;
        pile->blocks = block;
        pile->used = 0;
        pile->room = room;
    }
    char *taken = (char *)(pile->blocks + 1) + pile->used;
    pile->used += bytes;
    return taken;
}

void pile_free(Pile *pile)
{
    while (pile->blocks != NULL) {
        struct PileBlock *next = pile->blocks->next;
        free(pile->blocks);
        pile->blocks = next;
    }
}

void net_explain(Net *net, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(net->message, sizeof net->message, format, args);
    va_end(args);
    if (length >= (int)sizeof net->message) { /* cut: perhaps inside a character */
        size_t end = sizeof net->message - 1;
        while (end > 0 && ((unsigned char)net->message[end - 1] & 0x80U) != 0) {
            end--;
        }
        net->message[end] = '\0';
    }
}

void *net_grow(Net *net, void *items, int count, int *room, size_t size)
{
    if (count < *room) {
        return items;
    }
    int wider = *room == 0 ? 64 : *room > INT_MAX / 4 ? 0 : 2 * *room;
    void *grown = wider == 0 ? NULL : pile_take(&net->pile, (size_t)wider * size);
    if (grown != NULL && count > 0) {
        memcpy(grown, items, (size_t)count * size);
    }
    *room = grown == NULL ? *room : wider;
    return grown;
}

static uint64_t name_hash(const char *name)
{
    uint64_t hash = 14695981039346656037U;
    for (; *name != '\0'; name++) {
        hash = (hash ^ (uint8_t)*name) * 1099511628211U;
    }
    return hash;
}

static int *name_slot(const Net *net, const char *name)
{
    uint64_t at = name_hash(name);
    for (;; at++) {
        int *slot = &net->names[at % (uint64_t)net->name_room];
        if (*slot == 0 || strcmp(net->values[*slot - 1].name, name) == 0) {
            return slot;
        }
    }
}

/* At most half full, so that a search ends. */
static bool names_widen(Net *net)
{
    if (net->value_count * 2 < net->name_room) {
        return true;
    }
    net->name_room = net->name_room == 0 ? 256 : net->name_room * 4;
    net->names = pile_take(&net->pile, (size_t)net->name_room * sizeof *net->names);
    for (int i = 0; net->names != NULL && i < net->value_count; i++) {
        *name_slot(net, net->values[i].name) = i + 1;
    }
    return net->names != NULL;
}

int net_value(Net *net, const char *name)
{
    if (!names_widen(net)) {
        return -1;
    }
    int *slot = name_slot(net, name);
    if (*slot != 0) {
        return *slot - 1;
    }
    NetValue *values =
        net_grow(net, net->values, net->value_count, &net->value_room, sizeof *values);
    if (values == NULL) {
        return -1;
    }
    net->values = values;
    values[net->value_count] = (NetValue){
        .name = name, .type = ACL_DT_UNDEFINED, .rank = -1, .producer = -1, .last_use = -1,
    };
    *slot = net->value_count + 1;
    return net->value_count++;
}

void net_free(Net *net)
{
    pile_free(&net->pile);
    memset(net, 0, sizeof *net);
}

/* --- running one node on the host --- */

bool node_run_host(
    const NetNode *node, int opset, const Tensor **inputs, Tensor *outputs, char *message)
{
    OpCall call = {
        .kind = node->kind,
        .attrs = &node->attrs,
        .opset = opset,
        .threads = 1,
        .message = message,
        .input_count = node->input_count,
        .output_count = node->output_count,
        .inputs = inputs,
        .outputs = outputs,
    };
    if (!op_infer(&call)) {
        return false;
    }
    int64_t room = op_workspace(&call);
    call.workspace = room > 0 ? malloc((size_t)room) : NULL;
    bool done = room <= 0 || call.workspace != NULL;
    for (int i = 0; done && i < node->output_count; i++) {
        outputs[i].data = malloc((size_t)tensor_bytes(&outputs[i]) + 1);
        done = outputs[i].data != NULL;
    }
    if (!done) {
        (void)snprintf(message, OP_MESSAGE_ROOM, "no host memory");
    }
    done = done && op_run(&call);
    free(call.workspace);
    for (int i = 0; !done && i < node->output_count; i++) {
        free(outputs[i].data);
        outputs[i].data = NULL;
    }
    return done;
}

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

/* The node Constant: its attribute is its output. */
static bool constant_node(Net *net, const NetNode *node)
{
    for (int i = 0; i < node->attrs.count && node->output_count == 1; i++) {
        const Attr *attr = &node->attrs.items[i];
        float single = (float)attr->f;
        if (strcmp(attr->name, "value") == 0 && attr->kind == ATTR_TENSOR) {
            net->values[node->outputs[0]].constant = (Tensor *)(uintptr_t)&attr->tensor;
            return true;
        }
        if (strcmp(attr->name, "value_int") == 0) {
            return constant_scalar(net, node, ACL_INT64, &attr->i, -1);
        }
        if (strcmp(attr->name, "value_float") == 0) {
            return constant_scalar(net, node, ACL_FLOAT, &single, -1);
        }
        if (strcmp(attr->name, "value_ints") == 0) {
            return constant_scalar(net, node, ACL_INT64, attr->ints, attr->count);
        }
        if (strcmp(attr->name, "value_floats") == 0) {
            return constant_scalar(net, node, ACL_FLOAT, attr->floats, attr->count);
        }
    }
    return net_fail(net, "node %s (Constant) has no supported value", node->name);
}

/* --- names of nodes for messages --- */

static const char *node_name(const Net *net, const NetNode *node)
{
    if (node->name[0] != '\0') {
        return node->name;
    }
    return node->output_count > 0 && node->outputs[0] >= 0 ? net->values[node->outputs[0]].name
                                                           : "without a name";
}

static bool kind_find(Net *net, NetNode *node)
{
    bool plain = node->domain[0] == '\0' || strcmp(node->domain, "ai.onnx") == 0;
    node->kind = plain ? op_find(node->type, OP_ONNX) : NULL;
    if (node->kind != NULL) {
        return true;
    }
    return net_fail(net,
        "node %s: the operator %s%s%s is not one of the built-in engine's; "
        "the ONNX Runtime engine may have it: pip install aclpool[onnx]",
        node_name(net, node), node->domain, plain ? "" : ".", node->type);
}

/* --- order --- */

static bool producers_find(Net *net)
{
    for (int n = 0; n < net->node_count; n++) {
        const NetNode *node = &net->nodes[n];
        for (int i = 0; i < node->output_count; i++) {
            NetValue *value = node->outputs[i] < 0 ? NULL : &net->values[node->outputs[i]];
            if (value != NULL && (value->producer >= 0 || value->constant != NULL)) {
                return net_fail(net, "%s has two producers", value->name);
            }
            if (value != NULL) {
                value->producer = n;
            }
        }
    }
    return true;
}

/* Marks what the outputs need; the nodes' `host` field serves as the mark. */
static bool needed_mark(Net *net)
{
    int *stack = pile_take(
        &net->pile, ((size_t)net->node_count + (size_t)net->output_count + 1) * sizeof *stack);
    int depth = 0;
    if (stack == NULL) {
        return net_fail(net, "no host memory");
    }
    for (int i = 0; i < net->output_count; i++) {
        int producer = net->values[net->outputs[i]].producer;
        if (producer >= 0 && !net->nodes[producer].host) {
            net->nodes[producer].host = true;
            stack[depth++] = producer;
        }
    }
    while (depth > 0) {
        const NetNode *node = &net->nodes[stack[--depth]];
        for (int i = 0; i < node->input_count; i++) {
            int producer = node->inputs[i] < 0 ? -1 : net->values[node->inputs[i]].producer;
            if (producer >= 0 && !net->nodes[producer].host) {
                net->nodes[producer].host = true;
                stack[depth++] = producer;
            }
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

/* Needed nodes in an order that has producers first, otherwise as in the file. */
static bool nodes_order(Net *net)
{
    NetNode *ordered = pile_take(&net->pile, ((size_t)net->node_count + 1) * sizeof *ordered);
    bool *known = pile_take(&net->pile, (size_t)net->value_count + 1);
    int count = 0, left = 0;
    if (ordered == NULL || known == NULL) {
        return net_fail(net, "no host memory");
    }
    for (int v = 0; v < net->value_count; v++) {
        known[v] = net->values[v].constant != NULL;
    }
    for (int i = 0; i < net->input_count; i++) {
        known[net->inputs[i]] = true;
    }
    for (int n = 0; n < net->node_count; n++) {
        left += net->nodes[n].host;
    }
    for (bool moved = true; moved && left > 0;) {
        moved = false;
        for (int n = 0; n < net->node_count; n++) {
            NetNode *node = &net->nodes[n];
            if (!node->host || !node_ready(node, known)) {
                continue;
            }
            ordered[count] = *node;
            ordered[count++].host = false;
            node->host = false;
            moved = true;
            left--;
            for (int i = 0; i < node->output_count; i++) {
                if (node->outputs[i] >= 0) {
                    known[node->outputs[i]] = true;
                }
            }
        }
    }
    for (int n = 0; n < net->node_count && left > 0; n++) {
        if (net->nodes[n].host) {
            return net_fail(net,
                "node %s has an input that nothing produces, or is part of a cycle",
                node_name(net, &net->nodes[n]));
        }
    }
    net->nodes = ordered;
    net->node_count = count;
    return true;
}

/* --- folding, host nodes, last uses --- */

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
    if (!node_run_host(node, net->opset, inputs, outputs, message)) {
        return net_fail(net, "node %s (%s): %s", node_name(net, node), node->type, message);
    }
    for (int i = 0; i < node->output_count; i++) {
        size_t bytes = (size_t)tensor_bytes(&outputs[i]);
        void *kept = pile_take(&net->pile, bytes + 1);
        if (kept != NULL) {
            memcpy(kept, outputs[i].data, bytes);
        }
        free(outputs[i].data);
        outputs[i].data = kept;
        if (kept == NULL) {
            return net_fail(net, "no host memory");
        }
        if (node->outputs[i] >= 0) {
            net->values[node->outputs[i]].constant = &outputs[i];
            net->values[node->outputs[i]].host = true;
        }
    }
    return true;
}

/* Finds each node's row, computes nodes of constants, and drops them from the order. */
static bool nodes_fold(Net *net)
{
    int kept = 0;
    for (int v = 0; v < net->value_count; v++) {
        net->values[v].host = net->values[v].constant != NULL;
    }
    for (int n = 0; n < net->node_count; n++) {
        NetNode *node = &net->nodes[n];
        if (strcmp(node->type, "Constant") == 0) {
            if (!constant_node(net, node)) {
                return false;
            }
            net->values[node->outputs[0]].host = true;
            continue;
        }
        if (!kind_find(net, node)) {
            return false;
        }
        bool shape = strcmp(node->type, "Shape") == 0 || strcmp(node->type, "Size") == 0;
        if (node->input_count > 0 && inputs_all(net, node, true)) {
            if (!node_fold(net, node)) {
                return false;
            }
            continue;
        }
        node->host = shape || inputs_all(net, node, false);
        for (int i = 0; i < node->output_count; i++) {
            if (node->outputs[i] >= 0) {
                net->values[node->outputs[i]].host = node->host;
            }
        }
        net->nodes[kept++] = *node;
    }
    net->node_count = kept;
    return true;
}

static void uses_find(Net *net)
{
    for (int n = 0; n < net->node_count; n++) {
        const NetNode *node = &net->nodes[n];
        for (int i = 0; i < node->output_count; i++) {
            if (node->outputs[i] >= 0) {
                net->values[node->outputs[i]].producer = n;
                net->values[node->outputs[i]].last_use = n;
            }
        }
        for (int i = 0; i < node->input_count; i++) {
            if (node->inputs[i] >= 0) {
                NetValue *value = &net->values[node->inputs[i]];
                value->last_use = n;
                value->on_device = value->on_device || !node->host;
            }
        }
    }
    for (int i = 0; i < net->output_count; i++) {
        net->values[net->outputs[i]].last_use = INT_MAX;
        net->values[net->outputs[i]].on_device = true;
    }
}

static bool ends_check(Net *net)
{
    for (int i = 0; i < net->input_count; i++) {
        const NetValue *value = &net->values[net->inputs[i]];
        if (type_size(value->type) == 0) {
            return net_fail(net, "input %s has an unsupported data type", value->name);
        }
    }
    for (int i = 0; i < net->output_count; i++) {
        const NetValue *value = &net->values[net->outputs[i]];
        bool input = false;
        for (int j = 0; j < net->input_count; j++) {
            input = input || net->inputs[j] == net->outputs[i];
        }
        if (value->producer < 0 && value->constant == NULL && !input) {
            return net_fail(net, "output %s is produced by no node", value->name);
        }
    }
    return net->output_count > 0 || net_fail(net, "the model has no outputs");
}

bool net_prepare(Net *net)
{
    if (!producers_find(net) || !ends_check(net) || !needed_mark(net) || !nodes_order(net)
        || !nodes_fold(net)) {
        return false;
    }
    uses_find(net);
    return true;
}
