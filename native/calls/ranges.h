/* A tenant's device memory as a sorted table of address ranges; both sides keep one, the proxy's is the one that counts. */
#ifndef GPUTAX_RANGES_H
#define GPUTAX_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RANGES_MOST = 1 << 16 }; /* 2 MiB of table; a program with more live allocations gets OUT_OF_MEMORY */

/* Host memory that kernels reach: cuMemFree does not free it. */
#define RANGE_HOST UINT64_MAX

struct range {
    uint64_t base;
    uint64_t bytes;
    uint64_t context;
    uint64_t module; /* 0: from cuMemAlloc; RANGE_HOST; else a global variable of that module, which cannot be freed */
};

struct ranges {
    struct range *items;
    size_t count;
    size_t capacity;
};

/* Makes sure that one more fits. */
bool ranges_room(struct ranges *ranges);

/* Needs room. A range that is already there (the same global asked for twice) stays as it is. */
void ranges_add(struct ranges *ranges, struct range range);

/* The range that holds all of these bytes, or NULL. Zero bytes need a pointer inside a range or at its end. */
struct range *ranges_cover(const struct ranges *ranges, uint64_t pointer, uint64_t bytes);

/* The allocation that begins here, or NULL. */
struct range *ranges_allocation(const struct ranges *ranges, uint64_t base);

void ranges_remove(struct ranges *ranges, struct range *range);

/* Forgets all ranges of a context (module 0) or of a module. */
void ranges_drop(struct ranges *ranges, uint64_t context, uint64_t module);

void ranges_clear(struct ranges *ranges);

#endif
