/* The generated file: prelude, functions of the forms that are used, the gang's function with all its names. */
#include "device/compile/emit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_CAP = 32 << 20 };

void say(struct text *text, const char *format, ...)
{
    va_list list;
    for (int attempt = 0; attempt < 2 && !text->failed; attempt++) {
        va_start(list, format);
        size_t left = text->room - text->length;
        int needed = vsnprintf(text->at ? text->at + text->length : NULL, text->at ? left : 0, format, list);
        va_end(list);
        if (needed >= 0 && text->at && (size_t)needed < left) {
            text->length += (size_t)needed;
            return;
        }
        size_t room = (text->length + (size_t)needed) * 2 + 4096;
        char *bigger = needed < 0 || room > TEXT_CAP ? NULL : realloc(text->at, room);
        if (!bigger) {
            text->failed = true;
            return;
        }
        text->at = bigger;
        text->room = room;
    }
}

const char *word(struct emitter *e, const char *format, ...)
{
    char *at = e->words[e->word++ % WORDS];
    va_list list;
    va_start(list, format);
    int needed = vsnprintf(at, WORD_BYTES, format, list);
    va_end(list);
    if (needed < 0 || needed >= WORD_BYTES)
        e->body.failed = true;
    return at;
}

const char *scalar_type(unsigned bytes)
{
    return bytes == 2 ? "uint16_t" : bytes == 8 ? "uint64_t" : "uint32_t";
}

unsigned width_of(unsigned bytes)
{
    return bytes ? bytes : 4;
}

const char *scalar_of(struct emitter *e, uint32_t at)
{
    const struct name *name = &e->plan->names[at];
    if (name->constant)
        return word(e, "(%s)0x%llxull", scalar_type(name->bytes), (unsigned long long)name->value);
    return word(e, "u%u", at);
}

/* The same value for all threads is an operator: each call of a function costs the C compiler time, be it inlined. Of two
 * bytes the sum would be an int. */
const char *spread_of(struct emitter *e, unsigned width, const char *scalar, int64_t stride)
{
    if (stride == 0 && width != 2)
        return word(e, "((w%u){0} + %s)", width, scalar);
    return word(e, "spread%u(%s, %lld)", width, scalar, (long long)stride);
}

const char *vector_of(struct emitter *e, uint32_t at)
{
    const struct name *name = &e->plan->names[at];
    unsigned width = width_of(name->bytes);
    if (name->class == CLASS_GENERAL)
        return word(e, "v%u", at);
    const char *scalar = scalar_of(e, at);
    if (name->class == CLASS_MAYBE)
        return word(e, "(o%u ? %s : v%u)", at, spread_of(e, width, scalar, name->stride), at);
    return spread_of(e, width, scalar, name->stride);
}

bool takes_all(const struct emitter *e, const struct item *item)
{
    bool parts = item->guard != NONE && e->plan->names[item->guard].class == CLASS_GENERAL;
    return e->plan->full && !e->plan->blocks[item->block].divergent && !parts;
}

const char *mask_of(const struct emitter *e, const struct item *item)
{
    return e->plan->blocks[item->block].divergent ? "m" : e->plan->full ? "ALL_LANES" : "start";
}

/* What is read before it is written, be it as the part that a blend keeps: the C compiler takes a variable without a
 * value for any value, a different one at each use, and then loses masks. */
static bool begins_zero(const struct plan *plan, uint32_t name)
{
    if (name < plan->register_count && set_has(plan->blocks[0].live, name))
        return true;
    for (uint32_t i = 0; i < plan->item_count; i++)
        for (uint32_t k = 0; k < plan->items[i].made_count; k++)
            if (plan->items[i].made[k] == name && (plan->items[i].blends || plan->items[i].guard != NONE))
                return true;
    return false;
}

static void declare(struct emitter *e)
{
    const struct plan *plan = e->plan;
    for (uint32_t i = 0; i < plan->name_count; i++) {
        const struct name *name = &plan->names[i];
        if (name->constant)
            continue;
        if (name->class != CLASS_GENERAL)
            say(&e->body, "%s u%u = 0;\n", scalar_type(name->bytes), i);
        if (name->class == CLASS_MAYBE)
            say(&e->body, "int o%u = 1;\n", i);
        if (name->class != CLASS_EVEN)
            say(&e->body, "w%u v%u%s;\n", width_of(name->bytes), i, begins_zero(plan, i) ? " = {0}" : "");
    }
    for (uint32_t b = 0; b < plan->block_count; b++)
        if (plan->blocks[b].joined)
            say(&e->body, "w4 p%u = NO_LANES;\n", b);
    for (uint32_t i = 1; i <= plan->barrier_count; i++)
        say(&e->body, "w4 q%u = NO_LANES;\n", i);
    say(&e->body, "const w4 start = %s;\nw4 m = start;\n", plan->full ? "ALL_LANES" : "lanes_of(gang->live)");
    say(&e->body, "uint32_t fuel = c->fuel;\n");
    say(&e->body,
        "struct compiled_range *const R = c->ranges;\nchar *const S = c->shared;\n(void)R, (void)S, (void)m;\n");
}

