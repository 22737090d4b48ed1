/* Conformance of a transport in peace: order, sizes, wrap-around, bulk bytes, floods, wake-ups. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "wire/shm.h"
#include "wire/wait.h"
#include "wire_cases.h"

enum { CALL_ECHO = 1, CALL_BULK, CALL_END };

static struct wire_header message(uint32_t call, uint64_t sequence, uint32_t body_bytes, uint32_t flags)
{
    return (struct wire_header){.call = call, .sequence = sequence, .body_bytes = body_bytes, .flags = flags};
}

/* The other end of most cases: checks what comes by its sequence number, answers what is not posted. */
static void echo(struct wire *wire, void *argument)
{
    (void)argument;
    static unsigned char body[WIRE_BODY_MAX];
    struct wire_header header;
    uint64_t expected = 1;
    for (;; expected++) {
        CHECK_OK(wire->ops->receive(wire, &header, body, sizeof body));
        CHECK(header.sequence == expected, "message %llu in place of %llu", (unsigned long long)header.sequence,
              (unsigned long long)expected);
        CHECK(is_pattern(body, header.body_bytes, header.sequence, 0), "body of %u bytes differs", header.body_bytes);
        if (header.call == CALL_END)
            return;
        pull_bulk(wire, header.sequence, header.call == CALL_BULK ? (size_t)header.bulk_bytes : 0);
        if (header.flags & WIRE_POSTED)
            continue;
        header.status = (int32_t)header.body_bytes;
        header.bulk_bytes = header.call == CALL_BULK ? header.bulk_bytes / 2 : 0;
        CHECK_OK(wire->ops->send(wire, &header, body));
        push_bulk(wire, ~header.sequence, (size_t)header.bulk_bytes);
    }
}

static void expect_answer(struct wire *wire, const struct wire_header *question)
{
    static unsigned char body[WIRE_BODY_MAX];
    struct wire_header answer;
    CHECK_OK(wire->ops->receive(wire, &answer, body, sizeof body));
    CHECK(answer.sequence == question->sequence && answer.body_bytes == question->body_bytes &&
              answer.status == (int32_t)question->body_bytes && answer.call == question->call,
          "answer to %llu: sequence %llu, %u bytes", (unsigned long long)question->sequence,
          (unsigned long long)answer.sequence, answer.body_bytes);
    CHECK(is_pattern(body, answer.body_bytes, answer.sequence, 0), "answer of %u bytes differs", answer.body_bytes);
    pull_bulk(wire, ~answer.sequence, (size_t)answer.bulk_bytes);
}

static void say(struct wire *wire, const struct wire_header *header)
{
    static unsigned char body[WIRE_BODY_MAX];
    fill_pattern(body, header->body_bytes, header->sequence, 0);
    CHECK_OK(wire->ops->send(wire, header, body));
    if (header->call == CALL_BULK)
        push_bulk(wire, header->sequence, (size_t)header->bulk_bytes);
    if (!(header->flags & WIRE_POSTED) && header->call != CALL_END)
        expect_answer(wire, header);
}

static void end_talk(struct pair *pair, uint64_t sequence)
{
    struct wire_header end = message(CALL_END, sequence, 0, 0);
    say(pair->wire, &end);
    close_pair(pair, 0);
}

static void order(const char *transport)
{
    struct pair pair = open_pair(transport, ROLE_CLIENT, 50, echo, NULL);
    uint64_t random = 1;
    uint64_t sequence = 1;
    for (; sequence <= 20000; sequence++) {
        bool posted = next_random(&random) % 8 != 0;
        struct wire_header header = message(CALL_ECHO, sequence, next_random(&random) % 100, posted ? WIRE_POSTED : 0);
        say(pair.wire, &header);
    }
    end_talk(&pair, sequence);
}

static void every_size(const char *transport)
{
    struct pair pair = open_pair(transport, ROLE_CLIENT, 50, echo, NULL);
    for (uint32_t bytes = 0; bytes <= WIRE_BODY_MAX; bytes++) {
        struct wire_header header = message(CALL_ECHO, bytes + 1, bytes, bytes % 16 == 0 ? 0 : WIRE_POSTED);
        say(pair.wire, &header);
    }
    struct wire_header too_large = message(CALL_ECHO, 0, WIRE_BODY_MAX + 1, 0);
    static const unsigned char body[WIRE_BODY_MAX + 1];
    CHECK(pair.wire->ops->send(pair.wire, &too_large, body) == WIRE_BROKEN, "a message above the limit was sent");
    end_talk(&pair, WIRE_BODY_MAX + 2);
}

static void wrap_around(const char *transport)
{
    struct pair pair = open_pair(transport, ROLE_CLIENT, 50, echo, NULL);
    uint64_t random = 2;
    uint64_t sequence = 1;
    for (; sequence <= 4000; sequence++) { /* about 16 MB through a ring of 256 KiB, every offset of a header */
        struct wire_header header = message(CALL_ECHO, sequence, next_random(&random) % (WIRE_BODY_MAX + 1),
                                            sequence % 32 == 0 ? 0 : WIRE_POSTED);
        say(pair.wire, &header);
    }
    end_talk(&pair, sequence);
}

static void bulk_sizes(const char *transport)
{
    static const size_t sizes[] = {1,        2, 7, 4096, 65535, 65537, 1 << 20, (8 << 20) - 1, 8 << 20, (8 << 20) + 1,
                                   100000000};
    struct pair pair = open_pair(transport, ROLE_CLIENT, 500, echo, NULL);
    uint64_t sequence = 1;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++, sequence++) {
        struct wire_header header = message(CALL_BULK, sequence, 24, 0);
        header.bulk_bytes = sizes[i];
        say(pair.wire, &header);
    }
    end_talk(&pair, sequence);
}

