/* Conformance of a transport when an end goes away: killed, closed, shut from another thread, forked. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire_cases.h"

/* A sleeper looks ten times a second; the rest is for a machine on which each process waits for its turn. */
enum { NOTICED_WITHIN_MS = 5000 };

/* Every kind of call that can wait, until it no longer succeeds. */
static int wait_in_receive(struct wire *wire)
{
    struct wire_header header;
    unsigned char body[WIRE_BODY_MAX];
    return wire->ops->receive(wire, &header, body, sizeof body);
}

static int wait_in_send(struct wire *wire)
{
    static const unsigned char body[WIRE_BODY_MAX];
    struct wire_header header = {.call = 1, .body_bytes = WIRE_BODY_MAX};
    int status;
    do
        status = wire->ops->send(wire, &header, body);
    while (status == WIRE_OK);
    return status;
}

static int wait_in_posted_send(struct wire *wire)
{
    static const unsigned char body[100];
    struct wire_header header = {.call = 1, .body_bytes = sizeof body, .flags = WIRE_POSTED};
    int status;
    do
        status = wire->ops->send(wire, &header, body);
    while (status == WIRE_OK);
    return status;
}

static int wait_in_bulk_sending(struct wire *wire)
{
    int status;
    do {
        void *at;
        size_t granted;
        status = wire->ops->bulk_reserve(wire, 1 << 30, &at, &granted);
        if (status == WIRE_OK)
            status = wire->ops->bulk_commit(wire, granted);
    } while (status == WIRE_OK);
    return status;
}

static int wait_in_bulk_peek(struct wire *wire)
{
    const void *at;
    size_t granted;
    return wire->ops->bulk_peek(wire, 100, &at, &granted);
}

static const struct {
    const char *name;
    int (*call)(struct wire *);
} waits[] = {
    {"receive", wait_in_receive},           {"send", wait_in_send},           {"posted send", wait_in_posted_send},
    {"bulk sending", wait_in_bulk_sending}, {"bulk_peek", wait_in_bulk_peek},
};
enum { WAITS = sizeof waits / sizeof waits[0] };

static void do_nothing(struct wire *wire, void *argument)
{
    (void)wire;
    (void)argument;
    for (;;)
        pause();
}

struct later {
    pthread_t thread;
    pid_t kill;        /* a process to kill, or 0 */
    struct wire *shut; /* a wire to shut down, or NULL */
    _Atomic int64_t done_ms;
};

static void *act_later(void *argument)
{
    struct later *later = argument;
    sleep_ms(60);
    atomic_store(&later->done_ms, now_ms());
    if (later->kill != 0)
        kill(later->kill, SIGKILL);
    if (later->shut != NULL)
        wire_shutdown(later->shut);
    return NULL;
}

static void start_later(struct later *later)
{
    int error = pthread_create(&later->thread, NULL, act_later, later);
    CHECK(error == 0, "%s", strerror(error));
}

static void end_later(struct later *later, const char *wait, enum role role, int status)
{
    int64_t end = now_ms();
    pthread_join(later->thread, NULL);
    int64_t took = end - atomic_load(&later->done_ms);
    CHECK(status == WIRE_CLOSED, "%s as %s gave %d", wait, role == ROLE_SERVER ? "server" : "client", status);
    CHECK(atomic_load(&later->done_ms) != 0 && took >= 0, "%s returned before anything had happened", wait);
    CHECK(took < NOTICED_WITHIN_MS, "%s noticed after %lld ms", wait, (long long)took);
}

static void killed_at(const char *transport, uint32_t spin_us)
{
    for (size_t i = 0; i < WAITS; i++) {
        for (enum role role = ROLE_SERVER; role <= ROLE_CLIENT; role++) {
            struct pair pair = open_pair(transport, role, spin_us, do_nothing, NULL);
            struct later later = {.kill = pair.other};
            start_later(&later);
            int status = waits[i].call(pair.wire);
            end_later(&later, waits[i].name, role, status);
            CHECK(wait_in_receive(pair.wire) == WIRE_CLOSED, "receive after %s", waits[i].name);
            close_pair(&pair, SIGKILL);
        }
    }
}

static void killed_while_sleeping(const char *transport)
{
    killed_at(transport, 0);
}

static void killed_while_spinning(const char *transport)
{
    killed_at(transport, 500);
}

static void shut_by_another_thread(const char *transport)
{
    for (size_t i = 0; i < WAITS; i++) {
        for (enum role role = ROLE_SERVER; role <= ROLE_CLIENT; role++) {
            struct pair pair = open_pair(transport, role, i % 2 == 0 ? 0 : 500, do_nothing, NULL);
            struct later later = {.shut = pair.wire};
            start_later(&later);
            int status = waits[i].call(pair.wire);
            end_later(&later, waits[i].name, role, status);
            for (size_t j = 0; j < WAITS; j++)
                CHECK(waits[j].call(pair.wire) == WIRE_CLOSED, "%s after shutdown", waits[j].name);
            kill(pair.other, SIGKILL);
            close_pair(&pair, SIGKILL);
        }
    }
}

