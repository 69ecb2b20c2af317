/* onnx.c: reads an ONNX file into a Net. See graph_ir.h.

   The bytes are untrusted: every length is checked by proto.c, and every count is compared with the
   number of bytes there. A subgraph becomes a body of its node. Sparse tensors, and graphs that are
   nested too deep, are refused with a message that names them. */
#include <string.h>

#include "onnx/onnxread.h"

enum { OPSET_OLDEST = 7, OPSET_NEWEST = 28 };

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
            value->no_tensor = value->no_tensor || outer.number != 6; /* field 6 is a denotation, not a type */
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

/* Reads the declaration of a value: a new value of this graph if `define`, else one that exists. */
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
    int kept = 0; /* old files also list initializers as inputs */
    for (int i = 0; i < body->input_count; i++) {
        if (net->values[body->inputs[i]].constant == NULL) {
            body->inputs[kept++] = body->inputs[i];
        }
    }
    body->input_count = kept;
    return !proto.broken || net_fail(net, "the graph is malformed");
}

/* In the innermost scope, defines the names that the fields `number` of a message contain. */
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

/* Defines a subgraph's own names before anything in it is read: any other name is from outside. */
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

bool opset_read(Reader *reader, const ProtoField *message)
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

/* Reads the fields of the file outside the graph; they may be after the graph. */
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
