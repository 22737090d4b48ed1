/* Matrix instructions of a warp: mma, wmma, ldmatrix, stmatrix, movmatrix.
 *
 * The rule for sums: start with c, then add the products for k = 0, 1, ... in order. Each step is one fused multiply-add
 * in f32 (f64 for f64), rounded to nearest even, subnormal numbers kept; an f16 result is rounded from the f32 sum once.
 * Integers are exact, modulo 2^32 or saturated once at the end. A GPU adds in an order and precision of its own.
 */
#include <math.h>
#include <string.h>

#include "device/ptx/access.h"
#include "device/ptx/half.h"

enum { ELEMENTS = 512, SUMS = 256 };

unsigned matrix_bits(enum matrix_type type)
{
    static const unsigned BITS[] = {16, 16, 32, 8, 8, 64, 8, 8, 32, 32};
    return BITS[type];
}

/* Fragments lie in neighbouring registers; elements narrower than 32 bits share one. */
static uint64_t element(struct warp *w, uint32_t base, unsigned bits, uint32_t lane, uint32_t index)
{
    if (bits == 64)
        return REG(uint64_t, base + index * 8 * LANES)[lane];
    uint32_t each = 32 / bits, word = REG(uint32_t, base + index / each * 4 * LANES)[lane];
    return (word >> (index % each * bits)) & (~(uint64_t)0 >> (64 - bits));
}

static void set_element(struct warp *w, uint32_t base, unsigned bits, uint32_t lane, uint32_t index, uint64_t value)
{
    if (bits == 64) {
        REG(uint64_t, base + index * 8 * LANES)[lane] = value;
        return;
    }
    uint32_t each = 32 / bits, shift = index % each * bits,
             *word = REG(uint32_t, base + index / each * 4 * LANES) + lane;
    uint32_t mask = (uint32_t)(~(uint64_t)0 >> (64 - bits)) << shift;
    *word = (*word & ~mask) | ((uint32_t)value << shift & mask);
}

static struct matrix_shape shape_of(const struct insn *in)
{
    uint64_t packed = (uint64_t)in->immediate;
    return (struct matrix_shape){.m = packed & 63, .n = packed >> 6 & 63, .k = packed >> 12 & 63};
}

uint64_t matrix_packed(struct matrix_shape shape, unsigned flags)
{
    return shape.m | (uint64_t)shape.n << 6 | (uint64_t)shape.k << 12 | (uint64_t)flags << 18;
}

static unsigned flags_of(const struct insn *in)
{
    return (unsigned)((uint64_t)in->immediate >> 18);
}

unsigned matrix_elements(struct matrix_shape shape, enum matrix_part part, enum matrix_type type, bool is_wmma)
{
    if (is_wmma && type == MATRIX_F16 && part != PART_C)
        return 16; /* whatever the shape: elements are there more than once */
    unsigned all = part == PART_A ? shape.m * shape.k : part == PART_B ? shape.k * shape.n : shape.m * shape.n;
    return all / LANES;
}

/* Where an element of a lane's fragment is in the matrix, row by row. For mma as PTX defines it; wmma's fragments have an
 * order that PTX leaves open, here the plain one. */
static uint32_t position(struct matrix_shape s, enum matrix_part part, unsigned bits, unsigned flags, uint32_t lane,
                         uint32_t index)
{
    uint32_t group = lane / 4, thread = lane % 4, each = bits >= 32 ? 1 : 32 / bits;
    uint32_t columns = part == PART_A ? s.k : s.n;
    if (flags & MATRIX_WMMA) {
        uint32_t all = part == PART_A ? s.m * s.k : part == PART_B ? s.k * s.n : s.m * s.n;
        return (lane * matrix_elements(s, part, bits == 16 ? MATRIX_F16 : MATRIX_F32, flags & MATRIX_DOUBLED) + index) %
               all;
    }
    if (part == PART_C)
        return (group + 8 * (index / 2)) * columns + thread * 2 + index % 2;
    uint32_t at = index / each, inner = thread * each + index % each;
    if (part == PART_B)
        return (inner + at * 4 * each) * columns + group;
    return (group + 8 * (at % 2)) * columns + inner + at / 2 * 4 * each;
}

