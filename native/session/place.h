/* Where two ends of a session meet: what dom0 asks for in XenStore and what the guest answers there, numbers only. */
#ifndef GPUTAX_SESSION_PLACE_H
#define GPUTAX_SESSION_PLACE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "session/stream.h"

/* Below the guest's own subtree. dom0 makes ASKED/NAME, the guest answers with OFFERED/NAME; the name is dom0's. */
#define PLACE_ASKED "data/gputax/asked"
#define PLACE_OFFERED "data/gputax/offered"
enum { PLACE_VERSION = 1, PLACE_BYTES = 256, PLACE_NUMBERS = 2 + STREAM_PAGES };

struct place {
    uint32_t port;
    uint32_t references[STREAM_PAGES];
};

static inline void place_write(const struct place *place, char text[PLACE_BYTES])
{
    int used = snprintf(text, PLACE_BYTES, "%d %u", (int)PLACE_VERSION, place->port);
    for (int i = 0; i < STREAM_PAGES && used > 0 && used < PLACE_BYTES; i++)
        used += snprintf(text + used, PLACE_BYTES - (size_t)used, " %u", place->references[i]);
}

static inline bool place_read(struct place *place, const char *text)
{
    uint32_t numbers[PLACE_NUMBERS];
    for (int i = 0; i < PLACE_NUMBERS; i++) {
        char *end = NULL;
        unsigned long number = *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : UINT64_MAX;
        if (number > UINT32_MAX || *end != (i == PLACE_NUMBERS - 1 ? 0 : ' '))
            return false;
        numbers[i] = (uint32_t)number;
        text = end + 1;
    }
    place->port = numbers[1];
    for (int i = 0; i < STREAM_PAGES; i++)
        place->references[i] = numbers[2 + i];
    return numbers[0] == PLACE_VERSION && place->port != 0;
}

#endif
