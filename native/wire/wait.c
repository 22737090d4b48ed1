/* The adaptive wait of the shared-memory transport.
 *
 * No wake-up is lost. The sleeper does, in this order: (S1) bell = kind, (S2) look at the counter, (S3) futex-wait while
 * the bell is still kind. The waker does: (W1) move the counter, (W2) look at the bell, (W3) if it says kind, set it to
 * 0 and then futex-wake. S1, S2, W1 and W2 are sequentially consistent, so they have one order that both ends agree on.
 * If W1 comes before S2, the sleeper sees the counter and does not sleep. Otherwise S1, S2, W1, W2 is the order and
 * the waker sees the bell. Then either its 0 comes before S3, which returns at once because the bell changed (the kernel
 * compares and queues under one lock), or S3 came first and the futex-wake finds the sleeper queued. A waker that dies
 * between 0 and futex-wake hangs up the life line, at which every sleeper looks each WAIT_LIFELINE_MS.
 * The same argument with `shut` in place of the counter holds for wait_shut.
 *
 * With a doorbell in place of the futex S3 is a poll of its descriptor and W3 rings it. A ring stays in the descriptor until it
 * is taken, and the sleeper takes it before it looks at the counter again, so a ring that comes before the poll is not lost
 * either. wait_shut cannot ring this end's own bell: who calls it hangs up the life line, which the poll sees, too.
 *
 * A hostile peer can write both bells at will. The worst are wake-ups without reason, a system call per message for its
 * own worker, and its own sleep of up to WAIT_LIFELINE_MS.
 */
#include "wait.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Pauses before the first look at the clock, about 0.6 us (one pause: 18.5 ns measured): an answer that comes at once costs no clock reading. */
enum { PAUSES_UNTIMED = 32, PAUSES_PER_CLOCK = 16, UNTIMED_NS = 500 };

/* About every 5 us a spinner lets others run: the peer may be waiting for this very core. On two cores
 * that others used too (load 2 to 4), 10,000 round trips and some bulk took 0.6 to 1.1 s in place of 4 to 10 s (3 runs each);
 * at load 11 1.4 to 2.3 s in place of 2.0 to 3.6 s, there with a median round trip of 19 us in place of 0.2 to 0.7. */
enum { TURNS_PER_YIELD = 16 };

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void pause_core(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void count(_Atomic uint64_t *counter)
{
    /* Only the wire's own thread counts; others read. */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1, memory_order_relaxed);
}

