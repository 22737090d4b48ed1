/* One check for many accesses: addresses are computed first, then what a block touches through each of them is checked
 * at once; the block is written twice, with the checks of single accesses and without. */
#include <stdlib.h>
#include <string.h>

#include "device/compile/emit.h"

enum { COVERS_MAX = 16, ACCESSES_MIN = 3 };

/* Whether an item before `at` makes the name in this block, other than one that is computed first. */
static bool made_before(const struct emitter *e, const struct block *block, uint32_t at, uint32_t name)
{
    for (uint32_t i = block->first; i < at; i++)
        for (uint32_t k = 0; k < e->plan->items[i].made_count; k++)
            if (e->plan->items[i].made[k] == name && !e->first[i])
                return true;
    return false;
}

static unsigned times_made(const struct plan *plan, const struct block *block, uint32_t name)
{
    unsigned count = 0;
    for (uint32_t i = block->first; i < block->end; i++)
        for (uint32_t k = 0; k < plan->items[i].made_count; k++)
            count += plan->items[i].made[k] == name;
    return count;
}

/* Computations of one scalar into a name of the block's own can stand first if their operands can. */
static void choose_first(struct emitter *e, const struct block *block)
{
    const struct plan *plan = e->plan;
    for (uint32_t i = block->first; i < block->end; i++) {
        const struct item *item = &plan->items[i];
        e->first[i] = false;
        if ((item->kind != KIND_FORM && item->kind != KIND_PARAMETER) || item->guard != NONE ||
            item->made[0] < plan->register_count || plan->names[item->made[0]].class == CLASS_GENERAL ||
            times_made(plan, block, item->made[0]) != 1)
            continue;
        bool can = true;
        for (uint32_t k = 0; k < item->source_count && can; k++)
            can = plan->names[item->sources[k]].class != CLASS_GENERAL && !made_before(e, block, i, item->sources[k]);
        e->first[i] = can;
    }
}

static struct cover *cover_of(struct cover *covers, uint32_t *count, uint32_t name, bool global)
{
    for (uint32_t i = 0; i < *count; i++)
        if (covers[i].name == name && covers[i].global == global)
            return &covers[i];
    if (*count == COVERS_MAX)
        return NULL;
    covers[*count] = (struct cover){.name = name, .global = global, .low = INT64_MAX, .align = 1};
    return &covers[(*count)++];
}

static bool add(struct emitter *e, const struct block *block, uint32_t at, struct cover *covers, uint32_t *count)
{
    const struct item *item = &e->plan->items[at];
    struct place p = access_place(e, item);
    int64_t offset = item->in->immediate;
    if (!p.even || offset % p.whole || offset < 0 || offset > INT32_MAX || made_before(e, block, at, item->sources[0]))
        return false;
    struct cover *cover = cover_of(covers, count, item->sources[0], p.global);
    if (!cover)
        return false;
    int64_t end = offset + p.whole + (int64_t)p.footprint;
    cover->low = offset < cover->low ? offset : cover->low;
    cover->end = end > cover->end ? end : cover->end;
    cover->align = p.whole > cover->align ? p.whole : cover->align;
    cover->write = cover->write || item->kind == KIND_STORE;
    return true;
}

/* Offsets must be multiples of the widest access, so that one look at the base shows that all are aligned. */
static bool aligned(const struct emitter *e, const struct block *block, const struct cover *cover)
{
    for (uint32_t i = block->first; i < block->end; i++)
        if (e->covered[i] && e->plan->items[i].sources[0] == cover->name &&
            e->plan->items[i].in->immediate % cover->align &&
            (e->plan->items[i].in->space == SPACE_GLOBAL) == cover->global &&
            access_place(e, &e->plan->items[i]).whole == cover->align)
            return false;
    return true;
}

/* Writes the condition under which all covered accesses are good. */
static void condition(struct emitter *e, const struct cover *covers, uint32_t count)
{
    const struct plan *plan = e->plan;
    for (uint32_t i = 0; i < count; i++) {
        const struct cover *cover = &covers[i];
        const char *scalar = scalar_of(e, cover->name);
        say(&e->body, "%s", i ? " && " : "");
        if (plan->names[cover->name].class == CLASS_MAYBE)
            say(&e->body, "o%u && ", cover->name);
        say(&e->body, "!(%s & %u) && ", scalar, cover->align - 1);
        if (!cover->global) {
            say(&e->body, "(uint64_t)%s <= %lluull", scalar,
                (unsigned long long)(plan->shared_bytes - (uint64_t)cover->end)); /* emit_items has seen that it fits */
            continue;
        }
        uint32_t slot = plan->code->cache_count + e->cover_count++;
        say(&e->functions, "static const struct access G%u = {%u, %u, 1, 1, 1, %lluull, %d};\n", slot, slot,
            SPACE_GLOBAL, (unsigned long long)(cover->end - cover->low - 1), cover->write);
        say(&e->body, "reached(c, &R[%u], &G%u, %s + %lldull)", slot, slot, scalar, (long long)cover->low);
    }
}

static void items(struct emitter *e, const struct block *block, bool first)
{
    for (uint32_t i = block->first; i < block->end; i++) {
        enum kind kind = e->plan->items[i].kind;
        if (e->first[i] == first && kind != KIND_BRANCH && kind != KIND_EXIT && kind != KIND_TRAP &&
            kind != KIND_BARRIER) {
            if (e->sure)
                turn_emit(e, i);
            emit_item(e, i);
        }
    }
}

void emit_items(struct emitter *e, uint32_t b)
{
    const struct block *block = &e->plan->blocks[b];
    struct cover covers[COVERS_MAX];
    uint32_t count = 0, accesses = 0;
    memset(e->first + block->first, 0, (block->end - block->first) * sizeof *e->first);
    choose_first(e, block);
    for (uint32_t i = block->first; i < block->end; i++) {
        enum kind kind = e->plan->items[i].kind;
        e->covered[i] = (kind == KIND_LOAD || kind == KIND_STORE) && add(e, block, i, covers, &count);
        accesses += e->covered[i];
    }
    bool good = accesses >= ACCESSES_MIN && block->depth > 0;
    if (good)
        turn_choose(e, block, covers, count);
    for (uint32_t i = 0; i < count && good; i++)
        good = aligned(e, block, &covers[i]) && (covers[i].global || e->plan->shared_bytes >= (uint64_t)covers[i].end);
    items(e, block, true);
    if (!good) {
        items(e, block, false);
        return;
    }
    say(&e->body, "if (LIKELY(");
    condition(e, covers, count);
    say(&e->body, ")) {\n");
    e->sure = true;
    items(e, block, false);
    e->sure = false;
    say(&e->body, "} else {\n");
    e->unsure = true;
    items(e, block, false);
    e->unsure = false;
    say(&e->body, "}\n");
}
