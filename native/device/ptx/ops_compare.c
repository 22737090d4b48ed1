/* Comparisons into predicates, and choices by predicates. */
#include "device/ptx/form.h"

/* Choosing a lane's bit from a table, instead of shifting, is what the compiler can vectorise. */
static const uint32_t BIT[LANES] = {
    1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,  1u << 8,  1u << 9,  1u << 10,
    1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15, 1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21,
    1u << 22, 1u << 23, 1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31,
};

#define COMPARE(name, T, ...) \
    static void name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        const T *a = REG(T, in->a), *b = REG(T, in->b); \
        uint32_t r = 0; \
        EACH(m, T x = a[l]; T y = b[l]; r |= (__VA_ARGS__) ? BIT[l] : 0); \
        set_predicate(w, in->d, m, r); \
    } \
    OP_FORM(name, bool, T, T, , , __VA_ARGS__)
#define COMPARE_INTEGER(suffix, T) \
    COMPARE(eq_##suffix, T, x == y) \
    COMPARE(ne_##suffix, T, x != y) \
    COMPARE(lt_##suffix, T, x < y) \
    COMPARE(le_##suffix, T, x <= y) \
    COMPARE(gt_##suffix, T, x > y) \
    COMPARE(ge_##suffix, T, x >= y)
/* The `u` forms are true when one side is not a number: each is the negation of the opposite plain comparison. */
#define COMPARE_FLOAT(suffix, T, V) \
    COMPARE(eq_##suffix, T, V(x) == V(y)) \
    COMPARE(ne_##suffix, T, V(x) < V(y) || V(x) > V(y)) \
    COMPARE(lt_##suffix, T, V(x) < V(y)) \
    COMPARE(le_##suffix, T, V(x) <= V(y)) \
    COMPARE(gt_##suffix, T, V(x) > V(y)) \
    COMPARE(ge_##suffix, T, V(x) >= V(y)) \
    COMPARE(equ_##suffix, T, !(V(x) < V(y) || V(x) > V(y))) \
    COMPARE(neu_##suffix, T, !(V(x) == V(y))) \
    COMPARE(ltu_##suffix, T, !(V(x) >= V(y))) \
    COMPARE(leu_##suffix, T, !(V(x) > V(y))) \
    COMPARE(gtu_##suffix, T, !(V(x) <= V(y))) \
    COMPARE(geu_##suffix, T, !(V(x) < V(y))) \
    COMPARE(num_##suffix, T, x == x && y == y) \
    COMPARE(nan_##suffix, T, x != x || y != y)

COMPARE_INTEGER(u16, uint16_t)
COMPARE_INTEGER(s16, int16_t)
COMPARE_INTEGER(u32, uint32_t)
COMPARE_INTEGER(s32, int32_t)
COMPARE_INTEGER(u64, uint64_t)
COMPARE_INTEGER(s64, int64_t)
#define AS_IS(x) (x)
COMPARE_FLOAT(f32, float, AS_IS)
COMPARE_FLOAT(ftz, float, ftz)
COMPARE_FLOAT(f64, double, AS_IS)

#define SELECT(name, T) \
    static void name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        T *d = REG(T, in->d); \
        const T *a = REG(T, in->a), *b = REG(T, in->b); \
        uint32_t p = PRED(in->c); \
        EACH(m, d[l] = (p >> l) & 1 ? a[l] : b[l]); \
    } \
    OP_FORM(name, T, T, T, bool, , z ? x : y)
SELECT(selp16, uint16_t)
SELECT(selp32, uint32_t)
SELECT(selp64, uint64_t)

/* slct: by the sign of the third operand; not a number counts as negative. */
#define SELECT_BY_SIGN(name, T, C) \
    static void name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        T *d = REG(T, in->d); \
        const T *a = REG(T, in->a), *b = REG(T, in->b); \
        const C *c = REG(C, in->c); \
        EACH(m, d[l] = c[l] >= 0 ? a[l] : b[l]); \
    } \
    OP_FORM(name, T, T, T, C, , z >= 0 ? x : y)
SELECT_BY_SIGN(slct32_s32, uint32_t, int32_t)
SELECT_BY_SIGN(slct64_s32, uint64_t, int32_t)
SELECT_BY_SIGN(slct32_f32, uint32_t, float)
SELECT_BY_SIGN(slct64_f32, uint64_t, float)

/* Tables with several rows to a line, which the formatter would take apart. */
/* clang-format off */
#define ROWS_INTEGER(cmp) \
    {"setp." #cmp ".u16", cmp##_u16, "122", 0}, {"setp." #cmp ".s16", cmp##_s16, "122", 0}, \
    {"setp." #cmp ".u32", cmp##_u32, "144", 0}, {"setp." #cmp ".s32", cmp##_s32, "144", 0}, \
    {"setp." #cmp ".u64", cmp##_u64, "188", 0}, {"setp." #cmp ".s64", cmp##_s64, "188", 0}
#define ROWS_BITS(cmp) \
    {"setp." #cmp ".b16", cmp##_u16, "122", 0}, {"setp." #cmp ".b32", cmp##_u32, "144", 0}, \
    {"setp." #cmp ".b64", cmp##_u64, "188", 0}
#define ROWS_UNSIGNED(word, cmp) \
    {"setp." word ".u16", cmp##_u16, "122", 0}, {"setp." word ".u32", cmp##_u32, "144", 0}, \
    {"setp." word ".u64", cmp##_u64, "188", 0}
#define ROWS_FLOAT(cmp) \
    {"setp." #cmp ".f32", cmp##_f32, "1ff", 0}, {"setp." #cmp ".ftz.f32", cmp##_ftz, "1ff", 0}, \
    {"setp." #cmp ".f64", cmp##_f64, "1dd", 0}
#define ROWS_SELECT(type2, type4, type8) \
    {"selp." type2, selp16, "2221", 0}, {"selp." type4, selp32, "4441", 0}, {"selp." type8, selp64, "8881", 0}

static const struct op_row ROWS[] = {
    ROWS_INTEGER(eq), ROWS_INTEGER(ne), ROWS_INTEGER(lt), ROWS_INTEGER(le), ROWS_INTEGER(gt), ROWS_INTEGER(ge),
    ROWS_BITS(eq), ROWS_BITS(ne), ROWS_UNSIGNED("lo", lt), ROWS_UNSIGNED("ls", le), ROWS_UNSIGNED("hi", gt),
    ROWS_UNSIGNED("hs", ge),
    ROWS_FLOAT(eq), ROWS_FLOAT(ne), ROWS_FLOAT(lt), ROWS_FLOAT(le), ROWS_FLOAT(gt), ROWS_FLOAT(ge), ROWS_FLOAT(equ),
    ROWS_FLOAT(neu), ROWS_FLOAT(ltu), ROWS_FLOAT(leu), ROWS_FLOAT(gtu), ROWS_FLOAT(geu), ROWS_FLOAT(num),
    ROWS_FLOAT(nan),
    ROWS_SELECT("b16", "b32", "b64"), ROWS_SELECT("u16", "u32", "u64"), ROWS_SELECT("s16", "s32", "s64"),
    {"selp.f32", selp32, "fff1", 0}, {"selp.f64", selp64, "ddd1", 0},
    {"slct.b32.s32", slct32_s32, "4444", 0}, {"slct.u32.s32", slct32_s32, "4444", 0},
    {"slct.s32.s32", slct32_s32, "4444", 0}, {"slct.f32.s32", slct32_s32, "fff4", 0},
    {"slct.b64.s32", slct64_s32, "8884", 0}, {"slct.u64.s32", slct64_s32, "8884", 0},
    {"slct.s64.s32", slct64_s32, "8884", 0}, {"slct.f64.s32", slct64_s32, "ddd4", 0},
    {"slct.b32.f32", slct32_f32, "444f", 0}, {"slct.f32.f32", slct32_f32, "ffff", 0},
    {"slct.b64.f32", slct64_f32, "888f", 0}, {"slct.f64.f32", slct64_f32, "dddf", 0},
};
/* clang-format on */
const struct op_table OPS_COMPARE = {ROWS, sizeof ROWS / sizeof *ROWS};
