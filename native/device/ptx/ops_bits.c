/* Bits: logic, shifts, fields, permutation, moves and address arithmetic. */
#include "device/ptx/form.h"

#define ONE(name, D, A, ...) \
    static void name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        D *d = REG(D, in->d); \
        const A *a = REG(A, in->a); \
        EACH(m, A x = a[l]; d[l] = (D)(__VA_ARGS__)); \
    } \
    OP_FORM(name, D, A, , , , __VA_ARGS__)
#define TWO(name, D, A, B, ...) \
    static void name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        D *d = REG(D, in->d); \
        const A *a = REG(A, in->a); \
        const B *b = REG(B, in->b); \
        EACH(m, A x = a[l]; B y = b[l]; d[l] = (D)(__VA_ARGS__)); \
    } \
    OP_FORM(name, D, A, B, , , __VA_ARGS__)
#define THREE(name, D, A, B, C, ...) \
    static void name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        D *d = REG(D, in->d); \
        const A *a = REG(A, in->a); \
        const B *b = REG(B, in->b); \
        const C *c = REG(C, in->c); \
        EACH(m, A x = a[l]; B y = b[l]; C z = c[l]; d[l] = (D)(__VA_ARGS__)); \
    } \
    OP_FORM(name, D, A, B, C, , __VA_ARGS__)
#define FOUR(name, D, A, B, C, E, ...) \
    static void name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        D *d = REG(D, in->d); \
        const A *a = REG(A, in->a); \
        const B *b = REG(B, in->b); \
        const C *c = REG(C, in->c); \
        const E *e = REG(E, in->e); \
        EACH(m, A x = a[l]; B y = b[l]; C z = c[l]; E v = e[l]; d[l] = (D)(__VA_ARGS__)); \
    } \
    OP_FORM(name, D, A, B, C, E, __VA_ARGS__)
#define PREDICATES(name, ...) \
    static void name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        uint32_t x = PRED(in->a), y = PRED(in->b); \
        (void)y; \
        set_predicate(w, in->d, m, __VA_ARGS__); \
    } \
    OP_FORM(name, bool, bool, bool, , , __VA_ARGS__)
