/* Numbers of 16 bits (f16, bf16) and tf32: exact when widened, rounded once when narrowed. */
#ifndef GPUTAX_PTX_HALF_H
#define GPUTAX_PTX_HALF_H

#include <math.h>
#include <string.h>

#include "device/ptx/inner.h"

enum { F16_FRACTION = 10, F16_LEAST = -14, BF16_FRACTION = 7, BF16_LEAST = -126 };

static inline float f16_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff, bits;
    float number = (float)rest * 0x1p-24f; /* exact for subnormal numbers */
    memcpy(&bits, &number, 4);
    if (rest >= 0x7c00)
        bits = 0x7f800000u | rest << 13;
    else if (rest >= 0x0400)
        bits = (rest << 13) + (112u << 23);
    bits |= sign;
    memcpy(&number, &bits, 4);
    return number;
}

static inline float bf16_float(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float number;
    memcpy(&number, &bits, 4);
    return number;
}

/* Eight bits with three of fraction and no infinity. */
static inline float e4m3_float(uint8_t bits)
{
    int exponent = (bits >> 3) & 15, fraction = bits & 7;
    float size = (bits & 0x7f) == 0x7f ? NAN
                 : exponent            ? (float)(8 + fraction) * ldexpf(1, exponent - 10)
                                       : (float)fraction * 0x1p-9f;
    return bits & 0x80 ? -size : size;
}

/* Whether a magnitude is rounded up: `rest` of `tie` * 2 is cut off, `odd` is the last bit that stays. */
static inline bool rounds_up(uint64_t rest, uint64_t tie, bool odd, bool negative, enum rounding rounding)
{
    switch (rounding) {
    case ROUND_RZ:
        return false;
    case ROUND_RM:
        return negative && rest;
    case ROUND_RP:
        return !negative && rest;
    default:
        return rest > tie || (rest == tie && odd);
    }
}

/* A format with `fraction` bits whose least normal number is 2^least: one rounding, subnormal numbers kept. */
static inline uint16_t half_narrowed(double number, int fraction, int least, enum rounding rounding)
{
    uint64_t bits;
    memcpy(&bits, &number, 8);
    bool negative = bits >> 63;
    uint16_t sign = (uint16_t)(negative << 15);
    bits &= ~(uint64_t)0 >> 1;
    if (bits > (uint64_t)2047 << 52)
        return HALF_NAN;
    uint32_t infinity = (uint32_t)(3 - 2 * least) << fraction;
    int exponent = (int)(bits >> 52) - 1023;
    if (exponent > 1 - least) {
        bool away = bits == (uint64_t)2047 << 52 || rounding == ROUND_NONE || rounding == ROUND_RN ||
                    (rounding == ROUND_RM && negative) || (rounding == ROUND_RP && !negative);
        return (uint16_t)(sign | (away ? infinity : infinity - 1));
    }
    if (exponent < least - fraction - 1) /* less than half of the least number, or zero */
        return (uint16_t)(sign | rounds_up(bits != 0, 2, false, negative, rounding));
    uint64_t significand = (bits & (((uint64_t)1 << 52) - 1)) | (uint64_t)1 << 52;
    int below = exponent < least ? least - exponent : 0, shift = 52 - fraction + below;
    uint64_t kept = significand >> shift, rest = significand & (((uint64_t)1 << shift) - 1);
    kept += rounds_up(rest, (uint64_t)1 << (shift - 1), kept & 1, negative, rounding);
    if (!below)
        kept += (uint64_t)(exponent - least) << fraction;
    return (uint16_t)(sign | kept);
}

static inline uint16_t f16_of(double number)
{
    return half_narrowed(number, F16_FRACTION, F16_LEAST, ROUND_RN);
}

static inline uint16_t bf16_of(double number)
{
    return half_narrowed(number, BF16_FRACTION, BF16_LEAST, ROUND_RN);
}

/* x * y + z where x * y is exact. What a double cannot hold of the sum makes its last bit odd, so that the next rounding,
 * to far fewer bits, is the only one that shows (Boldo and Melquiond: rounding to odd). */
static inline double odd_fma(double x, double y, double z)
{
    double product = x * y, sum = product + z;
    if (sum - sum != 0)
        return sum; /* infinite or not a number */
    double back = sum - product, error = (product - (sum - back)) + (z - back);
    int64_t bits;
    memcpy(&bits, &sum, 8);
    if (error != 0 && !(bits & 1))
        bits += (error > 0) == (sum > 0) ? 1 : -1;
    memcpy(&sum, &bits, 8);
    return sum;
}

/* tf32: a float of which the last 13 bits of the fraction are zero. Rounded to nearest, ties away from zero (rna). */
static inline uint32_t tf32_of(uint32_t bits)
{
    if ((bits & 0x7f800000u) == 0x7f800000u)
        return bits & 0x7fffffu ? 0x7fffffffu : bits;
    return (bits + 0x1000u) & ~0x1fffu;
}

#endif
