/* Memory of a launch that the next launch of the context uses again: warps, register files, shared and local memory. */
#ifndef GPUTAX_PTX_SCRATCH_H
#define GPUTAX_PTX_SCRATCH_H

#include "device/ptx/inner.h"

/* The registers of one warp. A warp that runs to its end without waiting gives its file to the next one, still warm. */
struct register_file {
    struct register_file *next;
    char *registers;
    const struct ptx_code *code; /* whose constants are in it */
    uint64_t launch;             /* for which launch, warp and block its special registers are filled */
    uint32_t warp;
    uint32_t block[3];
};

/* What kernels have printed and nobody has seen yet. */
struct ptx_output {
    char *text;
    size_t used;
    uint64_t lost; /* bytes that had no room */
};

struct ptx_scratch {
    struct warp *warps;
    uint32_t warp_count;
    struct register_file *files; /* not in use */
    uint32_t file_bytes;         /* size of the registers of each */
    uint32_t file_count;         /* of all, also those in use */
    char *shared, *local;
    size_t shared_bytes, local_bytes;
    struct access_cache *caches;
    uint32_t cache_count;
    uint64_t launch;
    struct ptx_output output;
    uint64_t metered_bytes; /* of what is above; while a launch runs, of all that it may need */
};

/* Bytes between the shared memory of two blocks that live at once. */
static inline uint64_t scratch_shared_stride(const struct run *run)
{
    return (run->shared_bytes + 127) & ~UINT64_C(127);
}
/* For so many warps of all blocks that live at once, and so many of these. All that the launch may need is metered here, so
 * that a launch without enough memory has not begun: CUDA_ERROR_OUT_OF_MEMORY. */
CUresult scratch_prepare(struct ptx_scratch *scratch, struct run *run, uint32_t warps, uint32_t blocks);
void scratch_settle(struct ptx_scratch *scratch); /* after the launch: what it did not need is given back */
bool scratch_take(struct ptx_scratch *scratch, struct run *run, struct warp *w, const uint32_t *block);
void scratch_give(struct ptx_scratch *scratch, struct warp *w);
bool barrier_release(struct run *run, struct warp *warps, uint32_t count);

#endif
