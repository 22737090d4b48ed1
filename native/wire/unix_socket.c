/* The socket transport: messages and bulk bytes as frames on the handshake's own stream; the simple fallback.
 *
 * One stream keeps no two paths apart, so the rule of wire.h is also what makes this work: the bulk bytes of a message
 * follow it directly and are taken before the next message is received. Whoever receives something else than what it
 * asks for sees a broken peer.
 *
 * No deadlock: an end blocks in sending only while the kernel's buffer is full, that is, until the peer receives. Two
 * ends could block so at the same time only if both sent. The client sends while the server has no question of its own
 * unanswered; the server sends only the answer to the client's one question, and then the client is receiving. So one
 * end at most is sending at any time, and the other one comes back to receive. A hostile peer that does not read holds
 * up its own worker alone, until wire_shutdown.
 */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "transports.h"

enum {
#ifdef WIRE_FUZZ /* the least that works: quicker to make, and its ends are met more often */
    INPUT_BYTES = 9 << 10,
    PIECE_BYTES = 1 << 10,
#else
    INPUT_BYTES = 256 << 10, /* about what the kernel's buffer holds */
    PIECE_BYTES = 256 << 10, /* bulk bytes of one frame */
#endif
    POSTED_BYTES = 32 << 10,    /* posted messages gather up to this many bytes before they are sent */
    FRAME_MESSAGE = 0x6d677078, /* any two numbers that differ in many bits */
    FRAME_BULK = 0x6b6c7562,
};

struct frame {
    uint32_t kind;
    uint32_t bytes; /* what follows */
};

struct message_frame {
    struct frame frame;
    struct wire_header header;
};

struct socket_wire {
    struct wire wire;
    int socket;
    bool broken;
    size_t start, end; /* of the bytes in `input` that nobody has taken */
    size_t bulk_left;  /* of the frame that is being taken */
    size_t posted;     /* bytes in `output` that are not sent yet */
    size_t reserved, peeked;
    _Atomic bool shut;
    _Atomic uint64_t waits, sleeps;
    unsigned char input[INPUT_BYTES];
    unsigned char output[POSTED_BYTES + sizeof(struct message_frame) + WIRE_BODY_MAX];
    unsigned char piece[PIECE_BYTES];
};

static struct socket_wire *of(struct wire *wire)
{
    return (struct socket_wire *)(void *)wire;
}

static int broken(struct socket_wire *w)
{
    w->broken = true;
    return WIRE_BROKEN;
}

static int usable(struct socket_wire *w)
{
    if (w->broken)
        return WIRE_BROKEN;
    return atomic_load_explicit(&w->shut, memory_order_relaxed) ? WIRE_CLOSED : WIRE_OK;
}

/* Sends all of it, with the posted messages in front. */
static int push(struct socket_wire *w, const void *frame, size_t frame_bytes, const void *data, size_t data_bytes)
{
    struct iovec parts[3] = {
        {w->output, w->posted},
        {(void *)(uintptr_t)frame, frame_bytes},
        {(void *)(uintptr_t)data, data_bytes},
    };
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    size_t left = w->posted + frame_bytes + data_bytes;
    w->posted = 0;
    while (left > 0) {
        ssize_t sent = sendmsg(w->socket, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return WIRE_CLOSED;
        left -= (size_t)sent;
        for (size_t gone = (size_t)sent; gone > 0;) {
            struct iovec *part = message.msg_iov;
            size_t step = gone < part->iov_len ? gone : part->iov_len;
            part->iov_base = (unsigned char *)part->iov_base + step;
            part->iov_len -= step;
            gone -= step;
            if (part->iov_len == 0 && message.msg_iovlen > 1) {
                message.msg_iov++;
                message.msg_iovlen--;
            }
        }
    }
    return WIRE_OK;
}

static int flush(struct wire *wire)
{
    struct socket_wire *w = of(wire);
    int status = usable(w);
    return status == WIRE_OK && w->posted > 0 ? push(w, NULL, 0, NULL, 0) : status;
}

static int send_message(struct wire *wire, const struct wire_header *header, const void *body)
{
    struct socket_wire *w = of(wire);
    int status = usable(w);
    if (status != WIRE_OK || header->body_bytes > WIRE_BODY_MAX)
        return status != WIRE_OK ? status : WIRE_BROKEN;
    struct message_frame front = {{FRAME_MESSAGE, (uint32_t)sizeof *header + header->body_bytes}, *header};
    memcpy(w->output + w->posted, &front, sizeof front);
    w->posted += sizeof front;
    if (header->body_bytes > 0)
        memcpy(w->output + w->posted, body, header->body_bytes);
    w->posted += header->body_bytes;
    if ((header->flags & WIRE_POSTED) && w->posted < POSTED_BYTES)
        return WIRE_OK;
    return push(w, NULL, 0, NULL, 0);
}

static void count(_Atomic uint64_t *counter)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1, memory_order_relaxed);
}

