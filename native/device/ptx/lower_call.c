/* Calls: the function's text is written at the place of the call, also of each function that a pointer may mean. */
#include <string.h>

#include "device/ptx/build.h"

enum { PARAMETERS_MOST = 64 };

struct call {
    const struct token *name;
    struct symbol *results[PARAMETERS_MOST], *arguments[PARAMETERS_MOST];
    uint32_t result_count, argument_count;
};

/* Gives each formal name of the function the storage of what the caller passed. */
static void bind(struct build *b, const struct formal *formals, uint32_t count, struct symbol *const *actual)
{
    for (uint32_t i = 0; i < count; i++) {
        struct token name = {.at = formals[i].name, .length = formals[i].length, .kind = TOKEN_WORD};
        if (actual[i]->kind != SYMBOL_LOCAL || actual[i]->size < formals[i].bytes)
            refuse(b, "the parameter '%.*s' of a call does not fit", shown(&name), name.at);
        struct symbol *symbol = symbol_add(b, &name, SYMBOL_LOCAL, 0);
        symbol->value = actual[i]->value;
        symbol->size = formals[i].bytes;
    }
}

static uint32_t actuals(struct build *b, struct symbol **list)
{
    uint32_t count = 0;
    if (accept(b, ")"))
        return 0;
    do {
        const struct token *name = expect_word(b);
        struct symbol *symbol = symbol_find(b, name);
        if (!symbol || count == PARAMETERS_MOST)
            refuse(b, "'%.*s' cannot be passed to a function", shown(name), name->at);
        list[count++] = symbol;
    } while (accept(b, ","));
    expect(b, ")");
    return count;
}

static bool names(const struct function *function, const struct token *name)
{
    return function->length == name->length && memcmp(function->name, name->at, name->length) == 0;
}

static struct function *function_named(struct build *b, const struct token *name)
{
    for (struct entry *at = entry_find(b, ENTRY_FUNCTION, 0, name->at, name->length); at; at = entry_next(at)) {
        struct function *function = (struct function *)at;
        if (!function->is_kernel)
            return function;
    }
    return NULL;
}

/* A function that calls itself is written into itself up to this depth; with several such calls the text would grow by
 * their number each time. A thread that goes deeper faults. */
static uint32_t levels_most(struct build *b, struct function *function)
{
    static const uint32_t LEVELS[] = {24, 24, 10};
    if (!function->own_calls_known) {
        uint32_t depth = 1;
        for (uint32_t at = function->body; depth && at < b->token_count; at++) {
            depth += token_is(&b->tokens[at], "{");
            depth -= token_is(&b->tokens[at], "}");
            function->own_calls += b->tokens[at].kind == TOKEN_WORD && names(function, &b->tokens[at]);
        }
        function->own_calls_known = true;
    }
    return function->own_calls < 3 ? LEVELS[function->own_calls] : 6;
}

static void write_body(struct build *b, struct function *function, const struct call *call)
{
    uint32_t levels = 0;
    for (const struct instance *at = b->instance; at; at = at->outer)
        levels += at->function == function;
    if (levels && levels >= levels_most(b, function)) {
        emit(b, step_too_deep);
        return;
    }
    struct symbol *outer = b->symbols;
    uint32_t frame = b->frame;
    b->frame = ++b->frames; /* the caller's names do not hold in the function */
    bind(b, function->results, function->result_count, call->results);
    bind(b, function->formals, function->formal_count, call->arguments);
    body_write(b, function);
    symbols_drop(b, outer);
    b->frame = frame;
}

static bool fits(const struct function *function, const struct call *call)
{
    if (function->is_kernel || !function->body || function->result_count != call->result_count ||
        function->formal_count != call->argument_count)
        return false;
    for (uint32_t i = 0; i < call->result_count; i++)
        if (function->results[i].bytes != call->results[i]->size)
            return false;
    for (uint32_t i = 0; i < call->argument_count; i++)
        if (function->formals[i].bytes != call->arguments[i]->size)
            return false;
    return true;
}

/* call (result), %pointer, (arguments), prototype: a branch for each function with such parameters; lanes whose pointer
 * means none of them fault. */
