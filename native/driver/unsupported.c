/* Calls that programs look up before they know whether they need them: said plainly, never a false success. */
#include "cuda_calls.h"

#define NOT_SUPPORTED(name) \
    CUresult name(void) \
    { \
        return CUDA_ERROR_NOT_SUPPORTED; \
    }

NOT_SUPPORTED(cuMemAllocManaged)
NOT_SUPPORTED(cuMemPrefetchAsync)
NOT_SUPPORTED(cuMemAdvise)
NOT_SUPPORTED(cuGraphAddEventRecordNode)
NOT_SUPPORTED(cuImportExternalMemory)
NOT_SUPPORTED(cuExternalMemoryGetMappedBuffer)
NOT_SUPPORTED(cuExternalMemoryGetMappedMipmappedArray)
NOT_SUPPORTED(cuMipmappedArrayGetLevel)
NOT_SUPPORTED(cuImportExternalSemaphore)
NOT_SUPPORTED(cuSignalExternalSemaphoresAsync)
NOT_SUPPORTED(cuWaitExternalSemaphoresAsync)
NOT_SUPPORTED(cuSurfObjectCreate)

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    (void)limit;
    (void)value;
    return CUDA_ERROR_UNSUPPORTED_LIMIT;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
    (void)limit;
    return value != NULL ? CUDA_ERROR_UNSUPPORTED_LIMIT : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuEventDestroy(CUevent event)
{
    return cuEventDestroy_v2(event);
}
