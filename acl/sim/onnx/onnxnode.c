/* onnxnode.c: the nodes of an ONNX graph, the values that their names stand for, and the
   functions of the model.

   For each node that uses a function, the function's nodes are read in place of the node, in a
   scope of names of their own. In that scope the function's formal names stand for the inputs and
   outputs of the use. */
#include <string.h>

#include "onnx/onnxread.h"

enum { NODES_MAX = 1 << 20 };

/* --- names --- */

int scope_new(Reader *reader, int parent)
{
    int *parents = net_grow(reader->net, reader->parents, reader->scope_count,
        &reader->scope_room, sizeof *parents);
    if (parents == NULL) {
        return -1;
    }
    reader->parents = parents;
    parents[reader->scope_count] = parent;
    return reader->scope_count++;
}

/* Finds the value of a name that is read. A name without a definition so far belongs to the
   outermost scope, because the file may define it later. False without memory. */
static bool name_use(Reader *reader, const char *name, int *value)
{
    int outermost = reader->scope;
    for (int scope = reader->scope; scope >= 0; scope = reader->parents[scope]) {
        const NetName *known = net_name(reader->net, name, scope);
        if (known != NULL) {
            *value = known->value;
            return true;
        }
        outermost = scope;
    }
    Body *owner = outermost == 0 ? &reader->net->main : reader->body;
    *value = net_value_new(reader->net, name, owner);
    return *value >= 0 && net_name_set(reader->net, name, outermost, *value);
}

bool name_define(Reader *reader, const char *name, int *value)
{
    const NetName *known = net_name(reader->net, name, reader->scope);
    if (known != NULL && known->value >= 0) {
        *value = known->value;
        return true;
    }
    *value = net_value_new(reader->net, name, reader->body);
    return *value >= 0 && net_name_set(reader->net, name, reader->scope, *value);
}

bool value_read(Reader *reader, const ProtoField *field, bool define, int *value)
{
    const char *name;
    *value = -1;
    if (field->wire == 2 && field->length == 0) {
        return true; /* an empty name means: left out */
    }
    if (!text_read(reader->net, field, &name)) {
        return false;
    }
    bool done = define ? name_define(reader, name, value) : name_use(reader, name, value);
    return done || net_fail(reader->net, "no host memory");
}

/* --- nodes --- */

static bool node_measure(Net *net, Proto proto, NetNode *node, Attr **attrs)
{
    ProtoField field;
    int inputs = 0, outputs = 0, count = 0;
    while (proto_next(&proto, &field)) {
        inputs += field.number == 1;
        outputs += field.number == 2;
        count += field.number == 5;
    }
    node->inputs = pile_take(&net->pile, ((size_t)inputs + 2) * sizeof *node->inputs);
    node->outputs = pile_take(&net->pile, ((size_t)outputs + 1) * sizeof *node->outputs);
    *attrs = pile_take(&net->pile, ((size_t)count + 1) * sizeof **attrs);
    return !proto.broken && node->inputs != NULL && node->outputs != NULL && *attrs != NULL;
}

static bool node_field(Reader *reader, NetNode *node, Attr *attrs, const ProtoField *field)
{
    bool kept;
    switch (field->number) {
    case 1:
        return value_read(reader, field, false, &node->inputs[node->input_count++]);
    case 2:
        return value_read(reader, field, true, &node->outputs[node->output_count++]);
    case 3:
        return text_read(reader->net, field, &node->name);
    case 4:
        return text_read(reader->net, field, &node->type);
    case 5:
        if (!attr_read(reader, field, &attrs[node->attrs.count], &kept)) {
            return false;
        }
        node->attrs.count += kept;
        return true;
    case 7:
        return text_read(reader->net, field, &node->domain);
    default:
        return true;
    }
}

bool domain_plain(const char *domain)
{
    return domain[0] == '\0' || strcmp(domain, "ai.onnx") == 0;
}

