/* What the cases of the wire's conformance suite share: checks, and a connection between two processes. */
#ifndef GPUTAX_TESTS_WIRE_CASES_H
#define GPUTAX_TESTS_WIRE_CASES_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire/handshake.h"

struct wire_case {
    const char *name;
    void (*run)(const char *transport);
    const char *only; /* names of transports with commas between them, or NULL for every one */
};

extern const struct wire_case traffic_cases[], end_cases[], hostile_cases[], handshake_cases[], link_cases[];

/* Ends the case with this signal, which the process of the other end sends when its own check fails: the case may wait
 * for something that now never comes. */
enum { OTHER_END_FAILED = SIGUSR1 };

/* Ends this process, and the case that it belongs to, with the place and the reason when `condition` is false. */
#define CHECK(condition, ...) \
    do { \
        if (!(condition)) \
            check_failed(__FILE__, __LINE__, #condition, __VA_ARGS__); \
    } while (0)
#define CHECK_OK(call) \
    do { \
        int check_status = (call); \
        CHECK(check_status == WIRE_OK, "%s gave %d", #call, check_status); \
    } while (0)
_Noreturn void check_failed(const char *file, int line, const char *what, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

int64_t now_ms(void);
void sleep_ms(int64_t ms);

/* Which end the case itself plays; a forked process plays the other one. */
enum role { ROLE_SERVER, ROLE_CLIENT };

struct pair {
    struct wire *wire; /* this process's end */
    pid_t other;       /* the process with the other end */
    char folder[64];
    char path[96];
    int listener;
    char link_path[96]; /* where clients connect if a link is between the ends, else "" */
};

/* A folder and a listening socket in it. */
void listen_somewhere(struct pair *pair, mode_t mode);
void forget_socket(struct pair *pair);
struct wire *accept_wire(struct pair *pair, const char *transport, uint32_t spin_us);
/* Starts a local link before the socket of a pair, in a process that ends with the case. */
void link_somewhere(struct pair *pair);
struct wire *connect_wire(struct pair *pair, const char *transport);

/* Starts the other end in a forked process, which runs `other` and ends with 0. */
typedef void other_end(struct wire *wire, void *argument);
struct pair open_pair(const char *transport, enum role role, uint32_t spin_us, other_end *other, void *argument);
/* Closes this end and checks that the other process ended well (or by `signal`). */
void close_pair(struct pair *pair, int by_signal);

/* Bytes whose value depends on their place, so that a lost, doubled or moved byte shows. */
void fill_pattern(void *to, size_t bytes, uint64_t seed, uint64_t offset);
bool is_pattern(const void *bytes_at, size_t bytes, uint64_t seed, uint64_t offset);

/* Whole transfers in pieces. */
void push_bulk(struct wire *wire, uint64_t seed, size_t bytes);
void pull_bulk(struct wire *wire, uint64_t seed, size_t bytes);

uint32_t next_random(uint64_t *state);

#endif
