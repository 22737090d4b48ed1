/* The end of a link in a guest. */
#ifndef GPUTAX_LINK_GUEST_H
#define GPUTAX_LINK_GUEST_H

/* Serves clients of this listener for ever; `host` is the domain with the proxy. */
int guest_serve(int listener, unsigned int host);

#endif
