/* Operands: registers, special registers, numbers as constants, addresses; and the places of registers. */
#include <string.h>

#include "device/ptx/build.h"

uint64_t place(struct build *b, uint64_t *used, uint64_t bytes, uint64_t align, uint64_t limit, const char *what)
{
    uint64_t at = (*used + align - 1) / align * align;
    if (bytes > limit || at > limit - bytes)
        refuse(b, "more than %llu bytes of %s memory", (unsigned long long)limit, what);
    *used = at + bytes;
    return at;
}

/* Shared memory is placed in a kernel when it is first named there. */
static struct symbol *placed(struct build *b, struct symbol *symbol)
{
    if (symbol->kind != SYMBOL_SHARED || !b->kernel || symbol->placed_for == b->kernel)
        return symbol;
    symbol->placed_for = b->kernel;
    if (symbol->dynamic) {
        symbol->value = DYNAMIC_MARK;
        if (b->dynamic_align < symbol->align)
            b->dynamic_align = symbol->align;
    } else {
        symbol->value = place(b, &b->shared_bytes, symbol->size, symbol->align, LIMIT_SHARED_BYTES, "shared");
    }
    return symbol;
}

static struct symbol *find(struct build *b, const struct token *name, uint32_t *index)
{
    struct symbol *symbol = symbol_lookup(b, name, index);
    return symbol ? placed(b, symbol) : NULL;
}

struct symbol *symbol_find(struct build *b, const struct token *name)
{
    uint32_t index;
    return find(b, name, &index);
}

uint32_t slot_new(struct build *b, uint32_t bytes)
{
    if (b->register_bytes > LIMIT_REGISTER_BYTES)
        refuse(b, "the kernel has too many registers");
    if (bytes == 0) { /* predicates: one word for the warp, sixteen to a line */
        if (!b->predicate_left) {
            b->predicate_next = b->register_bytes;
            b->register_bytes += 64;
            b->predicate_left = 16;
        }
        b->predicate_left--;
        b->predicate_next += 4;
        return b->predicate_next - 4;
    }
    uint32_t slot = b->register_bytes;
    b->register_bytes += bytes * LANES;
    b->register_count++;
    return slot;
}

uint32_t slot_constant(struct build *b, uint64_t value, uint32_t bytes)
{
    struct constant_key key = {value, bytes};
    struct entry *found = entry_find(b, ENTRY_CONSTANT, b->kernel_frame, &key, sizeof key);
    if (found)
        return ((struct constant_node *)found)->constant.at;
    struct constant_node *node = take(b, sizeof *node);
    node->constant = (struct constant){slot_new(b, bytes), bytes, value};
    node->key = key;
    entry_add(b, &node->entry, ENTRY_CONSTANT, b->kernel_frame, &node->key, sizeof node->key);
    node->next = b->constants;
    b->constants = node;
    b->constant_count++;
    return node->constant.at;
}

struct special_name {
    const char *name;
    enum special special;
};
static const struct special_name SPECIALS[] = {
    {"%tid.x", SPECIAL_TID_X},
    {"%tid.y", SPECIAL_TID_Y},
    {"%tid.z", SPECIAL_TID_Z},
    {"%ntid.x", SPECIAL_NTID_X},
    {"%ntid.y", SPECIAL_NTID_Y},
    {"%ntid.z", SPECIAL_NTID_Z},
    {"%ctaid.x", SPECIAL_CTAID_X},
    {"%ctaid.y", SPECIAL_CTAID_Y},
    {"%ctaid.z", SPECIAL_CTAID_Z},
    {"%nctaid.x", SPECIAL_NCTAID_X},
    {"%nctaid.y", SPECIAL_NCTAID_Y},
    {"%nctaid.z", SPECIAL_NCTAID_Z},
    {"%laneid", SPECIAL_LANEID},
    {"%warpid", SPECIAL_WARPID},
    {"%nwarpid", SPECIAL_NWARPID},
    {"%smid", SPECIAL_SMID},
    {"%nsmid", SPECIAL_NSMID},
    {"%lanemask_eq", SPECIAL_LANEMASK_EQ},
    {"%lanemask_lt", SPECIAL_LANEMASK_LT},
    {"%lanemask_le", SPECIAL_LANEMASK_LE},
    {"%lanemask_gt", SPECIAL_LANEMASK_GT},
    {"%lanemask_ge", SPECIAL_LANEMASK_GE},
    {"%dynamic_smem_size", SPECIAL_DYNAMIC_SMEM_SIZE},
    {"%total_smem_size", SPECIAL_TOTAL_SMEM_SIZE},
    {"%aggr_smem_size", SPECIAL_TOTAL_SMEM_SIZE},
    {"%envreg1", SPECIAL_ENVREG1}, /* the address of a cooperative launch's workspace, 0 in others */
    {"%envreg2", SPECIAL_ENVREG2},
    {"%clusterid.x", SPECIAL_CTAID_X}, /* every block is a cluster of its own */
    {"%clusterid.y", SPECIAL_CTAID_Y},
    {"%clusterid.z", SPECIAL_CTAID_Z},
    {"%nclusterid.x", SPECIAL_NCTAID_X},
    {"%nclusterid.y", SPECIAL_NCTAID_Y},
    {"%nclusterid.z", SPECIAL_NCTAID_Z},
};

