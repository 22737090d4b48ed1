/* Matrix instructions: their fragments are copied into neighbouring registers, worked on there, and copied out. */
#include <stdio.h>
#include <string.h>

#include "device/ptx/build.h"

enum { FRAGMENT_ROOM = 16 };

struct fragment_list {
    uint32_t slots[FRAGMENT_ROOM];
    unsigned count;
};

/* {%r1, %r2} or a single register: exactly `count` of `bytes` each */
static struct fragment_list fragment(struct build *b, unsigned count, uint32_t bytes, bool is_destination)
{
    struct fragment_list list = {.count = count};
    bool braces = accept(b, "{");
    if (count > FRAGMENT_ROOM || (!braces && count != 1))
        refuse(b, "a fragment of %u registers was expected", count);
    for (unsigned i = 0; i < count; i++) {
        if (i)
            expect(b, ",");
        char shape = bytes == 8 ? '8' : '4';
        list.slots[i] = is_destination ? operand_destination(b, shape) : operand(b, shape);
    }
    if (braces)
        expect(b, "}");
    return list;
}

/* New registers that lie behind one another: nothing but these is placed meanwhile. */
static uint32_t block(struct build *b, unsigned count, uint32_t bytes)
{
    uint32_t first = slot_new(b, bytes);
    for (unsigned i = 1; i < count; i++)
        slot_new(b, bytes);
    return first;
}

static uint32_t copied_in(struct build *b, const struct fragment_list *list, uint32_t bytes)
{
    uint32_t base = block(b, list->count, bytes);
    for (unsigned i = 0; i < list->count; i++) {
        struct insn *in = emit_row(b, bytes == 8 ? "mov.b64" : "mov.b32");
        in->d = base + i * bytes * LANES, in->a = list->slots[i];
    }
    return base;
}

static void copied_out(struct build *b, const struct fragment_list *list, uint32_t base, uint32_t bytes)
{
    for (unsigned i = 0; i < list->count; i++) {
        struct insn *in = emit_row(b, bytes == 8 ? "mov.b64" : "mov.b32");
        in->d = list->slots[i], in->a = base + i * bytes * LANES;
    }
}

struct type_name {
    const char *name;
    enum matrix_type type;
};
static const struct type_name TYPES[] = {
    {"f16", MATRIX_F16}, {"bf16", MATRIX_BF16}, {"tf32", MATRIX_TF32}, {"s8", MATRIX_S8},   {"u8", MATRIX_U8},
    {"f64", MATRIX_F64}, {"e4m3", MATRIX_E4M3}, {"e5m2", MATRIX_E5M2}, {"f32", MATRIX_F32}, {"s32", MATRIX_S32}};

static bool matrix_type(const char *name, enum matrix_type *type)
{
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++)
        if (strcmp(TYPES[i].name, name) == 0) {
            *type = TYPES[i].type;
            return true;
        }
    return false;
}

struct shape_row {
    const char *name;
    struct matrix_shape shape;
    unsigned types; /* of a and b, as bits */
    bool is_wmma;
};
#define OF(type) (1u << (type))
#define HALVES (OF(MATRIX_F16) | OF(MATRIX_BF16))
#define BYTES (OF(MATRIX_S8) | OF(MATRIX_U8))
static const struct shape_row SHAPES[] = {
    {"m16n8k16", {16, 8, 16}, HALVES | BYTES, false},
    {"m16n8k8", {16, 8, 8}, HALVES | OF(MATRIX_TF32), false},
    {"m16n8k4", {16, 8, 4}, OF(MATRIX_TF32), false},
    {"m16n8k32", {16, 8, 32}, BYTES | OF(MATRIX_E4M3) | OF(MATRIX_E5M2), false},
    {"m8n8k16", {8, 8, 16}, BYTES, false},
    {"m8n8k4", {8, 8, 4}, OF(MATRIX_F64), false},
    {"m16n16k16", {16, 16, 16}, HALVES | BYTES, true},
    {"m8n32k16", {8, 32, 16}, HALVES | BYTES, true},
    {"m32n8k16", {32, 8, 16}, HALVES | BYTES, true},
    {"m16n16k8", {16, 16, 8}, OF(MATRIX_TF32), true},
    {"m8n8k4", {8, 8, 4}, OF(MATRIX_F64), true},
};

static const struct shape_row *take_shape(struct words *words, bool is_wmma)
{
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++)
        if (SHAPES[i].is_wmma == is_wmma && words_take(words, SHAPES[i].name))
            return &SHAPES[i];
    return NULL;
}

/* What is summed up for factors of a type. */
static bool sums_fit(enum matrix_type factor, enum matrix_type sum)
{
    switch (factor) {
    case MATRIX_F64:
        return sum == MATRIX_F64;
    case MATRIX_S8:
    case MATRIX_U8:
        return sum == MATRIX_S32;
    case MATRIX_F16:
    case MATRIX_E4M3:
    case MATRIX_E5M2:
        return sum == MATRIX_F32 || sum == MATRIX_F16;
    default:
        return sum == MATRIX_F32;
    }
}