static void give(struct emitter *e)
{
    const struct plan *plan = e->plan;
    for (uint32_t i = 0; i < plan->register_count; i++) {
        uint32_t special = plan->names[i].special;
        if (!plan->names[i].given)
            continue;
        if (special <= SPECIAL_TID_Z)
            say(&e->body, "u%u = gang->tid[%u];\n", i, special);
        else if (special >= SPECIAL_CTAID_X)
            say(&e->body, "u%u = c->ctaid[%u];\n", i, special - SPECIAL_CTAID_X);
        else if (special >= SPECIAL_NTID_X && special <= SPECIAL_NTID_Z)
            say(&e->body, "u%u = %u;\n", i, plan->shape[special - SPECIAL_NTID_X]);
        else if (special >= SPECIAL_NCTAID_X && special <= SPECIAL_NCTAID_Z)
            say(&e->body, "u%u = c->nctaid[%u];\n", i, special - SPECIAL_NCTAID_X);
        else if (special == SPECIAL_NWARPID)
            say(&e->body, "u%u = %u;\n", i, (plan->shape[0] * plan->shape[1] * plan->shape[2] + LANES - 1) / LANES);
        else if (special == SPECIAL_NSMID)
            say(&e->body, "u%u = 1;\n", i);
        else if (special == SPECIAL_DYNAMIC_SMEM_SIZE)
            say(&e->body, "u%u = %llu;\n", i, (unsigned long long)(plan->shared_bytes - plan->kernel->shared_bytes));
        else if (special == SPECIAL_TOTAL_SMEM_SIZE)
            say(&e->body, "u%u = %llu;\n", i, (unsigned long long)plan->shared_bytes);
    }
}

static const char *lane_type(unsigned bytes, bool vector)
{
    if (!vector)
        return scalar_type(bytes);
    return bytes == 2 ? "w2" : bytes == 8 ? "w8" : "w4";
}

/* Whether the text means the same for vectors: operators alone, all values of one type that wraps or is a float. */
static bool is_plain(const struct op_form *form)
{
    const char *type = form->types[0], *at = form->text;
    if (strcmp(type, "uint32_t") != 0 && strcmp(type, "uint64_t") != 0 && strcmp(type, "float") != 0 &&
        strcmp(type, "double") != 0)
        return false;
    for (int i = 1; i < 5; i++)
        if (form->types[i][0] && strcmp(form->types[i], type) != 0)
            return false;
    for (;;) {
        at += strspn(at, "xyz +-*&|^~(),");
        if (strncmp(at, "same(", 5) == 0)
            at += 4;
        else if (strncmp(at, "fmaf(", 5) == 0)
            at += 4;
        else
            return *at == '\0';
    }
}

static bool form_is_whole(const struct op_form *form)
{
    return form->types[0][0] == 'u'; /* an integer: its bits are its value */
}

/* A plain form as a macro, on whole vectors or on numbers: a function costs the C compiler time at each place of use, a
 * loop over eight threads twice as much. */
static void emit_plain(struct text *t, uint32_t at, bool vector)
{
    static const char LETTERS[] = "?xyzv";
    const struct op_form *form = __start_op_forms[at];
    const char *type = form->types[0], *lanes = lane_type(form_type_bytes(type), vector), *many = vector ? "v_" : "";
    say(t, "#define f%c%u(", vector ? 'v' : 's', at);
    for (int i = 1; i < 5; i++)
        if (form->types[i][0])
            say(t, "%c_, ", LETTERS[i]);
    say(t, "...) ({ ");
    for (int i = 1; i < 5; i++)
        if (form->types[i][0])
            say(t, "const %s%s %c = (%s%s)(%c_); ", many, type, LETTERS[i], many, type, LETTERS[i]);
    say(t, "(%s)(", lanes);
    for (const char *from = form->text; *from; from++)
        if (strncmp(from, "same(", 5) == 0) {
            from += 3;
        } else if (strncmp(from, "fmaf(", 5) == 0) {
            say(t, "fused");
            from += 3;
        } else {
            say(t, "%c", *from);
        }
    say(t, "); })\n");
}

