/* onnxtensor.c: text, numbers and tensors of an ONNX file.

   The bytes are untrusted: every length is checked by proto.c, every count against what the bytes
   can hold. Refused, by name: string tensors, types without a byte of their own, external data
   outside the model's folder. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "onnxread.h"

enum { NAME_MAX_LENGTH = 1 << 16 };

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

const char *text_take(Net *net, const ProtoField *field)
{
    char *text = field->length > NAME_MAX_LENGTH ? NULL : pile_take(&net->pile, field->length + 1);
    if (text != NULL) {
        memcpy(text, field->bytes, field->length);
        text_clean(text, field->length);
    }
    return text;
}

bool text_read(Net *net, const ProtoField *field, const char **text)
{
    *text = field->wire == 2 ? text_take(net, field) : NULL;
    return *text != NULL || net_fail(net, "a name is malformed or too long");
}

/* --- numbers that may be packed --- */

int64_t numbers_count(const ProtoField *field, unsigned bytes)
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

bool numbers_read(const ProtoField *field, unsigned bytes, NumberSink sink, void *context)
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

bool tensor_read(Net *net, const ProtoField *message, Tensor *tensor, const char **name)
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
