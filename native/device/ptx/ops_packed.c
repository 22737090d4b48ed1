/* Integers that are packed into a register (pairs, bytes), masks of bits, and the n-th set bit. */
#include <math.h>

#include "device/ptx/inner.h"

#define TWO(name, ...) \
    static void name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        uint32_t *d = REG(uint32_t, in->d); \
        const uint32_t *a = REG(uint32_t, in->a), *b = REG(uint32_t, in->b); \
        EACH(m, uint32_t x = a[l]; uint32_t y = b[l]; d[l] = (uint32_t)(__VA_ARGS__)); \
    }
#define THREE(name, ...) \
    static void name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        uint32_t *d = REG(uint32_t, in->d); \
        const uint32_t *a = REG(uint32_t, in->a), *b = REG(uint32_t, in->b), *c = REG(uint32_t, in->c); \
        EACH(m, uint32_t x = a[l]; uint32_t y = b[l]; uint32_t z = c[l]; d[l] = (uint32_t)(__VA_ARGS__)); \
    }

enum { MODE_WRAP = 1, MODE_SIGNED = 2 };
static uint32_t limited(uint32_t x, uint8_t mode)
{
    return mode & MODE_WRAP ? x & 31 : x < 32 ? x : 32;
}

static uint32_t ones_from(uint32_t at)
{
    return at > 31 ? 0 : ~0u << at;
}

/* `y` ones from bit `x` on. */
TWO(bmsk, ones_from(limited(x, in->mode)) & ~ones_from(limited(x, in->mode) + limited(y, in->mode)))

/* The lowest n bits, extended by their sign or by zeros. */
static uint32_t extended(uint32_t x, uint32_t n, bool is_signed)
{
    uint32_t above = ones_from(n);
    return n && is_signed && (x >> (n - 1)) & 1 ? x | above : x & ~above;
}
TWO(szext, extended(x, limited(y, in->mode), in->mode &MODE_SIGNED))

/* The offset-th set bit from `base` on, downwards for a negative offset. */
static uint32_t nth_set(uint32_t mask, uint32_t base, int32_t offset)
{
    if (base > 31)
        return ~0u;
    if (offset == 0)
        return (mask >> base) & 1 ? base : ~0u;
    uint32_t left = offset > 0 ? (uint32_t)offset : 0 - (uint32_t)offset;
    for (int32_t at = (int32_t)base; at >= 0 && at<32; at += offset> 0 ? 1 : -1)
        if ((mask >> at) & 1 && --left == 0)
            return (uint32_t)at;
    return ~0u;
}
THREE(fns, nth_set(x, y, (int32_t)z))

/* Two products of 16 by 8 bits; mode: bit 0 a signed, bit 1 b signed, bit 2 the high bytes of b. */
static uint32_t dot2(uint32_t x, uint32_t y, uint32_t sum, uint8_t mode)
{
    y = mode & 4 ? y >> 16 : y;
    for (uint32_t i = 0; i < 2; i++) {
        int32_t p = mode & 1 ? (int16_t)(x >> (16 * i)) : (int32_t)(uint16_t)(x >> (16 * i));
        int32_t q = mode & 2 ? (int8_t)(y >> (8 * i)) : (int32_t)(uint8_t)(y >> (8 * i));
        sum += (uint32_t)(p * q);
    }
    return sum;
}
THREE(dp2a, dot2(x, y, z, in->mode))

static int64_t signed24(uint32_t x)
{
    return (int32_t)(x << 8) >> 8;
}
static uint64_t product24(uint32_t x, uint32_t y, bool is_signed)
{
    return is_signed ? (uint64_t)(signed24(x) * signed24(y)) : (uint64_t)(x & 0xffffff) * (y & 0xffffff);
}
TWO(mul24_hi, product24(x, y, in->mode &MODE_SIGNED) >> 16)
THREE(mad24_lo, product24(x, y, in->mode &MODE_SIGNED) + z)
THREE(mad24_hi, (product24(x, y, in->mode &MODE_SIGNED) >> 16) + z)

