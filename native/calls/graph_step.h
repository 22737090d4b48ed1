/* One step of a graph: what travels when it is instantiated and updated, and what both libraries keep of it. */
#ifndef GPUTAX_GRAPH_STEP_H
#define GPUTAX_GRAPH_STEP_H

#include <stdint.h>
#include <string.h>

#include "calls/launch_attribute.h"
#include "calls/layout.h"

enum {
    GRAPH_STEPS_MOST = 1 << 16,
    GRAPH_LIST_MOST = 32 << 20, /* bytes of all steps of one graph */
};

/* The low byte is the number that CUgraphNodeType has. */
enum step_kind {
    STEP_KERNEL = 0,
    STEP_COPY = 1,
    STEP_FILL = 2,
    STEP_EMPTY = 5,
    /* These need the program and never travel: what replays a list finds an empty step there. */
    STEP_HOST = 0x103,
    STEP_COPY_IN = 0x101,
    STEP_COPY_OUT = 0x201,
};

struct graph_step {
    uint32_t kind;
    uint32_t parameter_bytes; /* of a kernel */
    union {
        struct {
            uint64_t function;
            uint32_t grid[3], block[3];
            uint32_t shared_bytes;
            uint32_t attribute_count;
        } kernel;
        struct {
            uint64_t to, from, bytes;
        } copy;
        struct {
            uint64_t to, count;
            uint32_t value;
            uint32_t width; /* bytes of an element: 1, 2 or 4 */
        } fill;
        struct {
            uint64_t function, data;
        } host;
    };
};
_Static_assert(sizeof(struct graph_step) == 48, "no hidden padding travels");

static inline uint32_t step_type(const struct graph_step *step)
{
    return step->kind & 0xff;
}

static inline int step_is_here(const struct graph_step *step)
{
    return step->kind > 0xff;
}

/* What belongs to a kernel and follows it in a list: its parameters up to a multiple of 8, then its attributes. */
static inline uint32_t step_attributes_at(const struct graph_step *step)
{
    return (step->parameter_bytes + 7) & ~UINT32_C(7);
}

static inline uint64_t step_block_bytes(const struct graph_step *step)
{
    if (step->kind != STEP_KERNEL)
        return 0;
    return step_attributes_at(step) + (uint64_t)step->kernel.attribute_count * sizeof(struct launch_attribute);
}

/* Where the next step of a list lies behind this one. */
static inline uint64_t step_stride(const struct graph_step *step)
{
    return sizeof *step + step_block_bytes(step);
}

#endif
