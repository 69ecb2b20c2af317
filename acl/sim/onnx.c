/* onnx.c: reads an ONNX file into a Net. See net.h.

   The bytes are untrusted: every length is checked by proto.c, every count against what the bytes
   can hold. Refused, by name: sparse and string tensors, quantised types, external data outside the
   model's folder. Subgraphs and functions are not entered; a node that needs one has no row. */
#include "net.h"
#include "proto.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OPSET_OLDEST = 13, OPSET_NEWEST = 21, NAME_MAX_LENGTH = 1 << 16 };

/* The length of the UTF-8 sequence that begins here; 0 if none does. */
static size_t utf8_length(const uint8_t *text, size_t left)
{
    size_t length = text[0] < 0x80 ? 1
        : text[0] >> 5 == 6        ? 2
        : text[0] >> 4 == 14       ? 3
        : text[0] >> 3 == 30       ? 4
                                   : 0;
    if (length == 0 || length > left) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if (text[i] >> 6 != 2) {
            return 0;
        }
    }
    return length;
}

/* Names come back in messages: what is no text in them becomes question marks. */
static void text_clean(char *text, size_t length)
{
    for (size_t i = 0; i < length;) {
        size_t step = utf8_length((const uint8_t *)text + i, length - i);
        if (step == 0 || (step == 1 && (text[i] < ' ' || text[i] == 0x7f))) {
            text[i] = '?';
            step = 1;
        }
        i += step;
    }
}

static const char *text_take(Net *net, const ProtoField *field)
{
    char *text = field->length > NAME_MAX_LENGTH ? NULL : pile_take(&net->pile, field->length + 1);
    if (text != NULL) {
        memcpy(text, field->bytes, field->length);
        text_clean(text, field->length);
    }
    return text;
}

static bool text_read(Net *net, const ProtoField *field, const char **text)
{
    *text = field->wire == 2 ? text_take(net, field) : NULL;
    return *text != NULL || net_fail(net, "a name is malformed or too long");
}

/* --- numbers that may be packed --- */

/* Counts the numbers of a field: a packed list, or one. `bytes` is 0 for varints. */
static int64_t numbers_count(const ProtoField *field, unsigned bytes)
{
    if (field->wire != 2) {
        return 1;
    }
    if (bytes != 0) {
        return (int64_t)(field->length / bytes);
    }
    int64_t count = 0;
    for (size_t i = 0; i < field->length; i++) {
        count += (field->bytes[i] & 0x80U) == 0;
    }
    return count;
}

typedef bool (*NumberSink)(void *context, uint64_t value);

static bool numbers_read(const ProtoField *field, unsigned bytes, NumberSink sink, void *context)
{
    if (field->wire != 2) {
        return sink(context, field->value);
    }
    Proto list = proto_nested(field);
    while (list.at < list.end) {
        uint64_t value;
        bool read = bytes == 0 ? proto_varint(&list, &value) : proto_fixed(&list, bytes, &value);
        if (!read || !sink(context, value)) {
            return false;
        }
    }
    return true;
}

/* --- tensors --- */

typedef struct TensorRead {
    Tensor tensor;
    const char *name;
    const char *location;       /* of external data */
    uint64_t offset, length;
    bool external;
    int64_t filled;             /* elements so far, from typed fields */
    const uint8_t *raw;
    size_t raw_length;
    Proto typed;                /* the message again, for typed data once the shape is known */
} TensorRead;

static bool dim_sink(void *context, uint64_t value)
{
    TensorRead *read = context;
    if (read->tensor.rank == TENSOR_RANK_MAX || value > (uint64_t)1 << 47) {
        return false;
    }
    read->tensor.dims[read->tensor.rank++] = (int64_t)value;
    return true;
}

