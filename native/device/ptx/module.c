/* A whole PTX text: its head, variables, functions; each kernel becomes code. */
#include <stdlib.h>
#include <string.h>

#include "device/compile/compile.h"
#include "device/ptx/build.h"

struct ptx_module {
    struct pool *pool;
    struct ptx_memory memory;
    uint32_t version;
    struct ptx_kernel *kernels;
    size_t kernel_count;
    struct ptx_variable *variables;
    size_t variable_count;
    uint64_t bytes; /* of host and device memory */
};

enum { HOST_BYTES_MOST = 512 << 20 };

static void skip_braces(struct build *b)
{
    for (unsigned depth = 1; depth;) {
        const struct token *token = next(b);
        depth += token_is(token, "{");
        depth -= token_is(token, "}");
    }
}

static void skip_line(struct build *b)
{
    uint32_t line = b->tokens[b->at - 1].line;
    while (peek(b)->kind != TOKEN_END && peek(b)->line == line)
        b->at++;
}

/* .maxntid 256, 1, 1 and the like, between the parameters and the body */
static void function_directives(struct build *b, struct function *function)
{
    for (;;) {
        if (accept(b, ".maxntid") || accept(b, ".reqntid")) {
            uint64_t threads = expect_count(b);
            while (accept(b, ","))
                threads *= expect_count(b);
            if (threads && threads < function->threads_max)
                function->threads_max = (uint32_t)threads;
        } else if (accept(b, ".minnctapersm") || accept(b, ".maxnreg") || accept(b, ".maxnctapersm")) {
            expect_count(b);
        } else if (!accept(b, ".noreturn")) {
            return;
        }
    }
}

/* Declared or defined, a function has one address. */
static uint64_t function_address(struct build *b, const struct token *name)
{
    struct symbol *symbol = symbol_find(b, name);
    if (!symbol) {
        symbol = symbol_add(b, name, SYMBOL_FUNCTION, 0);
        symbol->value = FUNCTION_MARK | ++b->function_names << 4;
    }
    if (symbol->kind != SYMBOL_FUNCTION)
        refuse(b, "the name '%.*s' is there twice", shown(name), name->at);
    return symbol->value;
}

static void read_function(struct build *b, bool is_kernel)
{
    struct function *function = take(b, sizeof *function);
    function->is_kernel = is_kernel;
    function->threads_max = 1024;
    if (!is_kernel && accept(b, "("))
        function->results = declare_formals(b, &function->result_count);
    const struct token *name = expect_word(b);
    function->name = name->at;
    function->length = name->length;
    if (!is_kernel)
        function->address = function_address(b, name);
    if (accept(b, "("))
        function->formals = declare_formals(b, &function->formal_count);
    function_directives(b, function);
    if (accept(b, ";"))
        return; /* only declared */
    expect(b, "{");
    function->body = b->at;
    skip_braces(b);
    function->next = b->functions;
    b->functions = function;
    entry_add(b, &function->entry, ENTRY_FUNCTION, 0, function->name, function->length);
}

static void read_version(struct build *b, struct ptx_module *module)
{
    const struct token *token = next(b);
    unsigned major = 0, minor = 0;
    char *rest;
    major = (unsigned)strtoul(token->at, &rest, 10);
    if (*rest == '.')
        minor = (unsigned)strtoul(rest + 1, NULL, 10);
    if (major < 3 || major > PTX_VERSION_MAJOR)
        refuse_with(b, CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "PTX %u.%u is not known to this device", major, minor);
    module->version = major * 10 + (minor < 10 ? minor : 9);
    b->parameter_limit = module->version < 81 ? PTX_PARAMETER_BYTES_BEFORE_8_1 : PTX_PARAMETER_BYTES;
}

static void read_target(struct build *b)
{
    do {
        const struct token *token = expect_word(b);
        if (token->length > 3 && memcmp(token->at, "sm_", 3) == 0) {
            unsigned long capability = strtoul(token->at + 3, NULL, 10);
            if (capability > PTX_CAPABILITY)
                refuse_with(b, CUDA_ERROR_NO_BINARY_FOR_GPU, "code for %.*s does not run on this device (sm_%d)",
                            (int)token->length, token->at, PTX_CAPABILITY);
        }
    } while (accept(b, ","));
}

static void read_declaration(struct build *b, const struct token *token)
{
    bool is_extern = false;
    while (token_is(token, ".visible") || token_is(token, ".extern") || token_is(token, ".weak") ||
           token_is(token, ".common")) {
        is_extern = is_extern || token_is(token, ".extern");
        token = next(b);
    }
    if (token_is(token, ".entry") || token_is(token, ".func"))
        read_function(b, token_is(token, ".entry"));
    else if (token_is(token, ".global") || token_is(token, ".const") || token_is(token, ".shared"))
        declare_storage(b, token, is_extern);
    else
        refuse(b, "the directive '%.*s' is not known to this device", shown(token), token->at);
}

