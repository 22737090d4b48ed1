/* Modules and their functions: the image travels whole, and each function is kept with the layout of its parameters. */
#include "vgpu/functions.h"

#include <stdlib.h>
#include <string.h>

#include "calls/handle_id.h"
#include "calls/image.h"
#include "vgpu/vgpu.h"

enum { FUNCTIONS_MOST = 1 << 20 };

static struct function **functions; /* by the handle's index */
static uint32_t functions_capacity;

struct function *vgpu_function(CUfunction handle)
{
    uint64_t id = (uint64_t)(uintptr_t)handle;
    uint32_t index = handle_index(id);
    if (index >= functions_capacity || functions[index] == NULL || functions[index]->id != id)
        return NULL;
    return functions[index];
}

static bool keep(struct function *function)
{
    uint32_t index = handle_index(function->id);
    if (index >= FUNCTIONS_MOST)
        return false;
    if (index >= functions_capacity) {
        uint32_t capacity = functions_capacity == 0 ? 64 : functions_capacity;
        while (capacity <= index)
            capacity *= 2;
        struct function **grown = realloc(functions, capacity * sizeof *grown);
        if (grown == NULL)
            return false;
        memset(grown + functions_capacity, 0, (capacity - functions_capacity) * sizeof *grown);
        functions = grown;
        functions_capacity = capacity;
    }
    free(functions[index]);
    functions[index] = function;
    return true;
}

void vgpu_forget_functions(uint64_t context, uint64_t module)
{
    for (uint32_t at = 0; at < functions_capacity; at++) {
        const struct function *function = functions[at];
        if (function == NULL || (module != 0 ? function->module != module : function->context != context))
            continue;
        free(functions[at]);
        functions[at] = NULL;
    }
}

void vgpu_functions_reset(void)
{
    for (uint32_t at = 0; at < functions_capacity; at++)
        free(functions[at]);
    free(functions);
    functions = NULL;
    functions_capacity = 0;
}

