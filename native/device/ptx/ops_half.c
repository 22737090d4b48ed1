/* Arithmetic of f16 and bf16, one or two numbers to a register: every operation is exact and rounded once. */
#include "device/ptx/half.h"

#include "device/ptx/access.h"

#define INLINE static inline __attribute__((always_inline))

INLINE double widened(uint16_t x, bool is_bf16)
{
    return (double)(is_bf16 ? bf16_float(x) : f16_float(x));
}

INLINE uint16_t narrowed(double x, bool is_bf16)
{
    return is_bf16 ? bf16_of(x) : f16_of(x);
}

INLINE uint16_t flushed(uint16_t x, bool is_bf16)
{
    uint16_t exponent = is_bf16 ? 0x7f80 : 0x7c00;
    return x & exponent ? x : x & 0x8000;
}

/* The smaller one; -0 is less than +0, and a number beats what is not one. */
INLINE double smaller(double x, double y)
{
    return x != x ? y : y != y ? x : x < y || (x == y && signbit(x)) ? x : y;
}

INLINE double extreme(double x, double y, bool is_max, unsigned flags)
{
    if ((flags & HALF_NAN_WINS) && (x != x || y != y))
        return NAN;
    double sign = 1;
    if (flags & HALF_XORSIGN) {
        sign = (signbit(x) != 0) != (signbit(y) != 0) ? -1 : 1;
        x = fabs(x), y = fabs(y);
    }
    double found = is_max ? -smaller(-x, -y) : smaller(x, y);
    return flags & HALF_XORSIGN ? copysign(found, sign) : found;
}

INLINE uint16_t computed(enum half_operation operation, bool is_bf16, unsigned flags, uint16_t a, uint16_t b,
                         uint16_t c)
{
    if (flags & HALF_FTZ)
        a = flushed(a, is_bf16), b = flushed(b, is_bf16), c = flushed(c, is_bf16);
    if (operation == HALF_NEG)
        return a ^ 0x8000;
    if (operation == HALF_ABS)
        return a & 0x7fff;
    double x = widened(a, is_bf16), y = widened(b, is_bf16), z = widened(c, is_bf16), r;
    switch (operation) {
    case HALF_ADD:
        r = odd_fma(x, 1, y);
        break;
    case HALF_SUB:
        r = odd_fma(x, 1, -y);
        break;
    case HALF_MUL:
        r = x * y;
        break;
    case HALF_FMA:
        r = odd_fma(x, y, z);
        break;
    case HALF_MIN:
        r = extreme(x, y, false, flags);
        break;
    case HALF_MAX:
        r = extreme(x, y, true, flags);
        break;
    case HALF_EX2:
        r = exp2(x);
        break;
    default:
        r = tanh(x);
    }
    if (flags & HALF_SAT)
        r = r > 0 ? (r < 1 ? r : 1) : 0;
    if (flags & HALF_RELU)
        r = r < 0 || (r == 0 && signbit(r)) ? 0 : r;
    uint16_t found = narrowed(r, is_bf16);
    return flags & HALF_FTZ ? flushed(found, is_bf16) : found;
}

/* A register of 32 bits holds two: numbers 2l and 2l + 1 of the lanes' row. */
INLINE void run(struct warp *w, const struct insn *in, uint32_t m, enum half_operation operation, bool is_bf16)
{
    uint16_t *d = REG(uint16_t, in->d);
    const uint16_t *a = REG(uint16_t, in->a), *b = REG(uint16_t, in->b), *c = REG(uint16_t, in->c);
    const unsigned flags = in->mode;
    if (in->count == 1)
        EACH(m, d[l] = computed(operation, is_bf16, flags, a[l], b[l], c[l]));
    else
        EACH(m, uint32_t i = 2 * l; d[i] = computed(operation, is_bf16, flags, a[i], b[i], c[i]); i++;
             d[i] = computed(operation, is_bf16, flags, a[i], b[i], c[i]));
}

#define STEPS(name, operation) \
    static void name##_f16(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        run(w, in, m, operation, false); \
    } \
    static void name##_bf16(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        run(w, in, m, operation, true); \
    }
STEPS(add, HALF_ADD)
STEPS(sub, HALF_SUB)
STEPS(mul, HALF_MUL)
STEPS(fma, HALF_FMA)
STEPS(min, HALF_MIN)
STEPS(max, HALF_MAX)
STEPS(neg, HALF_NEG)
STEPS(abs, HALF_ABS)
STEPS(ex2, HALF_EX2)
STEPS(tanh, HALF_TANH)

