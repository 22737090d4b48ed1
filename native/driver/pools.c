/* Memory in the order of a stream, and pools: each allocation is an ordinary one, and a pool keeps nothing back.
 *
 * Work of a stream is computed, or posted to the proxy, in the order of the calls; so memory that is freed by a call is no
 * longer used by work before it, and CUDA's own cuMemFree behind the proxy waits for that work.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "cuda_calls.h"
#include "driver/fork.h"
#include "driver/pools.h"

enum { POOLS_MOST = 64, REUSES = 3, BUCKETS = 1024 };

struct pool {
    bool alive;
    uint32_t use; /* part of the handle: one that has ended is refused */
    uint64_t release_threshold;
    uint64_t used_bytes, used_high, bytes_most; /* bytes_most 0: no limit */
    int reuse[REUSES];
};

/* Memory of a pool that has not been freed. A pool keeps nothing back, so what it has reserved is what is used. */
struct allocation {
    struct allocation *next;
    CUdeviceptr pointer;
    size_t bytes;
    CUcontext context; /* takes it along when it ends */
    CUmemoryPool pool;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pool pools[POOLS_MOST] = {{.alive = true, .use = 1, .reuse = {1, 1, 1}}}; /* the first: the default one */
static uint32_t current;
static struct allocation *allocations[BUCKETS];
static uint64_t allocations_count; /* read without the lock: every cuMemFree asks */

void pools_lock(void)
{
    pthread_mutex_lock(&lock);
}

void pools_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void pools_reset(void)
{
    pthread_mutex_init(&lock, NULL);
    for (uint32_t at = 0; at < POOLS_MOST; at++)
        pools[at] = (struct pool){.alive = at == 0, .use = pools[at].use, .reuse = {1, 1, 1}};
    for (uint32_t at = 0; at < BUCKETS; at++)
        while (allocations[at] != NULL) {
            struct allocation *one = allocations[at];
            allocations[at] = one->next;
            free(one);
        }
    allocations_count = 0;
    current = 0;
}

static CUmemoryPool handle_of(uint32_t index)
{
    return (CUmemoryPool)(uintptr_t)((uint64_t)pools[index].use << 32 | (index + 1));
}

static struct pool *find(CUmemoryPool handle)
{
    uint64_t index = ((uint64_t)(uintptr_t)handle & 0xffffffff) - 1;
    return index < POOLS_MOST && pools[index].alive && handle_of((uint32_t)index) == handle ? &pools[index] : NULL;
}

/* Whether there is a device of this number. */
static CUresult ready(CUdevice device)
{
    CUdevice found;
    return cuDeviceGet(&found, device);
}

static struct allocation **bucket_of(CUdeviceptr pointer)
{
    return &allocations[(pointer >> 8) * UINT64_C(0x9e3779b97f4a7c15) >> 54];
}

/* Takes it off its pool's account. */
static void forget(struct allocation **at)
{
    struct allocation *one = *at;
    struct pool *pool = find(one->pool);
    if (pool != NULL)
        pool->used_bytes -= one->bytes;
    *at = one->next;
    free(one);
    __atomic_sub_fetch(&allocations_count, 1, __ATOMIC_RELAXED);
}

void pools_forget(CUdeviceptr pointer)
{
    if (__atomic_load_n(&allocations_count, __ATOMIC_RELAXED) == 0)
        return;
    pools_lock();
    struct allocation **at = bucket_of(pointer);
    while (*at != NULL && (*at)->pointer != pointer)
        at = &(*at)->next;
    if (*at != NULL)
        forget(at);
    pools_unlock();
}

/* What contexts that have ended took along. */
static void forget_ended(void)
{
    unsigned long long id;
    for (uint32_t bucket = 0; bucket < BUCKETS; bucket++)
        for (struct allocation **at = &allocations[bucket]; *at != NULL;)
            if (cuCtxGetId((*at)->context, &id) != CUDA_SUCCESS)
                forget(at);
            else
                at = &(*at)->next;
}

/* Counts the bytes before they are there, so that a limit holds for threads that allocate at once. */
static CUresult account(CUmemoryPool handle, struct allocation *made)
{
    pools_lock();
    struct pool *pool = find(handle);
    CUresult result = pool != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (pool != NULL && pool->bytes_most != 0 &&
        (made->bytes > pool->bytes_most || pool->used_bytes > pool->bytes_most - made->bytes))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        pool->used_bytes += made->bytes;
    made->pool = handle;
    pools_unlock();
    return result;
}

static void settle(struct allocation *made, bool there)
{
    pools_lock();
    struct pool *pool = find(made->pool);
    if (pool != NULL && !there)
        pool->used_bytes -= made->bytes;
    if (pool != NULL && pool->used_high < pool->used_bytes)
        pool->used_high = pool->used_bytes;
    if (there) {
        struct allocation **bucket = bucket_of(made->pointer);
        made->next = *bucket;
        *bucket = made;
        __atomic_add_fetch(&allocations_count, 1, __ATOMIC_RELAXED);
    } else {
        free(made);
    }
    pools_unlock();
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    (void)stream;
    struct allocation *made = calloc(1, sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->bytes = bytes;
    CUresult result = account(pool, made);
    if (result != CUDA_SUCCESS) {
        free(made);
        return result;
    }
    result = cuMemAlloc_v2(&made->pointer, bytes);
    if (result == CUDA_SUCCESS)
        result = cuCtxGetCurrent(&made->context);
    if (result == CUDA_SUCCESS && pointer != NULL)
        *pointer = made->pointer;
    settle(made, result == CUDA_SUCCESS);
    return result;
}

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    if (pointer == NULL || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    pools_lock();
    CUmemoryPool pool = handle_of(current);
    pools_unlock();
    return cuMemAllocFromPoolAsync(pointer, bytes, pool, stream);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    (void)stream;
    return pointer != 0 ? cuMemFree_v2(pointer) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    CUresult result = ready(device);
    if (result != CUDA_SUCCESS || pool == NULL)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    *pool = handle_of(0);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    CUresult result = ready(device);
    if (result != CUDA_SUCCESS || pool == NULL)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    pools_lock();
    *pool = handle_of(current);
    pools_unlock();
    return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle)
{
    CUresult result = ready(device);
    if (result != CUDA_SUCCESS)
        return result;
    pools_lock();
    const struct pool *pool = find(handle);
    if (pool != NULL)
        current = (uint32_t)(pool - pools);
    pools_unlock();
    return pool != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolCreate(CUmemoryPool *handle, const CUmemPoolProps *properties)
{
    enum { PINNED = 1, ON_DEVICE = 1 };
    if (handle == NULL || properties == NULL || properties->allocType != PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (properties->handleTypes != 0 || properties->location.type != ON_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = ready(properties->location.id);
    if (result != CUDA_SUCCESS)
        return result;
    result = CUDA_ERROR_OUT_OF_MEMORY;
    pools_lock();
    for (uint32_t at = 0; at < POOLS_MOST && result != CUDA_SUCCESS; at++)
        if (!pools[at].alive) {
            pools[at] = (struct pool){
                .alive = true, .use = pools[at].use + 1, .bytes_most = properties->maxSize, .reuse = {1, 1, 1}};
            *handle = handle_of(at);
            result = CUDA_SUCCESS;
        }
    pools_unlock();
    return result;
}

/* What was allocated from it lives on, as CUDA says. */
CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
    pools_lock();
    struct pool *pool = find(handle);
    CUresult result = pool != NULL && pool != &pools[0] ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        pool->alive = false;
        if (current == (uint32_t)(pool - pools))
            current = 0;
    }
    pools_unlock();
    return result;
}

/* The attributes that only tune are kept. */
static CUresult tune(struct pool *pool, CUmemPool_attribute which, void *value, bool set)
{
    if (which == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        uint64_t *kept = &pool->release_threshold;
        *(set ? kept : (uint64_t *)value) = *(set ? (const uint64_t *)value : kept);
    } else {
        int *kept = &pool->reuse[which - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
        *(set ? kept : (int *)value) = *(set ? (const int *)value : kept);
    }
    return CUDA_SUCCESS;
}

/* What is used, and the most since it was set to 0, which is all that can be set. */
static CUresult count(struct pool *pool, CUmemPool_attribute which, uint64_t *value, bool set)
{
    bool high = which == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH || which == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
    if (set && (!high || *value != 0))
        return CUDA_ERROR_INVALID_VALUE;
    forget_ended();
    if (set)
        pool->used_high = pool->used_bytes;
    else
        *value = high ? pool->used_high : pool->used_bytes;
    return CUDA_SUCCESS;
}

static CUresult attribute(CUmemoryPool handle, CUmemPool_attribute which, void *value, bool set)
{
    if (value == NULL || which < CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES ||
        which > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        return CUDA_ERROR_INVALID_VALUE;
    pools_lock();
    struct pool *pool = find(handle);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (pool != NULL)
        result =
            which > CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ? count(pool, which, value, set) : tune(pool, which, value, set);
    pools_unlock();
    return result;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute which, void *value)
{
    return attribute(pool, which, value, true);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute which, void *value)
{
    return attribute(pool, which, value, false);
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t bytes)
{
    (void)bytes;
    pools_lock();
    bool known = find(handle) != NULL;
    pools_unlock();
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The one device may read and write, and nobody else is there to be allowed. */
CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *access, size_t count)
{
    enum { ON_DEVICE = 1, READ_AND_WRITE = 3 };
    pools_lock();
    bool known = find(handle) != NULL;
    pools_unlock();
    if (!known || (count != 0 && access == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t at = 0; at < count; at++)
        if (access[at].location.type != ON_DEVICE || access[at].location.id != 0 || access[at].flags != READ_AND_WRITE)
            return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(int *flags, CUmemoryPool handle, CUmemLocation *location)
{
    enum { ON_DEVICE = 1, READ_AND_WRITE = 3 };
    if (flags == NULL || location == NULL || location->type != ON_DEVICE || location->id != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pools_lock();
    bool known = find(handle) != NULL;
    pools_unlock();
    if (known)
        *flags = READ_AND_WRITE;
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
