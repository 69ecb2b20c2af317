/* fuzz_mutator.c: changes an ONNX file in one field, and keeps the lengths around that field right.
 *
 * Random changes of bytes break a length in nearly every case, so that the code behind the reader of
 * protobuf is never reached.  One case in eight still changes bytes at random. */
#include "base/proto.h"

#include <stdlib.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *bytes, size_t length, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t length, size_t room, unsigned seed);

typedef enum Kind { LEAF, MODEL, GRAPH, FUNCTION, NODE, ATTRIBUTE, VALUE, TYPE, TENSOR_TYPE, SHAPE } Kind;
typedef enum Change { DELETE, REPEAT, ALTER } Change;

/* For each message: the fields that are messages themselves, and their kinds. */
static const struct {
    Kind kind;
    uint32_t field;
    Kind inner;
} nested[] = {
    {MODEL, 7, GRAPH}, {MODEL, 8, LEAF}, {MODEL, 14, LEAF}, {MODEL, 25, FUNCTION}, {GRAPH, 1, NODE},
    {GRAPH, 5, LEAF}, {GRAPH, 11, VALUE}, {GRAPH, 12, VALUE}, {GRAPH, 13, VALUE}, {FUNCTION, 7, NODE},
    {FUNCTION, 9, LEAF}, {NODE, 5, ATTRIBUTE}, {ATTRIBUTE, 5, LEAF}, {ATTRIBUTE, 6, GRAPH},
    {ATTRIBUTE, 10, LEAF}, {ATTRIBUTE, 11, GRAPH}, {VALUE, 2, TYPE}, {TYPE, 1, TENSOR_TYPE},
    {TENSOR_TYPE, 2, SHAPE}, {SHAPE, 1, LEAF},
};

typedef struct Edit {
    Change change;
    size_t target;  /* number of the field to change */
    size_t seen;    /* fields visited so far */
    uint32_t dice;
    bool full;      /* there was no room: the result is unusable */
} Edit;

typedef struct Out {
    uint8_t *bytes;
    size_t length, room;
} Out;

static uint32_t roll(uint32_t *dice)
{
    *dice = *dice * 1664525U + 1013904223U;
    return *dice >> 8;
}

static bool inner_of(Kind kind, const ProtoField *field, Kind *inner)
{
    for (size_t i = 0; field->wire == 2 && i < sizeof nested / sizeof nested[0]; i++) {
        if (nested[i].kind == kind && nested[i].field == field->number) {
            *inner = nested[i].inner;
            return true;
        }
    }
    return false;
}

static void bytes_put(Out *out, const void *bytes, size_t length, Edit *edit)
{
    if (length > out->room - out->length) {
        edit->full = true;
        return;
    }
    memcpy(out->bytes + out->length, bytes, length);
    out->length += length;
}

static void varint_put(Out *out, uint64_t value, Edit *edit)
{
    uint8_t bytes[10];
    size_t count = 0;
    for (; value >= 128; value >>= 7) {
        bytes[count++] = (uint8_t)(value | 128);
    }
    bytes[count++] = (uint8_t)value;
    bytes_put(out, bytes, count, edit);
}

static uint64_t value_alter(uint64_t value, Edit *edit)
{
    static const uint64_t odd[] = {0, 1, 2, 3, 7, 11, 16, 255, 1U << 31, 1ULL << 32, 1ULL << 62,
        INT64_MAX, (uint64_t)INT64_MIN, UINT64_MAX, UINT64_MAX - 1};
    uint32_t choice = roll(&edit->dice);
    return choice % 4 == 0 ? value + 1 : choice % 4 == 1 ? value ^ 1ULL << (choice >> 3 & 63U)
        : odd[(choice >> 3) % (sizeof odd / sizeof odd[0])];
}

static void message_put(
    Out *out, Kind kind, const uint8_t *bytes, size_t length, Edit *edit, int depth);

/* Writes the length of a field's contents, and then the contents. */
static void contents_put(Out *out, Kind kind, const ProtoField *field, bool alter, Edit *edit, int depth)
{
    Kind inner;
    bool deeper = inner_of(kind, field, &inner) && depth < 24;
    size_t room = field->length + 64;
    uint8_t *copy = malloc(out->room + room);
    if (copy == NULL) {
        edit->full = true;
        return;
    }
    Out part = {copy, 0, out->room + room};
    if (deeper) {
        message_put(&part, inner, field->bytes, field->length, edit, depth + 1);
    } else {
        bytes_put(&part, field->bytes, field->length, edit);
        part.length = alter ? LLVMFuzzerMutate(copy, part.length, room) : part.length;
    }
    varint_put(out, part.length, edit);
    bytes_put(out, copy, part.length, edit);
    free(copy);
}

static void field_put(Out *out, Kind kind, const ProtoField *field, bool alter, Edit *edit, int depth)
{
    varint_put(out, (uint64_t)field->number << 3 | field->wire, edit);
    uint64_t value = alter ? value_alter(field->value, edit) : field->value;
    switch (field->wire) {
    case 0: varint_put(out, value, edit); break;
    case 1: bytes_put(out, &value, 8, edit); break;
    case 5: bytes_put(out, &value, 4, edit); break;
    default: contents_put(out, kind, field, alter, edit, depth); break;
    }
}

static void message_put(
    Out *out, Kind kind, const uint8_t *bytes, size_t length, Edit *edit, int depth)
{
    Proto proto = proto_open(bytes, length);
    ProtoField field;
    while (!edit->full && proto_next(&proto, &field)) {
        bool hit = edit->seen++ == edit->target;
        if (hit && edit->change == DELETE) {
            continue;
        }
        field_put(out, kind, &field, hit && edit->change == ALTER, edit, depth);
        if (hit && edit->change == REPEAT) {
            field_put(out, kind, &field, false, edit, depth);
        }
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t length, size_t room, unsigned seed)
{
    uint32_t dice = seed;
    Out out = {malloc(room), 0, room};
    Edit count = {.target = SIZE_MAX};
    bool blind = roll(&dice) % 8 == 0 || out.bytes == NULL;
    for (uint32_t changes = roll(&dice) % 3; !blind && changes < 3; changes++) {
        count.seen = 0;
        message_put(&out, MODEL, bytes, length, &count, 0);
        Edit edit = {.change = (Change)(roll(&dice) % 8 < 5 ? ALTER : roll(&dice) % 2), .dice = dice};
        edit.target = count.seen == 0 ? 0 : roll(&dice) % count.seen;
        out.length = 0;
        message_put(&out, MODEL, bytes, length, &edit, 0);
        blind = edit.full || count.full || out.length == 0;
        if (!blind) {
            memcpy(bytes, out.bytes, out.length);
            length = out.length;
        }
        out.length = 0;
    }
    free(out.bytes);
    return blind ? LLVMFuzzerMutate(bytes, length, room) : length;
}
