/* Byte streams in shared memory; see stream.h for what is believed. */
#include "session/stream.h"

#include <string.h>

static struct stream_counters *counters(const struct stream *stream, bool out)
{
    return stream->in_guest == out ? &stream->pages->to_host : &stream->pages->to_guest;
}

static unsigned char *bytes_of(const struct stream *stream, bool out)
{
    return stream->in_guest == out ? stream->pages->host_bytes : stream->pages->guest_bytes;
}

ssize_t stream_room(const struct stream *stream)
{
    uint32_t used = stream->written - atomic_load(&counters(stream, true)->taken);
    return used > STREAM_RING_BYTES ? -1 : (ssize_t)(STREAM_RING_BYTES - used);
}

void stream_put(struct stream *stream, const void *bytes, size_t count)
{
    unsigned char *ring = bytes_of(stream, true);
    size_t at = stream->written % STREAM_RING_BYTES;
    size_t first = count < STREAM_RING_BYTES - at ? count : STREAM_RING_BYTES - at;
    memcpy(ring + at, bytes, first);
    memcpy(ring, (const unsigned char *)bytes + first, count - first);
    stream->written += (uint32_t)count;
    atomic_store(&counters(stream, true)->written, stream->written);
}

ssize_t stream_take(struct stream *stream, void *to, size_t most)
{
    const unsigned char *ring = bytes_of(stream, false);
    uint32_t waiting = atomic_load(&counters(stream, false)->written) - stream->taken;
    if (waiting > STREAM_RING_BYTES)
        return -1;
    size_t count = waiting < most ? waiting : most;
    size_t at = stream->taken % STREAM_RING_BYTES;
    size_t first = count < STREAM_RING_BYTES - at ? count : STREAM_RING_BYTES - at;
    memcpy(to, ring + at, first);
    memcpy((unsigned char *)to + first, ring, count - first);
    stream->taken += (uint32_t)count;
    atomic_store(&counters(stream, false)->taken, stream->taken);
    return (ssize_t)count;
}

bool stream_is_over(const struct stream *stream)
{
    return atomic_load(stream->in_guest ? &stream->pages->host_lives : &stream->pages->guest_lives) == 0;
}
