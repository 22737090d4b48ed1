/* How each name varies among the threads of a gang: the same for all, evenly spaced, or in any way; to a fixed point,
 * together with where threads part. */
#include <stdlib.h>
#include <string.h>

#include "device/compile/plan.h"

static struct shape shape_of(const struct plan *plan, uint32_t name)
{
    return (struct shape){plan->names[name].class, plan->names[name].stride};
}

/* The factor by which a constant operand multiplies, as its width and sign say. */
static int64_t factor(const struct plan *plan, const struct item *item, uint32_t source)
{
    const struct name *name = &plan->names[item->sources[source]];
    if (name->bytes == 8)
        return (int64_t)name->value;
    return item->widens && !item->sign ? (int64_t)(uint32_t)name->value : (int64_t)(int32_t)name->value;
}

static bool product(const struct plan *plan, const struct item *item, const struct shape *x, int64_t *stride)
{
    *stride = 0;
    if (x[0].stride == 0 && x[1].stride == 0)
        return true;
    for (uint32_t k = 0; k < 2; k++)
        if (plan->names[item->sources[k]].constant) {
            *stride = (int64_t)((uint64_t)x[1 - k].stride * (uint64_t)factor(plan, item, k));
            return true;
        }
    return false;
}

static struct shape linear_shape(const struct plan *plan, const struct item *item)
{
    static const struct shape GENERAL = {CLASS_GENERAL, 0};
    struct shape x[3] = {{0}};
    bool maybe = false;
    for (uint32_t k = 0; k < item->source_count && k < 3; k++) {
        x[k] = shape_of(plan, item->sources[k]);
        if (x[k].class == CLASS_GENERAL)
            return GENERAL;
        maybe = maybe || x[k].class == CLASS_MAYBE;
        if (item->widens && k < 2 && plan->names[item->sources[k]].bytes == 4 && x[k].stride)
            maybe = true;
    }
    uint64_t stride = 0;
    int64_t of_product = 0;
    const struct name *count = &plan->names[item->sources[item->source_count > 1 ? 1 : 0]];
    switch (item->linear) {
    case LINEAR_ADD:
        stride = (uint64_t)x[0].stride + (uint64_t)x[1].stride;
        break;
    case LINEAR_SUB:
        stride = (uint64_t)x[0].stride - (uint64_t)x[1].stride;
        break;
    case LINEAR_MUL:
    case LINEAR_MAD:
        if (!product(plan, item, x, &of_product))
            return GENERAL;
        stride = (uint64_t)of_product + (item->linear == LINEAR_MAD ? (uint64_t)x[2].stride : 0);
        break;
    case LINEAR_SHL:
        if (!count->constant || count->value > 31)
            return GENERAL;
        stride = (uint64_t)x[0].stride << count->value;
        break;
    case LINEAR_NEG:
        stride = 0 - (uint64_t)x[0].stride;
        break;
    default:
        stride = (uint64_t)x[0].stride;
    }
    if (plan->names[item->made[0]].bytes == 4)
        stride = (uint64_t)(int64_t)(int32_t)stride;
    return (struct shape){maybe ? CLASS_MAYBE : CLASS_EVEN, (int64_t)stride};
}

struct shape item_shape(const struct plan *plan, const struct item *item)
{
    bool same = true;
    for (uint32_t k = 0; k < item->source_count; k++) {
        if (plan->names[item->sources[k]].class == CLASS_UNSEEN)
            return (struct shape){CLASS_UNSEEN, 0};
        same = same && is_same(&plan->names[item->sources[k]]);
    }
    /* Local memory, which a generic address may mean, is each thread's own. */
    bool one_memory = item->kind == KIND_LOAD && item->in->space != SPACE_LOCAL && item->in->space != SPACE_GENERIC;
    if (item->kind == KIND_PARAMETER || (same && (item->kind == KIND_FORM || one_memory)))
        return (struct shape){CLASS_EVEN, 0};
    if (item->kind == KIND_FORM && item->linear != LINEAR_NOT)
        return linear_shape(plan, item);
    return (struct shape){CLASS_GENERAL, 0};
}

static bool join(struct name *name, struct shape shape)
{
    struct name before = *name;
    if (shape.class == CLASS_UNSEEN || name->class == CLASS_GENERAL)
        return false;
    if (name->class == CLASS_UNSEEN) {
        name->class = (uint8_t)shape.class;
        name->stride = shape.stride;
    } else if (shape.class == CLASS_GENERAL || shape.stride != name->stride) {
        name->class = CLASS_GENERAL;
    } else if (shape.class == CLASS_MAYBE) {
        name->class = CLASS_MAYBE;
    }
    if (name->class == CLASS_GENERAL)
        name->stride = 0;
    return before.class != name->class || before.stride != name->stride;
}

