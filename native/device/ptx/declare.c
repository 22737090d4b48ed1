/* Declarations: registers, storage in the state spaces with first values, parameters of functions. */
#include <string.h>

#include "device/ptx/build.h"

struct type_row {
    const char *name;
    enum type type;
    unsigned bytes;
};
static const struct type_row TYPES[] = {
    {"u8", TYPE_U8, 1},      {"s8", TYPE_S8, 1},       {"b8", TYPE_U8, 1},   {"u16", TYPE_U16, 2},
    {"s16", TYPE_S16, 2},    {"b16", TYPE_U16, 2},     {"f16", TYPE_F16, 2}, {"bf16", TYPE_BF16, 2},
    {"f16x2", TYPE_NONE, 4}, {"bf16x2", TYPE_NONE, 4}, {"u32", TYPE_U32, 4}, {"s32", TYPE_S32, 4},
    {"b32", TYPE_U32, 4},    {"f32", TYPE_F32, 4},     {"u64", TYPE_U64, 8}, {"s64", TYPE_S64, 8},
    {"b64", TYPE_U64, 8},    {"f64", TYPE_F64, 8},
};

static const struct type_row *type_row(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++)
        if (strlen(TYPES[i].name) == length && memcmp(TYPES[i].name, name, length) == 0)
            return &TYPES[i];
    return NULL;
}

enum type type_of(const char *name)
{
    const struct type_row *row = type_row(name, strlen(name));
    return row ? row->type : TYPE_NONE;
}

unsigned type_bytes(const struct token *token)
{
    const struct type_row *row =
        token->length > 1 && token->at[0] == '.' ? type_row(token->at + 1, token->length - 1) : NULL;
    return row ? row->bytes : 0;
}

/* .reg .b32 %r<5>, %x; */
void declare_registers(struct build *b)
{
    const struct token *type = next(b);
    uint32_t bytes = type_bytes(type);
    if (bytes == 1)
        bytes = 2; /* a byte is kept in a register of two */
    if (!bytes && !token_is(type, ".pred"))
        refuse(b, "registers of type '%.*s' are not known to this device", (int)type->length, type->at);
    do {
        const struct token *name = expect_word(b);
        uint64_t count = 0;
        if (accept(b, "<")) {
            count = expect_count(b);
            if (count == 0 || count > LIMIT_REGISTERS)
                refuse(b, "too many registers in one declaration");
            expect(b, ">");
        }
        symbol_add(b, name, SYMBOL_REGISTER, (uint32_t)count)->bytes = bytes;
    } while (accept(b, ","));
    expect(b, ";");
}

/* What stands before a name does not matter here, or is refused: .ptr .global .align 8 of kernel parameters. */
static uint64_t declared_align(struct build *b)
{
    uint64_t align = expect_count(b);
    if (align == 0 || align > 256 || (align & (align - 1)))
        refuse(b, "an alignment of %llu is not possible", (unsigned long long)align);
    return align;
}

struct declaration declare(struct build *b)
{
    struct declaration d = {.align = 0};
    bool pointee = false; /* an .align after .ptr is that of the memory pointed to */
    for (;;) {
        const struct token *token = next(b);
        if (token_is(token, ".align")) {
            uint64_t align = declared_align(b);
            if (!pointee)
                d.align = align;
        } else if (token_is(token, ".ptr")) {
            pointee = true;
        } else if (pointee && (token_is(token, ".global") || token_is(token, ".const") || token_is(token, ".shared") ||
                               token_is(token, ".local") || token_is(token, ".generic"))) {
            continue;
        } else if (type_bytes(token)) {
            d.element = type_bytes(token);
            d.is_float = token->at[1] == 'f';
        } else if (token->kind == TOKEN_WORD && token->at[0] != '.') {
            d.name = token;
            break;
        } else {
            refuse(b, "'%.*s' in a declaration is not known to this device", shown(token), token->at);
        }
    }
    if (!d.element)
        refuse(b, "'%.*s' has no type", (int)d.name->length, d.name->at);
    d.bytes = d.element;
    while (accept(b, "[")) {
        if (accept(b, "]")) {
            d.open_array = true;
            continue;
        }
        uint64_t count = expect_count(b), most = (uint64_t)1 << 40;
        if (d.bytes && count > most / d.bytes) /* before the product, which might wrap */
            refuse(b, "'%.*s' is too large", (int)d.name->length, d.name->at);
        d.bytes *= count;
        expect(b, "]");
    }
    if (!d.align)
        d.align = d.element;
    return d;
}

static uint64_t first_value(struct build *b, const struct declaration *d)
{
    uint64_t value;
    if (accept(b, "generic")) { /* the generic address of a variable is its address here */
        expect(b, "(");
        const struct symbol *symbol = symbol_find(b, expect_word(b));
        if (!symbol || (symbol->kind != SYMBOL_VARIABLE && symbol->kind != SYMBOL_FUNCTION))
            refuse(b, "a first value names something that is not a variable");
        expect(b, ")");
        value = symbol->value;
    } else {
        bool negative = accept(b, "-");
        const struct token *token = next(b);
        const struct symbol *symbol = token->kind == TOKEN_WORD ? symbol_find(b, token) : NULL;
        if (symbol && (symbol->kind == SYMBOL_VARIABLE || symbol->kind == SYMBOL_FUNCTION))
            value = symbol->value;
        else if (!(d->is_float && number_float(token, d->element == 8, &value)) && !number_integer(token, &value))
            refuse(b, "'%.*s' is not a first value", shown(token), token->at);
        if (negative)
            value = d->is_float ? value ^ (uint64_t)1 << (d->element * 8 - 1) : 0 - value;
    }
    if (accept(b, "+"))
        value += expect_count(b);
    return value;
}

