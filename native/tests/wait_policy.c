/* Tests of what decides about spinning: the habit of each wait, and the node's budget. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wire/spin_budget.h"
#include "wire/wait.h"

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

enum { US = 1000, LIMIT = 500 * US };

static struct wait_habit after(const uint64_t *waits_us, size_t count, int repeats)
{
    struct wait_habit habit = {0};
    for (int r = 0; r < repeats; r++) {
        for (size_t i = 0; i < count; i++) {
            struct wait_plan plan = wait_choose(&habit, LIMIT);
            bool spun = plan.spin_ns > 0 && waits_us[i] * US <= plan.nap_ns + plan.spin_ns;
            /* A sleeper is late by its wake-up. */
            wait_learn(&habit, waits_us[i] * US + (spun ? 0 : 50 * US), LIMIT, spun);
        }
    }
    return habit;
}

static void spins_for_short_waits(void)
{
    const uint64_t kernel[] = {125};
    struct wait_habit habit = after(kernel, 1, 50);
    struct wait_plan plan = wait_choose(&habit, LIMIT);
    CHECK(plan.nap_ns == 0 && plan.spin_ns == LIMIT);
    struct wait_habit fresh = {0};
    plan = wait_choose(&fresh, LIMIT);
    CHECK(plan.nap_ns == 0 && plan.spin_ns == LIMIT);
    plan = wait_choose(&fresh, 0);
    CHECK(plan.nap_ns == 0 && plan.spin_ns == 0);
}

static void a_long_pause_is_no_habit(void)
{
    const uint64_t talk[] = {1,   2, 130, 1,   3,
                             120, 2, 1,   140, 100000}; /* a program that pauses between its operations */
    struct wait_habit habit = after(talk, 10, 20);
    CHECK(wait_choose(&habit, LIMIT).spin_ns == LIMIT);
}

static void sleeps_for_long_waits_but_probes(void)
{
    const uint64_t uneven[] = {4000, 9000, 2000, 30000};
    struct wait_habit habit = after(uneven, 4, 50);
    habit.since_probe = 0;
    int spins = 0;
    for (int i = 0; i < 4 * WAIT_PROBE_EVERY; i++)
        spins += wait_choose(&habit, LIMIT).spin_ns > 0;
    CHECK(spins == 4);
    wait_learn(&habit, 100 * US, LIMIT, true); /* a probe that found a short wait is believed */
    CHECK(wait_choose(&habit, LIMIT).spin_ns == LIMIT);
}

static void naps_through_most_of_a_steady_wait(void)
{
    const uint64_t steady[] = {2000, 2010, 1990};
    struct wait_habit habit = after(steady, 3, 100);
    habit.since_probe = 0;
    struct wait_plan plan = wait_choose(&habit, LIMIT);
    CHECK(plan.nap_ns > 1500 * US && plan.nap_ns < 1990 * US && plan.spin_ns == LIMIT);
    CHECK(wait_choose(&habit, 100 * US).nap_ns == 0); /* a short spin could not cover the nap's error */
}

/* Two ends on one CPU: who spins keeps the other from answering. The peer is gone, so that nothing waits for long. */
static void does_not_spin_on_a_cpu_that_its_peer_needs(void)
{
    int cpu = sched_getcpu();
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET((size_t)cpu, &only);
    CHECK(cpu >= 0 && sched_setaffinity(0, sizeof only, &only) == 0);
    static _Atomic uint64_t counter;
    static _Atomic uint32_t bells[2], cpus[2], limit_us = LIMIT / US;
    struct waiter waiter = {.mine = &bells[0],
                            .peers = &bells[1],
                            .my_cpu = &cpus[0],
                            .peers_cpu = &cpus[1],
                            .limit_us = &limit_us,
                            .lifeline = -1};
    const struct wait_for want = {WAIT_MESSAGE, &counter, 0, 1};
    CHECK(wait_until(&waiter, &want) == WIRE_CLOSED);
    CHECK(atomic_load(&cpus[0]) == (uint32_t)cpu + 1);
    CHECK(waiter.shared_cpu == 0); /* the peer has not said where it is */
    atomic_store(&cpus[1], (uint32_t)cpu + 2);
    CHECK(wait_until(&waiter, &want) == WIRE_CLOSED && waiter.shared_cpu == 0);
    atomic_store(&cpus[1], (uint32_t)cpu + 1);
    CHECK(wait_until(&waiter, &want) == WIRE_CLOSED && waiter.shared_cpu == 1);
}

