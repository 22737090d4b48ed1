/* The ways between blocks. Where threads part, those who go further wait in the pending mask of their block, and a scan
 * forward through the text lets the ones furthest behind run first; at a barrier the gang returns and enters again. */
#include "device/compile/emit.h"

/* The next block at which somebody may wait, or in which all are together. */
static void go_on(struct emitter *e, uint32_t from)
{
    const struct plan *plan = e->plan;
    for (uint32_t b = from + 1; b < plan->block_count; b++)
        if (plan->blocks[b].joined || !plan->blocks[b].divergent) {
            say(&e->body, "goto L%u;\n", b);
            return;
        }
    say(&e->body, "goto END;\n");
}

static void burn(struct emitter *e)
{
    say(&e->body, "if (__builtin_expect(--fuel == 0, 0)) {\nif (ticked(c))\ngoto FAIL;\nfuel = c->fuel;\n}\n");
}

/* All who are here go to the block. */
static void jump(struct emitter *e, uint32_t from, uint32_t to)
{
    const struct plan *plan = e->plan;
    if (to <= from)
        burn(e);
    if (!plan->blocks[from].divergent && plan->blocks[to].divergent)
        say(&e->body, "m = start;\n");
    if (!plan->blocks[from].divergent || to <= from) {
        say(&e->body, "goto L%u;\n", to);
        return;
    }
    if (plan->blocks[to].divergent)
        say(&e->body, "p%u |= m;\n", to);
    say(&e->body, "m = NO_LANES;\n");
    go_on(e, from);
}

/* Some go to the block, others fall through. */
static void part(struct emitter *e, uint32_t from, uint32_t to, const struct item *last)
{
    const struct plan *plan = e->plan;
    uint32_t next = from + 1;
    say(&e->body, "{\nconst w4 g = %s%s;\nw4 taken = %s & g, rest = %s & ~g;\n", last->in->guard_not ? "~" : "",
        vector_of(e, last->guard), mask_of(e, last), mask_of(e, last));
    if (to > from) {
        if (plan->blocks[to].divergent)
            say(&e->body, "p%u |= taken;\n", to);
        say(&e->body, "(void)taken;\nm = rest;\n}\n");
        return;
    }
    say(&e->body, "if (bits(taken)) {\n");
    if (next < plan->block_count && plan->blocks[next].divergent)
        say(&e->body, "p%u |= rest;\n", next);
    say(&e->body, "m = taken;\n");
    burn(e);
    say(&e->body, "goto L%u;\n}\nm = rest;\n}\n", to);
}

static void leave(struct emitter *e, uint32_t from)
{
    if (!e->plan->blocks[from].divergent) {
        say(&e->body, "goto END;\n");
        return;
    }
    say(&e->body, "m = NO_LANES;\n");
    go_on(e, from);
}

/* The n-th barrier. All together: return and come back here. Some: they wait until nobody of the gang can run. */
static void barrier(struct emitter *e, uint32_t from)
{
    const struct plan *plan = e->plan;
    uint32_t at = ++e->barriers;
    if (plan->blocks[from].divergent) {
        say(&e->body, "q%u |= m;\nm = NO_LANES;\n", at);
        go_on(e, from);
        return;
    }
    state_save(e, at, plan->blocks[from + 1].live);
    say(&e->body, "gang->entry = %u;\nc->fuel = fuel;\nreturn GANG_AT_BARRIER;\n", at);
}

void emit_entry(struct emitter *e)
{
    const struct plan *plan = e->plan;
    uint32_t at = 0, lowest = NONE;
    if (!plan->barrier_count)
        return;
    say(&e->body, "const int fresh = gang->entry == 0;\n(void)fresh;\nswitch (gang->entry) {\n");
    for (uint32_t b = 0; b < plan->block_count; b++) {
        if (plan->items[plan->blocks[b].end - 1].kind != KIND_BARRIER)
            continue;
        at++;
        if (plan->blocks[b].divergent) {
            lowest = lowest == NONE ? b + 1 : lowest;
            continue;
        }
        say(&e->body, "case %u:\n", at);
        state_restore(e, at);
        say(&e->body, "goto L%u;\n", b + 1);
    }
    if (lowest != NONE) { /* each one's mask becomes pending behind its barrier */
        say(&e->body, "case %u:\n", plan->barrier_count + 1);
        state_restore(e, 0);
        at = 0;
        for (uint32_t b = 0; b < plan->block_count; b++) {
            if (plan->items[plan->blocks[b].end - 1].kind != KIND_BARRIER)
                continue;
            at++;
            if (plan->blocks[b].divergent && plan->blocks[b + 1].divergent)
                say(&e->body, "__builtin_memcpy(&p%u, kept + %u, sizeof p%u);\n", b + 1, 64 * at, b + 1);
        }
        say(&e->body, "m = NO_LANES;\ngoto L%u;\n", lowest);
    }
    say(&e->body, "default:\nbreak;\n}\n");
}

