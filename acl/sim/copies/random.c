/* random.c: aclrtRandomNumAsync, random numbers made by the device in stream order.

   The generator is Philox 4x32 with 10 rounds.  The seed is its key; 16 bytes of the user's device memory are its
   counter.  When a task runs, it reads the counter and adds the number of blocks that it used.  So the same seed and
   counter give the same numbers, and the next call continues the sequence.  The numbers differ from those of a
   chip, but have the same distributions.

   A task uses the user's memory until it has run.  There is no state and no lock. */
#include <math.h>
#include <string.h>

#include "generated/exports.h"
#include "memory/memory.h"
#include "races/race.h"
#include "base/soc.h"

enum { COUNTER_BYTES = 16, ROUNDS = 10, WORDS = 4 };

typedef struct Generator {
    uint32_t key[2];
    uint32_t counter[WORDS];
    uint32_t words[WORDS];
    unsigned used; /* how many of `words` were returned; WORDS: the next block must be computed */
} Generator;

static void philox(const uint32_t counter[WORDS], const uint32_t key[2], uint32_t out[WORDS])
{
    uint32_t x[WORDS];
    uint32_t k0 = key[0];
    uint32_t k1 = key[1];
    memcpy(x, counter, sizeof x);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t a = (uint64_t)0xd2511f53u * x[0];
        uint64_t b = (uint64_t)0xcd9e8d57u * x[2];
        uint32_t next[WORDS] = {(uint32_t)(b >> 32) ^ x[1] ^ k0, (uint32_t)b,
                                (uint32_t)(a >> 32) ^ x[3] ^ k1, (uint32_t)a};
        memcpy(x, next, sizeof x);
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    memcpy(out, x, sizeof x);
}

static uint32_t draw(Generator *generator)
{
    if (generator->used == WORDS) {
        philox(generator->counter, generator->key, generator->words);
        generator->used = 0;
        for (int i = 0; i < WORDS && ++generator->counter[i] == 0; i++) {
        }
    }
    return generator->words[generator->used++];
}

static uint64_t draw_long(Generator *generator)
{
    uint64_t low = draw(generator);
    return low | (uint64_t)draw(generator) << 32;
}

/* Returns a random number in [0, 1). */
static double draw_unit(Generator *generator)
{
    return (double)(draw_long(generator) >> 11) * 0x1p-53;
}

static double draw_normal(Generator *generator)
{
    double radius = sqrt(-2 * log(1 - draw_unit(generator)));
    return radius * cos(6.283185307179586 * draw_unit(generator));
}

/* ---- parameters ------------------------------------------------------------------------------ */

/* If a parameter is in device memory, replaces its address by its value. */
static aclError parameter_fetch(const Stream *stream, aclrtRandomParaInfo *parameter, size_t size)
{
    void *address, *at;
    if (parameter->isAddr == 0) {
        return ACL_SUCCESS;
    }
    memcpy(&address, parameter->valueOrAddr, sizeof address);
    TRY(memory_for_task(stream, "a parameter of random numbers", address, size, false, &at));
    memcpy(parameter->valueOrAddr, at, size);
    parameter->isAddr = 0;
    return ACL_SUCCESS;
}

static uint64_t parameter_long(const aclrtRandomParaInfo *parameter)
{
    uint64_t value = 0;
    size_t size = parameter->size == 4 ? 4 : 8;
    memcpy(&value, parameter->valueOrAddr, size);
    return value;
}

