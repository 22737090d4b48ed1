/* A binary image for a GPU (cubin): its kernels with their parameters, and its variables. Its code is not looked at. */
#ifndef GPUTAX_CUBIN_H
#define GPUTAX_CUBIN_H

#include "device/ptx/ptx.h"

struct cubin;

/* Reads `bytes` bytes of a tenant's and places the variables. `bytes_most` bounds device and host memory together. */
CUresult cubin_load(const void *image, size_t bytes, const struct ptx_memory *memory, uint64_t bytes_most,
                    struct cubin **cubin, struct ptx_log *log);
void cubin_unload(struct cubin *cubin);
uint64_t cubin_bytes(const struct cubin *cubin); /* of host and device memory that it holds */
size_t cubin_kernels(const struct cubin *cubin, const struct ptx_kernel **kernels);
const struct ptx_variable *cubin_variable_named(const struct cubin *cubin, const char *name);
bool cubin_owns_address(const struct cubin *cubin, uint64_t address); /* the start of a section of variables */

#endif
