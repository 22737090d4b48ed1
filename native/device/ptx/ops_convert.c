/* Conversions: a table of the common ones as vector loops, and one careful general step for all others. */
#include <fenv.h>

#include "device/ptx/form.h"
#include "device/ptx/half.h"

#define FAST(name, D, S, ...) \
    static void name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        D *d = REG(D, in->d); \
        const S *a = REG(S, in->a); \
        EACH(m, S x = a[l]; d[l] = (D)(__VA_ARGS__)); \
    } \
    OP_FORM(name, D, S, , , , __VA_ARGS__)

FAST(s64_of_s32, int64_t, int32_t, x)
FAST(u64_of_u32, uint64_t, uint32_t, x)
FAST(low32_of_64, uint32_t, uint64_t, x)
FAST(u32_of_u16, uint32_t, uint16_t, x)
FAST(s32_of_s16, int32_t, int16_t, x)
FAST(low16_of_32, uint16_t, uint32_t, x)
FAST(f32_of_s32, float, int32_t, x)
FAST(f32_of_u32, float, uint32_t, x)
FAST(f64_of_s32, double, int32_t, x)
FAST(f64_of_f32, double, float, x)
FAST(f32_of_f64, float, double, x)
FAST(s32_of_f32, int32_t, float,
     x >= 2147483648.0f   ? INT32_MAX
     : x > -2147483904.0f ? (int32_t)x
     : x == x             ? INT32_MIN
                          : 0)

struct fast_row {
    enum type to, from;
    enum rounding rounding;
    unsigned to_bytes, from_bytes;
    step *run;
};
static const struct fast_row FAST_ROWS[] = {
    {TYPE_S64, TYPE_S32, ROUND_NONE, 8, 4, s64_of_s32},  {TYPE_U64, TYPE_S32, ROUND_NONE, 8, 4, s64_of_s32},
    {TYPE_U64, TYPE_U32, ROUND_NONE, 8, 4, u64_of_u32},  {TYPE_S64, TYPE_U32, ROUND_NONE, 8, 4, u64_of_u32},
    {TYPE_U32, TYPE_U64, ROUND_NONE, 4, 8, low32_of_64}, {TYPE_S32, TYPE_S64, ROUND_NONE, 4, 8, low32_of_64},
    {TYPE_U32, TYPE_S64, ROUND_NONE, 4, 8, low32_of_64}, {TYPE_S32, TYPE_U64, ROUND_NONE, 4, 8, low32_of_64},
    {TYPE_U32, TYPE_U16, ROUND_NONE, 4, 2, u32_of_u16},  {TYPE_S32, TYPE_U16, ROUND_NONE, 4, 2, u32_of_u16},
    {TYPE_S32, TYPE_S16, ROUND_NONE, 4, 2, s32_of_s16},  {TYPE_U32, TYPE_S16, ROUND_NONE, 4, 2, s32_of_s16},
    {TYPE_U16, TYPE_U32, ROUND_NONE, 2, 4, low16_of_32}, {TYPE_S16, TYPE_S32, ROUND_NONE, 2, 4, low16_of_32},
    {TYPE_F32, TYPE_S32, ROUND_RN, 4, 4, f32_of_s32},    {TYPE_F32, TYPE_U32, ROUND_RN, 4, 4, f32_of_u32},
    {TYPE_F64, TYPE_S32, ROUND_RN, 8, 4, f64_of_s32},    {TYPE_F64, TYPE_F32, ROUND_NONE, 8, 4, f64_of_f32},
    {TYPE_F32, TYPE_F64, ROUND_RN, 4, 8, f32_of_f64},    {TYPE_S32, TYPE_F32, ROUND_RZI, 4, 4, s32_of_f32},
};

/* A value between its two types: integers with 64 bits and their sign apart, floats as double (which holds all f32). */
struct value {
    bool is_float, negative_type;
    uint64_t bits; /* of integers: sign-extended if the type is signed */
    double number;
};

