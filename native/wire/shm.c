/* The shared-memory transport: one ring of messages and one ring of bulk bytes each way, in memory that the peer can
 * change at any moment.
 *
 * Each end keeps its own counters in private memory and only publishes them; the peer's counters are read, checked
 * (the distance to ours must fit the ring) and never trusted further. Every header is copied out and then checked, by
 * the copy; every body is copied out once, by the checked size.
 *
 * Overlap of bulk copies: while one end fills a piece, the other empties the piece before it. Nothing overlaps with the
 * first and the last piece, so they are small; between them pieces grow to a size at which the call of the device that
 * copies each of them weighs little (256 KiB are 58 us at 4.5 GB/s), and that stays in the caches.
 */
#include "shm.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wait.h"

#ifdef WIRE_FUZZ /* the fuzzer's chance to rewrite the region between any two looks at it */
void wire_fuzz_between(void);
#define BETWEEN() wire_fuzz_between()
#else
#define BETWEEN() ((void)0)
#endif

enum { PIECE_LEAST = 64 << 10, PIECE_MOST = 256 << 10, PIECES_PER_REST = 4 };

_Static_assert(sizeof(struct wire_header) == 32, "the record's header has no padding");
_Static_assert((int)PIECE_MOST <= (int)WIRE_BULK_CHUNK, "a piece is at most a chunk");

struct shm_wire {
    struct wire wire;
    struct waiter waiter;
    struct doorbell doorbell; /* the waiter's, of the transport "xen" */
    struct shm_region *region;
    int mapped;
    struct shm_lane *out, *in;
    unsigned char *out_messages, *out_bulk;
    const unsigned char *in_messages, *in_bulk;
    uint64_t tail, head, bulk_tail, bulk_head;                     /* ours; the region holds what the peer was told */
    uint64_t peer_head, peer_tail, peer_bulk_head, peer_bulk_tail; /* the peer's, as last read and checked */
    size_t reserved, peeked;
    size_t piece, rest; /* of the bulk transfer that is being sent, see next_piece */
    bool unflushed;     /* a posted message was published without a look at the peer's bell */
    bool broken;
    _Atomic uint32_t own_limit_us;
};

static struct shm_wire *of(struct wire *wire)
{
    return (struct shm_wire *)(void *)wire;
}

static int broken(struct shm_wire *w)
{
    w->broken = true;
    return WIRE_BROKEN;
}

/* What must hold before any call does anything. */
static int usable(struct shm_wire *w)
{
    if (w->broken)
        return WIRE_BROKEN;
    return atomic_load_explicit(&w->waiter.shut, memory_order_relaxed) ? WIRE_CLOSED : WIRE_OK;
}

static int flush(struct wire *wire)
{
    struct shm_wire *w = of(wire);
    if (w->unflushed) {
        w->unflushed = false;
        atomic_store(&w->out->tail, w->tail); /* the same value again, for its order before the look at the bell */
        wait_wake(&w->waiter, WAIT_MESSAGE);
    }
    return usable(w);
}

/* Nobody may sleep while the other sleeps for something that it has: whoever waits first wakes. */
static int wait_here(struct shm_wire *w, const struct wait_for *want)
{
    flush(&w->wire);
    wait_wake(&w->waiter, WAIT_ROOM);
    wait_wake(&w->waiter, WAIT_BULK_ROOM);
    return wait_until(&w->waiter, want);
}

/* Waits until `needed` bytes of a ring are free; *peer is our checked copy of the peer's head. */
static int wait_for_room(struct shm_wire *w, enum wait_kind kind, const _Atomic uint64_t *head, uint64_t tail,
                         uint64_t ring, uint64_t needed, uint64_t *peer)
{
    while (ring - (tail - *peer) < needed) {
        struct wait_for want = {kind, head, tail - ring, needed};
        if (!wait_ready(&want)) {
            int status = wait_here(w, &want);
            if (status != WIRE_OK)
                return status;
        }
        BETWEEN();
        uint64_t now = atomic_load_explicit(head, memory_order_acquire);
        if (tail - now > ring)
            return broken(w);
        *peer = now;
        if (atomic_load_explicit(&w->waiter.shut, memory_order_relaxed)) /* a counter that flips must not hold us */
            return WIRE_CLOSED;
    }
    return WIRE_OK;
}

