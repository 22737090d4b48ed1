/* One connection between a tenant (libvgpu) and the GPU proxy: ordered messages, and ordered bulk bytes beside them.
 *
 * A transport fills `struct wire_ops`; everything above knows only this file. Both ends use the same calls.
 * Nothing here knows CUDA. A transport must hold its own promises against a hostile peer: whatever the peer writes,
 * a call returns (a value or an error), reads no byte outside the peer's region, and hands out only copies of headers
 * and bodies, never pointers to memory that the peer can still change. Bulk bytes are the exception: they are data,
 * never looked at, and may be used in place.
 */
#ifndef GPUTAX_WIRE_H
#define GPUTAX_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WIRE_BODY_MAX = 8192,      /* bytes of arguments in one message; larger things travel as bulk bytes */
    WIRE_BULK_CHUNK = 2 << 20, /* largest piece that bulk_reserve and bulk_peek grant at once */
};

enum wire_status {
    WIRE_OK = 0,
    WIRE_CLOSED = -1, /* the peer is gone */
    WIRE_BROKEN = -2, /* the peer broke the format; the connection is of no further use */
};

struct wire_header {
    uint32_t call;       /* number of the call in the generated table */
    uint32_t body_bytes; /* bytes of arguments that follow, at most WIRE_BODY_MAX */
    uint64_t sequence;   /* set by the sender, counts from 1; an answer carries that of its question */
    uint64_t bulk_bytes; /* bulk bytes that belong to this message and follow on the bulk path, 0 for none */
    int32_t status;      /* in an answer: the CUresult */
    uint32_t flags;      /* WIRE_POSTED: no answer is wanted */
};
enum { WIRE_POSTED = 1 };

struct wire;

/* How one end has waited so far. A wait that found its answer at once is none. */
struct wire_wait_counts {
    uint64_t waits;
    uint64_t spins_paid; /* the answer came while this end was spinning */
    uint64_t sleeps;     /* times this end went to sleep in the kernel */
    uint64_t wakes;      /* system calls made to wake the peer */
};

struct wire_ops {
    const char *name; /* "shm", "unix-socket"; part of every result */
    /* Copy one message into the path; waits while it is full. A posted message need not wake a sleeping peer at once,
     * `flush` does. An unposted one is flushed by itself. */
    int (*send)(struct wire *, const struct wire_header *, const void *body);
    int (*flush)(struct wire *);
    /* Wait for the next message and copy it out: header first, then checked, then the body. */
    int (*receive)(struct wire *, struct wire_header *, void *body, size_t capacity);
    /* Where the next bulk bytes go: at least one byte, at most `wanted`, contiguous. Waits while the path is full. */
    int (*bulk_reserve)(struct wire *, size_t wanted, void **at, size_t *granted);
    int (*bulk_commit)(struct wire *, size_t bytes);
    /* The next bulk bytes, in place. Waits while there are none. */
    int (*bulk_peek)(struct wire *, size_t wanted, const void **at, size_t *granted);
    int (*bulk_release)(struct wire *, size_t bytes);
    /* Hands a descriptor to the client beside an answer that is sent next, and takes it there behind that answer. NULL: this
     * transport cannot. Neither waits for long: one that fails leaves the connection as it was. */
    int (*give)(struct wire *, int descriptor);
    int (*take)(struct wire *, int *descriptor);
    void (*close)(struct wire *);
    /* The calls behind wire_shutdown, wire_abandon, wire_set_spin, wire_wait_counts and wire_gone; see there. */
    void (*shutdown)(struct wire *);
    void (*abandon)(struct wire *);
    void (*set_spin)(struct wire *, uint32_t us);
    void (*wait_counts)(struct wire *, struct wire_wait_counts *);
    bool (*gone)(struct wire *);
};

struct wire {
    const struct wire_ops *ops;
};

/* Threads: one thread at a time uses a wire. Only the calls below marked (any thread) may come from another one meanwhile;
 * nobody may call anything after or during `close` or `abandon`.
 *
 * Who may send when (this keeps every transport free of deadlock, see unix_socket.c): the bulk bytes of a message are
 * sent right after it, before the next message; whoever received a message takes its bulk bytes before it sends. The
 * client has at most one unanswered question; the server sends only answers. Then at most one end waits for room. */

/* (any thread) Makes every waiting and every later call of this end return WIRE_CLOSED, and the peer's too. */
static inline void wire_shutdown(struct wire *wire)
{
    wire->ops->shutdown(wire);
}

/* For the child after a fork: frees this process's part without a word to the peer, whose partner is the parent. */
static inline void wire_abandon(struct wire *wire)
{
    wire->ops->abandon(wire);
}

/* (any thread, server's end only; the client's end follows what the server sets) How long either end may spin before it
 * sleeps, at most 500 us; 0: sleep at once. A new wire starts with what the server's offer says. */
static inline void wire_set_spin(struct wire *wire, uint32_t us)
{
    wire->ops->set_spin(wire, us);
}

/* Whether the peer has hung up, without waiting for anything. */
static inline bool wire_gone(struct wire *wire)
{
    return wire->ops->gone != NULL && wire->ops->gone(wire);
}

/* (any thread) */
static inline void wire_wait_counts(struct wire *wire, struct wire_wait_counts *counts)
{
    wire->ops->wait_counts(wire, counts);
}

#endif
