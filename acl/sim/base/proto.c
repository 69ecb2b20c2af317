/* proto.c: see proto.h. */
#include "base/proto.h"

#include <string.h>

Proto proto_open(const void *bytes, size_t length)
{
    const uint8_t *first = bytes;
    return (Proto){.at = first, .end = first + length};
}

Proto proto_nested(const ProtoField *field)
{
    return proto_open(field->bytes, field->length);
}

bool proto_varint(Proto *proto, uint64_t *value)
{
    uint64_t result = 0;
    for (unsigned shift = 0; shift < 64 && proto->at < proto->end; shift += 7) {
        uint8_t byte = *proto->at++;
        result |= (uint64_t)(byte & 0x7fU) << shift;
        if ((byte & 0x80U) == 0) {
            *value = result;
            return true;
        }
    }
    proto->broken = true;
    return false;
}

bool proto_fixed(Proto *proto, unsigned bytes, uint64_t *value)
{
    if ((size_t)(proto->end - proto->at) < bytes) {
        proto->broken = true;
        return false;
    }
    *value = 0;
    for (unsigned i = 0; i < bytes; i++) {
        *value |= (uint64_t)*proto->at++ << (8 * i);
    }
    return true;
}

bool proto_next(Proto *proto, ProtoField *field)
{
    uint64_t key, length;
    if (proto->broken || proto->at == proto->end || !proto_varint(proto, &key)) {
        return false;
    }
    *field = (ProtoField){.number = (uint32_t)(key >> 3), .wire = (uint32_t)(key & 7)};
    switch (field->wire) {
    case 0:
        return proto_varint(proto, &field->value);
    case 1:
        return proto_fixed(proto, 8, &field->value);
    case 5:
        return proto_fixed(proto, 4, &field->value);
    case 2:
        if (!proto_varint(proto, &length) || length > (uint64_t)(proto->end - proto->at)) {
            proto->broken = true;
            return false;
        }
        field->bytes = proto->at;
        field->length = (size_t)length;
        proto->at += length;
        return true;
    default:
        proto->broken = true;
        return false;
    }
}

float proto_float(uint64_t bits)
{
    uint32_t narrow = (uint32_t)bits;
    float value;
    memcpy(&value, &narrow, sizeof value);
    return value;
}
