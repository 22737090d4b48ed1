/* What each library does with registered memory that kernels shall reach: device/memory.c, vgpu/host_memory.c. */
#ifndef GPUTAX_DRIVER_HOST_H
#define GPUTAX_DRIVER_HOST_H

#include "cuda_calls.h"

CUresult host_map(void *pointer, size_t bytes);
void host_unmap(void *pointer); /* whether it was mapped or not */

#endif
