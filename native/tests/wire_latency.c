/* Prints, for every transport, the round trip of a 64-byte message and the bulk rate between two processes, as JSON.
 *
 *   wire_latency [--trips 20000] [--bulk-mib 64] [--repeats 9] [--spin-us 500]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "wire/handshake.h"
#include "wire/transports.h"

enum { CALL_ECHO = 1, CALL_TAKE, CALL_GIVE, BODY = 32 /* with the header of 32 bytes: 64 */ };

struct options {
    long trips, bulk_mib, repeats, spin_us;
};

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void must(int status, const char *what)
{
    if (status != WIRE_OK) {
        fprintf(stderr, "wire_latency: %s gave %d\n", what, status);
        exit(1);
    }
}

static void push(struct wire *wire, const unsigned char *from, size_t bytes)
{
    while (bytes > 0) {
        void *at;
        size_t granted;
        must(wire->ops->bulk_reserve(wire, bytes, &at, &granted), "bulk_reserve");
        memcpy(at, from, granted);
        must(wire->ops->bulk_commit(wire, granted), "bulk_commit");
        from += granted;
        bytes -= granted;
    }
}

static void pull(struct wire *wire, unsigned char *to, size_t bytes)
{
    while (bytes > 0) {
        const void *at;
        size_t granted;
        must(wire->ops->bulk_peek(wire, bytes, &at, &granted), "bulk_peek");
        memcpy(to, at, granted);
        must(wire->ops->bulk_release(wire, granted), "bulk_release");
        to += granted;
        bytes -= granted;
    }
}

/* Echoes messages and takes or gives bulk bytes until the client is gone. */
static void serve(struct wire *wire, unsigned char *memory)
{
    struct wire_header header;
    unsigned char body[WIRE_BODY_MAX];
    while (wire->ops->receive(wire, &header, body, sizeof body) == WIRE_OK) {
        size_t bulk = (size_t)header.bulk_bytes;
        if (header.call == CALL_TAKE)
            pull(wire, memory, bulk);
        must(wire->ops->send(wire, &header, body), "answer");
        if (header.call == CALL_GIVE)
            push(wire, memory, bulk);
    }
    wire->ops->close(wire);
}

static double ask(struct wire *wire, uint32_t call, size_t bulk, unsigned char *memory)
{
    struct wire_header header = {.call = call, .body_bytes = BODY, .bulk_bytes = bulk};
    unsigned char body[WIRE_BODY_MAX] = {0};
    double start = now_us();
    must(wire->ops->send(wire, &header, body), "send");
    if (call == CALL_TAKE)
        push(wire, memory, bulk);
    must(wire->ops->receive(wire, &header, body, sizeof body), "receive");
    if (call == CALL_GIVE)
        pull(wire, memory, bulk);
    return now_us() - start;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *values, long count, double q)
{
    qsort(values, (size_t)count, sizeof *values, ascending);
    return values[(long)((double)(count - 1) * q)];
}

static void measure(struct wire *wire, const struct options *options, unsigned char *memory)
{
    double *times = calloc((size_t)options->trips, sizeof *times);
    size_t bulk = (size_t)options->bulk_mib << 20;
    if (times == NULL)
        exit(1);
    for (long i = -options->trips / 10; i < options->trips; i++) {
        double us = ask(wire, CALL_ECHO, 0, NULL);
        times[i < 0 ? 0 : i] = us;
    }
    double p50 = quantile(times, options->trips, 0.5);
    double p99 = quantile(times, options->trips, 0.99);
    double rate[2];
    for (uint32_t way = 0; way < 2; way++) {
        for (long i = -1; i < options->repeats; i++)
            times[i < 0 ? 0 : i] = ask(wire, way == 0 ? CALL_TAKE : CALL_GIVE, bulk, memory);
        rate[way] = (double)bulk / quantile(times, options->repeats, 0.5) / 1e3;
    }
    struct wire_wait_counts counts;
    wire_wait_counts(wire, &counts);
    printf("{\"round_trip_p50_us\": %.3f, \"round_trip_p99_us\": %.3f, \"to_server_gb_per_s\": %.2f, "
           "\"to_client_gb_per_s\": %.2f, \"waits\": %llu, \"spins_paid\": %llu, \"sleeps\": %llu, \"wakes\": %llu}",
           p50, p99, rate[0], rate[1], (unsigned long long)counts.waits, (unsigned long long)counts.spins_paid,
           (unsigned long long)counts.sleeps, (unsigned long long)counts.wakes);
    free(times);
}

