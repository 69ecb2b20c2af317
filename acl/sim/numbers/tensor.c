/* tensor.c: data types, shapes and conversion of elements. See tensor.h.

   An element is converted through double if it is of a float type, through int64_t otherwise. The
   pairs of types that inference converts most often have loops of their own. */
#include "numbers/tensor.h"
#include "numbers/vmath.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- data types --- */

typedef struct TypeRow {
    const char *name;       /* NULL: the simulator does not support the type */
    int64_t size;           /* bytes of an element */
    aclDataType compute;    /* the type in which arithmetic is done */
    bool is_float;
} TypeRow;

static const TypeRow TYPES[] = {
    [ACL_BOOL] = {"bool", 1, ACL_INT32, false},
    [ACL_INT8] = {"int8", 1, ACL_INT32, false},
    [ACL_UINT8] = {"uint8", 1, ACL_INT32, false},
    [ACL_FLOAT16] = {"float16", 2, ACL_FLOAT, true},
    [ACL_BF16] = {"bfloat16", 2, ACL_FLOAT, true},
    [ACL_INT16] = {"int16", 2, ACL_INT32, false},
    [ACL_UINT16] = {"uint16", 2, ACL_INT32, false},
    [ACL_FLOAT] = {"float32", 4, ACL_FLOAT, true},
    [ACL_INT32] = {"int32", 4, ACL_INT32, false},
    [ACL_UINT32] = {"uint32", 4, ACL_INT64, false},
    [ACL_DOUBLE] = {"float64", 8, ACL_DOUBLE, true},
    [ACL_INT64] = {"int64", 8, ACL_INT64, false},
    [ACL_UINT64] = {"uint64", 8, ACL_UINT64, false},
};

static const TypeRow *type_row(aclDataType type)
{
    static const TypeRow lacking = {"an unsupported type", 0, ACL_INT32, false};
    bool known = (int)type >= 0 && (size_t)type < sizeof TYPES / sizeof *TYPES && TYPES[type].name != NULL;
    return known ? &TYPES[type] : &lacking;
}

int64_t type_size(aclDataType type) { return type_row(type)->size; }

const char *type_name(aclDataType type) { return type_row(type)->name; }

bool type_is_float(aclDataType type) { return type_row(type)->is_float; }

bool type_is_integer(aclDataType type)
{
    return type_size(type) != 0 && !type_is_float(type) && type != ACL_BOOL;
}

aclDataType type_compute(aclDataType type) { return type_row(type)->compute; }

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

float float_from_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000U) << 16;
    uint32_t rest = half & 0x7fffU;
    if (rest >= 0x7c00U) { /* infinity and NaN */
        return float_of_bits(sign | 0x7f800000U | ((rest & 0x3ffU) << 13));
    }
    if (rest < 0x400U) { /* zero and subnormals: the mantissa counts units of 2^-24 */
        float value = (float)rest * 0x1p-24F;
        return sign != 0 ? -value : value;
    }
    return float_of_bits(sign | ((rest << 13) + ((127U - 15U) << 23)));
}

uint16_t half_from_float(float value)
{
    uint32_t bits = bits_of_float(value);
    uint32_t sign = (bits >> 16) & 0x8000U;
    uint32_t rest = bits & 0x7fffffffU;
    if (rest > 0x7f800000U) {
        return (uint16_t)(sign | 0x7e00U | ((rest >> 13) & 0x3ffU));
    }
    if (rest >= 0x477ff000U) { /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00U);
    }
    if (rest < 0x38800000U) { /* below 2^-14: adding 0.5 aligns and rounds the mantissa */
        uint32_t aligned = bits_of_float(float_of_bits(rest) + 0.5F);
        return (uint16_t)(sign | (aligned - 0x3f000000U));
    }
    uint32_t odd = (rest >> 13) & 1U;
    rest += 0xfffU + odd - ((127U - 15U) << 23);
    return (uint16_t)(sign | (rest >> 13));
}

float float_from_bfloat(uint16_t bits)
{
    return float_of_bits((uint32_t)bits << 16);
}

