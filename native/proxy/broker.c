/* Tenants come, get a worker process each, and go. */
#include "proxy/broker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls/pace.h"
#include "proxy/clock.h"
#include "proxy/confine.h"
#include "proxy/spawn.h"

enum {
    REMEMBERED_MS = 10000, /* an identity without connections keeps the state of its quotas for so long */
    /* A start of a worker takes 2 ms of CPU time: who connects and hangs up in a loop gets a tenth of a core's time. */
    STARTS_AT_ONCE = SEATS / 2,
    STARTS_EACH_MS = 20,
    /* Numbers that systemd's list of users leaves free (60578 to 61183); below 65536, so that a container has them, too. */
    USERS_FIRST = 60600,
};

struct limits broker_limits(const struct broker *broker, unsigned int place)
{
    struct limits limits = broker->policy.limits;
    uint64_t all = broker->finding.memory_bytes;
    if (place > 0 && place <= broker->policy.share_count) {
        uint64_t share = broker->policy.shares[place - 1];
        limits.memory_bytes = all / 10000 * share;
        limits.time_share = broker->finding.clears_itself ? share : 0; /* the software device */
    }
    if (limits.memory_bytes == 0 || limits.memory_bytes > all)
        limits.memory_bytes = all;
    return limits;
}

int broker_page(const struct broker *broker, struct page **page)
{
    void *at;
    int file = spawn_memory("gputax-tenant", sizeof **page, &at);
    if (file < 0)
        return -1;
    *page = at;
    struct settings *settings = &(*page)->settings;
    settings->broker = getpid();
    settings->policy = broker->policy.spin;
    settings->always_clear = broker->policy.always_clear;
    settings->limits = broker->policy.limits;
    settings->unconfined = broker->policy.unconfined;
    settings->user = broker->policy.first_user;
    settings->user_asked = broker->policy.users_asked;
    snprintf(settings->backend, sizeof settings->backend, "%s", broker->backend);
    return file;
}

static pid_t start(const struct broker *broker, enum role role, int socket, int page, int account, int process,
                   int compiler)
{
    const int given[] = {
        [WORKER_SOCKET - WORKER_SOCKET] = socket,        [WORKER_PAGE - WORKER_SOCKET] = page,
        [WORKER_ACCOUNT - WORKER_SOCKET] = account,      [WORKER_DEVICE - WORKER_SOCKET] = broker->device_file,
        [WORKER_LIFE - WORKER_SOCKET] = broker->life[0], [WORKER_PEER - WORKER_SOCKET] = process,
        [WORKER_COMPILER - WORKER_SOCKET] = compiler};
    return spawn(role, given);
}

static bool probe(struct broker *broker, char *why, size_t why_size)
{
    struct page *page;
    int file = broker_page(broker, &page), status = 0;
    pid_t worker = -1;
    if (file >= 0) {
        page->settings.probe = true;
        worker = start(broker, ROLE_DRIVER, -1, file, -1, -1, -1);
        close(file);
    }
    while (worker > 0 && waitpid(worker, &status, 0) < 0 && errno == EINTR) {
    }
    bool well = worker > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (file < 0 || worker < 0)
        snprintf(why, why_size, "cannot start a worker: %s", strerror(errno));
    else if (!well)
        snprintf(why, why_size, "%s", page->finding.why[0] != 0 ? page->finding.why : "the backend ends its process");
    if (well)
        broker->finding = page->finding;
    if (file >= 0)
        munmap(page, sizeof *page);
    return well;
}

/* Users for the workers, one for each seat: those that were asked for, else some of our own where it is possible. */
static bool choose_users(struct policy *policy, const char **why)
{
    if (!policy->users_asked)
        policy->first_user = USERS_FIRST;
    if (policy->first_user == 0 || confine_users_can(policy->first_user, SEATS, why))
        return true;
    policy->first_user = 0;
    return !policy->users_asked;
}

