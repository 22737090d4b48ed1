/* Functions of the program that a stream calls: one thread runs them, each after the work before it in its stream.
 *
 * Later work of the stream waits in the call that submits it until the function has returned, which keeps CUDA's order on
 * both libraries. No lock of this library is held while a function runs. */
#include <pthread.h>
#include <stdlib.h>

#include "driver/fork.h"
#include "driver/front.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct host_task *first, **end = &first; /* the first one is running */
static bool started;
static CUresult failure; /* of a task, until someone waits for one */
static _Thread_local bool is_host_thread;

void host_calls_lock(void)
{
    pthread_mutex_lock(&lock);
}

void host_calls_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* The thread and what it was to call have stayed behind in the parent. */
void host_calls_reset(void)
{
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&changed, NULL);
    for (; first != NULL; first = first->next)
        front_watch_add(-1);
    end = &first;
    started = false;
    failure = CUDA_SUCCESS;
}

static void run_one(struct host_task *task)
{
    CUresult before = cuCtxSetCurrent(task->context);
    if (before == CUDA_SUCCESS)
        before = cuStreamSynchronize(task->stream);
    CUresult result = task->run(task, before);
    host_calls_lock();
    if (failure == CUDA_SUCCESS)
        failure = result;
}

static void *run_all(void *nothing)
{
    (void)nothing;
    is_host_thread = true;
    host_calls_lock();
    for (;;) {
        while (first == NULL)
            pthread_cond_wait(&changed, &lock);
        struct host_task *task = first, *next;
        host_calls_unlock();
        run_one(task);
        next = task->next;
        first = next;
        if (next == NULL)
            end = &first;
        free(task);
        front_watch_add(-1);
        pthread_cond_broadcast(&changed);
    }
    return NULL;
}

static bool start(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    if (started)
        return true;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    started = pthread_create(&thread, &attributes, run_all, NULL) == 0;
    pthread_attr_destroy(&attributes);
    return started;
}

CUresult host_enqueue(struct host_task *task)
{
    CUresult result = is_host_thread ? CUDA_ERROR_NOT_PERMITTED : cuCtxGetCurrent(&task->context);
    if (result == CUDA_SUCCESS && task->context == NULL)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result != CUDA_SUCCESS)
        return result;
    task->next = NULL;
    host_calls_lock();
    if (start()) {
        *end = task;
        end = &task->next;
        front_watch_add(1);
        pthread_cond_broadcast(&changed);
    } else {
        result = CUDA_ERROR_OPERATING_SYSTEM;
    }
    host_calls_unlock();
    return result;
}

/* The legacy default stream waits for all others of its context, and they for it. That it waits here for streams which are
 * independent of it, too, is an order that CUDA allows. */
static bool concerns(const struct host_task *task, CUcontext context, CUstream stream)
{
    if (task->stream == stream && !stream_is_legacy(stream))
        return true;
    return task->context == context && (stream_is_legacy(task->stream) || stream_is_legacy(stream));
}

static bool is_waiting(CUcontext context, CUstream stream)
{
    for (const struct host_task *task = first; task != NULL; task = task->next)
        if (concerns(task, context, stream))
            return true;
    return false;
}

bool host_waits(CUstream stream)
{
    CUcontext context = NULL;
    if (cuCtxGetCurrent(&context) != CUDA_SUCCESS)
        return false;
    host_calls_lock();
    bool waits = is_waiting(context, stream);
    host_calls_unlock();
    return waits;
}

static CUresult told(void)
{
    CUresult result = failure;
    failure = CUDA_SUCCESS;
    return result;
}

CUresult host_wait(CUstream stream)
{
    CUcontext context = NULL;
    if (is_host_thread)
        return CUDA_ERROR_NOT_PERMITTED; /* it would wait for itself */
    if (cuCtxGetCurrent(&context) != CUDA_SUCCESS)
        return CUDA_SUCCESS; /* the call itself says what is wrong */
    host_calls_lock();
    while (is_waiting(context, stream))
        pthread_cond_wait(&changed, &lock);
    CUresult result = told();
    host_calls_unlock();
    return result;
}

CUresult host_wait_all(CUcontext context)
{
    if (is_host_thread)
        return CUDA_ERROR_NOT_PERMITTED;
    host_calls_lock();
    for (const struct host_task *task = first; task != NULL;)
        if (context == NULL || task->context == context) {
            pthread_cond_wait(&changed, &lock);
            task = first;
        } else {
            task = task->next;
        }
    CUresult result = told();
    host_calls_unlock();
    return result;
}

struct call {
    struct host_task task; /* first */
    CUhostFn function;
    CUstreamCallback callback;
    CUstream handle; /* as the program named it */
    void *data;
};

static CUresult run_call(struct host_task *task, CUresult before)
{
    const struct call *call = (const struct call *)task;
    if (call->callback != NULL)
        call->callback(call->handle, before, call->data);
    else if (before == CUDA_SUCCESS)
        call->function(call->data);
    return CUDA_SUCCESS;
}

/* Whether the stream is one of the current context. */
static CUresult check(CUstream stream)
{
    unsigned int flags;
    return stream_is_legacy(stream) ? CUDA_SUCCESS : cuStreamGetFlags(stream, &flags);
}

static CUresult enqueue(struct call call)
{
    CUresult result = check(call.task.stream);
    struct call *kept = malloc(sizeof *kept);
    if (kept == NULL || result != CUDA_SUCCESS) {
        free(kept);
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
    }
    *kept = call;
    result = host_enqueue(&kept->task);
    if (result != CUDA_SUCCESS)
        free(kept);
    return result;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
    if (function == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return enqueue((struct call){.task = {.stream = stream, .run = run_call}, .function = function, .data = data});
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *data, unsigned int flags)
{
    if (callback == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return enqueue((struct call){
        .task = {.stream = stream, .run = run_call}, .callback = callback, .handle = stream, .data = data});
}