struct types {
    enum matrix_type d, a, b, c;
};

/* The types at the mnemonic's end: d a b c, or d c of wmma on f16. */
static bool take_types(const struct words *words, bool is_wmma, struct types *types)
{
    const char *const *part = words->part + 1;
    types->a = types->b = MATRIX_F16;
    if (words->count == 3 && is_wmma)
        return matrix_type(part[0], &types->d) && matrix_type(part[1], &types->c);
    return words->count == 5 && matrix_type(part[0], &types->d) && matrix_type(part[1], &types->a) &&
           matrix_type(part[2], &types->b) && matrix_type(part[3], &types->c);
}

static unsigned registers(struct matrix_shape shape, enum matrix_part part, enum matrix_type type, bool is_wmma)
{
    unsigned bits = matrix_bits(type);
    return matrix_elements(shape, part, type, is_wmma) * bits / (bits == 64 ? 64 : 32);
}

/* (w)mma.sync.aligned.m16n8k16.row.col{.satfinite}.f32.f16.f16.f32 d, a, b, c */
static bool lower_multiply(struct build *b, struct words *words, bool is_wmma)
{
    const struct shape_row *row = take_shape(words, is_wmma);
    bool rows = words_take(words, "row"), columns = words_take(words, "col");
    unsigned flags = (words_take(words, "satfinite") ? MATRIX_SATURATE : 0) | (is_wmma ? MATRIX_WMMA : 0);
    struct types t;
    while (is_wmma && (words_take(words, "row") || words_take(words, "col")))
        continue;
    words_take(words, "rn");
    if (!row || !(is_wmma ? rows || columns : rows && columns) || !take_types(words, is_wmma, &t))
        return false;
    bool bytes8 = t.a == MATRIX_F64, integers = t.a == MATRIX_S8 || t.a == MATRIX_U8;
    bool small = t.a == MATRIX_E4M3 || t.a == MATRIX_E5M2;
    bool alike = t.a == t.b || (integers && (t.b == MATRIX_S8 || t.b == MATRIX_U8)) ||
                 (small && (t.b == MATRIX_E4M3 || t.b == MATRIX_E5M2));
    if (!(row->types & OF(t.a)) || !alike || !sums_fit(t.a, t.c) || !sums_fit(t.a, t.d) ||
        ((flags & MATRIX_SATURATE) && !integers))
        return false;
    uint32_t bytes = bytes8 ? 8 : 4;
    struct fragment_list d = fragment(b, registers(row->shape, PART_C, t.d, is_wmma), bytes, true);
    expect(b, ",");
    struct fragment_list a = fragment(b, registers(row->shape, PART_A, t.a, is_wmma), bytes, false);
    expect(b, ",");
    struct fragment_list f = fragment(b, registers(row->shape, PART_B, t.b, is_wmma), bytes, false);
    expect(b, ",");
    struct fragment_list c = fragment(b, registers(row->shape, PART_C, t.c, is_wmma), bytes, false);
    uint32_t at_a = copied_in(b, &a, bytes), at_b = copied_in(b, &f, bytes), at_c = copied_in(b, &c, bytes);
    uint32_t at_d = block(b, d.count, bytes), members = slot_constant(b, ALL_LANES, 4);
    struct insn *in = emit(b, step_matrix_multiply);
    in->d = at_d, in->a = at_a, in->b = at_b, in->c = at_c, in->e = members;
    in->mode = (uint8_t)(t.a | t.b << 4);
    in->count = (uint8_t)(t.c | t.d << 4);
    in->immediate = (int64_t)matrix_packed(row->shape, flags);
    copied_out(b, &d, at_d, bytes);
    return true;
}

static bool take_part(struct words *words, bool is_store, enum matrix_part *part)
{
    *part = words_take(words, "a") ? PART_A : words_take(words, "b") ? PART_B : PART_C;
    return is_store ? words_take(words, "d") : *part != PART_C || words_take(words, "c");
}

static enum space take_space(struct words *words)
{
    if (words_take(words, "global"))
        return SPACE_GLOBAL;
    return words_take(words, "shared") || words_take(words, "shared::cta") ? SPACE_SHARED : SPACE_GENERIC;
}

/* The offset is added by an instruction of its own: the matrix steps have another use for `immediate`. */
static void add_offset(struct build *b, struct address *address)
{
    if (!address->offset)
        return;
    uint32_t bytes = address->narrow ? 4 : 8, sum = slot_new(b, bytes);
    uint32_t offset = slot_constant(b, (uint64_t)address->offset & (bytes == 4 ? 0xffffffffu : ~(uint64_t)0), bytes);
    struct insn *in = emit_row(b, bytes == 8 ? "add.u64" : "add.u32");
    in->d = sum, in->a = address->base, in->b = offset;
    address->base = sum;
}