bool broker_begin(struct broker *broker, char *why, size_t why_size, int *code)
{
    void *device;
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&broker->lock, NULL);
    pthread_cond_init(&broker->seated, &clock);
    broker->device_file = spawn_memory("gputax-device", sizeof *broker->device, &device);
    *code = 1;
    if (broker->device_file < 0 || !spawn_prepare() || pipe2(broker->life, O_CLOEXEC) != 0) {
        snprintf(why, why_size, "cannot prepare for workers: %s", strerror(errno));
        return false;
    }
    const char *reason;
    if (!choose_users(&broker->policy, &reason)) {
        snprintf(why, why_size, "--worker-uids: %s", reason);
        return false;
    }
    broker->device = device;
    broker->usable_milli = spin_milli_cores();
    broker->quota_milli = spin_own_quota_milli();
    *code = 3;
    if (!probe(broker, why, why_size))
        return false;
    broker->clears_memory = broker->policy.always_clear || !broker->finding.clears_itself;
    broker_govern(broker);
    return true;
}

void record_add(struct record *sums, const struct record *record)
{
    for (size_t call = 0; call < CALL_COUNT; call++)
        sums->calls[call] += record->calls[call];
    sums->posted += record->posted;
    sums->replayed += record->replayed;
    sums->errors += record->errors;
    sums->refused += record->refused;
    sums->bytes_in += record->bytes_in;
    sums->bytes_out += record->bytes_out;
    sums->cleared_bytes += record->cleared_bytes;
    sums->cleared_ns += record->cleared_ns;
    sums->throttled_ns += record->throttled_ns;
}

void broker_copy(const struct broker *broker, const struct seat *seat, struct past *to)
{
    struct limits limits = broker_limits(broker, seat->peer.place);
    *to = (struct past){.id = seat->id,
                        .identity = seat->identity->number,
                        .peer = seat->peer,
                        .worker = seat->worker,
                        .memory_limit_bytes = limits.memory_bytes,
                        .time_share = limits.time_share};
    _Atomic uint64_t *into = (_Atomic uint64_t *)(void *)&to->record; /* 64-bit numbers only, see page.h */
    const _Atomic uint64_t *from = (const _Atomic uint64_t *)(const void *)&seat->page->record;
    for (size_t at = 0; at < sizeof to->record / sizeof *into; at++)
        atomic_store_explicit(&into[at], atomic_load_explicit(&from[at], memory_order_relaxed), memory_order_relaxed);
}

/* --- identities; all under the lock --- */

static void forget(struct identity **at)
{
    struct identity *identity = *at;
    *at = identity->next;
    munmap(identity->account, sizeof *identity->account);
    close(identity->account_file);
    free(identity);
}

static struct identity *identity_of(struct broker *broker, const struct identity_name *name)
{
    uint64_t now = now_ns();
    for (struct identity **at = &broker->identities; *at != NULL;) {
        if (identity_same(&(*at)->name, name))
            return *at;
        if ((*at)->connections == 0 && now - (*at)->left_ns > ms(REMEMBERED_MS))
            forget(at);
        else
            at = &(*at)->next;
    }
    struct identity *made = calloc(1, sizeof *made);
    void *account;
    if (made == NULL)
        return NULL;
    made->account_file = spawn_memory("gputax-account", sizeof *made->account, &account);
    if (made->account_file < 0) {
        free(made);
        return NULL;
    }
    made->account = account;
    made->name = *name;
    made->number = ++broker->identities_seen;
    made->left_ns = now;
    made->next = broker->identities;
    broker->identities = made;
    return made;
}

/* --- tenants --- */

static struct seat *free_seat(struct broker *broker)
{
    for (unsigned int at = 0; at < SEATS; at++)
        if (broker->seats[at].id == 0)
            return &broker->seats[at];
    return NULL;
}

static void mark_seats(struct broker *broker, struct identity *identity, unsigned int number)
{
    if (broker->device->places <= number)
        broker->device->places = number + 1;
    if (identity->account->seats <= number)
        identity->account->seats = number + 1;
}

