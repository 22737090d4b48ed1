/* The state of turning PTX text into code: tokens, names, and the function that is being written. */
#ifndef GPUTAX_PTX_BUILD_H
#define GPUTAX_PTX_BUILD_H

#include <setjmp.h>

#include "device/ptx/inner.h"

/* What a text may still make us take: host memory, and host and device memory together. */
struct budget {
    size_t host_left;
    uint64_t left;
};

/* Memory that goes at once: of a module, and of the build of one. */
struct pool;
struct pool *pool_open(void);
void *pool_take(struct pool *pool, struct budget *budget, size_t bytes); /* zeroed; NULL when the budget is spent */
size_t pool_bytes(const struct pool *pool);                              /* that it holds */
void pool_close(struct pool *pool);

enum token_kind { TOKEN_END, TOKEN_WORD, TOKEN_NUMBER, TOKEN_STRING, TOKEN_MARK };
struct token {
    const char *at;
    uint32_t length, line;
    enum token_kind kind;
};

/* Whatever is found by a key begins with one of these. */
enum entry_kind { ENTRY_SYMBOL, ENTRY_RANGE, ENTRY_LABEL, ENTRY_FUNCTION, ENTRY_CONSTANT, ENTRY_VARIABLE };
struct entry {
    struct entry *next_in_bucket;
    enum entry_kind kind;
    uint64_t scope;
    const void *key;
    size_t key_bytes;
    uint64_t hash;
};

enum symbol_kind { SYMBOL_REGISTER, SYMBOL_PARAMETER, SYMBOL_LOCAL, SYMBOL_SHARED, SYMBOL_VARIABLE, SYMBOL_FUNCTION };
struct symbol {
    struct entry entry;
    struct symbol *next;
    uint64_t order; /* later ones hide earlier ones */
    enum symbol_kind kind;
    uint32_t bytes;  /* of a register: 0 for a predicate */
    uint32_t count;  /* of `%r<n>`: n; 0: a single one */
    uint32_t *slots; /* of registers */
    uint64_t value;  /* address or offset */
    uint64_t size;   /* bytes of storage */
    uint64_t align;
    uint64_t element;                  /* bytes of one element: what an index of it counts */
    const struct function *placed_for; /* shared memory of the module: the kernel for which `value` holds */
    bool dynamic;                      /* extern shared array */
};

/* Extern shared arrays lie behind all static ones, whose size is known at the kernel's end: until then their addresses
 * are marked. */
#define DYNAMIC_MARK ((uint64_t)0xd1a0 << 48)

/* Pointers to functions lie in a window where there is no memory. */
#define FUNCTION_MARK ((uint64_t)15 << WINDOW_SHIFT)

struct formal { /* a parameter of a function or kernel */
    const char *name;
    uint32_t length;
    uint32_t bytes, align;
};

struct function {
    struct entry entry;
    struct function *next;
    const char *name;
    uint32_t length;
    bool is_kernel;
    uint32_t body; /* token after the opening brace; 0: only declared */
    uint32_t threads_max;
    struct formal *results, *formals;
    uint32_t result_count, formal_count;
    uint64_t address;   /* what a pointer to it holds */
    uint32_t own_calls; /* of itself in its own text */
    bool own_calls_known;
};

struct label {
    struct entry entry;
    const char *name;
    uint32_t length, pc;
    uint32_t jumps_at, jumps; /* of a .branchtargets list: where its targets are; jumps 0: a plain label */
};
enum { NO_PC = 0xffffffffu };

struct fixup { /* a place that wants the pc of a label once it is known */
    struct fixup *next;
    struct label *label;
    uint32_t insn; /* its `immediate`, or, */
    uint32_t jump; /* if not NO_PC, this jump */
};

/* One function's text as it is written into a kernel: the kernel itself, or a function at the place of its call. */
struct instance {
    struct fixup *fixups;
    struct label *end; /* where `ret` goes */
    const struct function *function;
    const struct instance *outer; /* that calls it */
};

struct constant_key {
    uint64_t value;
    uint64_t bytes;
};
struct constant_node {
    struct entry entry;
    struct constant_node *next;
    struct constant_key key;
    struct constant constant;
};

/* A variable that was placed on the device, in the module or inside of a body. */
struct placed_variable {
    struct entry entry;
    struct placed_variable *next;
    const struct token *name;
    uint64_t address, bytes;
    bool in_body; /* nobody can ask for it by its name */
};

struct build {
    jmp_buf failed;
    CUresult result;
    struct ptx_log *log;
    const struct ptx_bounds *bounds;
    uint64_t begun_ns;
    uint32_t steps; /* since the last look at the clock */
    struct budget budget;
    struct pool *kept;  /* the module's own */
    struct pool *build; /* given back when the module is built */
    struct placed_variable *variables;
    uint64_t variable_bytes;
    const struct ptx_memory *memory;
    struct token *tokens;
    uint32_t token_count, at;
    struct entry **buckets;
    size_t bucket_count, entry_count;
    uint64_t seed, symbol_order;
    uint32_t frame, frames; /* whose names hold: 0 the module's, else those of one body at one place */
    uint32_t kernel_frame;
    struct symbol *symbols; /* innermost scope first */
    struct symbol *module_symbols;
    struct function *functions;
    uint64_t function_names;       /* so far */
    const struct function *kernel; /* being written */
    uint64_t parameter_limit;

