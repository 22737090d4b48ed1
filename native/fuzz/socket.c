/* Fuzz target: everything that is read from the handshake's socket: hello, answer, and the frames of "unix-socket".
 *
 * The first byte chooses what reads: 0 the server's handshake and then its wire, 1 the client's, 2 a wire without one. The
 * rest is what the peer sends before it hangs up, in pieces; so no call ever waits.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "script.h"
#include "wire/handshake.h"
#include "wire/transports.h"

enum { MOST_CALLS = 64, WHY = 256 };

void wire_fuzz_between(void);
void wire_fuzz_between(void)
{
}

static void receive(struct wire *wire, size_t capacity, int *status, uint64_t *bulk)
{
    struct wire_header header = {0};
    unsigned char *body = malloc(capacity + 1);
    must_hold(body != NULL);
    body[capacity] = 0x5a;
    *status = wire->ops->receive(wire, &header, body, capacity);
    must_hold(*status != WIRE_OK || header.body_bytes <= capacity);
    must_hold(body[capacity] == 0x5a);
    free(body);
    *bulk = header.bulk_bytes;
}

static void take_bulk(struct wire *wire, uint64_t wanted, int *status)
{
    while (wanted > 0 && *status == WIRE_OK) {
        const void *at;
        size_t granted;
        *status = wire->ops->bulk_peek(wire, (size_t)wanted, &at, &granted);
        if (*status != WIRE_OK)
            return;
        must_hold(granted >= 1 && granted <= wanted && granted <= WIRE_BULK_CHUNK);
        volatile unsigned char sum = 0;
        for (size_t i = 0; i < granted; i++)
            sum = (unsigned char)(sum + ((const unsigned char *)at)[i]);
        *status = wire->ops->bulk_release(wire, granted);
        wanted -= granted;
    }
}

/* Reads like the proxy does: a message, then its bulk bytes; `shape` varies capacity and obedience. */
static void read_all(struct wire *wire, uint8_t shape)
{
    int status = WIRE_OK;
    for (int i = 0; i < MOST_CALLS && status == WIRE_OK; i++) {
        uint64_t bulk = 0;
        receive(wire, shape & 1 ? WIRE_BODY_MAX : shape, &status, &bulk);
        if (status == WIRE_OK && !(shape & 2))
            take_bulk(wire, shape & 4 ? bulk / 2 : bulk, &status);
    }
    must_hold(status == WIRE_OK || status == WIRE_CLOSED || status == WIRE_BROKEN);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct script script = {bytes, count};
    int ends[2];
    char why[WHY] = "";
    uint8_t reader = (uint8_t)take_number(&script, 1) % 3;
    uint8_t shape = (uint8_t)take_number(&script, 1);
    must_hold(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    while (script.left > 0) {
        size_t piece = shape & 8 ? 1 + script.left / 3 : script.left;
        if (send(ends[1], script.at, piece, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)piece)
            break;
        script.at += piece;
        script.left -= piece;
    }
    shutdown(ends[1], SHUT_WR);
    struct wire_welcome welcome;
    struct wire_hello hello;
    struct wire_offer offer = {.backend = "b", .device = "d", .transport = "unix-socket", .calls = 1};
    struct wire_parts parts = {-1, -1, 0};
    struct wire *wire = reader == 0 ? wire_serve(ends[0], &offer, &hello, why, sizeof why)
                        : reader == 1
                            ? wire_greet(ends[0], "p", shape & 16 ? "shm" : "unix-socket", 1, &welcome, why, sizeof why)
                            : unix_socket_transport.serve(ends[0], 0, &parts, why, sizeof why);
    must_hold((wire == NULL) == (why[0] != 0) && memchr(why, 0, sizeof why) != NULL);
    if (wire != NULL) {
        read_all(wire, shape);
        wire->ops->close(wire);
    }
    close(ends[1]);
    return 0;
}
