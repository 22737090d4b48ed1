/* dom0's end: asks a guest for a session and carries it. */
#ifndef GPUTAX_SESSION_HOST_H
#define GPUTAX_SESSION_HOST_H

#include <stddef.h>

/* Returns the program's exit code, or CARRIER_BROKEN with a message. */
int host_carry(unsigned int domain, int signals, const char *request, size_t bytes);

#endif