static void both_ways_at(const char *transport, uint32_t spin_us)
{
    struct pair pair = open_pair(transport, ROLE_CLIENT, spin_us, echo, NULL);
    uint64_t random = spin_us + 3;
    uint64_t sequence = 1;
    for (; sequence <= 1500; sequence++) {
        bool bulk = next_random(&random) % 2 == 0;
        struct wire_header header = message(bulk ? CALL_BULK : CALL_ECHO, sequence, next_random(&random) % 600,
                                            next_random(&random) % 2 == 0 ? WIRE_POSTED : 0);
        header.bulk_bytes = bulk ? next_random(&random) % (next_random(&random) % 16 == 0 ? 3000000 : 20000) : 0;
        say(pair.wire, &header);
    }
    struct wire_wait_counts counts;
    wire_wait_counts(pair.wire, &counts);
    CHECK(counts.waits > 0 && (spin_us > 0 || counts.spins_paid == 0), "%llu waits, %llu spins paid",
          (unsigned long long)counts.waits, (unsigned long long)counts.spins_paid);
    end_talk(&pair, sequence);
}

static void both_ways_spinning(const char *transport)
{
    both_ways_at(transport, 500);
}

static void both_ways_sleeping_soon(const char *transport)
{
    both_ways_at(transport, 5);
}

static void both_ways_sleeping(const char *transport)
{
    both_ways_at(transport, 0);
}

static void late_echo(struct wire *wire, void *argument)
{
    sleep_ms(50);
    echo(wire, argument);
}

static void flood(const char *transport)
{
    struct pair pair = open_pair(transport, ROLE_CLIENT, 5, late_echo, NULL);
    uint64_t sequence = 1;
    for (; sequence <= 200000; sequence++) {
        struct wire_header header = message(CALL_ECHO, sequence, (uint32_t)(sequence % 40), WIRE_POSTED);
        say(pair.wire, &header);
    }
    struct wire_header header = message(CALL_BULK, sequence++, 0, WIRE_POSTED);
    header.bulk_bytes = 20 << 20; /* more than any path holds, after a full path of messages */
    say(pair.wire, &header);
    end_talk(&pair, sequence);
}

/* From now on a lost wake-up of this end hangs, where the life line's timer would recover it. */
static void endless_lifeline(struct wire *wire)
{
    if (strcmp(wire->ops->name, "unix-socket") != 0)
        shm_waiter_of(wire)->lifeline_ms = 3600 * 1000;
}

/* Tells by a pipe that a message came, so that the sender need not use the wire to know. */
static void tell(struct wire *wire, void *argument)
{
    struct wire_header header;
    endless_lifeline(wire);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(wire->ops->receive(wire, &header, NULL, 0));
        CHECK(write(((int *)argument)[1], "x", 1) == 1, "pipe");
    }
    header.flags = 0;
    CHECK_OK(wire->ops->send(wire, &header, NULL));
}

static void posted_arrives(const char *transport)
{
    int told[2];
    char byte;
    CHECK(pipe(told) == 0, "pipe");
    struct pair pair = open_pair(transport, ROLE_CLIENT, 0, tell, told);
    struct wire_header header = message(CALL_ECHO, 1, 0, WIRE_POSTED);
    endless_lifeline(pair.wire);
    sleep_ms(30); /* the other end sleeps now */
    CHECK_OK(pair.wire->ops->send(pair.wire, &header, NULL));
    CHECK_OK(pair.wire->ops->flush(pair.wire));
    CHECK(read(told[0], &byte, 1) == 1, "flush did not deliver");
    sleep_ms(30);
    CHECK_OK(pair.wire->ops->send(pair.wire, &header, NULL)); /* no flush: waiting for the answer must do it */
    CHECK_OK(pair.wire->ops->receive(pair.wire, &header, NULL, 0));
    close_pair(&pair, 0);
}

static void echo_without_lifeline(struct wire *wire, void *argument)
{
    endless_lifeline(wire);
    echo(wire, argument);
}

static void no_wake_up_is_lost(const char *transport)
{
    static const uint32_t limits[] = {0, 1, 5};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        struct pair pair = open_pair(transport, ROLE_CLIENT, limits[i], echo_without_lifeline, NULL);
        endless_lifeline(pair.wire);
        uint64_t random = 5;
        uint64_t sequence = 1;
        for (; sequence <= 15000; sequence++) {
            bool bulk = next_random(&random) % 64 == 0;
            struct wire_header header = message(bulk ? CALL_BULK : CALL_ECHO, sequence, next_random(&random) % 3000,
                                                next_random(&random) % 4 == 0 ? 0 : WIRE_POSTED);
            header.bulk_bytes = bulk ? next_random(&random) % 400000 : 0;
            say(pair.wire, &header);
        }
        end_talk(&pair, sequence);
    }
}

const struct wire_case traffic_cases[] = {
    {"order", order, NULL},
    {"every size of body", every_size, NULL},
    {"wrap-around", wrap_around, NULL},
    {"bulk of 1 byte to 100 MB", bulk_sizes, NULL},
    {"both ways, spinning", both_ways_spinning, "shm,xen"},
    {"both ways, sleeping soon", both_ways_sleeping_soon, NULL},
    {"both ways, sleeping", both_ways_sleeping, NULL},
    {"posted flood without reading", flood, NULL},
    {"posted messages arrive by flush and by waiting", posted_arrives, NULL},
    {"no wake-up is lost", no_wake_up_is_lost, NULL},
    {NULL, NULL, NULL},
};
