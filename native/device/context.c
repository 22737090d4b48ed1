/* Contexts: creation in the three ABIs of cuCtxCreate, the stack of each thread, destruction. */
#include <stdlib.h>
#include <unistd.h>

#include "device/device.h"
#include "device/meter.h"
#include "device/shared.h"
#include "device/timeline.h"
#include "driver/runtime.h"

enum { STACK_DEPTH = 64 };
enum { CONTEXT_BYTES = 4096 }; /* what it is metered with: itself, its scratch's head and its place in tables */

static _Thread_local struct CUctx_st *stack[STACK_DEPTH];
static _Thread_local int depth;

static struct CUctx_st *current(void)
{
    return depth ? stack[depth - 1] : NULL;
}

static enum timeline_wait wait_of(unsigned int flags)
{
    static long cores;
    switch (flags & CU_CTX_SCHED_MASK) {
    case CU_CTX_SCHED_BLOCKING_SYNC:
        return WAIT_SLEEP;
    case CU_CTX_SCHED_SPIN:
        return WAIT_SPIN;
    case CU_CTX_SCHED_YIELD:
        return WAIT_YIELD;
    default: /* as CUDA documents it: yield once there are more contexts than processors */
        if (!cores)
            cores = sysconf(_SC_NPROCESSORS_ONLN);
        return (long)shared_contexts() > cores ? WAIT_YIELD : WAIT_SPIN;
    }
}

static void context_wait(const struct CUctx_st *context, uint64_t until_ns, bool sleep)
{
    timeline_wait(until_ns, sleep ? WAIT_SLEEP : wait_of(context->flags));
}

static uint64_t new_id(void)
{
    static uint64_t given;
    return __atomic_add_fetch(&given, 1, __ATOMIC_RELAXED);
}

