/* onnxtensor.c: text, numbers and tensors of an ONNX file.

   The bytes are untrusted: every length is checked by proto.c, and every count is compared with the
   number of bytes there. Numbers of four bits become bytes. String tensors, other types smaller
   than a byte, and external data outside the model's folder are refused with a message that names
   them. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "onnx/onnxread.h"

enum { NAME_MAX_LENGTH = 1 << 16, ONNX_UINT4 = 21, ONNX_INT4 = 22 };

/* Returns the length of the UTF-8 sequence that begins here; 0 if there is none. */
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

/* Replaces bytes that are not printable text by question marks, because names appear in messages. */
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
    const char *location;       /* of external data: the name of the file */
    uint64_t offset, length;
    bool external;
    bool nibbles;               /* int4 or uint4: two in a byte, the first in its low half */
    int64_t filled;             /* elements read so far from typed fields */
    const uint8_t *raw;
    size_t raw_length;
    Proto typed;                /* a second reader of the message, for typed data when the shape is known */
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
            read->nibbles = field.value == ONNX_UINT4 || field.value == ONNX_INT4;
            read->tensor.type = field.value == ONNX_UINT4 ? ACL_UINT8
                : field.value == ONNX_INT4                ? ACL_INT8
                                           : type_from_onnx((int64_t)field.value);
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
    switch (type_size(tensor->type)) { /* little-endian: stores the low bytes */
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

/* Takes one byte with two small numbers, as in typed fields and raw data. */
static bool nibbles_sink(void *context, uint64_t value)
{
    TensorRead *read = context;
    int64_t count = tensor_count(&read->tensor);
    if (read->filled >= count) {
        return false;
    }
    for (int half = 0; half < 2 && read->filled < count; half++) {
        uint8_t bits = (uint8_t)(value >> (4 * half) & 0xfU);
        bool negative = read->tensor.type == ACL_INT8 && (bits & 8U) != 0;
        ((uint8_t *)read->tensor.data)[read->filled++] = negative ? bits | 0xf0U : bits;
    }
    return true;
}

/* Reads float_data, int32_data, int64_data, double_data or uint64_data; the type says which. */
static bool typed_read(Net *net, TensorRead *read)
{
    aclDataType type = read->tensor.type;
    uint32_t number = type == ACL_FLOAT ? 4 : type == ACL_INT64 ? 7 : type == ACL_DOUBLE ? 10
        : type == ACL_UINT64 || type == ACL_UINT32 ? 11 : 5;
    unsigned bytes = number == 4 ? 4 : number == 10 ? 8 : 0;
    Proto proto = read->typed;
    ProtoField field;
    while (proto_next(&proto, &field)) {
        NumberSink sink = read->nibbles ? nibbles_sink : element_sink;
        if (field.number == number && !numbers_read(&field, bytes, sink, read)) {
            return net_fail(net, "tensor %s has more data than its shape", read->name);
        }
    }
    return read->filled == tensor_count(&read->tensor)
        || net_fail(net, "tensor %s has %lld of %lld elements", read->name, (long long)read->filled,
            (long long)tensor_count(&read->tensor));
}

/* Opens the file with a tensor's external data; if that fails, sets net->message and returns -1.
   Refuses absolute paths and "..". */
static int external_open(Net *net, const TensorRead *read, int64_t bytes)
{
    char path[4096];
    struct stat about;
    const char *location = read->location;
    bool plain = location != NULL && location[0] != '/' && location[0] != '\0'
        && strstr(location, "..") == NULL;
    if (!plain || net->folder == NULL) {
        net_explain(net, "tensor %s: external data at %s cannot be read%s", read->name,
            location == NULL ? "nowhere" : location,
            net->folder == NULL ? " for a model from memory" : "");
        return -1;
    }
    if (read->length != 0 && read->length != (uint64_t)bytes) {
        net_explain(net, "tensor %s: external data has %llu bytes, expected %lld", read->name,
            (unsigned long long)read->length, (long long)bytes);
        return -1;
    }
    (void)snprintf(path, sizeof path, "%s/%s", net->folder, location);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int64_t size = fd >= 0 && fstat(fd, &about) == 0 ? (int64_t)about.st_size : 0;
    int64_t there = read->offset < (uint64_t)size ? size - (int64_t)read->offset : 0;
    if (fd < 0 || there < bytes) {
        if (fd >= 0) {
            (void)close(fd);
        }
        net_explain(net, "tensor %s: %s has %lld of %lld bytes", read->name, path,
            (long long)there, (long long)bytes);
        return -1;
    }
    return fd;
}

static bool external_load(Net *net, const TensorRead *read, int fd, char *to, int64_t bytes)
{
    int64_t done = 0;
    ssize_t got = 1;
    for (; done < bytes && got > 0; done += got) {
        got = pread(fd, to + done, (size_t)(bytes - done), (off_t)read->offset + done);
        got = got < 0 ? 0 : got;
    }
    (void)close(fd);
    return done == bytes || net_fail(net, "tensor %s: %s cannot be read", read->name,
        read->location);
}

static void nibbles_spread(TensorRead *read, const uint8_t *from, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++) {
        (void)nibbles_sink(read, from[i]);
    }
}

/* Reads the elements into their memory. `bytes` is their size there, `packed` their size in the file. */
static bool data_fill(Net *net, TensorRead *read, int fd, int64_t bytes, int64_t packed)
{
    /* Four-bit numbers are read into the end of the memory and spread from there. */
    char *end = (char *)read->tensor.data + (bytes - packed);
    if (read->external && !external_load(net, read, fd, end, packed)) {
        return false;
    }
    if (!read->external && read->raw == NULL) {
        return typed_read(net, read);
    }
    if (read->nibbles) {
        nibbles_spread(read, read->external ? (const uint8_t *)end : read->raw, packed);
    } else if (!read->external) {
        memcpy(read->tensor.data, read->raw, (size_t)bytes);
    }
    return true;
}

bool tensor_read(Net *net, const ProtoField *message, Tensor *tensor, const char **name)
{
    TensorRead read = {.name = ""};
    int fd = -1;
    if (message->wire != 2 || !tensor_fields(net, &read, proto_nested(message))) {
        return message->wire == 2 ? false : net_fail(net, "a tensor is malformed");
    }
    if (type_size(read.tensor.type) == 0 || !tensor_fits(&read.tensor)) {
        return net_fail(net, "tensor %s has an unsupported data type or shape", read.name);
    }
    int64_t bytes = tensor_bytes(&read.tensor), packed = read.nibbles ? (bytes + 1) / 2 : bytes;
    if (read.external && (fd = external_open(net, &read, packed)) < 0) {
        return false;
    }
    bool backed =
        read.external || read.raw != NULL || bytes <= (int64_t)(read.typed.end - read.typed.at) * 8;
    bool whole = read.external || read.raw == NULL || read.raw_length == (size_t)packed;
    read.tensor.data = backed && whole ? pile_take(&net->pile, (size_t)bytes) : NULL;
    if (read.tensor.data == NULL) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return net_fail(net, "tensor %s has %zu bytes of data, its shape needs %lld", read.name,
            read.raw_length, (long long)packed);
    }
    *tensor = read.tensor;
    tensor->narrow = read.nibbles;
    *name = read.name;
    return data_fill(net, &read, fd, bytes, packed);
}