step *half_step(enum half_operation operation, bool is_bf16)
{
    static step *const F16[] = {add_f16, sub_f16, mul_f16, fma_f16, min_f16,
                                max_f16, neg_f16, abs_f16, ex2_f16, tanh_f16};
    static step *const BF16[] = {add_bf16, sub_bf16, mul_bf16, fma_bf16, min_bf16,
                                 max_bf16, neg_bf16, abs_bf16, ex2_bf16, tanh_bf16};
    return (is_bf16 ? BF16 : F16)[operation];
}

/* mode: comparison, HALF_COMPARE_FTZ, HALF_COMPARE_BF16 */
static bool compared(unsigned mode, uint16_t a, uint16_t b)
{
    bool is_bf16 = mode & HALF_COMPARE_BF16;
    if (mode & HALF_COMPARE_FTZ)
        a = flushed(a, is_bf16), b = flushed(b, is_bf16);
    double x = widened(a, is_bf16), y = widened(b, is_bf16);
    bool unordered = x != x || y != y;
    switch (mode & 15u) {
    case COMPARE_EQ:
        return x == y;
    case COMPARE_NE:
        return !unordered && x != y;
    case COMPARE_LT:
        return x < y;
    case COMPARE_LE:
        return x <= y;
    case COMPARE_GT:
        return x > y;
    case COMPARE_GE:
        return x >= y;
    case COMPARE_EQU:
        return unordered || x == y;
    case COMPARE_NEU:
        return x != y;
    case COMPARE_LTU:
        return unordered || x < y;
    case COMPARE_LEU:
        return unordered || x <= y;
    case COMPARE_GTU:
        return unordered || x > y;
    case COMPARE_GEU:
        return unordered || x >= y;
    case COMPARE_NUM:
        return !unordered;
    default:
        return unordered;
    }
}

static void setp_half(struct warp *w, const struct insn *in, uint32_t m)
{
    const uint16_t *a = REG(uint16_t, in->a), *b = REG(uint16_t, in->b);
    uint32_t found = 0;
    EACH(m, found |= (uint32_t)compared(in->mode, a[l], b[l]) << l);
    set_predicate(w, in->d, m, found);
}

/* setp.lt.f16x2 d|e: one predicate for each of the two numbers, low one first. */
void step_half_setp2(struct warp *w, const struct insn *in, uint32_t m)
{
    const uint16_t *a = REG(uint16_t, in->a), *b = REG(uint16_t, in->b);
    uint32_t low = 0, high = 0;
    EACH(m, low |= (uint32_t)compared(in->mode, a[2 * l], b[2 * l]) << l;
         high |= (uint32_t)compared(in->mode, a[2 * l + 1], b[2 * l + 1]) << l);
    set_predicate(w, in->d, m, low);
    set_predicate(w, in->e, m, high);
}

/* set.lt: what stands for true is `immediate`; to_bytes is the size of the result's register. */
void step_half_set(struct warp *w, const struct insn *in, uint32_t m)
{
    const uint16_t *a = REG(uint16_t, in->a), *b = REG(uint16_t, in->b), yes = (uint16_t)in->immediate;
    if (in->count == 2)
        EACH(m, for (uint32_t i = 2 * l; i < 2 * l + 2; i++) REG(uint16_t, in->d)[i] =
                    compared(in->mode, a[i], b[i]) ? yes : 0);
    else if (in->to_bytes == 2)
        EACH(m, REG(uint16_t, in->d)[l] = compared(in->mode, a[l], b[l]) ? yes : 0);
    else
        EACH(m, REG(uint32_t, in->d)[l] = compared(in->mode, a[l], b[l]) ? (uint32_t)in->immediate : 0);
}

/* cvt.rn.f16x2.f32 d, a, b: a becomes the high number, b the low one. */
void step_half_pack(struct warp *w, const struct insn *in, uint32_t m)
{
    const float *a = REG(float, in->a), *b = REG(float, in->b);
    uint16_t *d = REG(uint16_t, in->d);
    bool is_bf16 = in->mode & HALF_PACK_BF16, relu = in->mode & HALF_PACK_RELU;
    enum rounding rounding = in->mode & HALF_PACK_ZERO ? ROUND_RZ : ROUND_RN;
    EACH(
        m, float pair[2]; pair[0] = b[l]; pair[1] = a[l]; for (uint32_t i = 0; i < 2; i++) {
            double x = relu && (pair[i] < 0 || (pair[i] == 0 && signbit(pair[i]))) ? 0 : (double)pair[i];
            d[2 * l + i] =
                half_narrowed(x, is_bf16 ? BF16_FRACTION : F16_FRACTION, is_bf16 ? BF16_LEAST : F16_LEAST, rounding);
        });
}

