/* onnx.c: reads an ONNX file into a Net. See net.h.

   The bytes are untrusted: every length is checked by proto.c, every count against what the bytes
   can hold. A subgraph becomes a body of the node that it belongs to; a function of the model is
   read again in place of each node that uses it. Refused, by name: sparse tensors, and graphs
   nested deeper than any model has them. */
#include <stdio.h>
#include <string.h>

#include "onnxread.h"

enum { OPSET_OLDEST = 13, OPSET_NEWEST = 21, DEPTH_MAX = 16, NODES_MAX = 1 << 20 };

static bool graph_read(Reader *reader, Proto proto);
static bool node_read(Reader *reader, const ProtoField *message);

/* --- names --- */

/* A scope inside `parent`, -1 = around which there is nothing; -1 without memory. */
static int scope_new(Reader *reader, int parent)
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

/* The value that a name means to a reader of it. One that nothing has said anything of belongs to
   the outermost scope: the file may say it later. False without memory. */
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

/* The value that a name is given to in the innermost scope. */
static bool name_define(Reader *reader, const char *name, int *value)
{
    const NetName *known = net_name(reader->net, name, reader->scope);
    if (known != NULL && known->value >= 0) {
        *value = known->value;
        return true;
    }
    *value = net_value_new(reader->net, name, reader->body);
    return *value >= 0 && net_name_set(reader->net, name, reader->scope, *value);
}

