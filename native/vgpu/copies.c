/* Copies between this process and the device: small ones inside the message, large ones as bulk in pieces. */
#include <string.h>

#include "vgpu/vgpu.h"

/* A copy to the device is posted up to this size: CUDA too returns from it when the host's bytes have been taken, before
 * they are on the device. A larger one is answered, so that its time is that of the device. */
enum { POSTED_MOST = 64 << 10, INLINE_MOST = 7168 };

static CUresult to_device(struct question *question, uint64_t to, const void *from, size_t bytes, bool posted)
{
    if (bytes == 0)
        return CUDA_SUCCESS;
    if (from == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    question->flags = QUESTION_CONTEXT | (posted ? QUESTION_POSTED : 0);
    if (bytes <= INLINE_MOST) {
        question->variable = from;
        question->variable_bytes = bytes;
    } else {
        question->bulk_bytes = bytes;
    }
    if (ranges_cover(&vgpu_memory, to, bytes) == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = vgpu_send(question);
    if (result == CUDA_SUCCESS && question->bulk_bytes != 0)
        result = vgpu_bulk_out(from, bytes);
    if (result == CUDA_SUCCESS && !posted)
        result = vgpu_receive(question);
    vgpu_leave();
    return result;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    struct cuMemcpyHtoD_v2_in in = {.to = to, .bytes = bytes};
    struct question question = {.call = CALL_cuMemcpyHtoD_v2, .in = &in, .in_bytes = sizeof in};
    return to_device(&question, to, from, bytes, bytes <= POSTED_MOST);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    struct cuMemcpyHtoDAsync_v2_in in = {.to = to, .bytes = bytes, .stream = (uint64_t)(uintptr_t)stream};
    struct question question = {.call = CALL_cuMemcpyHtoDAsync_v2, .in = &in, .in_bytes = sizeof in};
    return to_device(&question, to, from, bytes, true);
}

/* A large copy has two answers: whether it begins, then its bulk bytes, then how it ended. */
static CUresult from_device(struct question *question, void *to, uint64_t from, size_t bytes)
{
    if (bytes == 0)
        return CUDA_SUCCESS;
    if (to == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    question->flags = QUESTION_CONTEXT;
    if (bytes <= INLINE_MOST) {
        question->out_variable = to;
        question->out_capacity = bytes;
    }
    result = ranges_cover(&vgpu_memory, from, bytes) != NULL ? vgpu_ask_inside(question) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && bytes > INLINE_MOST) {
        result = question->answer_bulk == bytes ? vgpu_bulk_in(to, bytes) : CUDA_ERROR_UNKNOWN;
        if (result == CUDA_SUCCESS)
            result = vgpu_receive(question);
    }
    vgpu_leave();
    return result;
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    struct cuMemcpyDtoH_v2_in in = {.from = from, .bytes = bytes};
    struct question question = {.call = CALL_cuMemcpyDtoH_v2, .in = &in, .in_bytes = sizeof in};
    return from_device(&question, to, from, bytes);
}

/* Done on return, as CUDA does it for memory that is not page-locked: there is no page-locked memory here. */
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    struct cuMemcpyDtoHAsync_v2_in in = {.from = from, .bytes = bytes, .stream = (uint64_t)(uintptr_t)stream};
    struct question question = {.call = CALL_cuMemcpyDtoHAsync_v2, .in = &in, .in_bytes = sizeof in};
    return from_device(&question, to, from, bytes);
}

/* --- copies that find out for themselves where each address lies --- */

static bool on_device(CUdeviceptr pointer)
{
    return vgpu_owns(pointer, 1);
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    if (on_device(to))
        return on_device(from) ? cuMemcpyDtoD_v2(to, from, bytes)
                               : cuMemcpyHtoD_v2(to, (const void *)(uintptr_t)from, bytes);
    if (on_device(from))
        return cuMemcpyDtoH_v2((void *)(uintptr_t)to, from, bytes);
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    if (on_device(to))
        return on_device(from) ? cuMemcpyDtoDAsync_v2(to, from, bytes, stream)
                               : cuMemcpyHtoDAsync_v2(to, (const void *)(uintptr_t)from, bytes, stream);
    if (on_device(from))
        return cuMemcpyDtoHAsync_v2((void *)(uintptr_t)to, from, bytes, stream);
    return CUDA_ERROR_INVALID_VALUE;
}
