/* The calls that begin, end, show and steer a stream capture. */
#include <stdlib.h>

#include "driver/captures.h"
#include "driver/graph.h"

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    if (mode == NULL || (unsigned int)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode before = captures_thread_mode;
    captures_thread_mode = *mode;
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
    if (captures_find_member(stream) != NULL)
        result = CUDA_ERROR_ILLEGAL_STATE;
    else if (captures_add_member(stream, made, (flags & CU_STREAM_NON_BLOCKING) == 0) == NULL)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        made->id = ++capture_tables.begun;
        made->next = capture_tables.captures;
        capture_tables.captures = made;
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
    for (const struct member *at = capture_tables.members; at != NULL; at = at->next)
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
    const struct member *member = captures_find_member(stream);
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
        captures_end(capture);
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
    *member = captures_find_member(*stream);
    *status = *member == NULL                  ? CU_STREAM_CAPTURE_STATUS_NONE
              : (*member)->capture->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                               : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return stream_is_legacy(*stream) ? captures_implicit(false) : CUDA_SUCCESS;
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
    struct member *member = captures_find_member(stream);
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
        if (!captures_join_nodes(&member->last, nodes, count)) {
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
