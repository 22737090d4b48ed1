/* Modules: PTX text or, for null kernels, a binary image in; functions and variables out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls/image.h"
#include "calls/pace.h"
#include "device/device.h"
#include "device/fatbin/fatbin.h"
#include "device/null.h"
#include "device/shared.h"
#include "device/timeline.h"
#include "include/software_abi.h"

static const char ELF_MAGIC[] = "\x7f"
                                "ELF",
                  FATBIN_MAGIC[] = "\x50\xed\x55\xba";

static uint64_t place(void *who, size_t bytes)
{
    struct CUctx_st *context = who;
    struct arena_range range;
    uint64_t address = arena_allocate(device_arena(), &context->memory, bytes);
    if (address) /* variables get their first values without a copy call */
        arena_find(device_arena(), &context->memory, address, bytes, true, &range);
    return address;
}

static void give_back(void *who, uint64_t address)
{
    struct CUctx_st *context = who;
    arena_free(device_arena(), &context->memory, address);
}

static bool find(void *who, uint64_t address, size_t bytes, bool write, uint64_t *from, uint64_t *to)
{
    struct CUctx_st *context = who;
    struct arena_range range;
    if (!memory_find(context, address, bytes, write, &range))
        return false;
    *from = range.from;
    *to = range.to;
    return true;
}

struct ptx_memory memory_of(struct CUctx_st *context)
{
    return (struct ptx_memory){.who = context, .place = place, .give_back = give_back, .find = find};
}

/* The log buffers that the caller gave; sizes are what was written, as CUDA reports them. */
struct jit_logs {
    char *error;
    size_t error_bytes;
    void **error_size, **info_size;
};

static CUresult read_options(unsigned int count, const CUjit_option *options, void **values, struct jit_logs *logs)
{
    if (count && (!options || !values))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned int i = 0; i < count; i++) {
        switch ((int)options[i]) {
        case CU_JIT_ERROR_LOG_BUFFER:
            logs->error = values[i];
            break;
        case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
            logs->error_bytes = (size_t)(uintptr_t)values[i] & 0xffffffffu;
            logs->error_size = &values[i];
            break;
        case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
            logs->info_size = &values[i];
            break;
        default: /* hints for a compiler that is not here */
            break;
        }
    }
    return CUDA_SUCCESS;
}

static void write_logs(const struct jit_logs *logs, const char *text)
{
    size_t length = strlen(text);
    if (logs->info_size)
        *logs->info_size = NULL;
    if (logs->error && logs->error_bytes) {
        if (length >= logs->error_bytes)
            length = logs->error_bytes - 1;
        memcpy(logs->error, text, length);
        logs->error[length] = '\0';
    } else {
        length = 0;
    }
    if (logs->error_size)
        *logs->error_size = (void *)(uintptr_t)(length ? length + 1 : 0);
}

/* The same complaint again and again (a tenant in a loop) is worth one line. It quotes a tenant's text and goes to the
 * log of a proxy: what is not printable ASCII would let the tenant write lines of its own, or act on a terminal. */
static void complain_once(const char *text)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char said[512];
    char line[sizeof said];
    snprintf(line, sizeof line, "%s", text);
    for (char *at = line; *at; at++)
        if (*at < ' ' || *at > '~')
            *at = '?';
    pthread_mutex_lock(&lock);
    if (strcmp(said, line) != 0) {
        memcpy(said, line, sizeof said);
        if (pace_line(&shared_device()->next_line_ns, timeline_now()))
            fprintf(stderr, "gputax software device: %s\n", line);
    }
    pthread_mutex_unlock(&lock);
}

static size_t kernels_of(const struct CUmod_st *module, const struct ptx_kernel **kernels)
{
    return module->ptx ? ptx_kernels(module->ptx, kernels) : cubin_kernels(module->cubin, kernels);
}

