/* A worker's life: bound to its broker, it opens the backend, greets its tenant, serves it, and ends with it. */
#include "proxy/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calls/pace.h"
#include "proxy/clock.h"
#include "proxy/confine.h"
#include "proxy/tenant.h"

static struct wire *_Atomic served; /* for the signal handler */

/* The broker ends in order: whatever waits for the tenant returns, and the tenant's own calls too. */
static void stop(int number)
{
    (void)number;
    int error = errno;
    atomic_store(&tenant_stopping, true);
    struct wire *wire = atomic_load(&served);
    if (wire != NULL)
        wire_shutdown(wire); /* stores and system calls only */
    errno = error;
}

void *worker_map(int descriptor, size_t bytes)
{
    struct stat facts;
    if (fstat(descriptor, &facts) != 0 || facts.st_size < (off_t)bytes)
        return NULL;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* Nothing outlives the broker: the kernel kills this process when the broker's thread ends, and again when nobody holds
 * the other end of the pipe. False if it has gone already. */
static bool bind_to_broker(pid_t broker)
{
    struct pollfd life = {.fd = WORKER_LIFE};
    return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && fcntl(WORKER_LIFE, F_SETOWN, getpid()) == 0 &&
           fcntl(WORKER_LIFE, F_SETSIG, SIGKILL) == 0 && fcntl(WORKER_LIFE, F_SETFL, O_ASYNC) == 0 &&
           poll(&life, 1, 0) == 0 && getppid() == broker;
}

static void open_shared_device(uint32_t seat, uint64_t time_share)
{
    char text[32];
    if (time_share != 0) {
        snprintf(text, sizeof text, "%.2f", (double)time_share / 100);
        setenv("GPUTAX_SOFT_PERCENT", text, 1);
    }
    snprintf(text, sizeof text, "%d:%u", WORKER_DEVICE, seat);
    setenv("GPUTAX_SOFT_SHARED", text, 1);
    snprintf(text, sizeof text, "%d", WORKER_COMPILER);
    if (fcntl(WORKER_COMPILER, F_GETFD) >= 0)
        setenv("GPUTAX_SOFT_COMPILER", text, 1);
    else
        unsetenv("GPUTAX_SOFT_COMPILER");
}

static struct wire *greet(struct tenant *tenant, const struct page *page)
{
    const struct settings *settings = &tenant->settings;
    char why[256];
    struct wire_offer offer = {
        .tenant = settings->tenant,
        .quotas = {.memory_bytes = settings->limits.memory_bytes,
                   .streams = settings->limits.streams,
                   .modules = settings->limits.modules,
                   .launches_per_s = settings->limits.launches_per_s},
        .backend = tenant->backend->path,
        .device = tenant->backend->name,
        .calls = CALLS_FINGERPRINT,
        .transport = settings->peer.domain != 0 ? "xen" : NULL, /* only a guest's link brings memory of its own */
        .spin_us = atomic_load(&page->spin_us),
    };
    struct wire *wire = wire_serve(WORKER_SOCKET, &offer, NULL, why, sizeof why);
    if (wire == NULL && pace_line(&tenant->account->next_line_ns, now_ns()))
        fprintf(stderr, "gputax-proxy: tenant %llu (pid %ld): %s\n", (unsigned long long)settings->tenant,
                (long)settings->peer.pid, why);
    return wire;
}

/* Another user first, which also clears the signal of the broker's death. Ends the process if it cannot: a worker never
 * serves with more rights than the broker counts on. */
static uint64_t give_up(const struct settings *settings, const struct backend *backend)
{
    const uint64_t gib = UINT64_C(1) << 30;
    struct confinement confinement = {
        .software = backend->clears_itself,
        .linked = settings->peer.domain != 0,
        .backend = settings->backend,
        .user = backend->clears_itself || settings->user_asked ? settings->user : 0,
        .without = settings->unconfined,
    };
    /* The device's memory, which is reserved as a whole; the quota again for what a tenant may have on the host; stacks
     * of helpers, staging and libraries. A driver maps far more than it uses. */
    if (confinement.software)
        confinement.memory_bytes = backend->memory_bytes + settings->limits.memory_bytes + 2 * gib;
    if (!confine_user(&confinement) || !bind_to_broker(settings->broker)) {
        fprintf(stderr, "gputax-proxy: a worker cannot become user %ld: %s\n", (long)settings->user, strerror(errno));
        exit(2);
    }
    return confine(&confinement);
}

static uint64_t number_of(const char *transport)
{
    for (uint64_t at = 0; wire_transports[at] != NULL; at++)
        if (strcmp(wire_transports[at], transport) == 0)
            return at + 1;
    return 0;
}

static int serve(struct page *page, struct account *account, const struct settings *settings,
                 const struct backend *backend)
{
    static struct tenant tenant;
    struct record *record = &page->record;
    tenant = (struct tenant){.settings = *settings,
                             .page = page,
                             .account = account,
                             .record = record,
                             .backend = backend,
                             .clears_memory = settings->always_clear || !backend->clears_itself,
                             .process = fcntl(WORKER_PEER, F_GETFD) >= 0 ? WORKER_PEER : -1};
    tenant_begin(&tenant);
    record->confinement = give_up(settings, backend);
    uint64_t how = TENANT_REFUSED;
    struct wire *wire = greet(&tenant, page);
    if (wire != NULL) {
        tenant.wire = wire;
        atomic_store(&served, wire);
        record->transport = number_of(wire->ops->name);
        record->state = TENANT_SERVED;
        how = atomic_load(&tenant_stopping) ? TENANT_STOPPED : tenant_serve(&tenant);
        if (atomic_load(&tenant_stopping))
            how = TENANT_STOPPED;
    }
    tenant_end(&tenant);
    atomic_store(&served, NULL);
    signal(SIGTERM, SIG_IGN);
    if (wire != NULL)
        wire->ops->close(wire);
    record->state = how;
    return 0;
}

int worker_main(void)
{
    prctl(PR_SET_NAME, "gputax-worker");
    struct page *page = worker_map(WORKER_PAGE, sizeof *page);
    if (page == NULL) {
        fprintf(stderr, "gputax-proxy: --worker is for the broker alone\n");
        return 2;
    }
    struct settings settings = page->settings;
    struct account *account = settings.probe ? NULL : worker_map(WORKER_ACCOUNT, sizeof *account);
    settings.backend[sizeof settings.backend - 1] = 0;
    if (!bind_to_broker(settings.broker) || settings.seat >= SEATS || (account == NULL && !settings.probe))
        return 2;
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    open_shared_device(settings.seat, settings.limits.time_share);
    static struct backend backend;
    struct finding *finding = &page->finding;
    char why[sizeof finding->why] = "";
    if (!backend_open(&backend, settings.backend, why, sizeof why)) {
        memcpy(finding->why, why, sizeof why);
        return 3;
    }
    if (!settings.probe)
        return serve(page, account, &settings, &backend);
    finding->confinement = give_up(&settings, &backend);
    if (!backend_works(&backend)) {
        snprintf(finding->why, sizeof finding->why,
                 "%s makes no context in a confined process; see --unconfined (docs/security.md)", backend.path);
        return 3;
    }
    finding->memory_bytes = backend.memory_bytes;
    finding->clears_itself = backend.clears_itself;
    snprintf(finding->device, sizeof finding->device, "%s", backend.name);
    return 0;
}
