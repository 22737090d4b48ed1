/* Loads, stores, atomics, conversions of addresses and of numbers. */
#include <string.h>

#include "device/ptx/build.h"

static void take_all(struct words *words, const char *const *parts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        while (words_take(words, parts[i]))
            continue;
}

/* Hints for caches, and orders of memory that hold here anyway: lanes run in order, blocks one after another. */
static bool take_hints(struct words *words)
{
    bool has_policy = words_take(words, "L2::cache_hint");
    static const char *const HINTS[] = {"weak",    "volatile", "relaxed", "acquire", "release", "acq_rel", "cta",
                                        "cluster", "gpu",      "sys",     "ca",      "cg",      "cs",      "lu",
                                        "cv",      "wb",       "wt",      "nc",      "noftz"};
    take_all(words, HINTS, sizeof HINTS / sizeof *HINTS);
    for (unsigned i = 1; i < words->count; i++)
        if (strncmp(words->part[i], "L1::", 4) == 0 || strncmp(words->part[i], "L2::", 4) == 0) {
            words_take(words, words->part[i--]);
        }
    return has_policy;
}

/* The policy for a cache that `.L2::cache_hint` brings along, behind all other operands. */
static void skip_policy(struct build *b, bool has_policy)
{
    if (has_policy) {
        expect(b, ",");
        operand(b, '8');
    }
}

static enum space take_space(struct build *b, struct words *words)
{
    bool in_kernel = b->depth == 1;
    if (words_take(words, "global") || words_take(words, "const"))
        return SPACE_GLOBAL;
    if (words_take(words, "shared") || words_take(words, "shared::cta"))
        return SPACE_SHARED;
    if (words_take(words, "local") || words_take(words, "param::func"))
        return SPACE_LOCAL;
    if (words_take(words, "param::entry"))
        return SPACE_PARAM;
    if (words_take(words, "param"))
        return in_kernel ? SPACE_PARAM : SPACE_LOCAL; /* parameters of functions lie in local memory */
    return SPACE_GENERIC;
}

void address_set(struct build *b, struct insn *in, struct address address, enum space space)
{
    /* [name] may lie elsewhere than .param says: in the function's own parameters, or in the kernel's. */
    bool named_param = space == SPACE_PARAM || space == SPACE_LOCAL;
    in->a = address.base;
    in->narrow = address.narrow;
    in->immediate = address.offset;
    in->space = (uint8_t)(named_param && address.space != SPACE_GENERIC ? address.space : space);
    in->cache = b->cache_count++;
    if (space == SPACE_GENERIC && address.space != SPACE_GENERIC)
        in->space = (uint8_t)address.space;
}

/* One register, bare or as {a}, or {a, b}: `count` of them, all of the same size. */
static uint32_t vector(struct build *b, unsigned count, uint32_t slots[4], bool is_store, unsigned bytes)
{
    uint32_t size = 0;
    bool braces = accept(b, "{");
    if (!braces && count > 1)
        expect(b, "{");
    for (unsigned i = 0; i < count; i++) {
        if (i)
            expect(b, ",");
        uint32_t this_size = 0;
        bool literal = peek(b)->kind != TOKEN_WORD || token_is(peek(b), "_");
        if (!is_store && accept(b, "_"))
            slots[i] = 0;
        else if (literal) /* st.global.u32 [a], 0 */
            slots[i] = operand(b, bytes == 8 ? '8' : bytes == 4 ? '4' : '2'), this_size = bytes < 2 ? 2 : bytes;
        else
            slots[i] = operand_register(b, &this_size);
        if (slots[i] && (this_size == 0 || (size && this_size != size)))
            refuse(b, "the registers of a memory access do not fit it");
        size = slots[i] ? this_size : size;
    }
    if (braces)
        expect(b, "}");
    return size ? size : bytes < 2 ? 2 : bytes;
}