static void receive_until_closed(struct wire *wire, void *argument)
{
    (void)argument;
    CHECK(wait_in_receive(wire) == WIRE_CLOSED, "receive");
}

static void shutdown_reaches_the_peer(const char *transport)
{
    struct pair pair = open_pair(transport, ROLE_SERVER, 0, receive_until_closed, NULL);
    sleep_ms(30);
    int64_t start = now_ms();
    wire_shutdown(pair.wire);
    int status;
    CHECK(waitpid(pair.other, &status, 0) == pair.other && status == 0, "the peer ended with %#x", (unsigned)status);
    CHECK(now_ms() - start < NOTICED_WITHIN_MS, "the peer noticed after %lld ms", (long long)(now_ms() - start));
    pair.wire->ops->close(pair.wire);
}

static void send_and_close(struct wire *wire, void *argument)
{
    (void)argument;
    for (uint64_t i = 1; i <= 50; i++) {
        struct wire_header header = {.call = 1, .sequence = i, .flags = WIRE_POSTED};
        CHECK_OK(wire->ops->send(wire, &header, NULL));
    }
    push_bulk(wire, 9, 5000);
}

static void what_was_sent_before_close_arrives(const char *transport)
{
    struct pair pair = open_pair(transport, ROLE_SERVER, 0, send_and_close, NULL);
    struct wire_header header;
    sleep_ms(50);
    for (uint64_t i = 1; i <= 50; i++) {
        CHECK_OK(pair.wire->ops->receive(pair.wire, &header, NULL, 0));
        CHECK(header.sequence == i, "%llu in place of %llu", (unsigned long long)header.sequence,
              (unsigned long long)i);
    }
    pull_bulk(pair.wire, 9, 5000);
    CHECK(wait_in_receive(pair.wire) == WIRE_CLOSED, "receive after close");
    CHECK(wait_in_bulk_peek(pair.wire) == WIRE_CLOSED, "bulk_peek after close");
    close_pair(&pair, 0);
}

static void answer_for_ever(struct wire *wire, void *argument)
{
    (void)argument;
    struct wire_header header;
    while (wire->ops->receive(wire, &header, NULL, 0) == WIRE_OK) {
        pull_bulk(wire, header.sequence, (size_t)header.bulk_bytes);
        if (wire->ops->send(wire, &header, NULL) != WIRE_OK)
            break;
    }
}

static int ask(struct wire *wire, uint64_t sequence)
{
    struct wire_header header = {.call = 1, .sequence = sequence};
    int status = wire->ops->send(wire, &header, NULL);
    if (status == WIRE_OK)
        status = wire->ops->receive(wire, &header, NULL, 0);
    CHECK(status != WIRE_OK || header.sequence == sequence, "answer %llu to %llu", (unsigned long long)header.sequence,
          (unsigned long long)sequence);
    return status;
}

static void killed_in_the_midst_of_traffic(const char *transport)
{
    for (int i = 0; i < 5; i++) {
        struct pair pair = open_pair(transport, ROLE_CLIENT, i % 2 == 0 ? 5 : 500, answer_for_ever, NULL);
        struct later later = {.kill = pair.other};
        start_later(&later);
        int status;
        uint64_t sequence = 0;
        do
            status = ask(pair.wire, ++sequence);
        while (status == WIRE_OK);
        end_later(&later, "question and answer", ROLE_CLIENT, status);
        close_pair(&pair, SIGKILL);
    }
}

static void a_forked_child_abandons(const char *transport)
{
    struct pair pair = open_pair(transport, ROLE_CLIENT, 5, answer_for_ever, NULL);
    CHECK_OK(ask(pair.wire, 1));
    pid_t child = fork();
    if (child == 0) {
        wire_abandon(pair.wire);
        pause();
        _exit(0);
    }
    for (uint64_t i = 2; i < 100; i++)
        CHECK_OK(ask(pair.wire, i));
    int64_t start = now_ms();
    close_pair(&pair, 0); /* the server must see the end although the child lives */
    CHECK(now_ms() - start < NOTICED_WITHIN_MS, "the server noticed after %lld ms", (long long)(now_ms() - start));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

const struct wire_case end_cases[] = {
    {"peer killed while this end sleeps", killed_while_sleeping, NULL},
    {"peer killed while this end spins", killed_while_spinning, "shm,xen"},
    {"shut by another thread", shut_by_another_thread, NULL},
    {"shutdown reaches the peer", shutdown_reaches_the_peer, NULL},
    {"what was sent before close arrives", what_was_sent_before_close_arrives, NULL},
    {"peer killed in the midst of traffic", killed_in_the_midst_of_traffic, NULL},
    {"a forked child abandons its copy", a_forked_child_abandons, NULL},
    {NULL, NULL, NULL},
};
