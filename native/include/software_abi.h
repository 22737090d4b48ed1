/* What the software device exports beside CUDA's calls: a load within bounds, for a proxy that loads a tenant's text. */
#ifndef GPUTAX_SOFTWARE_ABI_H
#define GPUTAX_SOFTWARE_ABI_H

#include <stdbool.h>
#include <stdint.h>

#include "include/cuda_abi.h"

struct gputax_load_bounds {
    uint64_t bytes_most;        /* of device and host memory that the module, and the loading of it, may take */
    bool (*goes_on)(void *who); /* asked now and then; false: nobody waits for the module any more */
    void *who;
    uint64_t bytes; /* the answer: what the module holds until it is unloaded */
};

/* cuModuleLoadDataEx within bounds: more memory is CUDA_ERROR_OUT_OF_MEMORY, more time CUDA_ERROR_TIMEOUT, and nothing is
 * kept. */
typedef CUresult gputax_load_bounded(CUmodule *module, const void *image, unsigned int count, CUjit_option *options,
                                     void **values, struct gputax_load_bounds *bounds);
__attribute__((visibility("default"))) gputax_load_bounded gputaxModuleLoadBounded;

#endif