static unsigned bits_of(enum type type)
{
    static const unsigned BITS[] = {0, 8, 8, 16, 16, 32, 32, 64, 64, 16, 32, 64, 1, 16};
    return BITS[type];
}
static bool is_signed(enum type type)
{
    return type == TYPE_S8 || type == TYPE_S16 || type == TYPE_S32 || type == TYPE_S64;
}
static bool is_float(enum type type)
{
    return type == TYPE_F16 || type == TYPE_F32 || type == TYPE_F64 || type == TYPE_BF16;
}

static struct value read_value(enum type type, uint64_t raw, int flags)
{
    struct value v = {.is_float = is_float(type), .negative_type = is_signed(type)};
    unsigned shift = 64 - bits_of(type);
    if (type == TYPE_F32) {
        uint32_t low = (uint32_t)raw;
        float f;
        memcpy(&f, &low, 4);
        if ((flags & CONVERT_FLUSH) && fabsf(f) < FLT_MIN)
            f = copysignf(0.0f, f);
        v.number = (double)f;
    } else if (type == TYPE_F64) {
        memcpy(&v.number, &raw, 8);
    } else if (type == TYPE_F16) {
        v.number = (double)f16_float((uint16_t)raw);
    } else if (type == TYPE_BF16) {
        v.number = (double)bf16_float((uint16_t)raw);
    } else {
        v.bits = v.negative_type ? (uint64_t)((int64_t)(raw << shift) >> shift) : raw << shift >> shift;
    }
    return v;
}

static double rounded(double x, enum rounding rounding)
{
    switch (rounding) {
    case ROUND_RNI:
        return nearbyint(x);
    case ROUND_RZI:
        return trunc(x);
    case ROUND_RMI:
        return floor(x);
    case ROUND_RPI:
        return ceil(x);
    default:
        return x;
    }
}

static uint64_t integer_of_float(struct value v, enum type to, enum rounding rounding, enum type from)
{
    unsigned bits = bits_of(to);
    bool sign = is_signed(to);
    if (v.number != v.number) /* NaN: zero, or the top bit if either type is wide */
        return from == TYPE_F64 || bits == 64 ? (uint64_t)1 << (bits - 1) : 0;
    double x = rounded(v.number, rounding == ROUND_NONE ? ROUND_RZI : rounding);
    double top = ldexp(1, (int)(sign ? bits - 1 : bits));
    if (x >= top)
        return sign ? ((uint64_t)1 << (bits - 1)) - 1 : ~(uint64_t)0 >> (64 - bits);
    if (sign)
        return x < -top ? (uint64_t)1 << (bits - 1) : (uint64_t)(int64_t)x;
    return x <= 0 ? 0 : (uint64_t)x;
}

static uint64_t integer_of_integer(struct value v, enum type to, int flags)
{
    unsigned bits = bits_of(to);
    if (!(flags & CONVERT_SATURATE))
        return v.bits;
    bool below_zero = v.negative_type && (int64_t)v.bits < 0;
    if (is_signed(to)) {
        uint64_t top = ((uint64_t)1 << (bits - 1)) - 1;
        if (below_zero)
            return (int64_t)v.bits < -(int64_t)top - 1 ? ~top : v.bits;
        return v.bits > top ? top : v.bits;
    }
    uint64_t top = ~(uint64_t)0 >> (64 - bits);
    return below_zero ? 0 : v.bits > top ? top : v.bits;
}

static const int MODES[] = {FE_TONEAREST, FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};