static bool lower_access(struct build *b, struct words *words, bool is_store)
{
    bool has_policy = take_hints(words);
    enum space space = take_space(b, words);
    unsigned count = words_take(words, "v2") ? 2 : words_take(words, "v4") ? 4 : 1;
    if (words->count != 2)
        return false;
    enum type type = type_of(words->part[1]);
    struct token dotted = {.at = words->part[1] - 1, .length = (uint32_t)strlen(words->part[1]) + 1};
    char with_dot[16] = ".";
    if (type == TYPE_NONE || dotted.length >= sizeof with_dot)
        return false;
    memcpy(with_dot + 1, words->part[1], dotted.length - 1);
    dotted.at = with_dot;
    unsigned bytes = type_bytes(&dotted);
    uint32_t slots[4] = {0}, size;
    struct address address = {.base = 0};
    if (is_store)
        address = operand_address(b), expect(b, ",");
    size = vector(b, count, slots, is_store, bytes);
    if (!is_store)
        expect(b, ","), address = operand_address(b);
    skip_policy(b, has_policy);
    uint64_t at = address.value + (uint64_t)address.offset;
    if (!is_store && address.space == SPACE_PARAM && count == 1 && size == bytes && bytes >= 4 && at % bytes == 0 &&
        at < address.room && bytes <= address.room - at) {
        struct insn *in = emit(b, bytes == 8 ? step_load_parameter8 : step_load_parameter4);
        in->d = slots[0];
        in->immediate = (int64_t)at;
        return true;
    }
    enum type as = type == TYPE_F16 || type == TYPE_BF16 ? TYPE_U16
                   : type == TYPE_F32                    ? TYPE_U32
                   : type == TYPE_F64                    ? TYPE_U64
                                                         : type;
    step *run = is_store ? store_step(bytes, size) : load_step(as, size);
    if (!run)
        refuse(b, "a register of %u bytes does not fit an access of %u", size, bytes);
    struct insn *in = emit(b, run);
    in->d = slots[0], in->b = slots[1], in->c = slots[2], in->e = slots[3];
    in->count = (uint8_t)count;
    address_set(b, in, address, space);
    return true;
}

/* atom.global.add.u32 d, [a], b{, c}; red has no d */
static bool lower_atomic(struct build *b, struct words *words, bool wants_result)
{
    bool has_policy = take_hints(words);
    enum space space = take_space(b, words);
    if (words->count != 3 || space == SPACE_PARAM)
        return false;
    const char *operation = words->part[1], *type = words->part[2];
    step *run = strcmp(operation, "add") == 0 ? half_atomic_step(type) : NULL;
    if (!run)
        run = atomic_step(operation, type);
    if (!run)
        return false;
    char shape = strcmp(type, "f32") == 0   ? 'f'
                 : strcmp(type, "f64") == 0 ? 'd'
                 : strstr(type, "64")       ? '8'
                 : strstr(type, "x2")       ? '4'
                 : strstr(type, "16")       ? '2'
                                            : '4';
    uint32_t d = 0;
    if (wants_result)
        d = operand_destination(b, shape), expect(b, ",");
    struct address address = operand_address(b);
    expect(b, ",");
    uint32_t x = operand(b, shape), y = 0;
    if (strcmp(operation, "cas") == 0)
        expect(b, ","), y = operand(b, shape);
    skip_policy(b, has_policy);
    struct insn *in = emit(b, run);
    in->d = d, in->b = x, in->c = y;
    address_set(b, in, address, space);
    return true;
}

static bool take_window(struct words *words, uint64_t *window)
{
    if (words_take(words, "global") || words_take(words, "const"))
        *window = WINDOW_GLOBAL;
    else if (words_take(words, "shared") || words_take(words, "shared::cta"))
        *window = WINDOW_SHARED;
    else if (words_take(words, "local"))
        *window = WINDOW_LOCAL;
    else if (words_take(words, "param") || words_take(words, "param::entry"))
        *window = WINDOW_PARAM;
    else
        return false;
    return true;
}

/* cvta{.to}.shared.u64 d, a */
static bool lower_window(struct build *b, struct words *words)
{
    uint64_t window;
    bool to = words_take(words, "to");
    if (!take_window(words, &window) || words->count != 2 || strcmp(words->part[1], "u64") != 0)
        return false;
    uint32_t d = operand_destination(b, '8');
    expect(b, ",");
    uint32_t a = operand(b, '8');
    struct insn *in = emit_row(b, window == WINDOW_GLOBAL ? "mov.b64" : to ? "window.take" : "window.add");
    in->d = d, in->a = a;
    in->immediate = (int64_t)(window << WINDOW_SHIFT);
    return true;
}

static bool lower_is_space(struct build *b, struct words *words)
{
    uint64_t window;
    if (!take_window(words, &window) || words->count != 1)
        return false;
    uint32_t d = operand_destination(b, '1');
    expect(b, ",");
    uint32_t a = operand(b, '8');
    struct insn *in = emit_row(b, "window.is");
    in->d = d, in->a = a;
    in->immediate = (int64_t)window;
    return true;
}

