/* Atomic operations. Work of a context runs one piece at a time and lanes run in order, so plain steps are atomic. */
#include <math.h>
#include <string.h>

#include "device/ptx/access.h"

/* old: what is there; x, y: the operands. The result register is written only if somebody wants it. */
#define ATOMIC(name, T, ...) \
    static void name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        const T *b = REG(T, in->b), *c = REG(T, in->c); \
        (void)c; \
        ACCESS(m, (unsigned)sizeof(T), true, { \
            T old, x = b[l]; \
            memcpy(&old, at, sizeof old); \
            T fresh = (T)(__VA_ARGS__); \
            memcpy(at, &fresh, sizeof fresh); \
            if (in->d) \
                REG(T, in->d)[l] = old; \
        }) \
    }

#define INTEGER(suffix, T) \
    ATOMIC(add_##suffix, T, old + x) \
    ATOMIC(min_##suffix, T, old < x ? old : x) \
    ATOMIC(max_##suffix, T, old > x ? old : x)
#define BITS(suffix, T) \
    ATOMIC(and_##suffix, T, old &x) \
    ATOMIC(or_##suffix, T, old | x) \
    ATOMIC(xor_##suffix, T, old ^ x) \
    ATOMIC(exch_##suffix, T, x) \
    ATOMIC(cas_##suffix, T, old == x ? c[l] : old)

INTEGER(u32, uint32_t)
INTEGER(u64, uint64_t)
ATOMIC(min_s32, int32_t, old < x ? old : x)
ATOMIC(max_s32, int32_t, old > x ? old : x)
ATOMIC(min_s64, int64_t, old < x ? old : x)
ATOMIC(max_s64, int64_t, old > x ? old : x)
BITS(b32, uint32_t)
BITS(b64, uint64_t)
ATOMIC(exch_b16, uint16_t, x)
ATOMIC(cas_b16, uint16_t, old == x ? c[l] : old)
ATOMIC(inc_u32, uint32_t, old >= x ? 0 : old + 1)
ATOMIC(dec_u32, uint32_t, old == 0 || old > x ? x : old - 1)
ATOMIC(add_f32, float, old + x)
ATOMIC(add_f64, double, old + x)

struct atomic_row {
    const char *operation, *type;
    step *run;
};
static const struct atomic_row ROWS[] = {
    {"add", "u32", add_u32},   {"add", "s32", add_u32},   {"add", "u64", add_u64},   {"add", "s64", add_u64},
    {"add", "f32", add_f32},   {"add", "f64", add_f64},   {"min", "u32", min_u32},   {"min", "s32", min_s32},
    {"min", "u64", min_u64},   {"min", "s64", min_s64},   {"max", "u32", max_u32},   {"max", "s32", max_s32},
    {"max", "u64", max_u64},   {"max", "s64", max_s64},   {"and", "b32", and_b32},   {"and", "b64", and_b64},
    {"or", "b32", or_b32},     {"or", "b64", or_b64},     {"xor", "b32", xor_b32},   {"xor", "b64", xor_b64},
    {"exch", "b32", exch_b32}, {"exch", "b64", exch_b64}, {"exch", "b16", exch_b16}, {"cas", "b32", cas_b32},
    {"cas", "b64", cas_b64},   {"cas", "b16", cas_b16},   {"inc", "u32", inc_u32},   {"dec", "u32", dec_u32},
};

/* NULL: there is no such operation on that type. */
step *atomic_step(const char *operation, const char *type)
{
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
        if (strcmp(ROWS[i].operation, operation) == 0 && strcmp(ROWS[i].type, type) == 0)
            return ROWS[i].run;
    return NULL;
}
