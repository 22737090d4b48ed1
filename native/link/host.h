/* The end of a link in the driver domain, for one guest. */
#ifndef GPUTAX_LINK_HOST_H
#define GPUTAX_LINK_HOST_H

/* Serves the connections of this guest at the proxy's socket for links until the guest is gone. The exit code. */
int host_serve(unsigned int domain, const char *pod, const char *proxy);

#endif
