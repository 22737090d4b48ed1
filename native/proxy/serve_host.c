/* Host memory that a tenant and its kernels share: made here, so that nobody can resize it, and registered in the backend.
 *
 * The tenant may write to it at any moment, also while a kernel reads it. It is data: nothing of it is an address, a size or
 * a handle of the proxy, and the copies and kernels that touch it are checked by their addresses, as all others are. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proxy/serve.h"

CUresult serve_cuMemHostAlloc(struct request *request);
CUresult serve_cuMemFreeHost(struct request *request);

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

enum { BLOCKS_MOST = 256, DEVICEMAP = 2, PAGE = 4096 };
/* A tenant that shrank it would end the proxy by SIGBUS. */
enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

struct mapped {
    struct mapped *next;
    void *at;
    uint64_t bytes;
    uint64_t device; /* its address for kernels */
    uint64_t context;
};

bool serve_maps_host(const struct tenant *tenant)
{
    const struct backend_calls *calls = &tenant->backend->calls;
    return tenant->wire->ops->give != NULL && calls->cuMemHostRegister_v2 != NULL &&
           calls->cuMemHostUnregister != NULL && calls->cuMemHostGetDevicePointer_v2 != NULL;
}

/* A sealed memfd of this size, mapped at *at; -1: there is none. */
static int make_memory(uint64_t bytes, void **at)
{
    int descriptor = memfd_create("gputax-host", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (descriptor < 0 && errno == EINVAL) /* Linux before 6.3 */
        descriptor = memfd_create("gputax-host", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (descriptor < 0)
        return -1;
    *at = MAP_FAILED;
    if (ftruncate(descriptor, (off_t)bytes) == 0 && fcntl(descriptor, F_ADD_SEALS, SEALS) == 0)
        *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor, 0);
    if (*at != MAP_FAILED)
        return descriptor;
    close(descriptor);
    return -1;
}

/* Registers the memory and hands its descriptor over. */
static CUresult share(struct tenant *tenant, struct mapped *made, int descriptor)
{
    const struct backend_calls *calls = &tenant->backend->calls;
    CUdeviceptr device = 0;
    CUresult result = calls->cuMemHostRegister_v2(made->at, made->bytes, DEVICEMAP);
    if (result != CUDA_SUCCESS)
        return result;
    result = calls->cuMemHostGetDevicePointer_v2(&device, made->at, 0);
    made->device = device;
    if (result == CUDA_SUCCESS && tenant->wire->ops->give(tenant->wire, descriptor) != WIRE_OK)
        result = CUDA_ERROR_OPERATING_SYSTEM;
    if (result != CUDA_SUCCESS)
        calls->cuMemHostUnregister(made->at);
    return result;
}

CUresult serve_cuMemHostAlloc(struct request *request)
{
    const struct cuMemHostAlloc_in *in = request->in;
    struct cuMemHostAlloc_out *out = request->out;
    struct tenant *tenant = request->tenant;
    uint64_t bytes = (in->bytes + PAGE - 1) & ~(uint64_t)(PAGE - 1);
    if (!serve_maps_host(tenant))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (in->bytes == 0 || bytes < in->bytes || (request->header->flags & WIRE_POSTED))
        return CUDA_ERROR_INVALID_VALUE;
    if (tenant->mapped_count == BLOCKS_MOST || !ranges_room(&tenant->memory) || !tenant_charge(tenant, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct mapped *made = calloc(1, sizeof *made);
    int descriptor = made != NULL ? make_memory(bytes, &made->at) : -1;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (descriptor >= 0) {
        made->bytes = bytes;
        made->context = tenant->current;
        result = share(tenant, made, descriptor);
        close(descriptor);
        if (result != CUDA_SUCCESS)
            munmap(made->at, bytes);
    }
    if (result != CUDA_SUCCESS) {
        free(made);
        tenant_discharge(tenant, bytes);
        return result;
    }
    made->next = tenant->mapped;
    tenant->mapped = made;
    tenant->mapped_count++;
    ranges_add(&tenant->memory, (struct range){made->device, bytes, made->context, RANGE_HOST});
    out->pointer = made->device;
    return CUDA_SUCCESS;
}

/* Ends it; its context is current. */
static void end_one(struct tenant *tenant, struct mapped **at)
{
    struct mapped *one = *at;
    struct range *range = ranges_cover(&tenant->memory, one->device, one->bytes);
    tenant->backend->calls.cuCtxSynchronize(); /* work that still uses it */
    tenant->backend->calls.cuMemHostUnregister(one->at);
    /* The tenant may keep the descriptor. The pages go all the same; what it touches from now on is its own control group's. */
    madvise(one->at, one->bytes, MADV_REMOVE);
    munmap(one->at, one->bytes);
    tenant_discharge(tenant, one->bytes);
    if (range != NULL)
        ranges_remove(&tenant->memory, range);
    *at = one->next;
    tenant->mapped_count--;
    free(one);
}

CUresult serve_cuMemFreeHost(struct request *request)
{
    const struct cuMemFreeHost_in *in = request->in;
    struct tenant *tenant = request->tenant;
    struct mapped **at = &tenant->mapped;
    while (*at != NULL && (*at)->device != in->pointer)
        at = &(*at)->next;
    if (*at == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = tenant_use(tenant, (*at)->context); /* also while another context is current */
    if (result == CUDA_SUCCESS)
        end_one(tenant, at);
    return result;
}

void serve_end_host(struct tenant *tenant, uint64_t context)
{
    for (struct mapped **at = &tenant->mapped; *at != NULL;)
        if ((*at)->context == context)
            end_one(tenant, at);
        else
            at = &(*at)->next;
}
