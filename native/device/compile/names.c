/* Names: a register that is made and used up inside of one block gets a name of its own there, so that it can be the
 * same for all threads even where the register as a whole is not. On the kernels of tinygrad this is worth a factor 2. */
#include <stdlib.h>
#include <string.h>

#include "device/compile/plan.h"

static uint32_t name_new(struct plan *plan, uint8_t bytes)
{
    if (plan->name_count == plan->name_room) {
        uint32_t room = plan->name_room ? plan->name_room * 2 : 1024;
        struct name *bigger = realloc(plan->names, room * sizeof *bigger);
        if (!bigger)
            return NONE;
        plan->names = bigger;
        plan->name_room = room;
    }
    plan->names[plan->name_count] = (struct name){.bytes = bytes};
    return plan->name_count++;
}

/* Whether what the item makes lives on behind the block: then it keeps the register's name. */
static void mark_final(const struct plan *plan, const struct block *block, uint64_t *wanted, bool *final)
{
    memset(wanted, 0, plan->words * sizeof *wanted);
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; i < plan->words && block->next[k] != NONE; i++)
            wanted[i] |= plan->blocks[block->next[k]].live[i];
    for (uint32_t i = block->end; i-- > block->first;) {
        const struct item *item = &plan->items[i];
        for (uint32_t k = 0; k < item->made_count && item->guard_register == NONE; k++) {
            final[(i - block->first) * 4 + k] = set_has(wanted, item->made_registers[k]);
            set_drop(wanted, item->made_registers[k]);
        }
    }
}

static bool name_block(struct plan *plan, const struct block *block, uint32_t *now, const bool *final)
{
    for (uint32_t r = 0; r < plan->register_count; r++)
        now[r] = r;
    for (uint32_t i = block->first; i < block->end; i++) {
        struct item *item = &plan->items[i];
        for (uint32_t k = 0; k < item->source_count; k++)
            item->sources[k] = now[item->registers[k]];
        item->guard = item->guard_register == NONE ? NONE : now[item->guard_register];
        for (uint32_t k = 0; k < item->made_count; k++) {
            uint32_t r = item->made_registers[k];
            if (item->guard_register == NONE)
                now[r] = final[(i - block->first) * 4 + k] ? r : name_new(plan, plan->register_bytes[r]);
            if (now[r] == NONE)
                return false;
            item->made[k] = now[r];
        }
    }
    return true;
}

/* Registers with a value from the start; all that nobody makes are zero. */
static void give(struct plan *plan)
{
    const struct ptx_code *code = plan->code;
    for (uint32_t r = 0; r < plan->register_count; r++) {
        struct name *name = &plan->names[r];
        name->constant = true;
        for (uint32_t i = 0; i < code->constant_count; i++)
            if (code->constants[i].at == plan->register_slots[r])
                name->value = code->constants[i].value;
        for (uint32_t i = 0; i < SPECIAL_COUNT; i++)
            if (code->specials[i] && code->specials[i] == plan->register_slots[r]) {
                name->constant = false;
                name->given = true;
                name->special = i;
            }
    }
    for (uint32_t i = 0; i < plan->item_count; i++)
        for (uint32_t k = 0; k < plan->items[i].made_count; k++)
            plan->names[plan->items[i].made_registers[k]].constant = false;
}

/* The constant that a name stands for wherever it is read: made once, by a move, and by every thread before it reads.
 * tinygrad moves each number into a register first; as numbers they keep addresses evenly spaced. */
static void find_numbers(const struct plan *plan, uint32_t *makers, uint32_t *number)
{
    for (uint32_t i = 0; i < plan->name_count; i++)
        number[i] = i;
    for (uint32_t i = 0; i < plan->item_count; i++)
        for (uint32_t k = 0; k < plan->items[i].made_count; k++)
            makers[plan->items[i].made[k]]++;
    for (uint32_t i = 0; i < plan->item_count; i++) {
        const struct item *item = &plan->items[i];
        bool moves = item->kind == KIND_FORM && item->linear == LINEAR_MOV && !item->widens && item->guard == NONE;
        if (!moves || item->made_count != 1 || makers[item->made[0]] != 1)
            continue;
        const struct name *from = &plan->names[item->sources[0]], *to = &plan->names[item->made[0]];
        bool early = item->made[0] < plan->register_count && set_has(plan->blocks[0].live, item->made[0]);
        if (from->constant && from->bytes == to->bytes && !to->given && !early)
            number[item->made[0]] = item->sources[0];
    }
}

static bool spread_numbers(struct plan *plan)
{
    uint32_t *makers = plan_take(plan, plan->name_count, sizeof *makers);
    uint32_t *number = plan_take(plan, plan->name_count, sizeof *number);
    if (!makers || !number)
        return false;
    find_numbers(plan, makers, number);
    for (uint32_t i = 0; i < plan->item_count; i++)
        for (uint32_t k = 0; k < plan->items[i].source_count; k++)
            plan->items[i].sources[k] = number[plan->items[i].sources[k]];
    return true;
}

bool plan_names(struct plan *plan)
{
    for (uint32_t r = 0; r < plan->register_count; r++)
        if (name_new(plan, plan->register_bytes[r]) == NONE)
            return false;
    give(plan);
    uint32_t *now = plan_take(plan, plan->register_count, sizeof *now);
    uint64_t *wanted = plan_take(plan, plan->words, sizeof *wanted);
    bool *final = plan_take(plan, (size_t)plan->item_count * 4, sizeof *final);
    if (!now || !wanted || !final)
        return false;
    for (uint32_t b = 0; b < plan->block_count; b++) {
        mark_final(plan, &plan->blocks[b], wanted, final);
        if (!name_block(plan, &plan->blocks[b], now, final)) {
            plan->refusal = "there is no memory to compile it";
            return false;
        }
    }
    return spread_numbers(plan);
}
