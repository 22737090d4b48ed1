/* Instructions that compute: forms, evenly spaced where they can be, and steps of the interpreter. */
#include "device/compile/emit.h"

#include <string.h>

void put_scalar(struct emitter *e, const struct item *item, uint32_t k, const char *value, int64_t stride)
{
    uint32_t at = item->made[k];
    const struct name *name = &e->plan->names[at];
    if (name->class == CLASS_EVEN)
        say(&e->body, "u%u = %s;\n", at, value);
    else if (name->class == CLASS_MAYBE)
        say(&e->body, "u%u = %s;\no%u = 1;\n", at, value, at);
    else
        put_vector(e, item, k, spread_of(e, width_of(name->bytes), value, stride));
}

void put_vector(struct emitter *e, const struct item *item, uint32_t k, const char *value)
{
    uint32_t at = item->made[k];
    const struct name *name = &e->plan->names[at];
    if (name->class == CLASS_MAYBE)
        say(&e->body, "v%u = %s;\no%u = 0;\n", at, value, at);
    else if (item->blends)
        say(&e->body, "v%u = pick%u(k, %s, v%u);\n", at, width_of(name->bytes), value, at);
    else
        say(&e->body, "v%u = %s;\n", at, value);
}

static uint32_t form_index(struct emitter *e, const struct item *item)
{
    uint32_t at = 0;
    while (__start_op_forms[at] != item->form)
        at++;
    e->used[at] = true;
    return at;
}

static void form_call(struct emitter *e, const struct item *item, bool vector)
{
    say(&e->body, "f%c%u(", vector ? 'v' : 's', form_index(e, item));
    for (uint32_t k = 0; k < item->source_count; k++)
        say(&e->body, "%s, ", vector ? vector_of(e, item->sources[k]) : scalar_of(e, item->sources[k]));
    say(&e->body, "&(const struct mode){%lldll, %u})", (long long)item->in->immediate, item->in->mode);
}

/* A value that is evenly spaced unless a source was not, or a widening overflows. */
static void emit_maybe(struct emitter *e, const struct item *item, const struct shape *shape)
{
    const struct plan *plan = e->plan;
    say(&e->body, "if (LIKELY(1");
    for (uint32_t k = 0; k < item->source_count; k++) {
        const struct name *name = &plan->names[item->sources[k]];
        if (name->class == CLASS_MAYBE)
            say(&e->body, " && o%u", item->sources[k]);
        if (item->widens && k < 2 && name->bytes == 4 && name->stride)
            say(&e->body, " && fits_%s(%s, %lld)", item->sign ? "signed" : "unsigned", scalar_of(e, item->sources[k]),
                (long long)name->stride);
    }
    say(&e->body, ")) {\n%s s = ", scalar_type(plan->names[item->made[0]].bytes));
    form_call(e, item, false);
    say(&e->body, ";\n");
    put_scalar(e, item, 0, "s", shape->stride);
    say(&e->body, "} else {\nw%u w = ", width_of(plan->names[item->made[0]].bytes));
    form_call(e, item, true);
    say(&e->body, ";\n");
    put_vector(e, item, 0, "w");
    say(&e->body, "}\n");
}

static void emit_form_item(struct emitter *e, const struct item *item)
{
    struct shape shape = item_shape(e->plan, item);
    unsigned bytes = e->plan->names[item->made[0]].bytes;
    bool whole = e->unsure && e->lazy[item - e->plan->items]; /* rare: without the shorter way */
    if (shape.class == CLASS_MAYBE && !whole) {
        emit_maybe(e, item, &shape);
    } else if (shape.class == CLASS_EVEN) {
        say(&e->body, "%s s = ", scalar_type(bytes));
        form_call(e, item, false);
        say(&e->body, ";\n");
        put_scalar(e, item, 0, "s", shape.stride);
    } else {
        say(&e->body, "w%u w = ", width_of(bytes));
        form_call(e, item, true);
        say(&e->body, ";\n");
        put_vector(e, item, 0, "w");
    }
}

