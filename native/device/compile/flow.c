/* Blocks, the ways between them, where they meet again, and which registers live at their start. */
#include <stdlib.h>
#include <string.h>

#include "device/compile/plan.h"

static uint32_t target_of(const struct item *item)
{
    return (uint32_t)item->in->immediate;
}

static bool ends_block(const struct item *item)
{
    return item->kind == KIND_BRANCH || item->kind == KIND_EXIT || item->kind == KIND_TRAP ||
           item->kind == KIND_BARRIER;
}

/* Whether threads end in this block. One that traps ends all, so no way leads on from it. */
static bool leaves(const struct plan *plan, const struct block *block)
{
    const struct item *last = &plan->items[block->end - 1];
    return last->kind == KIND_EXIT || (block->next[0] == NONE && block->next[1] == NONE);
}

static bool find_blocks(struct plan *plan)
{
    bool *starts = plan_take(plan, plan->item_count + 1, sizeof *starts);
    if (!starts)
        return false;
    starts[0] = true;
    for (uint32_t i = 0; i < plan->item_count; i++) {
        const struct item *item = &plan->items[i];
        if (ends_block(item))
            starts[i + 1] = true;
        if (item->kind == KIND_BRANCH) {
            if (target_of(item) >= plan->item_count)
                return false;
            starts[target_of(item)] = true;
        }
    }
    for (uint32_t i = 0; i < plan->item_count; i++)
        plan->block_count += starts[i];
    plan->blocks = plan_take(plan, plan->block_count, sizeof *plan->blocks);
    if (!plan->blocks)
        return false;
    uint32_t at = NONE;
    for (uint32_t i = 0; i < plan->item_count; i++) {
        if (starts[i])
            plan->blocks[++at].first = i;
        plan->items[i].block = at;
        plan->blocks[at].end = i + 1;
    }
    return true;
}

static void find_ways(struct plan *plan)
{
    for (uint32_t b = 0; b < plan->block_count; b++) {
        struct block *block = &plan->blocks[b];
        const struct item *last = &plan->items[block->end - 1];
        bool guarded = last->guard_register != NONE;
        bool goes_on = !ends_block(last) || guarded || last->kind == KIND_BARRIER;
        block->next[0] = goes_on && b + 1 < plan->block_count ? b + 1 : NONE;
        block->next[1] = last->kind == KIND_BRANCH ? plan->items[target_of(last)].block : NONE;
        if (last->kind == KIND_BARRIER) {
            plan->barrier_count++;
            if (b + 1 < plan->block_count)
                plan->blocks[b + 1].after_barrier = true;
        }
        if (block->next[1] != NONE && block->next[1] <= b)
            for (uint32_t i = block->next[1]; i <= b; i++)
                plan->blocks[i].depth++;
    }
}

/* Post-dominators by sets would be quadratic in memory; blocks are few, so the meeting point of two ways is found by
 * the usual walk over a tree that is refined until it rests. Index block_count stands for the end. */
static uint32_t meet(const uint32_t *post, const uint32_t *order, uint32_t x, uint32_t y)
{
    while (x != y) {
        while (order[x] > order[y])
            x = post[x];
        while (order[y] > order[x])
            y = post[y];
    }
    return x;
}

static void number(const struct plan *plan, uint32_t *order)
{
    /* Depth-first from the end over reversed ways; order: 0 for the end, larger for later in reverse postorder. */
    uint32_t count = plan->block_count, *stack = calloc(count + 1, sizeof *stack), *at = calloc(count + 1, sizeof *at);
    uint32_t depth = 0, finished = 0;
    for (uint32_t i = 0; i <= count; i++)
        order[i] = NONE;
    if (stack && at) {
        stack[depth++] = count;
        order[count] = 0;
        while (depth) {
            uint32_t node = stack[depth - 1], p = NONE;
            while (at[node] < count && p == NONE) {
                uint32_t b = at[node]++;
                const struct block *block = &plan->blocks[b];
                bool leads = node == count ? leaves(plan, block) : block->next[0] == node || block->next[1] == node;
                if (leads && order[b] == NONE)
                    p = b;
            }
            if (p != NONE) {
                order[p] = 0;
                stack[depth++] = p;
            } else {
                depth--;
                finished++;
                order[node] = count + 1 - finished; /* the end gets 0 at last */
            }
        }
    }
    free(stack);
    free(at);
}

static bool find_posts(struct plan *plan)
{
    uint32_t count = plan->block_count;
    uint32_t *post = plan_take(plan, count + 1, sizeof *post), *order = plan_take(plan, count + 1, sizeof *order);
    if (!post || !order)
        return false;
    number(plan, order);
    for (uint32_t i = 0; i < count; i++)
        post[i] = NONE;
    post[count] = count;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t i = count; i-- > 0;) {
            const struct block *block = &plan->blocks[i];
            bool ends = leaves(plan, block);
            uint32_t best = NONE;
            for (int k = 0; k < 3; k++) {
                uint32_t to = k == 2 ? (ends ? count : NONE) : block->next[k];
                if (to == NONE || post[to] == NONE || order[to] == NONE)
                    continue;
                best = best == NONE ? to : meet(post, order, best, to);
            }
            if (best != NONE && order[i] != NONE && post[i] != best) {
                post[i] = best;
                moved = true;
            }
        }
    }
    for (uint32_t i = 0; i < count; i++)
        plan->blocks[i].post = post[i] == count ? NONE : post[i];
    return true;
}

