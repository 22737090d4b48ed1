/* Integer arithmetic of 16, 32 and 64 bits. */
#include "device/ptx/form.h"

#define ONE(name, D, A, ...) \
    static void name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        D *d = REG(D, in->d); \
        const A *a = REG(A, in->a); \
        EACH(m, A x = a[l]; d[l] = (D)(__VA_ARGS__)); \
    } \
    OP_FORM(name, D, A, , , , __VA_ARGS__)
#define TWO(name, D, A, ...) \
    static void name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        D *d = REG(D, in->d); \
        const A *a = REG(A, in->a), *b = REG(A, in->b); \
        EACH(m, A x = a[l]; A y = b[l]; d[l] = (D)(__VA_ARGS__)); \
    } \
    OP_FORM(name, D, A, A, , , __VA_ARGS__)
#define THREE(name, D, A, C, ...) \
    static void name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        D *d = REG(D, in->d); \
        const A *a = REG(A, in->a), *b = REG(A, in->b); \
        const C *c = REG(C, in->c); \
        EACH(m, A x = a[l]; A y = b[l]; C z = c[l]; d[l] = (D)(__VA_ARGS__)); \
    } \
    OP_FORM(name, D, A, A, C, , __VA_ARGS__)

/* Signed overflow wraps in PTX, so sums and products are computed unsigned. */
TWO(add16, uint16_t, uint16_t, x + y)
TWO(add32, uint32_t, uint32_t, x + y)
TWO(add64, uint64_t, uint64_t, x + y)
TWO(sub16, uint16_t, uint16_t, x - y)
TWO(sub32, uint32_t, uint32_t, x - y)
TWO(sub64, uint64_t, uint64_t, x - y)
TWO(mul16, uint16_t, uint16_t, (uint32_t)x *y)
TWO(mul32, uint32_t, uint32_t, x *y)
TWO(mul64, uint64_t, uint64_t, x *y)
TWO(mul_hi_s16, uint16_t, int16_t, ((int32_t)x * y) >> 16)
TWO(mul_hi_u16, uint16_t, uint16_t, ((uint32_t)x * y) >> 16)
TWO(mul_hi_s32, uint32_t, int32_t, ((int64_t)x * y) >> 32)
TWO(mul_hi_u32, uint32_t, uint32_t, ((uint64_t)x * y) >> 32)
TWO(mul_hi_s64, uint64_t, int64_t, ((s128)x * y) >> 64)
TWO(mul_hi_u64, uint64_t, uint64_t, ((u128)x * y) >> 64)
TWO(mul_wide_s16, uint32_t, int16_t, (int32_t)x *y)
TWO(mul_wide_u16, uint32_t, uint16_t, (uint32_t)x *y)
TWO(mul_wide_s32, uint64_t, int32_t, (int64_t)x *y)
TWO(mul_wide_u32, uint64_t, uint32_t, (uint64_t)x *y)
THREE(mad16, uint16_t, uint16_t, uint16_t, (uint32_t)x *y + z)
THREE(mad32, uint32_t, uint32_t, uint32_t, x *y + z)
THREE(mad64, uint64_t, uint64_t, uint64_t, x *y + z)
THREE(mad_hi_s32, uint32_t, int32_t, uint32_t, (uint32_t)(((int64_t)x * y) >> 32) + z)
THREE(mad_hi_u32, uint32_t, uint32_t, uint32_t, (uint32_t)(((uint64_t)x * y) >> 32) + z)
THREE(mad_hi_s64, uint64_t, int64_t, uint64_t, (uint64_t)(((s128)x * y) >> 64) + z)
THREE(mad_hi_u64, uint64_t, uint64_t, uint64_t, (uint64_t)(((u128)x * y) >> 64) + z)
THREE(mad_wide_s16, uint32_t, int16_t, uint32_t, (uint32_t)((int32_t)x *y) + z)
THREE(mad_wide_u16, uint32_t, uint16_t, uint32_t, (uint32_t)x *y + z)
THREE(mad_wide_s32, uint64_t, int32_t, uint64_t, (uint64_t)((int64_t)x *y) + z)
THREE(mad_wide_u32, uint64_t, uint32_t, uint64_t, (uint64_t)x *y + z)
TWO(mul24_s32, uint32_t, int32_t, (int64_t)((int32_t)((uint32_t)x << 8) >> 8) * ((int32_t)((uint32_t)y << 8) >> 8))
TWO(mul24_u32, uint32_t, uint32_t, (uint64_t)(x & 0xffffff) * (y & 0xffffff))
/* Division by zero is undefined in PTX; GPUs give all ones, and the dividend as remainder. */
TWO(div_u16, uint16_t, uint16_t, y ? x / y : 0xffff)
TWO(div_u32, uint32_t, uint32_t, y ? x / y : 0xffffffffu)
TWO(div_u64, uint64_t, uint64_t, y ? x / y : ~(uint64_t)0)
TWO(div_s16, uint16_t, int16_t, y ? x / y : -1)
TWO(div_s32, uint32_t, int32_t, y == 0 ? -1 : (int64_t)x / y)
TWO(div_s64, uint64_t, int64_t, y == 0 ? ~(uint64_t)0 : y == -1 ? 0 - (uint64_t)x : (uint64_t)(x / y))
TWO(rem_u16, uint16_t, uint16_t, y ? x % y : x)
TWO(rem_u32, uint32_t, uint32_t, y ? x % y : x)
TWO(rem_u64, uint64_t, uint64_t, y ? x % y : x)
TWO(rem_s16, uint16_t, int16_t, y ? x % y : x)
TWO(rem_s32, uint32_t, int32_t, y == 0 ? x : (int64_t)x % y)
TWO(rem_s64, uint64_t, int64_t, y == 0 ? x : y == -1 ? 0 : x % y)
TWO(min_u16, uint16_t, uint16_t, x < y ? x : y)
TWO(min_s16, int16_t, int16_t, x < y ? x : y)
TWO(min_u32, uint32_t, uint32_t, x < y ? x : y)
TWO(min_s32, int32_t, int32_t, x < y ? x : y)
TWO(min_u64, uint64_t, uint64_t, x < y ? x : y)
TWO(min_s64, int64_t, int64_t, x < y ? x : y)
TWO(max_u16, uint16_t, uint16_t, x > y ? x : y)
TWO(max_s16, int16_t, int16_t, x > y ? x : y)
TWO(max_u32, uint32_t, uint32_t, x > y ? x : y)
TWO(max_s32, int32_t, int32_t, x > y ? x : y)
TWO(max_u64, uint64_t, uint64_t, x > y ? x : y)
TWO(max_s64, int64_t, int64_t, x > y ? x : y)
ONE(neg16, uint16_t, uint16_t, 0 - x)
ONE(neg32, uint32_t, uint32_t, 0 - x)
ONE(neg64, uint64_t, uint64_t, 0 - x)
ONE(abs16, uint16_t, int16_t, x < 0 ? 0 - (uint16_t)x : (uint16_t)x)
ONE(abs32, uint32_t, int32_t, x < 0 ? 0 - (uint32_t)x : (uint32_t)x)
ONE(abs64, uint64_t, int64_t, x < 0 ? 0 - (uint64_t)x : (uint64_t)x)
THREE(sad_u32, uint32_t, uint32_t, uint32_t, (x < y ? y - x : x - y) + z)
THREE(sad_s32, uint32_t, int32_t, uint32_t, (x < y ? (uint32_t)y - (uint32_t)x : (uint32_t)x - (uint32_t)y) + z)

