/* The parameters of graph nodes: checked, and the values copied out of the caller's memory, as CUDA does it. */
#include <stdlib.h>

#include "driver/graph.h"
#include "driver/launch.h"
#include "driver/library.h"

/* Where each parameter lies, and the end of the last. */
static CUresult layout_of(CUfunction function, struct parameter *parameters, uint32_t *count, uint32_t *bytes)
{
    for (*count = 0; *count <= PARAMETERS_MOST; ++*count) {
        size_t offset = 0, size = 0;
        CUresult result = cuFuncGetParamInfo(function, *count, &offset, &size);
        if (result == CUDA_ERROR_INVALID_VALUE) { /* the index behind the last */
            *bytes = layout_bytes(parameters, *count);
            /* Also UINT32_MAX. A step of a graph changes by one message. */
            return *bytes > PARAMETER_INLINE_MOST ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
        }
        if (result != CUDA_SUCCESS)
            return result;
        if (*count == PARAMETERS_MOST || offset > PARAMETER_BYTES_MOST || size > PARAMETER_BYTES_MOST)
            break;
        parameters[*count] = (struct parameter){(uint32_t)offset, (uint32_t)size};
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult read_extra(void **extra, uint32_t bytes, uint8_t *packed)
{
    const void *block = NULL;
    const size_t *given = NULL;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            block = extra[1];
        else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            given = extra[1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (bytes == 0)
        return CUDA_SUCCESS;
    if (block == NULL || given == NULL || *given < bytes)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(packed, block, bytes);
    return CUDA_SUCCESS;
}

static CUresult pack(const struct launch *launch, const struct parameter *layout, uint32_t count, uint32_t bytes,
                     uint8_t *packed)
{
    if (launch->parameters == NULL && launch->extra != NULL)
        return read_extra(launch->extra, bytes, packed);
    for (uint32_t at = 0; at < count; at++) {
        if (launch->parameters == NULL || launch->parameters[at] == NULL)
            return CUDA_ERROR_INVALID_VALUE;
        memcpy(packed + layout[at].offset, launch->parameters[at], layout[at].bytes);
    }
    return CUDA_SUCCESS;
}

CUresult step_of_launch(const struct launch *launch, struct graph_step *step, uint8_t **block)
{
    const uint32_t *grid = launch->grid, *threads = launch->block;
    struct parameter layout[PARAMETERS_MOST];
    uint32_t count = 0, bytes = 0;
    CUfunction function = NULL;
    for (int at = 0; at < 3; at++)
        if (grid[at] == 0 || threads[at] == 0)
            return CUDA_ERROR_INVALID_VALUE;
    if (launch->parameters != NULL && launch->extra != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = function_of(launch->function, &function);
    if (result == CUDA_SUCCESS)
        result = layout_of(function, layout, &count, &bytes);
    if (result != CUDA_SUCCESS)
        return result;
    *step = (struct graph_step){.kind = STEP_KERNEL,
                                .parameter_bytes = bytes,
                                .kernel = {.function = (uint64_t)(uintptr_t)function,
                                           .grid = {grid[0], grid[1], grid[2]},
                                           .block = {threads[0], threads[1], threads[2]},
                                           .shared_bytes = launch->shared_bytes,
                                           .attribute_count = launch->attribute_count}};
    uint8_t *packed = calloc(1, (size_t)step_block_bytes(step) + 1);
    if (packed == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = pack(launch, layout, count, bytes, packed);
    if (result != CUDA_SUCCESS) {
        free(packed);
        return result;
    }
    memcpy(packed + step_attributes_at(step), launch->attributes, launch->attribute_count * sizeof *launch->attributes);
    *block = packed;
    return CUDA_SUCCESS;
}

CUresult step_of_kernel(const CUDA_KERNEL_NODE_PARAMS_v1 *from, CUkernel kernel, struct graph_step *step,
                        uint8_t **block)
{
    if (from == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const struct launch launch = {.function = from->func != NULL ? from->func : (CUfunction)kernel,
                                  .grid = {from->gridDimX, from->gridDimY, from->gridDimZ},
                                  .block = {from->blockDimX, from->blockDimY, from->blockDimZ},
                                  .shared_bytes = from->sharedMemBytes,
                                  .parameters = from->kernelParams,
                                  .extra = from->extra};
    return step_of_launch(&launch, step, block);
}

/* One side of a copy as an address. A copy of several rows is one range only where the rows lie without a gap. */
static CUresult side(uint64_t base, const size_t *at, size_t pitch, size_t height, const CUDA_MEMCPY3D *copy,
                     uint64_t *address)
{
    if ((copy->Height > 1 && pitch != copy->WidthInBytes) || (copy->Depth > 1 && height != copy->Height))
        return CUDA_ERROR_NOT_SUPPORTED;
    size_t row = 0, plane = 0;
    if (__builtin_mul_overflow(at[2], height, &plane) || __builtin_add_overflow(plane, at[1], &row) ||
        __builtin_mul_overflow(row, pitch, &row) || __builtin_add_overflow(row, at[0], &row))
        return CUDA_ERROR_INVALID_VALUE;
    *address = base + row;
    return CUDA_SUCCESS;
}

static bool is_device(CUmemorytype type)
{
    return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED;
}

/* Between device memory, or between it and the program's; arrays are not there. */
static CUresult kind_of(const CUDA_MEMCPY3D *from, uint32_t *kind)
{
    bool to_device = is_device(from->dstMemoryType), from_device = is_device(from->srcMemoryType);
    bool to_host = from->dstMemoryType == CU_MEMORYTYPE_HOST, from_host = from->srcMemoryType == CU_MEMORYTYPE_HOST;
    if ((!to_device && !to_host) || (!from_device && !from_host) || (to_host && from_host))
        return CUDA_ERROR_NOT_SUPPORTED;
    *kind = to_host ? STEP_COPY_OUT : from_host ? STEP_COPY_IN : STEP_COPY;
    if ((to_host && from->dstHost == NULL) || (from_host && from->srcHost == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult step_of_copy(const CUDA_MEMCPY3D *from, struct graph_step *step)
{
    if (from == NULL || from->srcLOD != 0 || from->dstLOD != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *step = (struct graph_step){.kind = STEP_COPY};
    const size_t source[] = {from->srcXInBytes, from->srcY, from->srcZ};
    const size_t target[] = {from->dstXInBytes, from->dstY, from->dstZ};
    CUresult result = kind_of(from, &step->kind);
    if (result == CUDA_SUCCESS)
        result = side(step->kind == STEP_COPY_IN ? (uintptr_t)from->srcHost : from->srcDevice, source, from->srcPitch,
                      from->srcHeight, from, &step->copy.from);
    if (result == CUDA_SUCCESS)
        result = side(step->kind == STEP_COPY_OUT ? (uintptr_t)from->dstHost : from->dstDevice, target, from->dstPitch,
                      from->dstHeight, from, &step->copy.to);
    uint64_t bytes = from->WidthInBytes;
    if (result == CUDA_SUCCESS &&
        (__builtin_mul_overflow(bytes, from->Height, &bytes) || __builtin_mul_overflow(bytes, from->Depth, &bytes)))
        result = CUDA_ERROR_INVALID_VALUE;
    step->copy.bytes = bytes;
    return result;
}

CUresult step_of_fill(const CUDA_MEMSET_NODE_PARAMS *from, struct graph_step *step)
{
    if (from == NULL || (from->elementSize != 1 && from->elementSize != 2 && from->elementSize != 4) ||
        from->dst % from->elementSize != 0)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t row, count;
    if (__builtin_mul_overflow((uint64_t)from->width, from->elementSize, &row) ||
        __builtin_mul_overflow((uint64_t)from->width, from->height, &count))
        return CUDA_ERROR_INVALID_VALUE;
    if (from->height > 1 && from->pitch != row)
        return CUDA_ERROR_NOT_SUPPORTED; /* rows with gaps */
    *step = (struct graph_step){
        .kind = STEP_FILL, .fill = {.to = from->dst, .count = count, .value = from->value, .width = from->elementSize}};
    return CUDA_SUCCESS;
}

CUresult step_of_host(const CUDA_HOST_NODE_PARAMS_v1 *from, struct graph_step *step)
{
    if (from == NULL || from->fn == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *step = (struct graph_step){
        .kind = STEP_HOST,
        .host = {.function = (uint64_t)(uintptr_t)from->fn, .data = (uint64_t)(uintptr_t)from->userData}};
    return CUDA_SUCCESS;
}
