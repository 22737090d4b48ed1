/* Instructions on f16 and bf16: which flags each operation has, comparisons of pairs, conversions into pairs. */
#include <string.h>

#include "device/ptx/build.h"

struct half_type {
    const char *name;
    bool is_bf16;
    uint8_t count;
};
static const struct half_type TYPES[] = {
    {"f16", false, 1}, {"f16x2", false, 2}, {"bf16", true, 1}, {"bf16x2", true, 2}};

static const struct half_type *half_type(const char *name)
{
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++)
        if (strcmp(TYPES[i].name, name) == 0)
            return &TYPES[i];
    return NULL;
}

struct half_row {
    const char *name;
    enum half_operation operation;
    unsigned sources;
    unsigned flags; /* that it may have */
};
static const struct half_row ROWS[] = {
    {"add", HALF_ADD, 2, HALF_FTZ | HALF_SAT},
    {"sub", HALF_SUB, 2, HALF_FTZ | HALF_SAT},
    {"mul", HALF_MUL, 2, HALF_FTZ | HALF_SAT},
    {"fma", HALF_FMA, 3, HALF_FTZ | HALF_SAT | HALF_RELU},
    {"min", HALF_MIN, 2, HALF_FTZ | HALF_NAN_WINS | HALF_XORSIGN},
    {"max", HALF_MAX, 2, HALF_FTZ | HALF_NAN_WINS | HALF_XORSIGN},
    {"neg", HALF_NEG, 1, HALF_FTZ},
    {"abs", HALF_ABS, 1, HALF_FTZ},
    {"ex2", HALF_EX2, 1, HALF_FTZ},
    {"tanh", HALF_TANH, 1, 0},
};

static unsigned take_flags(struct words *words)
{
    unsigned flags = 0;
    flags |= words_take(words, "ftz") ? HALF_FTZ : 0;
    flags |= words_take(words, "sat") ? HALF_SAT : 0;
    flags |= words_take(words, "relu") ? HALF_RELU : 0;
    flags |= words_take(words, "NaN") ? HALF_NAN_WINS : 0;
    flags |= words_take(words, "xorsign") && words_take(words, "abs") ? HALF_XORSIGN : 0;
    return flags;
}

static bool lower_arithmetic(struct build *b, struct words *words, const struct half_type *type)
{
    const struct half_row *row = NULL;
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
        if (strcmp(ROWS[i].name, words->part[0]) == 0)
            row = &ROWS[i];
    if (!row)
        return false;
    unsigned flags = take_flags(words);
    bool approximates = row->operation == HALF_EX2 || row->operation == HALF_TANH;
    if (approximates ? !words_take(words, "approx") : false)
        return false;
    if (row->operation <= HALF_FMA)
        words_take(words, "rn");
    if (words->count != 2 || (flags & ~row->flags))
        return false;
    char shape = type->count == 2 ? '4' : '2';
    struct insn made = {.d = operand_destination(b, shape)};
    uint32_t *const sources[] = {&made.a, &made.b, &made.c};
    for (unsigned i = 0; i < row->sources; i++) {
        expect(b, ",");
        *sources[i] = operand(b, shape);
    }
    struct insn *in = emit(b, half_step(row->operation, type->is_bf16));
    in->d = made.d, in->a = made.a, in->b = made.b, in->c = made.c;
    in->mode = (uint8_t)flags;
    in->count = type->count;
    return true;
}

