/* What the software device exports beside CUDA's calls: a load within bounds for a proxy that loads a tenant's text, a meter
 * for host memory, and the memory through which the processes of several tenants are one device. */
#ifndef GPUTAX_SOFTWARE_ABI_H
#define GPUTAX_SOFTWARE_ABI_H

#include <stdatomic.h>
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

/* Whoever serves a tenant is asked before the device takes host memory for it (contexts; registers, shared and local memory
 * of launches), and told when it gives the memory back. From any thread. Set once, before the first context. */
struct gputax_meter {
    bool (*take)(void *who, uint64_t bytes); /* false: more than the tenant may have */
    void (*give_back)(void *who, uint64_t bytes);
    void *who;
};
typedef void gputax_set_meter(const struct gputax_meter *meter);
__attribute__((visibility("default"))) gputax_set_meter gputaxSetMeter;

/* The compiler process of a process that may not start one: serves the other end of this socket until it hangs up or is
 * silent for long. Returns an exit code; not 0: what came was not an order. The process is confined by it. */
typedef int gputax_serve_compiler(int socket);
__attribute__((visibility("default"))) gputax_serve_compiler gputaxServeCompiler;

/* How long the device has been at work for this process: in kernels, and in copies and fills. */
typedef CUresult gputax_busy(uint64_t *kernels_ns, uint64_t *copies_ns);
__attribute__((visibility("default"))) gputax_busy gputaxBusy;

/* What ran compiled and what interpreted; the names are those of the JSON that gputax_soft_report writes. */
#define SOFTWARE_COUNTS(COUNT) \
    COUNT(KERNELS_COMPILED, kernels_compiled) \
    COUNT(KERNELS_FROM_CACHE, kernels_from_cache) \
    COUNT(KERNELS_REFUSED, kernels_refused) \
    COUNT(CACHE_CORRUPTED, cache_corrupted) \
    COUNT(COMPILER_FAILED, compiler_failed) \
    COUNT(LAUNCHES_COMPILED, launches_compiled) \
    COUNT(LAUNCHES_INTERPRETED, launches_interpreted) \
    COUNT(LAUNCHES_NULL, launches_null) \
    COUNT(COMPILE_NS, compile_ns)
enum {
#define COUNT(what, name) GPUTAX_SOFT_##what,
    SOFTWARE_COUNTS(COUNT)
#undef COUNT
        SOFTWARE_COUNT
};

enum { SHARED_PLACES = 256, SHARED_TEXT_BYTES = 512 };

/* What one process uses of the device. It alone writes here, and whoever made the memory clears the place when the process
 * is gone: there is no lock that a killed process could hold, and no sum that it could leave wrong. */
struct gputax_shared_place {
    _Atomic uint64_t used_bytes;
    _Atomic uint64_t contexts;
    _Atomic uint64_t submitted_ns; /* when it last had work for a throttled device */
};

/* One device for several processes: a memfd of this size, named to each by GPUTAX_SOFT_SHARED=descriptor:place. */
struct gputax_shared_device {
    _Atomic uint64_t attached;     /* set by the first process that uses it */
    _Atomic uint64_t end_ns;       /* of all work so far on the timeline */
    _Atomic uint64_t next_line_ns; /* of the log: all tenants' kernels together write so many lines, see pace.h */
    _Atomic uint64_t places;       /* those in use are below; written by whoever made the memory */
    struct gputax_shared_place place[SHARED_PLACES];
    _Atomic uint64_t counts[SOFTWARE_COUNT];
    char refusal[SHARED_TEXT_BYTES], warning[SHARED_TEXT_BYTES]; /* the last ones */
};

#endif
