/* The name of a link's own socket, by which the GPU proxy knows the guest behind it: an abstract address that the link binds
 * before it connects. Only the user of the proxy can connect to the socket for links, so the name is dom0's own word. */
#ifndef GPUTAX_LINK_NAME_H
#define GPUTAX_LINK_NAME_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "wire/handshake.h"

/* Fills the address; its size, or 0 when domain or pod are not what they should be. */
socklen_t link_name(struct sockaddr_un *address, unsigned int domain, const char *pod, pid_t link,
                    unsigned long connection);

/* Reads the name of a connection's other end into `peer`. False: it has none of a link. */
bool link_read_name(int socket, struct wire_peer *peer);

#endif