static bool lower_fence(struct words *words)
{
    static const char *const PARTS[] = {"cta",         "gl",      "sys",     "gpu",           "cluster",
                                        "sc",          "acq_rel", "acquire", "release",       "mbarrier_init",
                                        "proxy",       "alias",   "async",   "async::global", "async::shared::cta",
                                        "shared::cta", "generic"};
    take_all(words, PARTS, sizeof PARTS / sizeof *PARTS);
    return words->count == 1; /* memory is in order already */
}

static bool lower_prefetch(struct build *b, struct words *words)
{
    static const char *const PARTS[] = {"global", "local", "L1", "L2", "L2::evict_last", "L2::evict_normal"};
    take_all(words, PARTS, sizeof PARTS / sizeof *PARTS);
    if (words->count == 1)
        operand_address(b);
    return words->count == 1;
}

bool lower_memory(struct build *b, struct words *words)
{
    const char *base = words->part[0];
    if (strcmp(base, "ld") == 0 || strcmp(base, "ldu") == 0)
        return lower_access(b, words, false);
    if (strcmp(base, "st") == 0)
        return lower_access(b, words, true);
    if (strcmp(base, "atom") == 0)
        return lower_atomic(b, words, true);
    if (strcmp(base, "red") == 0)
        return lower_atomic(b, words, false);
    if (strcmp(base, "cvta") == 0)
        return lower_window(b, words);
    if (strcmp(base, "isspacep") == 0)
        return lower_is_space(b, words);
    if (strcmp(base, "membar") == 0 || strcmp(base, "fence") == 0)
        return lower_fence(words);
    if (strcmp(base, "prefetch") == 0 || strcmp(base, "prefetchu") == 0)
        return lower_prefetch(b, words);
    return false;
}

struct rounding_word {
    const char *word;
    enum rounding rounding;
};

static bool is_bits(const char *type) /* b16 and the like: no numbers that could be converted */
{
    return type[0] == 'b' && type[1] != 'f';
}

/* cvt{.rnd}{.ftz}{.sat}.to.from d, a: the registers may be wider than the types */
bool lower_convert(struct build *b, struct words *words)
{
    static const struct rounding_word ROUNDINGS[] = {{"rn", ROUND_RN},   {"rz", ROUND_RZ},   {"rm", ROUND_RM},
                                                     {"rp", ROUND_RP},   {"rni", ROUND_RNI}, {"rzi", ROUND_RZI},
                                                     {"rmi", ROUND_RMI}, {"rpi", ROUND_RPI}};
    if (strcmp(words->part[0], "cvt") != 0)
        return false;
    enum rounding rounding = ROUND_NONE;
    for (size_t i = 0; i < sizeof ROUNDINGS / sizeof *ROUNDINGS; i++)
        if (words_take(words, ROUNDINGS[i].word))
            rounding = ROUNDINGS[i].rounding;
    int flags = (words_take(words, "ftz") ? CONVERT_FLUSH : 0) | (words_take(words, "sat") ? CONVERT_SATURATE : 0) |
                (words_take(words, "relu") ? CONVERT_RELU : 0);
    if (words->count != 3)
        return false;
    enum type to = type_of(words->part[1]), from = type_of(words->part[2]);
    if (to == TYPE_NONE || from == TYPE_NONE || is_bits(words->part[1]) || is_bits(words->part[2]))
        return false;
    if ((flags & CONVERT_RELU) && to != TYPE_F16 && to != TYPE_BF16)
        return false;
    uint32_t to_bytes, from_bytes;
    uint32_t d = operand_register(b, &to_bytes);
    expect(b, ",");
    uint32_t a;
    if (peek(b)->kind == TOKEN_WORD) {
        a = operand_register(b, &from_bytes);
    } else {
        from_bytes = from == TYPE_U64 || from == TYPE_S64 || from == TYPE_F64 ? 8 : 4;
        a = operand(b, from == TYPE_F32 ? 'f' : from == TYPE_F64 ? 'd' : from_bytes == 8 ? '8' : '4');
    }
    if (!to_bytes || !from_bytes)
        refuse(b, "predicates cannot be converted");
    struct insn *in = emit(b, convert_step(to, from, rounding, flags, to_bytes, from_bytes));
    in->d = d, in->a = a;
    in->to_bytes = (uint8_t)to_bytes;
    in->from_bytes = (uint8_t)from_bytes;
    in->immediate = convert_packed(to, from, rounding, flags);
    return true;
}