/* wmma.load.a.sync.aligned.row.m16n16k16{.global}.f16 {...}, [p]{, stride}; wmma.store.d ... [p], {...}{, stride} */
static bool lower_transfer(struct build *b, struct words *words, bool is_store)
{
    enum matrix_part part;
    enum matrix_type type;
    const struct shape_row *row = take_shape(words, true);
    enum space space = take_space(words);
    bool by_column = words_take(words, "col"), by_row = words_take(words, "row");
    if (!row || by_column == by_row || !take_part(words, is_store, &part) || words->count != 2 ||
        !matrix_type(words->part[1], &type))
        return false;
    bool is_sum = type == MATRIX_F32 || type == MATRIX_S32 || type == MATRIX_F16 || type == MATRIX_F64;
    bool f64 = row->types == OF(MATRIX_F64);
    if (part == PART_C ? !is_sum || f64 != (type == MATRIX_F64) : !(row->types & OF(type)))
        return false;
    uint32_t bytes = type == MATRIX_F64 ? 8 : 4;
    unsigned count = registers(row->shape, part, type, true);
    struct fragment_list list = {.count = 0};
    struct address address = {.base = 0};
    if (is_store)
        address = operand_address(b), expect(b, ",");
    list = fragment(b, count, bytes, !is_store);
    if (!is_store)
        expect(b, ","), address = operand_address(b);
    uint32_t lines = part == PART_B ? row->shape.k : row->shape.m,
             columns = part == PART_A ? row->shape.k : row->shape.n;
    uint32_t stride = accept(b, ",") ? operand(b, '4') : slot_constant(b, by_column ? lines : columns, 4);
    add_offset(b, &address);
    uint32_t base = is_store ? copied_in(b, &list, bytes) : block(b, count, bytes);
    uint32_t members = slot_constant(b, ALL_LANES, 4);
    struct insn *in = emit(b, is_store ? step_matrix_store : step_matrix_load);
    in->d = base, in->b = stride, in->e = members;
    in->mode = (uint8_t)type;
    in->count = (uint8_t)part;
    address_set(b, in, address, space);
    in->immediate = (int64_t)matrix_packed(row->shape, MATRIX_WMMA | (by_column ? MATRIX_BY_COLUMN : 0));
    if (!is_store)
        copied_out(b, &list, base, bytes);
    return true;
}

/* ldmatrix.sync.aligned.m8n8.x4{.trans}{.shared}.b16 {...}, [p]; stmatrix ... [p], {...} */
static bool lower_rows(struct build *b, struct words *words, bool is_store)
{
    unsigned count = words_take(words, "x4") ? 4 : words_take(words, "x2") ? 2 : words_take(words, "x1") ? 1 : 0;
    bool transposed = words_take(words, "trans"), good = words_take(words, "m8n8") && words_take(words, "b16");
    enum space space = take_space(words);
    if (!count || !good || space == SPACE_GLOBAL || words->count != 1)
        return false;
    struct address address = {.base = 0};
    if (is_store)
        address = operand_address(b), expect(b, ",");
    struct fragment_list list = fragment(b, count, 4, !is_store);
    if (!is_store)
        expect(b, ","), address = operand_address(b);
    add_offset(b, &address);
    uint32_t base = is_store ? copied_in(b, &list, 4) : block(b, count, 4);
    uint32_t members = slot_constant(b, ALL_LANES, 4);
    struct insn *in = emit(b, step_matrix_rows);
    in->d = base, in->e = members;
    in->mode = (uint8_t)((transposed ? MATRIX_TRANSPOSED : 0) | (is_store ? MATRIX_IS_STORE : 0));
    in->count = (uint8_t)count;
    address_set(b, in, address, space);
    if (!is_store)
        copied_out(b, &list, base, 4);
    return true;
}

bool lower_matrix(struct build *b, struct words *words)
{
    const char *base = words->part[0];
    bool wmma = strcmp(base, "wmma") == 0, mma = strcmp(base, "mma") == 0, move = strcmp(base, "movmatrix") == 0;
    bool load = strcmp(base, "ldmatrix") == 0, store = strcmp(base, "stmatrix") == 0;
    if ((!wmma && !mma && !move && !load && !store) || !words_take(words, "sync") || !words_take(words, "aligned"))
        return false;
    if (load || store)
        return lower_rows(b, words, store);
    if (mma)
        return lower_multiply(b, words, false);
    if (wmma && words_take(words, "mma"))
        return lower_multiply(b, words, true);
    if (wmma && words_take(words, "load"))
        return lower_transfer(b, words, false);
    if (wmma)
        return words_take(words, "store") && lower_transfer(b, words, true);
    if (!words_take(words, "m8n8") || !words_take(words, "trans") || !words_take(words, "b16") || words->count != 1)
        return false;
    uint32_t d = operand_destination(b, '4');
    expect(b, ",");
    uint32_t a = operand(b, '4'), members = slot_constant(b, ALL_LANES, 4);
    struct insn *in = emit(b, step_matrix_transpose);
    in->d = d, in->a = a, in->e = members;
    return true;
}