static bool value_read(Reader *reader, const ProtoField *field, bool define, int *value)
{
    const char *name;
    *value = -1;
    if (field->wire == 2 && field->length == 0) {
        return true; /* an empty name: left out */
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

static bool domain_plain(const char *domain)
{
    return domain[0] == '\0' || strcmp(domain, "ai.onnx") == 0;
}

/* Remembers that a body reads a value of another. */
static bool capture(Net *net, Body *body, int value)
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

/* What a control node's bodies capture follows its own inputs. */
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

/* Only the first axis is scanned and collected. */
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

/* The operators on sequences that there are; others stay without a row, and are refused later. */
static bool sequence_read(NetNode *node)
{
    static const struct {
        const char *name;
        Control control;
        int least, most; /* inputs */
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

/* Takes apart what the node loop itself runs. */
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

/* Gives the function's formal inputs and outputs the values of its use. */
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

/* The attributes of the use, and the function's defaults for those that it does not give. */
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
        /* Later ones with a name that is there already are never found. */
        if (!attr_read(reader, &field, &attrs[list->count], &kept)) {
            return false;
        }
        list->count += kept;
    }
    return true;
}

static bool opset_read(Reader *reader, const ProtoField *message);

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

static bool node_read(Reader *reader, const ProtoField *message)
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

/* --- declared inputs and outputs --- */

static void dim_read(Net *net, Proto proto, NetValue *value)
{
    ProtoField field;
    int at = value->rank++;
    value->dims[at] = -1;
    while (proto_next(&proto, &field)) {
        if (field.number == 1 && field.value <= (uint64_t)1 << 47) {
            value->dims[at] = (int64_t)field.value;
        } else if (field.number == 2 && field.wire == 2) {
            value->dim_names[at] = text_take(net, &field);
        }
    }
}

static bool shape_read(Net *net, Proto proto, NetValue *value)
{
    ProtoField field;
    value->rank = 0;
    while (proto_next(&proto, &field)) {
        if (field.number == 1 && field.wire == 2) {
            if (value->rank == TENSOR_RANK_MAX) {
                return net_fail(
                    net, "%s has more than %d dimensions", value->name, (int)TENSOR_RANK_MAX);
            }
            dim_read(net, proto_nested(&field), value);
        }
    }
    return !proto.broken;
}

static bool type_read(Net *net, Proto proto, NetValue *value)
{
    ProtoField outer, field;
    while (proto_next(&proto, &outer)) {
        if (outer.number != 1 || outer.wire != 2) {
            value->no_tensor = value->no_tensor || outer.number != 6; /* 6 is a denotation */
            continue;
        }
        Proto tensor = proto_nested(&outer);
        while (proto_next(&tensor, &field)) {
            if (field.number == 1) {
                value->type = type_from_onnx((int64_t)field.value);
            } else if (field.number == 2 && field.wire == 2
                && !shape_read(net, proto_nested(&field), value)) {
                return false;
            }
        }
    }
    return !proto.broken;
}

/* A declaration of a value: `define` says that it is made here, not only looked at. */
static bool info_read(Reader *reader, const ProtoField *message, bool define, int *value)
{
    Net *net = reader->net;
    Proto proto = proto_nested(message);
    ProtoField field, type = {0};
    *value = -1;
    while (message->wire == 2 && proto_next(&proto, &field)) {
        if (field.number == 1 && !value_read(reader, &field, define, value)) {
            return false;
        }
        if (field.number == 2 && field.wire == 2) {
            type = field;
        }
    }
    if (*value < 0 || proto.broken) {
        return net_fail(net, "an input or output is malformed");
    }
    return type.bytes == NULL || type_read(net, proto_nested(&type), &net->values[*value])
        || net_fail(net, "the type of %s is malformed", net->values[*value].name);
}

/* --- graphs --- */

static bool initializer_read(Reader *reader, const ProtoField *message)
{
    Net *net = reader->net;
    const char *name;
    int value;
    Tensor *tensor = pile_take(&net->pile, sizeof *tensor);
    if (tensor == NULL || !tensor_read(net, message, tensor, &name)) {
        return tensor == NULL ? net_fail(net, "no host memory") : false;
    }
    if (name[0] == '\0' || !name_define(reader, name, &value)) {
        return net_fail(net, "an initializer has no name, or no host memory");
    }
    net->values[value].constant = tensor;
    return true;
}

static bool ends_room(Net *net, Body *body, Proto proto)
{
    ProtoField field;
    size_t count = 1;
    while (proto_next(&proto, &field)) {
        count += field.number == 11 || field.number == 12;
    }
    body->inputs = pile_take(&net->pile, count * sizeof *body->inputs);
    body->outputs = pile_take(&net->pile, count * sizeof *body->outputs);
    return !proto.broken && body->inputs != NULL && body->outputs != NULL;
}

static bool graph_field(Reader *reader, const ProtoField *field)
{
    Body *body = reader->body;
    int ignored;
    switch (field->number) {
    case 1:
        return node_read(reader, field);
    case 2:
        return body != &reader->net->main || text_read(reader->net, field, &reader->net->name);
    case 5:
        return initializer_read(reader, field);
    case 11:
        return info_read(reader, field, true, &body->inputs[body->input_count++]);
    case 12:
        if (!info_read(reader, field, false, &body->outputs[body->output_count++])) {
            return false;
        }
        return capture(reader->net, body, body->outputs[body->output_count - 1]);
    case 13:
        return info_read(reader, field, false, &ignored);
    case 15:
        return net_fail(reader->net, "sparse initializers are not supported");
    default:
        return true;
    }
}

static bool graph_read(Reader *reader, Proto proto)
{
    Net *net = reader->net;
    Body *body = reader->body;
    ProtoField field;
    if (!ends_room(net, body, proto)) {
        return net_fail(net, "the graph is malformed");
    }
    while (proto_next(&proto, &field)) {
        if (!graph_field(reader, &field)) {
            return false;
        }
    }
    int kept = 0; /* old files list initializers among the inputs */
    for (int i = 0; i < body->input_count; i++) {
        if (net->values[body->inputs[i]].constant == NULL) {
            body->inputs[kept++] = body->inputs[i];
        }
    }
    body->input_count = kept;
    return !proto.broken || net_fail(net, "the graph is malformed");
}

/* Gives the innermost scope the names in the fields `number` of a message. */
static bool names_define(Reader *reader, Proto proto, uint32_t number)
{
    ProtoField field;
    int ignored;
    while (proto_next(&proto, &field)) {
        if (field.number == number && !value_read(reader, &field, true, &ignored)) {
            return false;
        }
    }
    return true;
}

/* A subgraph's own names, before anything in it is read: whatever else it names is from outside. */
static bool names_register(Reader *reader, Proto proto)
{
    ProtoField field;
    while (proto_next(&proto, &field)) {
        uint32_t number = field.number == 1 ? 2
            : field.number == 5             ? 8
            : field.number == 11            ? 1
                                            : 0;
        if (number != 0 && field.wire == 2
            && !names_define(reader, proto_nested(&field), number)) {
            return false;
        }
    }
    return true;
}

Body *subgraph_read(Reader *reader, const ProtoField *message)
{
    Net *net = reader->net;
    Body *outer = reader->body, *body = pile_take(&net->pile, sizeof *body);
    int around = reader->scope;
    int scope = reader->depth >= DEPTH_MAX ? -1 : scope_new(reader, around);
    if (message->wire != 2 || body == NULL || scope < 0) {
        net_explain(net, "a subgraph is malformed or too deep, or no host memory");
        return NULL;
    }
    *body = (Body){.id = ++reader->body_count, .first_value = -1};
    reader->body = body;
    reader->scope = scope;
    reader->depth++;
    Proto proto = proto_nested(message);
    bool good = names_register(reader, proto) && graph_read(reader, proto);
    reader->body = outer;
    reader->scope = around;
    reader->depth--;
    return good ? body : NULL;
}

/* --- the model --- */

static bool opset_read(Reader *reader, const ProtoField *message)
{
    Proto proto = proto_nested(message);
    ProtoField field;
    const char *domain = "";
    uint64_t version = 0;
    while (message->wire == 2 && proto_next(&proto, &field)) {
        if (field.number == 1 && !text_read(reader->net, &field, &domain)) {
            return false;
        }
        if (field.number == 2) {
            version = field.value;
        }
    }
    if (domain_plain(domain)) {
        reader->opset = version > 1000 ? 1000 : (int)version;
        if (reader->opset < OPSET_OLDEST || reader->opset > OPSET_NEWEST) {
            return net_fail(reader->net, "operator set %d; supported are %d to %d", reader->opset,
                (int)OPSET_OLDEST, (int)OPSET_NEWEST);
        }
    }
    return !proto.broken || net_fail(reader->net, "an operator set is malformed");
}

static bool function_note(Reader *reader, const ProtoField *message)
{
    Function *function = &reader->functions[reader->function_count];
    Proto proto = proto_nested(message);
    ProtoField field;
    *function = (Function){.name = "", .domain = "", .message = *message};
    while (message->wire == 2 && proto_next(&proto, &field)) {
        if ((field.number == 1 && !text_read(reader->net, &field, &function->name))
            || (field.number == 10 && !text_read(reader->net, &field, &function->domain))) {
            return false;
        }
    }
    reader->function_count += message->wire == 2;
    return !proto.broken || net_fail(reader->net, "a function is malformed");
}

bool onnx_recognise(const void *bytes, size_t length)
{
    Proto proto = proto_open(bytes, length);
    ProtoField field;
    bool version = false, graph = false;
    while (proto_next(&proto, &field)) {
        version = version || (field.number == 1 && field.wire == 0);
        graph = graph || (field.number == 7 && field.wire == 2);
    }
    return !proto.broken && version && graph;
}

/* What stands beside the graph in the file: it may come after it. */
static bool surroundings_read(Reader *reader, Proto proto, ProtoField *graph)
{
    ProtoField field;
    Proto again = proto;
    size_t functions = 0;
    while (proto_next(&again, &field)) {
        functions += field.number == 25;
    }
    reader->functions = pile_take(&reader->net->pile, (functions + 1) * sizeof(Function));
    if (reader->functions == NULL) {
        return net_fail(reader->net, "no host memory");
    }
    while (proto_next(&proto, &field)) {
        if ((field.number == 8 && !opset_read(reader, &field))
            || (field.number == 25 && !function_note(reader, &field))) {
            return false;
        }
        if (field.number == 7 && field.wire == 2) {
            *graph = field;
        }
    }
    return reader->opset != 0 || net_fail(reader->net, "the model names no operator set");
}

bool onnx_read(Net *net, const void *bytes, size_t length, const char *folder)
{
    Reader reader = {.net = net, .body = &net->main};
    Proto proto = proto_open(bytes, length);
    ProtoField graph = {0};
    memset(net, 0, sizeof *net);
    net->main.first_value = -1;
    net->name = "";
    net->folder = folder;
    if (!onnx_recognise(bytes, length)) {
        return net_fail(net, "this is not an ONNX model");
    }
    if (!surroundings_read(&reader, proto, &graph)) {
        return false;
    }
    net->opset = reader.opset;
    if (scope_new(&reader, -1) != 0) {
        return net_fail(net, "no host memory");
    }
    bool good = graph_read(&reader, proto_nested(&graph));
    net->inputs = net->main.inputs;
    net->outputs = net->main.outputs;
    net->input_count = net->main.input_count;
    net->output_count = net->main.output_count;
    return good;
}