/* The comparison that a word of the mnemonic names, with its flags; false: there is none. */
static bool take_comparison(struct words *words, const struct half_type *type, uint8_t *mode)
{
    static const char *const NAMES[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                        "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
    unsigned found = type->is_bf16 ? HALF_COMPARE_BF16 : 0;
    found |= words_take(words, "ftz") ? HALF_COMPARE_FTZ : 0;
    for (unsigned i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (words_take(words, NAMES[i])) {
            *mode = (uint8_t)(found | i);
            return true;
        }
    return false;
}

/* setp.lt{.and}.f16x2 p|q, a, b{, c}: p of the low numbers, q of the high ones */
static bool lower_setp2(struct build *b, struct words *words, const struct half_type *type)
{
    static const char *const COMBINE[] = {"and", "or", "xor"};
    static const char *const ROW[] = {"and.pred", "or.pred", "xor.pred"};
    const char *combine = NULL;
    uint8_t mode;
    for (int i = 0; i < 3; i++)
        if (words_take(words, COMBINE[i]))
            combine = ROW[i];
    if (!take_comparison(words, type, &mode) || words->count != 2)
        return false;
    uint32_t p = operand_destination(b, '1');
    expect(b, "|");
    uint32_t q = operand_destination(b, '1'), c = 0;
    expect(b, ",");
    uint32_t x = operand(b, '4');
    expect(b, ",");
    uint32_t y = operand(b, '4');
    if (combine)
        expect(b, ","), c = operand(b, '1');
    uint32_t low = combine ? slot_new(b, 0) : p, high = combine ? slot_new(b, 0) : q;
    struct insn *in = emit(b, step_half_setp2);
    in->d = low, in->e = high, in->a = x, in->b = y;
    in->mode = mode;
    if (!combine)
        return true;
    /* c may be p itself: the high result first, unless c is q, through registers of our own. */
    const uint32_t pairs[2] = {low, high};
    for (int i = 0; i < 2; i++) {
        in = emit_row(b, combine);
        in->d = in->a = pairs[i], in->b = c;
    }
    for (int i = 0; i < 2; i++) {
        in = emit_row(b, "mov.pred");
        in->d = i ? q : p, in->a = in->b = pairs[i];
    }
    return true;
}

/* set.lt.f16x2.f16x2, set.lt.u32.f16x2 (a mask for each half), set.lt.u32.f16, set.lt.f16.f16 and the like */
static bool lower_set(struct build *b, struct words *words, const struct half_type *from)
{
    uint8_t mode;
    if (!take_comparison(words, from, &mode) || words->count != 3)
        return false;
    const char *to = words->part[1];
    const struct half_type *half = half_type(to);
    bool word = strcmp(to, "u32") == 0 || strcmp(to, "s32") == 0;
    bool narrow = strcmp(to, "u16") == 0 || strcmp(to, "s16") == 0;
    if (half ? half->count != from->count : from->count == 2 ? !word : !word && !narrow)
        return false;
    bool wide = from->count == 2 || word;
    uint32_t d = operand_destination(b, wide ? '4' : '2');
    expect(b, ",");
    uint32_t x = operand(b, from->count == 2 ? '4' : '2');
    expect(b, ",");
    uint32_t y = operand(b, from->count == 2 ? '4' : '2');
    struct insn *in = emit(b, step_half_set);
    in->d = d, in->a = x, in->b = y;
    in->mode = mode;
    in->count = from->count;
    in->to_bytes = wide ? 4 : 2;
    in->immediate = half ? (half->is_bf16 ? HALF_BF16_ONE : HALF_F16_ONE) : 0xffffffff;
    return true;
}

/* cvt.rn{.relu}.f16x2.f32 d, a, b and cvt.rna.tf32.f32 d, a */
static bool lower_pack(struct build *b, struct words *words)
{
    bool relu = words_take(words, "relu"), zero = words_take(words, "rz");
    if (words_take(words, "rna")) {
        if (relu || zero || words->count != 3 || strcmp(words->part[1], "tf32") != 0)
            return false;
        uint32_t d = operand_destination(b, '4');
        expect(b, ",");
        uint32_t a = operand(b, 'f');
        struct insn *in = emit(b, step_convert_tf32);
        in->d = d, in->a = a;
        return true;
    }
    const struct half_type *to = words->count >= 3 ? half_type(words->part[words->count - 2]) : NULL;
    if (!to || to->count != 2 || (!zero && !words_take(words, "rn")) || words->count != 3)
        return false;
    uint32_t d = operand_destination(b, '4');
    expect(b, ",");
    uint32_t high = operand(b, 'f');
    expect(b, ",");
    uint32_t low = operand(b, 'f');
    struct insn *in = emit(b, step_half_pack);
    in->d = d, in->a = high, in->b = low;
    in->mode =
        (uint8_t)((to->is_bf16 ? HALF_PACK_BF16 : 0) | (relu ? HALF_PACK_RELU : 0) | (zero ? HALF_PACK_ZERO : 0));
    return true;
}

bool lower_half(struct build *b, struct words *words)
{
    const char *base = words->part[0], *last = words->part[words->count - 1];
    const struct half_type *type = half_type(last);
    bool packs = false;
    for (unsigned i = 1; i < words->count; i++)
        packs = packs || strcmp(words->part[i], "f16x2") == 0 || strcmp(words->part[i], "bf16x2") == 0 ||
                strcmp(words->part[i], "tf32") == 0;
    if (strcmp(base, "cvt") == 0 && packs && strcmp(last, "f32") == 0)
        return lower_pack(b, words);
    if (!type)
        return false;
    if (strcmp(base, "setp") == 0)
        return type->count == 2 && lower_setp2(b, words, type);
    if (strcmp(base, "set") == 0)
        return lower_set(b, words, type);
    return lower_arithmetic(b, words, type);
}
