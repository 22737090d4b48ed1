/* The shared region of one tenant's connection: its layout, and the two ends over it. */
#ifndef GPUTAX_WIRE_SHM_H
#define GPUTAX_WIRE_SHM_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "doorbell.h"
#include "wire.h"

enum {
    SHM_LINE = 64,
    SHM_MESSAGE_RING = 256 << 10, /* bytes, a power of two; the posted calls of an inference (ResNet-50: 101 KB) fit */
    SHM_BULK_RING = 8 << 20,      /* bytes, a power of two; four of the largest pieces */
    SHM_HALF_AWAKE = 2,           /* a sleeping sender is woken when 1/2 of its ring is free, not at each message */
};

/* One direction. Counters of bytes since the start; they never wrap in practice (2^64 bytes) and are right if they do.
 * Each counter has its own cache line, because each end writes some and the other reads them all the time. */
struct shm_lane {
    alignas(SHM_LINE) _Atomic uint64_t tail; /* written by the sender */
    alignas(SHM_LINE) _Atomic uint64_t head; /* written by the receiver */
    alignas(SHM_LINE) _Atomic uint64_t bulk_tail;
    alignas(SHM_LINE) _Atomic uint64_t bulk_head;
};

struct shm_bell {
    alignas(SHM_LINE) _Atomic uint32_t wants; /* what this end sleeps for, see wait.h */
    _Atomic uint32_t cpu;                     /* where this end runs, plus one; 0: not told */
};

enum shm_end { SHM_CLIENT, SHM_SERVER };

struct shm_region {
    alignas(SHM_LINE) _Atomic uint32_t spin_limit_us; /* written by the server, read by the client */
    struct shm_bell bell[2];                          /* by enum shm_end */
    struct shm_lane lane[2];                          /* by the end that sends */
    alignas(4096) unsigned char messages[2][SHM_MESSAGE_RING];
    alignas(4096) unsigned char bulk[2][SHM_BULK_RING];
};

/* One end over a mapped region. `lifeline` is the socket (-1: nobody is there, so nothing ever waits). The region is
 * unmapped with the wire when `mapped`. NULL without memory; then nothing was taken. */
struct wire *shm_wire(struct shm_region *region, enum shm_end end, int lifeline, uint32_t spin_us, int mapped);

/* Makes it an end of the transport "xen": it sleeps on this doorbell, which it takes, and wakes the peer by it. */
void shm_use_doorbell(struct wire *wire, const struct doorbell *doorbell);

/* For tests that play a hostile peer or look inside. */
struct waiter;
struct shm_region *shm_region_of(struct wire *wire);
struct waiter *shm_waiter_of(struct wire *wire);

#endif
