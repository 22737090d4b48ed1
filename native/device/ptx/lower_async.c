/* Asynchronous copies, barriers in shared memory, packed integers, and what is only a hint on this device. */
#include <string.h>

#include "device/ptx/build.h"

static bool take_shared(struct words *words)
{
    return words_take(words, "shared") || words_take(words, "shared::cta");
}

static void take_hints(struct words *words)
{
    for (unsigned i = 1; i < words->count; i++)
        if (strncmp(words->part[i], "L2::", 4) == 0 && strcmp(words->part[i], "L2::cache_hint") != 0)
            words_take(words, words->part[i--]);
}

/* {, size or predicate}{, cache policy} at the end of a cp.async */
static void copy_rest(struct build *b, bool hinted, struct insn *made)
{
    while (accept(b, ",")) {
        uint32_t bytes = 4, ahead = b->at;
        if (peek(b)->kind == TOKEN_WORD) {
            operand_register(b, &bytes);
            b->at = ahead;
        }
        if (hinted && bytes == 8) {
            operand(b, '8');
            return;
        }
        if (made->b || made->e)
            refuse(b, "a cp.async with too many operands");
        if (bytes == 0)
            made->e = operand(b, '1');
        else
            made->b = operand(b, '4');
    }
}

/* cp.async.ca.shared.global{.L2::128B} [to], [from], 16{, size}: a load and a store, done at once */
static bool lower_copy(struct build *b, struct words *words)
{
    bool level = words_take(words, "ca") || words_take(words, "cg"), hinted = words_take(words, "L2::cache_hint");
    take_hints(words);
    if (!level || !take_shared(words) || !words_take(words, "global") || words->count != 1)
        return false;
    struct address to = operand_address(b);
    expect(b, ",");
    struct address from = operand_address(b);
    expect(b, ",");
    uint64_t bytes = expect_count(b);
    if (bytes != 4 && bytes != 8 && bytes != 16)
        refuse(b, "cp.async copies 4, 8 or 16 bytes");
    struct insn made = {.count = (uint8_t)(bytes / 4)};
    copy_rest(b, hinted, &made);
    uint32_t slots[4] = {0};
    for (unsigned i = 0; i < made.count; i++)
        slots[i] = slot_new(b, 4);
    bool whole = !made.b && !made.e;
    struct insn *in = emit(b, whole ? load_step(TYPE_U32, 4) : step_async_load);
    in->d = slots[0], in->count = made.count;
    in->b = whole ? slots[1] : made.b, in->c = whole ? slots[2] : 0, in->e = whole ? slots[3] : made.e;
    address_set(b, in, from, SPACE_GLOBAL);
    in = emit(b, store_step(4, 4));
    in->d = slots[0], in->b = slots[1], in->c = slots[2], in->e = slots[3], in->count = made.count;
    address_set(b, in, to, SPACE_SHARED);
    return true;
}

/* cp.async.commit_group, wait_group n, wait_all: nothing is left to wait for */
static bool lower_copies(struct build *b, struct words *words)
{
    if (!words_take(words, "async") || words_take(words, "bulk"))
        return false;
    if (words_take(words, "mbarrier")) {
        bool arrives = words_take(words, "noinc");
        enum space space = take_shared(words) ? SPACE_SHARED : SPACE_GENERIC;
        if (!words_take(words, "arrive") || !words_take(words, "b64") || words->count != 1)
            return false;
        struct address address = operand_address(b);
        if (!arrives)
            return true; /* one arrival more is expected, and it comes at once */
        uint32_t one = slot_constant(b, 1, 4);
        struct insn *in = emit(b, step_mbarrier);
        in->b = one;
        in->mode = MBARRIER_ARRIVE;
        address_set(b, in, address, space);
        return true;
    }
    if (words->count == 2 && (words_take(words, "commit_group") || words_take(words, "wait_all")))
        return true;
    if (words->count == 2 && words_take(words, "wait_group")) {
        expect_count(b);
        return true;
    }
    return lower_copy(b, words);
}

