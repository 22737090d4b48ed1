/* Functions and launches: shapes and resources checked, parameters gathered, the kernel run on the timeline. */
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "device/null.h"
#include "device/timeline.h"
#include "driver/launch.h"
#include "driver/library.h"

/* Enters the current context; the function must live in it. A kernel of a library becomes its function there. */
static CUresult enter_function(CUfunction *given, struct CUctx_st **context)
{
    CUresult result = function_of(*given, given);
    if (result == CUDA_SUCCESS)
        result = context_enter(context);
    if (result != CUDA_SUCCESS)
        return result;
    if (handle_is(*given, HANDLE_FUNCTION) && (*given)->module->context == *context)
        return CUDA_SUCCESS;
    context_leave(*context);
    return CUDA_ERROR_INVALID_HANDLE;
}

static CUresult function_attribute(const struct CUfunc_st *function, CUfunction_attribute attribute, int *value)
{
    const struct ptx_kernel *kernel = function->kernel;
    switch ((int)attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = (int)kernel->threads_max;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = (int)kernel->shared_bytes;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = (int)kernel->local_bytes;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = (int)kernel->register_count;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        *value = function->module->ptx ? (int)ptx_version(function->module->ptx) : PTX_CAPABILITY;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = PTX_CAPABILITY;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = (int)function->dynamic_shared_limit;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
    case CU_FUNC_ATTRIBUTE_CLUSTER_FIRST ... CU_FUNC_ATTRIBUTE_CLUSTER_LAST: /* no clusters here */
        *value = 0;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *value = -1; /* no preference */
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    struct CUctx_st *context;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_function(&function, &context);
    if (result != CUDA_SUCCESS)
        return result;
    result = function_attribute(function, attribute, value);
    context_leave(context);
    return result;
}

/* Preferences, and there is nothing to prefer: every block is a cluster of its own. */
static bool is_hint(CUfunction_attribute attribute, int value)
{
    enum { NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14, CLUSTER_SCHEDULING_POLICY_PREFERENCE = 15, LOAD_BALANCING = 2 };
    switch ((int)attribute) {
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        return true;
    case NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        return value == 0 || value == 1;
    case CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        return value >= 0 && value <= LOAD_BALANCING;
    default:
        return false;
    }
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    struct CUctx_st *context;
    CUresult result = enter_function(&function, &context);
    if (result != CUDA_SUCCESS)
        return result;
    unsigned int fixed = function->kernel->shared_bytes;
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value >= 0 &&
        (unsigned int)value + fixed <= DEVICE_SHARED_BYTES)
        function->dynamic_shared_limit = (unsigned int)value;
    else if (!is_hint(attribute, value))
        result = CUDA_ERROR_INVALID_VALUE;
    context_leave(context);
    return result;
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *bytes)
{
    struct CUctx_st *context;
    if (!offset)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_function(&function, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (index < function->kernel->parameter_count) {
        *offset = function->kernel->parameters[index].offset;
        if (bytes)
            *bytes = function->kernel->parameters[index].bytes;
    } else {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    context_leave(context);
    return result;
}

static CUresult gather_extra(const struct ptx_kernel *kernel, void **extra, unsigned char *parameters)
{
    const void *buffer = NULL;
    size_t bytes = 0;
    for (; extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
        if (!extra[1])
            return CUDA_ERROR_INVALID_VALUE;
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            bytes = *(const size_t *)extra[1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (bytes < kernel->parameter_bytes || (kernel->parameter_bytes && !buffer))
        return CUDA_ERROR_INVALID_VALUE;
    if (kernel->parameter_bytes)
        memcpy(parameters, buffer, kernel->parameter_bytes);
    return CUDA_SUCCESS;
}

static CUresult gather(const struct ptx_kernel *kernel, void **pointers, void **extra, unsigned char *parameters)
{
    if (pointers && extra)
        return CUDA_ERROR_INVALID_VALUE;
    if (extra)
        return gather_extra(kernel, extra, parameters);
    if (kernel->parameter_count && !pointers)
        return CUDA_ERROR_INVALID_VALUE;
    for (uint32_t i = 0; i < kernel->parameter_count; i++) {
        if (!pointers[i])
            return CUDA_ERROR_INVALID_VALUE;
        memcpy(parameters + kernel->parameters[i].offset, pointers[i], kernel->parameters[i].bytes);
    }
    return CUDA_SUCCESS;
}

static CUresult check_shape(const struct CUfunc_st *function, const struct ptx_launch *launch)
{
    const uint32_t *grid = launch->grid, *block = launch->block;
    for (int i = 0; i < 3; i++)
        if (grid[i] == 0 || block[i] == 0 || grid[i] > (i ? DEVICE_GRID_DIM_YZ : DEVICE_GRID_DIM_X) ||
            block[i] > (i == 2 ? DEVICE_BLOCK_DIM_Z : DEVICE_THREADS_PER_BLOCK))
            return CUDA_ERROR_INVALID_VALUE;
    if ((uint64_t)block[0] * block[1] * block[2] > function->kernel->threads_max)
        return CUDA_ERROR_INVALID_VALUE;
    if (launch->dynamic_shared_bytes > function->dynamic_shared_limit)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* The longest that a kernel may run: a kernel that never ends must not block its thread. */
uint64_t device_timeout_ns(void)
{
    static uint64_t known;
    if (!known) {
        const char *text = getenv("GPUTAX_SOFT_TIMEOUT_S");
        double seconds = text ? strtod(text, NULL) : 0;
        known = (uint64_t)((seconds > 0 && seconds < 1e6 ? seconds : 20) * 1e9);
    }
    return known;
}

/* How many blocks of this size run at once on the device's one multiprocessor. */
static uint32_t blocks_at_once(const struct CUfunc_st *function, uint32_t threads, size_t shared_bytes)
{
    uint32_t warps = (threads + 31) / 32, blocks = PTX_COOPERATIVE_BLOCKS;
    size_t shared = function->kernel->shared_bytes + shared_bytes;
    if (threads > function->kernel->threads_max || shared_bytes > function->dynamic_shared_limit)
        return 0;
    if (blocks > DEVICE_THREADS_PER_MULTIPROCESSOR / 32 / warps)
        blocks = DEVICE_THREADS_PER_MULTIPROCESSOR / 32 / warps;
    if (shared != 0 && blocks > DEVICE_SHARED_BYTES / shared)
        blocks = (uint32_t)(DEVICE_SHARED_BYTES / shared);
    return blocks;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int block_size,
                                                              size_t shared_bytes, unsigned int flags)
{
    struct CUctx_st *context;
    if (!blocks || block_size <= 0 || flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_function(&function, &context);
    if (result != CUDA_SUCCESS)
        return result;
    *blocks = (int)blocks_at_once(function, (uint32_t)block_size, shared_bytes);
    context_leave(context);
    return CUDA_SUCCESS;
}

/* What is left for each of so many blocks of this size that are to fit at once: one does, and more never do. */
CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function, int blocks, int block_size)
{
    struct CUctx_st *context;
    if (!bytes || blocks <= 0 || block_size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_function(&function, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (blocks == 1 && (unsigned int)block_size <= function->kernel->threads_max)
        *bytes = function->dynamic_shared_limit;
    else
        result = CUDA_ERROR_INVALID_VALUE;
    context_leave(context);
    return result;
}

/* Clusters lie on one multiprocessor, as all blocks do. Only null kernels are launched in clusters. */
CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function, const CUlaunchConfig *config)
{
    struct CUctx_st *context;
    if (!clusters || !config || (config->numAttrs && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t size = 1, threads = (uint64_t)config->blockDimX * config->blockDimY * config->blockDimZ;
    for (unsigned int i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
            uint32_t sides[3];
            memcpy(sides, config->attrs[i].value.bytes, sizeof sides);
            if (sides[0] > 16 || sides[1] > 16 || sides[2] > 16)
                return CUDA_ERROR_INVALID_CLUSTER_SIZE;
            size = (uint64_t)sides[0] * sides[1] * sides[2];
        }
    if (size == 0 || size > 16 || threads == 0 || threads > DEVICE_THREADS_PER_BLOCK)
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    CUresult result = enter_function(&function, &context);
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t blocks = blocks_at_once(function, (uint32_t)threads, config->sharedMemBytes);
    *clusters = (int)(blocks * (null_kernels() ? DEVICE_NULL_MULTIPROCESSORS : 1) / size);
    context_leave(context);
    return CUDA_SUCCESS;
}

/* Attributes that only tune have no effect here. A block is a cluster of its own. */
static CUresult take_attribute(const struct CUfunc_st *function, const struct launch_attribute *attribute,
                               struct ptx_launch *launch)
{
    const uint32_t *grid = launch->grid, *block = launch->block, *value = attribute->value;
    bool is_cluster = value[0] != 1 || value[1] != 1 || value[2] != 1;
    if (attribute->id == ATTRIBUTE_CLUSTER_DIMENSION && is_cluster && !null_kernels())
        return CUDA_ERROR_NOT_SUPPORTED;
    if (attribute->id != ATTRIBUTE_COOPERATIVE || value[0] == 0)
        return CUDA_SUCCESS;
    launch->is_cooperative = true;
    uint32_t most = blocks_at_once(function, block[0] * block[1] * block[2], launch->dynamic_shared_bytes);
    bool fits = grid[0] <= most && grid[1] <= most && grid[2] <= most && grid[0] * grid[1] * grid[2] <= most;
    return fits ? CUDA_SUCCESS : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

static double null_time(const struct ptx_kernel *kernel, const struct ptx_launch *launch)
{
    uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    return null_launch(kernel->name, blocks, (uint64_t)launch->block[0] * launch->block[1] * launch->block[2]);
}

static CUresult launch_in(struct CUctx_st *context, const struct launch *from)
{
    _Alignas(16) unsigned char parameters[DEVICE_PARAMETER_BYTES];
    const struct CUfunc_st *function = from->function;
    struct ptx_launch launch = {.grid = {from->grid[0], from->grid[1], from->grid[2]},
                                .block = {from->block[0], from->block[1], from->block[2]},
                                .dynamic_shared_bytes = from->shared_bytes};
    struct CUstream_st *stream;
    CUresult result = stream_find(context, from->stream, &stream);
    if (result == CUDA_SUCCESS)
        result = check_shape(function, &launch);
    for (uint32_t at = 0; at < from->attribute_count && result == CUDA_SUCCESS; at++)
        result = take_attribute(function, &from->attributes[at], &launch);
    memset(parameters, 0, function->kernel->parameter_bytes); /* a kernel can read what lies between two parameters */
    if (result == CUDA_SUCCESS)
        result = gather(function->kernel, from->parameters, from->extra, parameters);
    if (result != CUDA_SUCCESS)
        return result;
    struct ptx_memory memory = memory_of(context);
    launch.parameters = parameters;
    launch.memory = &memory;
    launch.timeout_ns = device_timeout_ns();
    struct timeline_work work = timeline_begin_kernel(null_kernels() ? null_time(function->kernel, &launch) : 0);
    result = null_kernels() ? CUDA_SUCCESS : ptx_run(function->kernel, &launch, context->scratch);
    stream_finish(stream, timeline_end(work));
    if (result == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES || result == CUDA_ERROR_OUT_OF_MEMORY ||
        result == CUDA_ERROR_NOT_SUPPORTED)
        return result; /* nothing has run */
    if (result != CUDA_SUCCESS)
        ptx_output_drain(context->scratch); /* the words of an assert: no later call gets in */
    context->failure = result;              /* a fault shows at the next call, as it does on a GPU */
    return CUDA_SUCCESS;
}

CUresult launch_run(const struct launch *given)
{
    struct launch launch = *given;
    struct CUctx_st *context;
    CUresult result = enter_function(&launch.function, &context);
    if (result != CUDA_SUCCESS)
        return result;
    result = launch_in(context, &launch);
    context_leave(context);
    return result;
}