/* Waits until at least `wanted` bytes are in `input`, with their start at `start`. */
static int fill(struct socket_wire *w, size_t wanted)
{
    if (w->end - w->start >= wanted)
        return WIRE_OK;
    memmove(w->input, w->input + w->start, w->end - w->start);
    w->end -= w->start;
    w->start = 0;
    int flags = MSG_DONTWAIT;
    while (w->end < wanted) {
        ssize_t got = recv(w->socket, w->input + w->end, INPUT_BYTES - w->end, flags);
        if (got > 0) {
            w->end += (size_t)got;
        } else if (got < 0 && errno == EINTR) {
            continue;
        } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            flags = 0; /* nothing there: now sleep in the kernel */
            count(&w->waits);
            count(&w->sleeps);
            int status = flush(&w->wire);
            if (status != WIRE_OK)
                return status;
        } else {
            return WIRE_CLOSED;
        }
    }
    return usable(w);
}

static int receive(struct wire *wire, struct wire_header *header, void *body, size_t capacity)
{
    struct socket_wire *w = of(wire);
    struct message_frame front;
    int status = usable(w);
    if (status == WIRE_OK && w->bulk_left > 0)
        return broken(w);
    if (status == WIRE_OK)
        status = fill(w, sizeof front);
    if (status != WIRE_OK)
        return status;
    memcpy(&front, w->input + w->start, sizeof front);
    uint32_t body_bytes = front.header.body_bytes;
    if (front.frame.kind != FRAME_MESSAGE || body_bytes > WIRE_BODY_MAX || body_bytes > capacity ||
        front.frame.bytes != sizeof front.header + body_bytes)
        return broken(w);
    status = fill(w, sizeof front + body_bytes);
    if (status != WIRE_OK)
        return status;
    if (body_bytes > 0)
        memcpy(body, w->input + w->start + sizeof front, body_bytes);
    w->start += sizeof front + body_bytes;
    *header = front.header;
    return WIRE_OK;
}

static int bulk_reserve(struct wire *wire, size_t wanted, void **at, size_t *granted)
{
    struct socket_wire *w = of(wire);
    w->reserved = wanted < PIECE_BYTES ? wanted : PIECE_BYTES;
    *at = w->piece;
    *granted = w->reserved;
    return usable(w);
}

static int bulk_commit(struct wire *wire, size_t bytes)
{
    struct socket_wire *w = of(wire);
    int status = usable(w);
    if (status != WIRE_OK || bytes > w->reserved)
        return status != WIRE_OK ? status : WIRE_BROKEN;
    w->reserved = 0;
    struct frame frame = {FRAME_BULK, (uint32_t)bytes};
    return bytes == 0 ? WIRE_OK : push(w, &frame, sizeof frame, w->piece, bytes);
}

