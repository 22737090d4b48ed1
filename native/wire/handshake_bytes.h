/* The bytes of hello and answer on the socket, in the machine's own byte order: both ends are on one machine. */
#ifndef GPUTAX_WIRE_HANDSHAKE_BYTES_H
#define GPUTAX_WIRE_HANDSHAKE_BYTES_H

#include <stdint.h>

#include "handshake.h"

enum { REASON_MAX = 192 };

/* The first three fields and both sizes stay as they are in every protocol, so that any two versions can tell that they
 * do not match. */
#define WIRE_MAGIC "gputaxW"

struct hello_bytes {
    char magic[8];
    uint32_t protocol;
    uint32_t doorbell; /* set by a link: the port of the event channel whose descriptor comes with it; else 0 */
    uint64_t calls;
    char transport[WIRE_TRANSPORT_NAME_MAX];
    char reserved[24];
};
_Static_assert(sizeof(struct hello_bytes) == 64, "the hello's size is fixed");

struct answer_bytes {
    char magic[8];
    uint32_t protocol;
    uint32_t refused;
    char reason[REASON_MAX];
    uint64_t tenant;
    struct wire_quotas quotas;
    char transport[WIRE_TRANSPORT_NAME_MAX];
    char backend[WIRE_NAME_MAX];
    char device[WIRE_NAME_MAX];
    uint32_t doorbell; /* set by a link, as in the hello */
    char reserved[244];
};
_Static_assert(sizeof(struct answer_bytes) == 1024, "the answer's size is fixed");

#endif
