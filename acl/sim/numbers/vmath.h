/* vmath.h: functions of float32 without branches, so that gcc vectorises loops over them.

   Errors, measured against double precision over the whole range: exp 2 ulp, tanh and the logistic
   function 4e-7 relative, erf 1e-7 absolute. Functions of angles are computed in double, so their
   only error is the rounding to float32. Infinities and NaN give the same results as in libm. */
#ifndef SIM_VMATH_H
#define SIM_VMATH_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* For functions with loops over the functions below: gcc compiles them for several vector widths,
   and the loader chooses a version by the processor's features. (With an "arch=" it would choose by
   the processor's maker, and none on AMD.) Empty in debug builds, because a sanitizer or a coverage
   counter would run before the choice is made. */
#if defined(__x86_64__) && defined(__OPTIMIZE__) && !defined(SIM_DEBUG)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

/* Lets gcc fuse a multiplication and an addition, which doubles the speed and which ISO mode
   forbids. The pragma holds for this file and for the files that include it, because functions with
   different options are not inlined into each other. */
#ifndef __clang__ /* clang fuses without being told */
#pragma GCC optimize("fp-contract=fast")
#endif

#define INLINED static inline __attribute__((always_inline))

INLINED float power_of_two(int32_t exponent)
{
    uint32_t bits = (uint32_t)(exponent + 127) << 23;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINED float exp_fast(float x)
{
    float y = x > 89.0F ? 89.0F : x;
    y = y < -104.0F ? -104.0F : y;
    float shifted = y * 1.44269504F + 12582912.0F; /* adding 1.5 * 2^23 rounds to an integer */
    float n = shifted - 12582912.0F;
    float r = y - n * 0.693359375F;
    r -= n * -2.12194440e-4F;
    float p = 1.9841270e-4F; /* Taylor series of exp; |r| is at most ln(2) / 2 */
    p = p * r + 1.3888889e-3F;
    p = p * r + 8.3333333e-3F;
    p = p * r + 4.1666667e-2F;
    p = p * r + 1.6666667e-1F;
    p = p * r + 0.5F;
    p = p * r + 1.0F;
    p = p * r + 1.0F;
    int32_t k = (int32_t)(n == n ? n : 0.0F);
    int32_t half = k / 2; /* 2^k as two factors, because for k = 128 and for subnormals it is not a float */
    float value = p * power_of_two(half) * power_of_two(k - half);
    return x != x ? x : value;
}

INLINED float sigmoid_fast(float x)
{
    return 1.0F / (1.0F + exp_fast(-x));
}

INLINED float tanh_fast(float x)
{
    float s = x * x;
    float p = -8.8632355e-3F; /* odd Taylor series: near zero the other formula loses digits */
    p = p * s + 2.1869488e-2F;
    p = p * s - 5.3968254e-2F;
    p = p * s + 1.3333333e-1F;
    p = p * s - 3.3333333e-1F;
    float near = x + x * s * p;
    float far = 1.0F - 2.0F / (exp_fast(2.0F * x) + 1.0F);
    return s < 0.09F ? near : far;
}

INLINED float erf_fast(float x)
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

/* x * tanh(log(1 + e^x)): with e = e^x the tanh is e (e + 2) / (e (e + 2) + 2), 1 from x = 20 on. */
INLINED float mish_fast(float x)
{
    float e = exp_fast(x < 20.0F ? x : 20.0F);
    float n = e * (e + 2.0F);
    return x > 20.0F ? x : x * (n / (n + 2.0F));
}

/* --- angles, by Taylor series in double: cut where what is left out is below 2^-32 --- */

/* The largest angle from which multiples of pi / 2 are subtracted with enough precision. */
#define ANGLE_MAX 0x1p20F

/* sin(x + quarters * pi / 2) for |x| up to ANGLE_MAX; one quarter gives cos(x). */
INLINED float sine_fast(float angle, int64_t quarters)
{
    double x = (double)angle;
    double shifted = x * 0x1.45f306dc9c883p-1 + 0x1.8p52; /* 2 / pi; rounds to an integer */
    double n = shifted - 0x1.8p52;
    double r = x - n * 0x1.921fb5p0; /* pi / 2 as the sum of two numbers; n times the first is exact */
    r -= n * 0x1.110b4611a6263p-26;
    double s = r * r;
    double odd = -1.0 / 39916800.0;
    odd = odd * s + 1.0 / 362880.0;
    odd = odd * s - 1.0 / 5040.0;
    odd = odd * s + 1.0 / 120.0;
    odd = odd * s - 1.0 / 6.0;
    odd = r * (odd * s + 1.0);
    double even = 1.0 / 479001600.0;
    even = even * s - 1.0 / 3628800.0;
    even = even * s + 1.0 / 40320.0;
    even = even * s - 1.0 / 720.0;
    even = even * s + 1.0 / 24.0;
    even = even * s - 0.5;
    even = even * s + 1.0;
    int64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits += quarters;
    double value = (bits & 1) != 0 ? even : odd;
    return (float)((bits & 2) != 0 ? -value : value);
}

INLINED float atan_fast(float angle)
{
    double a = fabs((double)angle);
    bool middle = a > 0.4142135623730951, far = a > 2.414213562373095; /* tan(pi / 8), tan(3 pi / 8) */
    double above = far ? -1.0 : middle ? a - 1.0 : a;
    double below = far ? a : middle ? a + 1.0 : 1.0;
    double base = far ? 1.5707963267948966 : middle ? 0.7853981633974483 : 0.0;
    double t = above / below, s = -(t * t);
    double p = 1.0 / 23.0;
    p = p * s + 1.0 / 21.0;
    p = p * s + 1.0 / 19.0;
    p = p * s + 1.0 / 17.0;
    p = p * s + 1.0 / 15.0;
    p = p * s + 1.0 / 13.0;
    p = p * s + 1.0 / 11.0;
    p = p * s + 1.0 / 9.0;
    p = p * s + 1.0 / 7.0;
    p = p * s + 1.0 / 5.0;
    p = p * s + 1.0 / 3.0;
    p = p * s + 1.0;
    return (float)copysign(base + t * p, (double)angle);
}

/* Returns asin(x); uses the half-angle formula if |x| > 1/2. */
INLINED double asin_wide(double x)
{
    double a = fabs(x);
    bool far = a > 0.5;
    double s = far ? (1.0 - a) * 0.5 : a * a;
    double r = far ? sqrt(s) : a;
    double p = 676039.0 / 104857600.0;
    p = p * s + 88179.0 / 12058624.0;
    p = p * s + 46189.0 / 5505024.0;
    p = p * s + 12155.0 / 1245184.0;
    p = p * s + 6435.0 / 557056.0;
    p = p * s + 143.0 / 10240.0;
    p = p * s + 231.0 / 13312.0;
    p = p * s + 63.0 / 2816.0;
    p = p * s + 35.0 / 1152.0;
    p = p * s + 5.0 / 112.0;
    p = p * s + 3.0 / 40.0;
    p = p * s + 1.0 / 6.0;
    p = p * s + 1.0;
    double value = r * p;
    return copysign(far ? 1.5707963267948966 - 2.0 * value : value, x);
}

INLINED float asin_fast(float x)
{
    return (float)asin_wide((double)x);
}

INLINED float acos_fast(float x)
{
    return (float)(1.5707963267948966 - asin_wide((double)x));
}

#endif