static double parameter_real(const aclrtRandomParaInfo *parameter, aclDataType type)
{
    uint16_t half;
    float value;
    if (type == ACL_FLOAT) {
        memcpy(&value, parameter->valueOrAddr, sizeof value);
        return (double)value;
    }
    memcpy(&half, parameter->valueOrAddr, sizeof half);
    if (type == ACL_FLOAT16) {
        return (double)sim_aclFloat16ToFloat(half);
    }
    uint32_t bits = (uint32_t)half << 16;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static void real_store(void *out, uint64_t index, aclDataType type, double real)
{
    float value = (float)real;
    if (type == ACL_FLOAT) {
        ((float *)out)[index] = value;
    } else if (type == ACL_FLOAT16) {
        ((uint16_t *)out)[index] = sim_aclFloatToFloat16(value);
    } else {
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        bits += 0x7fffu + (bits >> 16 & 1u); /* rounds to the nearest bfloat16, ties to even */
        ((uint16_t *)out)[index] = (uint16_t)(bits >> 16);
    }
}

static bool type_is_real(aclDataType type)
{
    return type == ACL_FLOAT || type == ACL_FLOAT16 || type == ACL_BF16;
}

static bool type_is_integer(aclDataType type)
{
    return type == ACL_INT32 || type == ACL_INT64 || type == ACL_UINT32 || type == ACL_UINT64;
}

/* ---- distributions --------------------------------------------------------------------------- */

static void uniform_reals(Generator *generator, const aclrtRandomNumTaskInfo *info, void *out,
    uint64_t count)
{
    const aclrtUniformDisInfo *range = &info->randomNumFuncParaInfo.paramInfo.uniformDisInfo;
    double low = parameter_real(&range->min, info->dataType);
    double high = parameter_real(&range->max, info->dataType);
    for (uint64_t i = 0; i < count; i++) {
        real_store(out, i, info->dataType, low + (high - low) * draw_unit(generator));
    }
}

/* Writes integers in [min, max); all are `min` if the range is empty. */
static void uniform_integers(Generator *generator, const aclrtRandomNumTaskInfo *info, void *out,
    uint64_t count)
{
    const aclrtUniformDisInfo *range = &info->randomNumFuncParaInfo.paramInfo.uniformDisInfo;
    bool wide = info->dataType == ACL_INT64 || info->dataType == ACL_UINT64;
    size_t size = wide ? 8 : 4;
    uint64_t low = 0;
    uint64_t high = 0;
    memcpy(&low, range->min.valueOrAddr, size);
    memcpy(&high, range->max.valueOrAddr, size);
    if (info->dataType == ACL_INT32) {
        low = (uint64_t)(int64_t)(int32_t)low;
        high = (uint64_t)(int64_t)(int32_t)high;
    }
    bool is_signed = info->dataType == ACL_INT32 || info->dataType == ACL_INT64;
    bool empty = is_signed ? (int64_t)high <= (int64_t)low : high <= low;
    uint64_t span = empty ? 1 : high - low;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t value = low + draw_long(generator) % span;
        if (wide) {
            ((uint64_t *)out)[i] = value;
        } else {
            ((uint32_t *)out)[i] = (uint32_t)value;
        }
    }
}

/* Writes normally distributed numbers. The truncated form draws again while a number is two standard deviations or
   more away from the mean. */
static void normal_reals(Generator *generator, const aclrtRandomNumTaskInfo *info, void *out,
    uint64_t count)
{
    const aclrtNormalDisInfo *shape = &info->randomNumFuncParaInfo.paramInfo.normalDisInfo;
    double mean = parameter_real(&shape->mean, info->dataType);
    double deviation = parameter_real(&shape->stddev, info->dataType);
    bool truncated = info->randomNumFuncParaInfo.funcType ==
                     ACL_RT_RANDOM_NUM_FUNC_TYPE_TRUNCATED_NORMAL_DIS;
    for (uint64_t i = 0; i < count; i++) {
        double z = draw_normal(generator);
        while (truncated && fabs(z) >= 2) {
            z = draw_normal(generator);
        }
        real_store(out, i, info->dataType, mean + deviation * z);
    }
}

/* Writes one bit for each element. The bit is set (the element is kept) with the probability 1 - ratio. */
static void dropout_bits(Generator *generator, const aclrtRandomNumTaskInfo *info, void *out,
    uint64_t count)
{
    const aclrtRandomParaInfo *ratio =
        &info->randomNumFuncParaInfo.paramInfo.dropoutBitmaskInfo.dropoutRation;
    double dropped = parameter_real(ratio, info->dataType);
    memset(out, 0, (count + 7) / 8);
    for (uint64_t i = 0; i < count; i++) {
        if (draw_unit(generator) >= dropped) {
            ((unsigned char *)out)[i / 8] |= (unsigned char)(1u << i % 8);
        }
    }
}

static size_t result_bytes(const aclrtRandomNumTaskInfo *info, uint64_t count)
{
    if (info->randomNumFuncParaInfo.funcType == ACL_RT_RANDOM_NUM_FUNC_TYPE_DROPOUT_BITMASK) {
        return (count + 7) / 8;
    }
    return count * sim_aclDataTypeSize(info->dataType);
}

