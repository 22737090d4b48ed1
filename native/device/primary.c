/* The primary context: one per device, counted by its users. */
#include "device/device.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUctx_st *primary;
static unsigned int users, flags_wanted;

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    CUresult result = device_ready(device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    if (!primary)
        result = context_create(&primary, flags_wanted);
    if (result == CUDA_SUCCESS) {
        primary->primary = true;
        users++;
        *context = primary;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static void end_primary(void)
{
    struct CUctx_st *held = handle_hold_context(primary);
    primary = NULL;
    users = 0;
    if (held)
        context_end(held);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    CUresult result = device_ready(device);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    if (!users)
        result = CUDA_ERROR_INVALID_CONTEXT;
    else if (--users == 0)
        end_primary();
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    CUresult result = device_ready(device);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    if (primary)
        end_primary();
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
    CUresult result = device_ready(device);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags & ~(unsigned int)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    flags_wanted = flags;
    if (primary)
        primary->flags = flags;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    CUresult result = device_ready(device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    *flags = flags_wanted;
    *active = primary != NULL;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}