/* Returns a float that rounds to float16 or bfloat16 as `value` itself does. It is rounded towards
   zero, and its last bit is set if it is not exact, so that the second rounding sees on which side
   of a tie the value was. */
static float float_to_round(double value)
{
    float near = (float)value;
    bool larger = fabs((double)near) > fabs(value);
    bool exact = (double)near <= value && (double)near >= value;
    if (exact || isnan(value) || isinf(near)) {
        return near;
    }
    return float_of_bits((bits_of_float(near) - (larger ? 1U : 0U)) | 1U);
}

uint16_t bfloat_from_float(float value)
{
    uint32_t bits = bits_of_float(value);
    if ((bits & 0x7fffffffU) > 0x7f800000U) {
        return (uint16_t)((bits >> 16) | 0x40U);
    }
    return (uint16_t)((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

/* --- shapes --- */

/* Returns the product of the dimensions, or INT64_MAX if it does not fit: a model may name any dimensions. */
int64_t dims_count(const int64_t *dims, int rank)
{
    int64_t count = 1;
    for (int i = 0; i < rank; i++) {
        count = __builtin_mul_overflow(count, dims[i], &count) ? INT64_MAX : count;
    }
    return count;
}

int64_t tensor_count(const Tensor *tensor)
{
    return dims_count(tensor->dims, tensor->rank);
}

int64_t tensor_bytes(const Tensor *tensor)
{
    return tensor_count(tensor) * type_size(tensor->type);
}

bool tensor_fits(const Tensor *tensor)
{
    int64_t bytes = type_size(tensor->type);
    for (int i = 0; i < tensor->rank; i++) {
        int64_t dim = tensor->dims[i] == 0 ? 1 : tensor->dims[i]; /* 0 counts as 1: the others are checked, too */
        if (dim < 0 || __builtin_mul_overflow(bytes, dim, &bytes)) {
            return false;
        }
    }
    return bytes <= (int64_t)1 << 47;
}

bool tensor_same_shape(const Tensor *a, const Tensor *b)
{
    return a->rank == b->rank
        && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]) == 0;
}

void tensor_shape_copy(Tensor *to, const Tensor *from)
{
    to->rank = from->rank;
    memcpy(to->dims, from->dims, sizeof to->dims);
}

bool dims_broadcast(const Tensor *a, const Tensor *b, Tensor *out)
{
    Tensor wide = {.rank = a->rank > b->rank ? a->rank : b->rank};
    for (int i = 1; i <= wide.rank; i++) {
        int64_t x = i <= a->rank ? a->dims[a->rank - i] : 1;
        int64_t y = i <= b->rank ? b->dims[b->rank - i] : 1;
        if (x != y && x != 1 && y != 1) {
            return false;
        }
        wide.dims[wide.rank - i] = x == 1 ? y : x;
    }
    tensor_shape_copy(out, &wide);
    return true;
}

int axis_normal(int64_t axis, int rank)
{
    if (axis < 0) {
        axis += rank;
    }
    return axis < 0 || axis >= rank ? -1 : (int)axis;
}

char *shape_text(const Tensor *tensor, char *text, size_t room)
{
    size_t used = (size_t)snprintf(text, room, "[");
    for (int i = 0; i < tensor->rank && used + 24 < room; i++) {
        const char *comma = i == 0 ? "" : ", ";
        used +=
            (size_t)snprintf(text + used, room - used, "%s%lld", comma, (long long)tensor->dims[i]);
    }
    if (used + 2 <= room) {
        memcpy(text + used, "]", 2);
    }
    return text;
}

/* --- elements --- */

#define INT_CASE(TYPE, C) \
    case TYPE: \
        return (int64_t)((const C *)tensor->data)[index];

/* A value outside int64_t has no defined cast in C; it becomes the smallest integer, as x86 does.
 */
static int64_t int_from_real(double value)
{
    return value >= -0x1p63 && value < 0x1p63 ? (int64_t)value : INT64_MIN;
}

int64_t tensor_get_int(const Tensor *tensor, int64_t index)
{
    switch (tensor->type) {
    INT_CASE(ACL_BOOL, uint8_t)
    INT_CASE(ACL_INT8, int8_t)
    INT_CASE(ACL_UINT8, uint8_t)
    INT_CASE(ACL_INT16, int16_t)
    INT_CASE(ACL_UINT16, uint16_t)
    INT_CASE(ACL_INT32, int32_t)
    INT_CASE(ACL_UINT32, uint32_t)
    INT_CASE(ACL_INT64, int64_t)
    INT_CASE(ACL_UINT64, uint64_t)
    default:
        return int_from_real(tensor_get_real(tensor, index));
    }
}

double tensor_get_real(const Tensor *tensor, int64_t index)
{
    switch (tensor->type) {
    case ACL_FLOAT:
        return (double)((const float *)tensor->data)[index];
    case ACL_DOUBLE:
        return ((const double *)tensor->data)[index];
    case ACL_FLOAT16:
        return (double)float_from_half(((const uint16_t *)tensor->data)[index]);
    case ACL_BF16:
        return (double)float_from_bfloat(((const uint16_t *)tensor->data)[index]);
    case ACL_UINT64:
        return (double)((const uint64_t *)tensor->data)[index];
    default:
        return (double)tensor_get_int(tensor, index);
    }
}

#define FAST_LOOP(C_TO, C_FROM, EXPRESSION) \
    do { \
        C_TO *restrict out = to; \
        const C_FROM *restrict in = from; \
        for (int64_t i = 0; i < count; i++) { \
            C_FROM v = in[i * stride]; \
            out[i] = (C_TO)(EXPRESSION); \
        } \
        return true; \
    } while (0)

/* Converts a float to int32_t. A value that does not fit becomes INT32_MIN, as on x86. */
#define INT_OF_FLOAT(V) ((V) >= -0x1p31F && (V) < 0x1p31F ? (int32_t)(V) : INT32_MIN)

#if defined(__x86_64__) && !defined(SIM_DEBUG)
#include <immintrin.h>

/* Convert eight elements at a time, if the processor can. Return how many were converted. */
__attribute__((target("avx,f16c"))) static int64_t halves_widen(
    float *to, const uint16_t *from, int64_t count)
{
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
    }
    return i;
}

