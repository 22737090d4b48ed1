/* A kernel function as the tenant knows it: where each of its parameters lies. */
#ifndef GPUTAX_VGPU_FUNCTIONS_H
#define GPUTAX_VGPU_FUNCTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "calls.h"
#include "calls/layout.h"

enum { ATTRIBUTES_KEPT = 18, OCCUPANCIES_KEPT = 40 }; /* the second: one search for a block size asks 32 times */

struct occupancy {
    int block_size, blocks;
    size_t shared_bytes;
    unsigned int flags;
};

struct function {
    uint64_t id;
    uint64_t module;
    uint64_t context;
    uint32_t count;
    uint32_t bytes;            /* end of the last parameter */
    uint32_t attributes_known; /* one bit each; what the proxy answered until an attribute is set */
    int attributes[ATTRIBUTES_KEPT];
    uint32_t attributes_set; /* one bit each; the same setting again is none */
    int settings[ATTRIBUTES_KEPT];
    uint32_t occupancies_count;
    struct occupancy occupancies[OCCUPANCIES_KEPT];
    struct parameter parameters[PARAMETERS_MOST];
};

/* The function of this handle, or NULL. Used inside vgpu_enter and vgpu_leave. */
struct function *vgpu_function(CUfunction handle);

/* Sets `bytes`; false if a parameter does not fit into a message. */
bool function_layout_fits(struct function *function);

#endif