static bool external_read(Net *net, TensorRead *read, const ProtoField *entry)
{
    Proto proto = proto_nested(entry);
    ProtoField field;
    const char *key = "", *value = "";
    while (proto_next(&proto, &field)) {
        if ((field.number == 1 && !text_read(net, &field, &key))
            || (field.number == 2 && !text_read(net, &field, &value))) {
            return false;
        }
    }
    if (strcmp(key, "location") == 0) {
        read->location = value;
    } else if (strcmp(key, "offset") == 0) {
        read->offset = strtoull(value, NULL, 10);
    } else if (strcmp(key, "length") == 0) {
        read->length = strtoull(value, NULL, 10);
    }
    return !proto.broken || net_fail(net, "external data is malformed");
}

static bool tensor_fields(Net *net, TensorRead *read, Proto proto)
{
    ProtoField field;
    read->typed = proto;
    read->tensor.type = ACL_DT_UNDEFINED;
    while (proto_next(&proto, &field)) {
        bool good = true;
        switch (field.number) {
        case 1:
            good = numbers_read(&field, 0, dim_sink, read);
            break;
        case 2:
            read->tensor.type = type_from_onnx((int64_t)field.value);
            break;
        case 8:
            good = text_read(net, &field, &read->name);
            break;
        case 9:
            read->raw = field.bytes;
            read->raw_length = field.length;
            break;
        case 13:
            good = external_read(net, read, &field);
            break;
        case 14:
            read->external = field.value == 1;
            break;
        default:
            break;
        }
        if (!good) {
            return net_fail(net, "tensor %s: its dimensions or names are malformed", read->name);
        }
    }
    return !proto.broken || net_fail(net, "tensor %s is malformed", read->name);
}

static bool element_sink(void *context, uint64_t value)
{
    TensorRead *read = context;
    Tensor *tensor = &read->tensor;
    if (read->filled >= tensor_count(tensor)) {
        return false;
    }
    char *place = (char *)tensor->data + read->filled++ * type_size(tensor->type);
    switch (type_size(tensor->type)) { /* little-endian stores of the low bytes */
    case 1:
        *(uint8_t *)place = (uint8_t)value;
        break;
    case 2:
        *(uint16_t *)(void *)place = (uint16_t)value;
        break;
    case 4:
        *(uint32_t *)(void *)place = (uint32_t)value;
        break;
    default:
        *(uint64_t *)(void *)place = value;
    }
    return true;
}

/* float_data, int32_data, int64_data, double_data, uint64_data: which one depends on the type. */
static bool typed_read(Net *net, TensorRead *read)
{
    aclDataType type = read->tensor.type;
    uint32_t number = type == ACL_FLOAT ? 4 : type == ACL_INT64 ? 7 : type == ACL_DOUBLE ? 10
        : type == ACL_UINT64 || type == ACL_UINT32 ? 11 : 5;
    unsigned bytes = number == 4 ? 4 : number == 10 ? 8 : 0;
    Proto proto = read->typed;
    ProtoField field;
    while (proto_next(&proto, &field)) {
        if (field.number == number && !numbers_read(&field, bytes, element_sink, read)) {
            return net_fail(net, "tensor %s has more data than its shape", read->name);
        }
    }
    return read->filled == tensor_count(&read->tensor)
        || net_fail(net, "tensor %s has %lld of %lld elements", read->name, (long long)read->filled,
            (long long)tensor_count(&read->tensor));
}