bool module_owns_address(const struct CUmod_st *module, CUdeviceptr address)
{
    return module->ptx ? ptx_owns_address(module->ptx, address) : cubin_owns_address(module->cubin, address);
}

static void unload(const struct CUmod_st *module)
{
    if (module->ptx)
        ptx_unload(module->ptx);
    if (module->cubin)
        cubin_unload(module->cubin);
}

static void drop_module(struct CUmod_st *module)
{
    size_t count = kernels_of(module, NULL);
    for (size_t i = 0; i < count; i++)
        handle_remove(&module->functions[i]);
    handle_remove(module);
    owned_remove(&module->link);
    ptx_scratch_forget(module->context->scratch);
    unload(module);
    free(module->functions);
    free(module);
}

void module_drop_all(struct CUctx_st *context)
{
    while (context->modules.next != &context->modules)
        drop_module((struct CUmod_st *)context->modules.next);
}

/* Takes what was loaded, the PTX or the binary image of `loaded`; the bounds get what it holds. */
static CUresult register_module(struct CUctx_st *context, const struct CUmod_st *loaded,
                                struct gputax_load_bounds *bounds, CUmodule *out)
{
    const struct ptx_kernel *kernels;
    size_t count = kernels_of(loaded, &kernels);
    bounds->bytes = (loaded->ptx ? ptx_bytes(loaded->ptx) : cubin_bytes(loaded->cubin)) +
                    count * sizeof(struct CUfunc_st) + sizeof(struct CUmod_st);
    if (bounds->bytes > bounds->bytes_most) {
        unload(loaded);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct CUmod_st *module = calloc(1, sizeof *module);
    struct CUfunc_st *functions = calloc(count ? count : 1, sizeof *functions);
    if (!module || !functions || !handle_add(module, HANDLE_MODULE)) {
        free(module);
        free(functions);
        unload(loaded);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *module = (struct CUmod_st){.context = context, .ptx = loaded->ptx, .cubin = loaded->cubin, .functions = functions};
    owned_add(&context->modules, &module->link);
    for (size_t i = 0; i < count; i++) {
        uint32_t fixed = kernels[i].shared_bytes;
        functions[i] = (struct CUfunc_st){.module = module, .kernel = &kernels[i]};
        functions[i].dynamic_shared_limit = fixed < DEVICE_STATIC_SHARED_BYTES ? DEVICE_STATIC_SHARED_BYTES - fixed : 0;
        if (!handle_add(&functions[i], HANDLE_FUNCTION)) {
            drop_module(module);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    *out = module;
    return CUDA_SUCCESS;
}

static CUresult load_text(struct CUctx_st *context, const char *text, struct gputax_load_bounds *given,
                          CUmodule *module, struct ptx_log *log)
{
    struct ptx_memory memory = memory_of(context);
    struct ptx_bounds bounds = {.bytes_most = given->bytes_most,
                                .timeout_ns = device_timeout_ns(),
                                .goes_on = given->goes_on,
                                .who = given->who};
    struct ptx_module *ptx;
    CUresult result = ptx_load(text, &memory, &bounds, &ptx, log);
    return result == CUDA_SUCCESS ? register_module(context, &(struct CUmod_st){.ptx = ptx}, given, module) : result;
}

static CUresult load_cubin(struct CUctx_st *context, const void *image, size_t bytes, struct gputax_load_bounds *given,
                           CUmodule *module, struct ptx_log *log)
{
    struct ptx_memory memory = memory_of(context);
    struct cubin *cubin;
    CUresult result = cubin_load(image, bytes, &memory, given->bytes_most, &cubin, log);
    return result == CUDA_SUCCESS ? register_module(context, &(struct CUmod_st){.cubin = cubin}, given, module)
                                  : result;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options,
                            void **values)
{
    struct gputax_load_bounds none = {.bytes_most = UINT64_MAX};
    return gputaxModuleLoadBounded(module, image ? image_unwrapped(image) : NULL, count, options, values, &none);
}

/* The image is of this process, or the proxy has found that its headers do not point behind its end. */
static CUresult load_image(struct CUctx_st *context, const void *image, struct gputax_load_bounds *bounds,
                           CUmodule *module, struct ptx_log *log)
{
    bool is_elf = strncmp(image, ELF_MAGIC, 4) == 0;
    if (is_elf && !null_kernels()) {
        snprintf(log->text, sizeof log->text, "the image is a binary for a GPU; this device runs PTX text only");
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    size_t bytes = image_bytes(image, IMAGE_MOST);
    if (is_elf)
        return bytes ? load_cubin(context, image, bytes, bounds, module, log) : CUDA_ERROR_INVALID_IMAGE;
    if (strncmp(image, FATBIN_MAGIC, 4) != 0)
        return load_text(context, image, bounds, module, log);
    const char *why = NULL;
    size_t most = bounds->bytes_most < IMAGE_MOST ? (size_t)bounds->bytes_most : IMAGE_MOST, cubin_length;
    void *cubin = null_kernels() ? fat_cubin(image, bytes, PTX_CAPABILITY, most, &cubin_length) : NULL;
    if (cubin) {
        CUresult loaded = load_cubin(context, cubin, cubin_length, bounds, module, log);
        free(cubin);
        return loaded;
    }
    char *text = fat_ptx(image, bytes, PTX_CAPABILITY, most, &why);
    if (!text) {
        snprintf(log->text, sizeof log->text, "%s", why);
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    CUresult result = load_text(context, text, bounds, module, log);
    free(text);
    return result;
}

CUresult gputaxModuleLoadBounded(CUmodule *module, const void *image, unsigned int count, CUjit_option *options,
                                 void **values, struct gputax_load_bounds *bounds)
{
    struct CUctx_st *context;
    struct jit_logs logs = {0};
    struct ptx_log log = {{0}};
    if (!module || !image || !bounds)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = read_options(count, options, values, &logs);
    if (result != CUDA_SUCCESS)
        return result;
    result = context_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    result = load_image(context, image, bounds, module, &log);
    context_leave(context);
    write_logs(&logs, log.text);
    if (log.text[0])
        complain_once(log.text);
    return result;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

/* Enters the current context; the module must live in it. */
static CUresult enter_module(CUmodule module, struct CUctx_st **context)
{
    CUresult result = context_enter(context);
    if (result != CUDA_SUCCESS)
        return result;
    if (handle_is(module, HANDLE_MODULE) && module->context == *context)
        return CUDA_SUCCESS;
    context_leave(*context);
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuModuleUnload(CUmodule module)
{
    struct CUctx_st *context;
    CUresult result = enter_module(module, &context);
    if (result != CUDA_SUCCESS)
        return result;
    drop_module(module);
    context_leave(context);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    struct CUctx_st *context;
    const struct ptx_kernel *kernels;
    if (!function || !name)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_module(module, &context);
    if (result != CUDA_SUCCESS)
        return result;
    result = CUDA_ERROR_NOT_FOUND;
    size_t count = kernels_of(module, &kernels);
    for (size_t i = 0; i < count; i++)
        if (strcmp(kernels[i].name, name) == 0) {
            *function = &module->functions[i];
            result = CUDA_SUCCESS;
        }
    context_leave(context);
    return result;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *pointer, size_t *bytes, CUmodule module, const char *name)
{
    struct CUctx_st *context;
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_module(module, &context);
    if (result != CUDA_SUCCESS)
        return result;
    const struct ptx_variable *variable =
        module->ptx ? ptx_variable_named(module->ptx, name) : cubin_variable_named(module->cubin, name);
    if (variable) {
        if (pointer)
            *pointer = variable->address;
        if (bytes)
            *bytes = variable->bytes;
    } else {
        result = CUDA_ERROR_NOT_FOUND;
    }
    context_leave(context);
    return result;
}
