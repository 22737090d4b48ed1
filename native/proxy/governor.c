/* The governor: the wait policy follows how many tenants are active, and workers that are over their time are ended. */
#include <poll.h>

#include "proxy/broker.h"
#include "proxy/clock.h"

enum {
    ACTIVE_MS = 100,
    IDLE_READ_MS = 500,
    WATCH_MS = 200,      /* how often workers are looked at */
    GREETING_MS = 20000, /* a worker that serves nobody after so long is ended: handshake and the start of a device */
    ORPHAN_MS = 5000,    /* the same after the death of its tenant */
};

/* Cores that others keep busy. A tenant that begins to call is not judged by what ran before it: until there are two new
 * readings nothing is known, and it may spin. */
static void read_foreign(struct broker *broker, bool begins, bool idle)
{
    static struct spin_watch watch;
    struct spin_load now;
    if (begins) {
        watch.count = 0;
        broker->foreign_milli = 0;
    }
    if (!spin_watch_due(&watch, now_ns() / 1000000, idle ? IDLE_READ_MS : SPIN_READ_MS))
        return;
    pid_t ours[2 * SEATS];
    size_t count = 0;
    pthread_mutex_lock(&broker->lock);
    for (unsigned int at = 0; at < SEATS; at++)
        if (broker->seats[at].id != 0) {
            ours[count++] = broker->seats[at].peer.pid;
            ours[count++] = broker->seats[at].worker;
        }
    pthread_mutex_unlock(&broker->lock);
    if (spin_read_load(ours, count, &now) != 0)
        return;
    spin_watch_add(&watch, &now);
    broker->foreign_milli = spin_watch_foreign_milli(&watch);
}

static bool is_over(uint64_t since_ns, uint64_t now, uint64_t most_ns)
{
    return most_ns != 0 && since_ns != 0 && now > since_ns && now - since_ns > most_ns;
}

/* Whether the tenant's process has ended. Its worker notices that within WAIT_LIFELINE_MS; a tenant that came meanwhile was
 * taken for the second one and had to sleep: operations of 280 us in place of 133 for its first 80 ms. */
static bool has_left(struct seat *seat, uint64_t now)
{
    struct pollfd death = {.fd = seat->process, .events = POLLIN}; /* poll passes over a negative one */
    if (seat->gone_ns == 0 && poll(&death, 1, 0) > 0)
        seat->gone_ns = now;
    return seat->gone_ns != 0;
}

/* Ends a worker whose tenant is gone, silent, or has a call that does not end. */
static void watch(const struct broker *broker, struct seat *seat, uint64_t now)
{
    const uint64_t second = 1000000000;
    const struct record *record = &seat->page->record;
    uint64_t last = record->last_call_ns > seat->begun_ns ? record->last_call_ns : seat->begun_ns;
    if (has_left(seat, now) && is_over(seat->gone_ns, now, ms(ORPHAN_MS)))
        seat_end(seat, "left");
    else if (record->state == TENANT_GREETS && is_over(seat->begun_ns, now, ms(GREETING_MS)))
        seat_end(seat, "refused");
    else if (is_over(record->busy_since_ns, now, broker->policy.call_s * second))
        seat_end(seat, "a call took too long");
    else if (record->busy_since_ns == 0 && is_over(last, now, broker->policy.idle_s * second))
        seat_end(seat, "idle for too long");
}

/* How many tenants made a call in the last moments; and every now and then each worker is looked at. */
static uint32_t count_active(struct broker *broker, uint32_t *hidden)
{
    static uint64_t watched_ns;
    uint64_t now = now_ns();
    uint32_t active = 0;
    *hidden = 0;
    pthread_mutex_lock(&broker->lock);
    bool looks = now - watched_ns > ms(WATCH_MS);
    if (looks)
        watched_ns = now;
    for (unsigned int at = 0; at < SEATS; at++) {
        struct seat *seat = &broker->seats[at];
        if (seat->id == 0)
            continue;
        uint64_t last = atomic_load_explicit(&seat->page->record.last_call_ns, memory_order_relaxed);
        bool calls = last != 0 && (last > now || now - last < ms(ACTIVE_MS)) && !has_left(seat, now);
        active += calls;
        /* 0 is the kernel's number for a process of another PID namespace; a guest's processes are not here at all. */
        *hidden += calls && (seat->peer.pid == 0 || seat->peer.domain != 0);
        if (looks)
            watch(broker, seat, now);
    }
    pthread_mutex_unlock(&broker->lock);
    return active;
}

void broker_govern(struct broker *broker)
{
    uint32_t hidden;
    uint32_t active = count_active(broker, &hidden);
    read_foreign(broker, active > 0 && broker->active_tenants == 0, active == 0);
    struct spin_facts facts = {
        .milli_cores = broker->usable_milli,
        .quota_milli = broker->quota_milli,
        .foreign_milli = broker->foreign_milli,
        .active_tenants = active,
        .hidden_tenants = hidden,
    };
    uint32_t spin_us = spin_budget(broker->policy.spin, &facts);
    pthread_mutex_lock(&broker->lock);
    for (unsigned int at = 0; at < SEATS && spin_us != broker->spin_us; at++)
        if (broker->seats[at].id != 0) /* the worker looks there before each message */
            atomic_store_explicit(&broker->seats[at].page->spin_us, spin_us, memory_order_relaxed);
    broker->spin_us = spin_us;
    broker->active_tenants = active;
    pthread_mutex_unlock(&broker->lock);
}