static uint32_t saturated(int64_t x)
{
    return (uint32_t)(x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : x);
}
THREE(mad_hi_sat, saturated((((int64_t)(int32_t)x * (int32_t)y) >> 32) + (int32_t)z))
TWO(max_relu, (int32_t)x > (int32_t)y ? ((int32_t)x > 0 ? x : 0) : ((int32_t)y > 0 ? y : 0))
TWO(min_relu, (int32_t)x < (int32_t)y ? ((int32_t)x > 0 ? x : 0) : ((int32_t)y > 0 ? y : 0))

/* Lanes of 8 or 16 bits in a register. */
static int64_t part(uint32_t x, uint32_t index, uint32_t bits, bool is_signed)
{
    uint32_t low = x >> (index * bits) & (ones_from(bits) ^ ~0u);
    return is_signed ? (int32_t)(low << (32 - bits)) >> (32 - bits) : (int64_t)low;
}

static int64_t part_result(int64_t x, int64_t y, enum packed_operation operation)
{
    switch (operation) {
    case PACKED_ADD:
        return x + y;
    case PACKED_SUB:
        return x - y;
    case PACKED_ABSDIFF:
        return x > y ? x - y : y - x;
    case PACKED_MIN:
        return x < y ? x : y;
    default:
        return x > y ? x : y;
    }
}

static int64_t clamped_to(int64_t value, uint32_t bits, bool is_signed)
{
    int64_t most = ((int64_t)1 << (is_signed ? bits - 1 : bits)) - 1, least = is_signed ? -most - 1 : 0;
    return value > most ? most : value < least ? least : value;
}

/* mode: the operation; immediate: PACKED_ flags; count: 2 or 4 lanes; c: what the sum of PACKED_SUM begins with. */
void step_packed(struct warp *w, const struct insn *in, uint32_t m)
{
    uint32_t *d = REG(uint32_t, in->d), bits = 32u / in->count, flags = (uint32_t)in->immediate;
    const uint32_t *a = REG(uint32_t, in->a), *b = REG(uint32_t, in->b), *c = REG(uint32_t, in->c);
    EACH(
        m, uint32_t joined = 0; uint32_t sum = c[l]; for (uint32_t i = 0; i < in->count; i++) {
            int64_t value = part_result(part(a[l], i, bits, flags & PACKED_A_SIGNED),
                                        part(b[l], i, bits, flags & PACKED_B_SIGNED), in->mode);
            if (flags & PACKED_SATURATE)
                value = clamped_to(value, bits, flags & PACKED_D_SIGNED);
            if (flags & PACKED_RELU)
                value = value > 0 ? value : 0;
            joined |= ((uint32_t)value & ~ones_from(bits)) << (i * bits);
            sum += (uint32_t)value;
        } d[l] = flags & PACKED_SUM ? sum : joined);
}

/* cvt.pack.sat.s8.s32.b32 d, a, b, c: two numbers saturated to `count` bits each, and c moved up by their size. */
void step_pack(struct warp *w, const struct insn *in, uint32_t m)
{
    uint32_t *d = REG(uint32_t, in->d), bits = in->count, mask = ~ones_from(bits);
    const uint32_t *a = REG(uint32_t, in->a), *b = REG(uint32_t, in->b), *c = REG(uint32_t, in->c);
    EACH(m, uint32_t high = (uint32_t)clamped_to((int32_t)a[l], bits, in->mode) & mask;
         uint32_t low = (uint32_t)clamped_to((int32_t)b[l], bits, in->mode) & mask;
         d[l] = (bits == 16 ? 0 : c[l] << (2 * bits)) | high << bits | low);
}

