/* Reads lowered instructions: which kind each is, which registers it reads and makes; refuses what it does not know. */
#include <stdlib.h>
#include <string.h>

#include "device/compile/plan.h"

enum { LIMIT_ITEMS = 8192 }; /* the C compiler's time grows faster than the text */

void *plan_take(struct plan *plan, size_t count, size_t bytes)
{
    void *memory = plan->memory_count < sizeof plan->memory / sizeof *plan->memory ? calloc(count + 1, bytes) : NULL;
    if (memory)
        plan->memory[plan->memory_count++] = memory;
    else
        plan->refusal = "there is no memory to compile it";
    return memory;
}

void plan_close(struct plan *plan)
{
    for (uint32_t i = 0; i < plan->memory_count; i++)
        free(plan->memory[i]);
    free(plan->names);
    plan->names = NULL;
    plan->memory_count = 0;
}

unsigned form_type_bytes(const char *type)
{
    static const struct {
        const char *name;
        unsigned bytes;
    } TYPES[] = {{"bool", 0},     {"_Bool", 0},   {"uint8_t", 1},  {"int8_t", 1},  {"uint16_t", 2}, {"int16_t", 2},
                 {"uint32_t", 4}, {"int32_t", 4}, {"uint64_t", 8}, {"int64_t", 8}, {"float", 4},    {"double", 8}};
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++)
        if (strcmp(TYPES[i].name, type) == 0)
            return TYPES[i].bytes;
    return NONE;
}

static const struct op_form *form_of(step *run)
{
    // cppcheck-suppress comparePointers; both are bounds of one section
    for (const struct op_form *const *form = __start_op_forms; form < __stop_op_forms; form++)
        if ((*form)->run == run)
            return *form;
    return NULL;
}

/* Rows of one step may have different shapes; then the mode tells them apart. */
static const struct op_row *row_of(const struct insn *in)
{
    static const struct op_table *const TABLES[] = {&OPS_INTEGER, &OPS_BITS, &OPS_FLOAT, &OPS_COMPARE};
    const struct op_row *found = NULL;
    for (size_t i = 0; i < sizeof TABLES / sizeof *TABLES; i++)
        for (size_t j = 0; j < TABLES[i]->count; j++) {
            const struct op_row *row = &TABLES[i]->rows[j];
            if (row->run == in->run && row->mode == in->mode)
                return row;
            if (row->run == in->run && !found)
                found = row;
        }
    return found;
}

/* The register at a place of the register file; NONE: it is used with two sizes. */
static uint32_t register_of(struct plan *plan, uint32_t slot, unsigned bytes)
{
    /* The register that nobody reads comes in all sizes; each size is one of its own, inside of its place. */
    slot = slot ? slot : 4 + 4 * bytes;
    uint32_t *known = &plan->register_at[slot / 4];
    if (!*known) {
        plan->register_slots[plan->register_count] = slot;
        plan->register_bytes[plan->register_count] = (uint8_t)bytes;
        *known = ++plan->register_count;
    }
    return plan->register_bytes[*known - 1] == bytes ? *known - 1 : NONE;
}

static bool reads(struct plan *plan, struct item *item, uint32_t slot, unsigned bytes)
{
    uint32_t at = register_of(plan, slot, bytes);
    if (at == NONE || item->source_count == 5)
        return false;
    item->registers[item->source_count++] = at;
    return true;
}

static bool makes(struct plan *plan, struct item *item, uint32_t slot, unsigned bytes)
{
    uint32_t at = register_of(plan, slot, bytes);
    if (at == NONE || item->made_count == 4)
        return false;
    item->made_registers[item->made_count++] = at;
    return true;
}

