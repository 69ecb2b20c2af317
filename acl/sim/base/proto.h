/* proto.h: reading the protobuf wire format from untrusted bytes.

   A reader (Proto) is a range of bytes. Every step checks its bounds. A malformed field ends the
   iteration and sets `broken`, which the caller of proto_open must check at the end. Nothing is copied
   or allocated. */
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
    uint32_t wire;        /* the wire type: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes */
    uint64_t value;       /* the number; valid for the wire types 0, 1 and 5 */
    const uint8_t *bytes; /* the content of the field, of `length` bytes; valid for the wire type 2 */
    size_t length;
} ProtoField;

Proto proto_open(const void *bytes, size_t length);
Proto proto_nested(const ProtoField *field);

/* Gives the next field; false at the end, or if the bytes are malformed. */
bool proto_next(Proto *proto, ProtoField *field);

/* Give the next number of a packed list: a varint, or a number of `bytes` bytes. False, with `broken` set, if
   the bytes end before the number does. */
bool proto_varint(Proto *proto, uint64_t *value);
bool proto_fixed(Proto *proto, unsigned bytes, uint64_t *value);

/* Returns the float whose four bytes are the low bytes of `bits`. */
float proto_float(uint64_t bits);

#endif