/* min and max of f32 by their sizes, with the product of the signs; and with NaN winning. */
enum { FLOAT_MAX = 1, FLOAT_FTZ = 2, FLOAT_NAN = 4, FLOAT_XORSIGN = 8 };
static float extreme(float x, float y, unsigned mode)
{
    if (mode & FLOAT_FTZ) {
        x = fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
        y = fabsf(y) < 0x1p-126f ? copysignf(0, y) : y;
    }
    if ((mode & FLOAT_NAN) && (x != x || y != y))
        return NAN;
    float sign = (signbit(x) != 0) != (signbit(y) != 0) ? -1.0f : 1.0f;
    if (mode & FLOAT_XORSIGN)
        x = fabsf(x), y = fabsf(y);
    bool x_less = x < y || (x == y && signbit(x));
    float found = x != x ? y : y != y ? x : x_less == !(mode & FLOAT_MAX) ? x : y;
    return mode & FLOAT_XORSIGN ? copysignf(found, sign) : found;
}
static void extreme_f32(struct warp *w, const struct insn *in, uint32_t m)
{
    const float *a = REG(float, in->a), *b = REG(float, in->b);
    EACH(m, REG(float, in->d)[l] = extreme(a[l], b[l], in->mode));
}

/* Tables with several rows to a line, which the formatter would take apart. */
/* clang-format off */
#define ROW(name, run, shape, mode) {name, run, shape, mode}
#define EXTREMES(name, mode) \
    ROW(name ".ftz.NaN.f32", extreme_f32, "fff", (mode) | FLOAT_FTZ | FLOAT_NAN), \
    ROW(name ".xorsign.abs.f32", extreme_f32, "fff", (mode) | FLOAT_XORSIGN), \
    ROW(name ".ftz.xorsign.abs.f32", extreme_f32, "fff", (mode) | FLOAT_FTZ | FLOAT_XORSIGN), \
    ROW(name ".NaN.xorsign.abs.f32", extreme_f32, "fff", (mode) | FLOAT_NAN | FLOAT_XORSIGN), \
    ROW(name ".ftz.NaN.xorsign.abs.f32", extreme_f32, "fff", (mode) | FLOAT_FTZ | FLOAT_NAN | FLOAT_XORSIGN)
#define DOTS(half, mode) \
    ROW("dp2a." half ".u32.u32", dp2a, "4444", mode), ROW("dp2a." half ".s32.u32", dp2a, "4444", (mode) | 1), \
    ROW("dp2a." half ".u32.s32", dp2a, "4444", (mode) | 2), ROW("dp2a." half ".s32.s32", dp2a, "4444", (mode) | 3)
static const struct op_row ROWS[] = {
    ROW("bmsk.clamp.b32", bmsk, "444", 0), ROW("bmsk.wrap.b32", bmsk, "444", MODE_WRAP),
    ROW("szext.clamp.u32", szext, "444", 0), ROW("szext.wrap.u32", szext, "444", MODE_WRAP),
    ROW("szext.clamp.s32", szext, "444", MODE_SIGNED), ROW("szext.wrap.s32", szext, "444", MODE_WRAP | MODE_SIGNED),
    ROW("fns.b32", fns, "4444", 0), DOTS("lo", 0), DOTS("hi", 4),
    ROW("mul24.hi.u32", mul24_hi, "444", 0), ROW("mul24.hi.s32", mul24_hi, "444", MODE_SIGNED),
    ROW("mad24.lo.u32", mad24_lo, "4444", 0), ROW("mad24.lo.s32", mad24_lo, "4444", MODE_SIGNED),
    ROW("mad24.hi.u32", mad24_hi, "4444", 0), ROW("mad24.hi.s32", mad24_hi, "4444", MODE_SIGNED),
    ROW("mad.hi.sat.s32", mad_hi_sat, "4444", 0),
    ROW("max.relu.s32", max_relu, "444", 0), ROW("max.s32.relu", max_relu, "444", 0),
    ROW("min.relu.s32", min_relu, "444", 0), ROW("min.s32.relu", min_relu, "444", 0),
    EXTREMES("min", 0), EXTREMES("max", FLOAT_MAX),
};
/* clang-format on */
const struct op_table OPS_PACKED = {ROWS, sizeof ROWS / sizeof *ROWS};
