/* The primary context: one per device, counted by its users. Its handle stays the same for as long as the process runs. */
#include "device/device.h"
#include "driver/runtime.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUctx_st *primary;
static unsigned int users, flags_wanted;

static CUresult use(CUcontext *context, CUdevice device, bool retain)
{
    CUresult result = device_ready(device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    if (!primary) {
        result = context_create(&primary, flags_wanted);
        if (result == CUDA_SUCCESS) {
            primary->primary = true;
            context_sleep(primary);
        }
    }
    if (result == CUDA_SUCCESS) {
        if (retain && users++ == 0)
            context_wake(primary, flags_wanted);
        *context = primary;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    return use(context, device, true);
}

CUresult primary_handle(CUcontext *context, CUdevice device)
{
    return use(context, device, false);
}

static void end_primary(void)
{
    users = 0;
    context_sleep(primary);
}

/* What is kept with the context ends while it still lives, without the lock: destructors call the driver. */
static void end_storage(bool reset)
{
    pthread_mutex_lock(&lock);
    struct CUctx_st *ending = users == 1 || (reset && users != 0) ? primary : NULL;
    pthread_mutex_unlock(&lock);
    storage_end(ending);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    CUresult result = device_ready(device);
    if (result != CUDA_SUCCESS)
        return result;
    end_storage(false);
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
    end_storage(true);
    pthread_mutex_lock(&lock);
    if (users)
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
    *active = users != 0;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}
