/* What is asked of the device and of a function again and again (attributes, occupancy): answered once by the proxy, then from here. */
#include <string.h>

#include "calls/device_attributes.h"
#include "driver/library.h"
#include "vgpu/functions.h"
#include "vgpu/vgpu.h"

/* Resolves the handle and enters; the function is NULL where the proxy must say what is wrong. */
static CUresult enter(CUfunction *handle, struct function **function)
{
    CUresult result = function_of(*handle, handle);
    if (result == CUDA_SUCCESS)
        result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    *function = vgpu_function(*handle);
    if (*function != NULL && (*function)->context != vgpu_current())
        *function = NULL;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    struct device_attribute attributes[DEVICE_ATTRIBUTES];
    struct cuDeviceGetAttribute_in in = {.capacity = sizeof attributes};
    struct question question = {.call = CALL_cuDeviceGetAttribute,
                                .flags = QUESTION_CACHED,
                                .in = &in,
                                .in_bytes = sizeof in,
                                .out_variable = attributes,
                                .out_capacity = sizeof attributes};
    if (value == NULL || (unsigned int)attribute >= DEVICE_ATTRIBUTES)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = vgpu_ask(&question);
    if (result == CUDA_SUCCESS && question.out_variable_bytes != sizeof attributes)
        result = CUDA_ERROR_UNKNOWN;
    if (result != CUDA_SUCCESS)
        return result;
    if (device != 0)
        return CUDA_ERROR_INVALID_DEVICE;
    *value = attributes[attribute].value;
    return (CUresult)attributes[attribute].result;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle)
{
    struct function *function;
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter(&handle, &function);
    if (result != CUDA_SUCCESS)
        return result;
    bool kept = function != NULL && (unsigned int)attribute < ATTRIBUTES_KEPT;
    if (kept && (function->attributes_known >> attribute & 1) != 0) {
        *value = function->attributes[attribute];
        vgpu_leave();
        return CUDA_SUCCESS;
    }
    struct cuFuncGetAttribute_in in = {.function = (uint64_t)(uintptr_t)handle, .attribute = (int32_t)attribute};
    struct cuFuncGetAttribute_out out = {0};
    struct question question = {.call = CALL_cuFuncGetAttribute,
                                .flags = QUESTION_CONTEXT,
                                .in = &in,
                                .in_bytes = sizeof in,
                                .out = &out,
                                .out_bytes = sizeof out};
    result = vgpu_ask_inside(&question);
    if (result == CUDA_SUCCESS) {
        *value = out.value;
        if (kept) {
            function->attributes[attribute] = out.value;
            function->attributes_known |= 1u << attribute;
        }
    }
    vgpu_leave();
    return result;
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
    struct function *function;
    CUresult result = enter(&handle, &function);
    if (result != CUDA_SUCCESS)
        return result;
    bool kept = function != NULL && (unsigned int)attribute < ATTRIBUTES_KEPT;
    if (kept && (function->attributes_set >> attribute & 1) != 0 && function->settings[attribute] == value) {
        vgpu_leave(); /* cuDNN and cuBLAS set the same before each launch */
        return CUDA_SUCCESS;
    }
    struct cuFuncSetAttribute_in in = {
        .function = (uint64_t)(uintptr_t)handle, .attribute = (int32_t)attribute, .value = value};
    struct question question = {
        .call = CALL_cuFuncSetAttribute, .flags = QUESTION_CONTEXT, .in = &in, .in_bytes = sizeof in};
    result = vgpu_ask_inside(&question);
    if (function != NULL) { /* one may change others */
        function->attributes_known = 0;
        function->occupancies_count = 0;
    }
    if (kept) {
        function->attributes_set &= ~(1u << attribute);
        function->attributes_set |= (result == CUDA_SUCCESS ? 1u : 0u) << attribute;
        function->settings[attribute] = value;
    }
    vgpu_leave();
    return result;
}

