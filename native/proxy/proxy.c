/* Tenants come, are served in a thread each, and go; and the wait policy follows how many of them are active. */
#include "proxy/proxy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ACTIVE_MS = 100, IDLE_READ_MS = 500 };

void proxy_begin(struct proxy *proxy)
{
    pthread_mutex_init(&proxy->lock, NULL);
    pthread_cond_init(&proxy->ended_one, NULL);
    proxy->totals = calloc(1, sizeof *proxy->totals);
    proxy->usable_milli = spin_milli_cores();
    proxy->quota_milli = spin_own_quota_milli();
    proxy_govern(proxy);
}

const char *proxy_wait_policy(const struct proxy *proxy)
{
    return spin_policy_name(proxy->policy);
}

static void add_up(struct record *totals, const struct record *record)
{
    for (size_t call = 0; call < CALL_COUNT; call++)
        totals->calls[call] += record->calls[call];
    totals->posted += record->posted;
    totals->replayed += record->replayed;
    totals->errors += record->errors;
    totals->refused += record->refused;
    totals->bytes_in += record->bytes_in;
    totals->bytes_out += record->bytes_out;
    totals->cleared_bytes += record->cleared_bytes;
    totals->cleared_ns += record->cleared_ns;
    totals->throttled_ns += record->throttled_ns;
}

/* Takes the tenant out of the list; from here on nobody else knows it. */
static void leave(struct tenant *tenant, const char *how)
{
    struct proxy *proxy = tenant->proxy;
    pthread_mutex_lock(&proxy->lock);
    struct tenant **at = &proxy->tenants;
    while (*at != tenant)
        at = &(*at)->next;
    *at = tenant->next;
    struct wire *wire = tenant->wire;
    tenant->wire = NULL;
    tenant->record->ended = how;
    add_up(proxy->totals, tenant->record);
    struct record **place = &proxy->ended[proxy->ended_count++ % ENDED_KEPT];
    free(*place);
    *place = tenant->record;
    pthread_mutex_unlock(&proxy->lock);
    if (wire != NULL)
        wire->ops->close(wire);
}

static struct wire *handshake(struct tenant *tenant)
{
    struct proxy *proxy = tenant->proxy;
    char why[256];
    struct wire_offer offer = {
        .tenant = tenant->record->id,
        .quotas = {.memory_bytes = tenant->record->memory_limit_bytes,
                   .streams = tenant->limits.streams,
                   .modules = tenant->limits.modules,
                   .launches_per_s = tenant->limits.launches_per_s},
        .backend = proxy->backend.path,
        .device = proxy->backend.name,
        .calls = CALLS_FINGERPRINT,
        .spin_us = proxy->spin_us,
    };
    struct wire *wire = wire_serve(tenant->socket, &offer, NULL, why, sizeof why);
    if (wire == NULL)
        fprintf(stderr, "gputax-proxy: tenant %llu (pid %ld): %s\n", (unsigned long long)tenant->record->id,
                (long)tenant->record->peer.pid, why);
    return wire;
}

static void *tenant_main(void *argument)
{
    struct tenant *tenant = argument;
    struct proxy *proxy = tenant->proxy;
    const char *how = "refused";
    tenant_begin(tenant);
    struct wire *wire = handshake(tenant);
    if (wire != NULL) {
        snprintf(tenant->record->transport, sizeof tenant->record->transport, "%s", wire->ops->name);
        pthread_mutex_lock(&proxy->lock);
        tenant->wire = wire;
        pthread_mutex_unlock(&proxy->lock);
        how = proxy_stopping(proxy) ? "proxy stopped" : tenant_serve(tenant);
    }
    tenant_end(tenant);
    leave(tenant, how);
    free(tenant);
    pthread_mutex_lock(&proxy->lock);
    proxy->tenants_count--;
    pthread_cond_signal(&proxy->ended_one);
    pthread_mutex_unlock(&proxy->lock);
    return NULL;
}

/* Whether there is room for one more tenant of this place; the lock is held. */
static bool place_has_room(const struct proxy *proxy, unsigned int place)
{
    unsigned int taken = 0;
    if (proxy->places == 0)
        return true;
    for (const struct tenant *tenant = proxy->tenants; tenant != NULL; tenant = tenant->next)
        taken += tenant->record->peer.place == place;
    return taken < TENANTS_MOST / (proxy->places + 1); /* one share is the operator's, at the proxy's own socket */
}

