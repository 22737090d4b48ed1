/* The tenant of this worker: its connection, what it holds on the device, its limits and its counters. */
#ifndef GPUTAX_PROXY_TENANT_H
#define GPUTAX_PROXY_TENANT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "calls/ranges.h"
#include "proxy/account.h"
#include "proxy/backend.h"
#include "proxy/handles.h"
#include "proxy/page.h"

struct tenant {
    struct settings settings; /* a copy that nobody else can change */
    struct page *page;
    struct account *account; /* of its identity */
    struct record *record;   /* in the page */
    const struct backend *backend;
    struct wire *wire;
    int process;        /* a descriptor that becomes readable when the tenant's process ends, or -1 */
    bool clears_memory; /* before it is handed out */
    uint32_t spin_us;   /* as the wire was last told */
    struct handles handles;
    struct ranges memory;
    struct mapped *mapped; /* host memory that its kernels reach */
    uint32_t mapped_count;
    uint64_t handle_bytes; /* of the memory quota, for the handles in the table */
    uint64_t current;      /* the context that is current in this thread, 0 for none */
    uint64_t primary;
    CUresult pending; /* the first error of posted calls that has not been reported yet */
};

extern _Atomic bool tenant_stopping; /* the broker ends */

/* Prepares the tables and the limits. */
void tenant_begin(struct tenant *tenant);

/* Serves the tenant until it leaves; returns how it ended, a state of page.h. */
uint64_t tenant_serve(struct tenant *tenant);

/* Frees all that the tenant holds on the device, its memory cleared, and its tables. */
void tenant_end(struct tenant *tenant);

/* Gives the images of a context's modules back to the memory quota (serve_modules.c). */
void serve_end_modules(struct tenant *tenant, uint64_t context);

/* Ends the host memory that a context's kernels reach, while the context still lives (serve_host.c). */
void serve_end_host(struct tenant *tenant, uint64_t context);
bool serve_maps_host(const struct tenant *tenant); /* whether there can be any */

/* Gives the lists of a context's graphs back to the memory quota (serve_graphs.c). */
void serve_end_graphs(struct tenant *tenant, uint64_t context);

#endif
