/* One tenant of the proxy: its connection, what it holds on the device, its limits and its counters. */
#ifndef GPUTAX_PROXY_TENANT_H
#define GPUTAX_PROXY_TENANT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "calls.h"
#include "calls/ranges.h"
#include "proxy/backend.h"
#include "proxy/bucket.h"
#include "proxy/handles.h"
#include "wire/handshake.h"

struct limits { /* 0: no limit, but what the tables hold */
    uint64_t memory_bytes;
    uint64_t streams;
    uint64_t modules;
    uint64_t launches_per_s;
};

/* What is known about a tenant also after its end. Written by its own thread, read by the status thread. */
struct record {
    uint64_t id;
    struct wire_peer peer;
    char transport[WIRE_TRANSPORT_NAME_MAX];
    uint64_t memory_limit_bytes;
    _Atomic uint64_t memory_bytes;
    _Atomic uint64_t calls[CALL_COUNT];
    _Atomic uint64_t posted;                    /* of these, messages without an answer */
    _Atomic uint64_t replayed;                  /* steps of graphs that were run */
    _Atomic uint64_t errors;                    /* calls that did not succeed */
    _Atomic uint64_t refused;                   /* messages that were no well-formed calls */
    _Atomic uint64_t bytes_in, bytes_out;       /* copied to and from the device */
    _Atomic uint64_t cleared_bytes, cleared_ns; /* zeroed before someone else may get them, and the time it took */
    _Atomic uint64_t throttled_ns;              /* waited for the launch quota */
    _Atomic uint64_t last_call_ns;              /* 0: none yet */
    const char *ended;                          /* NULL while it lives: "left", "broke the protocol", "refused" */
};

struct tenant {
    struct tenant *next;
    struct proxy *proxy;
    const struct backend *backend;
    struct record *record;
    struct wire *wire; /* NULL until the handshake is done; set and cleared under the proxy's lock */
    int socket;        /* until the handshake takes it */
    int process;       /* a descriptor that becomes readable when the tenant's process ends, or -1 */
    struct limits limits;
    struct handles handles;
    struct ranges memory;
    struct mapped *mapped; /* host memory that its kernels reach */
    uint32_t mapped_count;
    struct bucket launches;
    uint64_t current; /* the context that is current in this thread, 0 for none */
    uint64_t primary;
    CUresult pending;     /* the first error of posted calls that has not been reported yet */
    uint64_t image_bytes; /* of loaded modules; they count as memory */
};

/* Prepares the tables and the limits. */
void tenant_begin(struct tenant *tenant);

/* Serves the tenant until it leaves; returns how it ended. */
const char *tenant_serve(struct tenant *tenant);

/* Frees all that the tenant holds on the device, its memory cleared, and its tables. */
void tenant_end(struct tenant *tenant);

uint64_t now_ns(void);

#endif
