/* datatypes.c: half-precision conversion and element sizes.

   Pure functions of their arguments: no state, no lock, no device. The conversions are those of
   the runtime's host code, which differ from IEEE 754. To float16: a value that is too large,
   infinite or not a number becomes the largest finite value with the argument's sign. From
   float16: the exponent of infinities and NaNs is treated as that of a finite number. */
#include <math.h>
#include <string.h>

#include "base/core.h"
#include "generated/exports.h"

#define HALF_MANTISSA_BITS 10
#define HALF_HIDDEN_BIT (1u << HALF_MANTISSA_BITS)
#define HALF_BIAS 15
#define HALF_LARGEST 0x7bffu /* 65504 */
#define FLOAT_MANTISSA_BITS 23
#define FLOAT_HIDDEN_BIT (1u << FLOAT_MANTISSA_BITS)
#define FLOAT_BIAS 127
#define FLOAT_EXPONENT_MASK 0xffu

float sim_aclFloat16ToFloat(aclFloat16 value)
{
    uint32_t exponent = ((uint32_t)value >> HALF_MANTISSA_BITS) & 0x1fu;
    uint32_t mantissa = (uint32_t)value & (HALF_HIDDEN_BIT - 1);
    if (exponent == 0) {
        exponent = 1; /* a subnormal number has no hidden bit and the exponent of the smallest normal numbers */
    } else {
        mantissa |= HALF_HIDDEN_BIT;
    }
    float magnitude = ldexpf((float)mantissa, (int)exponent - HALF_BIAS - HALF_MANTISSA_BITS);
    return (value & 0x8000u) != 0 ? -magnitude : magnitude;
}

/* Shifts right by `bits`, rounding to nearest, ties to even. */
static uint32_t shift_rounded(uint32_t value, uint32_t bits)
{
    uint32_t quotient = value >> bits;
    uint32_t rest = value & ((1u << bits) - 1);
    uint32_t half = 1u << (bits - 1);
    return quotient + (rest > half || (rest == half && (quotient & 1u) != 0));
}

aclFloat16 sim_aclFloatToFloat16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t mantissa = bits & (FLOAT_HIDDEN_BIT - 1);
    int exponent = (int)((bits >> FLOAT_MANTISSA_BITS) & FLOAT_EXPONENT_MASK) - FLOAT_BIAS;
    uint32_t magnitude;
    if (exponent > HALF_BIAS) {
        magnitude = HALF_LARGEST;
    } else if (exponent >= 1 - HALF_BIAS) {
        uint32_t normal = ((uint32_t)(exponent + HALF_BIAS) << FLOAT_MANTISSA_BITS) | mantissa;
        magnitude = shift_rounded(normal, FLOAT_MANTISSA_BITS - HALF_MANTISSA_BITS);
    } else if (exponent >= -HALF_BIAS - HALF_MANTISSA_BITS) {
        int lost = FLOAT_MANTISSA_BITS - HALF_MANTISSA_BITS + 1 - HALF_BIAS - exponent;
        magnitude = shift_rounded(mantissa | FLOAT_HIDDEN_BIT, (uint32_t)lost);
    } else {
        magnitude = 0;
    }
    if (magnitude > HALF_LARGEST) {
        magnitude = HALF_LARGEST; /* the value was rounded to more than the largest finite value */
    }
    return (aclFloat16)(sign | magnitude);
}

/* Returns the bytes of one element; types narrower than a byte count as one byte, as in the
   runtime. */
size_t sim_aclDataTypeSize(aclDataType dataType)
{
    switch (dataType) {
    case ACL_STRING:
    case ACL_DT_UNDEFINED:
        return 0;
    case ACL_BOOL:
    case ACL_INT8:
    case ACL_UINT8:
    case ACL_INT4:
    case ACL_UINT1:
    case ACL_HIFLOAT8:
    case ACL_FLOAT8_E5M2:
    case ACL_FLOAT8_E4M3FN:
    case ACL_FLOAT8_E8M0:
        return 1;
    case ACL_FLOAT16:
    case ACL_BF16:
    case ACL_INT16:
    case ACL_UINT16:
        return 2;
    case ACL_FLOAT:
    case ACL_INT32:
    case ACL_UINT32:
    case ACL_COMPLEX32:
        return 4;
    case ACL_COMPLEX128:
        return 16;
    default:
        return 8;
    }
}
