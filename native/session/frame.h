/* Frames of a session: kind, length, bytes. A reader holds one frame in memory of its own and refuses every other length. */
#ifndef GPUTAX_SESSION_FRAME_H
#define GPUTAX_SESSION_FRAME_H

#include <stdbool.h>

#include "session/stream.h"

enum frame_kind {
    /* to the guest */
    FRAME_REQUEST = 1, /* a part of the request, see request.h */
    FRAME_START,       /* the request is whole */
    FRAME_INPUT,       /* of the program's stdin */
    FRAME_INPUT_END,
    FRAME_SIGNAL, /* uint32_t */
    FRAME_WINDOW, /* uint32_t rows, columns */
    /* to dom0 */
    FRAME_OUTPUT = 16,
    FRAME_ERRORS,
    FRAME_TAKEN, /* uint32_t: the number of bytes of input that have room again */
    FRAME_EXIT,  /* uint32_t: the exit code, the last frame */
};

struct frame_head {
    uint32_t kind, bytes;
};

enum {
    FRAME_MOST = 8192,
    INPUT_WINDOW =
        32768, /* bytes of input on the way that the program has not read; so a signal never waits behind them */
};

struct frame_reader {
    struct frame_head head;
    unsigned char bytes[FRAME_MOST];
    size_t have; /* of head and bytes */
};

/* 1: the next frame is in the reader; 0: not yet; -1: the other end broke the rules. */
int frame_next(struct frame_reader *reader, struct stream *stream);

/* The number in a frame that has exactly `count` of them. */
bool frame_numbers(const struct frame_reader *reader, uint32_t *numbers, size_t count);

/* How many bytes a frame written now may have, or -1 as for stream_room. */
ssize_t frame_room(const struct stream *stream);

/* False: there is no room, or the other end broke the rules. */
bool frame_put(struct stream *stream, enum frame_kind kind, const void *bytes, size_t count);
bool frame_put_number(struct stream *stream, enum frame_kind kind, uint32_t number);

#endif
