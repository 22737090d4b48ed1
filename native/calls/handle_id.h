/* How a handle that a tenant holds is built: which slot, of which kind, in which use of that slot. */
#ifndef GPUTAX_HANDLE_ID_H
#define GPUTAX_HANDLE_ID_H

#include <stdint.h>

enum handle_kind {
    HANDLE_NONE,
    HANDLE_CONTEXT,
    HANDLE_STREAM,
    HANDLE_EVENT,
    HANDLE_MODULE,
    HANDLE_FUNCTION,
    HANDLE_GRAPH, /* one that can be launched */
    HANDLE_KINDS,
};

enum { HANDLE_INDEX_BITS = 28 };

/* The kind makes every handle larger than CUDA's own small stream handles 0, 1 and 2. */
static inline uint64_t handle_id(enum handle_kind kind, uint32_t index, uint32_t generation)
{
    return (uint64_t)generation << 32 | (uint64_t)kind << HANDLE_INDEX_BITS | index;
}

static inline uint32_t handle_index(uint64_t id)
{
    return (uint32_t)id & ((1u << HANDLE_INDEX_BITS) - 1);
}

static inline uint32_t handle_kind_of(uint64_t id)
{
    return (uint32_t)id >> HANDLE_INDEX_BITS;
}

static inline uint32_t handle_generation(uint64_t id)
{
    return (uint32_t)(id >> 32);
}

#endif
