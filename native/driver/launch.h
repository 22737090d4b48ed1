/* A launch as both libraries run it, whichever call asked for it. */
#ifndef GPUTAX_DRIVER_LAUNCH_H
#define GPUTAX_DRIVER_LAUNCH_H

#include "calls/launch_attribute.h"
#include "cuda_calls.h"

struct launch {
    CUfunction function;
    uint32_t grid[3], block[3];
    uint32_t shared_bytes;
    uint32_t attribute_count;
    CUstream stream;
    void **parameters, **extra; /* at most one of them */
    struct launch_attribute attributes[LAUNCH_ATTRIBUTES_MOST];
};

/* What each library brings: device/launch.c, vgpu/launch.c. */
CUresult launch_run(const struct launch *launch);

#endif