/* {1, 2, {3, 4}} in order; nested braces only group. */
static void first_values(struct build *b, const struct declaration *d, uint64_t address, uint64_t *at)
{
    if (!accept(b, "{")) {
        if (*at + d->element > d->bytes)
            refuse(b, "'%.*s' has more first values than room", (int)d->name->length, d->name->at);
        uint64_t value = first_value(b, d);
        memcpy((void *)(uintptr_t)(address + *at), &value, d->element);
        *at += d->element;
        return;
    }
    if (++b->depth > LIMIT_DEPTH)
        refuse(b, "first values are nested too deeply");
    if (!accept(b, "}")) {
        do
            first_values(b, d, address, at);
        while (accept(b, ","));
        expect(b, "}");
    }
    b->depth--;
}

/* A variable in a function's body is one variable, however often the text is written into a kernel: where its name stands
 * in the text is its key. */
static struct placed_variable *place_variable(struct build *b, const struct declaration *d)
{
    enum { UNIT = 256 }; /* what the device hands out memory in */
    struct placed_variable *variable = take(b, sizeof *variable);
    *variable = (struct placed_variable){
        .next = b->variables, .name = d->name, .bytes = d->bytes, .in_body = b->kernel != NULL};
    uint64_t rounded = (d->bytes + UNIT - 1) / UNIT * UNIT;
    spend(b, rounded);
    variable->address = b->memory->place(b->memory->who, d->bytes);
    if (!variable->address)
        refuse_with(b, CUDA_ERROR_OUT_OF_MEMORY, "no device memory for the variable '%.*s'", (int)d->name->length,
                    d->name->at);
    b->variable_bytes += rounded;
    b->variables = variable; /* from here on it is given back with the module, also when the build fails */
    entry_add(b, &variable->entry, ENTRY_VARIABLE, 0, &variable->name, sizeof variable->name);
    return variable;
}

static void declare_variable(struct build *b, const struct declaration *d)
{
    struct symbol *symbol = symbol_add(b, d->name, SYMBOL_VARIABLE, 0);
    symbol->size = d->bytes;
    symbol->element = d->element;
    struct entry *before = entry_find(b, ENTRY_VARIABLE, 0, &d->name, sizeof d->name);
    symbol->value = (before ? (struct placed_variable *)before : place_variable(b, d))->address;
    uint64_t at = 0;
    if (accept(b, "="))
        first_values(b, d, symbol->value, &at);
}

/* The space has been read: .global, .const, .shared, .local, or .param inside of a function. */
void declare_storage(struct build *b, const struct token *space, bool is_extern)
{
    do {
        struct declaration d = declare(b);
        if (token_is(space, ".global") || token_is(space, ".const")) {
            if (is_extern || d.open_array)
                refuse(b, "the variable '%.*s' is not defined in this module", (int)d.name->length, d.name->at);
            declare_variable(b, &d);
        } else if (token_is(space, ".shared")) {
            struct symbol *symbol = symbol_add(b, d.name, SYMBOL_SHARED, 0);
            symbol->size = d.bytes;
            symbol->element = d.element;
            symbol->align = d.align;
            symbol->dynamic = is_extern || d.open_array;
        } else {
            struct symbol *symbol = symbol_add(b, d.name, SYMBOL_LOCAL, 0);
            symbol->size = d.bytes;
            symbol->element = d.element;
            symbol->value = place(b, &b->local_bytes, d.bytes, d.align, LIMIT_LOCAL_BYTES, "local");
        }
    } while (accept(b, ","));
    expect(b, ";");
}

/* (.param .b32 a, .param .align 8 .b8 b[16]); the opening bracket has been read. */
struct formal *declare_formals(struct build *b, uint32_t *count)
{
    struct formal *formals = NULL;
    uint32_t room = 0;
    *count = 0;
    if (accept(b, ")"))
        return NULL;
    do {
        const struct token *space = next(b);
        if (!token_is(space, ".param"))
            refuse(b, "parameters in '%.*s' are not known to this device", (int)space->length, space->at);
        struct declaration d = declare(b);
        if (*count == room) {
            struct formal *bigger = take(b, (room ? room * 2 : 8) * sizeof *bigger);
            if (room)
                memcpy(bigger, formals, room * sizeof *bigger);
            formals = bigger;
            room = room ? room * 2 : 8;
        }
        if (d.open_array || d.bytes > 1 << 16)
            refuse(b, "the parameter '%.*s' has no good size", (int)d.name->length, d.name->at);
        formals[(*count)++] = (struct formal){
            .name = d.name->at, .length = d.name->length, .bytes = (uint32_t)d.bytes, .align = (uint32_t)d.align};
    } while (accept(b, ","));
    expect(b, ")");
    return formals;
}