TWO(add_sat_s32, uint32_t, int32_t, clamped((int64_t)x + y))
TWO(sub_sat_s32, uint32_t, int32_t, clamped((int64_t)x - y))

/* Byte-wise dot product; `mode`: bit 0 first operand signed, bit 1 second operand signed. */
static void dp4a(struct warp *w, const struct insn *in, uint32_t m)
{
    uint32_t *d = REG(uint32_t, in->d);
    const uint32_t *a = REG(uint32_t, in->a), *b = REG(uint32_t, in->b), *c = REG(uint32_t, in->c);
    EACH(
        m, uint32_t sum = c[l]; for (uint32_t i = 0; i < 32; i += 8) {
            int32_t x = in->mode & 1 ? (int8_t)(a[l] >> i) : (int32_t)(uint8_t)(a[l] >> i);
            int32_t y = in->mode & 2 ? (int8_t)(b[l] >> i) : (int32_t)(uint8_t)(b[l] >> i);
            sum += (uint32_t)(x * y);
        } d[l] = sum);
}

/* Carry chains. The carry of each lane is a predicate: `e` is read and written by the lowering's choice of mode. */
enum { CARRY_IN = 1, CARRY_OUT = 2, BORROWS = 4 };
static void carry32(struct warp *w, const struct insn *in, uint32_t m)
{
    uint32_t *d = REG(uint32_t, in->d);
    const uint32_t *a = REG(uint32_t, in->a), *b = REG(uint32_t, in->b);
    uint32_t carries = PRED(in->e), out = 0;
    EACH(m, uint64_t y = b[l]; uint64_t c = in->mode & CARRY_IN ? (carries >> l) & 1 : 0;
         uint64_t r = in->mode & BORROWS ? (uint64_t)a[l] - y - c : (uint64_t)a[l] + y + c; d[l] = (uint32_t)r;
         out |= (uint32_t)((r >> 32) & 1) << l);
    if (in->mode & CARRY_OUT)
        set_predicate(w, in->e, m, out);
}
static void carry64(struct warp *w, const struct insn *in, uint32_t m)
{
    uint64_t *d = REG(uint64_t, in->d);
    const uint64_t *a = REG(uint64_t, in->a), *b = REG(uint64_t, in->b);
    uint32_t carries = PRED(in->e), out = 0;
    EACH(m, u128 y = b[l]; u128 c = in->mode & CARRY_IN ? (carries >> l) & 1 : 0;
         u128 r = in->mode & BORROWS ? (u128)a[l] - y - c : (u128)a[l] + y + c; d[l] = (uint64_t)r;
         out |= (uint32_t)((r >> 64) & 1) << l);
    if (in->mode & CARRY_OUT)
        set_predicate(w, in->e, m, out);
}

