/* Launches: the parameters are packed by the function's layout and posted. */
#include <string.h>

#include "driver/launch.h"
#include "driver/library.h"
#include "vgpu/functions.h"
#include "vgpu/vgpu.h"

bool function_layout_fits(struct function *function)
{
    if (function->count > PARAMETERS_MOST)
        return false;
    function->bytes = layout_bytes(function->parameters, function->count);
    return function->bytes != UINT32_MAX;
}

/* A cooperative launch is answered: a grid that is too large is its error, and no later call's. */
static bool is_posted(const struct launch *launch)
{
    for (uint32_t at = 0; at < launch->attribute_count; at++)
        if (launch->attributes[at].id == ATTRIBUTE_COOPERATIVE)
            return false;
    return true;
}

/* The parameters as one block of bytes, from either of CUDA's two ways to give them. */
static CUresult pack(const struct function *function, void **parameters, void **extra, uint8_t *packed)
{
    if (function->count == 0)
        return CUDA_SUCCESS;
    if (parameters != NULL) {
        for (uint32_t at = 0; at < function->count; at++) {
            const struct parameter *one = &function->parameters[at];
            if (parameters[at] == NULL)
                return CUDA_ERROR_INVALID_VALUE;
            memcpy(packed + one->offset, parameters[at], one->bytes);
        }
        return CUDA_SUCCESS;
    }
    const void *block = NULL;
    const size_t *bytes = NULL;
    for (; extra != NULL && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            block = extra[1];
        else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            bytes = extra[1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (block == NULL || bytes == NULL || *bytes < function->bytes)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(packed, block, function->bytes);
    return CUDA_SUCCESS;
}

CUresult launch_run(const struct launch *launch)
{
    const uint32_t *grid = launch->grid, *block = launch->block;
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || block[0] == 0 || block[1] == 0 || block[2] == 0 ||
        (launch->parameters != NULL && launch->extra != NULL))
        return CUDA_ERROR_INVALID_VALUE;
    CUfunction handle = NULL;
    CUresult result = function_of(launch->function, &handle);
    if (result == CUDA_SUCCESS)
        result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    const struct function *function = vgpu_function(handle);
    size_t attribute_bytes = launch->attribute_count * sizeof *launch->attributes;
    uint8_t packed[LAUNCH_ATTRIBUTES_MOST * sizeof(struct launch_attribute) + PARAMETER_BYTES_MOST];
    uint8_t *parameters = packed + attribute_bytes; /* both travel behind one another */
    if (function != NULL) {
        memcpy(packed, launch->attributes, attribute_bytes);
        memset(parameters, 0, function->bytes);
        result = pack(function, launch->parameters, launch->extra, parameters);
    } else {
        result = vgpu_current() == 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
    }
    if (result == CUDA_SUCCESS) {
        struct cuLaunchKernel_in in = {.function = function->id,
                                       .grid_x = grid[0],
                                       .grid_y = grid[1],
                                       .grid_z = grid[2],
                                       .block_x = block[0],
                                       .block_y = block[1],
                                       .block_z = block[2],
                                       .shared_bytes = launch->shared_bytes,
                                       .stream = (uint64_t)(uintptr_t)launch->stream,
                                       .attribute_count = launch->attribute_count,
                                       .parameter_bytes = function->bytes};
        bool bulk = function->bytes > PARAMETER_INLINE_MOST, posted = is_posted(launch);
        struct question question = {.call = CALL_cuLaunchKernel,
                                    .flags = QUESTION_CONTEXT | (posted ? QUESTION_POSTED | QUESTION_FLUSH : 0),
                                    .in = &in,
                                    .in_bytes = sizeof in,
                                    .variable = packed,
                                    .variable_bytes = attribute_bytes + (bulk ? 0 : function->bytes),
                                    .bulk_bytes = bulk ? function->bytes : 0};
        result = vgpu_send(&question);
        if (result == CUDA_SUCCESS && bulk)
            result = vgpu_bulk_out(parameters, function->bytes);
        if (result == CUDA_SUCCESS && !posted)
            result = vgpu_receive(&question);
    }
    vgpu_leave();
    return result;
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *bytes)
{
    if (offset == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = function_of(handle, &handle);
    if (result == CUDA_SUCCESS)
        result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    const struct function *function = vgpu_function(handle);
    if (function == NULL)
        result = CUDA_ERROR_INVALID_HANDLE;
    else if (index >= function->count)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        *offset = function->parameters[index].offset;
        if (bytes != NULL)
            *bytes = function->parameters[index].bytes;
    }
    vgpu_leave();
    return result;
}