static void live_before(const struct plan *plan, const struct block *block, uint64_t *live)
{
    for (uint32_t i = block->end; i-- > block->first;) {
        const struct item *item = &plan->items[i];
        for (uint32_t k = 0; k < item->made_count && item->guard_register == NONE; k++)
            set_drop(live, item->made_registers[k]);
        for (uint32_t k = 0; k < item->source_count; k++)
            set_add(live, item->registers[k]);
        if (item->guard_register != NONE)
            set_add(live, item->guard_register);
    }
}

static bool find_live(struct plan *plan)
{
    uint64_t *all = plan_take(plan, (size_t)plan->block_count * plan->words, sizeof *all);
    uint64_t *live = plan_take(plan, plan->words, sizeof *live);
    if (!all || !live)
        return false;
    for (uint32_t b = 0; b < plan->block_count; b++)
        plan->blocks[b].live = all + (size_t)b * plan->words;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t b = plan->block_count; b-- > 0;) {
            struct block *block = &plan->blocks[b];
            memset(live, 0, plan->words * sizeof *live);
            for (int k = 0; k < 2; k++)
                for (uint32_t i = 0; i < plan->words && block->next[k] != NONE; i++)
                    live[i] |= plan->blocks[block->next[k]].live[i];
            live_before(plan, block, live);
            if (memcmp(live, block->live, plan->words * sizeof *live) != 0) {
                memcpy(block->live, live, plan->words * sizeof *live);
                moved = true;
            }
        }
    }
    return true;
}

bool plan_flow(struct plan *plan)
{
    if (!find_blocks(plan)) {
        plan->refusal = plan->refusal ? plan->refusal : "a branch leaves it";
        return false;
    }
    find_ways(plan);
    return find_posts(plan) && find_live(plan);
}

/* Marks what can run between a branch at which threads part and the place where they meet: a stretch of the text, so
 * that a scan forward finds all who wait. */
static void spread_from(struct plan *plan, uint32_t from, uint32_t *stack)
{
    uint32_t post = plan->blocks[from].post, depth = 0, low = NONE, high = 0;
    bool *seen = calloc(plan->block_count, sizeof *seen);
    for (int pass = 0; pass < 2 && seen; pass++) {
        memset(seen, 0, plan->block_count * sizeof *seen);
        low = NONE, high = 0, depth = 0;
        for (int k = 0; k < 2; k++)
            if (plan->blocks[from].next[k] != NONE)
                stack[depth++] = plan->blocks[from].next[k];
        while (depth) {
            uint32_t b = stack[--depth];
            if (b == post || seen[b])
                continue;
            seen[b] = true;
            low = b < low ? b : low;
            high = b > high ? b : high;
            for (int k = 0; k < 2; k++)
                if (plan->blocks[b].next[k] != NONE)
                    stack[depth++] = plan->blocks[b].next[k];
        }
        if (post == NONE || low == NONE || high < post)
            break;
        post = NONE; /* some go past the meeting point: they meet at the end only */
    }
    uint32_t end = post == NONE ? plan->block_count : post;
    if (post == NONE && low > from)
        low = from + 1;
    for (uint32_t b = low; low != NONE && b < end; b++)
        plan->blocks[b].divergent = true;
    free(seen);
}

uint32_t flow_meeting(const struct plan *plan, uint32_t from)
{
    while (++from < plan->block_count && plan->blocks[from].divergent)
        continue;
    return from;
}

/* Whether all who enter a stretch come to its end: no way leads elsewhere, nobody stays at a barrier. */
static bool stretches_close(const struct plan *plan)
{
    for (uint32_t b = 0; b < plan->block_count; b++) {
        if (plan->blocks[b].divergent && plan->items[plan->blocks[b].end - 1].kind == KIND_BARRIER)
            return false;
        for (int k = 0; k < 2 && plan->blocks[b].divergent; k++) {
            uint32_t to = plan->blocks[b].next[k];
            if (to != NONE && !plan->blocks[to].divergent && to != flow_meeting(plan, b))
                return false;
        }
    }
    return true;
}

static void find_joins(struct plan *plan)
{
    for (uint32_t b = 0; b < plan->block_count; b++) {
        const struct block *block = &plan->blocks[b];
        const struct item *last = &plan->items[block->end - 1];
        bool parts = last->guard_register != NONE && plan->names[last->guard].class == CLASS_GENERAL;
        for (int k = 0; k < 2; k++)
            if (block->next[k] != NONE && plan->blocks[block->next[k]].divergent &&
                (k == 1 || parts || last->kind == KIND_BARRIER))
                plan->blocks[block->next[k]].joined = true;
    }
}

void flow_spread(struct plan *plan)
{
    uint32_t *stack = calloc((size_t)plan->block_count * 2 + 4, sizeof *stack);
    for (uint32_t b = 0; b < plan->block_count && stack; b++) {
        const struct item *last = &plan->items[plan->blocks[b].end - 1];
        if (last->guard_register == NONE || !(last->kind == KIND_BRANCH || last->kind == KIND_EXIT))
            continue;
        if (plan->names[last->guard].class == CLASS_GENERAL)
            spread_from(plan, b, stack);
    }
    if (!stack || !stretches_close(plan))
        for (uint32_t b = 0; b < plan->block_count; b++)
            plan->blocks[b].divergent = true;
    find_joins(plan);
    free(stack);
}
