/* Event channels between two domains; each has a descriptor of its own, which is a doorbell of the wire. */
#ifndef GPUTAX_LINK_CHANNEL_H
#define GPUTAX_LINK_CHANNEL_H

#include <stdbool.h>

#include "wire/doorbell.h"

/* A port that `domain` may bind; its number is for that domain. False with errno. */
bool channel_offer(struct doorbell *channel, unsigned int domain);

/* The other end of a port that `domain` offers. The descriptor is good for this domain alone from then on. */
bool channel_bind(struct doorbell *channel, unsigned int domain, uint32_t port);

void channel_close(struct doorbell *channel);

#endif
