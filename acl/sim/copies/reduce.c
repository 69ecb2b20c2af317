/* aclrtReduceAsync: each element of dst becomes the sum, maximum or minimum of itself and the element of src, in
 * stream order.
 *
 * Sums of integers wrap around.  16-bit floats are computed in 32 bits and rounded once (ties to even). */
#include "copies/copy.h"
#include "generated/exports.h"
#include "races/race.h"
#include "numbers/tensor.h"

typedef struct ReduceTask {
    void *dst;
    const void *src;
    size_t bytes;
    aclrtReduceKind kind;
    aclDataType type;
} ReduceTask;

#define REDUCE(type, a, b, kind)                                                        \
    ((kind) == ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM   ? (type)((a) + (b))                   \
     : (kind) == ACL_RT_MEMCPY_SDMA_AUTOMATIC_MAX ? ((a) > (b) ? (a) : (b))             \
                                                  : ((a) < (b) ? (a) : (b)))

/* Defines the reduction of one type of integers. Sums are computed as unsigned, because signed overflow is undefined in
 * C. */
#define REDUCE_INTEGERS(name, type, unsigned_type)                                      \
    static void name(void *dst, const void *src, size_t count, aclrtReduceKind kind)    \
    {                                                                                   \
        type *to = dst;                                                                 \
        const type *from = src;                                                         \
        for (size_t i = 0; i < count; i++) {                                            \
            if (kind == ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM) {                             \
                to[i] = (type)(unsigned_type)((unsigned_type)to[i] +                    \
                                              (unsigned_type)from[i]);                  \
            } else {                                                                    \
                to[i] = REDUCE(type, to[i], from[i], kind);                             \
            }                                                                           \
        }                                                                               \
    }

REDUCE_INTEGERS(reduce_int8, int8_t, uint8_t)
REDUCE_INTEGERS(reduce_int16, int16_t, uint16_t)
REDUCE_INTEGERS(reduce_int32, int32_t, uint32_t)
REDUCE_INTEGERS(reduce_uint32, uint32_t, uint32_t)

static void reduce_float(void *dst, const void *src, size_t count, aclrtReduceKind kind)
{
    float *to = dst;
    const float *from = src;
    for (size_t i = 0; i < count; i++) {
        to[i] = REDUCE(float, to[i], from[i], kind);
    }
}

static void reduce_half(void *dst, const void *src, size_t count, aclrtReduceKind kind)
{
    uint16_t *to = dst;
    const uint16_t *from = src;
    for (size_t i = 0; i < count; i++) {
        float a = float_from_half(to[i]), b = float_from_half(from[i]);
        to[i] = half_from_float(REDUCE(float, a, b, kind));
    }
}

static void reduce_bfloat(void *dst, const void *src, size_t count, aclrtReduceKind kind)
{
    uint16_t *to = dst;
    const uint16_t *from = src;
    for (size_t i = 0; i < count; i++) {
        float a = float_from_bfloat(to[i]), b = float_from_bfloat(from[i]);
        to[i] = bfloat_from_float(REDUCE(float, a, b, kind));
    }
}

/* A type that the runtime accepts; `run` is NULL if the copy engine cannot reduce it. */
typedef struct ReduceType {
    aclDataType type;
    size_t bytes;
    void (*run)(void *dst, const void *src, size_t count, aclrtReduceKind kind);
} ReduceType;

static const ReduceType TYPES[] = {
    {ACL_FLOAT, 4, reduce_float},   {ACL_FLOAT16, 2, reduce_half}, {ACL_INT8, 1, reduce_int8},
    {ACL_INT32, 4, reduce_int32},   {ACL_INT16, 2, reduce_int16},  {ACL_BF16, 2, reduce_bfloat},
    {ACL_UINT32, 4, reduce_uint32}, {ACL_INT4, 1, NULL},           {ACL_UINT8, 1, NULL},
    {ACL_UINT16, 2, NULL},
};

static const ReduceType *type_find(aclDataType type)
{
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
        if (TYPES[i].type == type) {
            return &TYPES[i];
        }
    }
    return NULL;
}

static aclError reduce_run(Stream *stream, const void *payload)
{
    const ReduceTask *task = payload;
    void *dst = memory_at(task->dst, task->bytes, true);
    const void *src = memory_at(task->src, task->bytes, false);
    if (dst == NULL) {
        return copy_fault(stream, "the destination", task->dst, task->bytes);
    }
    if (src == NULL) {
        return copy_fault(stream, "the source", task->src, task->bytes);
    }
    const ReduceType *type = type_find(task->type);
    type->run(dst, src, task->bytes / type->bytes, task->kind);
    return ACL_SUCCESS;
}

static void reduce_touch(const void *payload, Touch *touch)
{
    const ReduceTask *task = payload;
    touch_bytes(touch, task->src, task->bytes, TOUCH_READ);
    touch_bytes(touch, task->dst, task->bytes, TOUCH_WRITE);
}

static const TaskClass reduce_class = {
    .name = "reduce",
    .run = reduce_run,
    .touch = reduce_touch,
};

static aclError kind_check(const char *function, aclrtReduceKind kind)
{
    if (kind == ACL_RT_MEMCPY_SDMA_AUTOMATIC_EQUAL) {
        return error_set(function, ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                         "kind = %d (EQUAL) is not supported by the simulator",
                         (int)kind);
    }
    if ((int)kind < (int)ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM ||
        (int)kind > (int)ACL_RT_MEMCPY_SDMA_AUTOMATIC_MIN) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "kind = %d: expected 10 (SUM), 11 (MAX) or 12 (MIN)", (int)kind);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtReduceAsync(void *dst, const void *src, uint64_t count, aclrtReduceKind kind,
                              aclDataType type, aclrtStream stream, void *reserve)
{
    REQUIRE(dst);
    REQUIRE(src);
    REQUIRE(reserve == NULL);
    const ReduceType *known = type_find(type);
    REQUIRE(known != NULL);
    STREAM_REF(queue);
    TRY(stream_check(stream));
    REQUIRE_RT(count > 0);
    TRY(kind_check(__func__, kind));
    TRY(stream_resolve(stream, &queue));
    if (known->run == NULL || count % known->bytes != 0) {
        return fail(ACL_ERROR_RT_PARAM_INVALID,
                    "type = %d, count = %llu bytes: expected a type that can be reduced and whole "
                    "elements", (int)type, (unsigned long long)count);
    }
    TRY(memory_check(__func__, "dst", dst, count, true, NULL));
    TRY(memory_check(__func__, "src", src, count, false, NULL));
    ReduceTask task = {dst, src, count, kind, type};
    return stream_submit(queue, &reduce_class, &task, sizeof task);
}
