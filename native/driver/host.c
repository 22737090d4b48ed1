/* Host memory that a program registers. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "cuda_calls.h"
#include "driver/fork.h"
#include "driver/host.h"

struct registered {
    struct registered *next;
    uintptr_t from;
    size_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct registered *first;

void host_lock(void)
{
    pthread_mutex_lock(&lock);
}

void host_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void host_reset(void)
{
    pthread_mutex_init(&lock, NULL);
    while (first != NULL) {
        struct registered *next = first->next;
        free(first);
        first = next;
    }
}

static CUresult needs_context(void)
{
    CUcontext current = NULL;
    CUresult result = cuCtxGetCurrent(&current);
    return result == CUDA_SUCCESS && current == NULL ? CUDA_ERROR_INVALID_CONTEXT : result;
}

/* Copies from and to it work as with all host memory. I/O and read-only memory would change what kernels may do. */
CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned int flags)
{
    enum { PORTABLE = 1, DEVICEMAP = 2, KNOWN = 15 };
    uintptr_t from = (uintptr_t)pointer;
    if (pointer == NULL || bytes == 0 || bytes > UINTPTR_MAX - from || (flags & ~(unsigned int)KNOWN) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if ((flags & ~(unsigned int)(PORTABLE | DEVICEMAP)) != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = needs_context();
    if (result != CUDA_SUCCESS)
        return result;
    struct registered *made = malloc(sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    host_lock();
    for (const struct registered *at = first; at != NULL && result == CUDA_SUCCESS; at = at->next)
        if (from < at->from + at->bytes && at->from < from + bytes)
            result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (result == CUDA_SUCCESS && (flags & DEVICEMAP) != 0)
        result = host_map(pointer, bytes);
    if (result == CUDA_SUCCESS) {
        *made = (struct registered){first, from, bytes};
        first = made;
    }
    host_unlock();
    if (result != CUDA_SUCCESS)
        free(made);
    return result;
}

CUresult cuMemHostUnregister(void *pointer)
{
    CUresult result = needs_context();
    if (result != CUDA_SUCCESS)
        return result;
    struct registered *found;
    host_lock();
    struct registered **at = &first;
    while (*at != NULL && (*at)->from != (uintptr_t)pointer)
        at = &(*at)->next;
    found = *at;
    if (found != NULL)
        *at = found->next;
    host_unlock();
    if (found != NULL)
        host_unmap(pointer);
    free(found);
    return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}