static void read_module(struct build *b, struct ptx_module *module)
{
    while (peek(b)->kind != TOKEN_END) {
        const struct token *token = next(b);
        if (token_is(token, ".version")) {
            read_version(b, module);
        } else if (token_is(token, ".target")) {
            read_target(b);
        } else if (token_is(token, ".address_size")) {
            if (expect_count(b) != 64)
                refuse(b, "this device has addresses of 64 bits only");
        } else if (token_is(token, ".file")) {
            skip_line(b);
        } else if (token_is(token, ".section")) { /* debug information */
            while (!token_is(next(b), "{"))
                continue;
            skip_braces(b);
        } else if (token_is(token, ".pragma")) {
            expect(b, ";");
        } else {
            read_declaration(b, token);
        }
    }
    if (!module->version)
        refuse_with(b, CUDA_ERROR_INVALID_IMAGE, "the image is not PTX text: it has no .version");
    b->module_symbols = b->symbols;
}

static void reset_for_kernel(struct build *b, const struct function *function)
{
    b->kernel = function;
    symbols_drop(b, b->module_symbols);
    b->frame = b->kernel_frame = ++b->frames;
    b->insn_count = b->jump_count = 0; /* their room is used again */
    b->register_bytes = 8 * LANES;     /* the register that nobody reads */
    b->register_count = b->predicate_left = b->cache_count = b->constant_count = b->carry = 0;
    b->constants = NULL;
    memset(b->specials, 0, sizeof b->specials);
    b->local_bytes = b->shared_bytes = b->dynamic_align = 0;
    b->instance = NULL;
    b->depth = b->guard = 0;
}

static void place_parameters(struct build *b, const struct function *function, struct ptx_kernel *kernel)
{
    struct ptx_parameter *parameters = keep(b, function->formal_count * sizeof *parameters);
    uint64_t used = 0;
    for (uint32_t i = 0; i < function->formal_count; i++) {
        const struct formal *formal = &function->formals[i];
        struct token name = {.at = formal->name, .length = formal->length, .kind = TOKEN_WORD};
        struct symbol *symbol = symbol_add(b, &name, SYMBOL_PARAMETER, 0);
        symbol->size = formal->bytes;
        symbol->value = place(b, &used, formal->bytes, formal->align, b->parameter_limit, "parameter");
        parameters[i] = (struct ptx_parameter){(uint32_t)symbol->value, formal->bytes};
    }
    kernel->parameters = parameters;
    kernel->parameter_count = function->formal_count;
    kernel->parameter_bytes = (uint32_t)used;
}

static const struct constant *settled_constants(struct build *b)
{
    struct constant *constants = keep(b, b->constant_count * sizeof *constants);
    uint32_t count = 0;
    for (const struct constant_node *node = b->constants; node; node = node->next, count++) {
        constants[count] = node->constant;
        if (b->dynamic_align && node->constant.value >> 48 == DYNAMIC_MARK >> 48)
            constants[count].value = (node->constant.value & 0xffffffffu) + b->shared_bytes;
    }
    return constants;
}

static void *copy(struct build *b, const void *from, size_t bytes)
{
    void *to = keep(b, bytes);
    if (bytes)
        memcpy(to, from, bytes);
    return to;
}

/* The executor goes where the code says: no branch may lead out of it. */
static void check_targets(struct build *b)
{
    bool inside = true;
    for (uint32_t i = 0; i < b->jump_count; i++)
        inside = inside && b->jumps[i] < b->insn_count;
    for (uint32_t i = 0; i < b->insn_count; i++) {
        const struct insn *in = &b->insns[i];
        uint64_t target = (uint64_t)in->immediate;
        if (in->run == step_branch)
            inside = inside && target < b->insn_count;
        else if (in->run == step_branch_indexed)
            inside = inside && target <= b->jump_count && in->e <= b->jump_count - target;
    }
    if (!inside)
        refuse(b, "a branch leads out of the kernel");
}

static void build_kernel(struct build *b, const struct function *function, struct ptx_kernel *kernel)
{
    reset_for_kernel(b, function);
    place_parameters(b, function, kernel);
    body_write(b, function);
    b->guard = 0;
    emit(b, step_exit); /* also where a label behind the last instruction leads */
    check_targets(b);
    if (b->dynamic_align)
        b->shared_bytes = (b->shared_bytes + b->dynamic_align - 1) / b->dynamic_align * b->dynamic_align;
    struct ptx_code *code = keep(b, sizeof *code);
    code->insns = copy(b, b->insns, b->insn_count * sizeof *b->insns);
    code->insn_count = b->insn_count;
    code->register_bytes = b->register_bytes;
    code->cache_count = b->cache_count;
    code->constants = settled_constants(b);
    code->constant_count = b->constant_count;
    memcpy(code->specials, b->specials, sizeof code->specials);
    code->jumps = copy(b, b->jumps, b->jump_count * sizeof *b->jumps);
    code->compile = keep(b, sizeof *code->compile);
    code->jump_count = b->jump_count;
    char *name = keep(b, function->length + 1);
    memcpy(name, function->name, function->length);
    kernel->name = name;
    kernel->shared_bytes = (uint32_t)b->shared_bytes;
    kernel->local_bytes = (uint32_t)((b->local_bytes + 15) / 16 * 16);
    kernel->register_count = b->register_count;
    kernel->threads_max = function->threads_max;
    kernel->code = code;
}