static double memcpy_rate(unsigned char *memory, size_t bytes)
{
    double times[9];
    for (int i = 0; i < 9; i++) {
        double start = now_us();
        memcpy(memory, memory + bytes, bytes);
        __asm__ volatile("" ::: "memory");
        times[i] = now_us() - start;
    }
    return (double)bytes / quantile(times, 9, 0.5) / 1e3;
}

static void run(const char *transport, const struct options *options, unsigned char *memory)
{
    char folder[] = "/tmp/wire-latency-XXXXXX";
    char path[64];
    char why[512];
    if (mkdtemp(folder) == NULL)
        exit(1);
    snprintf(path, sizeof path, "%s/socket", folder);
    int listener = wire_listen(path, 0600, why, sizeof why);
    if (listener < 0) {
        fprintf(stderr, "wire_latency: %s\n", why);
        exit(1);
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct wire_peer peer;
        struct wire_offer offer = {
            .tenant = 1, .backend = "none", .device = "none", .spin_us = (uint32_t)options->spin_us};
        struct wire *wire = wire_serve(wire_accept_socket(listener, &peer), &offer, NULL, why, sizeof why);
        if (wire != NULL)
            serve(wire, memory);
        _exit(wire == NULL);
    }
    struct wire_welcome welcome;
    struct wire *wire = wire_connect(path, transport, 0, &welcome, why, sizeof why);
    if (wire == NULL) {
        fprintf(stderr, "wire_latency: %s\n", why);
        exit(1);
    }
    measure(wire, options, memory);
    wire->ops->close(wire);
    waitpid(child, NULL, 0);
    wire_unlisten(listener, path);
    rmdir(folder);
}

int main(int argc, char **argv)
{
    struct options options = {20000, 64, 9, 500};
    for (int i = 1; i + 1 < argc; i += 2) {
        long value = strtol(argv[i + 1], NULL, 10);
        long *option = strcmp(argv[i], "--trips") == 0      ? &options.trips
                       : strcmp(argv[i], "--bulk-mib") == 0 ? &options.bulk_mib
                       : strcmp(argv[i], "--repeats") == 0  ? &options.repeats
                       : strcmp(argv[i], "--spin-us") == 0  ? &options.spin_us
                                                            : NULL;
        if (option == NULL || value < 0 || (option != &options.spin_us && value == 0)) {
            fprintf(stderr, "usage: wire_latency [--trips N] [--bulk-mib N] [--repeats N] [--spin-us N]\n");
            return 2;
        }
        *option = value;
    }
    options.trips = options.trips < options.repeats ? options.repeats : options.trips;
    size_t bulk = (size_t)options.bulk_mib << 20;
    unsigned char *memory = malloc(2 * bulk);
    if (memory == NULL)
        return 1;
    memset(memory, 1, 2 * bulk);
    printf("{\"bulk_mib\": %ld, \"spin_us\": %ld, \"memcpy_gb_per_s\": %.2f", options.bulk_mib, options.spin_us,
           memcpy_rate(memory, bulk));
    for (const char *const *name = wire_transports; *name != NULL; name++) {
        if (transport_named(*name)->linked) /* between domains only; see bench/xen */
            continue;
        printf(", \"%s\": ", *name);
        run(*name, &options, memory);
    }
    printf("}\n");
    free(memory);
    return 0;
}
