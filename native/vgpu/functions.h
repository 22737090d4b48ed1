/* A kernel function as the tenant knows it: where each of its parameters lies. */
#ifndef GPUTAX_VGPU_FUNCTIONS_H
#define GPUTAX_VGPU_FUNCTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "calls.h"
#include "calls/layout.h"

struct function {
    uint64_t id;
    uint64_t module;
    uint64_t context;
    uint32_t count;
    uint32_t bytes; /* end of the last parameter */
    struct parameter parameters[PARAMETERS_MOST];
};

/* The function of this handle, or NULL. Used inside vgpu_enter and vgpu_leave. */
struct function *vgpu_function(CUfunction handle);

/* Sets `bytes`; false if a parameter does not fit into a message. */
bool function_layout_fits(struct function *function);

#endif
