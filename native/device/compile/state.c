/* What a gang keeps over a barrier: each register that lives on has its place, and between two barriers only what is
 * touched there is read from it, only what was written goes back. On the tiled product this halves the time. */
#include <stdlib.h>
#include <string.h>

#include "device/compile/emit.h"

static bool is_barrier(const struct plan *plan, uint32_t block)
{
    return plan->items[plan->blocks[block].end - 1].kind == KIND_BARRIER;
}

bool state_waits_apart(const struct plan *plan)
{
    for (uint32_t b = 0; b < plan->block_count; b++)
        if (plan->blocks[b].divergent && is_barrier(plan, b))
            return true;
    return false;
}

static void place(struct emitter *e)
{
    const struct plan *plan = e->plan;
    e->state_bytes = 64 * (plan->barrier_count + 1); /* masks of those who wait */
    for (uint32_t r = 0; r < plan->register_count; r++) {
        bool kept = false;
        for (uint32_t b = 0; b < plan->block_count; b++)
            kept = kept || (plan->blocks[b].after_barrier && set_has(plan->blocks[b].live, r));
        if (!kept || plan->names[r].constant || plan->names[r].given)
            continue;
        e->state_at[r] = e->state_bytes;
        e->state_bytes += plan->names[r].class == CLASS_EVEN ? 8 : plan->names[r].class == CLASS_MAYBE ? 128 : 64;
    }
    e->state_bytes = (e->state_bytes + 63) / 64 * 64;
}

/* The blocks that run from `first` on until the next barrier. */
static void find_region(const struct plan *plan, uint32_t first, bool *within, uint32_t *stack)
{
    uint32_t depth = 0;
    memset(within, 0, plan->block_count * sizeof *within);
    stack[depth++] = first;
    while (depth) {
        uint32_t b = stack[--depth];
        if (within[b])
            continue;
        within[b] = true;
        for (int k = 0; k < 2 && !is_barrier(plan, b); k++)
            if (plan->blocks[b].next[k] != NONE)
                stack[depth++] = plan->blocks[b].next[k];
    }
}

static void note(const struct plan *plan, uint64_t *set, uint32_t name)
{
    if (name != NONE && name < plan->register_count)
        set_add(set, name);
}

static void find_touched(const struct plan *plan, const bool *within, uint64_t *touched, uint64_t *written)
{
    for (uint32_t i = 0; i < plan->item_count; i++) {
        const struct item *item = &plan->items[i];
        if (!within[item->block])
            continue;
        for (uint32_t k = 0; k < item->source_count; k++)
            note(plan, touched, item->sources[k]);
        note(plan, touched, item->guard);
        for (uint32_t k = 0; k < item->made_count; k++) {
            note(plan, touched, item->made[k]);
            note(plan, written, item->made[k]);
        }
    }
}

/* Two rounds over the stretches between barriers: what may have been written when a barrier is reached; then what must
 * be there at a start, because it is touched or will be saved. */
static void find_sets(struct emitter *e, const uint32_t *ends, bool *within, uint32_t *stack, uint64_t *scratch)
{
    const struct plan *plan = e->plan;
    uint32_t words = plan->words;
    for (int round = 0; round < 2; round++)
        for (uint32_t n = 0; n < plan->barrier_count; n++) {
            uint64_t *touched = scratch, *written = scratch + words, *restored = e->restored + (size_t)n * words;
            const uint64_t *live = plan->blocks[ends[n] + 1].live;
            memset(scratch, 0, 2 * words * sizeof *scratch);
            find_region(plan, ends[n] + 1, within, stack);
            find_touched(plan, within, touched, written);
            for (uint32_t m = 0; m < plan->barrier_count; m++)
                for (uint32_t i = 0; i < words && within[ends[m]]; i++) {
                    uint64_t *dirty = &e->dirty[(size_t)m * words + i];
                    if (round)
                        touched[i] |= *dirty;
                    else
                        *dirty |= written[i] & plan->blocks[ends[m] + 1].live[i];
                }
            for (uint32_t i = 0; i < words; i++)
                restored[i] = live[i] & touched[i];
        }
}

