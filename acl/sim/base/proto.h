/* proto.h: reading the protobuf wire format from untrusted bytes.

   A reader is a range of bytes. Every step checks its bounds; a malformed field ends the iteration
   and sets `broken`, which the caller that began the reading must check. Nothing is copied or
   allocated. */
#ifndef SIM_PROTO_H
#define SIM_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Proto {
    const uint8_t *at;
    const uint8_t *end;
    bool broken;
} Proto;

typedef struct ProtoField {
    uint32_t number;
    uint32_t wire;        /* 0 varint, 1 eight bytes, 2 bytes, 5 four bytes */
    uint64_t value;       /* wire 0, 1, 5 */
    const uint8_t *bytes; /* wire 2: the content of the field */
    size_t length;
} ProtoField;

Proto proto_open(const void *bytes, size_t length);
Proto proto_nested(const ProtoField *field);

/* Gives the next field; false at the end, or if the bytes are malformed. */
bool proto_next(Proto *proto, ProtoField *field);

/* Gives the next number of a packed list. */
bool proto_varint(Proto *proto, uint64_t *value);
bool proto_fixed(Proto *proto, unsigned bytes, uint64_t *value);

/* Returns the float whose four bytes are the low bytes of `bits`. */
float proto_float(uint64_t bits);

#endif