static const struct occupancy *find(const struct function *function, const struct occupancy *wanted)
{
    for (uint32_t at = 0; at < function->occupancies_count && at < OCCUPANCIES_KEPT; at++) {
        const struct occupancy *one = &function->occupancies[at];
        if (one->block_size == wanted->block_size && one->shared_bytes == wanted->shared_bytes &&
            one->flags == wanted->flags)
            return one;
    }
    return NULL;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction handle, int block_size,
                                                              size_t shared_bytes, unsigned int flags)
{
    struct function *function;
    if (blocks == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter(&handle, &function);
    if (result != CUDA_SUCCESS)
        return result;
    struct occupancy wanted = {.block_size = block_size, .shared_bytes = shared_bytes, .flags = flags};
    const struct occupancy *known = function != NULL ? find(function, &wanted) : NULL;
    if (known != NULL) {
        *blocks = known->blocks;
        vgpu_leave();
        return CUDA_SUCCESS;
    }
    struct cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_in in = {.function = (uint64_t)(uintptr_t)handle,
                                                                         .block_size = block_size,
                                                                         .shared_bytes = shared_bytes,
                                                                         .flags = flags};
    struct cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_out out = {0};
    struct question question = {.call = CALL_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
                                .flags = QUESTION_CONTEXT,
                                .in = &in,
                                .in_bytes = sizeof in,
                                .out = &out,
                                .out_bytes = sizeof out};
    result = vgpu_ask_inside(&question);
    if (result == CUDA_SUCCESS) {
        *blocks = wanted.blocks = out.blocks;
        if (function != NULL) /* the oldest makes room */
            function->occupancies[function->occupancies_count++ % OCCUPANCIES_KEPT] = wanted;
    }
    vgpu_leave();
    return result;
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction handle, int blocks, int block_size)
{
    struct function *function;
    if (bytes == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter(&handle, &function);
    if (result != CUDA_SUCCESS)
        return result;
    struct cuOccupancyAvailableDynamicSMemPerBlock_in in = {
        .function = (uint64_t)(uintptr_t)handle, .blocks = blocks, .block_size = block_size};
    struct cuOccupancyAvailableDynamicSMemPerBlock_out out = {0};
    struct question question = {.call = CALL_cuOccupancyAvailableDynamicSMemPerBlock,
                                .flags = QUESTION_CONTEXT,
                                .in = &in,
                                .in_bytes = sizeof in,
                                .out = &out,
                                .out_bytes = sizeof out};
    result = vgpu_ask_inside(&question);
    vgpu_leave();
    if (result == CUDA_SUCCESS)
        *bytes = out.bytes;
    return result;
}

CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction handle, const CUlaunchConfig *config)
{
    struct function *function;
    uint32_t sides[3] = {1, 1, 1};
    if (clusters == NULL || config == NULL || (config->numAttrs != 0 && config->attrs == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned int at = 0; at < config->numAttrs; at++)
        if (config->attrs[at].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            memcpy(sides, config->attrs[at].value.bytes, sizeof sides);
    CUresult result = enter(&handle, &function);
    if (result != CUDA_SUCCESS)
        return result;
    struct cuOccupancyMaxActiveClusters_in in = {.function = (uint64_t)(uintptr_t)handle,
                                                 .grid_x = config->gridDimX,
                                                 .grid_y = config->gridDimY,
                                                 .grid_z = config->gridDimZ,
                                                 .block_x = config->blockDimX,
                                                 .block_y = config->blockDimY,
                                                 .block_z = config->blockDimZ,
                                                 .shared_bytes = config->sharedMemBytes,
                                                 .cluster_x = sides[0],
                                                 .cluster_y = sides[1],
                                                 .cluster_z = sides[2]};
    struct cuOccupancyMaxActiveClusters_out out = {0};
    struct question question = {.call = CALL_cuOccupancyMaxActiveClusters,
                                .flags = QUESTION_CONTEXT,
                                .in = &in,
                                .in_bytes = sizeof in,
                                .out = &out,
                                .out_bytes = sizeof out};
    result = vgpu_ask_inside(&question);
    vgpu_leave();
    if (result == CUDA_SUCCESS)
        *clusters = out.clusters;
    return result;
}