struct fixed_name {
    const char *name;
    uint32_t value;
};
static const struct fixed_name FIXED[] = {
    {"%cluster_ctaid.x", 0},  {"%cluster_ctaid.y", 0},  {"%cluster_ctaid.z", 0},  {"%cluster_ctarank", 0},
    {"%cluster_nctaid.x", 1}, {"%cluster_nctaid.y", 1}, {"%cluster_nctaid.z", 1}, {"%cluster_nctarank", 1},
};

/* Clocks are read where they stand, into a register of their own. 0: not a clock. */
static uint32_t clock_register(struct build *b, const struct token *name, uint32_t *bytes)
{
    bool high = token_is(name, "%clock_hi") || token_is(name, "%globaltimer_hi");
    bool narrow = high || token_is(name, "%clock") || token_is(name, "%globaltimer_lo");
    if (!narrow && !token_is(name, "%clock64") && !token_is(name, "%globaltimer"))
        return 0;
    *bytes = narrow ? 4 : 8;
    uint32_t slot = slot_new(b, *bytes);
    struct insn *in = emit(b, step_clock);
    in->d = slot;
    in->mode = high ? CLOCK_HIGH : narrow ? CLOCK_TICKS : CLOCK_TICKS64;
    return slot;
}

static uint32_t special_register(struct build *b, const struct token *name, uint32_t *bytes)
{
    for (size_t i = 0; i < sizeof SPECIALS / sizeof *SPECIALS; i++)
        if (token_is(name, SPECIALS[i].name)) {
            uint32_t *slot = &b->specials[SPECIALS[i].special];
            if (!*slot)
                *slot = slot_new(b, 4);
            *bytes = 4;
            return *slot;
        }
    for (size_t i = 0; i < sizeof FIXED / sizeof *FIXED; i++)
        if (token_is(name, FIXED[i].name)) {
            *bytes = 4;
            return slot_constant(b, FIXED[i].value, 4);
        }
    return clock_register(b, name, bytes);
}

/* The register that a name means, or 0. */
static uint32_t named_register(struct build *b, const struct token *name, uint32_t *bytes)
{
    uint32_t index;
    struct symbol *symbol = find(b, name, &index);
    if (!symbol || symbol->kind != SYMBOL_REGISTER)
        return name->at[0] == '%' ? special_register(b, name, bytes) : 0;
    if (!symbol->slots)
        symbol->slots = take(b, (symbol->count ? symbol->count : 1) * sizeof *symbol->slots);
    if (!symbol->slots[index])
        symbol->slots[index] = slot_new(b, symbol->bytes);
    *bytes = symbol->bytes;
    return symbol->slots[index];
}

uint32_t operand_register(struct build *b, uint32_t *bytes)
{
    const struct token *name = expect_word(b);
    uint32_t slot = named_register(b, name, bytes);
    if (!slot)
        refuse(b, "'%.*s' is not a register that this device knows", (int)name->length, name->at);
    return slot;
}

static uint32_t shape_bytes(char shape)
{
    return shape == '1' ? 0 : shape == '2' ? 2 : shape == '4' || shape == 'f' ? 4 : 8;
}

/* The bytes that an index behind a name means: `name[3]` is the fourth element. */
static uint64_t element_offset(struct build *b, const struct symbol *symbol)
{
    if (!symbol->element || !accept(b, "["))
        return 0;
    uint64_t offset = expect_count(b) * symbol->element;
    expect(b, "]");
    return offset;
}

/* The address or offset that a name stands for when it is used as a value. */
static bool symbol_value(struct build *b, const struct token *name, uint64_t *value)
{
    struct symbol *symbol = symbol_find(b, name);
    if (!symbol || symbol->kind == SYMBOL_REGISTER)
        return false;
    *value = symbol->value + element_offset(b, symbol);
    return true;
}

