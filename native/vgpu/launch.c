/* Launches: the parameters are packed by the function's layout and posted. */
#include <string.h>

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

CUresult cuLaunchKernel(CUfunction handle, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                        CUstream stream, void **parameters, void **extra)
{
    if (grid_x == 0 || grid_y == 0 || grid_z == 0 || block_x == 0 || block_y == 0 || block_z == 0 ||
        (parameters != NULL && extra != NULL))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = function_of(handle, &handle);
    if (result == CUDA_SUCCESS)
        result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    const struct function *function = vgpu_function(handle);
    uint8_t packed[PARAMETER_BYTES_MOST];
    if (function != NULL) {
        memset(packed, 0, function->bytes);
        result = pack(function, parameters, extra, packed);
    } else {
        result = vgpu_current() == 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
    }
    if (result == CUDA_SUCCESS) {
        struct cuLaunchKernel_in in = {.function = function->id,
                                       .grid_x = grid_x,
                                       .grid_y = grid_y,
                                       .grid_z = grid_z,
                                       .block_x = block_x,
                                       .block_y = block_y,
                                       .block_z = block_z,
                                       .shared_bytes = shared_bytes,
                                       .stream = (uint64_t)(uintptr_t)stream,
                                       .parameter_bytes = function->bytes};
        bool bulk = function->bytes > PARAMETER_INLINE_MOST;
        struct question question = {.call = CALL_cuLaunchKernel,
                                    .flags = QUESTION_CONTEXT | QUESTION_POSTED | QUESTION_FLUSH,
                                    .in = &in,
                                    .in_bytes = sizeof in,
                                    .variable = packed,
                                    .variable_bytes = bulk ? 0 : function->bytes,
                                    .bulk_bytes = bulk ? function->bytes : 0};
        result = vgpu_ask_inside(&question);
        if (result == CUDA_SUCCESS && bulk)
            result = vgpu_bulk_out(packed, function->bytes);
    }
    vgpu_leave();
    return result;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)
{
    if (config == NULL || (config->numAttrs != 0 && config->attrs == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned int at = 0; at < config->numAttrs; at++)
        if (config->attrs[at].id != CU_LAUNCH_ATTRIBUTE_IGNORE)
            return CUDA_ERROR_NOT_SUPPORTED;
    return cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
                          config->blockDimY, config->blockDimZ, config->sharedMemBytes, config->hStream, parameters,
                          extra);
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
