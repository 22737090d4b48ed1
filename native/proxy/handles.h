/* The handles that one tenant holds: numbers that mean nothing outside of its own table, and nothing after their end. */
#ifndef GPUTAX_PROXY_HANDLES_H
#define GPUTAX_PROXY_HANDLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "calls/handle_id.h"

struct handle {
    uint32_t generation; /* rises with every use of the slot, so that an old number is refused */
    uint32_t next_free;
    enum handle_kind kind; /* HANDLE_NONE: the slot is free */
    uint64_t owner;        /* the context's or module's id that it ends with; 0 for contexts */
    void *real;            /* the backend's handle */
    void *extra;           /* from malloc: what the proxy knows about it */
};

struct handles {
    struct handle *slots;
    uint32_t used; /* slots that were ever in use */
    uint32_t capacity;
    uint32_t first_free;
    uint32_t first_generation;
    uint32_t counts[HANDLE_KINDS];
    uint32_t limits[HANDLE_KINDS];
};

/* Generations begin at a random number: a parent's handles are not valid in its forked child. */
void handles_begin(struct handles *handles);

/* Whether one more of this kind is allowed and fits. */
bool handles_room(struct handles *handles, enum handle_kind kind);

/* Needs room. */
uint64_t handles_add(struct handles *handles, enum handle_kind kind, void *real, uint64_t owner);

struct handle *handles_find(const struct handles *handles, enum handle_kind kind, uint64_t id);

/* Ends one handle and all that it owns. */
void handles_remove(struct handles *handles, enum handle_kind kind, uint64_t id);

void handles_end(struct handles *handles);

#endif
