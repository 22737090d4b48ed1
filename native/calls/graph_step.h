/* One step of a graph: what travels when it is instantiated and updated, and what both libraries keep of it. */
#ifndef GPUTAX_GRAPH_STEP_H
#define GPUTAX_GRAPH_STEP_H

#include <stdint.h>
#include <string.h>

#include "calls/layout.h"

enum {
    GRAPH_STEPS_MOST = 1 << 16,
    GRAPH_LIST_MOST = 32 << 20, /* bytes of all steps of one graph */
};

/* Numbers as CUgraphNodeType has them. */
enum step_kind { STEP_KERNEL = 0, STEP_COPY = 1, STEP_FILL = 2, STEP_EMPTY = 5 };

struct graph_step {
    uint32_t kind;
    uint32_t parameter_bytes; /* of a kernel; in a list they follow the step, up to a multiple of 8 */
    union {
        struct {
            uint64_t function;
            uint32_t grid[3], block[3];
            uint32_t shared_bytes;
            uint32_t padding;
        } kernel;
        struct {
            uint64_t to, from, bytes;
        } copy;
        struct {
            uint64_t to, count;
            uint32_t value;
            uint32_t width; /* bytes of an element: 1, 2 or 4 */
        } fill;
    };
};
_Static_assert(sizeof(struct graph_step) == 48, "no hidden padding travels");

/* Where the next step of a list lies behind this one. */
static inline uint64_t step_stride(const struct graph_step *step)
{
    return sizeof *step + (((uint64_t)step->parameter_bytes + 7) & ~UINT64_C(7));
}

#endif
