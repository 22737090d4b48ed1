/* The rule by which spinning threads are rationed, and the readings of cores, quotas and load that feed it. */
#include "spin_budget.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Foreign load below half a core does not forbid spinning: on two cores with one tenant the least daemon would. Beside its
 * spinners a process needs some time for all else; one that spins its quota away stands still for the rest of each period. */
enum { FOREIGN_TOLERATED_MILLI = 500, QUOTA_RESERVE_MILLI = 500 };

uint32_t spin_budget(enum spin_policy policy, const struct spin_facts *facts)
{
    if (policy == SPIN_ALWAYS)
        return SPIN_LIMIT_MOST_US;
    if (policy == SPIN_NEVER)
        return 0;
    uint64_t hidden = (uint64_t)facts->hidden_tenants * 1000;
    uint32_t foreign = facts->foreign_milli > hidden ? facts->foreign_milli - (uint32_t)hidden : 0;
    foreign = foreign < FOREIGN_TOLERATED_MILLI ? 0 : foreign;
    /* A tenant of another pod spins by its own quota; one of this PID namespace is taken to be in this control group too. */
    uint64_t inside = (uint64_t)facts->active_tenants * SPINNERS_PER_TENANT * 1000 - hidden;
    inside += hidden > 0 ? QUOTA_RESERVE_MILLI : 0;
    bool unlimited = facts->quota_milli == 0 || facts->quota_milli == UINT32_MAX;
    if (!unlimited && inside > facts->quota_milli)
        return SPIN_LIMIT_SHORT_US;
    uint32_t cores = facts->milli_cores > foreign ? facts->milli_cores - foreign : 0;
    uint64_t wanted = (uint64_t)facts->active_tenants * SPINNERS_PER_TENANT * 1000;
    return wanted <= cores ? SPIN_LIMIT_MOST_US : SPIN_LIMIT_SHORT_US;
}

const char *spin_policy_name(enum spin_policy policy)
{
    switch (policy) {
    case SPIN_ALWAYS:
        return "spin";
    case SPIN_NEVER:
        return "sleep";
    case SPIN_ADAPTIVE:
        break;
    }
    return "adaptive";
}

static bool read_text(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    size_t got = fread(text, 1, size - 1, file);
    text[got] = 0;
    fclose(file);
    return got > 0;
}

static uint32_t milli(double quota_us, double period_us)
{
    if (quota_us <= 0 || period_us <= 0 || quota_us / period_us > 1e6)
        return UINT32_MAX;
    return (uint32_t)(quota_us * 1000 / period_us);
}

/* The quota of one directory of either version. */
static uint32_t quota_of(const char *directory)
{
    char path[1024];
    char text[128];
    double quota = 0;
    double period = 0;
    snprintf(path, sizeof path, "%s/cpu.max", directory);
    if (read_text(path, text, sizeof text)) /* "max 100000" has no number in front: no quota */
        return sscanf(text, "%lf %lf", &quota, &period) == 2 ? milli(quota, period) : UINT32_MAX;
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", directory);
    if (!read_text(path, text, sizeof text))
        return UINT32_MAX;
    quota = strtod(text, NULL);
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", directory);
    return read_text(path, text, sizeof text) ? milli(quota, strtod(text, NULL)) : UINT32_MAX;
}

/* Every directory from base/group up to base itself; a container sees its own group as the base. */
static uint32_t quota_up_from(const char *base, const char *group)
{
    char directory[768];
    uint32_t least = UINT32_MAX;
    int length = snprintf(directory, sizeof directory, "%s%s", base, strcmp(group, "/") == 0 ? "" : group);
    if (length < 0 || (size_t)length >= sizeof directory)
        return quota_of(base);
    size_t stop = strlen(base);
    for (;;) {
        uint32_t here = quota_of(directory);
        least = here < least ? here : least;
        char *slash = strrchr(directory, '/');
        if (strlen(directory) <= stop || slash == NULL)
            return least;
        *slash = 0;
    }
}

static bool lists_cpu(const char *controllers)
{
    for (const char *at = controllers; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, "cpu", 3) == 0 && (at[3] == ',' || at[3] == 0))
            return true;
    }
    return false;
}