void proxy_take(struct proxy *proxy, int socket, const struct wire_peer *peer)
{
    struct tenant *tenant = calloc(1, sizeof *tenant);
    struct record *record = calloc(1, sizeof *record);
    pthread_mutex_lock(&proxy->lock);
    bool place = place_has_room(proxy, peer->place);
    bool room = place && proxy->tenants_count < TENANTS_MOST && tenant != NULL && record != NULL;
    if (room) {
        proxy->tenants_count++;
        record->id = ++proxy->tenants_seen;
        record->peer = *peer;
        *tenant = (struct tenant){.next = proxy->tenants,
                                  .proxy = proxy,
                                  .backend = &proxy->backend,
                                  .record = record,
                                  .socket = socket,
                                  .limits = proxy->limits};
        proxy->tenants = tenant;
    }
    pthread_mutex_unlock(&proxy->lock);
    pthread_t thread;
    if (room && pthread_create(&thread, NULL, tenant_main, tenant) == 0) {
        pthread_detach(thread);
        return;
    }
    wire_refuse(socket, place ? "too many tenants" : "too many connections of this place");
    if (room) {
        leave(tenant, "refused");
        pthread_mutex_lock(&proxy->lock);
        proxy->tenants_count--;
        pthread_mutex_unlock(&proxy->lock);
    } else {
        free(record);
    }
    free(tenant);
}

void proxy_stop(struct proxy *proxy, unsigned int milliseconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += milliseconds / 1000;
    atomic_store(&proxy->stopping, true);
    pthread_mutex_lock(&proxy->lock);
    for (struct tenant *tenant = proxy->tenants; tenant != NULL; tenant = tenant->next)
        if (tenant->wire != NULL)
            wire_shutdown(tenant->wire);
    int waited = 0;
    while (proxy->tenants_count > 0 && waited == 0)
        waited = pthread_cond_timedwait(&proxy->ended_one, &proxy->lock, &until);
    pthread_mutex_unlock(&proxy->lock);
}

/* Cores that others keep busy. A tenant that begins to call is not judged by what ran before it: until there are two new
 * readings nothing is known, and it may spin. */
static void read_foreign(struct proxy *proxy, bool begins, bool idle)
{
    static struct spin_watch watch;
    struct spin_load now;
    if (begins) {
        watch.count = 0;
        proxy->foreign_milli = 0;
    }
    if (!spin_watch_due(&watch, now_ns() / 1000000, idle ? IDLE_READ_MS : SPIN_READ_MS))
        return;
    pid_t ours[TENANTS_MOST];
    size_t count = 0;
    pthread_mutex_lock(&proxy->lock);
    for (struct tenant *tenant = proxy->tenants; tenant != NULL && count < TENANTS_MOST; tenant = tenant->next)
        ours[count++] = tenant->record->peer.pid;
    pthread_mutex_unlock(&proxy->lock);
    if (spin_read_load(ours, count, &now) != 0)
        return;
    spin_watch_add(&watch, &now);
    proxy->foreign_milli = spin_watch_foreign_milli(&watch);
}

static uint32_t count_active(struct proxy *proxy, uint32_t *hidden)
{
    uint64_t now = now_ns();
    uint32_t active = 0;
    *hidden = 0;
    pthread_mutex_lock(&proxy->lock);
    for (const struct tenant *tenant = proxy->tenants; tenant != NULL; tenant = tenant->next) {
        uint64_t last = atomic_load_explicit(&tenant->record->last_call_ns, memory_order_relaxed);
        bool calls = last != 0 && (last > now || now - last < ACTIVE_MS * 1000000ull);
        active += calls;
        *hidden +=
            calls && tenant->record->peer.pid == 0; /* the kernel's number for a process of another PID namespace */
    }
    pthread_mutex_unlock(&proxy->lock);
    return active;
}

void proxy_govern(struct proxy *proxy)
{
    uint32_t hidden;
    uint32_t active = count_active(proxy, &hidden);
    read_foreign(proxy, active > 0 && proxy->active_tenants == 0, active == 0);
    struct spin_facts facts = {
        .milli_cores = proxy->usable_milli,
        .quota_milli = proxy->quota_milli,
        .foreign_milli = proxy->foreign_milli,
        .active_tenants = active,
        .hidden_tenants = hidden,
    };
    uint32_t spin_us = spin_budget(proxy->policy, &facts);
    pthread_mutex_lock(&proxy->lock);
    if (spin_us != proxy->spin_us)
        for (const struct tenant *tenant = proxy->tenants; tenant != NULL; tenant = tenant->next)
            if (tenant->wire != NULL)
                wire_set_spin(tenant->wire, spin_us);
    proxy->spin_us = spin_us;
    proxy->active_tenants = active;
    proxy->context_flags = spin_us <= SPIN_LIMIT_SHORT_US ? CU_CTX_SCHED_BLOCKING_SYNC : CU_CTX_SCHED_AUTO;
    pthread_mutex_unlock(&proxy->lock);
}
