/* Unpacks an LZ4 block: runs of literals, each followed by a copy of earlier output. */
#include <stdbool.h>
#include <string.h>

#include "device/fatbin/fatbin.h"

/* A length goes on in further bytes while they are 255. */
static bool add_length(const uint8_t **at, const uint8_t *end, size_t most, size_t *length)
{
    uint8_t more;
    do {
        if (*at == end || *length > most)
            return false;
        more = *(*at)++;
        *length += more;
    } while (more == 255);
    return true;
}

int64_t lz4_unpack(const uint8_t *from, size_t bytes, uint8_t *to, size_t room)
{
    const uint8_t *at = from, *end = from + bytes;
    size_t done = 0;
    while (at < end) {
        uint8_t token = *at++;
        size_t literals = token >> 4, length = token & 15;
        if (literals == 15 && !add_length(&at, end, room, &literals))
            return -1;
        if (literals > (size_t)(end - at) || literals > room - done)
            return -1;
        memcpy(to + done, at, literals);
        at += literals;
        done += literals;
        if (at == end) /* the last run has no copy */
            break;
        if (end - at < 2)
            return -1;
        size_t distance = (size_t)(at[0] | at[1] << 8);
        at += 2;
        if (length == 15 && !add_length(&at, end, room, &length))
            return -1;
        length += 4;
        if (distance == 0 || distance > done || length > room - done)
            return -1;
        for (; length > 0; length--, done++) /* it may overlap what it writes */
            to[done] = to[done - distance];
    }
    return (int64_t)done;
}