static void build_kernels(struct build *b, struct ptx_module *module)
{
    size_t count = 0;
    for (const struct function *f = b->functions; f; f = f->next)
        count += f->is_kernel;
    module->kernels = keep(b, count * sizeof *module->kernels);
    for (const struct function *f = b->functions; f; f = f->next)
        if (f->is_kernel)
            build_kernel(b, f, &module->kernels[module->kernel_count++]);
}

/* Also of a module that failed half way, so that its memory can be given back. */
static void list_variables(struct build *b, struct ptx_module *module)
{
    size_t count = 0;
    for (const struct placed_variable *variable = b->variables; variable; variable = variable->next)
        count++;
    module->variables = calloc(count ? count : 1, sizeof *module->variables);
    for (const struct placed_variable *variable = b->variables; variable; variable = variable->next) {
        if (!module->variables) {
            module->memory.give_back(module->memory.who, variable->address);
            b->result = CUDA_ERROR_OUT_OF_MEMORY;
            continue;
        }
        uint32_t length = variable->name->length;
        char *name = variable->in_body ? NULL : pool_take(module->pool, &b->budget, length + 1);
        if (name)
            memcpy(name, variable->name->at, length);
        else if (!variable->in_body && b->result == CUDA_SUCCESS)
            b->result = CUDA_ERROR_OUT_OF_MEMORY;
        module->variables[module->variable_count++] = (struct ptx_variable){name, variable->address, variable->bytes};
    }
    module->bytes = b->variable_bytes + pool_bytes(module->pool) + count * sizeof *module->variables + sizeof *module;
}

static CUresult build_module(struct build *b, struct ptx_module *module, const char *text)
{
    if (setjmp(b->failed) == 0) {
        names_begin(b);
        lex(b, text);
        read_module(b, module);
        build_kernels(b, module);
    }
    list_variables(b, module);
    return b->result;
}

CUresult ptx_load(const char *text, const struct ptx_memory *memory, const struct ptx_bounds *bounds,
                  struct ptx_module **out, struct ptx_log *log)
{
    struct ptx_module *module = calloc(1, sizeof *module);
    struct build *b = calloc(1, sizeof *b);
    struct pool *kept = pool_open(), *build = pool_open();
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (module && b && kept && build) {
        *module = (struct ptx_module){.pool = kept, .memory = *memory};
        b->kept = kept;
        b->build = build;
        b->memory = memory;
        b->bounds = bounds;
        b->begun_ns = now_ns();
        b->budget = (struct budget){.host_left = HOST_BYTES_MOST, .left = bounds->bytes_most};
        b->log = log;
        b->result = CUDA_SUCCESS;
        result = build_module(b, module, text);
    }
    pool_close(build);
    free(b);
    if (result == CUDA_SUCCESS) {
        *out = module;
    } else if (module && module->pool) {
        ptx_unload(module);
    } else {
        pool_close(kept);
        free(module);
    }
    return result;
}

uint64_t ptx_bytes(const struct ptx_module *module)
{
    return module->bytes;
}

void ptx_unload(struct ptx_module *module)
{
    for (size_t i = 0; i < module->kernel_count; i++)
        compile_forget(module->kernels[i].code);
    for (size_t i = 0; i < module->variable_count; i++)
        module->memory.give_back(module->memory.who, module->variables[i].address);
    free(module->variables);
    pool_close(module->pool);
    free(module);
}

size_t ptx_kernels(const struct ptx_module *module, const struct ptx_kernel **kernels)
{
    if (kernels)
        *kernels = module->kernels;
    return module->kernel_count;
}

const struct ptx_variable *ptx_variable_named(const struct ptx_module *module, const char *name)
{
    for (size_t i = 0; i < module->variable_count; i++)
        if (module->variables[i].name && strcmp(module->variables[i].name, name) == 0)
            return &module->variables[i];
    return NULL;
}

bool ptx_owns_address(const struct ptx_module *module, uint64_t address)
{
    for (size_t i = 0; i < module->variable_count; i++)
        if (module->variables[i].address == address)
            return true;
    return false;
}

uint32_t ptx_version(const struct ptx_module *module)
{
    return module->version;
}