/* Connections through the sockets of one place; place 0 is the broker's own socket, which has a share as well. */
static unsigned int at_place(const struct broker *broker, unsigned int place)
{
    unsigned int taken = 0;
    for (unsigned int at = 0; at < SEATS; at++)
        taken += broker->seats[at].id != 0 && broker->seats[at].peer.place == place;
    return taken;
}

/* The first free seat, if this identity may have one more. Else the reason. */
static struct seat *admit(struct broker *broker, struct identity *identity, const char **reason)
{
    *reason = "too many tenants";
    if (identity == NULL || broker->stopping)
        return NULL;
    if (broker->places != 0 && at_place(broker, identity->name.place) >= SEATS / (broker->places + 1)) {
        *reason = "too many connections of this place";
        return NULL;
    }
    if (identity->connections >= broker->policy.connections) {
        *reason = "this tenant has all the connections that it may have";
        return NULL;
    }
    if (identity->connections > 0 && broker->places == 0 && broker->seats_used >= SEATS - RESERVED_SEATS) {
        *reason = "the last seats are for tenants that have none yet";
        return NULL;
    }
    struct seat *seat = free_seat(broker);
    if (seat != NULL && !pace_take(&identity->next_start_ns, ms(STARTS_EACH_MS), STARTS_AT_ONCE, now_ns())) {
        *reason = "this tenant connects too often: 128 times at once, and then 50 times a second, are served";
        return NULL;
    }
    return seat;
}

/* Fills the page and starts the worker. */
static bool seat_tenant(struct broker *broker, struct seat *seat, struct identity *identity, int socket,
                        const struct wire_peer *peer, int process)
{
    unsigned int number = (unsigned int)(seat - broker->seats);
    struct page *page;
    int file = broker_page(broker, &page);
    if (file < 0)
        return false;
    page->settings.seat = number;
    page->settings.tenant = broker->tenants_seen + 1;
    page->settings.peer = *peer;
    page->settings.limits = broker_limits(broker, peer->place);
    page->settings.user += page->settings.user == 0 ? 0 : number;
    page->spin_us = broker->spin_us;
    mark_seats(broker, identity, number);
    int orders[2] = {-1, -1};
    if (broker->finding.clears_itself && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, orders) != 0)
        orders[0] = orders[1] = -1; /* out of descriptors: kernels are interpreted */
    enum role role = broker->finding.clears_itself ? ROLE_SOFTWARE : ROLE_DRIVER;
    pid_t worker = start(broker, role, socket, file, identity->account_file, process, orders[1]);
    close(file);
    if (orders[1] >= 0)
        close(orders[1]);
    if (worker < 0) {
        munmap(page, sizeof *page);
        if (orders[0] >= 0)
            close(orders[0]);
        return false;
    }
    *seat = (struct seat){.id = ++broker->tenants_seen,
                          .peer = *peer,
                          .identity = identity,
                          .worker = worker,
                          .process = process,
                          .orders = orders[0],
                          .page = page,
                          .begun_ns = now_ns()};
    identity->connections++;
    broker->seats_used++;
    pthread_cond_signal(&broker->seated);
    return true;
}

void broker_take(struct broker *broker, int socket, const struct wire_peer *peer)
{
    const char *reason;
    int process;
    struct identity_name name = identity_read(socket, peer, broker->policy.by_process, &process);
    pthread_mutex_lock(&broker->lock);
    struct identity *identity = identity_of(broker, &name);
    struct seat *seat = admit(broker, identity, &reason);
    bool seated = seat != NULL && seat_tenant(broker, seat, identity, socket, peer, process);
    pthread_mutex_unlock(&broker->lock);
    if (seated) {
        close(socket); /* the worker's alone: when it ends, the tenant sees its connection hung up */
        return;
    }
    if (process >= 0)
        close(process);
    wire_refuse(socket, reason);
}

