/* gputax-proxy: the daemon that alone owns the device and serves it to tenants over a Unix socket. */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "calls/json.h"
#include "proxy/proxy.h"

struct options {
    const char *socket;
    const char *status_socket;
    const char *backend;
    mode_t mode;
    struct limits limits;
    enum spin_policy spin;
    bool always_clear;
    unsigned int places;
};

static const char usage[] =
    "usage: gputax-proxy --socket PATH --backend LIBCUDA [--memory-mb N] [--streams N] [--modules N]\n"
    "                    [--launches-per-s N] [--spin auto|always|never] [--status-socket PATH] [--mode 0600]\n"
    "                    [--clear auto|always] [--places N]\n"
    "       gputax-proxy --check STATUS-SOCKET\n"
    "Limits are per tenant; without one there is none but the device's own.\n"
    "Places are folders beside the socket, places/1 to places/N, each with a socket for one container.\n";

static uint64_t number(const char *option, const char *text, int base, uint64_t most)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, base);
    if (errno != 0 || *text == 0 || *text == '-' || *end != 0 || value > most) {
        fprintf(stderr, "gputax-proxy: --%s %s is not a number between 0 and %llu\n%s", option, text,
                (unsigned long long)most, usage);
        exit(2);
    }
    return value;
}

static enum spin_policy spin_of(const char *text)
{
    if (strcmp(text, "always") == 0)
        return SPIN_ALWAYS;
    if (strcmp(text, "never") == 0)
        return SPIN_NEVER;
    if (strcmp(text, "auto") == 0)
        return SPIN_ADAPTIVE;
    fprintf(stderr, "gputax-proxy: --spin %s is none of auto, always, never\n%s", text, usage);
    exit(2);
}

/* "auto" leaves it to a backend that is known to do it. */
static bool clears_always(const char *text)
{
    if (strcmp(text, "always") == 0 || strcmp(text, "auto") == 0)
        return strcmp(text, "always") == 0;
    fprintf(stderr, "gputax-proxy: --clear %s is none of auto, always\n%s", text, usage);
    exit(2);
}

static struct options parse(int count, char **arguments)
{
    enum { SOCKET = 1, BACKEND, MEMORY, STREAMS, MODULES, LAUNCHES, SPIN, STATUS, MODE, CLEAR, PLACES, CHECK, HELP };
    static const struct option known[] = {
        {"socket", 1, NULL, SOCKET},
        {"backend", 1, NULL, BACKEND},
        {"memory-mb", 1, NULL, MEMORY},
        {"streams", 1, NULL, STREAMS},
        {"modules", 1, NULL, MODULES},
        {"launches-per-s", 1, NULL, LAUNCHES},
        {"spin", 1, NULL, SPIN},
        {"mode", 1, NULL, MODE},
        {"status-socket", 1, NULL, STATUS},
        {"clear", 1, NULL, CLEAR},
        {"places", 1, NULL, PLACES},
        {"check", 1, NULL, CHECK},
        {"help", 0, NULL, HELP},
        {NULL, 0, NULL, 0},
    };
    struct options options = {.mode = 0600, .spin = SPIN_ADAPTIVE};
    for (int option; (option = getopt_long(count, arguments, "", known, NULL)) != -1;) {
        switch (option) {
        case SOCKET:
            options.socket = optarg;
            break;
        case BACKEND:
            options.backend = optarg;
            break;
        case MEMORY:
            options.limits.memory_bytes = number("memory-mb", optarg, 10, 1 << 24) << 20;
            break;
        case STREAMS:
            options.limits.streams = number("streams", optarg, 10, 1 << 14);
            break;
        case MODULES:
            options.limits.modules = number("modules", optarg, 10, 1 << 14);
            break;
        case LAUNCHES:
            options.limits.launches_per_s = number("launches-per-s", optarg, 10, 1000000000);
            break;
        case SPIN:
            options.spin = spin_of(optarg);
            break;
        case STATUS:
            options.status_socket = optarg;
            break;
        case MODE:
            options.mode = (mode_t)number("mode", optarg, 8, 0777);
            break;
        case CLEAR:
            options.always_clear = clears_always(optarg);
            break;
        case PLACES:
            options.places = (unsigned int)number("places", optarg, 10, PLACES_MOST);
            break;
        case CHECK:
            exit(status_check(optarg));
        case HELP:
            fputs(usage, stdout);
            exit(0);
        default:
            fputs(usage, stderr);
            exit(2);
        }
    }
    if (options.socket == NULL || options.backend == NULL || optind != count) {
        fputs(usage, stderr);
        exit(2);
    }
    return options;
}

