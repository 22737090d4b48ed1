/* Work in a stream that is being captured: each call becomes a node instead; and the fronts that need more than one question. */
#include <stdlib.h>

#include "driver/capture.h"
#include "driver/graph.h"

/* --- copies and fills --- */

static CUresult add_copy(enum step_kind kind, uint64_t to, uint64_t from, size_t bytes, CUstream stream)
{
    const struct graph_step step = {.kind = kind, .copy = {.to = to, .from = from, .bytes = bytes}};
    CUresult result = graph_check(&step);
    return result == CUDA_SUCCESS ? capture_add(stream, &step, NULL) : result;
}

CUresult captured_cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    return from != NULL || bytes == 0 ? add_copy(STEP_COPY_IN, to, (uintptr_t)from, bytes, stream)
                                      : CUDA_ERROR_INVALID_VALUE;
}

CUresult captured_cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return to != NULL || bytes == 0 ? add_copy(STEP_COPY_OUT, (uintptr_t)to, from, bytes, stream)
                                    : CUDA_ERROR_INVALID_VALUE;
}

CUresult captured_cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return add_copy(STEP_COPY, to, from, bytes, stream);
}

/* By where each address lies, as cuMemcpyAsync itself. */
CUresult captured_cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    CUdeviceptr base;
    bool to_device = cuMemGetAddressRange_v2(&base, NULL, to) == CUDA_SUCCESS;
    bool from_device = cuMemGetAddressRange_v2(&base, NULL, from) == CUDA_SUCCESS;
    if (!to_device && !from_device)
        return CUDA_ERROR_INVALID_VALUE;
    return add_copy(!to_device ? STEP_COPY_OUT : from_device ? STEP_COPY : STEP_COPY_IN, to, from, bytes, stream);
}

static CUresult add_fill(CUdeviceptr to, unsigned int value, unsigned int width, size_t count, CUstream stream)
{
    const CUDA_MEMSET_NODE_PARAMS fill = {.dst = to, .value = value, .elementSize = width, .width = count, .height = 1};
    struct graph_step step;
    CUresult result = step_of_fill(&fill, &step);
    if (result == CUDA_SUCCESS)
        result = graph_check(&step);
    return result == CUDA_SUCCESS ? capture_add(stream, &step, NULL) : result;
}

CUresult captured_cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{
    return add_fill(to, value, 1, count, stream);
}

CUresult captured_cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream)
{
    return add_fill(to, value, 2, count, stream);
}

CUresult captured_cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream)
{
    return add_fill(to, value, 4, count, stream);
}

/* --- memory: a graph cannot allocate it --- */

CUresult captured_cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    (void)pointer;
    (void)bytes;
    return capture_break(stream, CUDA_ERROR_NOT_SUPPORTED);
}

CUresult captured_cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    (void)pool;
    return captured_cuMemAllocAsync(pointer, bytes, stream);
}

CUresult captured_cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    (void)pointer;
    return capture_break(stream, CUDA_ERROR_NOT_SUPPORTED);
}

/* --- graphs: launched in a capture, its steps become nodes one behind the other --- */

CUresult captured_cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    return graph_exec_each(exec, capture_add, stream);
}

/* --- functions of the program --- */

/* These do not wait for one another here: the thread that runs them keeps their order. */
static bool calls_in(CUstream *stream, CUresult *result)
{
    *result = stream_resolve(stream);
    return *result == CUDA_SUCCESS && capture_has(*stream);
}

CUresult front_cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
    CUresult result;
    if (!calls_in(&stream, &result))
        return result == CUDA_SUCCESS ? cuLaunchHostFunc(stream, function, data) : result;
    const struct graph_step step = {
        .kind = STEP_HOST, .host = {.function = (uint64_t)(uintptr_t)function, .data = (uint64_t)(uintptr_t)data}};
    return function != NULL ? capture_add(stream, &step, NULL) : CUDA_ERROR_INVALID_VALUE;
}

CUresult front_cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *data, unsigned int flags)
{
    CUresult result;
    if (calls_in(&stream, &result))
        return capture_break(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return result == CUDA_SUCCESS ? cuStreamAddCallback(stream, callback, data, flags) : result;
}

/* --- waiting, and what ends --- */

CUresult front_cuStreamQuery(CUstream stream)
{
    CUresult result = stream_resolve(&stream);
    if (result == CUDA_SUCCESS && !capture_has(stream) && host_waits(stream))
        return CUDA_ERROR_NOT_READY;
    if (result == CUDA_SUCCESS)
        result = front_refused(&stream);
    return result == CUDA_SUCCESS ? cuStreamQuery(stream) : result;
}

static CUresult synchronise(CUcontext context)
{
    CUresult result = capture_conflicts(context);
    return result == CUDA_SUCCESS ? host_wait_all(context) : result;
}

CUresult front_cuCtxSynchronize(void)
{
    CUcontext current = NULL;
    CUresult result = cuCtxGetCurrent(&current);
    if (result == CUDA_SUCCESS && current != NULL)
        result = synchronise(current);
    return result == CUDA_SUCCESS ? cuCtxSynchronize() : result;
}

CUresult front_cuCtxSynchronize_v2(CUcontext context)
{
    if (context == NULL)
        return front_cuCtxSynchronize();
    CUresult result = synchronise(context);
    return result == CUDA_SUCCESS ? cuCtxSynchronize_v2(context) : result;
}

CUresult front_cuCtxDestroy_v2(CUcontext context)
{
    CUresult result = host_wait_all(context);
    if (result == CUDA_ERROR_NOT_PERMITTED)
        return result;
    capture_forget_context(context);
    return cuCtxDestroy_v2(context);
}

/* The primary context ends with its last use; a capture in it is void from the first release on. */
static void forget_primary(CUdevice device)
{
    CUcontext context = NULL;
    if (cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS)
        return;
    host_wait_all(context);
    capture_forget_context(context);
    cuDevicePrimaryCtxRelease_v2(device);
}

CUresult front_cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    unsigned int flags;
    int active = 0;
    if (cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active)
        forget_primary(device);
    return cuDevicePrimaryCtxReset_v2(device);
}
