/* What a guest writes to XenStore for each connection, and how dom0 reads it: numbers only, all of them checked. */
#ifndef GPUTAX_LINK_KEY_H
#define GPUTAX_LINK_KEY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "link/grants.h"

/* Below the guest's own subtree, which it may write. */
#define LINK_FOLDER "data/gputax/link"
enum { KEY_VERSION = 1, KEY_BYTES = 256 };

struct link_key {
    uint32_t control, bell; /* ports */
    uint32_t references[LINK_PAGES];
};

static inline void key_write(const struct link_key *key, char text[KEY_BYTES])
{
    int used = snprintf(text, KEY_BYTES, "%d %u %u", (int)KEY_VERSION, key->control, key->bell);
    for (int i = 0; i < LINK_PAGES && used > 0 && used < KEY_BYTES; i++)
        used += snprintf(text + used, KEY_BYTES - (size_t)used, " %u", key->references[i]);
}

static inline bool key_read(struct link_key *key, const char *text)
{
    uint32_t numbers[3 + LINK_PAGES] = {0};
    for (int i = 0; i < 3 + LINK_PAGES; i++) {
        char *end;
        unsigned long number = *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : UINT64_MAX;
        if (number > UINT32_MAX || (*end != (i == 2 + LINK_PAGES ? 0 : ' ')))
            return false;
        numbers[i] = (uint32_t)number;
        text = end + 1;
    }
    *key = (struct link_key){.control = numbers[1], .bell = numbers[2]};
    for (int i = 0; i < LINK_PAGES; i++)
        key->references[i] = numbers[3 + i];
    return numbers[0] == KEY_VERSION && key->control != 0 && key->bell != 0;
}

#endif