__attribute__((target("avx,f16c"))) static int64_t halves_narrow(
    uint16_t *to, const float *from, int64_t count)
{
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(void *)(to + i), halves);
    }
    return i;
}

static bool halves_are_fast(void)
{
    return __builtin_cpu_supports("avx2") != 0; /* implies f16c, for which clang 14 has no name */;
}
#else
static bool halves_are_fast(void)
{
    return false;
}

static int64_t halves_widen(float *to, const uint16_t *from, int64_t count)
{
    (void)to, (void)from, (void)count;
    return 0;
}

static int64_t halves_narrow(uint16_t *to, const float *from, int64_t count)
{
    (void)to, (void)from, (void)count;
    return 0;
}
#endif

/* Converts contiguous float16 to float32 or back. Returns how many elements were converted. */
static int64_t convert_halves(void *to, aclDataType to_type, const void *from,
    aclDataType from_type, int64_t stride, int64_t count)
{
    if (stride != 1 || count < 8 || !halves_are_fast()) {
        return 0;
    }
    return to_type == ACL_FLOAT && from_type == ACL_FLOAT16 ? halves_widen(to, from, count)
        : to_type == ACL_FLOAT16 && from_type == ACL_FLOAT  ? halves_narrow(to, from, count)
                                                            : 0;
}