/* Reads `bytes` from a file beside the model. Only plain names below the model's folder. */
static bool external_load(Net *net, const TensorRead *read, int64_t bytes)
{
    char path[4096];
    const char *location = read->location;
    bool plain = location != NULL && location[0] != '/' && location[0] != '\0'
        && strstr(location, "..") == NULL;
    if (!plain || net->folder == NULL) {
        return net_fail(net, "tensor %s: external data at %s cannot be read%s", read->name,
            location == NULL ? "nowhere" : location,
            net->folder == NULL ? " for a model from memory" : "");
    }
    if (read->length != 0 && read->length != (uint64_t)bytes) {
        return net_fail(net, "tensor %s: external data has %llu bytes, expected %lld", read->name,
            (unsigned long long)read->length, (long long)bytes);
    }
    (void)snprintf(path, sizeof path, "%s/%s", net->folder, location);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int64_t done = 0;
    while (fd >= 0 && done < bytes) {
        ssize_t got = pread(fd, (char *)read->tensor.data + done, (size_t)(bytes - done),
            (off_t)read->offset + done);
        if (got <= 0) {
            break;
        }
        done += got;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return done == bytes || net_fail(net, "tensor %s: %s has %lld of %lld bytes", read->name, path,
        (long long)done, (long long)bytes);
}

static bool tensor_read(Net *net, const ProtoField *message, Tensor *tensor, const char **name)
{
    TensorRead read = {.name = ""};
    if (message->wire != 2 || !tensor_fields(net, &read, proto_nested(message))) {
        return message->wire == 2 ? false : net_fail(net, "a tensor is malformed");
    }
    if (type_size(read.tensor.type) == 0 || !tensor_fits(&read.tensor)) {
        return net_fail(net, "tensor %s has an unsupported data type or shape", read.name);
    }
    int64_t bytes = tensor_bytes(&read.tensor);
    bool backed =
        read.external || read.raw != NULL || bytes <= (int64_t)(read.typed.end - read.typed.at) * 8;
    read.tensor.data = backed ? pile_take(&net->pile, (size_t)bytes) : NULL;
    if (read.tensor.data == NULL || (read.raw != NULL && read.raw_length != (size_t)bytes)) {
        return net_fail(net, "tensor %s has %zu bytes of data, its shape needs %lld", read.name,
            read.raw_length, (long long)bytes);
    }
    if (read.external) {
        if (!external_load(net, &read, bytes)) {
            return false;
        }
    } else if (read.raw != NULL) {
        memcpy(read.tensor.data, read.raw, (size_t)bytes);
    } else if (!typed_read(net, &read)) {
        return false;
    }
    *tensor = read.tensor;
    *name = read.name;
    return true;
}

/* --- attributes --- */

typedef struct AttrRead {
    Attr *attr;
    int64_t *ints;
    float *floats;
    const char **strings;
    int64_t int_count, float_count, string_count;
} AttrRead;

static bool int_sink(void *context, uint64_t value)
{
    AttrRead *read = context;
    read->ints[read->int_count++] = (int64_t)value;
    return true;
}

static bool float_sink(void *context, uint64_t value)
{
    AttrRead *read = context;
    read->floats[read->float_count++] = proto_float(value);
    return true;
}

/* How many numbers and strings there are, and room for them. */
static bool attr_measure(Net *net, Proto proto, AttrRead *read)
{
    ProtoField field;
    int64_t ints = 0, floats = 0, strings = 0;
    while (proto_next(&proto, &field)) {
        ints += field.number == 8 ? numbers_count(&field, 0) : 0;
        floats += field.number == 7 ? numbers_count(&field, 4) : 0;
        strings += field.number == 9;
    }
    read->ints = pile_take(&net->pile, ((size_t)ints + 1) * sizeof *read->ints);
    read->floats = pile_take(&net->pile, ((size_t)floats + 1) * sizeof *read->floats);
    read->strings = pile_take(&net->pile, ((size_t)strings + 1) * sizeof *read->strings);
    return !proto.broken && read->ints != NULL && read->floats != NULL && read->strings != NULL;
}

static bool attr_field(Net *net, AttrRead *read, const ProtoField *field)
{
    Attr *attr = read->attr;
    const char *name;
    switch (field->number) {
    case 1:
        return text_read(net, field, &attr->name);
    case 2:
        attr->f = (double)proto_float(field->value);
        return true;
    case 3:
        attr->i = (int64_t)field->value;
        return true;
    case 4:
        return text_read(net, field, &attr->s);
    case 5:
        return tensor_read(net, field, &attr->tensor, &name);
    case 7:
        return numbers_read(field, 4, float_sink, read);
    case 8:
        return numbers_read(field, 0, int_sink, read);
    case 9:
        return text_read(net, field, &read->strings[read->string_count++]);
    default:
        return true;
    }
}

static AttrKind attr_kind(uint64_t type)
{
    static const AttrKind kinds[] = {
        ATTR_NONE,
        ATTR_FLOAT,
        ATTR_INT,
        ATTR_STRING,
        ATTR_TENSOR,
        ATTR_GRAPH,
        ATTR_FLOATS,
        ATTR_INTS,
        ATTR_STRINGS,
    };
    return type < sizeof kinds / sizeof kinds[0] ? kinds[type] : ATTR_NONE;
}

static bool attr_read(Net *net, const ProtoField *message, Attr *attr)
{
    AttrRead read = {.attr = attr};
    Proto proto = proto_nested(message);
    ProtoField field;
    attr->name = "";
    attr->s = "";
    if (message->wire != 2 || !attr_measure(net, proto, &read)) {
        return net_fail(net, "an attribute is malformed");
    }
    while (proto_next(&proto, &field)) {
        if (field.number == 20) {
            attr->kind = attr_kind(field.value);
        } else if (!attr_field(net, &read, &field)) {
            return net->message[0] != '\0'
                || net_fail(net, "attribute %s is malformed", attr->name);
        }
    }
    attr->ints = read.ints;
    attr->floats = read.floats;
    attr->strings = read.strings;
    attr->count = attr->kind == ATTR_INTS ? read.int_count
        : attr->kind == ATTR_FLOATS       ? read.float_count
                                          : read.string_count;
    return !proto.broken || net_fail(net, "attribute %s is malformed", attr->name);
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
    node->inputs = pile_take(&net->pile, ((size_t)inputs + 1) * sizeof *node->inputs);
    node->outputs = pile_take(&net->pile, ((size_t)outputs + 1) * sizeof *node->outputs);
    *attrs = pile_take(&net->pile, ((size_t)count + 1) * sizeof **attrs);
    return !proto.broken && node->inputs != NULL && node->outputs != NULL && *attrs != NULL;
}

static bool value_read(Net *net, const ProtoField *field, int *value)
{
    const char *name;
    *value = -1;
    if (field->wire == 2 && field->length == 0) {
        return true; /* an empty name: left out */
    }
    if (!text_read(net, field, &name)) {
        return false;
    }
    *value = net_value(net, name);
    return *value >= 0 || net_fail(net, "no host memory");
}

static bool node_field(Net *net, NetNode *node, Attr *attrs, const ProtoField *field)
{
    switch (field->number) {
    case 1:
        return value_read(net, field, &node->inputs[node->input_count++]);
    case 2:
        return value_read(net, field, &node->outputs[node->output_count++]);
    case 3:
        return text_read(net, field, &node->name);
    case 4:
        return text_read(net, field, &node->type);
    case 5:
        return attr_read(net, field, &attrs[node->attrs.count++]);
    case 7:
        return text_read(net, field, &node->domain);
    default:
        return true;
    }
}

static bool node_read(Net *net, const ProtoField *message)
{
    net->nodes = net_grow(net, net->nodes, net->node_count, &net->node_room, sizeof *net->nodes);
    if (net->nodes == NULL || message->wire != 2) {
        return net_fail(net, "a node is malformed, or no host memory");
    }
    NetNode *node = &net->nodes[net->node_count];
    Attr *attrs;
    Proto proto = proto_nested(message);
    ProtoField field;
    *node = (NetNode){.name = "", .type = "", .domain = ""};
    if (!node_measure(net, proto, node, &attrs)) {
        return net_fail(net, "node %d is malformed", net->node_count);
    }
    node->attrs.items = attrs;
    while (proto_next(&proto, &field)) {
        if (!node_field(net, node, attrs, &field)) {
            return false;
        }
    }
    while (node->output_count > 0 && node->outputs[node->output_count - 1] < 0) {
        node->output_count--;
    }
    while (node->input_count > 0 && node->inputs[node->input_count - 1] < 0) {
        node->input_count--;
    }
    net->node_count++;
    return !proto.broken || net_fail(net, "node %s is malformed", node->name);
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
            continue; /* sequences and maps stay without a type, and are refused when used */
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

static bool info_read(Net *net, const ProtoField *message, int *value)
{
    Proto proto = proto_nested(message);
    ProtoField field, type = {0};
    *value = -1;
    while (message->wire == 2 && proto_next(&proto, &field)) {
        if (field.number == 1 && !value_read(net, &field, value)) {
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

/* --- the graph and the model --- */

static bool initializer_read(Net *net, const ProtoField *message)
{
    const char *name;
    Tensor *tensor = pile_take(&net->pile, sizeof *tensor);
    if (tensor == NULL || !tensor_read(net, message, tensor, &name)) {
        return tensor == NULL ? net_fail(net, "no host memory") : false;
    }
    int value = net_value(net, name);
    if (value < 0 || name[0] == '\0') {
        return net_fail(net, "an initializer has no name, or no host memory");
    }
    net->values[value].constant = tensor;
    return true;
}

static bool ends_room(Net *net, Proto proto)
{
    ProtoField field;
    size_t count = 1;
    while (proto_next(&proto, &field)) {
        count += field.number == 11 || field.number == 12;
    }
    net->inputs = pile_take(&net->pile, count * sizeof *net->inputs);
    net->outputs = pile_take(&net->pile, count * sizeof *net->outputs);
    return !proto.broken && net->inputs != NULL && net->outputs != NULL;
}

static bool net_field(Net *net, const ProtoField *field)
{
    int ignored;
    switch (field->number) {
    case 1:
        return node_read(net, field);
    case 2:
        return text_read(net, field, &net->name);
    case 5:
        return initializer_read(net, field);
    case 11:
        return info_read(net, field, &net->inputs[net->input_count++]);
    case 12:
        return info_read(net, field, &net->outputs[net->output_count++]);
    case 13:
        return info_read(net, field, &ignored);
    case 15:
        return net_fail(net, "sparse initializers are not supported");
    default:
        return true;
    }
}

static bool net_read(Net *net, const ProtoField *message)
{
    Proto proto = proto_nested(message);
    ProtoField field;
    if (!ends_room(net, proto)) {
        return net_fail(net, "the graph is malformed");
    }
    while (proto_next(&proto, &field)) {
        if (!net_field(net, &field)) {
            return false;
        }
    }
    int kept = 0; /* old files list initializers among the inputs */
    for (int i = 0; i < net->input_count; i++) {
        if (net->values[net->inputs[i]].constant == NULL) {
            net->inputs[kept++] = net->inputs[i];
        }
    }
    net->input_count = kept;
    return !proto.broken || net_fail(net, "the graph is malformed");
}

static bool opset_read(Net *net, const ProtoField *message)
{
    Proto proto = proto_nested(message);
    ProtoField field;
    const char *domain = "";
    uint64_t version = 0;
    while (message->wire == 2 && proto_next(&proto, &field)) {
        if (field.number == 1 && !text_read(net, &field, &domain)) {
            return false;
        }
        if (field.number == 2) {
            version = field.value;
        }
    }
    if (domain[0] == '\0' || strcmp(domain, "ai.onnx") == 0) {
        net->opset = version > 1000 ? 1000 : (int)version;
    }
    return !proto.broken || net_fail(net, "an operator set is malformed");
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

bool onnx_read(Net *net, const void *bytes, size_t length, const char *folder)
{
    Proto proto = proto_open(bytes, length);
    ProtoField field, body = {0};
    memset(net, 0, sizeof *net);
    net->name = "";
    net->folder = folder;
    if (!onnx_recognise(bytes, length)) {
        return net_fail(net, "this is not an ONNX model");
    }
    while (proto_next(&proto, &field)) {
        if (field.number == 8 && !opset_read(net, &field)) {
            return false;
        }
        if (field.number == 7 && field.wire == 2) {
            body = field;
        }
    }
    if (net->opset < OPSET_OLDEST || net->opset > OPSET_NEWEST) {
        return net_fail(net, "operator set %d; supported are %d to %d", net->opset,
            (int)OPSET_OLDEST, (int)OPSET_NEWEST);
    }
    return net_read(net, &body);
}
