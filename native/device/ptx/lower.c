/* One instruction: by the table where the mnemonic says all, by hand where operands or modifiers need more. */
#include "device/ptx/build.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TABLE_ROOM = 2048 };
static const struct op_row *table[TABLE_ROOM];
static size_t table_count;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int by_name(const void *x, const void *y)
{
    return strcmp((*(const struct op_row *const *)x)->name, (*(const struct op_row *const *)y)->name);
}

static void sort_table(void)
{
    const struct op_table *const all[] = {&OPS_INTEGER, &OPS_BITS, &OPS_FLOAT, &OPS_COMPARE,
                                          &OPS_WARP,    &OPS_HALF, &OPS_PACKED};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (size_t j = 0; j < all[i]->count && table_count < TABLE_ROOM; j++)
            table[table_count++] = &all[i]->rows[j];
    qsort(table, table_count, sizeof *table, by_name);
}

const struct op_row *op_named(const char *name)
{
    struct op_row wanted = {.name = name};
    const struct op_row *key = &wanted;
    pthread_once(&once, sort_table);
    const struct op_row **found = bsearch(&key, table, table_count, sizeof *table, by_name);
    return found ? *found : NULL;
}

static struct words split(struct build *b, const struct token *mnemonic, struct words *words)
{
    if (mnemonic->length >= sizeof words->text)
        refuse(b, "the instruction '%.80s' is not known to this device", mnemonic->at);
    memcpy(words->text, mnemonic->at, mnemonic->length);
    words->text[mnemonic->length] = '\0';
    words->count = 0;
    for (char *at = words->text; at && words->count < 16;) {
        words->part[words->count++] = at;
        if ((at = strchr(at, '.')))
            *at++ = '\0';
    }
    return *words;
}

bool words_take(struct words *words, const char *part)
{
    for (unsigned i = 1; i < words->count; i++)
        if (strcmp(words->part[i], part) == 0) {
            memmove(&words->part[i], &words->part[i + 1], (words->count - i - 1) * sizeof *words->part);
            words->count--;
            return true;
        }
    return false;
}

static void join(const struct words *words, char *name, size_t room)
{
    size_t used = 0;
    name[0] = '\0';
    for (unsigned i = 0; i < words->count && used < room; i++)
        used += (size_t)snprintf(name + used, room - used, "%s%s", i ? "." : "", words->part[i]);
}

static void lower_row(struct build *b, const struct op_row *row)
{
    struct insn made = {.run = row->run, .mode = row->mode};
    uint32_t *const fields[] = {&made.d, &made.a, &made.b, &made.c, &made.e};
    unsigned field = 0;
    for (const char *shape = row->shape; *shape; shape++, field++) {
        if (*shape == 'K') {
            if (!b->carry)
                b->carry = slot_new(b, 0);
            made.e = b->carry;
            break;
        }
        if (shape != row->shape)
            expect(b, ",");
        if (*shape == 'i')
            made.immediate = (int64_t)expect_count(b);
        else
            *fields[field] = field == 0 ? operand_destination(b, *shape) : operand(b, *shape);
    }
    struct insn *in = emit(b, made.run);
    made.guard = in->guard;
    made.guard_not = in->guard_not;
    *in = made;
}