/* mbarrier.arrive{.noComplete}.shared.b64 state, [a]{, count}; arrive_drop; test_wait and try_wait p, [a], state */
static bool lower_mbarrier(struct build *b, struct words *words)
{
    static const char *const ORDERS[] = {"acquire", "release", "relaxed", "cta", "cluster", "noComplete"};
    for (size_t i = 0; i < sizeof ORDERS / sizeof *ORDERS; i++)
        words_take(words, ORDERS[i]);
    if (words_take(words, "pending_count") && words_take(words, "b64") && words->count == 1) {
        uint32_t d = operand_destination(b, '4');
        expect(b, ",");
        uint32_t a = operand(b, '8');
        struct insn *in = emit(b, step_mbarrier_pending);
        in->d = d, in->a = a;
        return true;
    }
    enum space space = take_shared(words) ? SPACE_SHARED : SPACE_GENERIC;
    bool parity = words_take(words, "parity");
    bool waits = words_take(words, "test_wait") || words_take(words, "try_wait");
    bool starts = words_take(words, "init"), ends = !starts && words_take(words, "inval");
    bool drops = words_take(words, "arrive_drop"), arrives = drops || words_take(words, "arrive");
    if (waits + starts + ends + arrives != 1 || !words_take(words, "b64") || words->count != 1 || (parity && !waits))
        return false;
    struct insn made = {.mode = waits    ? (parity ? MBARRIER_PARITY : MBARRIER_WAIT)
                                : starts ? MBARRIER_INIT
                                : ends   ? MBARRIER_INVALIDATE
                                : drops  ? MBARRIER_DROP
                                         : MBARRIER_ARRIVE};
    if (waits || arrives)
        made.d = operand_destination(b, waits ? '1' : '8'), expect(b, ",");
    struct address address = operand_address(b);
    if (waits || starts)
        expect(b, ","), made.b = operand(b, starts || parity ? '4' : '8');
    if (waits && accept(b, ","))
        operand(b, '4'); /* how long it may sleep: it does not */
    if (arrives)
        made.b = accept(b, ",") ? operand(b, '4') : slot_constant(b, 1, 4);
    struct insn *in = emit(b, step_mbarrier);
    in->d = made.d, in->b = made.b, in->mode = made.mode;
    address_set(b, in, address, space);
    return true;
}

/* What a program may say and this device has no use for: caches, priorities, launches that overlap. */
static bool lower_hint(struct build *b, struct words *words)
{
    const char *base = words->part[0];
    if (strcmp(base, "griddepcontrol") == 0) /* a launch begins when the one before has ended */
        return words->count == 2 && (words_take(words, "wait") || words_take(words, "launch_dependents"));
    if (strcmp(base, "setmaxnreg") == 0) {
        if (words->count < 2)
            return false;
        expect_count(b);
        return true;
    }
    if (strcmp(base, "pmevent") == 0) {
        expect_count(b);
        return true;
    }
    if (strcmp(base, "discard") == 0 || strcmp(base, "applypriority") == 0) {
        operand_address(b);
        expect(b, ",");
        expect_count(b);
        return true;
    }
    if (strcmp(base, "createpolicy") != 0 || !words_take(words, "fractional"))
        return false;
    uint32_t d = operand_destination(b, '8'), zero = slot_constant(b, 0, 8);
    while (accept(b, ","))
        operand(b, 'f');
    struct insn *in = emit_row(b, "mov.b64");
    in->d = d, in->a = zero;
    return true;
}

struct packed_row {
    const char *name;
    enum packed_operation operation;
};

static unsigned sign_flag(const char *type, unsigned flag, bool *good)
{
    *good = *good && (strcmp(type, "u32") == 0 || strcmp(type, "s32") == 0);
    return type[0] == 's' ? flag : 0;
}