static void budget(void)
{
    struct spin_facts facts = {.milli_cores = 2000, .active_tenants = 1};
    CHECK(spin_budget(SPIN_ADAPTIVE, &facts) == SPIN_LIMIT_MOST_US);
    facts.active_tenants = 2;
    CHECK(spin_budget(SPIN_ADAPTIVE, &facts) == SPIN_LIMIT_SHORT_US);
    CHECK(spin_budget(SPIN_ALWAYS, &facts) == SPIN_LIMIT_MOST_US);
    CHECK(spin_budget(SPIN_NEVER, &facts) == 0);
    facts = (struct spin_facts){.milli_cores = 8000, .active_tenants = 4};
    CHECK(spin_budget(SPIN_ADAPTIVE, &facts) == SPIN_LIMIT_MOST_US);
    facts.foreign_milli = 400; /* noise */
    CHECK(spin_budget(SPIN_ADAPTIVE, &facts) == SPIN_LIMIT_MOST_US);
    facts.foreign_milli = 2000;
    CHECK(spin_budget(SPIN_ADAPTIVE, &facts) == SPIN_LIMIT_SHORT_US);
    facts =
        (struct spin_facts){.milli_cores = 2000, .quota_milli = 1500, .active_tenants = 1}; /* both ends would eat it */
    CHECK(spin_budget(SPIN_ADAPTIVE, &facts) == SPIN_LIMIT_SHORT_US);
    facts.hidden_tenants = 1; /* a tenant in another pod spins by its own quota */
    CHECK(spin_budget(SPIN_ADAPTIVE, &facts) == SPIN_LIMIT_MOST_US);
    facts.quota_milli = 1000; /* one spinner, and nothing left for the rest */
    CHECK(spin_budget(SPIN_ADAPTIVE, &facts) == SPIN_LIMIT_SHORT_US);
    facts.hidden_tenants = 0;
    facts.quota_milli = UINT32_MAX;
    CHECK(spin_budget(SPIN_ADAPTIVE, &facts) == SPIN_LIMIT_MOST_US);
    facts = (struct spin_facts){.milli_cores = 2000, .foreign_milli = 1100, .active_tenants = 1};
    CHECK(spin_budget(SPIN_ADAPTIVE, &facts) == SPIN_LIMIT_SHORT_US);
    facts.hidden_tenants = 1; /* a tenant in another pod: what looks foreign is its own spinning */
    CHECK(spin_budget(SPIN_ADAPTIVE, &facts) == SPIN_LIMIT_MOST_US);
    facts.foreign_milli = 2000;
    CHECK(spin_budget(SPIN_ADAPTIVE, &facts) == SPIN_LIMIT_SHORT_US);
    facts = (struct spin_facts){.milli_cores = 1000, .active_tenants = 0};
    CHECK(spin_budget(SPIN_ADAPTIVE, &facts) == SPIN_LIMIT_MOST_US);
    facts = (struct spin_facts){.milli_cores = 1000, .foreign_milli = UINT32_MAX, .active_tenants = UINT32_MAX};
    CHECK(spin_budget(SPIN_ADAPTIVE, &facts) == SPIN_LIMIT_SHORT_US);
    CHECK(strcmp(spin_policy_name(SPIN_ADAPTIVE), "adaptive") == 0 &&
          strcmp(spin_policy_name(SPIN_ALWAYS), "spin") == 0 && strcmp(spin_policy_name(SPIN_NEVER), "sleep") == 0);
}