/* Waits until the peer has sent something beyond `head`; *peer is our checked copy of its tail. */
static int wait_for_data(struct shm_wire *w, enum wait_kind kind, const _Atomic uint64_t *tail, uint64_t head,
                         uint64_t ring, uint64_t *peer)
{
    while (*peer == head) {
        struct wait_for want = {kind, tail, head, 1};
        if (!wait_ready(&want)) {
            int status = wait_here(w, &want);
            if (status != WIRE_OK)
                return status;
        }
        BETWEEN();
        uint64_t now = atomic_load_explicit(tail, memory_order_acquire);
        if (now - head > ring)
            return broken(w);
        *peer = now;
        if (atomic_load_explicit(&w->waiter.shut, memory_order_relaxed))
            return WIRE_CLOSED;
    }
    return WIRE_OK;
}

static void put(unsigned char *ring, uint64_t at, const void *from, size_t bytes)
{
    size_t offset = (size_t)(at % SHM_MESSAGE_RING);
    size_t first = bytes < SHM_MESSAGE_RING - offset ? bytes : SHM_MESSAGE_RING - offset;
    memcpy(ring + offset, from, first);
    memcpy(ring, (const unsigned char *)from + first, bytes - first);
}

static void take(const unsigned char *ring, uint64_t at, void *to, size_t bytes)
{
    size_t offset = (size_t)(at % SHM_MESSAGE_RING);
    size_t first = bytes < SHM_MESSAGE_RING - offset ? bytes : SHM_MESSAGE_RING - offset;
    memcpy(to, ring + offset, first);
    memcpy((unsigned char *)to + first, ring, bytes - first);
    /* The compiler must not read the ring again in place of the copy, as it may where nobody else writes. */
    atomic_signal_fence(memory_order_seq_cst);
}

static uint64_t record_bytes(uint32_t body_bytes)
{
    return sizeof(struct wire_header) + ((body_bytes + UINT64_C(7)) & ~UINT64_C(7));
}

static int send_message(struct wire *wire, const struct wire_header *header, const void *body)
{
    struct shm_wire *w = of(wire);
    int status = usable(w);
    if (status != WIRE_OK || header->body_bytes > WIRE_BODY_MAX)
        return status != WIRE_OK ? status : WIRE_BROKEN;
    uint64_t bytes = record_bytes(header->body_bytes);
    status = wait_for_room(w, WAIT_ROOM, &w->out->head, w->tail, SHM_MESSAGE_RING, bytes, &w->peer_head);
    if (status != WIRE_OK)
        return status;
    put(w->out_messages, w->tail, header, sizeof *header);
    if (header->body_bytes > 0)
        put(w->out_messages, w->tail + sizeof *header, body, header->body_bytes);
    w->tail += bytes;
    if (header->flags & WIRE_POSTED) {
        w->unflushed = true;
        atomic_store_explicit(&w->out->tail, w->tail, memory_order_release);
        return WIRE_OK;
    }
    w->unflushed = false;
    atomic_store(&w->out->tail, w->tail);
    wait_wake(&w->waiter, WAIT_MESSAGE);
    return WIRE_OK;
}

