/* One timeline for all contexts of the device, as tenants share one GPU; and exact waiting for a moment on it. */
#include "device/timeline.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "device/shared.h"
#include "include/software_abi.h"

/* A sleeping thread wakes late: 20 to 25 us to wake a halted virtual CPU (measured), and some for the timer. */
enum { WAKE_NS = 80000 };

static _Atomic uint64_t own_end_ns;              /* of the work of this process */
static _Atomic uint64_t busy_ns[TIMELINE_KINDS]; /* how long the device was at work for this process */
static double kernel_ns;
static double copy_ns_per_byte;
static bool throttled; /* any work takes a stated time */
static double share;   /* of the device's time that this process may have, in percent; 0: all of it */
static _Atomic uint64_t share_due_ns;

/* A positive number from the environment; 0 if unset. False for anything else. */
static bool read_setting(const char *name, double *value)
{
    const char *text = getenv(name);
    *value = 0;
    if (!text || !*text)
        return true;
    char *rest;
    errno = 0;
    *value = strtod(text, &rest);
    if (errno || *rest || !isfinite(*value) || *value <= 0 || *value > 1e9) {
        fprintf(stderr, "gputax software device: %s=%s is not a positive number\n", name, text);
        return false;
    }
    return true;
}

bool timeline_open(bool kernels_timed, char *suffix, size_t capacity)
{
    double kernel_us, copy_gbps;
    if (!read_setting("GPUTAX_SOFT_KERNEL_US", &kernel_us) || !read_setting("GPUTAX_SOFT_COPY_GBPS", &copy_gbps) ||
        !read_setting("GPUTAX_SOFT_PERCENT", &share))
        return false;
    kernel_ns = kernel_us * 1e3;
    copy_ns_per_byte = copy_gbps > 0 ? 1 / copy_gbps : 0;
    throttled = kernels_timed || kernel_us > 0 || copy_gbps > 0;
    suffix[0] = '\0';
    if (kernel_us > 0 && copy_gbps > 0)
        snprintf(suffix, capacity, " [kernel %g us, copies %g GB/s]", kernel_us, copy_gbps);
    else if (kernel_us > 0)
        snprintf(suffix, capacity, " [kernel %g us]", kernel_us);
    else if (copy_gbps > 0)
        snprintf(suffix, capacity, " [copies %g GB/s]", copy_gbps);
    return true;
}

uint64_t timeline_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void raise_to(_Atomic uint64_t *value, uint64_t least)
{
    uint64_t now = atomic_load(value);
    while (now < least && !atomic_compare_exchange_weak(value, &now, least))
        continue;
}

static void sleep_until(uint64_t until_ns)
{
    static _Thread_local bool exact;
    if (!exact) {
        prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0); /* the default lets timers run 50 us late */
        exact = true;
    }
    struct timespec at = {.tv_sec = (time_t)(until_ns / 1000000000u), .tv_nsec = (long)(until_ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        continue;
}

/* Tenants take turns: who has work for more than this on the timeline waits before it adds more, so that nobody waits
 * behind more than one turn of each other tenant, and what a tenant leaves behind when it goes is one turn. Alone, a turn
 * is long, so that a late wake-up does not leave the device without work. */
enum { TURN_NS = 500000, TURN_ALONE_NS = 20000000, CONTENDED_NS = 100000000 };

static void wait_for_turn(void)
{
    uint64_t now = timeline_now(), own = atomic_load_explicit(&own_end_ns, memory_order_relaxed);
    shared_note_work(now);
    if (own < now + TURN_NS)
        return;
    uint64_t turn = shared_contended(now, CONTENDED_NS) ? TURN_NS : TURN_ALONE_NS;
    if (own > now + turn)
        sleep_until(own - turn / 2);
}

/* A process with a share of the time pays for its work with time of its own, of which each second has so much less. What
 * it did not use is worth one burst: enough for a late wake-up, and too little to take from others what they were given. */
enum { SHARE_BURST_NS = 20000000 };

static void wait_for_share(double ns)
{
    if (share <= 0 || share >= 100)
        return;
    uint64_t now = timeline_now(), cost = (uint64_t)(ns * 100 / share + 0.5), due = atomic_load(&share_due_ns), begin;
    do
        begin = due + SHARE_BURST_NS < now ? now - SHARE_BURST_NS : due;
    while (!atomic_compare_exchange_weak(&share_due_ns, &due, begin + cost));
    if (begin > now)
        sleep_until(begin);
}

/* Takes its place behind all work of the device. No lock, so that a process that is killed here holds nobody up. */
static struct timeline_work begin(enum timeline_kind kind, double ns)
{
    struct timeline_work work = {.kind = kind};
    if (throttled)
        wait_for_share(ns);
    if (throttled && shared_with_others())
        wait_for_turn();
    work.begun_ns = timeline_now();
    if (!throttled)
        return work;
    work.length_ns = (uint64_t)(ns + 0.5);
    _Atomic uint64_t *end_ns = &shared_device()->end_ns;
    uint64_t last = atomic_load(end_ns);
    do
        work.end_ns = (work.begun_ns > last ? work.begun_ns : last) + work.length_ns;
    while (!atomic_compare_exchange_weak(end_ns, &last, work.end_ns));
    raise_to(&own_end_ns, work.end_ns);
    return work;
}

struct timeline_work timeline_begin_kernel(double ns)
{
    return begin(WORK_KERNEL, kernel_ns > 0 ? kernel_ns : ns);
}

struct timeline_work timeline_begin_copy(size_t bytes)
{
    return begin(WORK_COPY, (double)bytes * copy_ns_per_byte);
}

struct timeline_work timeline_begin_other(void)
{
    return begin(WORK_COPY, 0);
}

uint64_t timeline_end(struct timeline_work work)
{
    uint64_t now = timeline_now(), computed_ns = now - work.begun_ns;
    atomic_fetch_add_explicit(&busy_ns[work.kind], computed_ns > work.length_ns ? computed_ns : work.length_ns,
                              memory_order_relaxed);
    if (work.end_ns >= now)
        return work.end_ns;
    if (work.end_ns) {
        raise_to(&shared_device()->end_ns, now);
        raise_to(&own_end_ns, now);
    }
    return now;
}

/* What still lies ahead on the timeline has not been done yet; it is taken from the kernels, of which nearly all of it is. */
CUresult gputaxBusy(uint64_t *kernels_ns, uint64_t *copies_ns)
{
    uint64_t now = timeline_now(), end = atomic_load(&own_end_ns), ahead = end > now ? end - now : 0;
    uint64_t kernels = atomic_load(&busy_ns[WORK_KERNEL]);
    *kernels_ns = kernels > ahead ? kernels - ahead : 0;
    *copies_ns = atomic_load(&busy_ns[WORK_COPY]);
    return CUDA_SUCCESS;
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void timeline_wait(uint64_t until_ns, enum timeline_wait how)
{
    uint64_t now = timeline_now();
    if (now >= until_ns)
        return;
    if (how == WAIT_SLEEP) {
        sleep_until(until_ns);
        return;
    }
    if (until_ns - now > 2 * WAKE_NS)
        sleep_until(until_ns - WAKE_NS);
    while (timeline_now() < until_ns) {
        if (how == WAIT_YIELD)
            sched_yield();
        else
            relax();
    }
}
