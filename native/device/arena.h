/* Device memory: one reserved region of fixed size, cut into blocks that belong to an owner (a context). */
#ifndef GPUTAX_ARENA_H
#define GPUTAX_ARENA_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena_block;

struct arena_owner {
    struct arena_block *first;
};

struct arena {
    pthread_mutex_t lock;
    uint64_t base;
    size_t bytes;
    struct arena_block *by_address; /* all blocks */
    struct arena_block *by_size;    /* free blocks, by (bytes, address) */
    uint64_t random;                /* state of the priorities of both trees */
};

struct arena_range {
    uint64_t from, to;
};

enum { ARENA_ALIGNMENT = 256 };

bool arena_open(struct arena *arena, size_t bytes);
/* 0 when there is no room. The memory reads as zero. */
uint64_t arena_allocate(struct arena *arena, struct arena_owner *owner, size_t bytes);
/* False when `address` is not the start of a block of this owner. */
bool arena_free(struct arena *arena, struct arena_owner *owner, uint64_t address);
void arena_free_all(struct arena *arena, struct arena_owner *owner);
/* The block of this owner in which [address, address + bytes) lies wholly; `write` notes that it is no longer zero. */
bool arena_find(struct arena *arena, const struct arena_owner *owner, uint64_t address, size_t bytes, bool write,
                struct arena_range *range);
size_t arena_available(const struct arena *arena); /* of the device, also when other processes use it */

#endif
