/* gputax-proxy: the daemon that serves one device to tenants over a Unix socket, each by a worker process of its own. */
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
#include "link/name.h"
#include "proxy/broker.h"
#include "proxy/clock.h"
#include "proxy/compiler.h"
#include "proxy/confine.h"
#include "proxy/worker.h"

enum { STOP_MS = 3000 };

struct options {
    const char *socket;
    const char *status_socket;
    const char *xen_socket; /* for the links of Xen guests; NULL: none */
    const char *backend;
    mode_t mode;
    unsigned int places;
    struct policy policy;
};

static const char usage[] =
    "usage: gputax-proxy --socket PATH --backend LIBCUDA [--memory-mb N] [--streams N] [--modules N]\n"
    "                    [--launches-per-s N] [--connections N] [--idle-s N] [--call-s N]\n"
    "                    [--identity group|process] [--spin auto|always|never] [--status-socket PATH]\n"
    "                    [--mode 0600] [--clear auto|always] [--places N] [--shares PERCENT,...]\n"
    "                    [--xen-socket PATH]\n"
    "                    [--worker-uids FIRST] [--unconfined NAMES]\n"
    "       gputax-proxy --check STATUS-SOCKET\n"
    "Limits are per tenant: a user in one control group (or pod), or with --identity process a process. Without a\n"
    "limit there is none but the device's own.\n"
    "Workers get users of their own, FIRST for the first seat, if the proxy is root; 0 keeps the proxy's user. NAMES\n"
    "are confinements of workers that are left out: those of the status with commas between them, or all.\n"
    "Places are folders beside the socket, places/1 to places/N, each with a socket for one container.\n"
    "Shares are those of places 1, 2 and so on: of the device's memory, and of the software device's time.\n"
    "The Xen socket is for xen-link in this domain alone: it says which guest and pod a connection is of.\n";

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

/* The place of `text` in a list of words that ends with NULL. */
static int choice(const char *option, const char *text, const char *const *words)
{
    for (int at = 0; words[at] != NULL; at++)
        if (strcmp(text, words[at]) == 0)
            return at;
    fprintf(stderr, "gputax-proxy: --%s %s is none of %s", option, text, words[0]);
    for (int at = 1; words[at] != NULL; at++)
        fprintf(stderr, ", %s", words[at]);
    fprintf(stderr, "\n%s", usage);
    exit(2);
}

static const char *const spins[] = {[SPIN_ADAPTIVE] = "auto", [SPIN_ALWAYS] = "always", [SPIN_NEVER] = "never", NULL};
static const char *const clears[] = {"auto", "always", NULL}; /* auto leaves it to a backend that is known to do it */
static const char *const identities[] = {"group", "process", NULL};

enum option_id {
    SOCKET = 1,
    BACKEND,
    MEMORY,
    STREAMS,
    MODULES,
    LAUNCHES,
    CONNECTIONS,
    IDLE,
    CALL,
    IDENTITY,
    SPIN,
    STATUS,
    MODE,
    CLEAR,
    PLACES,
    SHARES,
    WORKER_UIDS,
    UNCONFINED,
    XEN_SOCKET,
    CHECK,
    HELP
};

/* The options that are limits. False for another one. */
static bool take_limit(struct policy *policy, int option, const char *text)
{
    switch (option) {
    case MEMORY:
        policy->limits.memory_bytes = number("memory-mb", text, 10, 1 << 24) << 20;
        return true;
    case STREAMS:
        policy->limits.streams = number("streams", text, 10, 1 << 14);
        return true;
    case MODULES:
        policy->limits.modules = number("modules", text, 10, 1 << 14);
        return true;
    case LAUNCHES:
        policy->limits.launches_per_s = number("launches-per-s", text, 10, 1000000000);
        return true;
    case CONNECTIONS:
        policy->connections = number("connections", text, 10, SEATS);
        return true;
    case IDLE:
        policy->idle_s = number("idle-s", text, 10, 1 << 30);
        return true;
    case CALL:
        policy->call_s = number("call-s", text, 10, 1 << 30);
        return true;
    default:
        return false;
    }
}

/* Percentages with commas between them; all together at most 100. */
static void take_shares(struct policy *policy, const char *text)
{
    double sum = 0;
    policy->share_count = 0;
    for (const char *at = text;; at++) {
        char *end;
        double percent = strtod(at, &end);
        sum += percent;
        if (end == at || !(percent >= 0.01) || !(sum <= 100.01) || policy->share_count == PLACES_MOST ||
            (*end != 0 && *end != ',')) {
            fprintf(stderr, "gputax-proxy: --shares %s: at most %d percentages, together at most 100\n%s", text,
                    PLACES_MOST, usage);
            exit(2);
        }
        policy->shares[policy->share_count++] = (uint32_t)(percent * 100 + 0.5);
        at = end;
        if (*end == 0)
            return;
    }
}

