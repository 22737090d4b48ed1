/* The text of a function, statement by statement, written into the kernel; calls are written in at their place. */
#include <string.h>

#include "device/ptx/build.h"

struct insn *emit(struct build *b, step *run)
{
    if (b->insn_count == b->insn_room) {
        uint32_t room = b->insn_room ? b->insn_room * 2 : 256;
        if (room > LIMIT_INSNS)
            refuse(b, "the kernel has too many instructions");
        struct insn *bigger = take(b, room * sizeof *bigger);
        if (b->insn_count)
            memcpy(bigger, b->insns, b->insn_count * sizeof *bigger);
        b->insns = bigger;
        b->insn_room = room;
    }
    struct insn *in = &b->insns[b->insn_count++];
    *in = (struct insn){.run = run, .guard = b->guard, .guard_not = b->guard_not};
    return in;
}

struct insn *emit_row(struct build *b, const char *name)
{
    const struct op_row *row = op_named(name);
    struct insn *in = emit(b, row->run);
    in->mode = row->mode;
    return in;
}

struct label *label_named(struct build *b, const struct token *name)
{
    struct entry *found = entry_find(b, ENTRY_LABEL, b->frame, name->at, name->length);
    if (found)
        return (struct label *)found;
    struct label *label = take(b, sizeof *label);
    *label = (struct label){.name = name->at, .length = name->length, .pc = NO_PC};
    entry_add(b, &label->entry, ENTRY_LABEL, b->frame, name->at, name->length);
    return label;
}

static void want(struct build *b, struct label *label, uint32_t insn, uint32_t jump)
{
    struct fixup *fixup = take(b, sizeof *fixup);
    *fixup = (struct fixup){.next = b->instance->fixups, .label = label, .insn = insn, .jump = jump};
    b->instance->fixups = fixup;
}

void label_wanted(struct build *b, struct label *label, uint32_t insn)
{
    want(b, label, insn, NO_PC);
}

void jump_wanted(struct build *b, struct label *label)
{
    if (b->jump_count == b->jump_room) {
        uint32_t room = b->jump_room ? b->jump_room * 2 : 64;
        uint32_t *bigger = take(b, room * sizeof *bigger);
        if (b->jump_count)
            memcpy(bigger, b->jumps, b->jump_count * sizeof *bigger);
        b->jumps = bigger;
        b->jump_room = room;
    }
    want(b, label, NO_PC, b->jump_count++);
}

static void settle_labels(struct build *b)
{
    for (const struct fixup *fixup = b->instance->fixups; fixup; fixup = fixup->next) {
        if (fixup->label->pc == NO_PC)
            refuse(b, "the label '%.*s' is not there", (int)fixup->label->length, fixup->label->name);
        if (fixup->jump != NO_PC)
            b->jumps[fixup->jump] = fixup->label->pc;
        else
            b->insns[fixup->insn].immediate = fixup->label->pc;
    }
}

/* name: .branchtargets a, b, c; */
static void branch_targets(struct build *b, struct label *list)
{
    if (list->jumps || list->pc != NO_PC) /* its count would go on while its place moves */
        refuse(b, "the label '%.*s' is there twice", (int)list->length, list->name);
    list->jumps_at = b->jump_count;
    do {
        jump_wanted(b, label_named(b, expect_word(b)));
        list->jumps++;
    } while (accept(b, ","));
    expect(b, ";");
}

static void skip_statement(struct build *b)
{
    while (!token_is(next(b), ";"))
        continue;
}

static void define_label(struct build *b, const struct token *name)
{
    struct label *label = label_named(b, name);
    if (accept(b, ".branchtargets")) {
        branch_targets(b, label);
        return;
    }
    if (accept(b, ".callprototype") || accept(b, ".calltargets")) {
        skip_statement(b); /* a call through a pointer goes by the parameters it passes */
        return;
    }
    if (label->pc != NO_PC || label->jumps)
        refuse(b, "the label '%.*s' is there twice", shown(name), name->at);
    label->pc = b->insn_count;
}

/* .loc 1 2 3, function_name $L, inlined_at 1 2 3 has no end mark: it ends with its line. */
static void skip_line(struct build *b)
{
    uint32_t line = b->tokens[b->at - 1].line;
    while (peek(b)->kind != TOKEN_END && peek(b)->line == line)
        b->at++;
}

static bool directive(struct build *b, const struct token *token)
{
    if (token_is(token, ".reg"))
        declare_registers(b);
    else if (token_is(token, ".local") || token_is(token, ".shared") || token_is(token, ".param") ||
             token_is(token, ".global") || token_is(token, ".const"))
        declare_storage(b, token, false);
    else if (token_is(token, ".loc"))
        skip_line(b);
    else if (token_is(token, ".pragma"))
        skip_statement(b);
    else
        return false;
    return true;
}

static void guard(struct build *b)
{
    uint32_t bytes;
    b->guard_not = accept(b, "!");
    b->guard = operand_register(b, &bytes);
    if (bytes != 0)
        refuse(b, "the guard of an instruction is not a predicate");
}

static void statements(struct build *b)
{
    struct symbol *outer = b->symbols;
    for (;;) {
        const struct token *token = next(b);
        watch(b);
        b->guard = 0;
        b->guard_not = false;
        if (token_is(token, "}"))
            break;
        if (token_is(token, ";"))
            continue;
        if (token_is(token, "{")) {
            if (++b->depth > LIMIT_DEPTH)
                refuse(b, "blocks are nested too deeply");
            statements(b);
            b->depth--;
            continue;
        }
        if (token_is(token, "@")) {
            guard(b);
            token = next(b);
        }
        if (token->kind != TOKEN_WORD)
            refuse(b, "'%.*s' is not an instruction", (int)token->length, token->at);
        if (token->at[0] == '.') {
            if (!directive(b, token))
                refuse(b, "the directive '%.*s' is not known to this device", (int)token->length, token->at);
        } else if (accept(b, ":")) {
            define_label(b, token);
        } else {
            lower(b, token);
        }
    }
    symbols_drop(b, outer);
}

void body_write(struct build *b, const struct function *function)
{
    static const struct token END = {.at = "(end)", .length = 5, .kind = TOKEN_WORD};
    struct instance instance = {.fixups = NULL};
    struct instance *outer = b->instance;
    uint32_t guard_outside = b->guard, back = b->at;
    bool guard_not_outside = b->guard_not;
    if (++b->depth > LIMIT_DEPTH)
        refuse(b, "the calls of '%.*s' are recursive or too deep for this device", (int)function->length,
               function->name);
    instance.function = function;
    instance.outer = outer;
    b->instance = &instance;
    instance.end = label_named(b, &END);
    b->at = function->body;
    statements(b);
    instance.end->pc = b->insn_count;
    settle_labels(b);
    b->instance = outer;
    b->at = back;
    b->guard = guard_outside;
    b->guard_not = guard_not_outside;
    b->depth--;
}
