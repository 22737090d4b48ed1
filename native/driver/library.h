/* Kernels of libraries, which programs also give where a function is wanted. */
#ifndef GPUTAX_DRIVER_LIBRARY_H
#define GPUTAX_DRIVER_LIBRARY_H

#include <stdint.h>

#include "cuda_calls.h"

/* No pointer has this bit, and no handle of a tenant this kind: a kernel is told from a function by its number. */
#define KERNEL_TAG (UINT64_C(1) << 63 | UINT64_C(15) << 28)

CUresult kernel_function(CUfunction kernel, CUfunction *function);

/* Turns a kernel into its function in the current context; a function stays as it is. Called without any lock. */
static inline CUresult function_of(CUfunction given, CUfunction *function)
{
    if (((uint64_t)(uintptr_t)given & KERNEL_TAG) == KERNEL_TAG)
        return kernel_function(given, function);
    *function = given;
    return CUDA_SUCCESS;
}

#endif