uint32_t spin_quota_milli(const char *root, const char *groups)
{
    uint32_t least = UINT32_MAX;
    char line[1024];
    for (const char *at = groups; *at != 0;) {
        size_t length = strcspn(at, "\n");
        snprintf(line, sizeof line, "%.*s", (int)(length < sizeof line ? length : sizeof line - 1), at);
        at += length + (at[length] == '\n');
        char *controllers = strchr(line, ':'); /* "number:controllers:/group" */
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL)
            continue;
        *group++ = 0;
        controllers++;
        char base[512];
        uint32_t here = UINT32_MAX;
        if (*controllers == 0) {
            here = quota_up_from(root, group);
        } else if (lists_cpu(controllers)) {
            snprintf(base, sizeof base, "%s/%s", root, controllers);
            here = quota_up_from(base, group);
        }
        least = here < least ? here : least;
    }
    return least;
}

uint32_t spin_milli_cores(void)
{
    cpu_set_t mask;
    long cores = sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : sysconf(_SC_NPROCESSORS_ONLN);
    return (uint32_t)(cores > 0 ? cores : 1) * 1000;
}

uint32_t spin_own_quota_milli(void)
{
    char groups[4096];
    return read_text("/proc/self/cgroup", groups, sizeof groups) ? spin_quota_milli("/sys/fs/cgroup", groups)
                                                                 : UINT32_MAX;
}

/* user + system time of one process in clock ticks; a process that is gone counts nothing. */
static uint64_t ticks_of(pid_t pid)
{
    char path[64];
    char text[1024];
    unsigned long long user = 0;
    unsigned long long kernel = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    if (!read_text(path, text, sizeof text))
        return 0;
    const char *name_end = strrchr(text, ')'); /* the name may hold anything, also spaces and brackets */
    if (name_end == NULL ||
        sscanf(name_end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &kernel) != 2)
        return 0;
    return user + kernel;
}

int spin_read_load(const pid_t *ours, size_t count, struct spin_load *load)
{
    char text[512];
    unsigned long long t[8] = {0}; /* user nice system idle iowait irq softirq steal */
    struct timespec now;
    long per_second = sysconf(_SC_CLK_TCK);
    if (per_second <= 0 || !read_text("/proc/stat", text, sizeof text))
        return -1;
    if (sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6],
               &t[7]) < 8)
        return -1;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t own = ticks_of(getpid());
    for (size_t i = 0; i < count; i++)
        own += ours[i] == getpid() ? 0 : ticks_of(ours[i]);
    uint64_t ms_per_tick = 1000 / (uint64_t)per_second;
    load->busy_ms = (t[0] + t[1] + t[2] + t[5] + t[6] + t[7]) * ms_per_tick;
    load->own_ms = own * ms_per_tick;
    load->clock_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    return 0;
}

uint32_t spin_foreign_milli(const struct spin_load *before, const struct spin_load *after)
{
    /* A tenant that ended in between takes its time with it: own may shrink, which is not foreign load. */
    if (after->clock_ms <= before->clock_ms || after->own_ms < before->own_ms || after->busy_ms < before->busy_ms)
        return 0;
    uint64_t busy = after->busy_ms - before->busy_ms;
    uint64_t own = after->own_ms - before->own_ms;
    return busy <= own ? 0 : (uint32_t)((busy - own) * 1000 / (after->clock_ms - before->clock_ms));
}

bool spin_watch_due(const struct spin_watch *watch, uint64_t clock_ms, uint32_t every_ms)
{
    return watch->count == 0 || clock_ms >= watch->readings[watch->count - 1].clock_ms + every_ms;
}

void spin_watch_add(struct spin_watch *watch, const struct spin_load *load)
{
    if (watch->count == SPIN_READINGS) {
        memmove(watch->readings, watch->readings + 1, (SPIN_READINGS - 1) * sizeof *load);
        watch->count--;
    }
    watch->readings[watch->count++] = *load;
}

uint32_t spin_watch_foreign_milli(const struct spin_watch *watch)
{
    if (watch->count < 2)
        return 0;
    const struct spin_load *last = &watch->readings[watch->count - 1];
    uint32_t now = spin_foreign_milli(last - 1, last);
    uint32_t lately = spin_foreign_milli(watch->readings, last);
    return now < lately ? now : lately;
}