static void futex_wake(_Atomic uint32_t *bell)
{
    syscall(SYS_futex, (uint32_t *)bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void wake_peer(const struct waiter *waiter)
{
    if (waiter->doorbell != NULL)
        doorbell_ring(waiter->doorbell);
    else
        futex_wake(waiter->peers);
}

/* Until this end is woken, or for `longest`. */
static void sleep_for(const struct waiter *waiter, uint32_t kind, const struct timespec *longest)
{
    if (waiter->doorbell == NULL) {
        syscall(SYS_futex, (uint32_t *)waiter->mine, FUTEX_WAIT, kind, longest, NULL, 0);
        return;
    }
    struct pollfd lines[] = {{.fd = waiter->doorbell->descriptor, .events = POLLIN},
                             {.fd = waiter->lifeline, .events = POLLRDHUP}};
    if (ppoll(lines, 2, longest, NULL) > 0 && lines[0].revents != 0)
        doorbell_take(waiter->doorbell);
}

struct wait_plan wait_choose(struct wait_habit *habit, uint64_t limit_ns)
{
    struct wait_plan plan = {0, 0};
    if (limit_ns == 0)
        return plan;
    if (habit->clipped_ns <= limit_ns || ++habit->since_probe >= WAIT_PROBE_EVERY) {
        habit->since_probe = 0;
        plan.spin_ns = limit_ns;
        return plan;
    }
    uint64_t early = 2 * habit->deviation_ns + WAIT_NAP_MARGIN_US * 1000;
    if (2 * early <= limit_ns && habit->mean_ns > 2 * early) { /* steady: the spin covers what the nap may miss */
        plan.nap_ns = habit->mean_ns - early;
        plan.spin_ns = limit_ns;
    }
    return plan;
}

static uint64_t toward(uint64_t mean, uint64_t sample)
{
    return sample >= mean ? mean + (sample - mean) / 8 : mean - (mean - sample) / 8;
}

void wait_learn(struct wait_habit *habit, uint64_t waited_ns, uint64_t limit_ns, bool spun)
{
    uint64_t clipped = waited_ns < 2 * limit_ns ? waited_ns : 2 * limit_ns;
    /* A sleeper's time includes its own wake-up, so that short waits look long and sleeping would keep itself alive.
     * A wait that a probe found short is the truth at once. */
    bool short_after_all = spun && waited_ns <= limit_ns && habit->clipped_ns > limit_ns;
    habit->clipped_ns = short_after_all ? waited_ns : toward(habit->clipped_ns, clipped);
    uint64_t off = waited_ns > habit->mean_ns ? waited_ns - habit->mean_ns : habit->mean_ns - waited_ns;
    habit->deviation_ns = toward(habit->deviation_ns, off);
    habit->mean_ns = toward(habit->mean_ns, waited_ns);
}

bool wait_peer_gone(const struct waiter *waiter)
{
    /* POLLIN is not asked for: bytes that a peer sends here against all rules must not look like anything. */
    struct pollfd line = {.fd = waiter->lifeline, .events = POLLRDHUP};
    return waiter->lifeline < 0 || (poll(&line, 1, 0) > 0 && line.revents != 0);
}

/* One sleep of at most `longest_ns`; true when another one is pointless. */
static bool sleep_once(struct waiter *waiter, const struct wait_for *want, uint64_t longest_ns)
{
    uint32_t kind = (uint32_t)want->kind;
    atomic_store(waiter->mine, kind);
    bool ends = wait_ready(want) || atomic_load(&waiter->shut) || wait_peer_gone(waiter);
    if (!ends) {
        struct timespec longest = {(time_t)(longest_ns / 1000000000u), (long)(longest_ns % 1000000000u)};
        count(&waiter->sleeps);
        sleep_for(waiter, kind, &longest);
        ends = wait_ready(want);
    }
    atomic_store_explicit(waiter->mine, WAIT_AWAKE, memory_order_relaxed);
    return ends;
}

/* The number of a CPU plus one; 0 is "not known". glibc reads it from memory that the kernel keeps up to date (rseq). */
static uint32_t own_cpu(void)
{
    int cpu = sched_getcpu();
    return cpu < 0 ? 0 : (uint32_t)cpu + 1;
}

/* Written only when it has changed: the peer reads this cache line with every message. */
static void tell_cpu(struct waiter *waiter)
{
    uint32_t cpu = waiter->my_cpu != NULL ? own_cpu() : 0;
    if (cpu != waiter->told_cpu) {
        waiter->told_cpu = cpu;
        atomic_store_explicit(waiter->my_cpu, cpu, memory_order_relaxed);
    }
}

/* Whether the peer was last seen on this very CPU. Then it cannot answer while we spin: an operation of 132 us took 285 us
 * for as long as both shared a CPU (17 to 150 ms, until the scheduler moved one of them; it calls a spinner cache-hot). Who
 * sleeps lets the peer run at once, and the wake-up looks for an idle CPU. A peer that lies about it makes its own server
 * sleep. */
static bool shares_cpu(const struct waiter *waiter)
{
    uint32_t peers = waiter->peers_cpu != NULL ? atomic_load_explicit(waiter->peers_cpu, memory_order_relaxed) : 0;
    return peers != 0 && peers == own_cpu();
}

static bool spin(struct waiter *waiter, const struct wait_for *want, uint64_t until_ns)
{
    unsigned turns = 0;
    do {
        for (int i = 0; i < PAUSES_PER_CLOCK; i++) {
            if (wait_ready(want))
                return true;
            pause_core();
        }
        if (atomic_load_explicit(&waiter->shut, memory_order_relaxed))
            return false;
        if (shares_cpu(waiter)) {
            count(&waiter->shared_cpu);
            return false;
        }
        if (++turns % TURNS_PER_YIELD == 0)
            sched_yield();
    } while (now_ns() < until_ns);
    return false;
}

int wait_until(struct waiter *waiter, const struct wait_for *want)
{
    uint32_t limit_us = atomic_load_explicit(waiter->limit_us, memory_order_relaxed);
    uint64_t limit_ns = (limit_us < WAIT_SPIN_MOST_US ? limit_us : WAIT_SPIN_MOST_US) * UINT64_C(1000);
    struct wait_habit *habit = &waiter->habits[want->kind];
    count(&waiter->waits);
    tell_cpu(waiter);
    for (int i = 0; i < PAUSES_UNTIMED && limit_ns > 0; i++) {
        if (wait_ready(want)) {
            count(&waiter->spins_paid);
            wait_learn(habit, UNTIMED_NS, limit_ns, true);
            return WIRE_OK;
        }
        pause_core();
    }
    uint64_t start = now_ns() - UNTIMED_NS;
    struct wait_plan plan = wait_choose(habit, limit_ns);
    bool ready = plan.nap_ns > 0 && sleep_once(waiter, want, plan.nap_ns);
    bool spun = !ready && plan.spin_ns > 0 && spin(waiter, want, now_ns() + plan.spin_ns);
    if (spun)
        count(&waiter->spins_paid);
    while (!ready && !spun)
        ready = sleep_once(waiter, want, waiter->lifeline_ms * UINT64_C(1000000));
    wait_learn(habit, now_ns() - start, limit_ns, spun);
    tell_cpu(waiter);                                /* a sleeper may wake elsewhere */
    return wait_ready(want) ? WIRE_OK : WIRE_CLOSED; /* what was written before the end still counts */
}

void wait_wake(struct waiter *waiter, enum wait_kind kind)
{
    uint32_t asleep = (uint32_t)kind;
    if (atomic_load(waiter->peers) == asleep && atomic_compare_exchange_strong(waiter->peers, &asleep, WAIT_AWAKE)) {
        count(&waiter->wakes);
        wake_peer(waiter);
    }
}

void wait_wake_any(struct waiter *waiter)
{
    atomic_store(waiter->peers, WAIT_AWAKE);
    wake_peer(waiter);
}

void wait_shut(struct waiter *waiter)
{
    atomic_store(&waiter->shut, true);
    atomic_store(waiter->mine, WAIT_AWAKE);
    futex_wake(waiter->mine);
    wait_wake_any(waiter);
}
