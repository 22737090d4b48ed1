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
    (void)limit;
    return value != NULL ? CUDA_ERROR_UNSUPPORTED_LIMIT : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuEventDestroy(CUevent event)
{
    return cuEventDestroy_v2(event);
}