static void *govern_main(void *argument)
{
    struct proxy *proxy = argument;
    const struct timespec pause = {.tv_nsec = 20000000};
    while (!proxy_stopping(proxy)) {
        proxy_govern(proxy);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static void say_ready(const struct options *options, const struct proxy *proxy)
{
    struct json line = {.grows = true};
    json_add(&line, "{\"ready\": true, \"pid\": %ld, \"socket\": ", (long)getpid());
    json_string(&line, options->socket);
    json_add(&line, ", \"status_socket\": ");
    json_string(&line, options->status_socket);
    json_add(&line, ", \"backend\": ");
    json_string(&line, proxy->backend.path);
    json_add(&line, ", \"device\": ");
    json_string(&line, proxy->backend.name);
    json_add(&line, ", \"memory_bytes\": %llu, \"wait_policy\": \"%s\"}",
             (unsigned long long)proxy->backend.memory_bytes, proxy_wait_policy(proxy));
    puts(line.data != NULL ? line.data : "{}");
    fflush(stdout);
    free(line.data);
}

/* Accepts tenants until a signal comes; `places` has a listener for each place. */
static void accept_until_signal(struct proxy *proxy, int listener, const struct places *places, int signals)
{
    struct pollfd ready[2 + PLACES_MOST] = {{.fd = signals, .events = POLLIN}, {.fd = listener, .events = POLLIN}};
    for (unsigned int at = 0; at < places->count; at++)
        ready[2 + at] = (struct pollfd){.fd = places->listeners[at], .events = POLLIN};
    for (;;) {
        if (poll(ready, 2 + places->count, -1) < 0) {
            if (errno != EINTR)
                return;
            continue;
        }
        if (ready[0].revents != 0)
            return;
        for (unsigned int place = 0; place <= places->count; place++) {
            struct wire_peer peer;
            if (ready[1 + place].revents == 0)
                continue;
            int socket = wire_accept_socket(ready[1 + place].fd, &peer);
            peer.place = place;
            if (socket >= 0)
                proxy_take(proxy, socket, &peer);
            else if (errno != EAGAIN)
                poll(NULL, 0, 10); /* out of descriptors: do not burn the core that could end a tenant */
        }
    }
}

int main(int count, char **arguments)
{
    static struct proxy proxy;
    static struct places places;
    struct options options = parse(count, arguments);
    char why[512], status_path[512];
    if (options.status_socket == NULL) {
        snprintf(status_path, sizeof status_path, "%s.status", options.socket);
        options.status_socket = status_path;
    }
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends, NULL); /* before the backend makes threads, so that none of them takes a signal */
    signal(SIGPIPE, SIG_IGN);
    int signals = signalfd(-1, &ends, SFD_CLOEXEC);
    if (!backend_open(&proxy.backend, options.backend, why, sizeof why)) {
        fprintf(stderr, "gputax-proxy: %s\n", why);
        return 3;
    }
    proxy.limits = options.limits;
    proxy.policy = options.spin;
    proxy.clears_memory = options.always_clear || !proxy.backend.clears_itself;
    proxy_begin(&proxy);
    int listener = wire_listen(options.socket, options.mode, why, sizeof why);
    int status = listener < 0 ? -1 : wire_listen(options.status_socket, options.mode, why, sizeof why);
    bool placed = status >= 0 && places_begin(&places, &proxy, options.socket, options.places, why, sizeof why);
    pthread_t governor;
    if (signals < 0 || !placed || !status_begin(&proxy, status, 0) ||
        pthread_create(&governor, NULL, govern_main, &proxy) != 0) {
        fprintf(stderr, "gputax-proxy: %s\n", placed ? strerror(errno) : why);
        places_end(&places);
        if (listener >= 0)
            wire_unlisten(listener, options.socket);
        return 1;
    }
    say_ready(&options, &proxy);
    accept_until_signal(&proxy, listener, &places, signals);
    wire_unlisten(listener, options.socket);
    proxy_stop(&proxy, 5000);
    places_end(&places);
    wire_unlisten(status, options.status_socket);
    pthread_join(governor, NULL);
    return 0;
}