static uint64_t measures(const char *names)
{
    const char *unknown;
    uint64_t found = confine_named(names, &unknown);
    if (unknown != NULL) {
        fprintf(stderr, "gputax-proxy: --unconfined %s: %.*s is not a confinement\n%s", names,
                (int)strcspn(unknown, ","), unknown, usage);
        exit(2);
    }
    return found;
}

static struct options parse(int count, char **arguments)
{
    static const struct option known[] = {
        {"socket", 1, NULL, SOCKET},
        {"backend", 1, NULL, BACKEND},
        {"memory-mb", 1, NULL, MEMORY},
        {"streams", 1, NULL, STREAMS},
        {"modules", 1, NULL, MODULES},
        {"launches-per-s", 1, NULL, LAUNCHES},
        {"connections", 1, NULL, CONNECTIONS},
        {"idle-s", 1, NULL, IDLE},
        {"call-s", 1, NULL, CALL},
        {"identity", 1, NULL, IDENTITY},
        {"spin", 1, NULL, SPIN},
        {"mode", 1, NULL, MODE},
        {"status-socket", 1, NULL, STATUS},
        {"clear", 1, NULL, CLEAR},
        {"places", 1, NULL, PLACES},
        {"shares", 1, NULL, SHARES},
        {"worker-uids", 1, NULL, WORKER_UIDS},
        {"unconfined", 1, NULL, UNCONFINED},
        {"xen-socket", 1, NULL, XEN_SOCKET},
        {"check", 1, NULL, CHECK},
        {"help", 0, NULL, HELP},
        {NULL, 0, NULL, 0},
    };
    struct options options = {.mode = 0600, .policy = {.spin = SPIN_ADAPTIVE}};
    for (int option; (option = getopt_long(count, arguments, "", known, NULL)) != -1;) {
        if (take_limit(&options.policy, option, optarg))
            continue;
        switch (option) {
        case SOCKET:
            options.socket = optarg;
            break;
        case BACKEND:
            options.backend = optarg;
            break;
        case IDENTITY:
            options.policy.by_process = choice("identity", optarg, identities) == 1;
            break;
        case SPIN:
            options.policy.spin = (enum spin_policy)choice("spin", optarg, spins);
            break;
        case STATUS:
            options.status_socket = optarg;
            break;
        case MODE:
            options.mode = (mode_t)number("mode", optarg, 8, 0777);
            break;
        case CLEAR:
            options.policy.always_clear = choice("clear", optarg, clears) == 1;
            break;
        case PLACES:
            options.places = (unsigned int)number("places", optarg, 10, PLACES_MOST);
            break;
        case SHARES:
            take_shares(&options.policy, optarg);
            break;
        case WORKER_UIDS:
            options.policy.first_user = (uid_t)number("worker-uids", optarg, 10, UINT32_MAX - SEATS);
            options.policy.users_asked = true;
            break;
        case UNCONFINED:
            options.policy.unconfined = measures(optarg);
            break;
        case XEN_SOCKET:
            options.xen_socket = optarg;
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
    if (options.places < options.policy.share_count)
        options.places = options.policy.share_count;
    if (options.policy.connections == 0)
        options.policy.connections = CONNECTIONS_DEFAULT;
    return options;
}

/* Where all cores are busy, each turn preempts a tenant or its worker. A turn every 20 ms caused half of their preemptions. */
static void *govern_main(void *argument)
{
    const uint64_t turn_ms = 50;
    struct broker *broker = argument;
    while (!broker->stopping) {
        broker_govern(broker);
        uint64_t until = now_ns() + ms(turn_ms);
        struct timespec at = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
        pthread_mutex_lock(&broker->lock);
        pthread_cond_timedwait(&broker->seated, &broker->lock, &at);
        pthread_mutex_unlock(&broker->lock);
    }
    return NULL;
}

static void say_ready(const struct options *options, const struct broker *broker)
{
    struct json line = {.grows = true};
    json_add(&line, "{\"ready\": true, \"pid\": %ld, \"socket\": ", (long)getpid());
    json_string(&line, options->socket);
    json_add(&line, ", \"status_socket\": ");
    json_string(&line, options->status_socket);
    json_add(&line, ", \"backend\": ");
    json_string(&line, broker->backend);
    json_add(&line, ", \"device\": ");
    json_string(&line, broker->finding.device);
    json_add(&line, ", \"memory_bytes\": %llu, \"wait_policy\": \"%s\", \"confinement\": ",
             (unsigned long long)broker->finding.memory_bytes, spin_policy_name(broker->policy.spin));
    confine_list(&line, broker->finding.confinement);
    json_add(&line, "}");
    puts(line.data != NULL ? line.data : "{}");
    fflush(stdout);
    free(line.data);
}

/* Takes the signals that wait; false for one that ends the broker. */
static bool take_signals(struct broker *broker, int signals)
{
    struct signalfd_siginfo what;
    while (read(signals, &what, sizeof what) == (ssize_t)sizeof what)
        if (what.ssi_signo != SIGCHLD)
            return false;
    broker_reap(broker);
    return true;
}

/* A connection of a guest's link; one that does not say whose it is, is not served. */
static void take_link(struct broker *broker, int listener)
{
    struct wire_peer peer;
    int socket = wire_accept_socket(listener, &peer);
    if (socket >= 0 && link_read_name(socket, &peer))
        broker_take(broker, socket, &peer);
    else if (socket >= 0)
        wire_refuse(socket, "this socket is for xen-link, which names its guest");
    else if (errno != EAGAIN)
        poll(NULL, 0, 10);
}

/* Accepts tenants until a signal ends it; `places` has a listener for each place, `links` is for guests (-1: none). */
static void accept_until_signal(struct broker *broker, int listener, const struct places *places, int links,
                                int signals)
{
    struct pollfd ready[3 + PLACES_MOST + SEATS] = {{.fd = signals, .events = POLLIN},
                                                    {.fd = listener, .events = POLLIN}};
    struct pollfd *orders = &ready[3 + places->count], *guests = &ready[2 + places->count];
    for (unsigned int at = 0; at < places->count; at++)
        ready[2 + at] = (struct pollfd){.fd = places->listeners[at], .events = POLLIN};
    *guests = (struct pollfd){.fd = links, .events = POLLIN};
    for (;;) {
        broker_orders(broker, orders);
        if (poll(ready, 3 + places->count + SEATS, -1) < 0) {
            if (errno != EINTR)
                return;
            continue;
        }
        if (ready[0].revents != 0 && !take_signals(broker, signals))
            return;
        broker_compile(broker, orders);
        if (guests->revents != 0)
            take_link(broker, links);
        for (unsigned int place = 0; place <= places->count; place++) {
            struct wire_peer peer;
            if (ready[1 + place].revents == 0)
                continue;
            int socket = wire_accept_socket(ready[1 + place].fd, &peer);
            peer.place = place;
            if (socket >= 0)
                broker_take(broker, socket, &peer);
            else if (errno != EAGAIN)
                poll(NULL, 0, 10); /* out of descriptors: do not burn the core that could end a tenant */
        }
    }
}

static int run(struct options *options)
{
    static struct broker broker;
    static struct places places;
    char why[1024], status_path[512];
    int code;
    if (options->status_socket == NULL) {
        snprintf(status_path, sizeof status_path, "%s.status", options->socket);
        options->status_socket = status_path;
    }
    sigset_t taken;
    sigemptyset(&taken);
    sigaddset(&taken, SIGTERM);
    sigaddset(&taken, SIGINT);
    sigaddset(&taken, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &taken, NULL);
    signal(SIGPIPE, SIG_IGN);
    int signals = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
    broker.backend = options->backend;
    broker.policy = options->policy;
    if (signals < 0 || !broker_begin(&broker, why, sizeof why, &code)) {
        fprintf(stderr, "gputax-proxy: %s\n", signals < 0 ? strerror(errno) : why);
        return signals < 0 ? 1 : code;
    }
    int listener = wire_listen(options->socket, options->mode, why, sizeof why);
    int status = listener < 0 ? -1 : wire_listen(options->status_socket, options->mode, why, sizeof why);
    int links = -1;
    bool linked = status >= 0 && (options->xen_socket == NULL ||
                                  (links = wire_listen(options->xen_socket, 0600, why, sizeof why)) >= 0);
    bool placed = linked && places_begin(&places, &broker, options->socket, options->places, why, sizeof why);
    pthread_t governor;
    if (!placed || !status_begin(&broker, status, 0) || pthread_create(&governor, NULL, govern_main, &broker) != 0) {
        fprintf(stderr, "gputax-proxy: %s\n", placed ? strerror(errno) : why);
        places_end(&places);
        if (listener >= 0)
            wire_unlisten(listener, options->socket);
        if (links >= 0)
            wire_unlisten(links, options->xen_socket);
        return 1;
    }
    say_ready(options, &broker);
    accept_until_signal(&broker, listener, &places, links, signals);
    wire_unlisten(listener, options->socket);
    if (links >= 0)
        wire_unlisten(links, options->xen_socket);
    broker_stop(&broker, STOP_MS);
    places_end(&places);
    wire_unlisten(status, options->status_socket);
    pthread_join(governor, NULL);
    return 0;
}

int main(int count, char **arguments)
{
    if (count == 2 && strcmp(arguments[1], "--worker") == 0)
        return worker_main();
    if (count == 2 && strcmp(arguments[1], "--compiler") == 0)
        return compiler_main();
    struct options options = parse(count, arguments);
    return run(&options);
}
