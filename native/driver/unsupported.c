/* Small calls that need nothing of the device: limits that cannot be set, older names. */
#include "cuda_calls.h"

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    (void)limit;
    (void)value;
    return CUDA_ERROR_UNSUPPORTED_LIMIT;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
    enum { CIG_ENABLED = 8, CIG_SHARED_MEMORY_FALLBACK = 9 }; /* a context shared with graphics: cuBLAS asks for it */
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (limit != CIG_ENABLED && limit != CIG_SHARED_MEMORY_FALLBACK)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = 0;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
    return cuEventDestroy_v2(event);
}