/* setp.lt{.and}.s32 p|q, a, b{, c}: p = (a < b) and c; q = not (a < b) and c */
static bool lower_setp(struct build *b, struct words *words)
{
    static const char *const COMBINE[] = {"and", "or", "xor"};
    const char *combine = NULL;
    char name[128], joined[16];
    for (int i = 0; i < 3; i++)
        if (words_take(words, COMBINE[i]))
            combine = COMBINE[i];
    join(words, name, sizeof name);
    const struct op_row *row = op_named(name);
    if (!row)
        return false;
    uint32_t p = operand_destination(b, '1');
    uint32_t q = accept(b, "|") ? operand_destination(b, '1') : 0;
    expect(b, ",");
    uint32_t x = operand(b, row->shape[1]);
    expect(b, ",");
    uint32_t y = operand(b, row->shape[2]);
    uint32_t c = 0;
    if (combine) {
        expect(b, ",");
        c = operand(b, '1');
    }
    bool plain = !combine && !q;
    uint32_t found = plain ? p : slot_new(b, 0);
    struct insn *in = emit(b, row->run);
    in->d = found, in->a = x, in->b = y;
    in->mode = row->mode;
    if (plain)
        return true;
    uint32_t opposite = slot_new(b, 0);
    in = emit_row(b, "not.pred");
    in->d = opposite, in->a = in->b = found;
    snprintf(joined, sizeof joined, "%s.pred", combine ? combine : "mov");
    in = emit_row(b, joined);
    in->d = combine && q ? slot_new(b, 0) : p, in->a = found, in->b = c;
    uint32_t first = in->d;
    if (q) {
        in = emit_row(b, joined);
        in->d = q, in->a = opposite, in->b = c;
    }
    if (first != p) { /* c may be p itself */
        in = emit_row(b, "mov.pred");
        in->d = p, in->a = in->b = first;
    }
    return true;
}

/* set.lt.u32.f32 d, a, b: all ones or zero; 1.0 or 0.0 for f32 */
static bool lower_set(struct build *b, struct words *words)
{
    static const char *const COMBINE[] = {"and", "or", "xor"};
    static const char *const ROW[] = {"and.pred", "or.pred", "xor.pred"};
    const char *combine = NULL;
    char name[128];
    for (int i = 0; i < 3; i++)
        if (words_take(words, COMBINE[i]))
            combine = ROW[i];
    if (words->count < 4)
        return false;
    const char *to = words->part[words->count - 2], *from = words->part[words->count - 1];
    bool to_float = strcmp(to, "f32") == 0;
    if (!to_float && strcmp(to, "u32") != 0 && strcmp(to, "s32") != 0)
        return false;
    words->part[0] = "setp";
    words->part[words->count - 2] = from;
    words->count--;
    join(words, name, sizeof name);
    const struct op_row *row = op_named(name);
    if (!row)
        return false;
    uint32_t d = operand_destination(b, '4');
    expect(b, ",");
    uint32_t x = operand(b, row->shape[1]);
    expect(b, ",");
    uint32_t y = operand(b, row->shape[2]);
    uint32_t found = slot_new(b, 0), yes = slot_constant(b, to_float ? 0x3f800000u : 0xffffffffu, 4);
    uint32_t no = slot_constant(b, 0, 4);
    struct insn *in = emit(b, row->run);
    in->d = found, in->a = x, in->b = y;
    in->mode = row->mode;
    if (combine) {
        expect(b, ",");
        uint32_t c = operand(b, '1');
        in = emit_row(b, combine);
        in->d = in->a = found, in->b = c;
    }
    in = emit_row(b, "selp.b32");
    in->d = d, in->a = yes, in->b = no, in->c = found;
    return true;
}

enum { PARTS_MOST = 4 };

static uint32_t next_part(struct build *b, uint32_t count)
{
    if (count >= PARTS_MOST)
        refuse(b, "too many parts in a mov");
    return count;
}

