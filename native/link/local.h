/* A link whose two ends are on one machine: a sealed memfd for granted pages and a socket pair for the event channel. It is
 * what tests of the transport "xen" use where there is no Xen. */
#ifndef GPUTAX_LINK_LOCAL_H
#define GPUTAX_LINK_LOCAL_H

/* Serves connections of this listener for ever, each in a thread, in the name of this guest. */
void local_link_serve(int listener, const char *server_path, unsigned int domain, const char *pod);

#endif