/* mad with carries: the low or high half of a product, plus c, plus the carry. */
enum { HIGH_HALF = 8, SIGNED_PRODUCT = 16 };
static void carry_mad32(struct warp *w, const struct insn *in, uint32_t m)
{
    uint32_t *d = REG(uint32_t, in->d);
    const uint32_t *a = REG(uint32_t, in->a), *b = REG(uint32_t, in->b), *c = REG(uint32_t, in->c);
    uint32_t carries = PRED(in->e), out = 0;
    EACH(m, uint64_t product =
                in->mode & SIGNED_PRODUCT ? (uint64_t)((int64_t)(int32_t)a[l] * (int32_t)b[l]) : (uint64_t)a[l] * b[l];
         uint64_t r = (uint64_t)(uint32_t)(in->mode & HIGH_HALF ? product >> 32 : product) + c[l];
         r += in->mode & CARRY_IN ? (carries >> l) & 1 : 0; d[l] = (uint32_t)r; out |= (uint32_t)((r >> 32) & 1) << l);
    if (in->mode & CARRY_OUT)
        set_predicate(w, in->e, m, out);
}
static void carry_mad64(struct warp *w, const struct insn *in, uint32_t m)
{
    uint64_t *d = REG(uint64_t, in->d);
    const uint64_t *a = REG(uint64_t, in->a), *b = REG(uint64_t, in->b), *c = REG(uint64_t, in->c);
    uint32_t carries = PRED(in->e), out = 0;
    EACH(m, u128 product = in->mode & SIGNED_PRODUCT ? (u128)((s128)(int64_t)a[l] * (int64_t)b[l]) : (u128)a[l] * b[l];
         u128 r = (u128)(uint64_t)(in->mode & HIGH_HALF ? product >> 64 : product) + c[l];
         r += in->mode & CARRY_IN ? (carries >> l) & 1 : 0; d[l] = (uint64_t)r; out |= (uint32_t)((r >> 64) & 1) << l);
    if (in->mode & CARRY_OUT)
        set_predicate(w, in->e, m, out);
}

