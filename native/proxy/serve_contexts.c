/* Contexts and the sizes that a tenant is shown: its quota is its device. */
#include <stdlib.h>
#include <string.h>

#include "calls/device_attributes.h"
#include "proxy/serve.h"

CUresult serve_cuCtxCreate_v2(struct request *request);
CUresult serve_cuCtxDestroy_v2(struct request *request);
CUresult serve_cuDevicePrimaryCtxRetain(struct request *request);
CUresult serve_cuDevicePrimaryCtxRelease_v2(struct request *request);
CUresult serve_cuDevicePrimaryCtxReset_v2(struct request *request);
CUresult serve_cuDeviceTotalMem_v2(struct request *request);
CUresult serve_cuDeviceGetAttribute(struct request *request);
CUresult serve_cuMemGetInfo_v2(struct request *request);
CUresult serve_gputaxMemory(struct request *request);
CUresult serve_gputaxUtilisation(struct request *request);

/* How to wait is decided by the proxy, so the tenant's own flags are not passed on. */
static CUresult create(struct tenant *tenant, uint64_t *id)
{
    const struct backend_calls *calls = &tenant->backend->calls;
    unsigned int *flags = malloc(sizeof *flags);
    if (flags == NULL || !tenant_room(tenant, HANDLE_CONTEXT)) {
        free(flags);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *flags = tenant_context_flags(tenant);
    CUcontext real = NULL;
    CUresult result = calls->cuCtxCreate_v2 != NULL
                          ? calls->cuCtxCreate_v2(&real, *flags, tenant->backend->device)
                          : calls->cuCtxCreate_v4(&real, NULL, *flags, tenant->backend->device);
    if (result != CUDA_SUCCESS) {
        free(flags);
        return result;
    }
    *id = tenant_add(tenant, HANDLE_CONTEXT, real);
    handles_find(&tenant->handles, HANDLE_CONTEXT, *id)->extra = flags;
    /* The backend pushed it on this thread's stack; set it instead, so that the stack does not grow. */
    tenant->current = 0;
    return tenant_use(tenant, *id);
}

CUresult serve_cuCtxCreate_v2(struct request *request)
{
    const struct cuCtxCreate_v2_in *in = request->in;
    struct cuCtxCreate_v2_out *out = request->out;
    return in->device != 0 ? CUDA_ERROR_INVALID_DEVICE : create(request->tenant, &out->created);
}

CUresult serve_cuCtxDestroy_v2(struct request *request)
{
    const struct cuCtxDestroy_v2_in *in = request->in;
    return tenant_end_context(request->tenant, in->ended);
}

/* The backend's primary context would be one for all tenants, so each gets an ordinary one instead. */
CUresult serve_cuDevicePrimaryCtxRetain(struct request *request)
{
    const struct cuDevicePrimaryCtxRetain_in *in = request->in;
    struct cuDevicePrimaryCtxRetain_out *out = request->out;
    struct tenant *tenant = request->tenant;
    if (in->device != 0)
        return CUDA_ERROR_INVALID_DEVICE;
    CUresult result = tenant->primary == 0 ? create(tenant, &tenant->primary) : CUDA_SUCCESS;
    out->primary = tenant->primary;
    return result;
}

static CUresult end_primary(struct tenant *tenant, int32_t device)
{
    if (device != 0)
        return CUDA_ERROR_INVALID_DEVICE;
    return tenant->primary != 0 ? tenant_end_context(tenant, tenant->primary) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult serve_cuDevicePrimaryCtxRelease_v2(struct request *request)
{
    const struct cuDevicePrimaryCtxRelease_v2_in *in = request->in;
    return end_primary(request->tenant, in->device);
}

CUresult serve_cuDevicePrimaryCtxReset_v2(struct request *request)
{
    const struct cuDevicePrimaryCtxReset_v2_in *in = request->in;
    return end_primary(request->tenant, in->device);
}

CUresult serve_cuDeviceTotalMem_v2(struct request *request)
{
    const struct cuDeviceTotalMem_v2_in *in = request->in;
    struct cuDeviceTotalMem_v2_out *out = request->out;
    out->bytes = request->tenant->settings.limits.memory_bytes;
    return in->device != 0 ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

/* What the backend's device can do and a tenant's calls cannot: a program that believed it would be refused later. */
static bool out_of_reach(int32_t attribute)
{
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
    case CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
        return true;
    default:
        return false;
    }
}

CUresult serve_cuDeviceGetAttribute(struct request *request)
{
    const struct cuDeviceGetAttribute_in *in = request->in;
    const struct backend *backend = request->tenant->backend;
    struct device_attribute attributes[DEVICE_ATTRIBUTES];
    if (backend->calls.cuDeviceGetAttribute == NULL)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (in->capacity != sizeof attributes)
        return CUDA_ERROR_INVALID_VALUE;
    for (int32_t number = 0; number < DEVICE_ATTRIBUTES; number++) {
        int value = 0;
        CUresult result = backend->calls.cuDeviceGetAttribute(&value, (CUdevice_attribute)number, backend->device);
        bool hidden = number == CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY ? !serve_maps_host(request->tenant)
                                                                        : out_of_reach(number);
        attributes[number] = (struct device_attribute){hidden ? 0 : value, (int32_t)result};
    }
    memcpy(request->out_variable, attributes, sizeof attributes);
    request->out_variable_bytes = sizeof attributes;
    return CUDA_SUCCESS;
}

CUresult serve_cuMemGetInfo_v2(struct request *request)
{
    struct cuMemGetInfo_v2_out *out = request->out;
    size_t available = 0, total = 0;
    CUresult result = request->tenant->backend->calls.cuMemGetInfo_v2(&available, &total);
    uint64_t left = tenant_largest(request->tenant);
    out->total = request->tenant->settings.limits.memory_bytes;
    out->available = available < left ? available : left;
    return result;
}

CUresult serve_gputaxMemory(struct request *request)
{
    struct gputaxMemory_out *out = request->out;
    out->used = request->tenant->record->memory_bytes;
    out->total = request->tenant->settings.limits.memory_bytes;
    return CUDA_SUCCESS;
}

/* A driver does not say how long it worked for one of its processes; what it says of the GPU is of all tenants. */
CUresult serve_gputaxUtilisation(struct request *request)
{
    struct gputaxUtilisation_out *out = request->out;
    gputax_busy *busy = request->tenant->backend->busy;
    return busy != NULL ? busy(&out->kernels_ns, &out->copies_ns) : CUDA_ERROR_NOT_SUPPORTED;
}
