/* Branches, barriers, and the instructions across a warp. */
#include <string.h>

#include "device/ptx/build.h"

static void branch_to(struct build *b, struct label *label)
{
    emit(b, step_branch);
    label_wanted(b, label, b->insn_count - 1);
}

static bool lower_indexed(struct build *b, struct words *words)
{
    words_take(words, "uni");
    if (!words_take(words, "idx") || words->count != 1)
        return false;
    uint32_t index = operand(b, '4');
    expect(b, ",");
    const struct token *name = expect_word(b);
    const struct label *list = label_named(b, name);
    if (!list->jumps)
        refuse(b, "'%.*s' is not a list of branch targets that stands before", (int)name->length, name->at);
    struct insn *in = emit(b, step_branch_indexed);
    in->a = index;
    in->immediate = list->jumps_at;
    in->e = list->jumps;
    return true;
}

/* bar.sync a{, b}; bar.arrive a, b; bar.red.popc.u32 d, a{, b}, {!}c; and the same under the name `barrier` */
static bool lower_barrier(struct build *b, struct words *words)
{
    struct insn made = {.mode = BARRIER_SYNC};
    words_take(words, "cta");
    words_take(words, "aligned");
    bool reduces = words_take(words, "red");
    if (reduces) {
        bool count = words_take(words, "popc") && words_take(words, "u32");
        bool all = !count && words_take(words, "and") && words_take(words, "pred");
        bool any = !count && !all && words_take(words, "or") && words_take(words, "pred");
        if (!count && !all && !any)
            return false;
        made.mode = count ? BARRIER_COUNT : all ? BARRIER_ALL : BARRIER_ANY;
        made.d = operand_destination(b, count ? '4' : '1');
        expect(b, ",");
    } else if (words_take(words, "arrive")) {
        made.mode = BARRIER_ARRIVE;
    } else if (!words_take(words, "sync")) {
        return false;
    }
    if (words->count != 1)
        return false;
    made.a = operand(b, '4');
    while (accept(b, ",")) {
        uint32_t bytes = 4;
        uint32_t ahead = b->at;
        bool predicate = token_is(peek(b), "!");
        if (!predicate && peek(b)->kind == TOKEN_WORD) {
            operand_register(b, &bytes);
            b->at = ahead;
            predicate = bytes == 0;
        }
        if (predicate)
            made.c = operand(b, '1');
        else
            made.b = operand(b, '4');
    }
    if (reduces != (made.c != 0) || (made.mode == BARRIER_ARRIVE && !made.b))
        refuse(b, "a barrier with the wrong operands");
    struct insn *in = emit(b, step_barrier);
    in->mode = made.mode, in->d = made.d, in->a = made.a, in->b = made.b, in->c = made.c;
    return true;
}

bool lower_control(struct build *b, struct words *words)
{
    const char *base = words->part[0];
    if (strcmp(base, "bar") == 0 || strcmp(base, "barrier") == 0)
        return lower_barrier(b, words);
    if (strcmp(base, "brx") == 0)
        return lower_indexed(b, words);
    if (strcmp(base, "nanosleep") == 0 && words_take(words, "u32") && words->count == 1) {
        operand(b, '4'); /* a hint: others get their turn anyway */
        return true;
    }
    words_take(words, "uni");
    if (words->count != 1)
        return false;
    if (strcmp(base, "bra") == 0)
        branch_to(b, label_named(b, expect_word(b)));
    else if (strcmp(base, "call") == 0)
        lower_call(b);
    else if (strcmp(base, "ret") == 0)
        branch_to(b, b->instance->end);
    else if (strcmp(base, "exit") == 0)
        emit(b, step_exit);
    else if (strcmp(base, "trap") == 0)
        emit(b, step_trap);
    else
        return false;
    return true;
}

/* shfl.sync.down.b32 d|p, a, b, c, members */
static bool lower_shuffle(struct build *b, struct words *words)
{
    static const char *const KINDS[] = {"up", "down", "bfly", "idx"};
    int kind = -1;
    if (!words_take(words, "sync") || !words_take(words, "b32"))
        return false;
    for (int i = 0; i < 4; i++)
        if (words_take(words, KINDS[i]))
            kind = i;
    if (kind < 0 || words->count != 1)
        return false;
    struct insn made = {.mode = (uint8_t)kind};
    made.d = operand_destination(b, '4');
    if (accept(b, "|"))
        made.e = operand_destination(b, '1');
    uint32_t *const sources[] = {&made.a, &made.b, &made.c};
    for (int i = 0; i < 3; i++) {
        expect(b, ",");
        *sources[i] = operand(b, '4');
    }
    expect(b, ",");
    made.immediate = operand(b, '4');
    struct insn *in = emit(b, step_shuffle);
    made.run = in->run, made.guard = in->guard, made.guard_not = in->guard_not;
    *in = made;
    return true;
}

/* vote.sync.ballot.b32 d, {!}a, members */
static bool lower_vote(struct build *b, struct words *words)
{
    static const char *const KINDS[] = {"all", "any", "uni", "ballot"};
    int kind = -1;
    if (!words_take(words, "sync"))
        return false;
    for (int i = 0; i < 4; i++)
        if (words_take(words, KINDS[i]))
            kind = i;
    if (kind < 0 || !words_take(words, kind == VOTE_BALLOT ? "b32" : "pred") || words->count != 1)
        return false;
    uint32_t d = operand_destination(b, kind == VOTE_BALLOT ? '4' : '1');
    expect(b, ",");
    uint32_t a = operand(b, '1');
    expect(b, ",");
    uint32_t members = operand(b, '4');
    struct insn *in = emit(b, step_vote);
    in->d = d, in->a = a, in->b = members;
    in->mode = (uint8_t)kind;
    return true;
}

/* match.all.sync.b32 d|p, a, members and match.any.sync.b64 d, a, members */
static bool lower_match(struct build *b, struct words *words)
{
    bool all = words_take(words, "all");
    if ((!all && !words_take(words, "any")) || !words_take(words, "sync"))
        return false;
    bool wide = words_take(words, "b64");
    if ((!wide && !words_take(words, "b32")) || words->count != 1)
        return false;
    uint32_t d = operand_destination(b, '4'), p = 0;
    if (accept(b, "|"))
        p = operand_destination(b, '1');
    expect(b, ",");
    uint32_t a = operand(b, wide ? '8' : '4');
    expect(b, ",");
    uint32_t members = operand(b, '4');
    struct insn *in = emit(b, step_match);
    in->d = d, in->e = p, in->a = a, in->b = members;
    in->mode = all;
    in->from_bytes = wide ? 8 : 4;
    return true;
}

bool lower_warp(struct build *b, struct words *words)
{
    const char *base = words->part[0];
    if (strcmp(base, "shfl") == 0)
        return lower_shuffle(b, words);
    if (strcmp(base, "vote") == 0)
        return lower_vote(b, words);
    if (strcmp(base, "match") == 0)
        return lower_match(b, words);
    if (strcmp(base, "bar") == 0 && words_take(words, "warp")) {
        if (!words_take(words, "sync") || words->count != 1)
            return false;
        uint32_t members = operand(b, '4');
        emit(b, step_warp_barrier)->a = members;
        return true;
    }
    if (strcmp(base, "elect") == 0 && words_take(words, "sync") && words->count == 1) {
        uint32_t d = operand_destination(b, '4');
        expect(b, "|");
        uint32_t p = operand_destination(b, '1');
        expect(b, ",");
        uint32_t members = operand(b, '4');
        struct insn *in = emit(b, step_elect);
        in->d = d, in->e = p, in->a = members;
        return true;
    }
    return false;
}