/* vadd4.u32.u32.u32{.sat}{.add} d, a, b, c: on all bytes, or both halves */
static bool lower_video(struct build *b, struct words *words)
{
    static const struct packed_row ROWS[] = {{"vadd", PACKED_ADD},
                                             {"vsub", PACKED_SUB},
                                             {"vabsdiff", PACKED_ABSDIFF},
                                             {"vmin", PACKED_MIN},
                                             {"vmax", PACKED_MAX}};
    const char *base = words->part[0];
    size_t length = strlen(base);
    const struct packed_row *row = NULL;
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
        if (length == strlen(ROWS[i].name) + 1 && strncmp(base, ROWS[i].name, length - 1) == 0)
            row = &ROWS[i];
    if (!row || (base[length - 1] != '2' && base[length - 1] != '4'))
        return false;
    unsigned flags = (words_take(words, "sat") ? PACKED_SATURATE : 0) | (words_take(words, "add") ? PACKED_SUM : 0);
    bool good = words->count == 4;
    if (!good)
        return false;
    flags |= sign_flag(words->part[1], PACKED_D_SIGNED, &good) | sign_flag(words->part[2], PACKED_A_SIGNED, &good) |
             sign_flag(words->part[3], PACKED_B_SIGNED, &good);
    if (!good)
        return false;
    struct insn made = {.d = operand_destination(b, '4')};
    uint32_t *const sources[] = {&made.a, &made.b, &made.c};
    for (int i = 0; i < 3; i++)
        expect(b, ","), *sources[i] = operand(b, '4');
    struct insn *in = emit(b, step_packed);
    in->d = made.d, in->a = made.a, in->b = made.b, in->c = made.c;
    in->mode = (uint8_t)row->operation;
    in->count = (uint8_t)(base[length - 1] - '0');
    in->immediate = flags;
    return true;
}

/* add.u16x2, min{.relu}.s16x2, max: two numbers of 16 bits */
static bool lower_pair(struct build *b, struct words *words)
{
    const char *base = words->part[0];
    bool relu = words_take(words, "relu"), is_signed = words_take(words, "s16x2");
    if (!is_signed && !words_take(words, "u16x2"))
        return false;
    bool adds = strcmp(base, "add") == 0, least = strcmp(base, "min") == 0;
    if (words->count != 1 || (!adds && !least && strcmp(base, "max") != 0) || (relu && (adds || !is_signed)))
        return false;
    uint32_t d = operand_destination(b, '4');
    expect(b, ",");
    uint32_t x = operand(b, '4');
    expect(b, ",");
    uint32_t y = operand(b, '4');
    struct insn *in = emit(b, step_packed);
    in->d = d, in->a = x, in->b = y;
    in->mode = adds ? PACKED_ADD : least ? PACKED_MIN : PACKED_MAX;
    in->count = 2;
    in->immediate = (is_signed ? PACKED_A_SIGNED | PACKED_B_SIGNED : 0) | (relu ? PACKED_RELU : 0);
    return true;
}

/* cvt.pack.sat.s16.s32 d, a, b and cvt.pack.sat.s8.s32.b32 d, a, b, c */
static bool lower_pack(struct build *b, struct words *words)
{
    if (!words_take(words, "pack") || !words_take(words, "sat") || !words_take(words, "s32"))
        return false;
    bool third = words_take(words, "b32");
    if (words->count != 2)
        return false;
    const char *type = words->part[1];
    bool wide = strcmp(type + 1, "16") == 0, narrow = strcmp(type + 1, "8") == 0;
    if ((type[0] != 's' && type[0] != 'u') || (third ? !narrow : !wide))
        return false;
    uint32_t d = operand_destination(b, '4'), c = 0;
    expect(b, ",");
    uint32_t x = operand(b, '4');
    expect(b, ",");
    uint32_t y = operand(b, '4');
    if (third)
        expect(b, ","), c = operand(b, '4');
    struct insn *in = emit(b, step_pack);
    in->d = d, in->a = x, in->b = y, in->c = c;
    in->mode = type[0] == 's';
    in->count = wide ? 16 : 8;
    return true;
}

bool lower_async(struct build *b, struct words *words)
{
    const char *base = words->part[0];
    if (strcmp(base, "cp") == 0)
        return lower_copies(b, words);
    if (strcmp(base, "mbarrier") == 0)
        return lower_mbarrier(b, words);
    if (base[0] == 'v' && lower_video(b, words))
        return true;
    if (strcmp(base, "cvt") == 0 && words->count > 1 && strcmp(words->part[1], "pack") == 0)
        return lower_pack(b, words);
    for (unsigned i = 1; i < words->count; i++)
        if (strcmp(words->part[i], "u16x2") == 0 || strcmp(words->part[i], "s16x2") == 0)
            return lower_pair(b, words);
    return lower_hint(b, words);
}
