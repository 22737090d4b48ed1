/* Memory and copies. Tenants see the backend's real addresses, because kernels get them inside opaque parameters that
 * cannot be translated; so every address in a call is checked against the tenant's own table, and inside kernels the
 * tenant's own context is the wall. */
#include <string.h>

#include "proxy/serve.h"

CUresult serve_cuMemAlloc_v2(struct request *request);
CUresult serve_cuMemFree_v2(struct request *request);
CUresult serve_cuMemcpyHtoD_v2(struct request *request);
CUresult serve_cuMemcpyHtoDAsync_v2(struct request *request);
CUresult serve_cuMemcpyDtoH_v2(struct request *request);
CUresult serve_cuMemcpyDtoHAsync_v2(struct request *request);

enum { INLINE_MOST = 7168, PIECE = 256 << 10 };

CUresult serve_cuMemAlloc_v2(struct request *request)
{
    const struct cuMemAlloc_v2_in *in = request->in;
    struct cuMemAlloc_v2_out *out = request->out;
    struct tenant *tenant = request->tenant;
    if (in->bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t charged = tenant_allocation_bytes(in->bytes);
    if (!ranges_room(&tenant->memory) || !tenant_charge(tenant, charged))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUdeviceptr pointer = 0;
    /* A kernel of a GPU reaches what lies between an allocation's end and the next piece: that is cleared as well. */
    size_t taken = tenant->clears_memory ? charged : in->bytes;
    CUresult result = tenant->backend->calls.cuMemAlloc_v2(&pointer, taken);
    if (result == CUDA_SUCCESS && tenant->clears_memory) {
        result = tenant_clear(tenant, pointer, taken);
        if (result != CUDA_SUCCESS)
            tenant->backend->calls.cuMemFree_v2(pointer);
    }
    if (result != CUDA_SUCCESS) {
        tenant_discharge(tenant, charged);
        return result;
    }
    ranges_add(&tenant->memory, (struct range){.base = pointer, .bytes = in->bytes, .context = tenant->current});
    out->pointer = pointer;
    return CUDA_SUCCESS;
}

CUresult serve_cuMemFree_v2(struct request *request)
{
    const struct cuMemFree_v2_in *in = request->in;
    struct tenant *tenant = request->tenant;
    struct range *range = ranges_allocation(&tenant->memory, in->pointer);
    if (range == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = tenant_use(tenant, range->context); /* memory may be freed while another context is current */
    if (result == CUDA_SUCCESS)
        result = tenant->backend->calls.cuMemFree_v2(range->base);
    if (result == CUDA_SUCCESS) {
        tenant_discharge(tenant, tenant_allocation_bytes(range->bytes));
        ranges_remove(&tenant->memory, range);
    }
    return result;
}

/* Bulk bytes go to the device straight from the path, piece by piece, while the tenant fills the next piece. The backend
 * has taken a piece when its call returns (CUDA says so of memory that is not page-locked), so the path may be used again
 * at once; only the last piece is waited for, and only if the tenant waits. */
static CUresult bulk_to_device(struct request *request, CUdeviceptr to, bool wait, CUstream stream)
{
    const struct backend_calls *calls = &request->tenant->backend->calls;
    struct wire *wire = request->tenant->wire;
    CUresult result = CUDA_SUCCESS;
    while (request->bulk_left > 0 && result == CUDA_SUCCESS) {
        const void *at;
        size_t granted, wanted = request->bulk_left < PIECE ? (size_t)request->bulk_left : PIECE;
        if (wire->ops->bulk_peek(wire, wanted, &at, &granted) != WIRE_OK) {
            request->broken = true;
            return CUDA_ERROR_UNKNOWN;
        }
        result = calls->cuMemcpyHtoDAsync_v2(to, at, granted, stream);
        to += granted;
        request->bulk_left -= granted;
        if (wire->ops->bulk_release(wire, granted) != WIRE_OK)
            request->broken = true;
    }
    return result == CUDA_SUCCESS && wait ? calls->cuStreamSynchronize(stream) : result;
}

static CUresult to_device(struct request *request, uint64_t to, uint64_t bytes, CUstream stream)
{
    const struct backend_calls *calls = &request->tenant->backend->calls;
    if (bytes == 0 || !tenant_owns(request->tenant, to, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (request->variable_bytes != (request->bulk_left == 0 ? bytes : 0) ||
        (request->bulk_left != 0 && request->bulk_left != bytes))
        return CUDA_ERROR_INVALID_VALUE;
    atomic_fetch_add_explicit(&request->tenant->record->bytes_in, bytes, memory_order_relaxed);
    if (request->bulk_left != 0)
        return bulk_to_device(request, to, (request->header->flags & WIRE_POSTED) == 0, stream);
    return calls->cuMemcpyHtoDAsync_v2(to, request->variable, bytes, stream);
}

CUresult serve_cuMemcpyHtoD_v2(struct request *request)
{
    const struct cuMemcpyHtoD_v2_in *in = request->in;
    return to_device(request, in->to, in->bytes, NULL);
}

CUresult serve_cuMemcpyHtoDAsync_v2(struct request *request)
{
    const struct cuMemcpyHtoDAsync_v2_in *in = request->in;
    void *stream;
    if (!tenant_find(request->tenant, HANDLE_STREAM, in->stream, &stream))
        return CUDA_ERROR_INVALID_HANDLE;
    return to_device(request, in->to, in->bytes, stream);
}

/* Answers "it begins", fills the path, and leaves the second answer to the caller. Once begun, all bytes must come: after
 * an error the rest are zeros. A piece is there when the backend's call returns (again: memory that is not page-locked). */
static CUresult bulk_from_device(struct request *request, CUdeviceptr from, uint64_t bytes, CUstream stream)
{
    const struct backend_calls *calls = &request->tenant->backend->calls;
    struct wire *wire = request->tenant->wire;
    CUresult result = CUDA_SUCCESS;
    if (!request_answer(request, CUDA_SUCCESS, bytes)) {
        request->broken = true;
        return CUDA_ERROR_UNKNOWN;
    }
    for (uint64_t left = bytes; left > 0;) {
        void *at;
        size_t granted;
        if (wire->ops->bulk_reserve(wire, left < PIECE ? (size_t)left : PIECE, &at, &granted) != WIRE_OK) {
            request->broken = true;
            return CUDA_ERROR_UNKNOWN;
        }
        if (result == CUDA_SUCCESS)
            result = calls->cuMemcpyDtoHAsync_v2(at, from + (bytes - left), granted, stream);
        if (result != CUDA_SUCCESS)
            memset(at, 0, granted);
        if (wire->ops->bulk_commit(wire, granted) != WIRE_OK) {
            request->broken = true;
            return CUDA_ERROR_UNKNOWN;
        }
        left -= granted;
    }
    return result == CUDA_SUCCESS ? calls->cuStreamSynchronize(stream) : result;
}

static CUresult from_device(struct request *request, uint64_t from, uint64_t bytes, CUstream stream)
{
    const struct backend_calls *calls = &request->tenant->backend->calls;
    if (bytes == 0 || !tenant_owns(request->tenant, from, bytes) || (request->header->flags & WIRE_POSTED))
        return CUDA_ERROR_INVALID_VALUE;
    atomic_fetch_add_explicit(&request->tenant->record->bytes_out, bytes, memory_order_relaxed);
    if (bytes > INLINE_MOST)
        return bulk_from_device(request, from, bytes, stream);
    CUresult result = calls->cuMemcpyDtoHAsync_v2(request->out_variable, from, bytes, stream);
    if (result == CUDA_SUCCESS)
        result = calls->cuStreamSynchronize(stream);
    request->out_variable_bytes = result == CUDA_SUCCESS ? bytes : 0;
    return result;
}

CUresult serve_cuMemcpyDtoH_v2(struct request *request)
{
    const struct cuMemcpyDtoH_v2_in *in = request->in;
    return from_device(request, in->from, in->bytes, NULL);
}

CUresult serve_cuMemcpyDtoHAsync_v2(struct request *request)
{
    const struct cuMemcpyDtoHAsync_v2_in *in = request->in;
    void *stream;
    if (!tenant_find(request->tenant, HANDLE_STREAM, in->stream, &stream))
        return CUDA_ERROR_INVALID_HANDLE;
    return from_device(request, in->from, in->bytes, stream);
}
