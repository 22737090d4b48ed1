/* Conformance of a transport against a peer that breaks the rules: this end never crashes, hangs or believes it. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "wire/handshake_bytes.h"
#include "wire/shm.h"
#include "wire_cases.h"

enum { VICTIM_CAPACITY = 64 };

static int victim_receives(struct wire *wire)
{
    struct wire_header header;
    unsigned char body[VICTIM_CAPACITY];
    return wire->ops->receive(wire, &header, body, sizeof body);
}

static int victim_sends(struct wire *wire)
{
    static const unsigned char body[1000];
    struct wire_header header = {.body_bytes = sizeof body};
    int status = WIRE_OK;
    for (int i = 0; i < 1000 && status == WIRE_OK; i++)
        status = wire->ops->send(wire, &header, body);
    return status;
}

static int victim_takes_bulk(struct wire *wire)
{
    const void *at;
    size_t granted;
    return wire->ops->bulk_peek(wire, 1 << 20, &at, &granted);
}

static int victim_gives_bulk(struct wire *wire)
{
    int status = WIRE_OK;
    for (int i = 0; i < 1000 && status == WIRE_OK; i++) {
        void *at;
        size_t granted;
        status = wire->ops->bulk_reserve(wire, 1 << 20, &at, &granted);
        if (status == WIRE_OK)
            status = wire->ops->bulk_commit(wire, granted);
    }
    return status;
}

struct attack {
    const char *name;
    int (*victim)(struct wire *);
    uint64_t tail, head, bulk_tail, bulk_head; /* what the client's counters say */
    uint32_t body_bytes;                       /* what the first header says */
};

static const struct attack attacks[] = {
    {"less than a header", victim_receives, .tail = 8},
    {"tail far ahead", victim_receives, .tail = UINT64_C(1) << 40},
    {"tail one beyond the ring", victim_receives, .tail = SHM_MESSAGE_RING + 1},
    {"tail backwards", victim_receives, .tail = (uint64_t)-64},
    {"body of 4 GiB", victim_receives, .tail = 64, .body_bytes = UINT32_MAX},
    {"body above the limit", victim_receives, .tail = SHM_MESSAGE_RING, .body_bytes = WIRE_BODY_MAX + 1},
    {"body above the victim's buffer", victim_receives, .tail = 8192, .body_bytes = VICTIM_CAPACITY + 1},
    {"body beyond the tail", victim_receives, .tail = 40, .body_bytes = 60},
    {"head far ahead", victim_sends, .head = UINT64_C(1) << 50},
    {"head one ahead of the tail", victim_sends, .head = SHM_MESSAGE_RING + 1},
    {"head backwards", victim_sends, .head = -(uint64_t)SHM_MESSAGE_RING},
    {"bulk tail far ahead", victim_takes_bulk, .bulk_tail = UINT64_C(1) << 60},
    {"bulk tail one beyond the ring", victim_takes_bulk, .bulk_tail = SHM_BULK_RING + 1},
    {"bulk tail backwards", victim_takes_bulk, .bulk_tail = (uint64_t)-1},
    {"bulk head far ahead", victim_gives_bulk, .bulk_head = UINT64_C(1) << 33},
    {"bulk head backwards", victim_gives_bulk, .bulk_head = (uint64_t)-1},
};

static void attack_region(struct wire *wire, void *argument)
{
    const struct attack *attack = argument;
    struct shm_region *region = shm_region_of(wire);
    struct wire_header header = {.body_bytes = attack->body_bytes};
    memcpy(region->messages[SHM_CLIENT], &header, sizeof header);
    atomic_store(&region->lane[SHM_SERVER].head, attack->head);
    atomic_store(&region->lane[SHM_SERVER].bulk_head, attack->bulk_head);
    atomic_store(&region->lane[SHM_CLIENT].bulk_tail, attack->bulk_tail);
    atomic_store(&region->lane[SHM_CLIENT].tail, attack->tail);
    for (;;) /* until killed: any honest call from here would repair the counters */
        pause();
}

static void absurd_counters(const char *transport)
{
    for (size_t i = 0; i < sizeof attacks / sizeof attacks[0]; i++) {
        struct attack attack = attacks[i];
        struct pair pair = open_pair(transport, ROLE_SERVER, 0, attack_region, &attack);
        int status = attack.victim(pair.wire);
        CHECK(status == WIRE_BROKEN, "%s: gave %d", attack.name, status);
        CHECK(victim_receives(pair.wire) == WIRE_BROKEN && victim_sends(pair.wire) == WIRE_BROKEN &&
                  victim_takes_bulk(pair.wire) == WIRE_BROKEN && victim_gives_bulk(pair.wire) == WIRE_BROKEN,
              "%s: the connection lived on", attack.name);
        kill(pair.other, SIGKILL);
        close_pair(&pair, SIGKILL);
    }
}

/* Rewrites headers and counters as fast as it can, with values right and wrong. */
struct flipper {
    struct shm_region *region;
    _Atomic bool stop;
};