static void write_indirect(struct build *b, const struct call *call, uint32_t pointer)
{
    uint32_t none = slot_new(b, 0);
    struct insn *in = emit_row(b, "mov.pred");
    in->d = none, in->a = in->b = slot_constant(b, ALL_LANES, 0);
    for (struct function *f = b->functions; f; f = f->next) {
        if (!fits(f, call))
            continue;
        uint32_t address = slot_constant(b, f->address, 8), other = slot_new(b, 0);
        in = emit_row(b, "setp.ne.u64");
        in->d = other, in->a = pointer, in->b = address;
        in = emit_row(b, "and.pred");
        in->d = none, in->a = none, in->b = other;
        b->guard = other;
        b->guard_not = false;
        emit(b, step_branch);
        uint32_t around = b->insn_count - 1;
        b->guard = 0;
        write_body(b, f, call);
        b->insns[around].immediate = b->insn_count;
    }
    b->guard = none;
    b->guard_not = false;
    emit(b, step_bad_call);
    b->guard = 0;
}

static uint32_t place_of(struct build *b, const struct symbol *symbol, uint64_t bytes)
{
    if (symbol->kind != SYMBOL_LOCAL || symbol->size < bytes)
        refuse(b, "a parameter of a call does not fit");
    return (uint32_t)symbol->value;
}

static int64_t both(uint32_t low, uint32_t high)
{
    return (int64_t)((uint64_t)high << 32 | low);
}

/* Functions that the driver brings along. False: it is none of these. */
static bool lower_system(struct build *b, const struct call *call)
{
    struct symbol *const *arguments = call->arguments;
    if (token_is(call->name, "malloc") || token_is(call->name, "free"))
        refuse(b, "the function '%.*s' takes memory inside of a kernel, which this device does not give",
               shown(call->name), call->name->at);
    if (token_is(call->name, "vprintf") && call->argument_count == 2 && call->result_count <= 1) {
        struct insn made = {.immediate = both(place_of(b, arguments[0], 8), place_of(b, arguments[1], 8))};
        made.mode = call->result_count != 0;
        made.e = made.mode ? place_of(b, call->results[0], 4) : 0;
        struct insn *in = emit(b, step_print);
        in->immediate = made.immediate, in->mode = made.mode, in->e = made.e;
        in->cache = b->cache_count++;
        return true;
    }
    if (token_is(call->name, "__assertfail") && call->argument_count == 5) {
        int64_t texts = both(place_of(b, arguments[0], 8), place_of(b, arguments[1], 8));
        uint32_t line = place_of(b, arguments[2], 4), function = place_of(b, arguments[3], 8);
        struct insn *in = emit(b, step_assert_failed);
        in->immediate = texts, in->c = function, in->e = line;
        in->cache = b->cache_count++;
        return true;
    }
    return false;
}

/* call.uni {(result), }name{, (arguments)}{, prototype} */
void lower_call(struct build *b)
{
    struct call call = {.result_count = 0};
    if (accept(b, "(")) {
        call.result_count = actuals(b, call.results);
        expect(b, ",");
    }
    uint32_t pointer = peek(b)->length && peek(b)->at[0] == '%' ? operand(b, '8') : 0;
    struct function *function = NULL;
    if (!pointer) {
        call.name = expect_word(b);
        function = function_named(b, call.name);
    }
    if (accept(b, ",")) {
        if (accept(b, "("))
            call.argument_count = actuals(b, call.arguments);
        else if (pointer)
            b->at--; /* no arguments: the prototype stands here */
        else
            expect(b, "(");
    }
    if (pointer) {
        expect(b, ",");
        expect_word(b); /* the prototype, or the list of targets: the parameters say which functions fit */
    }
    if (function && (call.result_count != function->result_count || call.argument_count != function->formal_count))
        refuse(b, "the call of '%.*s' has the wrong number of parameters", shown(call.name), call.name->at);
    if (!pointer && !function && lower_system(b, &call))
        return;
    if (!pointer && !function)
        refuse(b, "the function '%.*s' is called and has no body that this device knows", shown(call.name),
               call.name->at);
    uint32_t around = NO_PC;
    if (b->guard) { /* those whose guard is false go around */
        b->guard_not = !b->guard_not;
        emit(b, step_branch);
        around = b->insn_count - 1;
        b->guard = 0;
    }
    if (pointer)
        write_indirect(b, &call, pointer);
    else
        write_body(b, function, &call);
    if (around != NO_PC)
        b->insns[around].immediate = b->insn_count;
}
