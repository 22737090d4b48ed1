/* Host memory: ordinary, or shared with the proxy so that kernels reach it. */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver/host.h"
#include "vgpu/connection.h"
#include "vgpu/vgpu.h"

struct mapped {
    struct mapped *next;
    uint8_t *at;
    size_t bytes;
    uint64_t device; /* its address for kernels */
    uint64_t context;
};

static struct mapped *mapped; /* inside vgpu_enter and vgpu_leave */

/* The entry whose host or device addresses have this byte, and how far inside it lies. */
static const struct mapped *find(uint64_t pointer, uint64_t *offset)
{
    for (const struct mapped *one = mapped; one != NULL; one = one->next) {
        uint64_t in_host = pointer - (uintptr_t)one->at, on_device = pointer - one->device;
        *offset = in_host < one->bytes ? in_host : on_device;
        if (*offset < one->bytes)
            return one;
    }
    return NULL;
}

bool vgpu_host_address(uint64_t pointer, struct host_address *found)
{
    uint64_t offset;
    const struct mapped *one = find(pointer, &offset);
    if (one != NULL)
        *found = (struct host_address){one->at + offset, one->device + offset, one->device, one->bytes, one->context};
    return one != NULL;
}

static CUresult free_in_proxy(uint64_t device)
{
    struct cuMemFreeHost_in in = {.pointer = device};
    struct question question = {
        .call = CALL_cuMemFreeHost, .flags = QUESTION_CONTEXT, .in = &in, .in_bytes = sizeof in};
    return vgpu_ask_inside(&question);
}

/* Maps what the proxy has sent beside its answer. A forked child is another tenant and does not get it. */
static CUresult map(struct mapped *made)
{
    struct connection *connection = vgpu_connection();
    struct stat facts;
    int descriptor = -1;
    if (connection->wire->ops->take == NULL || connection->wire->ops->take(connection->wire, &descriptor) != WIRE_OK)
        return CUDA_ERROR_OPERATING_SYSTEM;
    void *at = MAP_FAILED;
    if (fstat(descriptor, &facts) == 0 && facts.st_size >= 0 && (uint64_t)facts.st_size >= made->bytes)
        at = mmap(NULL, made->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (at == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    madvise(at, made->bytes, MADV_DONTFORK);
    made->at = at;
    return CUDA_SUCCESS;
}

static CUresult allocate_mapped(void **pointer, size_t bytes)
{
    struct cuMemHostAlloc_in in = {.bytes = bytes};
    struct cuMemHostAlloc_out out = {0};
    struct question question = {.call = CALL_cuMemHostAlloc,
                                .flags = QUESTION_CONTEXT,
                                .in = &in,
                                .in_bytes = sizeof in,
                                .out = &out,
                                .out_bytes = sizeof out};
    struct mapped *made = calloc(1, sizeof *made);
    CUresult result = made != NULL && ranges_room(&vgpu_memory) ? vgpu_ask_inside(&question) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        *made = (struct mapped){.next = mapped, .bytes = bytes, .device = out.pointer, .context = in.context};
        result = map(made);
        if (result != CUDA_SUCCESS)
            free_in_proxy(out.pointer);
    }
    if (result != CUDA_SUCCESS) {
        free(made);
        return result;
    }
    mapped = made;
    ranges_add(&vgpu_memory, (struct range){made->device, bytes, made->context, RANGE_HOST});
    *pointer = made->at;
    return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    enum { PORTABLE = 1, DEVICEMAP = 2, WRITECOMBINED = 4, PAGE = 4096 };
    if (pointer == NULL || bytes == 0 || (flags & ~(unsigned int)(PORTABLE | DEVICEMAP | WRITECOMBINED)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (vgpu_current() == 0)
        result = CUDA_ERROR_INVALID_CONTEXT;
    else if ((flags & DEVICEMAP) != 0)
        result = allocate_mapped(pointer, bytes);
    vgpu_leave();
    if (result != CUDA_SUCCESS || (flags & DEVICEMAP) != 0)
        return result;
    return posix_memalign(pointer, PAGE, bytes) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAllocHost_v2(void **pointer, size_t bytes)
{
    return cuMemHostAlloc(pointer, bytes, 0);
}

static void forget(struct mapped **at)
{
    struct mapped *one = *at;
    struct range *range = ranges_cover(&vgpu_memory, one->device, one->bytes);
    if (range != NULL)
        ranges_remove(&vgpu_memory, range);
    *at = one->next;
    munmap(one->at, one->bytes);
    free(one);
}

CUresult cuMemFreeHost(void *pointer)
{
    CUresult result = vgpu_enter();
    if (result == CUDA_SUCCESS) {
        struct mapped **at = &mapped;
        while (*at != NULL && (*at)->at != pointer)
            at = &(*at)->next;
        bool found = *at != NULL;
        if (found) {
            result = free_in_proxy((*at)->device);
            forget(at);
        }
        vgpu_leave();
        if (found)
            return result;
    }
    free(pointer);
    return CUDA_SUCCESS;
}

void vgpu_forget_host(uint64_t context)
{
    for (struct mapped **at = &mapped; *at != NULL;)
        if ((*at)->context == context)
            forget(at);
        else
            at = &(*at)->next;
}

void vgpu_host_reset(void)
{
    mapped = NULL; /* the mappings did not come along */
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *pointer, unsigned int flags)
{
    struct host_address found;
    if (device == NULL || pointer == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = vgpu_enter();
    if (result != CUDA_SUCCESS)
        return result;
    bool known = vgpu_host_address((uintptr_t)pointer, &found);
    vgpu_leave();
    if (known)
        *device = found.device;
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The program's own pages cannot be shared afterwards. */
CUresult host_map(void *pointer, size_t bytes)
{
    (void)pointer;
    (void)bytes;
    return CUDA_ERROR_NOT_SUPPORTED;
}

void host_unmap(void *pointer)
{
    (void)pointer;
}