void step_convert_tf32(struct warp *w, const struct insn *in, uint32_t m)
{
    EACH(m, REG(uint32_t, in->d)[l] = tf32_of(REG(uint32_t, in->a)[l]));
}

#define FAST(name, D, S, ...) \
    static void name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        D *d = REG(D, in->d); \
        const S *a = REG(S, in->a); \
        EACH(m, S x = a[l]; d[l] = (D)(__VA_ARGS__)); \
    }
FAST(f32_of_f16, float, uint16_t, f16_float(x))
FAST(f32_of_bf16, float, uint16_t, bf16_float(x))
FAST(f16_of_f32, uint16_t, float, f16_of((double)x))
FAST(bf16_of_f32, uint16_t, float, bf16_of((double)x))

/* The usual conversions, whose registers have the sizes of their types. NULL: take the general way. */
step *half_convert_step(enum type to, enum type from)
{
    if (to == TYPE_F32)
        return from == TYPE_F16 ? f32_of_f16 : from == TYPE_BF16 ? f32_of_bf16 : NULL;
    if (from == TYPE_F32)
        return to == TYPE_F16 ? f16_of_f32 : to == TYPE_BF16 ? bf16_of_f32 : NULL;
    return NULL;
}

/* atom.add.noftz of one or two numbers; a pair is not atomic as a whole in PTX, and is here. */
#define ATOMIC_ADD(name, count, is_bf16) \
    static void name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        ACCESS(m, 2u * (count), true, { \
            uint16_t old[2], fresh[2]; \
            memcpy(old, at, 2 * (count)); \
            for (uint32_t i = 0; i < (count); i++) \
                fresh[i] = computed(HALF_ADD, is_bf16, 0, old[i], REG(uint16_t, in->b)[(count)*l + i], 0); \
            memcpy(at, fresh, 2 * (count)); \
            if (in->d) \
                memcpy(REG(uint16_t, in->d) + (count)*l, old, 2 * (count)); \
        }) \
    }
ATOMIC_ADD(atomic_f16, 1u, false)
ATOMIC_ADD(atomic_bf16, 1u, true)
ATOMIC_ADD(atomic_f16x2, 2u, false)
ATOMIC_ADD(atomic_bf16x2, 2u, true)

step *half_atomic_step(const char *type)
{
    return strcmp(type, "f16") == 0      ? atomic_f16
           : strcmp(type, "bf16") == 0   ? atomic_bf16
           : strcmp(type, "f16x2") == 0  ? atomic_f16x2
           : strcmp(type, "bf16x2") == 0 ? atomic_bf16x2
                                         : NULL;
}

/* Tables with several rows to a line, which the formatter would take apart. */
/* clang-format off */
#define ROW(name, step, mode) {name, step, "122", mode}
#define ROWS_FOR(cmp, kind) \
    ROW("setp." cmp ".f16", setp_half, kind), ROW("setp." cmp ".ftz.f16", setp_half, kind | HALF_COMPARE_FTZ), \
    ROW("setp." cmp ".bf16", setp_half, kind | HALF_COMPARE_BF16)
static const struct op_row ROWS[] = {
    ROWS_FOR("eq", COMPARE_EQ), ROWS_FOR("ne", COMPARE_NE), ROWS_FOR("lt", COMPARE_LT), ROWS_FOR("le", COMPARE_LE),
    ROWS_FOR("gt", COMPARE_GT), ROWS_FOR("ge", COMPARE_GE), ROWS_FOR("equ", COMPARE_EQU), ROWS_FOR("neu", COMPARE_NEU),
    ROWS_FOR("ltu", COMPARE_LTU), ROWS_FOR("leu", COMPARE_LEU), ROWS_FOR("gtu", COMPARE_GTU),
    ROWS_FOR("geu", COMPARE_GEU), ROWS_FOR("num", COMPARE_NUM), ROWS_FOR("nan", COMPARE_NAN),
};
/* clang-format on */
const struct op_table OPS_HALF = {ROWS, sizeof ROWS / sizeof *ROWS};
