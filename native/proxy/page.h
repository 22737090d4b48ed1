/* The memory that the broker shares with one worker: settings and orders one way, counters the other way.
 *
 * The broker makes it and seals it, so that a worker cannot shrink it under the broker's feet. A worker may have been taken
 * over by its tenant: the broker reads nothing here but numbers that it adds up and shows, and keeps its own copy of
 * everything that it decides by.
 */
#ifndef GPUTAX_PROXY_PAGE_H
#define GPUTAX_PROXY_PAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "calls.h"
#include "include/software_abi.h"
#include "wire/handshake.h"
#include "wire/spin_budget.h"

enum { SEATS = SHARED_PLACES }; /* of connected tenants, each with a worker */

/* The descriptors that a worker is born with; all others are closed. A compiler process has the first two: what is its
 * socket is the other end of its worker's WORKER_COMPILER. */
enum worker_descriptor {
    WORKER_SOCKET = 3, /* the tenant's connection */
    WORKER_PAGE,
    WORKER_ACCOUNT,
    WORKER_DEVICE,   /* a software device's common part */
    WORKER_LIFE,     /* a pipe of which the broker alone has the other end */
    WORKER_PEER,     /* a pidfd of the tenant's process, if it is known */
    WORKER_COMPILER, /* for texts to compile, if the backend does that */
    WORKER_DESCRIPTORS,
};

struct limits { /* 0: no limit, but what the tables hold */
    uint64_t memory_bytes;
    uint64_t streams;
    uint64_t modules;
    uint64_t launches_per_s;
    uint64_t time_share; /* of the device, in hundredths of a percent; the software device alone keeps it */
};

/* Written by the broker before the worker starts. */
struct settings {
    bool probe; /* only say what the backend is */
    bool always_clear;
    enum spin_policy policy;
    uint32_t seat;
    pid_t broker;
    uint64_t tenant;
    struct wire_peer peer;
    struct limits limits; /* memory_bytes is never 0 here */
    uid_t user;           /* of the worker's own, 0: the broker's */
    bool user_asked;      /* by the operator: also where the backend is a driver */
    uint64_t unconfined;  /* measures of confine.h that the operator has switched off */
    char backend[4096];
};

/* How far a tenant has come; written by its worker. */
enum { TENANT_GREETS, TENANT_SERVED, TENANT_LEFT, TENANT_BROKE, TENANT_REFUSED, TENANT_STOPPED };

/* The counters of a tenant. Written by its worker, read by the broker; nothing but 64-bit numbers. */
struct record {
    _Atomic uint64_t state;
    _Atomic uint64_t transport;   /* its number in wire_transports, from 1 */
    _Atomic uint64_t confinement; /* what is in force, see confine.h */
    _Atomic uint64_t memory_bytes;
    _Atomic uint64_t posted;                    /* messages without an answer */
    _Atomic uint64_t replayed;                  /* steps of graphs that were run */
    _Atomic uint64_t errors;                    /* calls that did not succeed */
    _Atomic uint64_t refused;                   /* messages that were no well-formed calls */
    _Atomic uint64_t bytes_in, bytes_out;       /* copied to and from the device */
    _Atomic uint64_t cleared_bytes, cleared_ns; /* zeroed before someone else may get them, and the time it took */
    _Atomic uint64_t throttled_ns;              /* waited for the launch quota */
    _Atomic uint64_t last_call_ns;              /* 0: none yet */
    _Atomic uint64_t busy_since_ns;             /* when the call began that is being served; 0: none is */
    _Atomic uint64_t calls[CALL_COUNT];
};

/* What a worker found that was started as a probe. */
struct finding {
    uint64_t memory_bytes;
    bool clears_itself;
    uint64_t confinement; /* what a worker has here, see confine.h */
    char device[WIRE_NAME_MAX];
    char why[512]; /* it cannot be used */
};

struct page {
    struct settings settings;
    _Atomic uint32_t spin_us; /* how long both ends may spin; written by the broker all the time */
    struct finding finding;
    struct record record;
};

#endif
