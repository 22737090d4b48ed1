/* What a transport gives to the handshake: how each end is made over a connected socket. */
#ifndef GPUTAX_WIRE_TRANSPORTS_H
#define GPUTAX_WIRE_TRANSPORTS_H

#include <stddef.h>
#include <stdint.h>

#include "wire.h"

struct transport {
    const char *name;
    /* The server's end. *passed: a descriptor that the welcome must carry to the client, or -1; the caller closes it. */
    struct wire *(*serve)(int socket, uint32_t spin_us, int *passed, char *why, size_t why_size);
    /* The client's end; `passed` came with the welcome, or -1; the caller closes it. */
    struct wire *(*join)(int socket, int passed, char *why, size_t why_size);
    /* Both own the socket only once they have succeeded. */
};

const struct transport *transport_named(const char *name);

extern const struct transport shm_transport;
extern const struct transport unix_socket_transport;

#endif