/* Operands go to their places in a register file, the interpreter's step runs on it, its results come back. */
static void emit_step(struct emitter *e, const struct item *item, uint32_t at)
{
    const struct plan *plan = e->plan;
    for (uint32_t k = 0; k < item->source_count; k++) {
        uint32_t slot = plan->register_slots[item->registers[k]];
        unsigned bytes = plan->names[item->sources[k]].bytes;
        if (bytes)
            say(&e->body, "{\nw%u w = %s;\n__builtin_memcpy(c->registers + %u, &w, sizeof w);\n}\n", bytes,
                vector_of(e, item->sources[k]), slot);
        else
            say(&e->body, "{\nuint32_t w = bits(%s);\n__builtin_memcpy(c->registers + %u, &w, sizeof w);\n}\n",
                vector_of(e, item->sources[k]), slot);
    }
    say(&e->body, "c->step(c, %u, bits(k));\n", at);
    for (uint32_t k = 0; k < item->made_count; k++) {
        uint32_t slot = plan->register_slots[item->made_registers[k]];
        unsigned bytes = plan->names[item->made[k]].bytes;
        if (bytes)
            say(&e->body, "{\nw%u w;\n__builtin_memcpy(&w, c->registers + %u, sizeof w);\n", bytes, slot);
        else
            say(&e->body, "{\nuint32_t s;\n__builtin_memcpy(&s, c->registers + %u, sizeof s);\nw4 w = lanes_of(s);\n",
                slot);
        put_vector(e, item, k, "w");
        say(&e->body, "}\n");
    }
}

static void emit_parameter(struct emitter *e, const struct item *item)
{
    say(&e->body, "%s s;\n__builtin_memcpy(&s, c->parameters + %lld, sizeof s);\n",
        scalar_type(e->plan->names[item->made[0]].bytes), (long long)item->in->immediate);
    put_scalar(e, item, 0, "s", 0);
}

/* What all threads compute, whoever takes part: one assignment. Most lines of a kernel are such. */
static bool emit_assignment(struct emitter *e, const struct item *item)
{
    if (item->kind != KIND_FORM || item->guard != NONE || item->blends)
        return false;
    const struct name *name = &e->plan->names[item->made[0]];
    enum class made = item_shape(e->plan, item).class;
    if (made == CLASS_MAYBE || made != name->class)
        return false;
    say(&e->body, "%c%u = ", made == CLASS_EVEN ? 'u' : 'v', item->made[0]);
    form_call(e, item, made != CLASS_EVEN);
    say(&e->body, ";\n");
    return true;
}

/* `k` is the mask of those who take part; a guard that is the same for all is an `if`. */
void emit_item(struct emitter *e, uint32_t at)
{
    const struct item *item = &e->plan->items[at];
    if (emit_assignment(e, item))
        return;
    say(&e->body, "{\nw4 k = %s;\n(void)k;\n", mask_of(e, item));
    if (item->guard != NONE && e->plan->names[item->guard].class == CLASS_GENERAL) {
        say(&e->body, "k &= %s%s;\n", item->in->guard_not ? "~" : "", vector_of(e, item->guard));
        if (item->kind != KIND_FORM && item->kind != KIND_PARAMETER)
            say(&e->body, "if (bits(k))");
    } else if (item->guard != NONE) {
        say(&e->body, "if (%s%s)", item->in->guard_not ? "!" : "", scalar_of(e, item->guard));
    }
    say(&e->body, "{\n");
    if (item->kind == KIND_FORM)
        emit_form_item(e, item);
    else if (item->kind == KIND_STEP)
        emit_step(e, item, at);
    else if (item->kind == KIND_PARAMETER)
        emit_parameter(e, item);
    else
        emit_access(e, item);
    say(&e->body, "}\n}\n");
}
