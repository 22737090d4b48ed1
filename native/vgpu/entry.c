/* How a program finds its way in: cuInit, devices, error texts. */
#include <stdlib.h>
#include <string.h>

#include "calls/procs.h"
#include "vgpu/vgpu.h"

CUresult cuInit(unsigned int flags)
{
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : vgpu_initialise();
}

/* One device, whatever the proxy's machine has: device 0 of the backend. */
CUresult cuDeviceGetCount(int *count)
{
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    vgpu_leave();
    *count = 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    vgpu_leave();
    if (ordinal != 0)
        return CUDA_ERROR_INVALID_DEVICE;
    *device = 0;
    return CUDA_SUCCESS;
}

/* That of the proxy's driver once it was asked for; a look-up alone does not connect. */
int procs_driver_version(void)
{
    struct cuDriverGetVersion_out out = {0};
    struct question question = {.call = CALL_cuDriverGetVersion, .out = &out, .out_bytes = sizeof out};
    return vgpu_cached(&question) ? (int)out.version : 0;
}

static CUresult words(CUresult error, const char **text, bool name)
{
    if (text == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *text = NULL;
    switch ((int)error) {
#define WORDS(result, number, sentence) \
    case number: \
        *text = name ? #result : sentence; \
        break;
        CUDA_RESULTS(WORDS)
#undef WORDS
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **text)
{
    return words(error, text, true);
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    return words(error, text, false);
}