/* Converts the pairs of types that have a loop of their own; returns false for the others. */
WIDE static bool convert_fast(void *to, aclDataType to_type, const void *from, aclDataType from_type,
    int64_t stride, int64_t count)
{
    switch ((int)to_type * 64 + (int)from_type) {
    case ACL_FLOAT * 64 + ACL_FLOAT16:
        FAST_LOOP(float, uint16_t, float_from_half(v));
    case ACL_FLOAT16 * 64 + ACL_FLOAT:
        FAST_LOOP(uint16_t, float, half_from_float(v));
    case ACL_FLOAT * 64 + ACL_BF16:
        FAST_LOOP(float, uint16_t, float_from_bfloat(v));
    case ACL_BF16 * 64 + ACL_FLOAT:
        FAST_LOOP(uint16_t, float, bfloat_from_float(v));
    case ACL_UINT8 * 64 + ACL_FLOAT:
        FAST_LOOP(uint8_t, float, INT_OF_FLOAT(v));
    case ACL_INT8 * 64 + ACL_FLOAT:
        FAST_LOOP(int8_t, float, INT_OF_FLOAT(v));
    case ACL_INT32 * 64 + ACL_FLOAT:
        FAST_LOOP(int32_t, float, INT_OF_FLOAT(v));
    case ACL_INT64 * 64 + ACL_FLOAT:
        FAST_LOOP(int64_t, float, v >= -0x1p63F && v < 0x1p63F ? (int64_t)v : INT64_MIN);
    case ACL_BOOL * 64 + ACL_FLOAT:
        FAST_LOOP(uint8_t, float, v < 0 || v > 0 || isnan(v));
    case ACL_FLOAT * 64 + ACL_INT64:
        FAST_LOOP(float, int64_t, v);
    case ACL_FLOAT * 64 + ACL_UINT64:
        FAST_LOOP(float, uint64_t, v);
    case ACL_FLOAT * 64 + ACL_INT32:
        FAST_LOOP(float, int32_t, v);
    case ACL_FLOAT * 64 + ACL_UINT8:
        FAST_LOOP(float, uint8_t, v);
    case ACL_FLOAT * 64 + ACL_INT8:
        FAST_LOOP(float, int8_t, v);
    case ACL_INT32 * 64 + ACL_UINT8:
        FAST_LOOP(int32_t, uint8_t, v);
    case ACL_INT32 * 64 + ACL_INT8:
        FAST_LOOP(int32_t, int8_t, v);
    case ACL_UINT8 * 64 + ACL_INT32:
        FAST_LOOP(uint8_t, int32_t, v);
    case ACL_INT8 * 64 + ACL_INT32:
        FAST_LOOP(int8_t, int32_t, v);
    case ACL_FLOAT * 64 + ACL_DOUBLE:
        FAST_LOOP(float, double, v);
    case ACL_DOUBLE * 64 + ACL_FLOAT:
        FAST_LOOP(double, float, v);
    case ACL_DOUBLE * 64 + ACL_FLOAT16:
        FAST_LOOP(double, uint16_t, (double)float_from_half(v));
    case ACL_DOUBLE * 64 + ACL_BF16:
        FAST_LOOP(double, uint16_t, (double)float_from_bfloat(v));
    case ACL_INT64 * 64 + ACL_INT32:
        FAST_LOOP(int64_t, int32_t, v);
    case ACL_INT64 * 64 + ACL_UINT8:
        FAST_LOOP(int64_t, uint8_t, v);
    case ACL_INT64 * 64 + ACL_INT8:
        FAST_LOOP(int64_t, int8_t, v);
    case ACL_INT32 * 64 + ACL_INT64:
    case ACL_UINT32 * 64 + ACL_INT64:
        FAST_LOOP(int32_t, int64_t, v);
    case ACL_INT64 * 64 + ACL_UINT32:
        FAST_LOOP(int64_t, uint32_t, v);
    case ACL_INT64 * 64 + ACL_BOOL:
        FAST_LOOP(int64_t, uint8_t, v);
    case ACL_BOOL * 64 + ACL_INT64:
        FAST_LOOP(uint8_t, int64_t, v != 0);
    case ACL_INT64 * 64 + ACL_DOUBLE:
        FAST_LOOP(int64_t, double, int_from_real(v));
    case ACL_DOUBLE * 64 + ACL_INT64:
        FAST_LOOP(double, int64_t, v);
    case ACL_DOUBLE * 64 + ACL_INT32:
        FAST_LOOP(double, int32_t, v);
    case ACL_FLOAT * 64 + ACL_BOOL:
        FAST_LOOP(float, uint8_t, v != 0);
    case ACL_INT32 * 64 + ACL_BOOL:
        FAST_LOOP(int32_t, uint8_t, v != 0);
    case ACL_BOOL * 64 + ACL_INT32:
        FAST_LOOP(uint8_t, int32_t, v != 0);
    default:
        return false;
    }
}

