/* The one connection of this process to the proxy: made at cuInit, used under one lock, never shared with a forked child. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/fork.h"
#include "vgpu/connection.h"
#include "vgpu/vgpu.h"

/* One lock over each whole call: a second thread waits until the first one's call is answered. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static bool initialised;
static struct connection connection;

struct connection *vgpu_connection(void)
{
    return &connection;
}

static void before_fork(void)
{
    driver_before_fork();
    pthread_mutex_lock(&lock);
}

static void after_fork_parent(void)
{
    pthread_mutex_unlock(&lock);
    driver_after_fork_parent();
}

/* The child starts as a new tenant: nothing of the parent's connection, contexts, memory or handles is its own. */
static void after_fork_child(void)
{
    pthread_mutex_init(&lock, NULL);
    if (connection.wire != NULL)
        wire_abandon(connection.wire);
    memset(&connection, 0, sizeof connection);
    ranges_clear(&vgpu_memory);
    vgpu_contexts_reset();
    vgpu_functions_reset();
    vgpu_cache_reset();
    vgpu_host_reset();
    driver_after_fork_child();
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

static CUresult connect_locked(void)
{
    const char *path = getenv("GPUTAX_PROXY_SOCKET");
    const char *transport = getenv("GPUTAX_PROXY_TRANSPORT");
    char why[256];
    if (path == NULL || path[0] == 0) {
        fprintf(stderr,
                "libvgpu: GPUTAX_PROXY_SOCKET is not set, so there is no device; set it to the GPU proxy's socket "
                "(gputax proxy start)\n");
        return CUDA_ERROR_NO_DEVICE;
    }
    if (transport != NULL && transport[0] == 0)
        transport = NULL;
    pthread_once(&fork_once, watch_forks);
    connection.wire = wire_connect(path, transport, CALLS_FINGERPRINT, &connection.welcome, why, sizeof why);
    if (connection.wire == NULL) {
        fprintf(stderr, "libvgpu: %s\n", why);
        return VGPU_PROXY_GONE;
    }
    return CUDA_SUCCESS;
}

/* `early`: a call that CUDA allows before cuInit. */
static CUresult enter(bool early)
{
    pthread_mutex_lock(&lock);
    CUresult result = CUDA_SUCCESS;
    if (!initialised && !early)
        result = CUDA_ERROR_NOT_INITIALIZED;
    else if (connection.lost)
        result = VGPU_PROXY_GONE;
    else if (connection.wire == NULL)
        result = connect_locked();
    if (result != CUDA_SUCCESS)
        pthread_mutex_unlock(&lock);
    return result;
}

CUresult vgpu_enter(void)
{
    return enter(false);
}

void vgpu_leave(void)
{
    pthread_mutex_unlock(&lock);
}

CUresult vgpu_initialise(void)
{
    CUresult result = enter(true);
    if (result != CUDA_SUCCESS)
        return result;
    initialised = true;
    vgpu_leave();
    return CUDA_SUCCESS;
}

static CUresult lost(void)
{
    connection.lost = true;
    return VGPU_PROXY_GONE;
}

CUresult vgpu_send(struct question *question)
{
    if (question->flags & QUESTION_CONTEXT) {
        uint64_t context = vgpu_current();
        if (context == 0)
            return CUDA_ERROR_INVALID_CONTEXT;
        if (!vgpu_context_lives(context))
            return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        memcpy(question->in, &context, sizeof context);
    }
    size_t bytes = question->in_bytes + question->variable_bytes;
    if (bytes > WIRE_BODY_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    const void *body = question->in;
    if (question->variable_bytes != 0) {
        if (question->in_bytes != 0)
            memcpy(connection.body, question->in, question->in_bytes);
        memcpy(connection.body + question->in_bytes, question->variable, question->variable_bytes);
        body = connection.body;
    }
    bool posted = (question->flags & QUESTION_POSTED) != 0;
    struct wire_header header = {
        .call = question->call,
        .body_bytes = (uint32_t)bytes,
        .sequence = ++connection.sequence,
        .bulk_bytes = question->bulk_bytes,
        .flags = posted ? WIRE_POSTED : 0,
    };
    if (connection.wire->ops->send(connection.wire, &header, body) != WIRE_OK)
        return lost();
    __atomic_add_fetch(&connection.counts[question->call], 1, __ATOMIC_RELAXED);
    if (posted && (question->flags & QUESTION_FLUSH) && connection.wire->ops->flush(connection.wire) != WIRE_OK)
        return lost();
    return CUDA_SUCCESS;
}

CUresult vgpu_receive(struct question *question)
{
    struct wire_header header;
    int status = connection.wire->ops->receive(connection.wire, &header, connection.body, sizeof connection.body);
    if (status != WIRE_OK || header.sequence != connection.sequence || header.call != question->call)
        return lost();
    question->answer_bulk = header.bulk_bytes;
    size_t fixed = header.status == CUDA_SUCCESS ? question->out_bytes : 0; /* an error has the variable part alone */
    if (header.body_bytes < fixed)
        return lost();
    size_t rest = header.body_bytes - fixed;
    if (fixed != 0)
        memcpy(question->out, connection.body, fixed);
    if (question->out_capacity != 0) {
        rest = rest < question->out_capacity ? rest : question->out_capacity;
        memcpy(question->out_variable, connection.body + fixed, rest);
        if (question->text && rest > 0)
            ((char *)question->out_variable)[rest - 1] = 0;
        question->out_variable_bytes = rest;
    }
    return (CUresult)header.status;
}

CUresult vgpu_ask_inside(struct question *question)
{
    if ((question->flags & QUESTION_CACHED) && vgpu_cache_find(question))
        return CUDA_SUCCESS;
    CUresult result = vgpu_send(question);
    if (result != CUDA_SUCCESS || (question->flags & QUESTION_POSTED))
        return result;
    result = vgpu_receive(question);
    if (result == CUDA_SUCCESS && (question->flags & QUESTION_CACHED))
        vgpu_cache_keep(question);
    return result;
}

bool vgpu_cached(struct question *question)
{
    pthread_mutex_lock(&lock);
    bool found = vgpu_cache_find(question);
    pthread_mutex_unlock(&lock);
    return found;
}

CUresult vgpu_ask(struct question *question)
{
    CUresult result = enter(question->call == CALL_cuDriverGetVersion);
    if (result != CUDA_SUCCESS)
        return result;
    result = vgpu_ask_inside(question);
    vgpu_leave();
    return result;
}

/* Small enough that a piece stays in the cache until the other side has read it. */
enum { PIECE = 256 << 10 };

CUresult vgpu_bulk_out(const void *from, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        void *at;
        size_t granted, wanted = bytes - done < PIECE ? bytes - done : PIECE;
        if (connection.wire->ops->bulk_reserve(connection.wire, wanted, &at, &granted) != WIRE_OK)
            return lost();
        memcpy(at, (const uint8_t *)from + done, granted);
        if (connection.wire->ops->bulk_commit(connection.wire, granted) != WIRE_OK)
            return lost();
        done += granted;
    }
    return CUDA_SUCCESS;
}

CUresult vgpu_bulk_in(void *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const void *at;
        size_t granted, wanted = bytes - done < PIECE ? bytes - done : PIECE;
        if (connection.wire->ops->bulk_peek(connection.wire, wanted, &at, &granted) != WIRE_OK)
            return lost();
        memcpy((uint8_t *)to + done, at, granted);
        if (connection.wire->ops->bulk_release(connection.wire, granted) != WIRE_OK)
            return lost();
        done += granted;
    }
    return CUDA_SUCCESS;
}
