/* Streams and events: places on the one timeline.
 *
 * Work is computed on the thread that submits it, in the order of submission, and takes its time on the device's
 * timeline. So every stream keeps its order, the default stream waits for the others by nature, and a call returns
 * before the throttled time of its work has passed. That is one of the orders that CUDA allows.
 */
#include <stdlib.h>

#include "device/device.h"
#include "device/timeline.h"

CUresult stream_find(struct CUctx_st *context, CUstream handle, struct CUstream_st **stream)
{
    if (!handle || handle == CU_STREAM_LEGACY) {
        *stream = &context->default_stream;
        return CUDA_SUCCESS;
    }
    if (!handle_is(handle, HANDLE_STREAM) || handle->context != context)
        return CUDA_ERROR_INVALID_HANDLE;
    *stream = handle;
    return CUDA_SUCCESS;
}

void stream_finish(struct CUstream_st *stream, uint64_t end_ns)
{
    struct CUctx_st *context = stream->context;
    if (stream->end_ns < end_ns)
        stream->end_ns = end_ns;
    if (context->end_ns < end_ns)
        context->end_ns = end_ns;
    if (!(stream->flags & CU_STREAM_NON_BLOCKING) && context->blocking_end_ns < end_ns)
        context->blocking_end_ns = end_ns;
}

uint64_t stream_end(const struct CUstream_st *stream)
{
    const struct CUctx_st *context = stream->context;
    return stream == &context->default_stream ? context->blocking_end_ns : stream->end_ns;
}

/* Enters the current context and finds the stream in it. */
static CUresult enter_stream(CUstream handle, struct CUctx_st **context, struct CUstream_st **stream)
{
    CUresult result = context_enter(context);
    if (result != CUDA_SUCCESS)
        return result;
    result = stream_find(*context, handle, stream);
    if (result != CUDA_SUCCESS)
        context_leave(*context);
    return result;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    return cuStreamCreateWithPriority(stream, flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    struct CUctx_st *context;
    if (!stream || (flags & ~(unsigned int)CU_STREAM_NON_BLOCKING))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = context_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    struct CUstream_st *made = calloc(1, sizeof *made);
    if (made && handle_add(made, HANDLE_STREAM)) {
        made->context = context;
        made->flags = flags;
        made->priority = priority;
        owned_add(&context->streams, &made->link);
        *stream = made;
    } else {
        free(made);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    context_leave(context);
    return result;
}

static void drop_stream(struct CUstream_st *stream)
{
    handle_remove(stream);
    owned_remove(&stream->link);
    free(stream);
}

static void drop_event(struct CUevent_st *event)
{
    handle_remove(event);
    owned_remove(&event->link);
    free(event);
}

void stream_drop_all(struct CUctx_st *context)
{
    while (context->streams.next != &context->streams)
        drop_stream((struct CUstream_st *)context->streams.next);
    while (context->events.next != &context->events)
        drop_event((struct CUevent_st *)context->events.next);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return CUDA_ERROR_INVALID_HANDLE;
    struct CUctx_st *context;
    struct CUstream_st *found;
    CUresult result = enter_stream(stream, &context, &found);
    if (result != CUDA_SUCCESS)
        return result;
    drop_stream(found); /* its work stays on the timeline, as CUDA says */
    context_leave(context);
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    struct CUctx_st *context;
    struct CUstream_st *found;
    CUresult result = enter_stream(stream, &context, &found);
    if (result != CUDA_SUCCESS)
        return result;
    context_leave_and_wait(context, stream_end(found), false);
    return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream)
{
    struct CUctx_st *context;
    struct CUstream_st *found;
    CUresult result = enter_stream(stream, &context, &found);
    if (result != CUDA_SUCCESS)
        return result;
    result = timeline_now() >= stream_end(found) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    context_leave(context);
    return result;
}

static bool event_alive(const struct CUevent_st *event, const struct CUctx_st *context)
{
    return handle_is(event, HANDLE_EVENT) && event->context == context;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
    struct CUctx_st *context;
    struct CUstream_st *found;
    if (flags & ~1u)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_stream(stream, &context, &found);
    if (result != CUDA_SUCCESS)
        return result;
    if (!event_alive(event, context))
        result = CUDA_ERROR_INVALID_HANDLE;
    else if (event->recorded)
        stream_finish(found, event->at_ns);
    context_leave(context);
    return result;
}

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    struct CUctx_st *context;
    if (!event || (flags & ~(unsigned int)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = context_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    struct CUevent_st *made = calloc(1, sizeof *made);
    if (made && handle_add(made, HANDLE_EVENT)) {
        made->context = context;
        made->flags = flags;
        owned_add(&context->events, &made->link);
        *event = made;
    } else {
        free(made);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    context_leave(context);
    return result;
}

/* Enters the current context; the event must live in it. */
static CUresult enter_event(CUevent event, struct CUctx_st **context)
{
    CUresult result = context_enter(context);
    if (result != CUDA_SUCCESS)
        return result;
    if (event_alive(event, *context))
        return CUDA_SUCCESS;
    context_leave(*context);
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    struct CUctx_st *context;
    CUresult result = enter_event(event, &context);
    if (result != CUDA_SUCCESS)
        return result;
    drop_event(event);
    context_leave(context);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    struct CUctx_st *context;
    struct CUstream_st *found;
    CUresult result = enter_event(event, &context);
    if (result != CUDA_SUCCESS)
        return result;
    result = stream_find(context, stream, &found);
    if (result == CUDA_SUCCESS) {
        uint64_t now = timeline_now(), end = stream_end(found);
        event->recorded = true;
        event->at_ns = now > end ? now : end;
        stream_finish(found, event->at_ns);
    }
    context_leave(context);
    return result;
}

CUresult cuEventQuery(CUevent event)
{
    struct CUctx_st *context;
    CUresult result = enter_event(event, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (event->recorded && timeline_now() < event->at_ns)
        result = CUDA_ERROR_NOT_READY;
    context_leave(context);
    return result;
}

CUresult cuEventSynchronize(CUevent event)
{
    struct CUctx_st *context;
    CUresult result = enter_event(event, &context);
    if (result != CUDA_SUCCESS)
        return result;
    bool sleep = (event->flags & CU_EVENT_BLOCKING_SYNC) != 0;
    context_leave_and_wait(context, event->recorded ? event->at_ns : 0, sleep);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
    struct CUctx_st *context;
    if (!milliseconds)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_event(start, &context);
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t now = timeline_now();
    if (!event_alive(end, context) || !start->recorded || !end->recorded ||
        ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
        result = CUDA_ERROR_INVALID_HANDLE;
    else if (now < start->at_ns || now < end->at_ns)
        result = CUDA_ERROR_NOT_READY;
    else
        *milliseconds = (float)((double)(int64_t)(end->at_ns - start->at_ns) / 1e6);
    context_leave(context);
    return result;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    return cuEventElapsedTime_v2(milliseconds, start, end);
}

CUresult cuStreamGetFlags(CUstream stream, unsigned int *flags)
{
    struct CUctx_st *context;
    struct CUstream_st *found;
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_stream(stream, &context, &found);
    if (result != CUDA_SUCCESS)
        return result;
    *flags = found->flags;
    context_leave(context);
    return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream stream, int *priority)
{
    struct CUctx_st *context;
    struct CUstream_st *found;
    if (!priority)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enter_stream(stream, &context, &found);
    if (result != CUDA_SUCCESS)
        return result;
    *priority = found->priority;
    context_leave(context);
    return CUDA_SUCCESS;
}