/* Registers that threads who wait further on, or at a barrier, still want to read: a write must spare them. */
static void find_kept(const struct plan *plan, uint64_t *kept)
{
    uint32_t words = plan->words;
    memset(kept, 0, (size_t)(plan->block_count + 1) * words * sizeof *kept);
    for (uint32_t b = plan->block_count; b-- > 0;) {
        const struct block *next = b + 1 < plan->block_count ? &plan->blocks[b + 1] : NULL;
        for (uint32_t i = 0; i < words && next && plan->blocks[b].divergent; i++) {
            if (next->divergent)
                kept[(size_t)b * words + i] |= kept[(size_t)(b + 1) * words + i];
            if (next->joined || !next->divergent)
                kept[(size_t)b * words + i] |= next->live[i];
        }
    }
    for (uint32_t j = 0; j < plan->block_count; j++)
        if (plan->blocks[j].after_barrier && plan->blocks[j].divergent)
            for (uint32_t b = 0; b < plan->block_count; b++)
                for (uint32_t i = 0; i < words && plan->blocks[b].divergent; i++)
                    kept[(size_t)b * words + i] |= plan->blocks[j].live[i];
}

static bool pass(struct plan *plan, const uint64_t *kept)
{
    bool moved = false;
    for (uint32_t i = 0; i < plan->item_count; i++) {
        struct item *item = &plan->items[i];
        struct shape shape = item_shape(plan, item);
        bool parts = item->guard != NONE && plan->names[item->guard].class == CLASS_GENERAL;
        for (uint32_t k = 0; k < item->made_count; k++) {
            bool spares = item->made[k] < plan->register_count && plan->blocks[item->block].divergent &&
                          set_has(kept + (size_t)item->block * plan->words, item->made_registers[k]);
            item->blends = item->blends || spares || parts;
            struct shape made = spares || parts ? (struct shape){CLASS_GENERAL, 0} : shape;
            moved = join(&plan->names[item->made[k]], made) || moved;
        }
    }
    return moved;
}

static double access_cost(const struct plan *plan, const struct item *item)
{
    const struct name *address = &plan->names[item->sources[0]];
    int64_t whole = item->element * item->in->count;
    if (is_same(address))
        return item->kind == KIND_STORE ? 8 : 1;
    if (address->class == CLASS_GENERAL || address->stride < 0)
        return 24;
    return address->stride == whole ? (item->in->count == 1 ? 2 : 4) : 10;
}

static double cost(const struct plan *plan)
{
    static const double WEIGHT[] = {1, 16, 256, 4096, 65536};
    double sum = 0;
    for (uint32_t i = 0; i < plan->item_count; i++) {
        const struct item *item = &plan->items[i];
        const struct block *block = &plan->blocks[item->block];
        double one = 0.5;
        if (item->kind == KIND_LOAD || item->kind == KIND_STORE)
            one = access_cost(plan, item);
        else if (item->kind == KIND_STEP)
            one = 50;
        else if (item->made_count && plan->names[item->made[0]].class == CLASS_GENERAL)
            one = 1;
        sum += one * WEIGHT[block->depth < 4 ? block->depth : 4];
    }
    return sum * ((plan->shape[plan->axis] + 7) / 8 * 8) / plan->shape[plan->axis];
}

static void begin(struct plan *plan)
{
    for (uint32_t i = 0; i < plan->name_count; i++) {
        struct name *name = &plan->names[i];
        name->class = name->constant || name->given ? CLASS_EVEN : CLASS_UNSEEN;
        name->stride = name->given && name->special == SPECIAL_TID_X + plan->axis;
    }
    for (uint32_t r = 0; r < plan->register_count; r++) /* read before it is written: zero */
        if (plan->names[r].class == CLASS_UNSEEN && set_has(plan->blocks[0].live, r))
            plan->names[r].class = CLASS_EVEN;
    for (uint32_t i = 0; i < plan->item_count; i++)
        plan->items[i].blends = false;
    for (uint32_t b = 0; b < plan->block_count; b++)
        plan->blocks[b].divergent = plan->blocks[b].joined = false;
}

double plan_classes(struct plan *plan, uint32_t axis)
{
    uint64_t *kept = calloc((size_t)(plan->block_count + 1) * plan->words + 1, sizeof *kept);
    plan->axis = axis;
    plan->full = plan->shape[axis] % COMPILED_WIDTH == 0;
    begin(plan);
    for (bool moved = kept != NULL; moved;) {
        moved = false;
        while (pass(plan, kept))
            moved = true;
        flow_spread(plan);
        find_kept(plan, kept);
        if (!moved) /* the last look, with the last marks */
            moved = pass(plan, kept);
    }
    for (uint32_t i = 0; i < plan->name_count; i++) /* made only where nobody comes */
        if (plan->names[i].class == CLASS_UNSEEN)
            plan->names[i].class = CLASS_GENERAL;
    if (!kept)
        plan->refusal = "there is no memory to compile it";
    free(kept);
    return cost(plan);
}
