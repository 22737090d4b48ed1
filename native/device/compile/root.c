/* An address as a base, a scaled index and a number: `base + scale * (index + number)`. tinygrad computes each address
 * of an unrolled loop from the index on; what lies around one root is checked once and read together. */
#include "device/compile/emit.h"

/* The item before `at` that alone makes a name of the block's own. */
static const struct item *maker(const struct plan *plan, const struct block *block, uint32_t at, uint32_t name)
{
    const struct item *found = NULL;
    for (uint32_t i = block->first; i < block->end && name >= plan->register_count; i++)
        for (uint32_t k = 0; k < plan->items[i].made_count; k++)
            if (plan->items[i].made[k] == name) {
                if (found || i >= at)
                    return NULL;
                found = &plan->items[i];
            }
    return found && found->kind == KIND_FORM && found->guard == NONE ? found : NULL;
}

/* Which of the first two sources is a constant; 2: none. */
static uint32_t number_of(const struct plan *plan, const struct item *item)
{
    return plan->names[item->sources[1]].constant ? 1 : plan->names[item->sources[0]].constant ? 0 : 2;
}

static bool is_linear(const struct item *item, enum linear linear, bool widens)
{
    return item && item->linear == linear && item->widens == widens;
}

/* scale * index, index of 32 bits: a widening product, or a product or shift of a widened one. */
static bool read_scaled(const struct plan *plan, const struct block *block, uint32_t at, const struct item *item,
                        struct root *root)
{
    bool product = item && (item->linear == LINEAR_MUL || item->linear == LINEAR_MAD);
    if (!product && !is_linear(item, LINEAR_SHL, false))
        return false;
    uint32_t k = product ? number_of(plan, item) : plan->names[item->sources[1]].constant ? 1 : 2;
    if (k == 2)
        return false;
    uint64_t value = plan->names[item->sources[k]].value;
    if (item->widens) {
        root->index = item->sources[1 - k];
        root->sign = item->sign;
        root->scale = item->sign ? (int64_t)(int32_t)value : (int64_t)(uint32_t)value;
        return true;
    }
    const struct item *widened = maker(plan, block, at, item->sources[1 - k]);
    if (!is_linear(widened, LINEAR_MOV, true) || (!product && value > 31))
        return false;
    root->index = widened->sources[0];
    root->sign = widened->sign;
    root->scale = product ? (int64_t)value : (int64_t)1 << value;
    return true;
}

/* One step back from the base; false: it is as far as it goes. */
static bool step_back(const struct plan *plan, const struct block *block, uint32_t at, struct root *root,
                      int64_t *offset)
{
    const struct item *item = maker(plan, block, at, root->base);
    if (is_linear(item, LINEAR_ADD, false)) {
        uint32_t k = number_of(plan, item);
        if (k < 2) {
            *offset += (int64_t)plan->names[item->sources[k]].value;
            root->base = item->sources[1 - k];
            return true;
        }
        for (k = 0; k < 2 && root->index == NONE; k++)
            if (read_scaled(plan, block, at, maker(plan, block, at, item->sources[k]), root)) {
                root->base = item->sources[1 - k];
                return true;
            }
    } else if (item && item->linear == LINEAR_MAD && root->index == NONE && read_scaled(plan, block, at, item, root)) {
        root->base = item->sources[2];
        return true;
    }
    return false;
}

static bool is_good(const struct plan *plan, const struct item *access, const struct root *root)
{
    const struct name *base = &plan->names[root->base], *index = &plan->names[root->index];
    return base->class == CLASS_EVEN && base->bytes == 8 && index->class == CLASS_EVEN && index->bytes == 4 &&
           (uint64_t)base->stride + (uint64_t)root->scale * (uint64_t)index->stride ==
               (uint64_t)plan->names[access->sources[0]].stride;
}

void root_read(const struct plan *plan, uint32_t at, struct root *root, int64_t *number, int64_t *offset)
{
    const struct item *access = &plan->items[at];
    const struct block *block = &plan->blocks[access->block];
    *root = (struct root){.base = access->sources[0], .index = NONE};
    *offset = access->in->immediate;
    *number = 0;
    if (access->in->space != SPACE_GLOBAL || access->in->narrow)
        return;
    for (int i = 0; i < 8 && step_back(plan, block, at, root, offset); i++)
        continue;
    for (const struct item *item; root->index != NONE && (item = maker(plan, block, at, root->index));) {
        uint32_t k = is_linear(item, LINEAR_ADD, false) ? number_of(plan, item) : 2;
        if (k == 2)
            break;
        *number += (int64_t)(int32_t)plan->names[item->sources[k]].value;
        root->index = item->sources[1 - k];
    }
    if (root->index == NONE || !is_good(plan, access, root)) {
        *root = (struct root){.base = access->sources[0], .index = NONE};
        *offset = access->in->immediate;
        *number = 0;
    }
    *offset += root->scale * *number;
}