static int bulk_peek(struct wire *wire, size_t wanted, const void **at, size_t *granted)
{
    struct socket_wire *w = of(wire);
    int status = usable(w);
    *granted = 0;
    *at = w->input;
    if (status != WIRE_OK || wanted == 0)
        return status;
    if (w->bulk_left == 0) {
        struct frame frame;
        status = fill(w, sizeof frame);
        if (status != WIRE_OK)
            return status;
        memcpy(&frame, w->input + w->start, sizeof frame);
        if (frame.kind != FRAME_BULK || frame.bytes == 0 || frame.bytes > WIRE_BULK_CHUNK)
            return broken(w);
        w->start += sizeof frame;
        w->bulk_left = frame.bytes;
    }
    status = fill(w, 1);
    if (status != WIRE_OK)
        return status;
    size_t there = w->end - w->start < w->bulk_left ? w->end - w->start : w->bulk_left;
    w->peeked = there < wanted ? there : wanted;
    *at = w->input + w->start;
    *granted = w->peeked;
    return WIRE_OK;
}

static int bulk_release(struct wire *wire, size_t bytes)
{
    struct socket_wire *w = of(wire);
    int status = usable(w);
    if (status != WIRE_OK || bytes > w->peeked)
        return status != WIRE_OK ? status : WIRE_BROKEN;
    w->peeked = 0;
    w->start += bytes;
    w->bulk_left -= bytes;
    return WIRE_OK;
}

static void abandon(struct wire *wire)
{
    struct socket_wire *w = of(wire);
    close(w->socket); /* tells the peer nothing while the parent of a fork still holds the socket */
    free(w);
}

static void close_wire(struct wire *wire)
{
    flush(wire);
    abandon(wire);
}

static void shutdown_wire(struct wire *wire)
{
    struct socket_wire *w = of(wire);
    atomic_store(&w->shut, true);
    shutdown(w->socket, SHUT_RDWR); /* also ends a recv or sendmsg that sleeps */
}

static void set_spin(struct wire *wire, uint32_t us)
{
    (void)wire; /* the kernel waits here, and it sleeps */
    (void)us;
}

static void wait_counts(struct wire *wire, struct wire_wait_counts *counts)
{
    struct socket_wire *w = of(wire);
    *counts = (struct wire_wait_counts){
        .waits = atomic_load_explicit(&w->waits, memory_order_relaxed),
        .sleeps = atomic_load_explicit(&w->sleeps, memory_order_relaxed),
    };
}

static bool gone(struct wire *wire)
{
    struct pollfd line = {.fd = of(wire)->socket, .events = POLLRDHUP};
    return poll(&line, 1, 0) > 0;
}

static const struct wire_ops ops = {
    .name = "unix-socket",
    .send = send_message,
    .flush = flush,
    .receive = receive,
    .bulk_reserve = bulk_reserve,
    .bulk_commit = bulk_commit,
    .bulk_peek = bulk_peek,
    .bulk_release = bulk_release,
    .close = close_wire,
    .shutdown = shutdown_wire,
    .abandon = abandon,
    .set_spin = set_spin,
    .wait_counts = wait_counts,
    .gone = gone,
};

static struct wire *over(int socket, char *why, size_t why_size)
{
    struct socket_wire *w = calloc(1, sizeof *w);
    if (w == NULL) {
        snprintf(why, why_size, "unix socket: no memory");
        return NULL;
    }
    w->wire.ops = &ops;
    w->socket = socket;
    return &w->wire;
}

static struct wire *serve(int socket, uint32_t spin_us, struct wire_parts *parts, char *why, size_t why_size)
{
    (void)spin_us;
    (void)parts;
    return over(socket, why, why_size);
}

static struct wire *join(int socket, struct wire_parts *parts, char *why, size_t why_size)
{
    (void)parts;
    return over(socket, why, why_size);
}

const struct transport unix_socket_transport = {"unix-socket", false, serve, join};
