/* What a transport gives to the handshake: how each end is made over a connected socket. */
#ifndef GPUTAX_WIRE_TRANSPORTS_H
#define GPUTAX_WIRE_TRANSPORTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire.h"

/* What travels beside hello or welcome. */
struct wire_parts {
    int region;    /* a descriptor of the shared region, or -1 */
    int doorbell;  /* see doorbell.h, or -1 */
    uint32_t port; /* of the doorbell */
};

struct transport {
    const char *name;
    /* The region comes from a link between domains (native/link) beside the hello, and is served only where the offer names
     * this transport: who may say which memory the server maps is the operator's matter. */
    bool linked;
    /* The server's end. `parts` came with the hello of a linked transport; of another, *parts becomes what the welcome must
     * carry to the client. The caller closes what is still there: what an end keeps becomes -1. */
    struct wire *(*serve)(int socket, uint32_t spin_us, struct wire_parts *parts, char *why, size_t why_size);
    /* The client's end; `parts` came with the welcome. */
    struct wire *(*join)(int socket, struct wire_parts *parts, char *why, size_t why_size);
    /* Both own the socket only once they have succeeded. */
};

const struct transport *transport_named(const char *name);

extern const struct transport shm_transport;
extern const struct transport unix_socket_transport;
extern const struct transport xen_transport;

#endif