static void find_all(struct emitter *e, const uint32_t *ends)
{
    const struct plan *plan = e->plan;
    for (uint32_t n = 0; n < plan->barrier_count; n++)
        for (uint32_t i = 0; i < plan->words; i++)
            e->dirty[(size_t)n * plan->words + i] = e->restored[(size_t)n * plan->words + i] =
                plan->blocks[ends[n] + 1].live[i];
}

bool state_place(struct emitter *e)
{
    const struct plan *plan = e->plan;
    size_t sets = (size_t)plan->barrier_count * plan->words + 1;
    uint32_t *ends = calloc((size_t)plan->block_count + 1, sizeof *ends), count = 0;
    uint32_t *stack = calloc((size_t)plan->block_count * 2 + 4, sizeof *stack);
    bool *within = calloc((size_t)plan->block_count + 1, sizeof *within);
    uint64_t *scratch = calloc((size_t)plan->words * 2 + 1, sizeof *scratch);
    e->dirty = calloc(sets, sizeof *e->dirty);
    e->restored = calloc(sets, sizeof *e->restored);
    bool good = ends && stack && within && scratch && e->dirty && e->restored;
    if (good) {
        place(e);
        for (uint32_t b = 0; b < plan->block_count; b++)
            if (is_barrier(plan, b))
                ends[count++] = b;
        if (state_waits_apart(plan)) /* who enters again may stand at several places */
            find_all(e, ends);
        else
            find_sets(e, ends, within, stack, scratch);
    }
    free(ends);
    free(stack);
    free(within);
    free(scratch);
    return good;
}

/* The vector of a name that is mostly evenly spaced is kept only if it is in use. */
static const char *rare(struct emitter *e, const struct name *name, int part, uint32_t at)
{
    return name->class == CLASS_MAYBE && part == 2 ? word(e, "if (!o%u)\n", at) : "";
}

static void move(struct emitter *e, uint32_t r, bool restore)
{
    const struct name *name = &e->plan->names[r];
    struct {
        bool is;
        char letter;
        uint32_t offset;
    } const parts[] = {{name->class != CLASS_GENERAL, 'u', 0},
                       {name->class == CLASS_MAYBE, 'o', 8},
                       {name->class != CLASS_EVEN, 'v', name->class == CLASS_MAYBE ? 64 : 0}};
    for (int i = 0; i < 3; i++) {
        if (!parts[i].is)
            continue;
        char letter = parts[i].letter;
        uint32_t at = e->state_at[r] + parts[i].offset;
        say(&e->body, "%s", rare(e, name, i, r));
        if (restore)
            say(&e->body, "__builtin_memcpy(&%c%u, kept + %u, sizeof %c%u);\n", letter, r, at, letter, r);
        else
            say(&e->body, "__builtin_memcpy(kept + %u, &%c%u, sizeof %c%u);\n", at, letter, r, letter, r);
    }
}

static bool has(const uint64_t *set, uint32_t r)
{
    return !set || set_has(set, r);
}

void state_save(struct emitter *e, uint32_t barrier, const uint64_t *live)
{
    const struct plan *plan = e->plan;
    const uint64_t *dirty = barrier ? e->dirty + (size_t)(barrier - 1) * plan->words : NULL;
    for (uint32_t r = 0; r < plan->register_count; r++)
        if (e->state_at[r] && has(live, r) && has(dirty, r))
            move(e, r, false);
    say(&e->body, "if (fresh) {\n"); /* nothing has been saved yet */
    for (uint32_t r = 0; r < plan->register_count; r++)
        if (e->state_at[r] && has(live, r) && !has(dirty, r))
            move(e, r, false);
    say(&e->body, "}\n");
}

void state_restore(struct emitter *e, uint32_t barrier)
{
    const struct plan *plan = e->plan;
    const uint64_t *restored = barrier ? e->restored + (size_t)(barrier - 1) * plan->words : NULL;
    for (uint32_t r = 0; r < plan->register_count; r++)
        if (e->state_at[r] && has(restored, r))
            move(e, r, true);
}
