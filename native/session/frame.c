/* Reads and writes the frames of a session. */
#include "session/frame.h"

#include <string.h>

int frame_next(struct frame_reader *reader, struct stream *stream)
{
    const size_t head = sizeof reader->head;
    if (reader->have >= head && reader->have == head + reader->head.bytes)
        reader->have = 0; /* the frame before has been dealt with */
    while (reader->have < head) {
        ssize_t got = stream_take(stream, (unsigned char *)&reader->head + reader->have, head - reader->have);
        if (got <= 0)
            return (int)got;
        reader->have += (size_t)got;
    }
    if (reader->head.bytes > FRAME_MOST)
        return -1;
    while (reader->have < head + reader->head.bytes) {
        size_t at = reader->have - head;
        ssize_t got = stream_take(stream, reader->bytes + at, reader->head.bytes - at);
        if (got <= 0)
            return (int)got;
        reader->have += (size_t)got;
    }
    return 1;
}

bool frame_numbers(const struct frame_reader *reader, uint32_t *numbers, size_t count)
{
    if (reader->head.bytes != count * sizeof *numbers)
        return false;
    memcpy(numbers, reader->bytes, reader->head.bytes);
    return true;
}

ssize_t frame_room(const struct stream *stream)
{
    ssize_t room = stream_room(stream);
    if (room < 0)
        return -1;
    size_t bytes = (size_t)room < sizeof(struct frame_head) ? 0 : (size_t)room - sizeof(struct frame_head);
    return (ssize_t)(bytes < FRAME_MOST ? bytes : FRAME_MOST);
}

bool frame_put(struct stream *stream, enum frame_kind kind, const void *bytes, size_t count)
{
    ssize_t room = stream_room(stream);
    const struct frame_head head = {(uint32_t)kind, (uint32_t)count};
    if (count > FRAME_MOST || room < (ssize_t)(sizeof head + count))
        return false;
    stream_put(stream, &head, sizeof head);
    if (count > 0)
        stream_put(stream, bytes, count);
    doorbell_ring(&stream->bell);
    return true;
}

bool frame_put_number(struct stream *stream, enum frame_kind kind, uint32_t number)
{
    return frame_put(stream, kind, &number, sizeof number);
}
