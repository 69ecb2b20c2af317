/* vmath.h: exp, tanh and erf in float32 without branches, so that gcc vectorises loops over them.

   Errors, measured against double precision over the whole range: exp 2 ulp, tanh and the logistic
   function 4e-7 relative, erf 1e-7 absolute. Infinities and NaN come out as from libm. */
#ifndef SIM_VMATH_H
#define SIM_VMATH_H

#include <stdint.h>
#include <string.h>

/* A function of loops over these, compiled once more for wider vectors and chosen when the library is
   loaded. Not where a sanitizer or a counter of lines runs before it could choose. */
#if defined(__x86_64__) && defined(__OPTIMIZE__) && !defined(SIM_DEBUG)
#define WIDE __attribute__((target_clones("arch=haswell", "default")))
#else
#define WIDE
#endif

static inline float power_of_two(int32_t exponent)
{
    uint32_t bits = (uint32_t)(exponent + 127) << 23;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float exp_fast(float x)
{
    float y = x > 89.0F ? 89.0F : x;
    y = y < -104.0F ? -104.0F : y;
    float shifted = y * 1.44269504F + 12582912.0F; /* adding 1.5 * 2^23 rounds to an integer */
    float n = shifted - 12582912.0F;
    float r = y - n * 0.693359375F;
    r -= n * -2.12194440e-4F;
    float p = 1.9841270e-4F; /* Taylor terms: |r| is at most ln(2) / 2 */
    p = p * r + 1.3888889e-3F;
    p = p * r + 8.3333333e-3F;
    p = p * r + 4.1666667e-2F;
    p = p * r + 1.6666667e-1F;
    p = p * r + 0.5F;
    p = p * r + 1.0F;
    p = p * r + 1.0F;
    int32_t k = (int32_t)(n == n ? n : 0.0F);
    int32_t half = k / 2; /* 2^k in two factors: k = 128 and the subnormals do not fit one */
    float value = p * power_of_two(half) * power_of_two(k - half);
    return x != x ? x : value;
}

static inline float sigmoid_fast(float x)
{
    return 1.0F / (1.0F + exp_fast(-x));
}

static inline float tanh_fast(float x)
{
    float s = x * x;
    float p = -8.8632355e-3F; /* odd Taylor series near zero, where the other form cancels */
    p = p * s + 2.1869488e-2F;
    p = p * s - 5.3968254e-2F;
    p = p * s + 1.3333333e-1F;
    p = p * s - 3.3333333e-1F;
    float near = x + x * s * p;
    float far = 1.0F - 2.0F / (exp_fast(2.0F * x) + 1.0F);
    return s < 0.09F ? near : far;
}

static inline float erf_fast(float x)
{
    float s = x * x;
    float q = 1.0F / 6894720.0F; /* 1 / (n! (2n + 1)): the Taylor series below 1 */
    q = q * -s + 1.0F / 685440.0F;
    q = q * -s + 1.0F / 75600.0F;
    q = q * -s + 1.0F / 9360.0F;
    q = q * -s + 1.0F / 1320.0F;
    q = q * -s + 1.0F / 216.0F;
    q = q * -s + 1.0F / 42.0F;
    q = q * -s + 1.0F / 10.0F;
    q = q * -s + 1.0F / 3.0F;
    q = q * -s + 1.0F;
    float near = 1.12837917F * x * q;
    float a = x < 0.0F ? -x : x;
    float t = 1.0F / (1.0F + 0.5F * a);
    float c = -0.22786318F; /* fitted to exp(x^2) erfc(x) on [0.9, 4.3] */
    c = c * t + 0.62815249F;
    c = c * t - 0.054608118F;
    c = c * t + 0.39113858F;
    c = c * t + 0.26131979F;
    c = c * t + 0.0016383535F;
    float tail = 1.0F - c * exp_fast(-s);
    float far = x < 0.0F ? -tail : tail;
    return a < 1.0F ? near : far;
}

#endif