/* mov.b64 {%r1, %r2}, %rd1 and mov.b64 %rd1, {%r1, %r2} */
static void lower_parts(struct build *b, unsigned whole, bool into_parts)
{
    enum { NO_TOKEN = 0xffffffffu };
    uint32_t parts[PARTS_MOST], numbers[PARTS_MOST], bytes = 0, count = 0, wide = 0, wide_bytes = whole;
    if (!into_parts) {
        wide = operand_register(b, &wide_bytes);
        expect(b, ",");
    }
    expect(b, "{");
    do {
        uint32_t part_bytes = bytes, at = next_part(b, count++);
        numbers[at] = NO_TOKEN;
        if (!into_parts && peek(b)->kind == TOKEN_NUMBER) { /* its size is that of the other parts */
            numbers[at] = b->at++;
            parts[at] = 0;
            continue;
        }
        parts[at] = accept(b, "_") ? 0 : operand_register(b, &part_bytes);
        if (parts[at] && bytes && part_bytes != bytes)
            refuse(b, "parts of different sizes in a mov");
        bytes = part_bytes;
    } while (accept(b, ","));
    expect(b, "}");
    if (into_parts) {
        expect(b, ",");
        wide = operand(b, whole == 8 ? '8' : '4');
    }
    bytes = bytes ? bytes : whole / count;
    for (uint32_t i = 0; i < count && bytes <= 4; i++) {
        uint64_t value;
        if (numbers[i] != NO_TOKEN && number_integer(&b->tokens[numbers[i]], &value))
            parts[i] = slot_constant(b, value & (((uint64_t)1 << 8 * bytes) - 1), bytes);
    }
    char name[32];
    snprintf(name, sizeof name, "%s.%u.%u", into_parts ? "take" : "put", bytes, whole);
    if (wide_bytes != whole || bytes * count != whole || !op_named(name))
        refuse(b, "a mov of %u parts of %u bytes is not known to this device", count, bytes);
    /* A part may be the source itself, or the whole be read as a part: go through a register of our own. */
    uint32_t through = slot_new(b, whole);
    if (into_parts) {
        struct insn *in = emit_row(b, whole == 8 ? "mov.b64" : "mov.b32");
        in->d = through, in->a = wide;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!parts[i])
            continue;
        struct insn *in = emit_row(b, name);
        in->mode = (uint8_t)i;
        in->d = into_parts ? parts[i] : through;
        in->a = into_parts ? through : parts[i];
    }
    if (!into_parts) {
        struct insn *in = emit_row(b, whole == 8 ? "mov.b64" : "mov.b32");
        in->d = wide, in->a = through;
    }
}

static bool lower_mov(struct build *b, struct words *words)
{
    char name[32];
    if (words->count != 2)
        return false;
    const char *type = words->part[1];
    bool wide = strcmp(type, "b64") == 0;
    if (wide || strcmp(type, "b32") == 0) {
        bool second =
            token_is(&b->tokens[b->at + 1], ",") && b->at + 2 < b->token_count && token_is(&b->tokens[b->at + 2], "{");
        if (token_is(peek(b), "{") || second) {
            lower_parts(b, wide ? 8 : 4, !second);
            return true;
        }
    }
    bool as_is = type[0] == 'f' || type[0] == 'p';
    snprintf(name, sizeof name, "mov.%s%s", as_is ? type : "b", as_is ? "" : type + 1);
    const struct op_row *row = op_named(name);
    if (!row || (!as_is && !strchr("bus", type[0])))
        return false;
    lower_row(b, row);
    return true;
}

static bool lower_by_table(struct build *b, struct words *words)
{
    char name[128];
    join(words, name, sizeof name);
    const struct op_row *row = op_named(name);
    if (!row && words_take(words, "rn")) { /* rounding to nearest is what the plain rows do */
        join(words, name, sizeof name);
        row = op_named(name);
    }
    /* Our own names for parts of instructions are not PTX. */
    if (!row || strcmp(words->part[0], "window") == 0 || strcmp(words->part[0], "take") == 0 ||
        strcmp(words->part[0], "put") == 0)
        return false;
    lower_row(b, row);
    return true;
}

static bool lower_known(struct build *b, struct words *words)
{
    const char *base = words->part[0];
    if (lower_half(b, words) || lower_matrix(b, words) || lower_async(b, words))
        return true;
    if (strcmp(base, "setp") == 0)
        return lower_setp(b, words);
    if (strcmp(base, "set") == 0)
        return lower_set(b, words);
    if (strcmp(base, "mov") == 0)
        return lower_mov(b, words);
    return lower_memory(b, words) || lower_convert(b, words) || lower_warp(b, words) || lower_control(b, words) ||
           lower_by_table(b, words);
}

void lower(struct build *b, const struct token *mnemonic)
{
    struct words words;
    split(b, mnemonic, &words);
    if (!lower_known(b, &words))
        refuse(b, "the instruction '%.*s' is not known to this device", (int)mnemonic->length, mnemonic->at);
    expect(b, ";");
}