bool capture(Net *net, Body *body, int value)
{
    if (value < 0 || net->values[value].owner == body->id) {
        return true;
    }
    for (int i = 0; i < body->capture_count; i++) {
        if (body->captures[i] == value) {
            return true;
        }
    }
    int *captures =
        net_grow(net, body->captures, body->capture_count, &body->capture_room, sizeof *captures);
    if (captures == NULL) {
        return net_fail(net, "no host memory");
    }
    body->captures = captures;
    captures[body->capture_count++] = value;
    return true;
}

/* Appends the values that a control node's bodies capture to the node's own inputs. */
static bool captures_append(Net *net, NetNode *node)
{
    size_t count = (size_t)node->input_count;
    for (int b = 0; b < BODIES_MAX && node->bodies[b] != NULL; b++) {
        count += (size_t)node->bodies[b]->capture_count;
    }
    int *inputs = pile_take(&net->pile, (count + 1) * sizeof *inputs);
    if (inputs == NULL) {
        return net_fail(net, "no host memory");
    }
    memcpy(inputs, node->inputs, (size_t)node->input_count * sizeof *inputs);
    node->inputs = inputs;
    for (int b = 0; b < BODIES_MAX && node->bodies[b] != NULL; b++) {
        for (int i = 0; i < node->bodies[b]->capture_count; i++) {
            inputs[node->input_count++] = node->bodies[b]->captures[i];
        }
    }
    return true;
}

/* --- control nodes --- */

static Body *node_body(const NetNode *node, const char *name)
{
    for (int i = 0; i < node->attrs.count; i++) {
        const Attr *attr = &node->attrs.items[i];
        if (attr->kind == ATTR_GRAPH && strcmp(attr->name, name) == 0) {
            return attr->graph;
        }
    }
    return NULL;
}

static bool if_check(const NetNode *node)
{
    for (int b = 0; b < BODIES_MAX; b++) {
        const Body *body = node->bodies[b];
        if (body == NULL || body->input_count != 0 || body->output_count < node->output_count) {
            return false;
        }
    }
    return node->input_count == 1 && node->inputs[0] >= 0;
}

static bool loop_check(NetNode *node)
{
    const Body *body = node->bodies[0];
    while (node->input_count < 2) {
        node->inputs[node->input_count++] = -1; /* no trip count, no condition */
    }
    return body != NULL && body->input_count == node->input_count
        && body->output_count >= node->input_count - 1 && node->output_count < body->output_count;
}

static bool scan_check(const NetNode *node)
{
    const Body *body = node->bodies[0];
    int64_t slices = net_attr_int(node, "num_scan_inputs", 0);
    return body != NULL && slices >= 1 && slices <= node->input_count
        && body->input_count == node->input_count
        && body->output_count >= node->input_count - slices
        && node->output_count <= body->output_count;
}

/* True if only the first axis is scanned and collected; other axes are refused. */
static bool scan_axes_first(const NetNode *node)
{
    for (int i = 0; i < node->attrs.count; i++) {
        const Attr *attr = &node->attrs.items[i];
        bool axes = strcmp(attr->name, "scan_input_axes") == 0
            || strcmp(attr->name, "scan_output_axes") == 0;
        for (int64_t a = 0; axes && attr->kind == ATTR_INTS && a < attr->count; a++) {
            if (attr->ints[a] != 0) {
                return false;
            }
        }
    }
    return true;
}

static bool inputs_given(const NetNode *node, int first)
{
    for (int i = first; i < node->input_count; i++) {
        if (node->inputs[i] < 0) {
            return false;
        }
    }
    return true;
}

/* Sets `control` of an operator on sequences of tensors; false if its inputs or outputs do not fit.
   Leaves other operators unchanged (ReverseSequence works on a tensor). */