/* Tables with several rows to a line, which the formatter would take apart. */
/* clang-format off */
#define CARRY_MADS(type, bits, shape, sign) \
    {"mad.lo.cc." type, carry_mad##bits, shape "K", CARRY_OUT}, \
    {"mad.hi.cc." type, carry_mad##bits, shape "K", CARRY_OUT | HIGH_HALF | (sign)}, \
    {"madc.lo." type, carry_mad##bits, shape "K", CARRY_IN}, \
    {"madc.hi." type, carry_mad##bits, shape "K", CARRY_IN | HIGH_HALF | (sign)}, \
    {"madc.lo.cc." type, carry_mad##bits, shape "K", CARRY_IN | CARRY_OUT}, \
    {"madc.hi.cc." type, carry_mad##bits, shape "K", CARRY_IN | CARRY_OUT | HIGH_HALF | (sign)}

#define CARRIES(bits, shape) \
    {"add.cc.u" #bits, carry##bits, shape "K", CARRY_OUT}, {"add.cc.s" #bits, carry##bits, shape "K", CARRY_OUT}, \
    {"addc.u" #bits, carry##bits, shape "K", CARRY_IN}, {"addc.s" #bits, carry##bits, shape "K", CARRY_IN}, \
    {"addc.cc.u" #bits, carry##bits, shape "K", CARRY_IN | CARRY_OUT}, \
    {"addc.cc.s" #bits, carry##bits, shape "K", CARRY_IN | CARRY_OUT}, \
    {"sub.cc.u" #bits, carry##bits, shape "K", BORROWS | CARRY_OUT}, \
    {"sub.cc.s" #bits, carry##bits, shape "K", BORROWS | CARRY_OUT}, \
    {"subc.u" #bits, carry##bits, shape "K", BORROWS | CARRY_IN}, \
    {"subc.s" #bits, carry##bits, shape "K", BORROWS | CARRY_IN}, \
    {"subc.cc.u" #bits, carry##bits, shape "K", BORROWS | CARRY_IN | CARRY_OUT}, \
    {"subc.cc.s" #bits, carry##bits, shape "K", BORROWS | CARRY_IN | CARRY_OUT}
#define SAME(name, base) \
    {name ".u16", base##16, "222", 0}, {name ".s16", base##16, "222", 0}, {name ".u32", base##32, "444", 0}, \
    {name ".s32", base##32, "444", 0}, {name ".u64", base##64, "888", 0}, {name ".s64", base##64, "888", 0}
#define SIGNED(name, base) \
    {name ".u16", base##_u16, "222", 0}, {name ".s16", base##_s16, "222", 0}, {name ".u32", base##_u32, "444", 0}, \
    {name ".s32", base##_s32, "444", 0}, {name ".u64", base##_u64, "888", 0}, {name ".s64", base##_s64, "888", 0}

static const struct op_row ROWS[] = {
    SAME("add", add), SAME("sub", sub), SAME("mul.lo", mul), SIGNED("mul.hi", mul_hi), SIGNED("div", div),
    SIGNED("rem", rem), SIGNED("min", min), SIGNED("max", max), CARRIES(32, "444"), CARRIES(64, "888"),
    CARRY_MADS("u32", 32, "4444", 0), CARRY_MADS("s32", 32, "4444", SIGNED_PRODUCT),
    CARRY_MADS("u64", 64, "8888", 0), CARRY_MADS("s64", 64, "8888", SIGNED_PRODUCT),
    {"mul.wide.u16", mul_wide_u16, "422", 0}, {"mul.wide.s16", mul_wide_s16, "422", 0},
    {"mul.wide.u32", mul_wide_u32, "844", 0}, {"mul.wide.s32", mul_wide_s32, "844", 0},
    {"mul24.lo.u32", mul24_u32, "444", 0}, {"mul24.lo.s32", mul24_s32, "444", 0},
    {"mad.lo.u16", mad16, "2222", 0}, {"mad.lo.s16", mad16, "2222", 0},
    {"mad.lo.u32", mad32, "4444", 0}, {"mad.lo.s32", mad32, "4444", 0},
    {"mad.lo.u64", mad64, "8888", 0}, {"mad.lo.s64", mad64, "8888", 0},
    {"mad.hi.u32", mad_hi_u32, "4444", 0}, {"mad.hi.s32", mad_hi_s32, "4444", 0},
    {"mad.hi.u64", mad_hi_u64, "8888", 0}, {"mad.hi.s64", mad_hi_s64, "8888", 0},
    {"mad.wide.u16", mad_wide_u16, "4224", 0}, {"mad.wide.s16", mad_wide_s16, "4224", 0},
    {"mad.wide.u32", mad_wide_u32, "8448", 0}, {"mad.wide.s32", mad_wide_s32, "8448", 0},
    {"neg.s16", neg16, "22", 0}, {"neg.s32", neg32, "44", 0}, {"neg.s64", neg64, "88", 0},
    {"abs.s16", abs16, "22", 0}, {"abs.s32", abs32, "44", 0}, {"abs.s64", abs64, "88", 0},
    {"sad.u32", sad_u32, "4444", 0}, {"sad.s32", sad_s32, "4444", 0},
    {"add.sat.s32", add_sat_s32, "444", 0}, {"sub.sat.s32", sub_sat_s32, "444", 0},
    {"dp4a.u32.u32", dp4a, "4444", 0}, {"dp4a.s32.u32", dp4a, "4444", 1},
    {"dp4a.u32.s32", dp4a, "4444", 2}, {"dp4a.s32.s32", dp4a, "4444", 3},
};
/* clang-format on */
const struct op_table OPS_INTEGER = {ROWS, sizeof ROWS / sizeof *ROWS};