/* Mostly the first header, over and over: the time between a look and the next is some nanoseconds. */
static void *flip_headers(void *argument)
{
    static const uint32_t sizes[] = {16, 24, UINT32_MAX, 0, WIRE_BODY_MAX, VICTIM_CAPACITY, 0x80000000, 1};
    struct flipper *flipper = argument;
    _Atomic uint32_t *words = (_Atomic uint32_t *)(void *)flipper->region->messages[SHM_CLIENT];
    for (uint32_t i = 0; !atomic_load_explicit(&flipper->stop, memory_order_relaxed); i++) {
        for (int j = 0; j < 100; j++) {
            atomic_store_explicit(&words[1], VICTIM_CAPACITY, memory_order_relaxed);
            atomic_store_explicit(&words[1], sizes[i % 8], memory_order_relaxed);
        }
        atomic_store_explicit(&words[1 + i % 1024], sizes[i / 1024 % 8], memory_order_relaxed);
    }
    return NULL;
}

static void *flip_counters(void *argument)
{
    static const uint64_t tails[] = {0,           40, 2048, 64, 4096, SHM_MESSAGE_RING, 1024, 56, SHM_MESSAGE_RING + 8,
                                     (uint64_t)-8};
    static const uint64_t bulks[] = {1, 100000, 0, SHM_BULK_RING, 7, SHM_BULK_RING + 1, (uint64_t)-1, 1 << 20};
    struct flipper *flipper = argument;
    for (uint64_t i = 0; !atomic_load(&flipper->stop); i++) {
        atomic_store(&flipper->region->lane[SHM_CLIENT].tail, tails[i % (sizeof tails / sizeof tails[0])]);
        atomic_store(&flipper->region->lane[SHM_CLIENT].bulk_tail, bulks[i % (sizeof bulks / sizeof bulks[0])]);
        atomic_store(&flipper->region->lane[SHM_SERVER].head, tails[(i + 3) % (sizeof tails / sizeof tails[0])]);
        atomic_store(&flipper->region->lane[SHM_SERVER].bulk_head, bulks[(i + 5) % (sizeof bulks / sizeof bulks[0])]);
        atomic_store(&flipper->region->bell[SHM_SERVER].wants, (uint32_t)i % 5);
        atomic_store(&flipper->region->bell[SHM_CLIENT].wants, (uint32_t)i % 6);
    }
    return NULL;
}

static void flip(struct wire *wire, void *argument)
{
    (void)argument;
    struct flipper flipper = {.region = shm_region_of(wire)};
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, flip_headers, &flipper);
    pthread_create(&threads[1], NULL, flip_counters, &flipper);
    while (!wire_gone(wire)) /* until the victim has suffered enough */
        sleep_ms(20);
    atomic_store(&flipper.stop, true);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
}

/* VICTIM_CAPACITY bytes that end where the process may not touch the next one. */
static unsigned char *body_at_a_wall(void)
{
    unsigned char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && mprotect(pages + 4096, 4096, PROT_NONE) == 0, "%s", strerror(errno));
    return pages + 4096 - VICTIM_CAPACITY;
}

/* Some calls of a fresh end over the region that is being rewritten; counts what they gave by -status. */
static void suffer(struct shm_region *region, int lifeline, unsigned char *body, long seen[3])
{
    struct wire *wire = shm_wire(region, SHM_SERVER, dup(lifeline), 0, 0);
    CHECK(wire != NULL, "no memory");
    for (int i = 0, status = WIRE_OK; i < 50 && status == WIRE_OK; i++) {
        struct wire_header header;
        const void *from;
        void *to;
        size_t granted = 0;
        status = wire->ops->receive(wire, &header, body, VICTIM_CAPACITY);
        CHECK(status != WIRE_OK || header.body_bytes <= VICTIM_CAPACITY, "a body of %u bytes", header.body_bytes);
        seen[-status]++;
        if (status != WIRE_OK || i % 4 != 0)
            continue;
        status = wire->ops->bulk_peek(wire, 1 << 30, &from, &granted);
        CHECK(status != WIRE_OK ||
                  ((const unsigned char *)from >= region->bulk[SHM_CLIENT] && granted <= WIRE_BULK_CHUNK &&
                   (const unsigned char *)from + granted <= region->bulk[SHM_CLIENT] + SHM_BULK_RING),
              "bulk outside of the ring");
        seen[-status]++;
        if (status == WIRE_OK)
            status = wire->ops->bulk_release(wire, granted);
        if (status == WIRE_OK)
            status = wire->ops->bulk_reserve(wire, 1 << 30, &to, &granted);
        CHECK(status != WIRE_OK || ((unsigned char *)to >= region->bulk[SHM_SERVER] &&
                                    (unsigned char *)to + granted <= region->bulk[SHM_SERVER] + SHM_BULK_RING),
              "bulk outside of the ring");
        if (status == WIRE_OK)
            status = wire->ops->bulk_commit(wire, granted);
        if (status == WIRE_OK)
            status = wire->ops->send(wire, &header, body);
    }
    wire_abandon(wire);
}