/* A form as a function: of one thread, or of eight in a loop that the C compiler makes into vector code. */
static void emit_form(struct text *t, uint32_t at, bool vector)
{
    bool whole = form_is_whole(__start_op_forms[at]);
    if ((vector || whole) && is_plain(__start_op_forms[at])) {
        emit_plain(t, at, vector);
        return;
    }
    static const char LETTERS[] = "?xyzv";
    const struct op_form *form = __start_op_forms[at];
    unsigned made = form_type_bytes(form->types[0]);
    bool compares = made == 0 && form_type_bytes(form->types[1]) != 0;
    const char *result = made ? form->types[0] : "uint32_t", *many = vector ? "[8]" : "";
    say(t, "INLINE %s f%c%u(", lane_type(made, vector), vector ? 'v' : 's', at);
    for (int i = 1; i < 5; i++)
        if (form->types[i][0])
            say(t, "%s %c_, ", lane_type(form_type_bytes(form->types[i]), vector), LETTERS[i]);
    say(t, "const struct mode *in)\n{\n(void)in;\n%s d%s;\n", result, many);
    for (int i = 1; i < 5; i++)
        if (form->types[i][0]) {
            bool predicate = form_type_bytes(form->types[i]) == 0;
            say(t, "%s %c__%s;\n__builtin_memcpy(&%c__, &%c_, sizeof %c__);\n", predicate ? "uint32_t" : form->types[i],
                LETTERS[i], many, LETTERS[i], LETTERS[i], LETTERS[i]);
        }
    say(t, vector ? "for (int l = 0; l < 8; l++) {\n" : "{\n");
    for (int i = 1; i < 5; i++)
        if (form->types[i][0]) {
            bool predicate = form_type_bytes(form->types[i]) == 0;
            say(t, "%s %c = %c__%s;\n(void)%c;\n", predicate ? "uint32_t" : form->types[i], LETTERS[i], LETTERS[i],
                vector ? "[l]" : "", LETTERS[i]);
        }
    say(t, "d%s = (%s)(%s)%s;\n}\n", vector ? "[l]" : "", result, form->text, compares ? " ? ~0u : 0" : "");
    say(t, "%s r;\n__builtin_memcpy(&r, &d, sizeof r);\nreturn r;\n}\n", lane_type(made, vector));
}

static char *joined(const struct emitter *e)
{
    struct text all = {0};
    if (!e->functions.failed && !e->body.failed)
        say(&all, "%s\n%s\n%s", PRELUDE_TEXT, e->functions.at ? e->functions.at : "", e->body.at);
    if (all.failed || e->functions.failed || e->body.failed) {
        free(all.at);
        return NULL;
    }
    return all.at;
}

/* Gangs in turn, from barrier to barrier. */
static const char BLOCK_TEXT[] = "int gputax_block(struct compiled_call *c)\n"
                                 "{\n"
                                 "struct compiled_gang *const end = c->gangs + c->gang_count;\n"
                                 "for (struct compiled_gang *gang = c->gangs; gang < end; gang++)\n"
                                 "gang->entry = 0;\n"
                                 "for (int waits = 1; waits;) {\n"
                                 "waits = 0;\n"
                                 "for (struct compiled_gang *gang = c->gangs; gang < end; gang++) {\n"
                                 "if (gang->entry == ENTRY_ENDED)\n"
                                 "continue;\n"
                                 "int result = run(c, gang);\n"
                                 "if (result == GANG_FAILED)\n"
                                 "return 1;\n"
                                 "if (result == GANG_ENDED)\n"
                                 "gang->entry = ENTRY_ENDED;\n"
                                 "else\n"
                                 "waits = 1;\n"
                                 "}\n"
                                 "}\n"
                                 "return 0;\n"
                                 "}\n";

char *emit_kernel(const struct plan *plan, uint32_t *state_bytes, uint32_t *range_count)
{
    struct emitter *e = calloc(1, sizeof *e);
    // cppcheck-suppress comparePointers; both are bounds of one section
    size_t forms = (size_t)(__stop_op_forms - __start_op_forms);
    char *whole = NULL;
    if (!e)
        return NULL;
    e->plan = plan;
    e->used = calloc(forms + 1, sizeof *e->used);
    e->state_at = calloc(plan->register_count + 1, sizeof *e->state_at);
    e->first = calloc(plan->item_count + 1, sizeof *e->first);
    e->lazy = calloc(plan->item_count + 1, sizeof *e->lazy);
    e->needed = calloc(plan->name_count + 1, sizeof *e->needed);
    e->covered = calloc(plan->item_count + 1, sizeof *e->covered);
    e->turned = calloc(plan->item_count + 1, sizeof *e->turned);
    if (e->used && e->state_at && e->first && e->covered && e->turned && e->lazy && e->needed && state_place(e)) {
        /* Inside the loop over gangs a stretch between two barriers has no call around it: 8.8 to 10.7 GFLOP/s on the
         * tiled product. Without barriers nothing is gained, and the C compiler takes a tenth longer. */
        say(&e->body,
            "%s int run(struct compiled_call *c, struct compiled_gang *gang)\n{\n"
            "char *const kept = gang->state;\n(void)kept;\nc->local = gang->local;\n",
            plan->barrier_count ? "INLINE" : "static __attribute__((noinline))");
        declare(e);
        give(e);
        emit_entry(e);
        for (uint32_t b = 0; b < plan->block_count; b++)
            emit_block(e, b);
        emit_end(e);
        say(&e->body, "}\n%s", BLOCK_TEXT);
        for (uint32_t i = 0; i < forms; i++)
            for (int vector = 0; vector < 2 && e->used[i]; vector++)
                emit_form(&e->functions, i, vector);
        whole = joined(e);
        *state_bytes = e->state_bytes;
        *range_count = plan->code->cache_count + e->cover_count;
    }
    free(e->functions.at);
    free(e->body.at);
    free(e->used);
    free(e->state_at);
    free(e->dirty);
    free(e->restored);
    free(e->first);
    free(e->covered);
    free(e->lazy);
    free(e->needed);
    free(e->turned);
    free(e);
    return whole;
}
