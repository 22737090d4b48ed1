/* One check for many accesses: what a block touches around each root is checked at once; the block is written twice, for
 * the case that all is well and for the other. What only computes addresses stands in the second text alone. */
#include <stdlib.h>
#include <string.h>

#include "device/compile/emit.h"

enum { COVERS_MAX = 16, ACCESSES_MIN = 3, OFFSET_MAX = 1 << 28 };

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

static struct cover *cover_of(struct emitter *e, struct cover *covers, uint32_t *count, const struct root *root,
                              bool global)
{
    for (uint32_t i = 0; i < *count; i++)
        if (covers[i].global == global && covers[i].root.base == root->base && covers[i].root.index == root->index &&
            covers[i].root.scale == root->scale && covers[i].root.sign == root->sign)
            return &covers[i];
    if (*count == COVERS_MAX)
        return NULL;
    covers[*count] = (struct cover){
        .id = ++e->cover_ids, .root = *root, .global = global, .low = INT64_MAX, .end = INT64_MIN, .align = 1};
    return &covers[(*count)++];
}

static bool add(struct emitter *e, const struct block *block, uint32_t at, struct cover *covers, uint32_t *count)
{
    const struct item *item = &e->plan->items[at];
    struct place p = access_place(e, item);
    struct root root;
    int64_t number, offset;
    if (!access_is_sure(e, item))
        return false;
    root_read(e->plan, at, &root, &number, &offset);
    if (root.index != NONE && (made_before(e, block, at, root.index) || made_before(e, block, at, root.base))) {
        root = (struct root){.base = item->sources[0], .index = NONE};
        number = 0, offset = item->in->immediate;
    }
    int64_t least = e->plan->names[root.base].bytes == 8 ? -OFFSET_MAX : 0;
    if (offset % p.whole || offset < least || offset > OFFSET_MAX || made_before(e, block, at, root.base))
        return false;
    struct cover *cover = cover_of(e, covers, count, &root, p.global);
    if (!cover)
        return false;
    int64_t end = offset + p.whole + (int64_t)p.footprint;
    cover->low = offset < cover->low ? offset : cover->low;
    cover->end = end > cover->end ? end : cover->end;
    cover->least = number < cover->least ? number : cover->least;
    cover->most = number > cover->most ? number : cover->most;
    cover->align = p.whole > cover->align ? p.whole : cover->align;
    cover->write = cover->write || item->kind == KIND_STORE;
    e->covered[at] = (struct covered){cover->id, offset};
    return true;
}

/* Offsets must be multiples of the widest access, so that one look at the root shows that all are aligned. */
static bool aligned(const struct emitter *e, const struct block *block, const struct cover *cover)
{
    for (uint32_t i = block->first; i < block->end; i++)
        if (e->covered[i].cover == cover->id && e->covered[i].offset % cover->align &&
            access_place(e, &e->plan->items[i]).whole == cover->align)
            return false;
    return true;
}

static void emit_roots(struct emitter *e, const struct cover *covers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct root *root = &covers[i].root;
        say(&e->body, "const uint64_t g%u = (uint64_t)%s", covers[i].id, scalar_of(e, root->base));
        if (root->index != NONE)
            say(&e->body, " + (uint64_t)%lldll * (uint64_t)%s%s", (long long)root->scale,
                root->sign ? "(int64_t)(int32_t)" : "", scalar_of(e, root->index));
        say(&e->body, ";\n");
    }
}