#define LOGIC(bits, T) \
    TWO(and##bits, T, T, T, x &y) \
    TWO(or ##bits, T, T, T, x | y) \
    TWO(xor##bits, T, T, T, x ^ y) \
    ONE(not ##bits, T, T, ~x) \
    ONE(cnot##bits, T, T, x == 0) \
    ONE(mov##bits, T, T, x)

LOGIC(16, uint16_t)
LOGIC(32, uint32_t)
LOGIC(64, uint64_t)
PREDICATES(and1, x &y)
PREDICATES(or1, x | y)
PREDICATES(xor1, x ^ y)
PREDICATES(not1, ~x)
PREDICATES(mov1, x)

/* Shifts by the width or more give zero, or copies of the sign. */
TWO(shl16, uint16_t, uint16_t, uint32_t, y > 15 ? 0 : (uint32_t)x << y)
TWO(shl32, uint32_t, uint32_t, uint32_t, y > 31 ? 0 : x << (y & 31))
TWO(shl64, uint64_t, uint64_t, uint32_t, y > 63 ? 0 : x << (y & 63))
TWO(shr_u16, uint16_t, uint16_t, uint32_t, y > 15 ? 0 : x >> y)
TWO(shr_u32, uint32_t, uint32_t, uint32_t, y > 31 ? 0 : x >> (y & 31))
TWO(shr_u64, uint64_t, uint64_t, uint32_t, y > 63 ? 0 : x >> (y & 63))
TWO(shr_s16, int16_t, int16_t, uint32_t, x >> (y > 15 ? 15 : y))
TWO(shr_s32, int32_t, int32_t, uint32_t, x >> (y > 31 ? 31 : y))
TWO(shr_s64, int64_t, int64_t, uint32_t, x >> (y > 63 ? 63 : y))

THREE(shf_l_wrap, uint32_t, uint32_t, uint32_t, uint32_t, (funnel(x, y) << (z & 31)) >> 32)
THREE(shf_r_wrap, uint32_t, uint32_t, uint32_t, uint32_t, funnel(x, y) >> (z & 31))
THREE(shf_l_clamp, uint32_t, uint32_t, uint32_t, uint32_t, (z > 31 ? funnel(0, x) : funnel(x, y) << z) >> 32)
THREE(shf_r_clamp, uint32_t, uint32_t, uint32_t, uint32_t, funnel(x, y) >> (z > 32 ? 32 : z))

ONE(popc32, uint32_t, uint32_t, __builtin_popcount(x))
ONE(popc64, uint32_t, uint64_t, __builtin_popcountll(x))
ONE(clz32, uint32_t, uint32_t, x ? __builtin_clz(x) : 32)
ONE(clz64, uint32_t, uint64_t, x ? __builtin_clzll(x) : 64)
ONE(bfind_u32, uint32_t, uint32_t, x ? 31 - __builtin_clz(x) : -1)
ONE(bfind_s32, uint32_t, int32_t, (x ^ (x >> 31)) ? 31 - __builtin_clz((uint32_t)(x ^ (x >> 31))) : -1)
ONE(bfind_u64, uint32_t, uint64_t, x ? 63 - __builtin_clzll(x) : -1)
ONE(bfind_s64, uint32_t, int64_t, (x ^ (x >> 63)) ? 63 - __builtin_clzll((uint64_t)(x ^ (x >> 63))) : -1)
ONE(bfind_shift_u32, uint32_t, uint32_t, x ? __builtin_clz(x) : -1)
ONE(bfind_shift_s32, uint32_t, int32_t, (x ^ (x >> 31)) ? __builtin_clz((uint32_t)(x ^ (x >> 31))) : -1)
ONE(bfind_shift_u64, uint32_t, uint64_t, x ? __builtin_clzll(x) : -1)
ONE(bfind_shift_s64, uint32_t, int64_t, (x ^ (x >> 63)) ? __builtin_clzll((uint64_t)(x ^ (x >> 63))) : -1)

ONE(brev32, uint32_t, uint32_t, reversed32(x))
ONE(brev64, uint64_t, uint64_t, (uint64_t)reversed32((uint32_t)x) << 32 | reversed32((uint32_t)(x >> 32)))

THREE(bfe_u32, uint32_t, uint32_t, uint32_t, uint32_t, field(x, y, z, 32, 0))
THREE(bfe_s32, uint32_t, uint32_t, uint32_t, uint32_t, field(x, y, z, 32, 1))
THREE(bfe_u64, uint64_t, uint64_t, uint32_t, uint32_t, field(x, y, z, 64, 0))
THREE(bfe_s64, uint64_t, uint64_t, uint32_t, uint32_t, field(x, y, z, 64, 1))
FOUR(bfi32, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, inserted(x, y, z, v, 32))
FOUR(bfi64, uint64_t, uint64_t, uint64_t, uint32_t, uint32_t, inserted(x, y, z, v, 64))
THREE(lop3, uint32_t, uint32_t, uint32_t, uint32_t, logic3(x, y, z, (uint32_t)in->immediate))
THREE(prmt, uint32_t, uint32_t, uint32_t, uint32_t, permuted(x, y, z, in->mode))

/* cvta: between the address of one space and the generic one; the window is in the instruction. */
ONE(window_add64, uint64_t, uint64_t, x + (uint64_t)in->immediate)
ONE(window_take64, uint64_t, uint64_t, x - (uint64_t)in->immediate)
static void is_space(struct warp *w, const struct insn *in, uint32_t m)
{
    const uint64_t *a = REG(uint64_t, in->a);
    uint32_t r = 0;
    EACH(m, r |= (uint32_t)(a[l] >> WINDOW_SHIFT == (uint64_t)in->immediate) << l);
    set_predicate(w, in->d, m, r);
}

/* Halves of wider registers, for mov with a vector operand. `mode` is the part's number. */
#define PARTS(name, W, P, shift) \
    ONE(take_##name, P, W, x >> ((shift)*in->mode)) \
    static void put_##name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        W *d = REG(W, in->d); \
        const P *a = REG(P, in->a); \
        W keep = (W) ~((W)(P) ~(P)0 << ((shift)*in->mode)); \
        EACH(m, d[l] = (W)((d[l] & keep) | (W)((W)a[l] << ((shift)*in->mode)))); \
    }
PARTS(4_of_8, uint64_t, uint32_t, 32)
PARTS(2_of_4, uint32_t, uint16_t, 16)
PARTS(2_of_8, uint64_t, uint16_t, 16)

/* Tables with several rows to a line, which the formatter would take apart. */
/* clang-format off */
#define LOGIC_ROWS(name, base, shape1, shape2, shape4, shape8) \
    {name ".pred", base##1, shape1, 0}, {name ".b16", base##16, shape2, 0}, {name ".b32", base##32, shape4, 0}, \
    {name ".b64", base##64, shape8, 0}
#define SHIFT_ROWS(type, step2, step4, step8) \
    {"shr." type "16", step2, "224", 0}, {"shr." type "32", step4, "444", 0}, {"shr." type "64", step8, "884", 0}
#define FIND_ROWS(name, base) \
    {name ".u32", base##_u32, "44", 0}, {name ".s32", base##_s32, "44", 0}, {name ".u64", base##_u64, "48", 0}, \
    {name ".s64", base##_s64, "48", 0}

static const struct op_row ROWS[] = {
    LOGIC_ROWS("and", and, "111", "222", "444", "888"), LOGIC_ROWS("or", or, "111", "222", "444", "888"),
    LOGIC_ROWS("xor", xor, "111", "222", "444", "888"), LOGIC_ROWS("not", not, "11", "22", "44", "88"),
    {"cnot.b16", cnot16, "22", 0}, {"cnot.b32", cnot32, "44", 0}, {"cnot.b64", cnot64, "88", 0},
    {"mov.pred", mov1, "11", 0}, {"mov.b16", mov16, "22", 0}, {"mov.b32", mov32, "44", 0}, {"mov.b64", mov64, "88", 0},
    {"mov.f32", mov32, "ff", 0}, {"mov.f64", mov64, "dd", 0},
    {"shl.b16", shl16, "224", 0}, {"shl.b32", shl32, "444", 0}, {"shl.b64", shl64, "884", 0},
    SHIFT_ROWS("b", shr_u16, shr_u32, shr_u64), SHIFT_ROWS("u", shr_u16, shr_u32, shr_u64),
    SHIFT_ROWS("s", shr_s16, shr_s32, shr_s64),
    {"shf.l.wrap.b32", shf_l_wrap, "4444", 0}, {"shf.r.wrap.b32", shf_r_wrap, "4444", 0},
    {"shf.l.clamp.b32", shf_l_clamp, "4444", 0}, {"shf.r.clamp.b32", shf_r_clamp, "4444", 0},
    {"popc.b32", popc32, "44", 0}, {"popc.b64", popc64, "48", 0}, {"clz.b32", clz32, "44", 0},
    {"clz.b64", clz64, "48", 0}, {"brev.b32", brev32, "44", 0}, {"brev.b64", brev64, "88", 0},
    FIND_ROWS("bfind", bfind), FIND_ROWS("bfind.shiftamt", bfind_shift),
    {"bfe.u32", bfe_u32, "4444", 0}, {"bfe.s32", bfe_s32, "4444", 0}, {"bfe.u64", bfe_u64, "8844", 0},
    {"bfe.s64", bfe_s64, "8844", 0}, {"bfi.b32", bfi32, "44444", 0}, {"bfi.b64", bfi64, "88844", 0},
    {"lop3.b32", lop3, "4444i", 0},
    {"prmt.b32", prmt, "4444", PRMT_PLAIN}, {"prmt.b32.f4e", prmt, "4444", PRMT_F4E},
    {"prmt.b32.b4e", prmt, "4444", PRMT_B4E}, {"prmt.b32.rc8", prmt, "4444", PRMT_RC8},
    {"prmt.b32.ecl", prmt, "4444", PRMT_ECL}, {"prmt.b32.ecr", prmt, "4444", PRMT_ECR},
    {"prmt.b32.rc16", prmt, "4444", PRMT_RC16},
    /* Names of our own, for the lowering. */
    {"window.add", window_add64, "88", 0}, {"window.take", window_take64, "88", 0}, {"window.is", is_space, "18", 0},
    {"take.4.8", take_4_of_8, "48", 0}, {"take.2.4", take_2_of_4, "24", 0}, {"take.2.8", take_2_of_8, "28", 0},
    {"put.4.8", put_4_of_8, "84", 0}, {"put.2.4", put_2_of_4, "42", 0}, {"put.2.8", put_2_of_8, "82", 0},
};
/* clang-format on */
const struct op_table OPS_BITS = {ROWS, sizeof ROWS / sizeof *ROWS};
