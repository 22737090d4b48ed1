/* The tables of stream capture: captures, the streams that take part, and the events recorded in them. */
#include <stdlib.h>
#include <string.h>

#include "driver/captures.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
struct capture_tables capture_tables;
_Thread_local CUstreamCaptureMode captures_thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

void captures_lock(void)
{
    pthread_mutex_lock(&lock);
}

void captures_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* --- lists of nodes --- */

bool captures_copy_nodes(struct nodes *to, const struct nodes *from)
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

bool captures_join_nodes(struct nodes *to, const CUgraphNode *more, size_t count)
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

struct member *captures_find_member(CUstream stream)
{
    struct member *at = capture_tables.members;
    while (at != NULL && at->stream != stream)
        at = at->next;
    return at;
}

struct captured_event *captures_find_event(CUevent event)
{
    struct captured_event *at = capture_tables.events;
    while (at != NULL && at->event != event)
        at = at->next;
    return at;
}

struct capture *captures_find(cuuint64_t id)
{
    struct capture *at = capture_tables.captures;
    while (at != NULL && at->id != id)
        at = at->next;
    return at;
}

struct member *captures_add_member(CUstream stream, struct capture *capture, bool is_blocking)
{
    struct member *made = calloc(1, sizeof *made);
    if (made == NULL)
        return NULL;
    *made = (struct member){
        .next = capture_tables.members, .stream = stream, .capture = capture, .is_blocking = is_blocking};
    capture_tables.members = made;
    return made;
}

void captures_forget_event(CUevent event, CUcontext context)
{
    for (struct captured_event **at = &capture_tables.events; *at != NULL;) {
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
void captures_end(struct capture *capture)
{
    for (struct member **at = &capture_tables.members; *at != NULL;) {
        struct member *one = *at;
        if (one->capture != capture) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        free(one->last.items);
        free(one);
    }
    struct capture **place = &capture_tables.captures;
    while (*place != capture)
        place = &(*place)->next;
    *place = capture->next;
    free(capture);
    front_watch_add(-1);
}

void captures_reset(void)
{
    pthread_mutex_init(&lock, NULL);
    while (capture_tables.captures != NULL)
        captures_end(capture_tables.captures);
    while (capture_tables.events != NULL)
        captures_forget_event(capture_tables.events->event, NULL);
}