static uint64_t literal(struct build *b, char shape)
{
    bool negative = accept(b, "-");
    const struct token *token = next(b);
    uint64_t value;
    bool is_float = shape == 'f' || shape == 'd';
    if (is_float && number_float(token, shape == 'd', &value))
        return negative ? value ^ ((uint64_t)1 << (shape == 'd' ? 63 : 31)) : value;
    if (number_integer(token, &value) || symbol_value(b, token, &value)) {
        /* `name+4` may stand where a number stands. */
        if (token->kind == TOKEN_WORD && accept(b, "+"))
            value += expect_count(b);
        value = negative ? 0 - value : value;
        if (value >> 48 == DYNAMIC_MARK >> 48)
            return value;
        return shape == '4' ? (uint32_t)value : shape == '2' ? (uint16_t)value : value;
    }
    if (token_is(token, "WARP_SZ"))
        return LANES;
    if (number_float(token, shape != '4', &value)) /* mov.b32 %r1, 0f3F800000 */
        return negative ? value ^ ((uint64_t)1 << (shape == '4' ? 31 : 63)) : value;
    refuse(b, "the operand '%.*s' is not known to this device", shown(token), token->at);
}

static uint32_t plain_operand(struct build *b, char shape)
{
    uint32_t bytes, wanted = shape_bytes(shape);
    const struct token *token = peek(b);
    uint32_t slot = token->kind == TOKEN_WORD ? named_register(b, token, &bytes) : 0;
    if (slot) {
        b->at++;
        if (bytes != wanted)
            refuse(b, "the register '%.*s' has the wrong size here", (int)token->length, token->at);
        return slot;
    }
    uint64_t value = literal(b, shape);
    return slot_constant(b, shape == '1' ? (value ? ALL_LANES : 0) : value, wanted);
}

uint32_t operand(struct build *b, char shape)
{
    bool opposite = false;
    while (shape == '1' && accept(b, "!")) /* a loop: how many there are is the text's choice */
        opposite = !opposite;
    uint32_t slot = plain_operand(b, shape);
    if (!opposite)
        return slot;
    uint32_t to = slot_new(b, 0);
    struct insn *in = emit_row(b, "not.pred");
    in->guard = 0;
    in->a = in->b = slot;
    in->d = to;
    return to;
}

uint32_t operand_destination(struct build *b, char shape)
{
    uint32_t bytes;
    if (accept(b, "_"))
        return 0;
    const struct token *token = peek(b);
    uint32_t slot = operand_register(b, &bytes);
    if (bytes != shape_bytes(shape))
        refuse(b, "the register '%.*s' has the wrong size here", (int)token->length, token->at);
    return slot;
}

static enum space space_of_symbol(const struct symbol *symbol)
{
    switch (symbol->kind) {
    case SYMBOL_PARAMETER:
        return SPACE_PARAM;
    case SYMBOL_LOCAL:
        return SPACE_LOCAL;
    case SYMBOL_SHARED:
        return SPACE_SHARED;
    default:
        return SPACE_GLOBAL;
    }
}

/* [%rd1], [%rd1+8], [%rd1+-8], [name], [name+8], [name+%r1] has no meaning, [4096], name[3] */
struct address operand_address(struct build *b)
{
    struct address address = {.space = SPACE_GENERIC};
    uint32_t bytes;
    bool element = peek(b)->kind == TOKEN_WORD && token_is(&b->tokens[b->at + 1], "[");
    if (!element)
        expect(b, "[");
    const struct token *token = next(b);
    uint64_t value = 0;
    uint32_t slot = token->kind == TOKEN_WORD ? named_register(b, token, &bytes) : 0;
    struct symbol *symbol = slot || token->kind != TOKEN_WORD ? NULL : symbol_find(b, token);
    if (slot) {
        if ((bytes != 4 && bytes != 8) || element)
            refuse(b, "'%.*s' cannot hold an address", (int)token->length, token->at);
        address.base = slot;
        address.narrow = bytes == 4;
    } else if (symbol) {
        address.base = slot_constant(b, symbol->value, 8);
        address.space = space_of_symbol(symbol);
        address.value = symbol->value;
        address.room = symbol->value + symbol->size;
        if (element) {
            address.offset = (int64_t)element_offset(b, symbol);
            return address;
        }
    } else if (number_integer(token, &value)) {
        address.base = slot_constant(b, value, 8);
    } else {
        refuse(b, "'%.*s' is not an address", shown(token), token->at);
    }
    bool minus = false;
    if (accept(b, "+") || (minus = accept(b, "-"))) {
        minus = accept(b, "-") || minus;
        if (!number_integer(next(b), &value))
            refuse(b, "an address needs a number after '+'");
        address.offset = minus ? (int64_t)(0 - value) : (int64_t)value;
    }
    expect(b, "]");
    return address;
}
