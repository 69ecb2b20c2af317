/* fuzz_operator.c: runs an operator whose name, attributes, tensor descriptions and numbers are read from random bytes.
 *
 * Texts end with a newline, so that a dictionary of the simulator's words can be used. */
#include "fuzz.h"

enum { TENSORS_MAX = 5, RANK_MAX = 7, LIST_MAX = 6, NAME_ROOM = 64, TENSOR_BYTES_MAX = 1 << 18 };

typedef struct Reader {
    const uint8_t *at, *end;
} Reader;

typedef struct Side {
    aclTensorDesc *descs[TENSORS_MAX];
    aclDataBuffer *buffers[TENSORS_MAX];
    uint8_t *memory[TENSORS_MAX];
    size_t sizes[TENSORS_MAX];
    int count;
} Side;

static aclrtStream stream;

int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    (void)count, (void)arguments;
    stream = stream_start();
    return 0;
}

static uint8_t byte_take(Reader *reader)
{
    return reader->at < reader->end ? *reader->at++ : 0;
}

static void text_take(Reader *reader, char text[NAME_ROOM])
{
    size_t length = 0;
    while (reader->at < reader->end) {
        uint8_t byte = *reader->at++;
        if (byte == '\n' || length == NAME_ROOM - 1) {
            break;
        }
        text[length++] = (char)byte;
    }
    text[length] = '\0';
}

/* Reads a byte and returns it as a small number, or, for eight of its values, a large one that overflows. */
static int64_t number_take(Reader *reader)
{
    static const int64_t large[] = {INT64_MAX, INT64_MIN, INT32_MAX, INT32_MIN, 1LL << 32, 1LL << 40,
        1000, 65536};
    int8_t small = (int8_t)byte_take(reader);
    return small >= 120 ? large[small - 120] : small;
}

static float real_take(Reader *reader)
{
    int64_t number = number_take(reader);
    return number == INT64_MAX ? 1e38F : (float)number / 8;
}

static void attribute_take(Reader *reader, aclopAttr *attributes)
{
    char name[NAME_ROOM], text[NAME_ROOM];
    int64_t numbers[LIST_MAX];
    float reals[LIST_MAX];
    uint8_t flags[LIST_MAX];
    uint8_t kind = byte_take(reader) % 8;
    int count = byte_take(reader) % (LIST_MAX + 1);
    text_take(reader, name);
    for (int i = 0; kind >= 4 && kind < 7 && i < count; i++) {
        numbers[i] = kind == 4 ? number_take(reader) : 0;
        reals[i] = kind == 5 ? real_take(reader) : 0;
        flags[i] = kind == 6 ? byte_take(reader) & 1U : 0;
    }
    switch (kind) {
    case 0: (void)aclopSetAttrInt(attributes, name, number_take(reader)); break;
    case 1: (void)aclopSetAttrFloat(attributes, name, real_take(reader)); break;
    case 2: (void)aclopSetAttrBool(attributes, name, byte_take(reader) & 1U); break;
    case 3:
        text_take(reader, text);
        (void)aclopSetAttrString(attributes, name, text);
        break;
    case 4: (void)aclopSetAttrListInt(attributes, name, count, numbers); break;
    case 5: (void)aclopSetAttrListFloat(attributes, name, count, reals); break;
    case 6: (void)aclopSetAttrListBool(attributes, name, count, flags); break;
    default: (void)aclopSetAttrDataType(attributes, name, (aclDataType)byte_take(reader)); break;
    }
}

static void buffer_make(Side *side, int at, size_t size, uint8_t kind, uint32_t seed)
{
    size = size > TENSOR_BYTES_MAX ? TENSOR_BYTES_MAX : kind == 1 ? size / 2 : kind == 2 ? 0 : size;
    side->memory[at] = size != 0 ? device_memory(size) : NULL;
    side->sizes[at] = side->memory[at] != NULL ? size : 0;
    contents_fill(side->memory[at], side->sizes[at], seed);
    side->buffers[at] = aclCreateDataBuffer(side->memory[at], side->sizes[at]);
}

static void side_take(Reader *reader, Side *side)
{
    side->count = byte_take(reader) % (TENSORS_MAX + 1);
    for (int i = 0; i < side->count; i++) {
        int64_t dims[RANK_MAX];
        aclDataType type = (aclDataType)(int8_t)byte_take(reader);
        int rank = byte_take(reader) % (RANK_MAX + 1);
        uint8_t how = byte_take(reader);
        for (int d = 0; d < rank; d++) {
            dims[d] = number_take(reader);
        }
        side->descs[i] = aclCreateTensorDesc(type, rank, dims, (aclFormat)(how >> 4 == 15 ? -1 : how >> 6));
        size_t size = side->descs[i] != NULL ? aclGetTensorDescSize(side->descs[i]) : 0;
        buffer_make(side, i, size, how & 3U, byte_take(reader) * 2654435761U + (how >> 2 & 3U));
        if ((how & 0xCU) == 0xCU && side->descs[i] != NULL) {
            (void)aclSetTensorConst(side->descs[i], side->memory[i], side->sizes[i]);
        }
    }
}

static void side_drop(Side *side)
{
    for (int i = 0; i < side->count; i++) {
        if (side->descs[i] != NULL) {
            aclDestroyTensorDesc(side->descs[i]);
        }
        (void)aclDestroyDataBuffer(side->buffers[i]);
        device_free(side->memory[i], side->sizes[i]);
    }
}

static void operator_run(uint8_t how, const char *name, Side *in, Side *out, aclopAttr *attributes)
{
    switch (how % 3) {
    case 0:
        (void)aclopInferShape(name, in->count, in->descs, in->buffers, out->count, out->descs, attributes);
        break;
    case 1:
        (void)aclopExecuteV2(name, in->count, in->descs, in->buffers, out->count, out->descs,
            out->buffers, attributes, stream);
        break;
    default:
        (void)aclopCompileAndExecute(name, in->count, (const aclTensorDesc *const *)in->descs,
            (const aclDataBuffer *const *)in->buffers, out->count,
            (const aclTensorDesc *const *)out->descs, out->buffers, attributes, ACL_ENGINE_SYS,
            ACL_COMPILE_SYS, NULL, stream);
        break;
    }
    stream_finish(stream);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    Reader reader = {bytes, bytes + length};
    char name[NAME_ROOM];
    Side in = {0}, out = {0};
    aclopAttr *attributes = aclopCreateAttr();
    text_take(&reader, name);
    uint8_t how = byte_take(&reader);
    side_take(&reader, &in);
    side_take(&reader, &out);
    for (int i = byte_take(&reader) % (LIST_MAX + 1); i > 0; i--) {
        attribute_take(&reader, attributes);
    }
    operator_run(how, name, &in, &out, attributes);
    side_drop(&in);
    side_drop(&out);
    aclopDestroyAttr(attributes);
    return 0;
}
