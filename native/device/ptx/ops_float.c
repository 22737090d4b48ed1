/* Floating point of 32 and 64 bits: IEEE operations exact, approximations at least as exact as PTX asks. */
#include <fenv.h>

#include "device/ptx/form.h"

#define ONE(name, T, ...) \
    static void name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        T *d = REG(T, in->d); \
        const T *a = REG(T, in->a); \
        EACH(m, T x = a[l]; d[l] = (T)(__VA_ARGS__)); \
    } \
    OP_FORM(name, T, T, , , , __VA_ARGS__)
#define TWO(name, T, ...) \
    static void name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        T *d = REG(T, in->d); \
        const T *a = REG(T, in->a), *b = REG(T, in->b); \
        EACH(m, T x = a[l]; T y = b[l]; d[l] = (T)(__VA_ARGS__)); \
    } \
    OP_FORM(name, T, T, T, , , __VA_ARGS__)
#define THREE(name, T, ...) \
    static void name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        T *d = REG(T, in->d); \
        const T *a = REG(T, in->a), *b = REG(T, in->b), *c = REG(T, in->c); \
        EACH(m, T x = a[l]; T y = b[l]; T z = c[l]; d[l] = (T)(__VA_ARGS__)); \
    } \
    OP_FORM(name, T, T, T, T, , __VA_ARGS__)