static float float_of(enum matrix_type type, uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float number;
    switch (type) {
    case MATRIX_F16:
        return f16_float((uint16_t)bits);
    case MATRIX_BF16:
        return bf16_float((uint16_t)bits);
    case MATRIX_E4M3:
        return e4m3_float((uint8_t)bits);
    case MATRIX_E5M2:
        return f16_float((uint16_t)(bits << 8));
    case MATRIX_TF32:
        low &= ~0x1fffu; /* the bits that tf32 does not have are not looked at */
        break;
    default:
        break;
    }
    memcpy(&number, &low, 4);
    return number;
}

struct product { /* what a multiplication works on; the widest of its three kinds of number decides the room */
    union {
        float f[ELEMENTS];
        int32_t i[ELEMENTS];
        double d[ELEMENTS];
    } a, b;
    union {
        float f[SUMS];
        int64_t i[SUMS];
        double d[SUMS];
    } c;
};

#define MULTIPLY(name, field, FMA, ...) \
    __VA_ARGS__ static void name(struct product *p, struct matrix_shape s) \
    { \
        for (uint32_t row = 0; row < s.m; row++) \
            for (uint32_t k = 0; k < s.k; k++) \
                for (uint32_t column = 0; column < s.n; column++) \
                    p->c.field[row * s.n + column] = \
                        FMA(p->a.field[row * s.k + k], p->b.field[k * s.n + column], p->c.field[row * s.n + column]); \
    }
#define INTEGER_FMA(x, y, z) ((int64_t)(x) * (y) + (z))
MULTIPLY(multiply_f32, f, fmaf, )
MULTIPLY(multiply_f64, d, fma, )
MULTIPLY(multiply_s32, i, INTEGER_FMA, )
#if defined(__x86_64__)
MULTIPLY(multiply_f32_fast, f, __builtin_fmaf, __attribute__((target("avx2,fma"))))
#endif

static void multiply(struct product *p, struct matrix_shape s, enum matrix_type type)
{
    if (type == MATRIX_F64) {
        multiply_f64(p, s);
        return;
    }
    if (type == MATRIX_S8 || type == MATRIX_U8) {
        multiply_s32(p, s);
        return;
    }
#if defined(__x86_64__)
    if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2")) {
        multiply_f32_fast(p, s);
        return;
    }
#endif
    multiply_f32(p, s);
}

static void read_source(struct warp *w, const struct insn *in, enum matrix_part part, enum matrix_type type,
                        struct product *p)
{
    struct matrix_shape s = shape_of(in);
    unsigned flags = flags_of(in), bits = matrix_bits(type);
    unsigned count = matrix_elements(s, part, type, flags & MATRIX_WMMA);
    uint32_t base = part == PART_A ? in->a : in->b;
    flags |= count == 16 && bits == 16 && (flags & MATRIX_WMMA) ? MATRIX_DOUBLED : 0;
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t i = 0; i < count; i++) {
            uint64_t value = element(w, base, bits, lane, i);
            uint32_t at = position(s, part, bits, flags, lane, i);
            if (type == MATRIX_F64)
                memcpy(part == PART_A ? &p->a.d[at] : &p->b.d[at], &value, 8);
            else if (type == MATRIX_S8 || type == MATRIX_U8)
                (part == PART_A ? p->a.i : p->b.i)[at] = type == MATRIX_S8 ? (int8_t)value : (int32_t)value;
            else
                (part == PART_A ? p->a.f : p->b.f)[at] = float_of(type, value);
        }
}

