/* The proxy as a whole: its tenants, its limits, and the wait policy that it keeps for all of them. */
#ifndef GPUTAX_PROXY_PROXY_H
#define GPUTAX_PROXY_PROXY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "proxy/backend.h"
#include "proxy/tenant.h"
#include "wire/spin_budget.h"

enum { ENDED_KEPT = 64, TENANTS_MOST = 128, PLACES_MOST = 64 };

struct proxy {
    struct backend backend;
    struct limits limits;
    enum spin_policy policy;
    unsigned int places;  /* each has its share of the tenants, so that none can keep the others out; 0: no places */
    bool clears_memory;   /* before it is handed out */
    pthread_mutex_t lock; /* over the lists; held only for moments */
    pthread_cond_t ended_one;
    struct tenant *tenants; /* also those that are still in the handshake */
    unsigned int tenants_count;
    uint64_t tenants_seen;
    struct record *ended[ENDED_KEPT]; /* a ring; ended_count counts on */
    uint64_t ended_count;
    struct record *totals; /* sums over ended tenants */
    _Atomic bool stopping;
    _Atomic unsigned int context_flags;
    _Atomic uint32_t spin_us, active_tenants, foreign_milli, usable_milli, quota_milli;
};

void proxy_begin(struct proxy *proxy);

/* Takes a connection: a thread of its own does the handshake and serves it. */
void proxy_take(struct proxy *proxy, int socket, const struct wire_peer *peer);

/* Ends all tenants and waits for them, at most this long. */
void proxy_stop(struct proxy *proxy, unsigned int milliseconds);

/* Decides again how long everyone may spin; called every few ms by a thread of its own. */
void proxy_govern(struct proxy *proxy);

const char *proxy_wait_policy(const struct proxy *proxy);
static inline unsigned int proxy_context_flags(const struct proxy *proxy)
{
    return atomic_load_explicit(&proxy->context_flags, memory_order_relaxed);
}
static inline bool proxy_stopping(const struct proxy *proxy)
{
    return atomic_load_explicit(&proxy->stopping, memory_order_relaxed);
}

/* Gives the images of a context's modules back to the memory quota (serve_modules.c). */
void serve_end_modules(struct tenant *tenant, uint64_t context);

/* Ends the host memory that a context's kernels reach, while the context still lives (serve_host.c). */
void serve_end_host(struct tenant *tenant, uint64_t context);
bool serve_maps_host(const struct tenant *tenant); /* whether there can be any */

/* Gives the lists of a context's graphs back to the memory quota (serve_graphs.c). */
void serve_end_graphs(struct tenant *tenant, uint64_t context);

/* A status socket: its threads never make a tenant wait longer than it takes to copy the counters. That of a place shows
 * the living tenants of the place alone, one reader after the other, so that its readers delay no others. */
bool status_begin(struct proxy *proxy, int listener, unsigned int place);

/* Whether a proxy answers at this status socket, for a probe: 0, or 1 with the reason on stderr. */
int status_check(const char *path);

struct places {
    const char *socket; /* the proxy's own; the places are beside it */
    unsigned int count;
    int listeners[PLACES_MOST], status[PLACES_MOST];
};

/* Makes the folders, listens in each. False with the reason; what was begun is then ended with places_end. */
bool places_begin(struct places *places, struct proxy *proxy, const char *socket, unsigned int count, char *why,
                  size_t why_size);
void places_end(struct places *places);

#endif
