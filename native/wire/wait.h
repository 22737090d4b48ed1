/* How one end of a shared-memory connection waits for the other: spin while that pays, then sleep on a futex, or on a
 * doorbell where the peer is in another domain.
 *
 * Everything that is waited for is a counter that only the peer moves. `*counter - from >= at_least` (modulo 2^64) is
 * true for what was hoped for and also for every value that an honest peer cannot write, so that the caller gets to see
 * it and can break the connection.
 */
#ifndef GPUTAX_WIRE_WAIT_H
#define GPUTAX_WIRE_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "doorbell.h"
#include "wire.h"

enum {
    WAIT_SPIN_MOST_US = 500, /* whatever the limit says */
    WAIT_LIFELINE_MS = 100,  /* a sleeper looks this often whether its peer still lives */
    WAIT_PROBE_EVERY = 16,   /* while sleeping is the habit, every so many waits spin again to learn */
    WAIT_NAP_MARGIN_US = 80, /* timer slack (50 us) and wake-up of a halted core (25 us measured) */
};

/* What a sleeper sleeps for: the value of its bell. */
enum wait_kind {
    WAIT_AWAKE = 0,
    WAIT_MESSAGE,
    WAIT_BULK,
    WAIT_ROOM,
    WAIT_BULK_ROOM,
    WAIT_KINDS,
};

struct wait_for {
    enum wait_kind kind;
    const _Atomic uint64_t *counter;
    uint64_t from;
    uint64_t at_least;
};

/* What recent waits of one kind were like. */
struct wait_habit {
    uint64_t clipped_ns; /* mean with every wait clipped to twice the limit: one long pause is not a habit */
    uint64_t mean_ns;
    uint64_t deviation_ns; /* mean absolute deviation */
    uint32_t since_probe;
};

/* How to wait: sleep this long, then spin this long, then sleep until woken. */
struct wait_plan {
    uint64_t nap_ns;
    uint64_t spin_ns;
};

struct waiter {
    _Atomic uint32_t *mine;            /* this end's bell, in shared memory */
    _Atomic uint32_t *peers;           /* the peer's bell */
    _Atomic uint32_t *my_cpu;          /* where this end runs, plus one, for the peer; NULL: not told */
    const _Atomic uint32_t *peers_cpu; /* the same of the peer; NULL: not known */
    uint32_t told_cpu;                 /* what was last written to my_cpu */
    const _Atomic uint32_t *limit_us;  /* the server's is private, the client's is the word that the server writes */
    const struct doorbell *doorbell;   /* NULL: a futex on the bells, both ends are on one machine */
    int lifeline;                      /* the handshake's socket; hung up when the peer is gone; -1: the peer is gone */
    uint32_t lifeline_ms;              /* WAIT_LIFELINE_MS, longer in a test that a lost wake-up must not pass */
    _Atomic bool shut;
    struct wait_habit habits[WAIT_KINDS];
    _Atomic uint64_t waits, spins_paid, sleeps, wakes;
    _Atomic uint64_t shared_cpu; /* spins that ended because the peer needs this very CPU */
};

static inline bool wait_ready(const struct wait_for *want)
{
    return atomic_load(want->counter) - want->from >= want->at_least;
}

/* WIRE_OK when *want is true, WIRE_CLOSED when the peer is gone or this end was shut and it still is not. */
int wait_until(struct waiter *waiter, const struct wait_for *want);

/* Wakes the peer if it sleeps for `kind`. The counter must have been stored before with memory_order_seq_cst. */
void wait_wake(struct waiter *waiter, enum wait_kind kind);

/* Wakes the peer whatever it sleeps for, so that it looks at its life line. */
void wait_wake_any(struct waiter *waiter);

/* Whether the peer has hung up its life line. */
bool wait_peer_gone(const struct waiter *waiter);

/* From any thread: ends all waiting of this end. */
void wait_shut(struct waiter *waiter);

/* The two pure parts, apart for tests. */
struct wait_plan wait_choose(struct wait_habit *habit, uint64_t limit_ns);
void wait_learn(struct wait_habit *habit, uint64_t waited_ns, uint64_t limit_ns, bool spun);

#endif
