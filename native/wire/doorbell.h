/* A descriptor by which each end of a connection wakes the other where a futex cannot reach: it is in another domain.
 *
 * It is an event channel of Xen (/dev/xen/evtchn, with the number of this end's port), or, without a port, one end of a socket
 * pair, which behaves alike: rung by one end, readable at the other until it is taken.
 */
#ifndef GPUTAX_WIRE_DOORBELL_H
#define GPUTAX_WIRE_DOORBELL_H

#include <stdint.h>

struct doorbell {
    int descriptor; /* never waits by itself: O_NONBLOCK, or a socket */
    uint32_t port;  /* this end's port of the event channel; 0: a socket */
};

/* Wakes the other end. A bell that has been rung and not been taken yet stays rung. */
void doorbell_ring(const struct doorbell *doorbell);

/* Takes all rings so far, so that the descriptor is readable again only after a new one. */
void doorbell_take(const struct doorbell *doorbell);

#endif
