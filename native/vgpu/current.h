/* Which contexts live, and which one is current in each thread. */
#ifndef GPUTAX_VGPU_CURRENT_H
#define GPUTAX_VGPU_CURRENT_H

#include <stdint.h>

#include "calls.h"

struct context {
    uint64_t id; /* 0: free */
    unsigned int flags;
};

/* The primary context's handle stays the same when the context in the proxy ends and another one begins. */
#define PRIMARY_HANDLE (UINT64_C(1) << 63 | UINT64_C(14) << 28)

/* The proxy's number of a context from its handle, and back. That of a primary context that is not active never lives. */
uint64_t vgpu_context_behind(CUcontext handle);
CUcontext vgpu_context_handle(uint64_t id);
/* The living context that cuCtxGetId gives this id, or 0. */
uint64_t vgpu_context_with_id(unsigned long long id);
/* The id of the primary context, active or not: another one after each reset. */
unsigned long long vgpu_primary_id(void);

/* The entry of a context, of a free place for id 0, or NULL. Used inside vgpu_enter and vgpu_leave. */
struct context *vgpu_context(uint64_t id);
void vgpu_forget_context(uint64_t id);

/* The calling thread's own stack. */
CUresult vgpu_push(CUcontext context);
void vgpu_pop(void);

void vgpu_primary_reset(void);

#endif
