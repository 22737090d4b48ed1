/* Copies and fills: checked ranges, computed at once, finished when the timeline says so. */
#include <string.h>

#include "device/device.h"
#include "device/timeline.h"

enum transfer { TO_DEVICE, TO_HOST, WITHIN, FILL8, FILL16, FILL32 };

struct transfer_call {
    enum transfer kind;
    uint64_t to, from; /* host pointers or device addresses, by kind */
    uint32_t value;
    size_t bytes;
    CUstream stream;
    bool wait; /* the call returns when the work has ended */
};

static bool ranges_are_good(struct CUctx_st *context, const struct transfer_call *call)
{
    struct arena_range range;
    bool to_good = call->kind == TO_HOST ? call->to != 0 : memory_find(context, call->to, call->bytes, true, &range);
    if (!to_good || call->kind >= FILL8)
        return to_good;
    return call->kind == TO_DEVICE ? call->from != 0 : memory_find(context, call->from, call->bytes, false, &range);
}

static void compute(const struct transfer_call *call)
{
    void *to = (void *)(uintptr_t)call->to;
    switch (call->kind) {
    case FILL8:
        memset(to, (int)call->value, call->bytes);
        break;
    case FILL16:
        for (size_t i = 0; i < call->bytes / 2; i++)
            ((uint16_t *)to)[i] = (uint16_t)call->value;
        break;
    case FILL32:
        for (size_t i = 0; i < call->bytes / 4; i++)
            ((uint32_t *)to)[i] = call->value;
        break;
    default:
        memmove(to, (const void *)(uintptr_t)call->from, call->bytes);
    }
}

static CUresult transfer(const struct transfer_call *call)
{
    struct CUctx_st *context;
    struct CUstream_st *stream;
    CUresult result = context_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    result = stream_find(context, call->stream, &stream);
    if (result == CUDA_SUCCESS && call->bytes && !ranges_are_good(context, call))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS || !call->bytes) {
        context_leave(context);
        return result;
    }
    bool crosses = call->kind == TO_DEVICE || call->kind == TO_HOST;
    struct timeline_work work = crosses ? timeline_begin_copy(call->bytes) : timeline_begin_other();
    compute(call);
    uint64_t end_ns = timeline_end(work);
    stream_finish(stream, end_ns);
    if (call->wait)
        context_leave_and_wait(context, end_ns, false);
    else
        context_leave(context);
    return CUDA_SUCCESS;
}

static CUresult copy(enum transfer kind, uint64_t to, uint64_t from, size_t bytes, CUstream stream, bool wait)
{
    return transfer(
        &(struct transfer_call){.kind = kind, .to = to, .from = from, .bytes = bytes, .stream = stream, .wait = wait});
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    return copy(TO_DEVICE, to, (uintptr_t)from, bytes, NULL, true);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    return copy(TO_HOST, (uintptr_t)to, from, bytes, NULL, true);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy(WITHIN, to, from, bytes, NULL, false); /* asynchronous with respect to the host, as CUDA's */
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    return copy(TO_DEVICE, to, (uintptr_t)from, bytes, stream, false);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy(TO_HOST, (uintptr_t)to, from, bytes, stream, false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy(WITHIN, to, from, bytes, stream, false);
}

/* --- copies that find out for themselves where each address lies --- */

static CUresult copy_between(uint64_t to, uint64_t from, size_t bytes, CUstream stream, bool wait)
{
    struct CUctx_st *context;
    struct arena_range range;
    CUresult result = context_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    bool to_device = memory_find(context, to, 1, false, &range);
    bool from_device = memory_find(context, from, 1, false, &range);
    context_leave(context);
    if (!to_device && !from_device)
        return CUDA_ERROR_INVALID_VALUE;
    enum transfer kind = !to_device ? TO_HOST : from_device ? WITHIN : TO_DEVICE;
    return copy(kind, to, from, bytes, stream, wait && kind != WITHIN);
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy_between(to, from, bytes, NULL, true);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_between(to, from, bytes, stream, false);
}

static CUresult fill(enum transfer kind, uint64_t to, uint32_t value, size_t count, CUstream stream)
{
    size_t width = kind == FILL32 ? 4 : kind == FILL16 ? 2 : 1;
    if (to % width || count > SIZE_MAX / width)
        return CUDA_ERROR_INVALID_VALUE;
    return transfer(
        &(struct transfer_call){.kind = kind, .to = to, .value = value, .bytes = count * width, .stream = stream});
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count)
{
    return fill(FILL8, to, value, count, NULL);
}

CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count)
{
    return fill(FILL16, to, value, count, NULL);
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t count)
{
    return fill(FILL32, to, value, count, NULL);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{
    return fill(FILL8, to, value, count, stream);
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream)
{
    return fill(FILL16, to, value, count, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream)
{
    return fill(FILL32, to, value, count, stream);
}
