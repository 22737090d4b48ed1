/* Stream capture: which streams are being captured into which graph, and what their next node comes behind.
 *
 * A capture begins in one stream. Another stream joins it by waiting for an event that was recorded in it, and must be
 * joined back before the capture ends. Nothing of it leaves the program until the graph is instantiated. */
#include <stdlib.h>

#include "driver/captures.h"
#include "driver/graph.h"

unsigned int front_watch;

/* --- what the fronts ask --- */

/* Invalidates the captures of blocking streams in the current context, which the legacy stream would wait for. */
CUresult captures_implicit(bool invalidate)
{
    CUcontext context = NULL;
    CUresult result = CUDA_SUCCESS;
    if (capture_tables.members == NULL || cuCtxGetCurrent(&context) != CUDA_SUCCESS)
        return CUDA_SUCCESS;
    for (struct member *at = capture_tables.members; at != NULL; at = at->next)
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
    if (captures_thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    for (struct capture *at = capture_tables.captures; at != NULL; at = at->next) {
        bool own = pthread_equal(at->thread, pthread_self()) != 0;
        bool forbids =
            own ? at->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                : at->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && captures_thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
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
    const struct member *member = captures_find_member(*stream);
    bool captures_it = member != NULL && !member->capture->is_invalid;
    if (member != NULL && member->capture->is_invalid)
        *result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (member == NULL && stream_is_legacy(*stream))
        *result = captures_implicit(true);
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
    bool has = captures_find_member(stream) != NULL;
    captures_unlock();
    return has;
}

CUresult capture_break(CUstream stream, CUresult why)
{
    captures_lock();
    struct member *member = captures_find_member(stream);
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
    struct member *member = captures_find_member(*stream);
    if (member != NULL)
        result = break_inside(member, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    else if (stream_is_legacy(*stream))
        result = captures_implicit(true);
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
    CUresult result = captures_implicit(true);
    captures_unlock();
    return result != CUDA_SUCCESS ? result : host_wait(NULL);
}

CUresult front_event(CUevent event)
{
    captures_lock();
    CUresult result = CUDA_SUCCESS;
    const struct captured_event *found = captures_find_event(event);
    if (found != NULL) {
        struct capture *capture = captures_find(found->capture);
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
    struct member *member = captures_find_member(stream);
    CUresult result = member == NULL                ? CUDA_ERROR_ILLEGAL_STATE
                      : member->capture->is_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                                                    : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && member->last.items == NULL && !captures_join_nodes(&member->last, NULL, 0))
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
    struct captured_event *kept = captures_find_event(event);
    if (kept == NULL) {
        kept = calloc(1, sizeof *kept);
        if (kept == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        kept->event = event;
        kept->next = capture_tables.events;
        capture_tables.events = kept;
        front_watch_add(1);
    }
    kept->context = member->capture->context;
    kept->capture = member->capture->id;
    return captures_copy_nodes(&kept->nodes, &member->last) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult front_cuEventRecord(CUevent event, CUstream stream)
{
    CUresult result;
    if (!front_captures(&stream, &result)) {
        if (result != CUDA_SUCCESS)
            return result;
        captures_lock();
        captures_forget_event(event, NULL);
        captures_unlock();
        return cuEventRecord(event, stream);
    }
    result = cuEventQuery(event); /* whether it lives */
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
        return result;
    captures_lock();
    const struct member *member = captures_find_member(stream);
    result = member != NULL ? record(member, event) : CUDA_ERROR_ILLEGAL_STATE;
    captures_unlock();
    return result;
}

/* A stream that waits for captured work is captured from here on. */
static CUresult join(CUstream stream, const struct captured_event *event, bool is_blocking)
{
    struct capture *capture = captures_find(event->capture);
    struct member *member = captures_find_member(stream);
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
        member = captures_add_member(stream, capture, is_blocking);
    return member != NULL && captures_join_nodes(&member->last, event->nodes.items, event->nodes.count)
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
    struct member *member = captures_find_member(stream);
    const struct captured_event *found = captures_find_event(event);
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
        result = captures_implicit(true);
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
    captures_forget_event(event, NULL);
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
    struct member *member = captures_find_member(stream);
    if (member != NULL && member->capture->origin == stream) {
        graph = member->capture->graph;
        captures_end(member->capture);
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
    for (struct capture *at = capture_tables.captures, *next; at != NULL; at = next) {
        next = at->next;
        if (at->context == context)
            captures_end(at);
    }
    if (context != NULL)
        captures_forget_event(NULL, context);
    captures_unlock();
}

CUresult capture_conflicts(CUcontext context)
{
    CUresult result = CUDA_SUCCESS;
    captures_lock();
    for (struct capture *at = capture_tables.captures; at != NULL; at = at->next)
        if (at->context == context) {
            at->is_invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    captures_unlock();
    return result;
}
