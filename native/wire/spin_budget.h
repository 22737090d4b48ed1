/* How long a tenant's two ends may spin, from the cores that are free for it: a pure rule, and the facts that it needs. */
#ifndef GPUTAX_WIRE_SPIN_BUDGET_H
#define GPUTAX_WIRE_SPIN_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    SPIN_LIMIT_MOST_US = 500, /* longest spin; a wait that is longer than this loses little by a wake-up of 50 us */
    SPIN_LIMIT_SHORT_US = 5,  /* above the budget: enough for an answer that is on its way, too short to do harm */
    SPINNERS_PER_TENANT = 2,  /* the client's thread and the proxy's worker */
};

enum spin_policy { SPIN_ADAPTIVE, SPIN_ALWAYS, SPIN_NEVER };

struct spin_facts {
    uint32_t milli_cores; /* cores that both ends share, in 1/1000 core: see spin_milli_cores */
    uint32_t quota_milli; /* what this process alone may use of them by its control group; UINT32_MAX or 0: no quota */
    uint32_t foreign_milli;  /* what others keep busy, in 1/1000 core: see spin_foreign_milli; 0 if not known */
    uint32_t active_tenants; /* tenants with calls in the last moments */
    uint32_t hidden_tenants; /* those of them whose process is in another PID namespace: their spinning looks foreign */
};

/* The limit for each active tenant in us. */
uint32_t spin_budget(enum spin_policy policy, const struct spin_facts *facts);

/* "adaptive", "spin" or "sleep": the policy's name in results. */
const char *spin_policy_name(enum spin_policy policy);

/* Cores of this process's affinity mask, in 1/1000 core. */
uint32_t spin_milli_cores(void);

/* The quota of this process's own control groups, in 1/1000 core, UINT32_MAX for none. */
uint32_t spin_own_quota_milli(void);

/* The tightest quota on the way from a control group to the root, in 1/1000 core, UINT32_MAX for none. `groups` is the
 * text of /proc/self/cgroup, `root` the directory where control groups are mounted; both versions are understood. */
uint32_t spin_quota_milli(const char *root, const char *groups);

/* Readings of busy time; two of them, some 100 ms apart or more, tell how many cores others keep busy. */
struct spin_load {
    uint64_t busy_ms; /* of all cores */
    uint64_t own_ms;  /* of this process and of the processes in `ours` */
    uint64_t clock_ms;
};
/* `ours`: the tenants' processes, whose spinning must not count as foreign load. 0, or -1 when /proc cannot be read. */
int spin_read_load(const pid_t *ours, size_t count, struct spin_load *load);
uint32_t spin_foreign_milli(const struct spin_load *before, const struct spin_load *after);

/* The recent readings. */
enum { SPIN_READ_MS = 100, SPIN_READINGS = 6 };
struct spin_watch {
    struct spin_load readings[SPIN_READINGS]; /* the oldest first */
    unsigned count;
};
/* Whether the last reading is that old. */
bool spin_watch_due(const struct spin_watch *watch, uint64_t clock_ms, uint32_t every_ms);
void spin_watch_add(struct spin_watch *watch, const struct spin_load *load);
/* The cores that others keep busy: the least of what the last reading and all readings together say, so that neither a
 * burst counts nor a load that has ended. 0 while there are less than two readings. */
uint32_t spin_watch_foreign_milli(const struct spin_watch *watch);

#endif