static int receive(struct wire *wire, struct wire_header *header, void *body, size_t capacity)
{
    struct shm_wire *w = of(wire);
    int status = usable(w);
    if (status == WIRE_OK)
        status = wait_for_data(w, WAIT_MESSAGE, &w->in->tail, w->head, SHM_MESSAGE_RING, &w->peer_tail);
    if (status != WIRE_OK)
        return status;
    uint64_t available = w->peer_tail - w->head;
    if (available < sizeof *header)
        return broken(w);
    struct wire_header seen;
    take(w->in_messages, w->head, &seen, sizeof seen);
    BETWEEN();
    uint64_t bytes = record_bytes(seen.body_bytes);
    if (seen.body_bytes > WIRE_BODY_MAX || seen.body_bytes > capacity || bytes > available)
        return broken(w);
    if (seen.body_bytes > 0)
        take(w->in_messages, w->head + sizeof seen, body, seen.body_bytes);
    *header = seen;
    w->head += bytes;
    atomic_store(&w->in->head, w->head);
    /* `available` is never more than what is really there, so the message that frees the half always gets here. */
    if (available - bytes <= SHM_MESSAGE_RING / SHM_HALF_AWAKE)
        wait_wake(&w->waiter, WAIT_ROOM);
    return WIRE_OK;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* How large the next piece of a transfer with `wanted` bytes to go may be; a transfer is new when this is not what the last
 * one had left. */
static size_t next_piece(struct shm_wire *w, size_t wanted)
{
    if (wanted != w->rest)
        w->piece = PIECE_LEAST;
    else if (w->piece < PIECE_MOST)
        w->piece *= 2;
    size_t part = wanted / PIECES_PER_REST;
    return least(w->piece, part < PIECE_LEAST ? PIECE_LEAST : part);
}

static int bulk_reserve(struct wire *wire, size_t wanted, void **at, size_t *granted)
{
    struct shm_wire *w = of(wire);
    int status = usable(w);
    *granted = 0;
    if (status == WIRE_OK && wanted > 0)
        status =
            wait_for_room(w, WAIT_BULK_ROOM, &w->out->bulk_head, w->bulk_tail, SHM_BULK_RING, 1, &w->peer_bulk_head);
    if (status != WIRE_OK)
        return status;
    size_t offset = (size_t)(w->bulk_tail % SHM_BULK_RING);
    size_t room = least((size_t)(SHM_BULK_RING - (w->bulk_tail - w->peer_bulk_head)), SHM_BULK_RING - offset);
    w->reserved = least(least(wanted, room), next_piece(w, wanted));
    w->rest = wanted - w->reserved;
    *at = w->out_bulk + offset;
    *granted = w->reserved;
    return WIRE_OK;
}

static int bulk_commit(struct wire *wire, size_t bytes)
{
    struct shm_wire *w = of(wire);
    int status = usable(w);
    if (status != WIRE_OK || bytes > w->reserved)
        return status != WIRE_OK ? status : WIRE_BROKEN;
    w->reserved = 0;
    w->bulk_tail += bytes;
    atomic_store(&w->out->bulk_tail, w->bulk_tail);
    wait_wake(&w->waiter, WAIT_BULK);
    return WIRE_OK;
}

static int bulk_peek(struct wire *wire, size_t wanted, const void **at, size_t *granted)
{
    struct shm_wire *w = of(wire);
    int status = usable(w);
    *granted = 0;
    if (status == WIRE_OK && wanted > 0)
        status = wait_for_data(w, WAIT_BULK, &w->in->bulk_tail, w->bulk_head, SHM_BULK_RING, &w->peer_bulk_tail);
    if (status != WIRE_OK)
        return status;
    size_t offset = (size_t)(w->bulk_head % SHM_BULK_RING);
    size_t there = least((size_t)(w->peer_bulk_tail - w->bulk_head), SHM_BULK_RING - offset);
    w->peeked = least(least(wanted, there), WIRE_BULK_CHUNK);
    *at = w->in_bulk + offset;
    *granted = w->peeked;
    return WIRE_OK;
}

static int bulk_release(struct wire *wire, size_t bytes)
{
    struct shm_wire *w = of(wire);
    int status = usable(w);
    if (status != WIRE_OK || bytes > w->peeked)
        return status != WIRE_OK ? status : WIRE_BROKEN;
    w->peeked = 0;
    w->bulk_head += bytes;
    atomic_store(&w->in->bulk_head, w->bulk_head);
    if (w->peer_bulk_tail - w->bulk_head <= SHM_BULK_RING / SHM_HALF_AWAKE)
        wait_wake(&w->waiter, WAIT_BULK_ROOM);
    return WIRE_OK;
}

static void abandon(struct wire *wire)
{
    struct shm_wire *w = of(wire);
    if (w->waiter.lifeline >= 0)
        close(w->waiter.lifeline);
    if (w->waiter.doorbell != NULL)
        close(w->doorbell.descriptor);
    if (w->mapped)
        munmap(w->region, sizeof *w->region);
    free(w);
}

/* A tenant may keep the region's descriptor after the connection. The server's end takes the pages away from it; what it
 * touches from then on is charged to its own control group. Not where the server itself ends: the client may still read what
 * it was sent. */
static void take_pages_back(const struct shm_wire *w)
{
    bool is_server = w->waiter.limit_us == &w->own_limit_us;
    if (w->mapped && is_server && w->waiter.doorbell == NULL && !atomic_load(&w->waiter.shut))
        madvise(w->region->bulk, sizeof w->region->bulk, MADV_REMOVE);
}

static void close_wire(struct wire *wire)
{
    struct shm_wire *w = of(wire);
    int lifeline = w->waiter.lifeline;
    take_pages_back(w);
    w->waiter.lifeline = -1;
    if (lifeline >= 0) {
        close(lifeline); /* first, so that the woken peer finds it hung up */
        wait_wake_any(&w->waiter);
    }
    abandon(wire);
}

static void shutdown_wire(struct wire *wire)
{
    struct shm_wire *w = of(wire);
    if (w->waiter.lifeline >= 0)
        shutdown(w->waiter.lifeline, SHUT_RDWR);
    wait_shut(&w->waiter);
}

static void set_spin(struct wire *wire, uint32_t us)
{
    struct shm_wire *w = of(wire);
    if (w->waiter.limit_us != &w->own_limit_us)
        return; /* the client follows */
    atomic_store_explicit(&w->own_limit_us, us, memory_order_relaxed);
    atomic_store_explicit(&w->region->spin_limit_us, us, memory_order_relaxed);
}

static void wait_counts(struct wire *wire, struct wire_wait_counts *counts)
{
    struct waiter *waiter = &of(wire)->waiter;
    counts->waits = atomic_load_explicit(&waiter->waits, memory_order_relaxed);
    counts->spins_paid = atomic_load_explicit(&waiter->spins_paid, memory_order_relaxed);
    counts->sleeps = atomic_load_explicit(&waiter->sleeps, memory_order_relaxed);
    counts->wakes = atomic_load_explicit(&waiter->wakes, memory_order_relaxed);
}

/* On the life line, which carries nothing else. A client that does not take what it asked for fills it, to its own loss. */
static int give_descriptor(struct wire *wire, int descriptor)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    char byte = 0;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes};
    message.msg_controllen = sizeof control.bytes;
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof descriptor);
    memcpy(CMSG_DATA(c), &descriptor, sizeof descriptor);
    return sendmsg(of(wire)->waiter.lifeline, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == 1 ? WIRE_OK : WIRE_CLOSED;
}