void emit_end(struct emitter *e)
{
    const struct plan *plan = e->plan;
    say(&e->body, "END:;\nc->fuel = fuel;\n");
    if (state_waits_apart(plan)) {
        say(&e->body, "if (bits(NO_LANES");
        for (uint32_t i = 1; i <= plan->barrier_count; i++)
            say(&e->body, " | q%u", i);
        say(&e->body, ")) {\n");
        state_save(e, 0, NULL);
        for (uint32_t i = 1; i <= plan->barrier_count; i++)
            say(&e->body, "__builtin_memcpy(kept + %u, &q%u, sizeof q%u);\n", 64 * i, i, i);
        say(&e->body, "gang->entry = %u;\nreturn GANG_AT_BARRIER;\n}\n", plan->barrier_count + 1);
    }
    say(&e->body, "return GANG_ENDED;\nFAIL: __attribute__((unused));\nreturn GANG_FAILED;\n");
}

static void emit_last(struct emitter *e, uint32_t b, const struct item *last)
{
    const struct plan *plan = e->plan;
    bool parts = last->guard != NONE && plan->names[last->guard].class == CLASS_GENERAL;
    if (last->kind == KIND_BARRIER) {
        barrier(e, b);
        return;
    }
    if (parts && last->kind == KIND_BRANCH) {
        part(e, b, plan->blocks[b].next[1], last);
        return;
    }
    if (parts) {
        say(&e->body, "{\nconst w4 g = %s%s;\n", last->in->guard_not ? "~" : "", vector_of(e, last->guard));
        if (last->kind == KIND_EXIT)
            say(&e->body, "m = %s & ~g;\n}\n", mask_of(e, last));
        else
            say(&e->body, "if (bits(%s & g)) {\nc->fault = FAULT_TRAP;\ngoto FAIL;\n}\n}\n", mask_of(e, last));
        return;
    }
    say(&e->body, "{\n");
    if (last->guard != NONE)
        say(&e->body, "if (%s%s)\n", last->in->guard_not ? "!" : "", scalar_of(e, last->guard));
    say(&e->body, "{\n");
    if (last->kind == KIND_BRANCH)
        jump(e, b, plan->blocks[b].next[1]);
    else if (last->kind == KIND_EXIT)
        leave(e, b);
    else
        say(&e->body, "c->fault = FAULT_TRAP;\ngoto FAIL;\n");
    say(&e->body, "}\n}\n");
}

void emit_block(struct emitter *e, uint32_t b)
{
    const struct plan *plan = e->plan;
    const struct block *block = &plan->blocks[b];
    const struct item *last = &plan->items[block->end - 1];
    say(&e->body, "L%u: __attribute__((unused));\n", b);
    if (block->joined) {
        say(&e->body, "m |= p%u;\np%u = NO_LANES;\nif (!bits(m))\n", b, b);
        go_on(e, b);
    }
    emit_items(e, b);
    bool ends =
        last->kind == KIND_BRANCH || last->kind == KIND_EXIT || last->kind == KIND_TRAP || last->kind == KIND_BARRIER;
    bool parts = ends && last->guard != NONE && plan->names[last->guard].class == CLASS_GENERAL;
    if (ends)
        emit_last(e, b, last);
    if (!block->divergent && block->next[0] != NONE && plan->blocks[block->next[0]].divergent &&
        (!parts || last->kind == KIND_TRAP))
        say(&e->body, "m = start;\n");
}
