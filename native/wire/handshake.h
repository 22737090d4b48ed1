/* How a tenant and the proxy meet on a Unix stream socket and agree on a transport.
 *
 * hello (fixed size, client to server), then welcome or refusal (fixed size, server to client); with "shm" the welcome
 * carries the shared region's descriptor. The socket stays open afterwards: "unix-socket" talks on it, "shm" keeps it as
 * the life line by which each end notices that the other is gone. With "xen" both ends meet a link (native/link) in their own
 * domain, which brings the region to both: the server's with the hello, the client's with the welcome.
 */
#ifndef GPUTAX_WIRE_HANDSHAKE_H
#define GPUTAX_WIRE_HANDSHAKE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire.h"

enum {
    WIRE_PROTOCOL = 1,        /* raised with every change of the format of hello, welcome or transport */
    WIRE_HANDSHAKE_MS = 2000, /* a peer that sends nothing for so long is dropped */
    WIRE_NAME_MAX = 256,      /* bytes of each text below, with its final 0 */
    WIRE_TRANSPORT_NAME_MAX = 16,
    WIRE_POD_MAX = 64,
};

/* Every transport that this build knows, NULL at the end; the first is the default. */
extern const char *const wire_transports[];

struct wire_peer {
    pid_t pid;
    uid_t uid;
    gid_t gid;
    unsigned int domain;    /* the Xen guest behind a link, as the link's own domain says; 0: none */
    char pod[WIRE_POD_MAX]; /* the uid of the pod that this guest was made for, from the same source; "" for none */
    unsigned int place;     /* whose socket it came through, set by a server that has several; 0: none */
};

struct wire_quotas { /* 0: no limit */
    uint64_t memory_bytes;
    uint64_t streams;
    uint64_t modules;
    uint64_t launches_per_s;
};

/* What the server tells the client. */
struct wire_welcome {
    uint32_t protocol;
    uint64_t tenant;
    struct wire_quotas quotas;
    char transport[WIRE_TRANSPORT_NAME_MAX];
    char backend[WIRE_NAME_MAX]; /* path of the library that serves the calls */
    char device[WIRE_NAME_MAX];  /* the device's own name */
};

/* What the client asked for, copied out and checked; for the server's records. */
struct wire_hello {
    uint32_t protocol;
    uint64_t calls;
    char transport[WIRE_TRANSPORT_NAME_MAX];
};

struct wire_offer {
    uint64_t tenant;
    struct wire_quotas quotas;
    const char *backend;
    const char *device;
    const char *refusal;   /* not NULL: refuse with this text ("too many tenants") */
    const char *transport; /* not NULL: only this transport is served */
    uint64_t calls;   /* fingerprint of the table of calls; a client with another one is refused; 0: not compared */
    uint32_t spin_us; /* the first spin limit of the wire, see wire_set_spin */
};

/* Creates the socket with exactly `mode` and listens. A socket file that nobody serves is replaced; a living server's
 * socket or a file of another kind is not. Returns a descriptor (blocking, close-on-exec), or -1 with the reason. */
int wire_listen(const char *path, mode_t mode, char *why, size_t why_size);

/* Closes the listener and removes its socket file. */
void wire_unlisten(int listener, const char *path);

/* The next connection and who made it, as the kernel says. Never waits for the peer to speak. -1 with errno; EAGAIN also
 * for a connection that was gone again at once, so the caller's loop goes on. */
int wire_accept_socket(int listener, struct wire_peer *peer);

/* The server's half, for the tenant's own thread: waits at most WIRE_HANDSHAKE_MS for the hello, answers. Takes the
 * socket: it is closed on failure and by the wire's close. NULL with the reason when there is no connection (refused,
 * silent, garbage). `seen` may be NULL. */
struct wire *wire_serve(int socket, const struct wire_offer *offer, struct wire_hello *seen, char *why,
                        size_t why_size);

/* For a server that has no thread to spare: says no and closes the socket. Never blocks. */
void wire_refuse(int socket, const char *reason);

/* The client's half. `transport` NULL: the default. `calls`: see wire_offer. NULL with a reason that names the socket. */
struct wire *wire_connect(const char *path, const char *transport, uint64_t calls, struct wire_welcome *welcome,
                          char *why, size_t why_size);

/* The same over a connected socket, which it takes; `path` is only for the reasons. */
struct wire *wire_greet(int socket, const char *path, const char *transport, uint64_t calls,
                        struct wire_welcome *welcome, char *why, size_t why_size);

#endif
