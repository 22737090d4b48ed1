/* Two processes and a connection between them, for the cases of the wire's conformance suite. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "link/local.h"
#include "wire/transports.h"
#include "wire_cases.h"

void check_failed(const char *file, int line, const char *what, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s:%d: not so: %s: ", file, line, what);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    fflush(stderr);
    if (getpgrp() != getpid()) /* not the case itself, which leads its group */
        kill(getpgrp(), OTHER_END_FAILED);
    _exit(1);
}

int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void sleep_ms(int64_t ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

void listen_somewhere(struct pair *pair, mode_t mode)
{
    char why[512] = "";
    snprintf(pair->folder, sizeof pair->folder, "/tmp/wire-test-XXXXXX");
    CHECK(mkdtemp(pair->folder) != NULL, "%s", strerror(errno));
    snprintf(pair->path, sizeof pair->path, "%s/socket", pair->folder);
    pair->listener = wire_listen(pair->path, mode, why, sizeof why);
    CHECK(pair->listener >= 0, "%s", why);
}

void link_somewhere(struct pair *pair)
{
    char why[512] = "";
    snprintf(pair->link_path, sizeof pair->link_path, "%s/link", pair->folder);
    int listener = wire_listen(pair->link_path, 0600, why, sizeof why);
    CHECK(listener >= 0, "%s", why);
    pid_t link = fork();
    CHECK(link >= 0, "%s", strerror(errno));
    if (link == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(pair->listener);
        local_link_serve(listener, pair->path, 5, "pod-of-a-test");
        exit(1);
    }
    close(listener);
}

void forget_socket(struct pair *pair)
{
    if (pair->link_path[0] != 0)
        unlink(pair->link_path);
    wire_unlisten(pair->listener, pair->path);
    rmdir(pair->folder);
}

static bool is_linked(const char *transport)
{
    return transport_named(transport)->linked;
}

struct wire *accept_wire(struct pair *pair, const char *transport, uint32_t spin_us)
{
    struct wire_peer peer;
    struct wire_offer offer = {.tenant = 7, .backend = "backend", .device = "device", .spin_us = spin_us};
    char why[512] = "";
    if (is_linked(transport))
        offer.transport = transport;
    int socket = wire_accept_socket(pair->listener, &peer);
    CHECK(socket >= 0, "%s", strerror(errno));
    struct wire *wire = wire_serve(socket, &offer, NULL, why, sizeof why);
    CHECK(wire != NULL, "%s", why);
    return wire;
}

struct wire *connect_wire(struct pair *pair, const char *transport)
{
    struct wire_welcome welcome;
    char why[512] = "";
    const char *path = pair->link_path[0] != 0 ? pair->link_path : pair->path;
    struct wire *wire = wire_connect(path, transport, 0, &welcome, why, sizeof why);
    CHECK(wire != NULL, "%s", why);
    return wire;
}

struct pair open_pair(const char *transport, enum role role, uint32_t spin_us, other_end *other, void *argument)
{
    struct pair pair = {0};
    listen_somewhere(&pair, 0600);
    if (is_linked(transport))
        link_somewhere(&pair);
    pair.other = fork();
    CHECK(pair.other >= 0, "%s", strerror(errno));
    bool serves = (role == ROLE_SERVER) == (pair.other != 0);
    struct wire *wire = serves ? accept_wire(&pair, transport, spin_us) : connect_wire(&pair, transport);
    if (pair.other == 0) {
        other(wire, argument);
        wire->ops->close(wire);
        exit(0);
    }
    forget_socket(&pair);
    pair.wire = wire;
    return pair;
}

void close_pair(struct pair *pair, int by_signal)
{
    int status;
    if (pair->wire != NULL)
        pair->wire->ops->close(pair->wire);
    CHECK(waitpid(pair->other, &status, 0) == pair->other, "%s", strerror(errno));
    if (by_signal != 0)
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == by_signal, "the other end ended with %#x", (unsigned)status);
    else
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the other end ended with %#x", (unsigned)status);
}

static uint64_t word_of(uint64_t seed, uint64_t index)
{
    uint64_t x = (index + seed * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ (x >> 32);
}

void fill_pattern(void *to, size_t bytes, uint64_t seed, uint64_t offset)
{
    unsigned char *at = to;
    while (bytes > 0) {
        uint64_t word = word_of(seed, offset / 8);
        size_t skip = (size_t)(offset % 8);
        size_t step = bytes < 8 - skip ? bytes : 8 - skip;
        memcpy(at, (unsigned char *)&word + skip, step);
        at += step;
        offset += step;
        bytes -= step;
    }
}

bool is_pattern(const void *bytes_at, size_t bytes, uint64_t seed, uint64_t offset)
{
    const unsigned char *at = bytes_at;
    while (bytes > 0) {
        uint64_t word = word_of(seed, offset / 8);
        size_t skip = (size_t)(offset % 8);
        size_t step = bytes < 8 - skip ? bytes : 8 - skip;
        if (memcmp(at, (unsigned char *)&word + skip, step) != 0)
            return false;
        at += step;
        offset += step;
        bytes -= step;
    }
    return true;
}

void push_bulk(struct wire *wire, uint64_t seed, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        void *at;
        size_t granted;
        CHECK_OK(wire->ops->bulk_reserve(wire, bytes - done, &at, &granted));
        CHECK(granted >= 1 && granted <= bytes - done && granted <= WIRE_BULK_CHUNK, "granted %zu", granted);
        fill_pattern(at, granted, seed, done);
        CHECK_OK(wire->ops->bulk_commit(wire, granted));
        done += granted;
    }
}

void pull_bulk(struct wire *wire, uint64_t seed, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const void *at;
        size_t granted;
        CHECK_OK(wire->ops->bulk_peek(wire, bytes - done, &at, &granted));
        CHECK(granted >= 1 && granted <= bytes - done && granted <= WIRE_BULK_CHUNK, "granted %zu", granted);
        CHECK(is_pattern(at, granted, seed, done), "bulk bytes %zu to %zu differ", done, done + granted);
        CHECK_OK(wire->ops->bulk_release(wire, granted));
        done += granted;
    }
}

uint32_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}