static void rewritten_while_read(const char *transport)
{
    struct pair pair = open_pair(transport, ROLE_SERVER, 0, flip, NULL);
    unsigned char *body = body_at_a_wall();
    int line[2];
    long seen[3] = {0};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, line) == 0, "%s", strerror(errno));
    /* On a busy machine the attacker may not run for a while, and then every look is alike. */
    int64_t enough = now_ms() + 1200, most = enough + 30000;
    while (now_ms() < enough || ((seen[0] == 0 || seen[-WIRE_BROKEN] == 0) && now_ms() < most))
        suffer(shm_region_of(pair.wire), line[0], body, seen);
    CHECK(seen[0] > 0 && seen[-WIRE_BROKEN] > 0, "%ld ok, %ld broken: the attack did not hit", seen[0], seen[2]);
    close_pair(&pair, 0);
}

struct frames {
    const char *name;
    int (*victim)(struct wire *);
    uint32_t kind, bytes, body_bytes;
    size_t sent; /* how many of the frame's 40 bytes */
    int expected;
};

enum { KIND_MESSAGE = 0x6d677078, KIND_BULK = 0x6b6c7562 };

static const struct frames frames[] = {
    {"unknown frame", victim_receives, 1, 32, 0, 40, WIRE_BROKEN},
    {"body of 4 GiB", victim_receives, KIND_MESSAGE, 31, UINT32_MAX, 40, WIRE_BROKEN},
    {"body above the limit", victim_receives, KIND_MESSAGE, 32 + WIRE_BODY_MAX + 1, WIRE_BODY_MAX + 1, 40, WIRE_BROKEN},
    {"body above the victim's buffer", victim_receives, KIND_MESSAGE, 32 + 65, 65, 40, WIRE_BROKEN},
    {"frame and header disagree", victim_receives, KIND_MESSAGE, 40, 9, 40, WIRE_BROKEN},
    {"bulk in place of a message", victim_receives, KIND_BULK, 100, 0, 40, WIRE_BROKEN},
    {"message in place of bulk", victim_takes_bulk, KIND_MESSAGE, 32, 0, 40, WIRE_BROKEN},
    {"empty bulk", victim_takes_bulk, KIND_BULK, 0, 0, 40, WIRE_BROKEN},
    {"bulk of 4 GiB", victim_takes_bulk, KIND_BULK, UINT32_MAX, 0, 40, WIRE_BROKEN},
    {"half a frame", victim_receives, KIND_MESSAGE, 32, 0, 20, WIRE_CLOSED},
    {"message without its body", victim_receives, KIND_MESSAGE, 48, 16, 40, WIRE_CLOSED},
    {"bulk frame without bytes", victim_takes_bulk, KIND_BULK, 100, 0, 8, WIRE_CLOSED},
};

static void send_frames(const char *path, const struct frames *frame)
{
    struct hello_bytes hello = {.magic = WIRE_MAGIC, .protocol = WIRE_PROTOCOL, .transport = "unix-socket"};
    struct answer_bytes answer;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct {
        uint32_t kind, bytes;
        struct wire_header header;
    } bytes = {frame->kind, frame->bytes, {.body_bytes = frame->body_bytes}};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int socket_ = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(connect(socket_, (struct sockaddr *)&address, sizeof address) == 0, "%s", strerror(errno));
    CHECK(send(socket_, &hello, sizeof hello, 0) == sizeof hello, "%s", strerror(errno));
    CHECK(recv(socket_, &answer, sizeof answer, MSG_WAITALL) == sizeof answer, "%s", strerror(errno));
    CHECK(send(socket_, &bytes, frame->sent, 0) == (ssize_t)frame->sent, "%s", strerror(errno));
    close(socket_);
}

static void absurd_frames(const char *transport)
{
    (void)transport;
    for (size_t i = 0; i < sizeof frames / sizeof frames[0]; i++) {
        struct pair pair = {0};
        listen_somewhere(&pair, 0600);
        pair.other = fork();
        if (pair.other == 0) {
            send_frames(pair.path, &frames[i]);
            exit(0);
        }
        pair.wire = accept_wire(&pair, "unix-socket", 0);
        int status = frames[i].victim(pair.wire);
        CHECK(status == frames[i].expected, "%s: gave %d", frames[i].name, status);
        CHECK(victim_receives(pair.wire) != WIRE_OK, "%s: the connection lived on", frames[i].name);
        forget_socket(&pair);
        close_pair(&pair, 0);
    }
}

const struct wire_case hostile_cases[] = {
    {"absurd counters and sizes", absurd_counters, "shm,xen"},
    {"rewritten while read", rewritten_while_read, "shm,xen"},
    {"absurd frames", absurd_frames, "unix-socket"},
    {NULL, NULL, NULL},
};
