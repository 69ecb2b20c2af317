/* tensor.c: data types, shapes and conversion of elements. See tensor.h.

   Conversion goes through one of two pivots, double for the float types and int64_t for the others,
   except the pairs that inference spends its time in, which have loops of their own. */
#include "tensor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- data types --- */

int64_t type_size(aclDataType type)
{
    switch (type) {
    case ACL_BOOL: case ACL_INT8: case ACL_UINT8:
        return 1;
    case ACL_FLOAT16: case ACL_BF16: case ACL_INT16: case ACL_UINT16:
        return 2;
    case ACL_FLOAT: case ACL_INT32: case ACL_UINT32:
        return 4;
    case ACL_DOUBLE: case ACL_INT64: case ACL_UINT64:
        return 8;
    default:
        return 0;
    }
}

const char *type_name(aclDataType type)
{
    switch (type) {
    case ACL_BOOL: return "bool";
    case ACL_INT8: return "int8";
    case ACL_UINT8: return "uint8";
    case ACL_FLOAT16: return "float16";
    case ACL_BF16: return "bfloat16";
    case ACL_INT16: return "int16";
    case ACL_UINT16: return "uint16";
    case ACL_FLOAT: return "float32";
    case ACL_INT32: return "int32";
    case ACL_UINT32: return "uint32";
    case ACL_DOUBLE: return "float64";
    case ACL_INT64: return "int64";
    case ACL_UINT64: return "uint64";
    default: return "an unsupported type";
    }
}

bool type_is_float(aclDataType type)
{
    return type == ACL_FLOAT || type == ACL_FLOAT16 || type == ACL_BF16 || type == ACL_DOUBLE;
}

bool type_is_integer(aclDataType type)
{
    return type_size(type) != 0 && !type_is_float(type) && type != ACL_BOOL;
}

aclDataType type_compute(aclDataType type)
{
    switch (type) {
    case ACL_FLOAT: case ACL_FLOAT16: case ACL_BF16:
        return ACL_FLOAT;
    case ACL_DOUBLE:
        return ACL_DOUBLE;
    case ACL_INT64: case ACL_UINT64: case ACL_UINT32:
        return ACL_INT64;
    default:
        return ACL_INT32;
    }
}

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

uint16_t bfloat_from_float(float value)
{
    uint32_t bits = bits_of_float(value);
    if ((bits & 0x7fffffffU) > 0x7f800000U) {
        return (uint16_t)((bits >> 16) | 0x40U);
    }
    return (uint16_t)((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

/* --- shapes --- */

int64_t dims_count(const int64_t *dims, int rank)
{
    int64_t count = 1;
    for (int i = 0; i < rank; i++) {
        count *= dims[i];
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
        if (tensor->dims[i] < 0 || __builtin_mul_overflow(bytes, tensor->dims[i], &bytes)) {
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
        return (int64_t)tensor_get_real(tensor, index);
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

/* The pairs worth a loop of their own; false for the others. */
static bool convert_fast(void *to, aclDataType to_type, const void *from, aclDataType from_type,
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
    case ACL_FLOAT * 64 + ACL_INT64:
        FAST_LOOP(float, int64_t, v);
    case ACL_FLOAT * 64 + ACL_INT32:
        FAST_LOOP(float, int32_t, v);
    case ACL_DOUBLE * 64 + ACL_FLOAT:
        FAST_LOOP(double, float, v);
    case ACL_INT64 * 64 + ACL_INT32:
        FAST_LOOP(int64_t, int32_t, v);
    case ACL_INT32 * 64 + ACL_INT64:
        FAST_LOOP(int32_t, int64_t, v);
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

/* A value outside int64_t has no defined cast in C; it becomes the smallest integer, as x86 does.
 */
static int64_t int_from_real(double value)
{
    return value >= -0x1p63 && value < 0x1p63 ? (int64_t)value : INT64_MIN;
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
        ((uint16_t *)to)[index] = half_from_float((float)value);
        break;
    case ACL_BF16:
        ((uint16_t *)to)[index] = bfloat_from_float((float)value);
        break;
    case ACL_BOOL:
        ((uint8_t *)to)[index] = value != 0.0;
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
    if (convert_fast(to, to_type, from, from_type, stride, count)) {
        return;
    }
    Tensor source = {.type = from_type, .data = (void *)(uintptr_t)from};
    convert_any(to, to_type, &source, stride, count);
}