static bool sequence_read(NetNode *node)
{
    static const struct {
        const char *name;
        Control control;
        int least, most; /* number of inputs */
    } known[] = {
        {"SequenceEmpty", CONTROL_CONSTRUCT, 0, 0}, {"SequenceInsert", CONTROL_INSERT, 2, 3},
        {"SequenceConstruct", CONTROL_CONSTRUCT, 1, OP_INPUTS_ALL},
        {"SequenceErase", CONTROL_ERASE, 1, 2}, {"SequenceAt", CONTROL_AT, 2, 2},
        {"SequenceLength", CONTROL_LENGTH, 1, 1}, {"ConcatFromSequence", CONTROL_CONCAT, 1, 1},
        {"SplitToSequence", CONTROL_SPLIT, 1, 2},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(node->type, known[i].name) == 0) {
            node->control = known[i].control;
            return node->input_count >= known[i].least && node->input_count <= known[i].most
                && node->output_count <= 1 && inputs_given(node, 0);
        }
    }
    return true;
}

/* Reads what the node loop needs of a node that it runs itself: the kind of control, and the bodies. */
static bool control_read(Net *net, NetNode *node)
{
    bool good = true;
    if (!domain_plain(node->domain)) {
        return true;
    }
    if (strstr(node->type, "Sequence") != NULL) {
        good = sequence_read(node);
    } else if (strcmp(node->type, "If") == 0) {
        node->control = CONTROL_IF;
        node->bodies[0] = node_body(node, "then_branch");
        node->bodies[1] = node_body(node, "else_branch");
        good = if_check(node);
    } else if (strcmp(node->type, "Loop") == 0) {
        node->control = CONTROL_LOOP;
        node->bodies[0] = node_body(node, "body");
        good = loop_check(node) && inputs_given(node, 2);
    } else if (strcmp(node->type, "Scan") == 0) {
        node->control = CONTROL_SCAN;
        node->bodies[0] = node_body(node, "body");
        good = scan_check(node) && inputs_given(node, 0);
    }
    if (!good) {
        return net_fail(net, "node %s (%s): its inputs and outputs do not fit it or its subgraphs",
            node_name(net, node), node->type);
    }
    if (node->control == CONTROL_SCAN && !scan_axes_first(node)) {
        return net_fail(net,
            "node %s (Scan): axes other than 0 are not the built-in engine's; "
            "the ONNX Runtime engine has them: pip install aclpool[onnx]",
            node_name(net, node));
    }
    node->own_inputs = node->input_count;
    return node->control == CONTROL_NONE || captures_append(net, node);
}

static bool node_add(Reader *reader, const NetNode *node)
{
    Net *net = reader->net;
    Body *body = reader->body;
    body->nodes =
        net_grow(net, body->nodes, body->node_count, &body->node_room, sizeof *body->nodes);
    if (body->nodes == NULL || body->node_count >= NODES_MAX) {
        return net_fail(net, "no host memory, or too many nodes");
    }
    body->nodes[body->node_count++] = *node;
    for (int i = 0; i < node->input_count; i++) {
        if (!capture(net, body, node->inputs[i])) {
            return false;
        }
    }
    return true;
}

/* --- functions --- */

static const Function *function_find(const Reader *reader, const NetNode *node)
{
    for (int i = 0; i < reader->function_count; i++) {
        const Function *function = &reader->functions[i];
        bool same = strcmp(function->domain, node->domain) == 0
            || (domain_plain(function->domain) && domain_plain(node->domain));
        if (same && strcmp(function->name, node->type) == 0) {
            return function;
        }
    }
    return NULL;
}

