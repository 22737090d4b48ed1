/* The living contexts of this process, and each thread's stack of current ones: all of it known without asking. */
#include "vgpu/current.h"

#include <string.h>

#include "vgpu/vgpu.h"

enum { CONTEXTS_MOST = 64, STACK_MOST = 64 };

static struct context contexts[CONTEXTS_MOST];
static unsigned int epoch; /* rises with every fork: stacks of an older one are the parent's */

struct stack {
    unsigned int epoch;
    unsigned int depth;
    CUcontext contexts[STACK_MOST];
};
static __thread struct stack thread_stack;

static struct stack *stack(void)
{
    if (thread_stack.epoch != epoch)
        thread_stack = (struct stack){.epoch = epoch};
    return &thread_stack;
}

struct context *vgpu_context(uint64_t id)
{
    for (size_t at = 0; at < CONTEXTS_MOST; at++)
        if (contexts[at].id == id)
            return &contexts[at];
    return NULL;
}

static CUcontext top(void)
{
    struct stack *own = stack();
    return own->depth == 0 ? NULL : own->contexts[own->depth - 1];
}

uint64_t vgpu_current(void)
{
    return vgpu_context_behind(top());
}

bool vgpu_context_lives(uint64_t context)
{
    return context != 0 && vgpu_context(context) != NULL;
}

void vgpu_contexts_reset(void)
{
    memset(contexts, 0, sizeof contexts);
    vgpu_primary_reset();
    epoch++;
}

void vgpu_forget_context(uint64_t id)
{
    struct context *context = vgpu_context(id);
    if (context != NULL)
        context->id = 0;
    vgpu_forget_host(id);
    ranges_drop(&vgpu_memory, id, 0);
    vgpu_forget_functions(id, 0);
}

CUresult vgpu_push(CUcontext context)
{
    struct stack *own = stack();
    if (own->depth == STACK_MOST)
        return CUDA_ERROR_INVALID_VALUE;
    own->contexts[own->depth++] = context;
    return CUDA_SUCCESS;
}

void vgpu_pop(void)
{
    stack()->depth--;
}

/* A handle that may become current: of a living context, or of the primary one, active or not. */
static bool is_context(CUcontext handle)
{
    return (uint64_t)(uintptr_t)handle == PRIMARY_HANDLE || vgpu_context_lives((uint64_t)(uintptr_t)handle);
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    result = is_context(context) ? vgpu_push(context) : CUDA_ERROR_INVALID_CONTEXT;
    vgpu_leave();
    return result;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    vgpu_leave();
    if (stack()->depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context != NULL)
        *context = top();
    vgpu_pop();
    return CUDA_SUCCESS;
}

/* Replaces the top of the stack; NULL takes it away. */
CUresult cuCtxSetCurrent(CUcontext context)
{
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    struct stack *own = stack();
    if (context != NULL && !is_context(context)) {
        result = CUDA_ERROR_INVALID_CONTEXT;
    } else {
        if (own->depth > 0)
            own->depth--;
        if (context != NULL)
            result = vgpu_push(context);
    }
    vgpu_leave();
    return result;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    if (context == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    vgpu_leave();
    *context = top();
    return CUDA_SUCCESS;
}

/* Copies the current context's entry out. */
static CUresult current_context(struct context *found)
{
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t id = vgpu_current();
    struct context *context = id != 0 ? vgpu_context(id) : NULL;
    if (context != NULL)
        *found = *context;
    vgpu_leave();
    return context != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    struct context context;
    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = current_context(&context);
    if (result == CUDA_SUCCESS)
        *device = 0;
    return result;
}

/* With a context instead of the current one; NULL means the current one. */
static CUresult with(CUcontext context, CUresult (*call)(void))
{
    if (context == NULL)
        return call();
    CUresult result = cuCtxPushCurrent_v2(context);
    if (result != CUDA_SUCCESS)
        return result;
    result = call();
    vgpu_pop();
    return result;
}

CUresult cuCtxSynchronize_v2(CUcontext context)
{
    return with(context, cuCtxSynchronize);
}

static CUresult any_device(void)
{
    CUdevice device;
    return cuCtxGetDevice(&device);
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context)
{
    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = with(context, any_device);
    if (result == CUDA_SUCCESS)
        *device = 0;
    return result;
}

CUresult cuCtxGetId(CUcontext context, unsigned long long *id)
{
    if (id == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    *id =
        (uint64_t)(uintptr_t)(context != NULL ? context : top()); /* a handle is never used again, but the primary's */
    if (*id == PRIMARY_HANDLE)
        *id = vgpu_primary_id();
    else if (!vgpu_context_lives(*id))
        result = CUDA_ERROR_INVALID_CONTEXT;
    vgpu_leave();
    return result;
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
    struct context context;
    if (flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = current_context(&context);
    if (result == CUDA_SUCCESS)
        *flags = context.flags;
    return result;
}

CUresult cuCtxSetFlags(unsigned int flags)
{
    if ((flags & ~(unsigned int)CU_CTX_FLAGS_MASK) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t id = vgpu_current();
    struct context *context = id != 0 ? vgpu_context(id) : NULL;
    if (context != NULL)
        context->flags = flags;
    vgpu_leave();
    return context != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
