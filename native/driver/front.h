/* What stands between an exported call and its implementation (generated fronts.c): captures, host functions that have not
 * run yet, and the default stream of each thread. Code of this library calls the implementations, never the fronts. */
#ifndef GPUTAX_DRIVER_FRONT_H
#define GPUTAX_DRIVER_FRONT_H

#include <stdbool.h>
#include <stdint.h>

#include "calls/graph_step.h"
#include "cuda_calls.h"
#include "fronts.h"

/* How many captures, captured events and waiting host functions there are: without any, a front goes straight on. */
extern unsigned int front_watch;

static inline void front_watch_add(int change)
{
    __atomic_add_fetch(&front_watch, (unsigned int)change, __ATOMIC_RELAXED);
}

static inline bool front_is_quiet(void)
{
    return __builtin_expect(__atomic_load_n(&front_watch, __ATOMIC_RELAXED) == 0, 1);
}

static inline bool front_is_plain(CUstream stream)
{
    return __builtin_expect(stream != CU_STREAM_PER_THREAD, 1) && front_is_quiet();
}

static inline bool stream_is_legacy(CUstream stream)
{
    return stream == NULL || stream == CU_STREAM_LEGACY;
}

/* A number that no other stream has at the same time; the default streams of two contexts are two. */
static inline uint64_t stream_number(uint64_t context_number, CUstream stream)
{
    return stream > CU_STREAM_PER_THREAD ? (uint64_t)(uintptr_t)stream
                                         : context_number << 2 | (uint64_t)(uintptr_t)stream;
}

/* --- default_stream.c --- */

/* Replaces CU_STREAM_PER_THREAD by the calling thread's own stream of the current context. */
CUresult stream_resolve(CUstream *stream);

/* --- capture.c: what each kind of front asks; the table of calls names the kind --- */

/* Work in a stream. True: the stream is being captured, so the work becomes a node. Otherwise the result says whether the
 * work may go on. */
bool front_captures(CUstream *stream, CUresult *result);
CUresult front_refused(CUstream *stream); /* a call that a captured stream cannot have */
CUresult front_unsafe(void);              /* a call that a capture's mode may forbid */
CUresult front_legacy(void);              /* work in the legacy default stream */
CUresult front_event(CUevent event);      /* a question about an event */

/* --- host_calls.c --- */

/* Runs on a thread of its own once the work before it in the stream has ended; the stream is one that was resolved. */
struct host_task {
    struct host_task *next;
    CUcontext context;
    CUstream stream;
    /* Gets how the work before it ended; its result is that of the next call on the stream. */
    CUresult (*run)(struct host_task *task, CUresult before);
};
CUresult host_enqueue(struct host_task *task);
bool host_waits(CUstream stream);          /* whether a task of this stream has not run yet */
CUresult host_wait(CUstream stream);       /* until no such task is left */
CUresult host_wait_all(CUcontext context); /* NULL: of every context */

#endif