CUresult context_create(struct CUctx_st **made, unsigned int flags)
{
    if (flags & ~(unsigned int)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    if (!meter_take(CONTEXT_BYTES))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct CUctx_st *context = calloc(1, sizeof *context);
    if (context)
        context->scratch = ptx_scratch_open();
    if (!context || !context->scratch || !handle_add(context, HANDLE_CONTEXT)) {
        ptx_scratch_close(context ? context->scratch : NULL);
        free(context);
        meter_give_back(CONTEXT_BYTES);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_init(&context->work, NULL);
    context->id = new_id();
    context->flags = flags;
    context->api_version = 3020; /* what drivers answer for contexts of all three ABIs */
    context->default_stream.context = context;
    owned_init(&context->streams);
    owned_init(&context->events);
    owned_init(&context->modules);
    owned_init(&context->host_memory);
    shared_count_context(true);
    *made = context;
    return CUDA_SUCCESS;
}

static void context_free(struct CUctx_st *context)
{
    ptx_scratch_close(context->scratch);
    pthread_mutex_destroy(&context->work);
    free(context);
    meter_give_back(CONTEXT_BYTES);
}

static void context_release(struct CUctx_st *context)
{
    if (handle_release_context(context))
        context_free(context);
}

/* Frees what it owns; from then on nothing can be done in it. */
static void empty(struct CUctx_st *context)
{
    context->failure = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    module_drop_all(context);
    stream_drop_all(context);
    host_memory_drop_all(context);
    arena_free_all(device_arena(), &context->memory);
    shared_count_context(false);
}

/* Waits for its work, takes the context out of the world and frees what it owns. The caller has held it. */
void context_end(struct CUctx_st *context)
{
    context_wait(context, context->end_ns, false);
    handle_remove(context);
    pthread_mutex_lock(&context->work);
    context->dead = true;
    empty(context);
    pthread_mutex_unlock(&context->work);
    context_release(context);
}

void context_sleep(struct CUctx_st *context)
{
    context_wait(context, context->end_ns, false);
    pthread_mutex_lock(&context->work);
    empty(context);
    __atomic_store_n(&context->id, new_id(), __ATOMIC_RELAXED);
    pthread_mutex_unlock(&context->work);
}

void context_wake(struct CUctx_st *context, unsigned int flags)
{
    pthread_mutex_lock(&context->work);
    context->failure = CUDA_SUCCESS;
    context->flags = flags;
    shared_count_context(true);
    pthread_mutex_unlock(&context->work);
}

CUresult context_enter_for(struct CUctx_st *wanted, struct CUctx_st **context)
{
    struct CUctx_st *held = handle_hold_context(wanted);
    if (!held)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    pthread_mutex_lock(&held->work);
    if (held->failure != CUDA_SUCCESS) {
        CUresult failure = held->failure;
        context_leave(held);
        return failure;
    }
    *context = held;
    return CUDA_SUCCESS;
}

CUresult context_enter(struct CUctx_st **context)
{
    CUresult result = device_initialised();
    if (result != CUDA_SUCCESS)
        return result;
    if (!current())
        return CUDA_ERROR_INVALID_CONTEXT;
    return context_enter_for(current(), context);
}

void context_leave(struct CUctx_st *context)
{
    pthread_mutex_unlock(&context->work);
    context_release(context);
}

void context_leave_and_wait(struct CUctx_st *context, uint64_t until_ns, bool sleep)
{
    ptx_output_drain(context->scratch);
    pthread_mutex_unlock(&context->work);
    context_wait(context, until_ns, sleep);
    context_release(context);
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    return cuCtxCreate_v4(context, NULL, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *params, int count, unsigned int flags, CUdevice device)
{
    if (count < 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (params && count > 0)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return cuCtxCreate_v4(context, NULL, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice device)
{
    CUresult result = device_ready(device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!context || depth >= STACK_DEPTH)
        return CUDA_ERROR_INVALID_VALUE;
    if (params && params->numExecAffinityParams > 0)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    if (params && params->cigParams)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct CUctx_st *made;
    result = context_create(&made, flags);
    if (result == CUDA_SUCCESS)
        *context = stack[depth++] = made;
    return result;
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    struct CUctx_st *held = handle_hold_context(context);
    if (!held)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (held->primary) {
        context_release(held);
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    storage_end(held);
    if (current() == held)
        depth--;
    context_end(held);
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    CUresult result = device_initialised();
    if (result != CUDA_SUCCESS)
        return result;
    if (!handle_is(context, HANDLE_CONTEXT))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (depth >= STACK_DEPTH)
        return CUDA_ERROR_INVALID_VALUE;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (context)
        *context = stack[depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    CUresult result = device_initialised();
    if (result != CUDA_SUCCESS)
        return result;
    if (!context) { /* documented: the top of the stack is popped */
        depth -= depth > 0;
        return CUDA_SUCCESS;
    }
    if (!handle_is(context, HANDLE_CONTEXT))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!depth)
        depth = 1;
    stack[depth - 1] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    CUresult result = device_initialised();
    if (result != CUDA_SUCCESS)
        return result;
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    *context = current();
    return CUDA_SUCCESS;
}

/* The _v2 ABIs of CUDA 13 take a context, or NULL for the current one. */
static CUresult enter_given(CUcontext given, struct CUctx_st **context)
{
    if (!given)
        return context_enter(context);
    CUresult result = context_enter_for(given, context);
    return result == CUDA_ERROR_CONTEXT_IS_DESTROYED ? CUDA_ERROR_INVALID_CONTEXT : result;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext given)
{
    struct CUctx_st *context;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_given(given, &context);
    if (result != CUDA_SUCCESS)
        return result;
    *device = 0;
    context_leave(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    return cuCtxGetDevice_v2(device, NULL);
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
    struct CUctx_st *context;
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = context_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    *flags = context->flags;
    context_leave(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags)
{
    struct CUctx_st *context;
    if (flags & ~(unsigned int)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = context_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    context->flags = flags;
    context_leave(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned int *version)
{
    struct CUctx_st *held = handle_hold_context(context ? context : current());
    if (!held)
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = version ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (version)
        *version = held->api_version;
    context_release(held);
    return result;
}

CUresult cuCtxGetId(CUcontext context, unsigned long long *id)
{
    struct CUctx_st *held = handle_hold_context(context ? context : current());
    if (!held)
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = id ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (id)
        *id = __atomic_load_n(&held->id, __ATOMIC_RELAXED);
    context_release(held);
    return result;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    struct CUctx_st *context;
    CUresult result = context_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (least)
        *least = 0;
    if (greatest)
        *greatest = DEVICE_STREAM_PRIORITY_GREATEST;
    context_leave(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize_v2(CUcontext given)
{
    struct CUctx_st *context;
    CUresult result = enter_given(given, &context);
    if (result != CUDA_SUCCESS)
        return result;
    context_leave_and_wait(context, context->end_ns, false);
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
    return cuCtxSynchronize_v2(NULL);
}
