/* The state of this process's connection, for its owner (connection.c) and for the evidence (describe.c). */
#ifndef GPUTAX_VGPU_CONNECTION_H
#define GPUTAX_VGPU_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "calls.h"
#include "wire/handshake.h"

struct connection {
    struct wire *wire;
    bool lost;
    uint64_t sequence;
    uint64_t counts[CALL_COUNT]; /* messages sent, by call */
    struct wire_welcome welcome;
    uint8_t body[WIRE_BODY_MAX];
};

struct connection *vgpu_connection(void);

#endif
