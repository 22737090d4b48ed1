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
    uint64_t ids[STACK_MOST];
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

uint64_t vgpu_current(void)
{
    struct stack *own = stack();
    return own->depth == 0 ? 0 : own->ids[own->depth - 1];
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
    ranges_drop(&vgpu_memory, id, 0);
    vgpu_forget_functions(id, 0);
}

CUresult vgpu_push(uint64_t id)
{
    struct stack *own = stack();
    if (own->depth == STACK_MOST)
        return CUDA_ERROR_INVALID_VALUE;
    own->ids[own->depth++] = id;
    return CUDA_SUCCESS;
}

void vgpu_pop(void)
{
    stack()->depth--;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t id = (uint64_t)(uintptr_t)context;
    result = vgpu_context_lives(id) ? vgpu_push(id) : CUDA_ERROR_INVALID_CONTEXT;
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
        *context = (CUcontext)(uintptr_t)vgpu_current();
    vgpu_pop();
    return CUDA_SUCCESS;
}

/* Replaces the top of the stack; NULL takes it away. */
CUresult cuCtxSetCurrent(CUcontext context)
{
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t id = (uint64_t)(uintptr_t)context;
    struct stack *own = stack();
    if (id != 0 && !vgpu_context_lives(id)) {
        result = CUDA_ERROR_INVALID_CONTEXT;
    } else {
        if (own->depth > 0)
            own->depth--;
        if (id != 0)
            result = vgpu_push(id);
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
    *context = (CUcontext)(uintptr_t)vgpu_current();
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
    *id = context != NULL ? (uint64_t)(uintptr_t)context : vgpu_current(); /* a handle is never used again */
    if (!vgpu_context_lives(*id))
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