/* Replaces the addresses of all parameters in device memory by their values. */
static aclError parameters_fetch(const Stream *stream, aclrtRandomNumTaskInfo *info)
{
    size_t size = sim_aclDataTypeSize(info->dataType);
    aclrtRandomNumFuncParaInfo *function = &info->randomNumFuncParaInfo;
    bool one = function->funcType == ACL_RT_RANDOM_NUM_FUNC_TYPE_DROPOUT_BITMASK;
    aclrtUniformDisInfo *pair = &function->paramInfo.uniformDisInfo; /* the other structs have the same layout */
    TRY(parameter_fetch(stream, &info->randomNum, info->randomNum.size == 4 ? 4 : 8));
    TRY(parameter_fetch(stream, &info->randomSeed, info->randomSeed.size == 4 ? 4 : 8));
    TRY(parameter_fetch(stream, &pair->min, size));
    return one ? ACL_SUCCESS : parameter_fetch(stream, &pair->max, size);
}

static void numbers_draw(Generator *generator, const aclrtRandomNumTaskInfo *info, void *out,
                         uint64_t count)
{
    switch (info->randomNumFuncParaInfo.funcType) {
    case ACL_RT_RANDOM_NUM_FUNC_TYPE_DROPOUT_BITMASK:
        dropout_bits(generator, info, out, count);
        break;
    case ACL_RT_RANDOM_NUM_FUNC_TYPE_UNIFORM_DIS:
        if (type_is_real(info->dataType)) {
            uniform_reals(generator, info, out, count);
        } else {
            uniform_integers(generator, info, out, count);
        }
        break;
    default:
        normal_reals(generator, info, out, count);
        break;
    }
}

static aclError random_run(Stream *stream, const void *payload)
{
    aclrtRandomNumTaskInfo info;
    memcpy(&info, payload, sizeof info);
    TRY(parameters_fetch(stream, &info));
    Generator generator = {.used = WORDS};
    uint64_t count = parameter_long(&info.randomNum);
    uint64_t seed = parameter_long(&info.randomSeed);
    void *counter, *out;
    if (count > SIZE_MAX / 8) {
        return ACL_ERROR_RT_PARAM_INVALID;
    }
    generator.key[0] = (uint32_t)seed;
    generator.key[1] = (uint32_t)(seed >> 32);
    TRY(memory_for_task(stream, "the counter of random numbers", info.randomCounterAddr,
                        COUNTER_BYTES, true, &counter));
    TRY(memory_for_task(stream, "the room for random numbers", info.randomResultAddr,
                        result_bytes(&info, count), true, &out));
    memcpy(generator.counter, counter, COUNTER_BYTES);
    numbers_draw(&generator, &info, out, count);
    memcpy(counter, generator.counter, COUNTER_BYTES);
    return ACL_SUCCESS;
}

static void random_touch(const void *payload, Touch *touch)
{
    const aclrtRandomNumTaskInfo *info = payload;
    touch_bytes(touch, info->randomCounterAddr, COUNTER_BYTES, TOUCH_WRITE);
    touch_bytes(touch, info->randomResultAddr, result_bytes(info, parameter_long(&info->randomNum)),
                TOUCH_WRITE);
}

static const TaskClass random_task = {
    .name = "random numbers",
    .run = random_run,
    .touch = random_touch,
};

aclError sim_aclrtRandomNumAsync(const aclrtRandomNumTaskInfo *taskInfo, const aclrtStream stream,
    void *reserve)
{
    STREAM_REF(resolved);
    REQUIRE(taskInfo);
    REQUIRE(reserve == NULL);
    TRY(stream_resolve(stream, &resolved));
    if (!soc_current()->has_random) {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "%s has no unit for random numbers",
                    config.soc);
    }
    aclrtRandomNumFuncType function = taskInfo->randomNumFuncParaInfo.funcType;
    REQUIRE_RT((unsigned)function <= ACL_RT_RANDOM_NUM_FUNC_TYPE_TRUNCATED_NORMAL_DIS);
    REQUIRE_RT(type_is_real(taskInfo->dataType) ||
               (function == ACL_RT_RANDOM_NUM_FUNC_TYPE_UNIFORM_DIS &&
                type_is_integer(taskInfo->dataType)));
    REQUIRE_RT(taskInfo->randomResultAddr);
    REQUIRE_RT(taskInfo->randomCounterAddr);
    return stream_submit(resolved, &random_task, taskInfo, sizeof *taskInfo);
}

/* Always refused: only chips whose scheduler reads tasks from memory can change a task that is queued. */
aclError sim_aclrtTaskUpdateAsync(aclrtStream taskStream, uint32_t taskId,
    aclrtTaskUpdateInfo *info, aclrtStream execStream)
{
    STREAM_REF(of_task);
    STREAM_REF(resolved);
    REQUIRE(info);
    TRY(stream_resolve_any(taskStream, &of_task));
    TRY(stream_resolve(execStream, &resolved));
    return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "task %u cannot be changed once it is queued",
                taskId);
}