/* How a tenant ended, in words. A worker that the broker did not kill and that did not end by itself has crashed. */
static void say_how(const struct seat *seat, int status, char *how, size_t size)
{
    static const char *const ends[] = {[TENANT_LEFT] = "left",
                                       [TENANT_BROKE] = "broke the protocol",
                                       [TENANT_REFUSED] = "refused",
                                       [TENANT_STOPPED] = "proxy stopped"};
    uint64_t state = seat->page->record.state;
    if (seat->ending != NULL)
        snprintf(how, size, "%s", seat->ending);
    else if (WIFSIGNALED(status))
        snprintf(how, size, "its worker was killed by signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status) != 0)
        snprintf(how, size, "its worker failed with code %d", WEXITSTATUS(status));
    else
        snprintf(how, size, "%s", state >= TENANT_LEFT && state <= TENANT_STOPPED ? ends[state] : "left");
    if ((WIFSIGNALED(status) || WEXITSTATUS(status) != 0) &&
        pace_line(&seat->identity->account->next_line_ns, now_ns()))
        fprintf(stderr, "gputax-proxy: tenant %llu (pid %ld): %s\n", (unsigned long long)seat->id, (long)seat->peer.pid,
                how);
}

/* Gives back all that the worker had, and its seat. */
static void clear_seat(struct broker *broker, struct seat *seat, int status)
{
    unsigned int number = (unsigned int)(seat - broker->seats);
    struct past *past = &broker->ended[broker->ended_count++ % ENDED_KEPT];
    broker_copy(broker, seat, past);
    past->record.memory_bytes = 0;
    say_how(seat, status, past->ended, sizeof past->ended);
    record_add(&broker->totals, &past->record);
    account_clear(seat->identity->account, number);
    atomic_store(&broker->device->place[number].used_bytes, 0);
    atomic_store(&broker->device->place[number].contexts, 0);
    atomic_store(&broker->device->place[number].submitted_ns, 0);
    seat->identity->connections--;
    seat->identity->left_ns = now_ns();
    munmap(seat->page, sizeof *seat->page);
    if (seat->process >= 0)
        close(seat->process);
    if (seat->orders >= 0)
        close(seat->orders);
    *seat = (struct seat){0};
    broker->seats_used--;
}

void broker_reap(struct broker *broker)
{
    int status;
    pthread_mutex_lock(&broker->lock);
    for (pid_t worker; (worker = waitpid(-1, &status, WNOHANG)) > 0;)
        for (unsigned int at = 0; at < SEATS && !compiler_ended(broker, worker, status); at++)
            if (broker->seats[at].id != 0 && broker->seats[at].worker == worker)
                clear_seat(broker, &broker->seats[at], status);
    pthread_mutex_unlock(&broker->lock);
}

static void signal_all(struct broker *broker, int number)
{
    pthread_mutex_lock(&broker->lock);
    for (unsigned int at = 0; at < SEATS; at++)
        if (broker->seats[at].id != 0)
            kill(broker->seats[at].worker, number);
    pthread_mutex_unlock(&broker->lock);
}

void broker_stop(struct broker *broker, unsigned int milliseconds)
{
    uint64_t until = now_ns() + ms(milliseconds);
    atomic_store(&broker->stopping, true);
    signal_all(broker, SIGTERM);
    for (broker_reap(broker); broker->seats_used > 0 && now_ns() < until; broker_reap(broker))
        poll(NULL, 0, 2);
    signal_all(broker, SIGKILL);
    for (; broker->seats_used > 0; broker_reap(broker))
        poll(NULL, 0, 2);
}

void seat_end(struct seat *seat, const char *why)
{
    if (seat->ending == NULL)
        seat->ending = why;
    kill(seat->worker, SIGKILL);
}

bool broker_evict(struct broker *broker, uint64_t tenant)
{
    bool found = false;
    pthread_mutex_lock(&broker->lock);
    for (unsigned int at = 0; at < SEATS && tenant != 0; at++)
        if (broker->seats[at].id == tenant) {
            seat_end(&broker->seats[at], "evicted");
            found = true;
        }
    pthread_mutex_unlock(&broker->lock);
    return found;
}
