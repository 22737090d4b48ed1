/* Several attributes of one address at once. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "cuda_calls.h"

/* What an attribute is of memory that CUDA does not know; false: not an attribute. */
static bool of_unknown_memory(CUpointer_attribute attribute, void *value)
{
    enum { NO_DEVICE = -2 };
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = NO_DEVICE;
        return true;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        memset(value, 0, sizeof(uint64_t));
        return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        memset(value, 0, sizeof(unsigned int));
        return true;
    default:
        return false;
    }
}

/* As documented: what an address does not have is zero, and no error. */
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **values, CUdeviceptr pointer)
{
    if (attributes == NULL || values == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned int at = 0; at < count; at++) {
        if (values[at] == NULL || !of_unknown_memory(attributes[at], values[at]))
            return CUDA_ERROR_INVALID_VALUE;
        CUresult result = cuPointerGetAttribute(values[at], attributes[at], pointer);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE)
            return result;
    }
    return CUDA_SUCCESS;
}