static bool read_form(struct plan *plan, struct item *item)
{
    const struct insn *in = item->in;
    const uint32_t slots[5] = {in->d, in->a, in->b, in->c, in->e};
    for (int i = 0; i < 5; i++) {
        if (!item->form->types[i][0])
            continue;
        unsigned bytes = form_type_bytes(item->form->types[i]);
        if (bytes == NONE || bytes == 1)
            return false;
        if (!(i ? reads(plan, item, slots[i], bytes) : makes(plan, item, slots[i], bytes)))
            return false;
    }
    return item->made_count == 1;
}

static unsigned shape_bytes(char shape)
{
    return shape == '1' ? 0 : shape == '2' ? 2 : shape == '4' || shape == 'f' ? 4 : 8;
}

/* A step without a form: its operands by its row's shape, its old result among them. */
static bool read_step(struct plan *plan, struct item *item, const struct op_row *row)
{
    const struct insn *in = item->in;
    const uint32_t slots[5] = {in->d, in->a, in->b, in->c, in->e};
    item->kind = KIND_STEP;
    if (!row) /* a conversion */
        return reads(plan, item, in->d, in->to_bytes) && reads(plan, item, in->a, in->from_bytes) &&
               makes(plan, item, in->d, in->to_bytes);
    for (int i = 0; row->shape[i]; i++) {
        char shape = row->shape[i];
        if (shape == 'i')
            continue;
        if (shape == 'K') {
            if (!reads(plan, item, in->e, 0) || !makes(plan, item, in->e, 0))
                return false;
            continue;
        }
        if (i == 5 || !strchr("1248fd", shape))
            return false;
        if (i == 0 && !makes(plan, item, in->d, shape_bytes(shape)))
            return false;
        if (!reads(plan, item, slots[i], shape_bytes(shape)))
            return false;
    }
    return true;
}

static bool read_access(struct plan *plan, struct item *item, bool is_store)
{
    const struct insn *in = item->in;
    const uint32_t slots[4] = {in->d, in->b, in->c, in->e};
    unsigned wide = form_type_bytes(item->form->types[0]);
    item->kind = is_store ? KIND_STORE : KIND_LOAD;
    item->element = (uint8_t)form_type_bytes(item->form->types[1]);
    if (!reads(plan, item, in->a, in->narrow ? 4 : 8))
        return false;
    for (unsigned i = 0; i < in->count; i++)
        if (!(is_store ? reads(plan, item, slots[i], wide) : makes(plan, item, slots[i], wide)))
            return false;
    return in->count > 0;
}

/* Barrier 0 for all threads of the block; others are left to the interpreter. */
static bool read_barrier(const struct plan *plan, const struct insn *in)
{
    if (in->mode != BARRIER_SYNC || in->b)
        return false;
    for (uint32_t i = 0; i < plan->code->constant_count; i++)
        if (plan->code->constants[i].at == in->a)
            return plan->code->constants[i].value == 0;
    return false;
}

static void read_linear(struct item *item)
{
    static const struct {
        const char *name;
        enum linear linear;
        bool widens, sign;
    } ROWS[] = {{"add.u32", LINEAR_ADD, false, false},     {"add.u64", LINEAR_ADD, false, false},
                {"sub.u32", LINEAR_SUB, false, false},     {"sub.u64", LINEAR_SUB, false, false},
                {"mul.lo.u32", LINEAR_MUL, false, false},  {"mul.lo.u64", LINEAR_MUL, false, false},
                {"mad.lo.u32", LINEAR_MAD, false, false},  {"mad.lo.u64", LINEAR_MAD, false, false},
                {"shl.b32", LINEAR_SHL, false, false},     {"shl.b64", LINEAR_SHL, false, false},
                {"mov.b32", LINEAR_MOV, false, false},     {"mov.b64", LINEAR_MOV, false, false},
                {"neg.s32", LINEAR_NEG, false, false},     {"neg.s64", LINEAR_NEG, false, false},
                {"mul.wide.u32", LINEAR_MUL, true, false}, {"mul.wide.s32", LINEAR_MUL, true, true},
                {"mad.wide.u32", LINEAR_MAD, true, false}, {"mad.wide.s32", LINEAR_MAD, true, true}};
    const struct op_row *row = row_of(item->in);
    const char *const *types = item->form->types;
    for (size_t i = 0; row && i < sizeof ROWS / sizeof *ROWS; i++)
        if (op_named(ROWS[i].name)->run == item->in->run) {
            item->linear = ROWS[i].linear;
            item->widens = ROWS[i].widens;
            item->sign = ROWS[i].sign;
            return;
        }
    if (row || strcmp(item->form->text, "x") != 0)
        return;
    unsigned to = form_type_bytes(types[0]), from = form_type_bytes(types[1]);
    bool whole = strstr(types[0], "int") && strstr(types[1], "int");
    if (whole && from >= 4 && to >= 4) { /* cvt between integers of 32 and 64 bits */
        item->linear = LINEAR_MOV;
        item->widens = to > from;
        item->sign = types[1][0] == 'i';
    }
}