/* Not inlined, and through volatiles, so that the compiler computes under the rounding mode that is set. */
static __attribute__((noinline)) uint64_t float_bits(struct value v, enum type to, enum rounding rounding, int flags)
{
    int before = fegetround();
    if (rounding <= ROUND_RP)
        fesetround(MODES[rounding]);
    volatile int64_t as_signed = (int64_t)v.bits;
    volatile uint64_t as_unsigned = v.bits;
    volatile double number = rounded(v.number, rounding);
    volatile float single = v.is_float ? (float)number : v.negative_type ? (float)as_signed : (float)as_unsigned;
    if (to == TYPE_BF16 && !v.is_float) {
        /* Bits that a double has no room for only show whether there are any: the one rounding comes later. */
        uint64_t size = v.negative_type && as_signed < 0 ? 0 - as_unsigned : as_unsigned;
        size = size >> 53 ? (size & ~(uint64_t)4095) | (uint64_t)((size & 4095) != 0) << 12 : size;
        as_unsigned = v.negative_type && as_signed < 0 ? 0 - size : size;
        as_signed = (int64_t)as_unsigned;
    }
    volatile double full = v.is_float ? number : v.negative_type ? (double)as_signed : (double)as_unsigned;
    fesetround(before);
    float f = single;
    double d = full;
    uint64_t raw = 0;
    if (flags & CONVERT_SATURATE) {
        f = f > 0 ? (f < 1 ? f : 1) : 0;
        d = d > 0 ? (d < 1 ? d : 1) : 0;
    }
    if ((flags & CONVERT_FLUSH) && fabsf(f) < FLT_MIN)
        f = copysignf(0.0f, f);
    if (flags & CONVERT_RELU) /* not a number stays what it is */
        d = d < 0 || (d == 0 && signbit(d)) ? 0 : d;
    if (to == TYPE_F16)
        raw = half_narrowed(d, F16_FRACTION, F16_LEAST, rounding);
    else if (to == TYPE_BF16)
        raw = half_narrowed(d, BF16_FRACTION, BF16_LEAST, rounding);
    else if (to == TYPE_F32)
        memcpy(&raw, &f, 4);
    else
        memcpy(&raw, &d, 8);
    return raw;
}

static uint64_t read_register(struct warp *w, uint32_t at, unsigned bytes, uint32_t lane)
{
    return bytes == 2 ? REG(uint16_t, at)[lane] : bytes == 4 ? REG(uint32_t, at)[lane] : REG(uint64_t, at)[lane];
}

static void convert_any(struct warp *w, const struct insn *in, uint32_t m)
{
    enum type to = (enum type)(in->immediate & 15), from = (enum type)((in->immediate >> 4) & 15);
    enum rounding rounding = (enum rounding)((in->immediate >> 8) & 15);
    int flags = (int)(in->immediate >> 12);
    for (uint32_t left = m; left; left &= left - 1) {
        uint32_t l = (uint32_t)__builtin_ctz(left);
        struct value v = read_value(from, read_register(w, in->a, in->from_bytes, l), flags);
        uint64_t raw = is_float(to) ? float_bits(v, to, rounding, flags)
                       : v.is_float ? integer_of_float(v, to, rounding, from)
                                    : integer_of_integer(v, to, flags);
        unsigned shift = 64 - bits_of(to); /* narrow results fill a wider register by their sign */
        raw = is_signed(to) ? (uint64_t)((int64_t)(raw << shift) >> shift) : raw << shift >> shift;
        if (in->to_bytes == 2)
            REG(uint16_t, in->d)[l] = (uint16_t)raw;
        else if (in->to_bytes == 4)
            REG(uint32_t, in->d)[l] = (uint32_t)raw;
        else
            REG(uint64_t, in->d)[l] = raw;
    }
}

int64_t convert_packed(enum type to, enum type from, enum rounding rounding, int flags)
{
    return (int64_t)to | (int64_t)from << 4 | (int64_t)rounding << 8 | (int64_t)flags << 12;
}

step *convert_step(enum type to, enum type from, enum rounding rounding, int flags, unsigned to_bytes,
                   unsigned from_bytes)
{
    bool plain = flags == 0 && (rounding == ROUND_NONE || rounding == ROUND_RN);
    step *half =
        plain && to_bytes * 8 == bits_of(to) && from_bytes * 8 == bits_of(from) ? half_convert_step(to, from) : NULL;
    if (half)
        return half;
    for (size_t i = 0; flags == 0 && i < sizeof FAST_ROWS / sizeof *FAST_ROWS; i++) {
        const struct fast_row *row = &FAST_ROWS[i];
        if (row->to == to && row->from == from && row->rounding == rounding && row->to_bytes == to_bytes &&
            row->from_bytes == from_bytes)
            return row->run;
    }
    return convert_any;
}