static void store_int(void *to, aclDataType type, int64_t index, int64_t value)
{
    switch (type_size(type)) {
    case 1:
        ((uint8_t *)to)[index] = type == ACL_BOOL ? value != 0 : (uint8_t)value;
        break;
    case 2:
        ((uint16_t *)to)[index] = (uint16_t)value;
        break;
    case 4:
        ((uint32_t *)to)[index] = (uint32_t)value;
        break;
    default:
        ((int64_t *)to)[index] = value;
    }
}

static void store_real(void *to, aclDataType type, int64_t index, double value)
{
    switch (type) {
    case ACL_FLOAT:
        ((float *)to)[index] = (float)value;
        break;
    case ACL_DOUBLE:
        ((double *)to)[index] = value;
        break;
    case ACL_FLOAT16:
        ((uint16_t *)to)[index] = half_from_float(float_to_round(value));
        break;
    case ACL_BF16:
        ((uint16_t *)to)[index] = bfloat_from_float(float_to_round(value));
        break;
    case ACL_BOOL:
        ((uint8_t *)to)[index] = value != 0.0;
        break;
    case ACL_INT32:
        ((int32_t *)to)[index] =
            value > -0x1.00000002p31 && value < 0x1p31 ? (int32_t)value : INT32_MIN;
        break;
    case ACL_UINT64:
        ((uint64_t *)to)[index] =
            value >= 0x1p63 && value < 0x1p64 ? (uint64_t)value : (uint64_t)int_from_real(value);
        break;
    default:
        store_int(to, type, index, int_from_real(value));
    }
}

static void convert_any(void *to, aclDataType to_type, const Tensor *from, int64_t stride,
    int64_t count)
{
    bool whole = !type_is_float(from->type);
    for (int64_t i = 0; i < count; i++) {
        if (whole && !type_is_float(to_type)) {
            store_int(to, to_type, i, tensor_get_int(from, i * stride));
        } else {
            store_real(to, to_type, i, tensor_get_real(from, i * stride));
        }
    }
}

#define COPY_LOOP(T) \
    for (int64_t i = 0; i < count; i++) { \
        ((T *)to)[i] = ((const T *)from)[i * stride]; \
    } \
    break

static void copy_strided(void *to, const void *from, int64_t size, int64_t stride, int64_t count)
{
    if (stride == 1) {
        memcpy(to, from, (size_t)(size * count));
        return;
    }
    if (stride == 0) { /* convert one element, then double the converted part by copying it */
        memcpy(to, from, (size_t)size);
        for (int64_t done = 1; done < count; done *= 2) {
            int64_t more = done < count - done ? done : count - done;
            memcpy((char *)to + done * size, to, (size_t)(more * size));
        }
        return;
    }
    switch (size) {
    case 1:
        COPY_LOOP(uint8_t);
    case 2:
        COPY_LOOP(uint16_t);
    case 4:
        COPY_LOOP(uint32_t);
    default:
        COPY_LOOP(uint64_t);
    }
}

void convert(void *to, aclDataType to_type, const void *from, aclDataType from_type,
    int64_t stride, int64_t count)
{
    if (count == 0) {
        return;
    }
    if (to_type == from_type) {
        copy_strided(to, from, type_size(to_type), stride, count);
        return;
    }
    int64_t done = convert_halves(to, to_type, from, from_type, stride, count);
    to = (char *)to + done * type_size(to_type);
    from = (const char *)from + done * type_size(from_type);
    count -= done;
    if (count == 0 || convert_fast(to, to_type, from, from_type, stride, count)) {
        return;
    }
    Tensor source = {.type = from_type, .data = (void *)(uintptr_t)from};
    convert_any(to, to_type, &source, stride, count);
}
