/* Two byte streams on memory that both domains see, one in each direction, with a doorbell.
 *
 * The other end can write anything at any moment. So each end keeps its own counters, copies bytes out before it reads them,
 * and takes a counter of the other end only if it is possible.
 */
#ifndef GPUTAX_SESSION_STREAM_H
#define GPUTAX_SESSION_STREAM_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire/doorbell.h"

enum {
    STREAM_PAGE = 4096,
    STREAM_RING_BYTES = 4 * STREAM_PAGE,
    STREAM_PAGES = 1 + 2 * STREAM_RING_BYTES / STREAM_PAGE,
};

struct stream_counters {
    _Atomic uint32_t written; /* by the one that writes */
    _Atomic uint32_t taken;   /* by the one that reads */
};

struct stream_pages {
    _Atomic uint8_t guest_lives, host_lives; /* cleared by the kernel of each domain when its end is gone */
    struct stream_counters to_guest, to_host;
    alignas(STREAM_PAGE) unsigned char guest_bytes[STREAM_RING_BYTES];
    unsigned char host_bytes[STREAM_RING_BYTES];
};
_Static_assert(sizeof(struct stream_pages) == STREAM_PAGES * STREAM_PAGE, "the pages of a stream have no rest");

struct stream {
    struct stream_pages *pages;
    struct doorbell bell;
    bool in_guest;
    uint32_t written, taken; /* this end's own; those in the pages are copies for the other end */
};

/* What can be written now, or -1: the other end's counter is impossible. */
ssize_t stream_room(const struct stream *stream);

/* Writes all of it; the caller has asked for the room. */
void stream_put(struct stream *stream, const void *bytes, size_t count);

/* Takes at most `most` bytes; 0: there are none; -1: the other end's counter is impossible. */
ssize_t stream_take(struct stream *stream, void *to, size_t most);

/* Whether the other end is gone, as far as the pages say. */
bool stream_is_over(const struct stream *stream);

#endif