static int take_descriptor(struct wire *wire, int *descriptor)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    char byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes};
    message.msg_controllen = sizeof control.bytes;
    if (recvmsg(of(wire)->waiter.lifeline, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1)
        return WIRE_CLOSED; /* it was sent before the answer, so it is there */
    const struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    if (c == NULL || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(sizeof(int)))
        return WIRE_CLOSED;
    memcpy(descriptor, CMSG_DATA(c), sizeof *descriptor);
    return WIRE_OK;
}

static bool gone(struct wire *wire)
{
    return wait_peer_gone(&of(wire)->waiter);
}

static const struct wire_ops ops = {
    .name = "shm",
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
    .give = give_descriptor,
    .take = take_descriptor,
};

/* No descriptor can cross from one domain to the other, so there is nothing to give or take. */
static const struct wire_ops xen_ops = {
    .name = "xen",
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

struct shm_region *shm_region_of(struct wire *wire)
{
    return of(wire)->region;
}

struct waiter *shm_waiter_of(struct wire *wire)
{
    return &of(wire)->waiter;
}

struct wire *shm_wire(struct shm_region *region, enum shm_end end, int lifeline, uint32_t spin_us, int mapped)
{
    struct shm_wire *w = calloc(1, sizeof *w);
    if (w == NULL)
        return NULL;
    enum shm_end other = end == SHM_CLIENT ? SHM_SERVER : SHM_CLIENT;
    w->wire.ops = &ops;
    w->region = region;
    w->mapped = mapped;
    w->out = &region->lane[end];
    w->in = &region->lane[other];
    w->out_messages = region->messages[end];
    w->in_messages = region->messages[other];
    w->out_bulk = region->bulk[end];
    w->in_bulk = region->bulk[other];
    w->waiter.mine = &region->bell[end].wants;
    w->waiter.peers = &region->bell[other].wants;
    w->waiter.my_cpu = &region->bell[end].cpu;
    w->waiter.peers_cpu = &region->bell[other].cpu;
    w->waiter.lifeline = lifeline;
    w->waiter.lifeline_ms = WAIT_LIFELINE_MS;
    w->waiter.limit_us = end == SHM_SERVER ? &w->own_limit_us : &region->spin_limit_us;
    if (end == SHM_SERVER)
        set_spin(&w->wire, spin_us);
    return &w->wire;
}

void shm_use_doorbell(struct wire *wire, const struct doorbell *doorbell)
{
    struct shm_wire *w = of(wire);
    w->wire.ops = &xen_ops;
    w->doorbell = *doorbell;
    w->waiter.doorbell = &w->doorbell;
    /* Two domains number their CPUs each for itself. */
    w->waiter.my_cpu = NULL;
    w->waiter.peers_cpu = NULL;
}