/* Gives the formal inputs and outputs of a function the values of the node that uses it. */
static bool formals_bind(Reader *reader, const NetNode *node, Proto proto)
{
    Net *net = reader->net;
    ProtoField field;
    int inputs = 0, outputs = 0;
    while (proto_next(&proto, &field)) {
        const char *name;
        if (field.number != 4 && field.number != 5) {
            continue;
        }
        if (!text_read(net, &field, &name)) {
            return false;
        }
        bool input = field.number == 4;
        int at = input ? inputs++ : outputs++;
        int value = at >= (input ? node->input_count : node->output_count) ? -1
            : input ? node->inputs[at] : node->outputs[at];
        if (net_name(net, name, reader->scope) != NULL) {
            return net_fail(net, "function %s: %s stands twice among its inputs and outputs",
                node->type, name);
        }
        if ((input || value >= 0) && !net_name_set(net, name, reader->scope, value)) {
            return net_fail(net, "no host memory");
        }
    }
    return !proto.broken;
}

/* Collects the attributes of the node that uses a function, and the function's defaults for those
   that the node lacks. */
static bool attrs_complete(Reader *reader, const NetNode *node, Proto proto, AttrList *list)
{
    Proto again = proto;
    ProtoField field;
    size_t count = (size_t)node->attrs.count;
    while (proto_next(&again, &field)) {
        count += field.number == 11;
    }
    Attr *attrs = pile_take(&reader->net->pile, (count + 1) * sizeof *attrs);
    if (attrs == NULL) {
        return net_fail(reader->net, "no host memory");
    }
    if (node->attrs.count > 0) {
        memcpy(attrs, node->attrs.items, (size_t)node->attrs.count * sizeof *attrs);
    }
    *list = (AttrList){attrs, node->attrs.count};
    while (proto_next(&proto, &field)) {
        bool kept;
        if (field.number != 11) {
            continue;
        }
        /* If two attributes have the same name, only the first is found. */
        if (!attr_read(reader, &field, &attrs[list->count], &kept)) {
            return false;
        }
        list->count += kept;
    }
    return true;
}

/* Reads the function's nodes in place of `node`. */
static bool function_read(Reader *reader, const Function *function, const NetNode *node)
{
    Reader outer = *reader;
    AttrList given;
    Proto proto = proto_nested(&function->message), nodes = proto;
    ProtoField field;
    int scope = reader->depth >= DEPTH_MAX ? -1 : scope_new(reader, -1);
    if (scope < 0) {
        return net_fail(reader->net, "function %s: too deep, or no host memory", function->name);
    }
    if (!attrs_complete(reader, node, proto, &given)) {
        return false;
    }
    reader->scope = scope;
    reader->depth++;
    reader->given = &given;
    bool good = formals_bind(reader, node, proto);
    while (good && proto_next(&nodes, &field)) {
        good = field.number != 9 || opset_read(reader, &field);
    }
    while (good && proto_next(&proto, &field)) {
        good = field.number != 7 || node_read(reader, &field);
    }
    reader->scope = outer.scope;
    reader->depth = outer.depth;
    reader->given = outer.given;
    reader->opset = outer.opset;
    return good
        && (!proto.broken || net_fail(reader->net, "function %s is malformed", function->name));
}

bool node_read(Reader *reader, const ProtoField *message)
{
    Net *net = reader->net;
    Attr *attrs;
    Proto proto = proto_nested(message);
    ProtoField field;
    NetNode node = {.name = "", .type = "", .domain = "", .opset = reader->opset};
    if (message->wire != 2 || !node_measure(net, proto, &node, &attrs)) {
        return net_fail(net, "node %d is malformed", reader->body->node_count);
    }
    node.attrs.items = attrs;
    while (proto_next(&proto, &field)) {
        if (!node_field(reader, &node, attrs, &field)) {
            return false;
        }
    }
    while (node.output_count > 0 && node.outputs[node.output_count - 1] < 0) {
        node.output_count--;
    }
    while (node.input_count > 0 && node.inputs[node.input_count - 1] < 0) {
        node.input_count--;
    }
    if (proto.broken) {
        return net_fail(net, "node %s is malformed", node.name);
    }
    const Function *function = function_find(reader, &node);
    if (function != NULL) {
        return function_read(reader, function, &node);
    }
    return control_read(net, &node) && node_add(reader, &node);
}