static void read_sums(struct warp *w, const struct insn *in, enum matrix_type type, struct product *p)
{
    struct matrix_shape s = shape_of(in);
    unsigned flags = flags_of(in), bits = matrix_bits(type), count = s.m * s.n / LANES;
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t i = 0; i < count; i++) {
            uint64_t value = element(w, in->c, bits, lane, i);
            uint32_t at = position(s, PART_C, bits, flags, lane, i);
            if (type == MATRIX_F64)
                memcpy(&p->c.d[at], &value, 8);
            else if (type == MATRIX_S32)
                p->c.i[at] = (int32_t)value;
            else
                p->c.f[at] = float_of(type, value);
        }
}

static uint64_t sum_bits(const struct product *p, enum matrix_type type, uint32_t at, bool saturate)
{
    uint64_t value = 0;
    if (type == MATRIX_F64)
        memcpy(&value, &p->c.d[at], 8);
    else if (type == MATRIX_F32)
        memcpy(&value, &p->c.f[at], 4);
    else if (type == MATRIX_F16)
        value = f16_of((double)p->c.f[at]);
    else
        value = (uint64_t)(!saturate                ? p->c.i[at]
                           : p->c.i[at] > INT32_MAX ? INT32_MAX
                           : p->c.i[at] < INT32_MIN ? INT32_MIN
                                                    : p->c.i[at]);
    return value;
}

/* d = a * b + c of a whole warp; all four are blocks of registers. mode: types of a and b; count: of c and d. */
void step_matrix_multiply(struct warp *w, const struct insn *in, uint32_t m)
{
    uint32_t members, group;
    while ((group = warp_gather(w, &m, in->e, &members))) {
        struct product p;
        struct matrix_shape s = shape_of(in);
        enum matrix_type a = in->mode & 15, b = in->mode >> 4, c = in->count & 15, d = in->count >> 4;
        memset(&p, 0, sizeof p);
        read_source(w, in, PART_A, a, &p);
        read_source(w, in, PART_B, b, &p);
        read_sums(w, in, c, &p);
        multiply(&p, s, a);
        unsigned bits = matrix_bits(d), flags = flags_of(in), count = s.m * s.n / LANES;
        for (uint32_t left = group; left; left &= left - 1) {
            uint32_t lane = (uint32_t)__builtin_ctz(left);
            for (uint32_t i = 0; i < count; i++)
                set_element(w, in->d, bits, lane, i,
                            sum_bits(&p, d, position(s, PART_C, bits, flags, lane, i), flags & MATRIX_SATURATE));
        }
    }
    w->forced = false;
}

static char *reached(struct warp *w, const struct insn *in, uint32_t lane, uint64_t address, unsigned bytes, bool write)
{
    if (address % bytes) {
        run_fault(w, CUDA_ERROR_MISALIGNED_ADDRESS);
        return NULL;
    }
    char *at = in->space == SPACE_GLOBAL   ? access_global(w, in, address, bytes, write)
               : in->space == SPACE_SHARED ? access_in(w->run->shared, w->run->shared_bytes, address, bytes)
                                           : access_generic(w, in, lane, address, bytes, write);
    if (!at)
        run_fault(w, CUDA_ERROR_ILLEGAL_ADDRESS);
    return at;
}

static uint64_t base_address(struct warp *w, const struct insn *in, uint32_t lane)
{
    return in->narrow ? REG(uint32_t, in->a)[lane] : REG(uint64_t, in->a)[lane];
}