    struct insn *insns;
    uint32_t insn_count, insn_room;
    uint32_t *jumps;
    uint32_t jump_count, jump_room;
    uint32_t register_bytes, register_count, predicate_next, predicate_left;
    uint32_t cache_count, constant_count;
    struct constant_node *constants; /* of this kernel */
    uint32_t specials[SPECIAL_COUNT];
    uint64_t local_bytes, shared_bytes;
    uint32_t carry;         /* the carry flag of add.cc and the like */
    uint64_t dynamic_align; /* of extern shared arrays; 0: none in use */
    struct instance *instance;
    uint32_t depth;
    uint32_t guard;
    bool guard_not;
};

enum {
    LIMIT_INSNS = 1 << 20,
    LIMIT_REGISTER_BYTES = 4 << 20, /* of one warp */
    LIMIT_REGISTERS = 1 << 18,      /* of one declaration */
    LIMIT_LOCAL_BYTES = 128 << 10,
    LIMIT_SHARED_BYTES = 227 << 10,
    LIMIT_DEPTH = 96,
};

/* Ends the build with an error that names the line. */
_Noreturn void refuse(struct build *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void refuse_with(struct build *b, CUresult result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void *take(struct build *b, size_t bytes); /* for the time of the build */
void *keep(struct build *b, size_t bytes); /* for the module's life */
void spend(struct build *b, uint64_t bytes);

/* names.c */
void names_begin(struct build *b);
void entry_add(struct build *b, struct entry *entry, enum entry_kind kind, uint64_t scope, const void *key,
               size_t key_bytes); /* the key must stay where it is */
struct entry *entry_find(const struct build *b, enum entry_kind kind, uint64_t scope, const void *key,
                         size_t key_bytes);          /* the newest */
struct entry *entry_next(const struct entry *entry); /* the one before it with the same key */
/* count: of `%r<count>`; 0: a single one */
struct symbol *symbol_add(struct build *b, const struct token *name, enum symbol_kind kind, uint32_t count);
struct symbol *symbol_lookup(const struct build *b, const struct token *name, uint32_t *index);
void symbols_drop(struct build *b, const struct symbol *until);

/* lex.c */
/* Called once per step of the work: gives up when the time is over or nobody waits. */
void watch(struct build *b);
void lex(struct build *b, const char *text);
const struct token *peek(const struct build *b);
const struct token *next(struct build *b);
bool token_is(const struct token *token, const char *text);
bool accept(struct build *b, const char *text);
void expect(struct build *b, const char *text);
const struct token *expect_word(struct build *b);
uint64_t expect_count(struct build *b); /* a plain number, such as a size */
static inline int shown(const struct token *token)
{ /* how much of it an error message shows */
    return token->length > 80 ? 80 : (int)token->length;
}

/* number.c */
bool number_integer(const struct token *token, uint64_t *value);
bool number_float(const struct token *token, bool is_double, uint64_t *bits);

/* operand.c */
struct symbol *symbol_find(struct build *b, const struct token *name);
uint64_t place(struct build *b, uint64_t *used, uint64_t bytes, uint64_t align, uint64_t limit, const char *what);
uint32_t slot_new(struct build *b, uint32_t bytes);
uint32_t slot_constant(struct build *b, uint64_t value, uint32_t bytes);
/* The register at hand, and how many bytes each of its lanes has (0: predicate). */
uint32_t operand_register(struct build *b, uint32_t *bytes);
uint32_t operand(struct build *b, char shape);
uint32_t operand_destination(struct build *b, char shape);
struct address {
    uint32_t base; /* register */
    bool narrow;
    int64_t offset;
    enum space space;     /* which the name in it implies; SPACE_GENERIC: none */
    uint64_t value, room; /* of a name: where it lies, and where it ends */
};
struct address operand_address(struct build *b);

/* body.c */
struct insn *emit(struct build *b, step *run);
struct insn *emit_row(struct build *b, const char *name);
struct label *label_named(struct build *b, const struct token *name);
void label_wanted(struct build *b, struct label *label, uint32_t insn);
void jump_wanted(struct build *b, struct label *label);
void body_write(struct build *b, const struct function *function);

/* declare.c */
unsigned type_bytes(const struct token *token); /* 0: not a type */
enum type type_of(const char *name);
struct declaration { /* `.align 8 .b8 name[16]` */
    const struct token *name;
    uint64_t bytes, align, element;
    bool open_array; /* name[] */
    bool is_float;
};
struct declaration declare(struct build *b);
void declare_registers(struct build *b);
void declare_storage(struct build *b, const struct token *space, bool is_extern);
struct formal *declare_formals(struct build *b, uint32_t *count);

/* lower.c and its parts: one instruction, whose mnemonic has just been read */
void lower(struct build *b, const struct token *mnemonic);
struct words { /* the mnemonic's parts */
    char text[128];
    const char *part[16];
    unsigned count;
};
bool words_take(struct words *words, const char *part); /* removes it; false: not there */
bool lower_memory(struct build *b, struct words *words);
bool lower_warp(struct build *b, struct words *words);
bool lower_control(struct build *b, struct words *words);
bool lower_convert(struct build *b, struct words *words);
bool lower_half(struct build *b, struct words *words);
bool lower_matrix(struct build *b, struct words *words);
void lower_call(struct build *b);
bool lower_async(struct build *b, struct words *words);
/* Gives the instruction its address, and a cache of its own. */
void address_set(struct build *b, struct insn *in, struct address address, enum space space);

#endif