/* Writes the condition under which all covered accesses are good. */
static void condition(struct emitter *e, const struct cover *covers, uint32_t count)
{
    const struct plan *plan = e->plan;
    for (uint32_t i = 0; i < count; i++) {
        const struct cover *cover = &covers[i];
        say(&e->body, "%s", i ? " && " : "");
        if (plan->names[cover->root.base].class == CLASS_MAYBE)
            say(&e->body, "o%u && ", cover->root.base);
        if (cover->root.index != NONE) {
            int64_t wide = 7 * plan->names[cover->root.index].stride;
            say(&e->body, "stays_%s(%s, %lldll, %lldll) && ", cover->root.sign ? "signed" : "unsigned",
                scalar_of(e, cover->root.index), (long long)(cover->least + (wide < 0 ? wide : 0)),
                (long long)(cover->most + (wide > 0 ? wide : 0)));
        }
        say(&e->body, "!(g%u & %u) && ", cover->id, cover->align - 1);
        if (!cover->global) {
            say(&e->body, "g%u <= %lluull", cover->id,
                (unsigned long long)(plan->shared_bytes - (uint64_t)cover->end)); /* emit_items has seen that it fits */
            continue;
        }
        uint32_t slot = plan->code->cache_count + e->cover_count++;
        say(&e->functions, "static const struct access G%u = {%u, %u, 1, 1, 1, %lluull, %d};\n", slot, slot,
            SPACE_GLOBAL, (unsigned long long)(cover->end - cover->low - 1), cover->write);
        say(&e->body, "reached(c, &R[%u], &G%u, g%u + (uint64_t)%lldll)", slot, slot, cover->id, (long long)cover->low);
    }
}

/* Items whose results only covered accesses ask for, as addresses. */
static void choose_lazy(struct emitter *e, const struct block *block, const struct cover *covers, uint32_t count)
{
    const struct plan *plan = e->plan;
    for (uint32_t i = 0; i < count; i++) {
        e->needed[covers[i].root.base] = true;
        if (covers[i].root.index != NONE)
            e->needed[covers[i].root.index] = true;
    }
    for (uint32_t i = block->end; i-- > block->first;) {
        const struct item *item = &plan->items[i];
        e->lazy[i] = item->kind == KIND_FORM && item->guard == NONE && item->made_count == 1 &&
                     item->made[0] >= plan->register_count && !e->needed[item->made[0]];
        for (uint32_t k = e->covered[i].cover ? 1 : 0; k < item->source_count && !e->lazy[i]; k++)
            e->needed[item->sources[k]] = true;
        if (item->guard != NONE)
            e->needed[item->guard] = true;
    }
}

enum part { PART_FIRST, PART_SURE, PART_UNSURE, PART_PLAIN };

static void items(struct emitter *e, const struct block *block, enum part part)
{
    e->sure = part == PART_SURE;
    e->unsure = part == PART_UNSURE;
    for (uint32_t i = block->first; i < block->end; i++) {
        enum kind kind = e->plan->items[i].kind;
        bool first = e->first[i] && !e->lazy[i];
        if (kind == KIND_BRANCH || kind == KIND_EXIT || kind == KIND_TRAP || kind == KIND_BARRIER ||
            first != (part == PART_FIRST) || (e->lazy[i] && part != PART_UNSURE))
            continue;
        if (e->sure)
            turn_emit(e, i);
        emit_item(e, i);
    }
    e->sure = e->unsure = false;
}

void emit_items(struct emitter *e, uint32_t b)
{
    const struct block *block = &e->plan->blocks[b];
    struct cover covers[COVERS_MAX];
    uint32_t count = 0, accesses = 0;
    choose_first(e, block);
    for (uint32_t i = block->first; i < block->end && block->depth > 0; i++) {
        enum kind kind = e->plan->items[i].kind;
        accesses += (kind == KIND_LOAD || kind == KIND_STORE) && add(e, block, i, covers, &count);
    }
    bool good = accesses >= ACCESSES_MIN;
    if (good)
        turn_choose(e, block, covers, count);
    for (uint32_t i = 0; i < count && good; i++)
        good = aligned(e, block, &covers[i]) && (covers[i].global || e->plan->shared_bytes >= (uint64_t)covers[i].end);
    if (!good) {
        memset(e->covered + block->first, 0, (block->end - block->first) * sizeof *e->covered);
        items(e, block, PART_FIRST);
        items(e, block, PART_PLAIN);
        return;
    }
    choose_lazy(e, block, covers, count);
    items(e, block, PART_FIRST);
    emit_roots(e, covers, count);
    say(&e->body, "if (LIKELY(");
    condition(e, covers, count);
    say(&e->body, ")) {\n");
    items(e, block, PART_SURE);
    say(&e->body, "} else {\n");
    items(e, block, PART_UNSURE);
    say(&e->body, "}\n");
}
