/* onnxattr.c: the attributes of a node in an ONNX file.

   The bytes are untrusted, as in onnxtensor.c: the kind that an attribute states is accepted only
   if it has data of that kind. */
#include <string.h>

#include "onnx/onnxread.h"

typedef struct AttrRead {
    Attr *attr;
    int64_t *ints;
    float *floats;
    const char **strings;
    int64_t int_count, float_count, string_count;
    const char *reference;  /* name of the surrounding function's attribute to which it refers; or NULL */
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

/* Counts the numbers and strings, and allocates memory for them. */
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

static bool attr_field(Reader *reader, AttrRead *read, const ProtoField *field)
{
    Net *net = reader->net;
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
    case 6:
        attr->graph = subgraph_read(reader, field);
        return attr->graph != NULL;
    case 7:
        return numbers_read(field, 4, float_sink, read);
    case 8:
        return numbers_read(field, 0, int_sink, read);
    case 9:
        return text_read(net, field, &read->strings[read->string_count++]);
    case 21:
        return text_read(net, field, &read->reference);
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

/* Inside a function: gives `attr` the value of the attribute `reference` of the node that uses the
   function. False if the node does not have it. */
static bool attr_refer(const Reader *reader, const char *reference, Attr *attr)
{
    for (int i = 0; reader->given != NULL && i < reader->given->count; i++) {
        if (strcmp(reader->given->items[i].name, reference) == 0) {
            const char *name = attr->name;
            *attr = reader->given->items[i];
            attr->name = name;
            return true;
        }
    }
    return false;
}

static void attr_finish(const AttrRead *read)
{
    Attr *attr = read->attr;
    attr->ints = read->ints;
    attr->floats = read->floats;
    attr->strings = read->strings;
    attr->count = attr->kind == ATTR_INTS ? read->int_count
        : attr->kind == ATTR_FLOATS       ? read->float_count
        : attr->kind == ATTR_STRINGS      ? read->string_count
                                          : 0;
    if ((attr->kind == ATTR_TENSOR && attr->tensor.data == NULL)
        || (attr->kind == ATTR_GRAPH && attr->graph == NULL)) {
        attr->kind = ATTR_NONE; /* the attribute states this kind, but has no such data */
    }
}

bool attr_read(Reader *reader, const ProtoField *message, Attr *attr, bool *kept)
{
    Net *net = reader->net;
    AttrRead read = {.attr = attr};
    Proto proto = proto_nested(message);
    ProtoField field;
    *kept = true;
    attr->name = "";
    attr->s = "";
    if (message->wire != 2 || !attr_measure(net, proto, &read)) {
        return net_fail(net, "an attribute is malformed");
    }
    while (proto_next(&proto, &field)) {
        if (field.number == 20) {
            attr->kind = attr_kind(field.value);
        } else if (!attr_field(reader, &read, &field)) {
            return net->message[0] != '\0' ? false
                : net_fail(net, "attribute %s is malformed", attr->name);
        }
    }
    attr_finish(&read);
    if (read.reference != NULL) {
        *kept = attr_refer(reader, read.reference, attr);
    }
    return !proto.broken || net_fail(net, "attribute %s is malformed", attr->name);
}