/* wmma.load and wmma.store: the fragment is the block in d, the stride in elements is in b. mode: type; count: part. */
static void move_fragment(struct warp *w, const struct insn *in, uint32_t group, bool is_store)
{
    struct matrix_shape s = shape_of(in);
    enum matrix_type type = in->mode;
    enum matrix_part part = in->count;
    unsigned bits = matrix_bits(type), bytes = bits / 8, flags = flags_of(in);
    unsigned count = matrix_elements(s, part, type, true);
    uint32_t columns = part == PART_A ? s.k : s.n;
    flags |= count == 16 && bits == 16 ? MATRIX_DOUBLED : 0;
    for (uint32_t left = group; left; left &= left - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(left);
        uint64_t stride = REG(uint32_t, in->b)[lane], base = base_address(w, in, lane);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t at = position(s, part, bits, flags, lane, i);
            uint64_t row = at / columns, column = at % columns;
            uint64_t offset = flags & MATRIX_BY_COLUMN ? column * stride + row : row * stride + column;
            char *place = reached(w, in, lane, base + offset * bytes, bytes, is_store);
            uint64_t value = 0;
            if (!place)
                return;
            if (is_store) {
                value = element(w, in->d, bits, lane, i);
                memcpy(place, &value, bytes);
            } else {
                memcpy(&value, place, bytes);
                set_element(w, in->d, bits, lane, i, value);
            }
        }
    }
}

void step_matrix_load(struct warp *w, const struct insn *in, uint32_t m)
{
    uint32_t members, group;
    while ((group = warp_gather(w, &m, in->e, &members)))
        move_fragment(w, in, group, false);
    w->forced = false;
}

void step_matrix_store(struct warp *w, const struct insn *in, uint32_t m)
{
    uint32_t members, group;
    while ((group = warp_gather(w, &m, in->e, &members)))
        move_fragment(w, in, group, true);
    w->forced = false;
}

/* Lane l has elements 2 (l % 4) and the next of row l / 4 of an 8 x 8 matrix of b16; transposed, of that column. */
static uint32_t pair_place(uint32_t lane, uint32_t half, bool transposed)
{
    uint32_t row = lane / 4, column = lane % 4 * 2 + half;
    return transposed ? column * 8 + row : row * 8 + column;
}

/* ldmatrix and stmatrix: lane 8 i + r has the address of row r of matrix i; `count` matrices, the block in d. */
static void move_rows(struct warp *w, const struct insn *in, uint32_t group, bool is_store)
{
    bool transposed = in->mode & MATRIX_TRANSPOSED;
    for (uint32_t matrix = 0; matrix < in->count; matrix++) {
        uint16_t *words = REG(uint16_t, in->d + matrix * 4 * LANES), numbers[64];
        for (uint32_t lane = 0; lane < LANES && is_store; lane++)
            for (uint32_t half = 0; half < 2; half++)
                numbers[pair_place(lane, half, transposed)] = words[2 * lane + half];
        for (uint32_t row = 0; row < 8; row++) {
            uint32_t from = matrix * 8 + row;
            char *at = reached(w, in, from, base_address(w, in, from), 16, is_store);
            if (!at)
                return;
            if (is_store)
                memcpy(at, numbers + row * 8, 16);
            else
                memcpy(numbers + row * 8, at, 16);
        }
        if (!is_store)
            EACH(group, words[2 * l] = numbers[pair_place(l, 0, transposed)];
                 words[2 * l + 1] = numbers[pair_place(l, 1, transposed)]);
    }
}

void step_matrix_rows(struct warp *w, const struct insn *in, uint32_t m)
{
    uint32_t members, group;
    while ((group = warp_gather(w, &m, in->e, &members)))
        move_rows(w, in, group, in->mode & MATRIX_IS_STORE);
    w->forced = false;
}

/* movmatrix: the matrix of 8 x 8, transposed. */
void step_matrix_transpose(struct warp *w, const struct insn *in, uint32_t m)
{
    uint32_t members, group;
    while ((group = warp_gather(w, &m, in->e, &members))) {
        uint16_t numbers[64], *d = REG(uint16_t, in->d);
        const uint16_t *a = REG(uint16_t, in->a);
        for (uint32_t i = 0; i < 64; i++)
            numbers[pair_place(i / 2, i % 2, false)] = a[i];
        EACH(group, d[2 * l] = numbers[pair_place(l, 0, true)]; d[2 * l + 1] = numbers[pair_place(l, 1, true)]);
    }
    w->forced = false;
}
