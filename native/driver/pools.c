/* Memory in the order of a stream, and pools: each allocation is an ordinary one, and a pool keeps nothing back.
 *
 * Work of a stream is computed, or posted to the proxy, in the order of the calls; so memory that is freed by a call is no
 * longer used by work before it, and CUDA's own cuMemFree behind the proxy waits for that work.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda_calls.h"
#include "driver/fork.h"

enum { POOLS_MOST = 64, REUSES = 3 };

struct pool {
    bool alive;
    uint32_t use; /* part of the handle: one that has ended is refused */
    uint64_t release_threshold;
    int reuse[REUSES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pool pools[POOLS_MOST] = {{.alive = true, .use = 1, .reuse = {1, 1, 1}}}; /* the first: the default one */
static uint32_t current;

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

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    (void)stream;
    return cuMemAlloc_v2(pointer, bytes);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    pools_lock();
    bool known = find(pool) != NULL;
    pools_unlock();
    return known ? cuMemAllocAsync(pointer, bytes, stream) : CUDA_ERROR_INVALID_VALUE;
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
    if (properties->handleTypes != 0 || properties->location.type != ON_DEVICE || properties->maxSize != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = ready(properties->location.id);
    if (result != CUDA_SUCCESS)
        return result;
    result = CUDA_ERROR_OUT_OF_MEMORY;
    pools_lock();
    for (uint32_t at = 0; at < POOLS_MOST && result != CUDA_SUCCESS; at++)
        if (!pools[at].alive) {
            pools[at] = (struct pool){.alive = true, .use = pools[at].use + 1, .reuse = {1, 1, 1}};
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

/* The attributes that only tune are kept; how much a pool holds is not counted. */
static CUresult attribute(CUmemoryPool handle, CUmemPool_attribute which, void *value, bool set)
{
    if (value == NULL || which < CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES ||
        which > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        return CUDA_ERROR_INVALID_VALUE;
    if (which > CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        return CUDA_ERROR_NOT_SUPPORTED;
    pools_lock();
    struct pool *pool = find(handle);
    if (pool != NULL && which == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        uint64_t *kept = &pool->release_threshold;
        *(set ? kept : (uint64_t *)value) = *(set ? (const uint64_t *)value : kept);
    } else if (pool != NULL) {
        int *kept = &pool->reuse[which - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
        *(set ? kept : (int *)value) = *(set ? (const int *)value : kept);
    }
    pools_unlock();
    return pool != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
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
