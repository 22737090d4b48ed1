/* Stream capture: which streams are being captured into which graph, and what their next node comes behind.
 *
 * A capture begins in one stream. Another stream joins it by waiting for an event that was recorded in it, and must be
 * joined back before the capture ends. Nothing of it leaves the program until the graph is instantiated. */
#include <pthread.h>
#include <stdlib.h>

#include "driver/capture.h"
#include "driver/fork.h"
#include "driver/graph.h"

unsigned int front_watch;

struct capture {
    struct capture *next;
    cuuint64_t id;
    CUgraph graph;
    CUstream origin;
    CUcontext context;
    CUstreamCaptureMode mode;
    pthread_t thread; /* that began it */
    bool is_invalid;
};

struct nodes {
    CUgraphNode *items;
    size_t count;
};

/* A stream that takes part. */
struct member {
    struct member *next;
    CUstream stream;
    struct capture *capture;
    bool is_blocking; /* the legacy default stream waits for it */
    struct nodes last;
};

/* An event whose last record was captured; also after the capture's end, until it is recorded otherwise. */
struct captured_event {
    struct captured_event *next;
    CUevent event;
    CUcontext context;
    cuuint64_t capture;
    struct nodes nodes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct capture *captures;
static struct member *members;
static struct captured_event *events;
static cuuint64_t begun;
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

void captures_lock(void)
{
    pthread_mutex_lock(&lock);
}

void captures_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* --- lists of nodes --- */

static bool nodes_copy(struct nodes *to, const struct nodes *from)
{
    CUgraphNode *items = malloc((from->count + 1) * sizeof *items);
    if (items == NULL)
        return false;
    if (from->count != 0)
        memcpy(items, from->items, from->count * sizeof *items);
    free(to->items);
    to->items = items;
    to->count = from->count;
    return true;
}

static bool nodes_join(struct nodes *to, const CUgraphNode *more, size_t count)
{
    CUgraphNode *items = realloc(to->items, (to->count + count + 1) * sizeof *items);
    if (items == NULL)
        return false;
    to->items = items;
    for (size_t at = 0; at < count; at++) {
        size_t same = 0;
        while (same < to->count && items[same] != more[at])
            same++;
        if (same == to->count)
            items[to->count++] = more[at];
    }
    return true;
}

/* --- the tables; all under the lock --- */

static struct member *find_member(CUstream stream)
{
    struct member *at = members;
    while (at != NULL && at->stream != stream)
        at = at->next;
    return at;
}

static struct captured_event *find_event(CUevent event)
{
    struct captured_event *at = events;
    while (at != NULL && at->event != event)
        at = at->next;
    return at;
}

static struct capture *find_capture(cuuint64_t id)
{
    struct capture *at = captures;
    while (at != NULL && at->id != id)
        at = at->next;
    return at;
}

static struct member *add_member(CUstream stream, struct capture *capture, bool is_blocking)
{
    struct member *made = calloc(1, sizeof *made);
    if (made == NULL)
        return NULL;
    *made = (struct member){.next = members, .stream = stream, .capture = capture, .is_blocking = is_blocking};
    members = made;
    return made;
}

static void forget_event(CUevent event, CUcontext context)
{
    for (struct captured_event **at = &events; *at != NULL;) {
        struct captured_event *one = *at;
        if (context != NULL ? one->context != context : one->event != event) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        free(one->nodes.items);
        free(one);
        front_watch_add(-1);
    }
}

/* Forgets a capture and its streams; the graph is the caller's. */
static void end_capture(struct capture *capture)
{
    for (struct member **at = &members; *at != NULL;) {
        struct member *one = *at;
        if (one->capture != capture) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        free(one->last.items);
        free(one);
    }
    struct capture **place = &captures;
    while (*place != capture)
        place = &(*place)->next;
    *place = capture->next;
    free(capture);
    front_watch_add(-1);
}

void captures_reset(void)
{
    pthread_mutex_init(&lock, NULL);
    while (captures != NULL)
        end_capture(captures);
    while (events != NULL)
        forget_event(events->event, NULL);
}

/* --- what the fronts ask --- */

/* Invalidates the captures of blocking streams in the current context, which the legacy stream would wait for. */
static CUresult implicit(bool invalidate)
{
    CUcontext context = NULL;
    CUresult result = CUDA_SUCCESS;
    if (members == NULL || cuCtxGetCurrent(&context) != CUDA_SUCCESS)
        return CUDA_SUCCESS;
    for (struct member *at = members; at != NULL; at = at->next)
        if (at->is_blocking && at->capture->context == context) {
            at->capture->is_invalid = at->capture->is_invalid || invalidate;
            result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    return result;
}

/* By the mode of the thread and of each capture; what it forbids makes the captures void. */
static CUresult forbidden(void)
{
    CUresult result = CUDA_SUCCESS;
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    for (struct capture *at = captures; at != NULL; at = at->next) {
        bool own = pthread_equal(at->thread, pthread_self()) != 0;
        bool forbids = own ? at->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                           : at->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (!forbids)
            continue;
        at->is_invalid = true;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return result;
}

bool front_captures(CUstream *stream, CUresult *result)
{
    *result = stream_resolve(stream);
    if (*result != CUDA_SUCCESS)
        return false;
    captures_lock();
    const struct member *member = find_member(*stream);
    bool captures_it = member != NULL && !member->capture->is_invalid;
    if (member != NULL && member->capture->is_invalid)
        *result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (member == NULL && stream_is_legacy(*stream))
        *result = implicit(true);
    captures_unlock();
    if (!captures_it && *result == CUDA_SUCCESS)
        *result = host_wait(*stream);
    return captures_it;
}

static CUresult break_inside(struct member *member, CUresult why)
{
    CUresult result = member->capture->is_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : why;
    member->capture->is_invalid = true;
    return result;
}

bool capture_has(CUstream stream)
{
    captures_lock();
    bool has = find_member(stream) != NULL;
    captures_unlock();
    return has;
}

CUresult capture_break(CUstream stream, CUresult why)
{
    captures_lock();
    struct member *member = find_member(stream);
    CUresult result = member != NULL ? break_inside(member, why) : why;
    captures_unlock();
    return result;
}

CUresult front_refused(CUstream *stream)
{
    CUresult result = stream_resolve(stream);
    if (result != CUDA_SUCCESS)
        return result;
    captures_lock();
    struct member *member = find_member(*stream);
    if (member != NULL)
        result = break_inside(member, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    else if (stream_is_legacy(*stream))
        result = implicit(true);
    captures_unlock();
    return result != CUDA_SUCCESS ? result : host_wait(*stream);
}

CUresult front_unsafe(void)
{
    captures_lock();
    CUresult result = forbidden();
    captures_unlock();
    return result;
}

CUresult front_legacy(void)
{
    captures_lock();
    CUresult result = implicit(true);
    captures_unlock();
    return result != CUDA_SUCCESS ? result : host_wait(NULL);
}

CUresult front_event(CUevent event)
{
    captures_lock();
    CUresult result = CUDA_SUCCESS;
    const struct captured_event *found = find_event(event);
    if (found != NULL) {
        struct capture *capture = find_capture(found->capture);
        if (capture != NULL)
            capture->is_invalid = true;
        result = CUDA_ERROR_CAPTURED_EVENT;
    } else {
        result = forbidden();
    }
    captures_unlock();
    return result;
}

CUresult capture_add(CUstream stream, const struct graph_step *step, uint8_t *block)
{
    struct graph_node made = {.step = *step, .block = block};
    CUgraphNode node = NULL;
    captures_lock();
    struct member *member = find_member(stream);
    CUresult result = member == NULL                ? CUDA_ERROR_ILLEGAL_STATE
                      : member->capture->is_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                                                    : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && member->last.items == NULL && !nodes_join(&member->last, NULL, 0))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(block);
    } else {
        made.context = member->capture->context;
        result = graph_add(&node, member->capture->graph, member->last.items, member->last.count, made);
    }
    if (result == CUDA_SUCCESS) { /* there is always room for one */
        member->last.items[0] = node;
        member->last.count = 1;
    }
    captures_unlock();
    return result;
}

/* --- events: recorded in a captured stream they name its last nodes, and who waits for one comes behind these --- */

static CUresult record(const struct member *member, CUevent event)
{
    struct captured_event *kept = find_event(event);
    if (kept == NULL) {
        kept = calloc(1, sizeof *kept);
        if (kept == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        kept->event = event;
        kept->next = events;
        events = kept;
        front_watch_add(1);
    }
    kept->context = member->capture->context;
    kept->capture = member->capture->id;
    return nodes_copy(&kept->nodes, &member->last) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult front_cuEventRecord(CUevent event, CUstream stream)
{
    CUresult result;
    if (!front_captures(&stream, &result)) {
        if (result != CUDA_SUCCESS)
            return result;
        captures_lock();
        forget_event(event, NULL);
        captures_unlock();
        return cuEventRecord(event, stream);
    }
    result = cuEventQuery(event); /* whether it lives */
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
        return result;
    captures_lock();
    const struct member *member = find_member(stream);
    result = member != NULL ? record(member, event) : CUDA_ERROR_ILLEGAL_STATE;
    captures_unlock();
    return result;
}

/* A stream that waits for captured work is captured from here on. */
static CUresult join(CUstream stream, const struct captured_event *event, bool is_blocking)
{
    struct capture *capture = find_capture(event->capture);
    struct member *member = find_member(stream);
    if (capture == NULL)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (capture->is_invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream_is_legacy(stream)) {
        capture->is_invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (member != NULL && member->capture != capture) {
        capture->is_invalid = member->capture->is_invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (member == NULL)
        member = add_member(stream, capture, is_blocking);
    return member != NULL && nodes_join(&member->last, event->nodes.items, event->nodes.count)
               ? CUDA_SUCCESS
               : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult front_cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
    enum { EXTERNAL = 1 };
    CUresult result = stream_resolve(&stream);
    unsigned int stream_flags = 0;
    if (result == CUDA_SUCCESS && !stream_is_legacy(stream))
        result = cuStreamGetFlags(stream, &stream_flags);
    if (result != CUDA_SUCCESS)
        return result;
    bool captured = true;
    captures_lock();
    struct member *member = find_member(stream);
    const struct captured_event *found = find_event(event);
    if (member != NULL && member->capture->is_invalid)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (member != NULL && flags != 0)
        result = break_inside(member, (flags & ~(unsigned int)EXTERNAL) != 0 ? CUDA_ERROR_INVALID_VALUE
                                                                             : CUDA_ERROR_NOT_SUPPORTED);
    else if (found != NULL)
        result = join(stream, found, (stream_flags & CU_STREAM_NON_BLOCKING) == 0);
    else if (member != NULL)
        result = break_inside(member, CUDA_ERROR_STREAM_CAPTURE_ISOLATION); /* work that is not captured */
    else
        captured = false;
    if (!captured && stream_is_legacy(stream))
        result = implicit(true);
    captures_unlock();
    if (captured || result != CUDA_SUCCESS)
        return result;
    result = host_wait(stream);
    return result == CUDA_SUCCESS ? cuStreamWaitEvent(stream, event, flags) : result;
}

/* --- what ends --- */

CUresult front_cuEventDestroy_v2(CUevent event)
{
    captures_lock();
    forget_event(event, NULL);
    captures_unlock();
    return cuEventDestroy_v2(event);
}

CUresult front_cuEventDestroy(CUevent event)
{
    return front_cuEventDestroy_v2(event);
}

/* A stream that ends in its capture makes it void; that of its own ends with it. */
CUresult front_cuStreamDestroy_v2(CUstream stream)
{
    CUgraph graph = NULL;
    captures_lock();
    struct member *member = find_member(stream);
    if (member != NULL && member->capture->origin == stream) {
        graph = member->capture->graph;
        end_capture(member->capture);
    } else if (member != NULL) {
        member->capture->is_invalid = true;
    }
    captures_unlock();
    if (graph != NULL)
        cuGraphDestroy(graph);
    CUresult result = host_wait(stream);
    return result == CUDA_SUCCESS ? cuStreamDestroy_v2(stream) : result;
}

void capture_forget_context(CUcontext context)
{
    captures_lock();
    for (struct capture *at = captures, *next; at != NULL; at = next) {
        next = at->next;
        if (at->context == context)
            end_capture(at);
    }
    if (context != NULL)
        forget_event(NULL, context);
    captures_unlock();
}

CUresult capture_conflicts(CUcontext context)
{
    CUresult result = CUDA_SUCCESS;
    captures_lock();
    for (struct capture *at = captures; at != NULL; at = at->next)
        if (at->context == context) {
            at->is_invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    captures_unlock();
    return result;
}

/* --- the calls themselves --- */

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    if (mode == NULL || (unsigned int)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    unsigned int flags = 0;
    if ((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = stream_resolve(&stream);
    if (result == CUDA_SUCCESS)
        result = stream_is_legacy(stream) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : cuStreamGetFlags(stream, &flags);
    if (result != CUDA_SUCCESS)
        return result;
    struct capture *made = calloc(1, sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *made = (struct capture){.origin = stream, .mode = mode, .thread = pthread_self()};
    result = cuCtxGetCurrent(&made->context);
    if (result == CUDA_SUCCESS)
        result = cuGraphCreate(&made->graph, 0);
    if (result != CUDA_SUCCESS) {
        free(made);
        return result;
    }
    captures_lock();
    if (find_member(stream) != NULL)
        result = CUDA_ERROR_ILLEGAL_STATE;
    else if (add_member(stream, made, (flags & CU_STREAM_NON_BLOCKING) == 0) == NULL)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        made->id = ++begun;
        made->next = captures;
        captures = made;
        front_watch_add(1);
    }
    captures_unlock();
    if (result != CUDA_SUCCESS) {
        cuGraphDestroy(made->graph);
        free(made);
    }
    return result;
}

CUresult cuStreamBeginCapture(CUstream stream)
{
    return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

/* Whether everything that other streams captured comes before the end of the first one. */
static bool is_joined(const struct capture *capture, const struct member *origin)
{
    for (const struct member *at = members; at != NULL; at = at->next)
        if (at->capture == capture && at != origin &&
            !graph_comes_before(capture->graph, at->last.items, at->last.count, origin->last.items, origin->last.count))
            return false;
    return true;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    if (graph == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = stream_resolve(&stream);
    if (result != CUDA_SUCCESS)
        return result;
    *graph = NULL;
    CUgraph unused = NULL;
    captures_lock();
    const struct member *member = find_member(stream);
    struct capture *capture = member != NULL ? member->capture : NULL;
    if (capture == NULL)
        result = CUDA_ERROR_ILLEGAL_STATE;
    else if (capture->origin != stream)
        result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    else if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(capture->thread, pthread_self()))
        result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (result == CUDA_SUCCESS) {
        if (capture->is_invalid)
            result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        else if (!is_joined(capture, member))
            result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        *(result == CUDA_SUCCESS ? graph : &unused) = capture->graph;
        end_capture(capture);
    } else if (capture != NULL) {
        capture->is_invalid = true;
    }
    captures_unlock();
    if (unused != NULL)
        cuGraphDestroy(unused);
    return result;
}

/* Also of the legacy stream, which is of no use while a stream that it waits for is captured. */
static CUresult status_of(CUstream *stream, CUstreamCaptureStatus *status, const struct member **member)
{
    *member = find_member(*stream);
    *status = *member == NULL                  ? CU_STREAM_CAPTURE_STATUS_NONE
              : (*member)->capture->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                               : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return stream_is_legacy(*stream) ? implicit(false) : CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    const struct member *member;
    if (status == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = stream_resolve(&stream);
    if (result != CUDA_SUCCESS)
        return result;
    captures_lock();
    result = status_of(&stream, status, &member);
    captures_unlock();
    return result;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                   const CUgraphNode **nodes, size_t *count)
{
    const struct member *member;
    if (status == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = stream_resolve(&stream);
    if (result != CUDA_SUCCESS)
        return result;
    captures_lock();
    result = status_of(&stream, status, &member);
    if (result == CUDA_SUCCESS && *status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        if (id != NULL)
            *id = member->capture->id;
        if (graph != NULL)
            *graph = member->capture->graph;
        if (nodes != NULL)
            *nodes = member->last.items; /* good until the next call on the stream, as CUDA says */
        if (count != NULL)
            *count = member->last.count;
    }
    captures_unlock();
    return result;
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                   const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *count)
{
    if (edges != NULL)
        *edges = NULL; /* all edges are ordinary ones */
    return cuStreamGetCaptureInfo_v2(stream, status, id, graph, nodes, count);
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    return cuStreamGetCaptureInfo_v2(stream, status, id, NULL, NULL, NULL);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *nodes, size_t count, unsigned int flags)
{
    enum { ADD = 0, SET = 1 };
    if (flags > SET || (count != 0 && nodes == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = stream_resolve(&stream);
    if (result != CUDA_SUCCESS)
        return result;
    captures_lock();
    struct member *member = find_member(stream);
    if (member == NULL)
        result = CUDA_ERROR_ILLEGAL_STATE;
    else if (member->capture->is_invalid)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!graph_has(member->capture->graph, nodes, count))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        size_t before = member->last.count;
        if (flags == SET)
            member->last.count = 0;
        if (!nodes_join(&member->last, nodes, count)) {
            member->last.count = before;
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    captures_unlock();
    return result;
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *nodes, const CUgraphEdgeData *edges,
                                              size_t count, unsigned int flags)
{
    return edges != NULL ? CUDA_ERROR_NOT_SUPPORTED : cuStreamUpdateCaptureDependencies(stream, nodes, count, flags);
}