/* `log` takes the compiler's complaints. */
static CUresult load(CUmodule *module, const void *image, char *log, size_t log_capacity)
{
    if (module == NULL || image == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    image = image_unwrapped(image);
    size_t bytes = image_bytes(image, IMAGE_MOST);
    if (bytes == 0)
        return CUDA_ERROR_INVALID_IMAGE;
    struct cuModuleLoadData_in in = {.image_bytes = bytes};
    struct cuModuleLoadData_out out = {0};
    struct question question = {.call = CALL_cuModuleLoadData,
                                .flags = QUESTION_CONTEXT,
                                .in = &in,
                                .in_bytes = sizeof in,
                                .bulk_bytes = bytes,
                                .out = &out,
                                .out_bytes = sizeof out,
                                .out_variable = log,
                                .out_capacity = log_capacity,
                                .text = true};
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    result = vgpu_send(&question);
    if (result == CUDA_SUCCESS)
        result = vgpu_bulk_out(image, bytes);
    if (result == CUDA_SUCCESS)
        result = vgpu_receive(&question);
    vgpu_leave();
    if (result == CUDA_SUCCESS)
        *module = (CUmodule)(uintptr_t)out.module;
    return result;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    return load(module, image, NULL, 0);
}

/* Options that only tune are accepted and have no effect; of the logs only that of errors is filled. */
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options,
                            void **values)
{
    enum {
        THREADS_PER_BLOCK = 1,
        OPTIMIZATION_LEVEL = 7,
        TARGET_FROM_CUCONTEXT = 8,
        GENERATE_DEBUG_INFO = 11,
        LOG_VERBOSE = 12,
        GENERATE_LINE_INFO = 13,
        CACHE_MODE = 14
    };
    char *log = NULL;
    void **log_bytes = NULL;
    if (count != 0 && (options == NULL || values == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned int at = 0; at < count; at++) {
        switch ((int)options[at]) {
        case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
            values[at] = NULL; /* out: nothing was written */
            break;
        case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
            log_bytes = &values[at];
            break;
        case CU_JIT_ERROR_LOG_BUFFER:
            log = values[at];
            break;
        case CU_JIT_WALL_TIME:
        case CU_JIT_INFO_LOG_BUFFER:
        case CU_JIT_MAX_REGISTERS:
        case THREADS_PER_BLOCK:
        case OPTIMIZATION_LEVEL:
        case TARGET_FROM_CUCONTEXT:
        case GENERATE_DEBUG_INFO:
        case LOG_VERBOSE:
        case GENERATE_LINE_INFO:
        case CACHE_MODE:
            break;
        default:
            return CUDA_ERROR_NOT_SUPPORTED;
        }
    }
    size_t capacity = log != NULL && log_bytes != NULL ? (uintptr_t)*log_bytes & 0xffffffff : 0;
    if (capacity != 0)
        log[0] = 0;
    CUresult result = load(module, image, log, capacity);
    if (log_bytes != NULL)
        *log_bytes = (void *)(uintptr_t)(capacity != 0 && log[0] != 0 ? strlen(log) + 1 : 0);
    return result;
}

CUresult cuModuleUnload(CUmodule module)
{
    struct cuModuleUnload_in in = {.module = (uint64_t)(uintptr_t)module};
    struct question question = {
        .call = CALL_cuModuleUnload, .flags = QUESTION_CONTEXT, .in = &in, .in_bytes = sizeof in};
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    result = vgpu_ask_inside(&question);
    if (result == CUDA_SUCCESS && in.module != 0) {
        vgpu_forget_functions(0, in.module);
        ranges_drop(&vgpu_memory, 0, in.module);
    }
    vgpu_leave();
    return result;
}

static CUresult ask_function(uint64_t module, const char *name, CUfunction *handle)
{
    struct function *function = calloc(1, sizeof *function);
    if (function == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct cuModuleGetFunction_in in = {.module = module};
    struct cuModuleGetFunction_out out = {0};
    struct question question = {.call = CALL_cuModuleGetFunction,
                                .flags = QUESTION_CONTEXT,
                                .in = &in,
                                .in_bytes = sizeof in,
                                .variable = name,
                                .variable_bytes = strlen(name) + 1,
                                .out = &out,
                                .out_bytes = sizeof out,
                                .out_variable = function->parameters,
                                .out_capacity = sizeof function->parameters};
    CUresult result = vgpu_ask_inside(&question);
    if (result == CUDA_SUCCESS) {
        function->id = out.function;
        function->module = module;
        function->context = in.context;
        function->count = out.parameter_count;
        size_t listed = question.out_variable_bytes / sizeof function->parameters[0];
        if (function->count > listed || !function_layout_fits(function) || !keep(function))
            result = CUDA_ERROR_NOT_SUPPORTED;
    }
    if (result != CUDA_SUCCESS)
        free(function);
    else
        *handle = (CUfunction)(uintptr_t)out.function;
    return result;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    if (function == NULL || name == NULL || strnlen(name, NAME_MOST) >= NAME_MOST)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    result = ask_function((uint64_t)(uintptr_t)module, name, function);
    vgpu_leave();
    return result;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *pointer, size_t *bytes, CUmodule module, const char *name)
{
    if (name == NULL || strnlen(name, NAME_MOST) >= NAME_MOST)
        return CUDA_ERROR_INVALID_VALUE;
    struct cuModuleGetGlobal_v2_in in = {.module = (uint64_t)(uintptr_t)module};
    struct cuModuleGetGlobal_v2_out out = {0};
    struct question question = {.call = CALL_cuModuleGetGlobal_v2,
                                .flags = QUESTION_CONTEXT,
                                .in = &in,
                                .in_bytes = sizeof in,
                                .variable = name,
                                .variable_bytes = strlen(name) + 1,
                                .out = &out,
                                .out_bytes = sizeof out};
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    result = ranges_room(&vgpu_memory) ? vgpu_ask_inside(&question) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        ranges_add(&vgpu_memory, (struct range){out.pointer, out.bytes, in.context, in.module});
        if (pointer != NULL)
            *pointer = out.pointer;
        if (bytes != NULL)
            *bytes = out.bytes;
    }
    vgpu_leave();
    return result;
}
