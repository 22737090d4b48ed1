/* Device memory as this process knows it. */
#include <stdlib.h>
#include <string.h>

#include "driver/pools.h"
#include "vgpu/current.h"
#include "vgpu/vgpu.h"

struct ranges vgpu_memory;

bool vgpu_owns(CUdeviceptr pointer, size_t bytes)
{
    if (vgpu_enter() != CUDA_SUCCESS)
        return true; /* the call itself says what is wrong */
    bool owned = bytes == 0 || ranges_cover(&vgpu_memory, pointer, bytes) != NULL; /* an empty range needs no owner */
    vgpu_leave();
    return owned;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    if (pointer == NULL || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct cuMemAlloc_v2_in in = {.bytes = bytes};
    struct cuMemAlloc_v2_out out = {0};
    struct question question = {.call = CALL_cuMemAlloc_v2,
                                .flags = QUESTION_CONTEXT,
                                .in = &in,
                                .in_bytes = sizeof in,
                                .out = &out,
                                .out_bytes = sizeof out};
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    result = ranges_room(&vgpu_memory) ? vgpu_ask_inside(&question) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        ranges_add(&vgpu_memory, (struct range){.base = out.pointer, .bytes = bytes, .context = in.context});
        *pointer = out.pointer;
    }
    vgpu_leave();
    return result;
}

CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    struct cuMemFree_v2_in in = {.pointer = pointer};
    struct question question = {.call = CALL_cuMemFree_v2,
                                .flags = QUESTION_CONTEXT | QUESTION_POSTED | QUESTION_FLUSH,
                                .in = &in,
                                .in_bytes = sizeof in};
    pools_forget(pointer);
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    struct range *range = ranges_allocation(&vgpu_memory, pointer);
    if (pointer != 0) {
        result = range != NULL ? vgpu_ask_inside(&question) : CUDA_ERROR_INVALID_VALUE;
        if (result == CUDA_SUCCESS)
            ranges_remove(&vgpu_memory, range);
    }
    vgpu_leave();
    return result;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)
{
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    const struct range *range = ranges_cover(&vgpu_memory, pointer, 1);
    if (range != NULL && base != NULL)
        *base = range->base;
    if (range != NULL && bytes != NULL)
        *bytes = range->bytes;
    vgpu_leave();
    return range != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

static CUresult attribute_of(const struct range *range, CUpointer_attribute attribute, CUdeviceptr pointer, void *value)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)value = vgpu_context_handle(range->context);
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned int *)value = CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)value = pointer;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned int *)value = 0;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = 0;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)value = range->base;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)value = range->bytes;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static CUresult attribute_of_host(const struct host_address *host, CUpointer_attribute attribute, void *value)
{
    const struct range range = {.base = host->base, .bytes = host->bytes, .context = host->context};
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned int *)value = CU_MEMORYTYPE_HOST;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *(void **)value = host->at;
        return CUDA_SUCCESS;
    default:
        return attribute_of(&range, attribute, host->device, value);
    }
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr pointer)
{
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    struct host_address host;
    const struct range *range = ranges_cover(&vgpu_memory, pointer, 1);
    if (vgpu_host_address(pointer, &host))
        result = attribute_of_host(&host, attribute, value);
    else
        result = range != NULL ? attribute_of(range, attribute, pointer, value) : CUDA_ERROR_INVALID_VALUE;
    vgpu_leave();
    return result;
}
