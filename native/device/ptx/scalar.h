/* What one thread computes where an expression is not enough. Included by the interpreter's steps, and put as text in
 * front of the C that the compiler writes: both compute by these lines. */
#ifndef GPUTAX_PTX_SCALAR_H
#define GPUTAX_PTX_SCALAR_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

typedef __int128 s128;
typedef unsigned __int128 u128;

static inline int64_t clamped(int64_t value)
{
    return value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : value;
}

static inline uint64_t funnel(uint32_t low, uint32_t high)
{
    return (uint64_t)high << 32 | low;
}

static inline uint32_t reversed32(uint32_t x)
{
    x = (x & 0x55555555u) << 1 | ((x >> 1) & 0x55555555u);
    x = (x & 0x33333333u) << 2 | ((x >> 2) & 0x33333333u);
    x = (x & 0x0f0f0f0fu) << 4 | ((x >> 4) & 0x0f0f0f0fu);
    return __builtin_bswap32(x);
}

static inline uint64_t field(uint64_t value, uint32_t at, uint32_t length, unsigned width, bool is_signed)
{
    at &= 255;
    length &= 255;
    if (length == 0)
        return 0;
    uint64_t top = at + length - 1 < width ? at + length - 1 : width - 1;
    uint64_t sign = is_signed ? (value >> top) & 1 : 0;
    uint64_t bits = at < width ? value >> at : 0;
    unsigned have = at < width ? (length < width - at ? length : width - at) : 0;
    uint64_t mask = have >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << have) - 1;
    return (bits & mask) | (sign ? ~mask : 0);
}

static inline uint64_t inserted(uint64_t from, uint64_t into, uint32_t at, uint32_t length, unsigned width)
{
    at &= 255;
    length &= 255;
    if (at >= width || length == 0)
        return into;
    uint64_t mask = length >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << length) - 1;
    return (into & ~(mask << at)) | ((from & mask) << at);
}

/* Any function of three bits, as a table of eight. */
static inline uint32_t logic3(uint32_t x, uint32_t y, uint32_t z, uint32_t table)
{
    uint32_t r = 0;
    for (uint32_t i = 0; i < 8; i++)
        if ((table >> i) & 1)
            r |= (i & 4 ? x : ~x) & (i & 2 ? y : ~y) & (i & 1 ? z : ~z);
    return r;
}

enum { PRMT_PLAIN, PRMT_F4E, PRMT_B4E, PRMT_RC8, PRMT_ECL, PRMT_ECR, PRMT_RC16 };
static inline uint32_t permuted(uint32_t x, uint32_t y, uint32_t s, uint8_t mode)
{
    uint64_t bytes = (uint64_t)y << 32 | x;
    uint32_t n = s & 3, r = 0;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t pick;
        switch (mode) {
        case PRMT_F4E:
            pick = n + i;
            break;
        case PRMT_B4E:
            pick = (n - i) & 7;
            break;
        case PRMT_RC8:
            pick = n;
            break;
        case PRMT_ECL:
            pick = i > n ? i : n;
            break;
        case PRMT_ECR:
            pick = i < n ? i : n;
            break;
        case PRMT_RC16:
            pick = (n & 1) * 2 + (i & 1);
            break;
        default:
            pick = (s >> (4 * i)) & 15;
        }
        uint32_t byte = (uint32_t)(bytes >> (8 * (pick & 7))) & 255;
        if (pick & 8)
            byte = byte & 128 ? 255 : 0;
        r |= byte << (8 * i);
    }
    return r;
}

static inline float ftz(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x;
}
static inline float sat(float x)
{
    return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; /* not a number becomes zero */
}
static inline float same(float x)
{
    return x;
}

/* One and two NaNs, and the sign of zero, as PTX defines min and max. */
static inline float min_f(float x, float y)
{
    return x != x ? y : y != y ? x : x < y || (x == y && signbit(x)) ? x : y;
}
static inline float max_f(float x, float y)
{
    return x != x ? y : y != y ? x : x > y || (x == y && signbit(y)) ? x : y;
}
static inline double min_d(double x, double y)
{
    return x != x ? y : y != y ? x : x < y || (x == y && signbit(x)) ? x : y;
}
static inline double max_d(double x, double y)
{
    return x != x ? y : y != y ? x : x > y || (x == y && signbit(y)) ? x : y;
}
static inline float min_nan(float x, float y)
{
    return x != x || y != y ? NAN : min_f(x, y);
}
static inline float max_nan(float x, float y)
{
    return x != x || y != y ? NAN : max_f(x, y);
}

#endif
