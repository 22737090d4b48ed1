/* The default stream of each thread: an ordinary stream for each pair of thread and context, made at its first use.
 *
 * A thread that ends leaves its streams to the next one that needs them: work may still be in them. */
#include <pthread.h>
#include <stdlib.h>

#include "driver/fork.h"
#include "driver/front.h"

struct own_stream {
    struct own_stream *next;
    unsigned long long context; /* its number, which no other context ever has */
    uint64_t process;           /* forks so far: a child has none of its parent's streams */
    CUstream stream;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_end;
static struct own_stream *left; /* by threads that have ended */
static uint64_t forks;
static _Thread_local struct own_stream *own;

void default_streams_lock(void)
{
    pthread_mutex_lock(&lock);
}

void default_streams_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void default_streams_reset(void)
{
    pthread_mutex_init(&lock, NULL);
    forks++;
}

static void leave(void *first)
{
    default_streams_lock();
    for (struct own_stream *at = first, *next; at != NULL; at = next) {
        next = at->next;
        at->next = left;
        left = at;
    }
    default_streams_unlock();
}

static void watch_threads(void)
{
    pthread_key_create(&thread_end, leave);
}

/* Takes the entry of this context out of a list. */
static struct own_stream *take(struct own_stream **list, unsigned long long context)
{
    while (*list != NULL && ((*list)->context != context || (*list)->process != forks))
        list = &(*list)->next;
    struct own_stream *found = *list;
    if (found != NULL)
        *list = found->next;
    return found;
}

static CUresult make(unsigned long long context, struct own_stream **made)
{
    default_streams_lock();
    *made = take(&left, context);
    default_streams_unlock();
    if (*made != NULL)
        return CUDA_SUCCESS;
    *made = malloc(sizeof **made);
    if (*made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    **made = (struct own_stream){.context = context, .process = forks};
    CUresult result = cuStreamCreate(&(*made)->stream, CU_STREAM_DEFAULT);
    if (result != CUDA_SUCCESS)
        free(*made);
    return result;
}

CUresult stream_resolve(CUstream *stream)
{
    if (*stream != CU_STREAM_PER_THREAD)
        return CUDA_SUCCESS;
    CUcontext current = NULL;
    unsigned long long context = 0;
    CUresult result = cuCtxGetCurrent(&current);
    if (result == CUDA_SUCCESS)
        result = current != NULL ? cuCtxGetId(current, &context) : CUDA_ERROR_INVALID_CONTEXT;
    if (result != CUDA_SUCCESS)
        return result;
    struct own_stream *found = take(&own, context);
    if (found == NULL)
        result = make(context, &found);
    if (result != CUDA_SUCCESS)
        return result;
    found->next = own; /* to the front: the next call asks for the same one */
    own = found;
    pthread_once(&once, watch_threads);
    pthread_setspecific(thread_end, own);
    *stream = found->stream;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream stream, unsigned long long *id)
{
    if (id == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = stream_resolve(&stream);
    if (result == CUDA_SUCCESS)
        result = cuCtxGetId(NULL, id);
    if (result == CUDA_SUCCESS)
        *id = stream_number(*id, stream);
    return result;
}

/* Streams are of the one device. */
CUresult cuStreamGetDevice(CUstream stream, CUdevice *device)
{
    (void)stream;
    return device != NULL ? cuCtxGetDevice(device) : CUDA_ERROR_INVALID_VALUE;
}
