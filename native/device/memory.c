/* Device memory for programs: allocation, pinned host memory, copies and fills; every device range is checked. */
#include <stdlib.h>
#include <sys/mman.h>

#include "device/device.h"
#include "driver/host.h"
#include "driver/pools.h"

CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    struct CUctx_st *context;
    if (!available || !total)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = context_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    *available = arena_available(device_arena());
    *total = device_arena()->bytes;
    context_leave(context);
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    struct CUctx_st *context;
    if (!pointer || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = context_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t address = arena_allocate(device_arena(), &context->memory, bytes);
    if (address)
        *pointer = address;
    else
        result = CUDA_ERROR_OUT_OF_MEMORY;
    context_leave(context);
    return result;
}

static bool is_variable(const struct CUctx_st *context, CUdeviceptr pointer)
{
    for (const struct owned *at = context->modules.next; at != &context->modules; at = at->next) {
        const struct CUmod_st *module = (const struct CUmod_st *)at;
        if (module_owns_address(module, pointer))
            return true;
    }
    return false;
}

CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    struct CUctx_st *context;
    pools_forget(pointer);
    CUresult result = context_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (pointer == 0) { /* as free(NULL): nothing to do */
        context_leave(context);
        return CUDA_SUCCESS;
    }
    if (is_variable(context, pointer) || !arena_free(device_arena(), &context->memory, pointer)) {
        context_leave(context);
        return CUDA_ERROR_INVALID_VALUE;
    }
    context_leave_and_wait(context, context->end_ns, false); /* CUDA's free waits for the work before it, too */
    return CUDA_SUCCESS;
}

static struct host_memory *mapped_at(struct CUctx_st *context, uint64_t address)
{
    for (struct owned *at = context->host_memory.next; at != &context->host_memory; at = at->next) {
        struct host_memory *memory = (struct host_memory *)at;
        if (memory->is_mapped && address - (uintptr_t)memory->pointer < memory->bytes)
            return memory;
    }
    return NULL;
}

bool memory_find(struct CUctx_st *context, uint64_t address, size_t bytes, bool write, struct arena_range *range)
{
    if (arena_find(device_arena(), &context->memory, address, bytes, write, range))
        return true;
    const struct host_memory *memory = mapped_at(context, address);
    if (!memory || bytes > memory->bytes - (size_t)(address - (uintptr_t)memory->pointer))
        return false;
    range->from = (uintptr_t)memory->pointer;
    range->to = range->from + memory->bytes;
    return true;
}

static CUresult find_range(struct CUctx_st *context, CUdeviceptr pointer, struct arena_range *range)
{
    bool found = memory_find(context, pointer, 0, false, range) && pointer < range->to;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)
{
    struct CUctx_st *context;
    struct arena_range range;
    CUresult result = context_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    result = find_range(context, pointer, &range);
    if (result == CUDA_SUCCESS) {
        if (base)
            *base = range.from;
        if (bytes)
            *bytes = range.to - range.from;
    } else {
        result = CUDA_ERROR_NOT_FOUND;
    }
    context_leave(context);
    return result;
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr pointer)
{
    struct CUctx_st *context;
    struct arena_range range;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = context_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    result = find_range(context, pointer, &range);
    if (result == CUDA_SUCCESS) {
        switch ((int)attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
            *(CUcontext *)value = context;
            break;
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            *(unsigned int *)value = mapped_at(context, pointer) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
            break;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
            *(CUdeviceptr *)value = pointer;
            break;
        case CU_POINTER_ATTRIBUTE_HOST_POINTER: /* of mapped memory: the same address */
            if (mapped_at(context, pointer))
                *(CUdeviceptr *)value = pointer;
            else
                result = CUDA_ERROR_INVALID_VALUE;
            break;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            *(int *)value = 0;
            break;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            *(CUdeviceptr *)value = range.from;
            break;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            *(size_t *)value = range.to - range.from;
            break;
        default:
            result = CUDA_ERROR_INVALID_VALUE;
        }
    }
    context_leave(context);
    return result;
}

static void drop_host_memory(struct host_memory *memory)
{
    owned_remove(&memory->link);
    if (!memory->is_registered) {
        handle_remove(memory->pointer);
        munmap(memory->pointer, memory->bytes);
    }
    free(memory);
}

void host_memory_drop_all(struct CUctx_st *context)
{
    while (context->host_memory.next != &context->host_memory)
        drop_host_memory((struct host_memory *)context->host_memory.next);
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    struct CUctx_st *context;
    enum { DEVICEMAP = 2 }; /* PORTABLE (1) and WRITECOMBINED (4) change nothing here */
    if (!pointer || bytes == 0 || (flags & ~7u))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = context_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    struct host_memory *memory = calloc(1, sizeof *memory);
    void *mapped = MAP_FAILED;
    if (memory)
        mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped != MAP_FAILED && handle_add(mapped, HANDLE_HOST_MEMORY)) {
        *memory =
            (struct host_memory){.context = context, .pointer = mapped, .bytes = bytes, .is_mapped = flags & DEVICEMAP};
        owned_add(&context->host_memory, &memory->link);
        *pointer = mapped;
    } else {
        if (mapped != MAP_FAILED)
            munmap(mapped, bytes);
        free(memory);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    context_leave(context);
    return result;
}

CUresult cuMemAllocHost_v2(void **pointer, size_t bytes)
{
    return cuMemHostAlloc(pointer, bytes, 0);
}

CUresult cuMemFreeHost(void *pointer)
{
    struct CUctx_st *context;
    CUresult result = context_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    result = CUDA_ERROR_INVALID_VALUE;
    if (handle_is(pointer, HANDLE_HOST_MEMORY))
        for (struct owned *at = context->host_memory.next; at != &context->host_memory; at = at->next) {
            struct host_memory *memory = (struct host_memory *)at;
            if (memory->pointer != pointer || memory->is_registered)
                continue;
            drop_host_memory(memory);
            result = CUDA_SUCCESS;
            break;
        }
    context_leave(context);
    return result;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *pointer, unsigned int flags)
{
    struct CUctx_st *context;
    if (!device || !pointer || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = context_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (mapped_at(context, (uintptr_t)pointer))
        *device = (uintptr_t)pointer;
    else
        result = CUDA_ERROR_INVALID_VALUE;
    context_leave(context);
    return result;
}

CUresult host_map(void *pointer, size_t bytes)
{
    struct CUctx_st *context;
    CUresult result = context_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    struct host_memory *memory = calloc(1, sizeof *memory);
    if (memory) {
        *memory = (struct host_memory){
            .context = context, .pointer = pointer, .bytes = bytes, .is_mapped = true, .is_registered = true};
        owned_add(&context->host_memory, &memory->link);
    } else {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    context_leave(context);
    return result;
}

void host_unmap(void *pointer)
{
    struct CUctx_st *context;
    if (context_enter(&context) != CUDA_SUCCESS)
        return;
    struct host_memory *memory = mapped_at(context, (uintptr_t)pointer);
    if (memory && memory->is_registered && memory->pointer == pointer)
        drop_host_memory(memory);
    context_leave(context);
}