static void write_file(const char *root, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void make_folder(const char *root, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    CHECK(mkdir(path, 0700) == 0);
}

static void quotas(void)
{
    char root[] = "/tmp/wait-policy-XXXXXX";
    CHECK(mkdtemp(root) != NULL);
    make_folder(root, "pods");
    make_folder(root, "pods/a");
    make_folder(root, "cpu,cpuacct");
    make_folder(root, "cpu,cpuacct/b");
    write_file(root, "pods/cpu.max", "150000 100000\n");
    write_file(root, "pods/a/cpu.max", "max 100000\n");
    write_file(root, "cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    write_file(root, "cpu,cpuacct/b/cpu.cfs_quota_us", "50000\n");
    write_file(root, "cpu,cpuacct/b/cpu.cfs_period_us", "100000\n");
    CHECK(spin_quota_milli(root, "0::/pods/a\n") == 1500);
    CHECK(spin_quota_milli(root, "0::/\n") == UINT32_MAX);
    CHECK(spin_quota_milli(root, "0::/pods/none\n") == 1500);
    CHECK(spin_quota_milli(root, "4:memory:/b\n3:cpu,cpuacct:/b\n0::/pods/a\n") == 500);
    CHECK(spin_quota_milli(root, "3:cpuset:/b\n") == UINT32_MAX);
    CHECK(spin_quota_milli(root, "nonsense\n\n::\n") == UINT32_MAX);
    static const char *const files[] = {"pods/cpu.max",
                                        "pods/a/cpu.max",
                                        "cpu,cpuacct/cpu.cfs_quota_us",
                                        "cpu,cpuacct/b/cpu.cfs_quota_us",
                                        "cpu,cpuacct/b/cpu.cfs_period_us",
                                        "pods/a",
                                        "pods",
                                        "cpu,cpuacct/b",
                                        "cpu,cpuacct",
                                        ""};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", root, files[i]);
        CHECK(remove(path) == 0);
    }
}

static void readings(void)
{
    uint32_t cores = spin_milli_cores();
    CHECK(spin_own_quota_milli() > 0);
    CHECK(cores >= 1 && cores <= 1000u * (uint32_t)sysconf(_SC_NPROCESSORS_CONF));
    struct spin_load load;
    pid_t ours[] = {getppid(), getpid()};
    CHECK(spin_read_load(ours, 2, &load) == 0 && load.busy_ms > 0 && load.clock_ms > 0);
    struct spin_load before = {.busy_ms = 1000, .own_ms = 500, .clock_ms = 100};
    struct spin_load later = {.busy_ms = 2500, .own_ms = 1000, .clock_ms = 1100};
    CHECK(spin_foreign_milli(&before, &later) == 1000);
    later.own_ms = 400; /* a tenant ended and took its time with it */
    CHECK(spin_foreign_milli(&before, &later) == 0);
    CHECK(spin_foreign_milli(&before, &before) == 0);
}

/* 100 ms later, with so many cores busy meanwhile, none of them ours. */
static void passes(struct spin_watch *watch, struct spin_load *load, uint32_t busy_cores)
{
    load->clock_ms += 100;
    load->busy_ms += 100 * busy_cores;
    spin_watch_add(watch, load);
}

static void a_watch_sees_neither_bursts_nor_what_has_ended(void)
{
    struct spin_watch watch = {0};
    struct spin_load load = {.busy_ms = 1000, .clock_ms = 1000};
    CHECK(spin_watch_due(&watch, 0, 100) && spin_watch_foreign_milli(&watch) == 0);
    spin_watch_add(&watch, &load);
    CHECK(spin_watch_foreign_milli(&watch) == 0); /* one reading says nothing */
    CHECK(!spin_watch_due(&watch, 1099, 100) && spin_watch_due(&watch, 1100, 100) &&
          !spin_watch_due(&watch, 1100, 500));
    for (int i = 0; i < 5; i++)
        passes(&watch, &load, 0);
    passes(&watch, &load, 2);
    CHECK(spin_watch_foreign_milli(&watch) == 400); /* a burst of 100 ms in 500 */
    for (int i = 0; i < 5; i++)
        passes(&watch, &load, 1);
    CHECK(spin_watch_foreign_milli(&watch) == 1000); /* it stays */
    passes(&watch, &load, 0);
    CHECK(spin_watch_foreign_milli(&watch) == 0); /* it has ended */
}

int main(void)
{
    spins_for_short_waits();
    a_long_pause_is_no_habit();
    sleeps_for_long_waits_but_probes();
    naps_through_most_of_a_steady_wait();
    does_not_spin_on_a_cpu_that_its_peer_needs();
    budget();
    quotas();
    readings();
    a_watch_sees_neither_bursts_nor_what_has_ended();
    printf("ok\n");
    return 0;
}
