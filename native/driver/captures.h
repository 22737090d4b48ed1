/* The tables of captures, shared by what the fronts ask of them (capture.c) and the calls that begin and end one
 * (capture_calls.c). */
#ifndef GPUTAX_DRIVER_CAPTURES_H
#define GPUTAX_DRIVER_CAPTURES_H

#include <pthread.h>

#include "driver/capture.h"
#include "driver/fork.h"

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

struct capture_tables {
    struct capture *captures;
    struct member *members;
    struct captured_event *events;
    cuuint64_t begun; /* how many captures ever */
};

/* All of it under captures_lock(). */
extern struct capture_tables capture_tables;
extern _Thread_local CUstreamCaptureMode captures_thread_mode;

bool captures_copy_nodes(struct nodes *to, const struct nodes *from);
bool captures_join_nodes(struct nodes *to, const CUgraphNode *more, size_t count); /* those that are not in it yet */

struct member *captures_find_member(CUstream stream);
struct captured_event *captures_find_event(CUevent event);
struct capture *captures_find(cuuint64_t id);
struct member *captures_add_member(CUstream stream, struct capture *capture, bool is_blocking);
void captures_forget_event(CUevent event, CUcontext context); /* one, or with a context all of it */
void captures_end(struct capture *capture); /* forgets it and its streams; the graph is the caller's */

/* Whether the legacy stream would wait for a captured one; if so, and if asked, that capture is void. */
CUresult captures_implicit(bool invalidate);

#endif