static bool read_item(struct plan *plan, struct item *item)
{
    const struct insn *in = item->in;
    const struct op_row *row;
    item->guard_register = in->guard ? register_of(plan, in->guard, 0) : NONE;
    item->form = form_of(in->run);
    if (in->run == step_branch || in->run == step_exit || in->run == step_trap) {
        item->kind = in->run == step_branch ? KIND_BRANCH : in->run == step_exit ? KIND_EXIT : KIND_TRAP;
        return true;
    }
    if (in->run == step_barrier) {
        item->kind = KIND_BARRIER;
        return !in->guard && read_barrier(plan, in);
    }
    if (item->form && strcmp(item->form->text, "load") == 0)
        return read_access(plan, item, false);
    if (item->form && strcmp(item->form->text, "store") == 0)
        return read_access(plan, item, true);
    if (item->form && strcmp(item->form->text, "parameter") == 0) {
        item->kind = KIND_PARAMETER;
        return makes(plan, item, in->d, form_type_bytes(item->form->types[0]));
    }
    if (item->form && read_form(plan, item)) {
        item->kind = KIND_FORM;
        read_linear(item);
        return true;
    }
    item->source_count = item->made_count = 0;
    row = row_of(in);
    return (row || (in->to_bytes && in->from_bytes)) && read_step(plan, item, row);
}

/* A thread's place among 32 has no meaning for a gang of eight. */
static bool specials_known(const struct ptx_code *code)
{
    for (int i = SPECIAL_LANEID; i < SPECIAL_PER_LAUNCH; i++)
        if (code->specials[i])
            return false;
    return !code->specials[SPECIAL_ENVREG1] && !code->specials[SPECIAL_ENVREG2];
}

bool plan_read(struct plan *plan)
{
    const struct ptx_code *code = plan->code;
    if (code->insn_count > LIMIT_ITEMS) {
        plan->refusal = "it has too many instructions";
        return false;
    }
    if (!specials_known(code)) {
        plan->refusal = "it asks for its place in a warp or for all blocks";
        return false;
    }
    plan->item_count = code->insn_count;
    plan->items = plan_take(plan, code->insn_count, sizeof *plan->items);
    plan->register_at = plan_take(plan, code->register_bytes / 4, sizeof *plan->register_at);
    plan->register_bytes = plan_take(plan, code->register_bytes / 4, 1);
    plan->register_slots = plan_take(plan, code->register_bytes / 4, sizeof *plan->register_slots);
    if (!plan->items || !plan->register_at || !plan->register_bytes || !plan->register_slots)
        return false;
    for (uint32_t i = 0; i < plan->item_count; i++) {
        plan->items[i].in = &code->insns[i];
        if (!read_item(plan, &plan->items[i])) {
            plan->refusal = "it has an instruction that is not compiled";
            return false;
        }
    }
    plan->words = (plan->register_count + 63) / 64;
    return true;
}
