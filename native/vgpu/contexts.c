/* Contexts: created and ended in the proxy; the primary one is this process's own. */
#include "driver/runtime.h"
#include "vgpu/current.h"
#include "vgpu/vgpu.h"

static uint64_t primary;
static unsigned int primary_uses, primary_flags, primary_ends;

void vgpu_primary_reset(void)
{
    primary = 0;
    primary_uses = 0;
    primary_ends++;
}

uint64_t vgpu_context_behind(CUcontext handle)
{
    return (uint64_t)(uintptr_t)handle == PRIMARY_HANDLE && primary != 0 ? primary : (uint64_t)(uintptr_t)handle;
}

CUcontext vgpu_context_handle(uint64_t id)
{
    return (CUcontext)(uintptr_t)(id != 0 && id == primary ? PRIMARY_HANDLE : id);
}

unsigned long long vgpu_primary_id(void)
{
    return PRIMARY_HANDLE + primary_ends;
}

uint64_t vgpu_context_with_id(unsigned long long id)
{
    if (id == vgpu_primary_id())
        return primary;
    return vgpu_context_lives(id) ? id : 0;
}

static CUresult create(uint32_t call, unsigned int flags, uint64_t *id)
{
    struct context *free_one = vgpu_context(0);
    if (free_one == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct cuCtxCreate_v2_in in = {.flags = flags};
    struct cuCtxCreate_v2_out out = {0};
    struct question question = {.call = call, .in = &in, .in_bytes = sizeof in, .out = &out, .out_bytes = sizeof out};
    struct cuDevicePrimaryCtxRetain_in of_primary = {0};
    if (call == CALL_cuDevicePrimaryCtxRetain) {
        question.in = &of_primary;
        question.in_bytes = sizeof of_primary;
    }
    CUresult result = vgpu_ask_inside(&question);
    if (result == CUDA_SUCCESS) {
        *free_one = (struct context){out.created, flags};
        *id = out.created;
    }
    return result;
}
_Static_assert(sizeof(struct cuCtxCreate_v2_out) == sizeof(struct cuDevicePrimaryCtxRetain_out), "one answer for both");

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    if (context == NULL || (flags & ~(unsigned int)CU_CTX_FLAGS_MASK) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t id = 0;
    result = device != 0 ? CUDA_ERROR_INVALID_DEVICE : create(CALL_cuCtxCreate_v2, flags, &id);
    if (result == CUDA_SUCCESS)
        result = vgpu_push((CUcontext)(uintptr_t)id);
    vgpu_leave();
    *context = (CUcontext)(uintptr_t)id;
    return result;
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *params, int count, unsigned int flags, CUdevice device)
{
    return params != NULL || count != 0 ? CUDA_ERROR_NOT_SUPPORTED : cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice device)
{
    if (params != NULL && (params->numExecAffinityParams != 0 || params->cigParams != NULL))
        return CUDA_ERROR_NOT_SUPPORTED;
    return cuCtxCreate_v2(context, flags, device);
}

/* Tells the proxy and forgets the context, whatever the answer: an error here is one of earlier posted calls. */
static CUresult end_inside(uint32_t call, uint64_t id)
{
    struct cuCtxDestroy_v2_in in = {.ended = id};
    struct cuDevicePrimaryCtxRelease_v2_in of_primary = {0};
    struct question question = {.call = call, .in = &in, .in_bytes = sizeof in};
    if (call != CALL_cuCtxDestroy_v2) {
        question.in = &of_primary;
        question.in_bytes = sizeof of_primary;
    }
    CUresult result = vgpu_ask_inside(&question);
    vgpu_forget_context(id);
    return result;
}
_Static_assert(sizeof(struct cuDevicePrimaryCtxRelease_v2_in) == sizeof(struct cuDevicePrimaryCtxReset_v2_in),
               "one question");

CUresult cuCtxDestroy_v2(CUcontext context)
{
    uint64_t id = (uint64_t)(uintptr_t)context;
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    bool ends = vgpu_context_lives(id); /* the primary context has another handle */
    vgpu_leave();
    storage_end(ends ? context : NULL);
    result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!vgpu_context_lives(id))
        result = CUDA_ERROR_INVALID_CONTEXT;
    else
        result = end_inside(CALL_cuCtxDestroy_v2, id);
    vgpu_leave();
    if (vgpu_current() == id)
        vgpu_pop();
    return result;
}

static CUresult use_primary(CUcontext *context, CUdevice device, bool retain)
{
    if (context == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (device != 0)
        result = CUDA_ERROR_INVALID_DEVICE;
    else if (primary == 0 && retain)
        result = create(CALL_cuDevicePrimaryCtxRetain, primary_flags, &primary);
    if (result == CUDA_SUCCESS) {
        primary_uses += retain;
        *context = (CUcontext)(uintptr_t)PRIMARY_HANDLE;
    }
    vgpu_leave();
    return result;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    return use_primary(context, device, true);
}

CUresult primary_handle(CUcontext *context, CUdevice device)
{
    return use_primary(context, device, false);
}

/* What is kept with the context ends while it still lives, without the lock: destructors call the driver. */
static CUresult end_storage(bool reset)
{
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    bool ends = primary_uses == 1 || (reset && primary != 0);
    vgpu_leave();
    storage_end(ends ? (CUcontext)(uintptr_t)PRIMARY_HANDLE : NULL);
    return CUDA_SUCCESS;
}

static CUresult give_back_primary(CUdevice device, uint32_t call)
{
    bool reset = call == CALL_cuDevicePrimaryCtxReset_v2;
    CUresult result = device == 0 ? end_storage(reset) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (device != 0) {
        result = CUDA_ERROR_INVALID_DEVICE;
    } else if (primary == 0) {
        result = reset ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    } else if (reset || --primary_uses == 0) {
        result = end_inside(call, primary);
        vgpu_primary_reset();
    }
    vgpu_leave();
    return result;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return give_back_primary(device, CALL_cuDevicePrimaryCtxRelease_v2);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    return give_back_primary(device, CALL_cuDevicePrimaryCtxReset_v2);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
    if ((flags & ~(unsigned int)CU_CTX_FLAGS_MASK) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    struct context *context = primary != 0 ? vgpu_context(primary) : NULL;
    if (device == 0)
        primary_flags = flags;
    if (device == 0 && context != NULL)
        context->flags = flags;
    vgpu_leave();
    return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    if (flags == NULL || active == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    *flags = primary_flags;
    *active = primary_uses != 0;
    vgpu_leave();
    return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
