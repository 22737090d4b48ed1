/* The library that does the work (a real libcuda or the software device): its functions, its device 0. */
#ifndef GPUTAX_PROXY_BACKEND_H
#define GPUTAX_PROXY_BACKEND_H

#include <stdbool.h>
#include <stddef.h>

#include "backend_calls.h"
#include "include/software_abi.h"

struct backend {
    const char *path;
    char name[256]; /* the device's own name */
    size_t memory_bytes;
    CUdevice device;
    /* Known of the software device: what programs, modules and contexts give back is zero before anyone gets it again. Of
     * another backend nothing is known, so the proxy clears memory before it hands it out. */
    bool clears_itself;
    struct backend_calls calls;        /* NULL: the backend does not have it */
    gputax_load_bounded *load_bounded; /* only the software device has this one, */
    gputax_set_meter *set_meter;       /* this one, */
    gputax_busy *busy;                 /* and this one */
};

/* Opens the library and its device 0. False with the reason. */
bool backend_open(struct backend *backend, const char *path, char *why, size_t why_size);

/* Whether it makes a context and ends it; true for the software device, which does. */
bool backend_works(const struct backend *backend);

#endif