/* f32 operations exist plain, flushing subnormal numbers, saturating, and both. */
#define VARIANTS(MAKE, base, OF) \
    MAKE(base##_f32, float, OF(same, same)) \
    MAKE(base##_ftz, float, OF(ftz, ftz)) \
    MAKE(base##_sat, float, OF(same, sat)) \
    MAKE(base##_ftz_sat, float, OF(ftz, sat))

#define ADD(IN, OUT) OUT(IN(IN(x) + IN(y)))
#define SUB(IN, OUT) OUT(IN(IN(x) - IN(y)))
#define MUL(IN, OUT) OUT(IN(IN(x) * IN(y)))
#define FMA(IN, OUT) OUT(IN(fmaf(IN(x), IN(y), IN(z))))
VARIANTS(TWO, add, ADD)
VARIANTS(TWO, sub, SUB)
VARIANTS(TWO, mul, MUL)
VARIANTS(THREE, fma, FMA)
TWO(div_f32, float, x / y)
TWO(div_ftz, float, ftz(ftz(x) / ftz(y)))
TWO(min_f32, float, min_f(x, y))
TWO(min_ftz, float, min_f(ftz(x), ftz(y)))
TWO(max_f32, float, max_f(x, y))
TWO(max_ftz, float, max_f(ftz(x), ftz(y)))
TWO(min_nan_f32, float, min_nan(x, y))
TWO(max_nan_f32, float, max_nan(x, y))
TWO(copysign_f32, float, copysignf(y, x))
TWO(copysign_f64, double, copysign(y, x))
TWO(add_f64, double, x + y)
TWO(sub_f64, double, x - y)
TWO(mul_f64, double, x *y)
TWO(div_f64, double, x / y)
TWO(min_f64, double, min_d(x, y))
TWO(max_f64, double, max_d(x, y))
THREE(fma_f64, double, fma(x, y, z))

/* glibc's fmaf costs a call per lane; with the instruction in hand the loop vectorises. */
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void fma_f32_fast(struct warp *w, const struct insn *in, uint32_t m)
{
    float *d = REG(float, in->d);
    const float *a = REG(float, in->a), *b = REG(float, in->b), *c = REG(float, in->c);
    EACH(m, d[l] = __builtin_fmaf(a[l], b[l], c[l]));
}
static void fma_f32_any(struct warp *w, const struct insn *in, uint32_t m)
{
    bool fast = __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2");
    (fast ? fma_f32_fast : fma_f32)(w, in, m);
}
#else
static void fma_f32_any(struct warp *w, const struct insn *in, uint32_t m)
{
    fma_f32(w, in, m);
}
#endif
OP_FORM(fma_f32_any, float, float, float, float, , fmaf(x, y, z))

ONE(neg_f32, float, -x)
ONE(neg_ftz, float, -ftz(x))
ONE(neg_f64, double, -x)
ONE(abs_f32, float, fabsf(x))
ONE(abs_ftz, float, fabsf(ftz(x)))
ONE(abs_f64, double, fabs(x))
ONE(sqrt_f32, float, sqrtf(x))
ONE(sqrt_ftz, float, ftz(sqrtf(ftz(x))))
ONE(sqrt_f64, double, sqrt(x))
ONE(rcp_f32, float, 1.0f / x)
ONE(rcp_ftz, float, ftz(1.0f / ftz(x)))
ONE(rcp_f64, double, 1.0 / x)
ONE(rsqrt_f32, float, 1.0 / sqrt((double)x))
ONE(rsqrt_ftz, float, ftz((float)(1.0 / sqrt((double)ftz(x)))))
ONE(rsqrt_f64, double, 1.0 / sqrt(x))
ONE(ex2_f32, float, exp2f(x))
ONE(ex2_ftz, float, ftz(exp2f(ftz(x))))
ONE(lg2_f32, float, log2f(x))
ONE(lg2_ftz, float, ftz(log2f(ftz(x))))
ONE(sin_f32, float, sinf(x))
ONE(sin_ftz, float, ftz(sinf(ftz(x))))
ONE(cos_f32, float, cosf(x))
ONE(cos_ftz, float, ftz(cosf(ftz(x))))
ONE(tanh_f32, float, tanhf(x))

/* Directed rounding, by the processor's own mode. `mode` is the kind of operation, plus 8 for each rounding mode. */
enum { DIRECTED_ADD, DIRECTED_SUB, DIRECTED_MUL, DIRECTED_DIV, DIRECTED_FMA, DIRECTED_SQRT, DIRECTED_RCP };
static const int MODES[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};

#define DIRECTED(name, T, IN, FMA_, SQRT_) \
    static __attribute__((noinline)) T name##_one(unsigned kind, volatile T x, volatile T y, volatile T z) \
    { \
        switch (kind) { \
        case DIRECTED_ADD: \
            return x + y; \
        case DIRECTED_SUB: \
            return x - y; \
        case DIRECTED_MUL: \
            return x * y; \
        case DIRECTED_DIV: \
            return x / y; \
        case DIRECTED_FMA: \
            return FMA_(x, y, z); \
        case DIRECTED_SQRT: \
            return SQRT_(x); \
        default: \
            return (T)1 / x; \
        } \
    } \
    static void name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        T *d = REG(T, in->d); \
        const T *a = REG(T, in->a), *b = REG(T, in->b), *c = REG(T, in->c); \
        int before = fegetround(); \
        fesetround(MODES[in->mode >> 3]); \
        for (uint32_t l = 0; l < LANES; l++) \
            if ((m >> l) & 1) \
                d[l] = IN(name##_one(in->mode & 7u, IN(a[l]), IN(b[l]), IN(c[l]))); \
        fesetround(before); \
    }
DIRECTED(directed_f32, float, , fmaf, sqrtf)
DIRECTED(directed_ftz, float, ftz, fmaf, sqrtf)
DIRECTED(directed_f64, double, , fma, sqrt)

/* testp: classes of numbers. */
enum { TEST_FINITE, TEST_INFINITE, TEST_NUMBER, TEST_NAN, TEST_NORMAL, TEST_SUBNORMAL };
#define TEST(name, T) \
    static void name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        const T *a = REG(T, in->a); \
        uint32_t r = 0; \
        EACH( \
            m, int k = fpclassify(a[l]); bool is; switch (in->mode) { \
                case TEST_FINITE: \
                    is = k != FP_NAN && k != FP_INFINITE; \
                    break; \
                case TEST_INFINITE: \
                    is = k == FP_INFINITE; \
                    break; \
                case TEST_NUMBER: \
                    is = k != FP_NAN; \
                    break; \
                case TEST_NAN: \
                    is = k == FP_NAN; \
                    break; \
                case TEST_NORMAL: \
                    is = k == FP_NORMAL; \
                    break; \
                default: \
                    is = k == FP_SUBNORMAL; \
            } r |= (uint32_t)is << l); \
        set_predicate(w, in->d, m, r); \
    }
TEST(testp_f32, float)
TEST(testp_f64, double)

/* Tables with several rows to a line, which the formatter would take apart. */
/* clang-format off */
#define VARIANT_ROWS(name, base, shape) \
    {name ".f32", base##_f32, shape, 0}, {name ".ftz.f32", base##_ftz, shape, 0}, \
    {name ".sat.f32", base##_sat, shape, 0}, {name ".ftz.sat.f32", base##_ftz_sat, shape, 0}
#define PLAIN_ROWS(name, base, shape) {name ".f32", base##_f32, shape, 0}, {name ".ftz.f32", base##_ftz, shape, 0}
#define DIRECTED_ROWS(name, kind, shape4, shape8) \
    {name ".rz.f32", directed_f32, shape4, 8 | kind}, {name ".rm.f32", directed_f32, shape4, 16 | kind}, \
    {name ".rp.f32", directed_f32, shape4, 24 | kind}, {name ".rz.f64", directed_f64, shape8, 8 | kind}, \
    {name ".rm.f64", directed_f64, shape8, 16 | kind}, {name ".rp.f64", directed_f64, shape8, 24 | kind}, \
    {name ".rz.ftz.f32", directed_ftz, shape4, 8 | kind}, {name ".rm.ftz.f32", directed_ftz, shape4, 16 | kind}, \
    {name ".rp.ftz.f32", directed_ftz, shape4, 24 | kind}
#define TEST_ROWS(name, kind) \
    {"testp." name ".f32", testp_f32, "1f", kind}, {"testp." name ".f64", testp_f64, "1d", kind}

/* The lowering drops `.rn`, the rounding that these have anyway. */
static const struct op_row ROWS[] = {
    VARIANT_ROWS("add", add, "fff"), VARIANT_ROWS("sub", sub, "fff"), VARIANT_ROWS("mul", mul, "fff"),
    {"fma.f32", fma_f32_any, "ffff", 0}, {"fma.ftz.f32", fma_ftz, "ffff", 0}, {"fma.sat.f32", fma_sat, "ffff", 0},
    {"fma.ftz.sat.f32", fma_ftz_sat, "ffff", 0}, {"mad.f32", fma_f32_any, "ffff", 0},
    {"mad.ftz.f32", fma_ftz, "ffff", 0},
    PLAIN_ROWS("div", div, "fff"), PLAIN_ROWS("div.full", div, "fff"), PLAIN_ROWS("div.approx", div, "fff"),
    PLAIN_ROWS("min", min, "fff"), PLAIN_ROWS("max", max, "fff"),
    {"min.NaN.f32", min_nan_f32, "fff", 0}, {"max.NaN.f32", max_nan_f32, "fff", 0},
    {"add.f64", add_f64, "ddd", 0}, {"sub.f64", sub_f64, "ddd", 0}, {"mul.f64", mul_f64, "ddd", 0},
    {"div.f64", div_f64, "ddd", 0}, {"min.f64", min_f64, "ddd", 0}, {"max.f64", max_f64, "ddd", 0},
    {"fma.f64", fma_f64, "dddd", 0}, {"mad.f64", fma_f64, "dddd", 0},
    {"copysign.f32", copysign_f32, "fff", 0}, {"copysign.f64", copysign_f64, "ddd", 0},
    PLAIN_ROWS("neg", neg, "ff"), PLAIN_ROWS("abs", abs, "ff"), {"neg.f64", neg_f64, "dd", 0},
    {"abs.f64", abs_f64, "dd", 0},
    PLAIN_ROWS("sqrt", sqrt, "ff"), PLAIN_ROWS("sqrt.approx", sqrt, "ff"), {"sqrt.f64", sqrt_f64, "dd", 0},
    PLAIN_ROWS("rcp", rcp, "ff"), PLAIN_ROWS("rcp.approx", rcp, "ff"), {"rcp.f64", rcp_f64, "dd", 0},
    {"rcp.approx.ftz.f64", rcp_f64, "dd", 0}, PLAIN_ROWS("rsqrt.approx", rsqrt, "ff"),
    {"rsqrt.approx.f64", rsqrt_f64, "dd", 0}, {"rsqrt.approx.ftz.f64", rsqrt_f64, "dd", 0},
    PLAIN_ROWS("ex2.approx", ex2, "ff"), PLAIN_ROWS("lg2.approx", lg2, "ff"), PLAIN_ROWS("sin.approx", sin, "ff"),
    PLAIN_ROWS("cos.approx", cos, "ff"), {"tanh.approx.f32", tanh_f32, "ff", 0},
    DIRECTED_ROWS("add", DIRECTED_ADD, "fff", "ddd"), DIRECTED_ROWS("sub", DIRECTED_SUB, "fff", "ddd"),
    DIRECTED_ROWS("mul", DIRECTED_MUL, "fff", "ddd"), DIRECTED_ROWS("div", DIRECTED_DIV, "fff", "ddd"),
    DIRECTED_ROWS("fma", DIRECTED_FMA, "ffff", "dddd"), DIRECTED_ROWS("sqrt", DIRECTED_SQRT, "ff", "dd"),
    DIRECTED_ROWS("rcp", DIRECTED_RCP, "ff", "dd"),
    TEST_ROWS("finite", TEST_FINITE), TEST_ROWS("infinite", TEST_INFINITE), TEST_ROWS("number", TEST_NUMBER),
    TEST_ROWS("notanumber", TEST_NAN), TEST_ROWS("normal", TEST_NORMAL), TEST_ROWS("subnormal", TEST_SUBNORMAL),
};
/* clang-format on */
const struct op_table OPS_FLOAT = {ROWS, sizeof ROWS / sizeof *ROWS};
