/* Which contexts live, and which one is current in each thread. */
#ifndef GPUTAX_VGPU_CURRENT_H
#define GPUTAX_VGPU_CURRENT_H

#include <stdint.h>

#include "calls.h"

struct context {
    uint64_t id; /* 0: free */
    unsigned int flags;
};

/* The entry of a context, of a free place for id 0, or NULL. Used inside vgpu_enter and vgpu_leave. */
struct context *vgpu_context(uint64_t id);
void vgpu_forget_context(uint64_t id);

/* The calling thread's own stack. */
CUresult vgpu_push(uint64_t id);
void vgpu_pop(void);

void vgpu_primary_reset(void);

#endif
