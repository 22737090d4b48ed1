/* Confinement of this process: user, privileges, dumps, limits, files, system calls; in the order in which each is still
 * possible.
 *
 * A sanitizer needs more than its program: its leak check attaches to the process and reads /proc, and its shadow takes
 * terabytes of addresses. Builds with one keep their user, files, addresses and calls. */
#include "proxy/confine.h"

#include <errno.h>
#include <glob.h>
#include <grp.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calls/json.h"
#include "confine/landlock.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CHECKED_BUILD = 1 };
#else
enum { CHECKED_BUILD = 0 };
#endif

/* The software device needs few; how many a driver opens is not known. */
enum { DESCRIPTORS_SOFTWARE = 64, DESCRIPTORS_DRIVER = 4096 };
/* A helper for each of 64 cores, the thread of host functions, the worker's own, and some to spare. */
enum { THREADS_MOST = 80 };
enum { NODES_MOST = 64 };

static const char *const NAMES[] = {
#define MEASURE(what, name) name,
    CONFINEMENTS(MEASURE)
#undef MEASURE
};

void confine_list(struct json *json, uint64_t measures)
{
    const char *comma = "";
    json_add(json, "[");
    for (int at = 0; at < CONFINEMENT_COUNT; at++)
        if (measures >> at & 1) {
            json_add(json, "%s\"%s\"", comma, NAMES[at]);
            comma = ", ";
        }
    json_add(json, "]");
}

uint64_t confine_named(const char *names, const char **unknown)
{
    uint64_t found = 0;
    *unknown = NULL;
    if (strcmp(names, "all") == 0)
        return CONFINED_ALL;
    for (const char *at = names; *unknown == NULL; at++) {
        size_t length = strcspn(at, ",");
        int measure = 0;
        while (measure < CONFINEMENT_COUNT &&
               (strlen(NAMES[measure]) != length || strncmp(NAMES[measure], at, length) != 0))
            measure++;
        if (measure == CONFINEMENT_COUNT)
            *unknown = at;
        else
            found |= UINT64_C(1) << measure;
        at += length;
        if (*at == 0)
            break;
    }
    return *unknown == NULL ? found : 0;
}

/* --- a user of its own --- */

/* Whether this map of a user namespace (lines of: first inside, first outside, count) holds the whole range. */
static bool is_mapped(const char *path, uid_t first, unsigned int count)
{
    FILE *map = fopen(path, "re");
    unsigned long from, outside, length;
    bool found = false;
    while (map != NULL && fscanf(map, "%lu %lu %lu", &from, &outside, &length) == 3)
        found = found || (first >= from && first - from + count <= length);
    if (map != NULL)
        fclose(map);
    return found;
}

bool confine_users_can(uid_t first, unsigned int count, const char **why)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct have[2] = {0};
    const uint32_t wanted = 1u << CAP_SETUID | 1u << CAP_SETGID | 1u << CAP_KILL;
    if (syscall(SYS_capget, &head, have) != 0 || (have[0].effective & wanted) != wanted)
        *why = "the proxy must be root with the capabilities SETUID, SETGID and KILL";
    else if (!is_mapped("/proc/self/uid_map", first, count) || !is_mapped("/proc/self/gid_map", first, count))
        *why = "the user namespace of the proxy does not have these users and groups";
    else
        return true;
    return false;
}

static bool is_wanted(const struct confinement *confinement, int measure)
{
    return (confinement->without >> measure & 1) == 0;
}

bool confine_user(const struct confinement *confinement)
{
    uid_t user = confinement->user;
    if (user == 0 || CHECKED_BUILD || !is_wanted(confinement, CONFINED_OWN_USER))
        return true;
    return setgroups(0, NULL) == 0 && setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0 &&
           geteuid() == user && setuid(0) != 0;
}

static bool drop_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {0};
    return syscall(SYS_capset, &head, none) == 0;
}

/* --- limits --- */

static bool limit(int what, rlim_t most)
{
    struct rlimit now, wanted = {most, most};
    if (getrlimit((__rlimit_resource_t)what, &now) == 0 && now.rlim_max != RLIM_INFINITY && now.rlim_max < most)
        wanted.rlim_cur = wanted.rlim_max = now.rlim_max;
    return setrlimit((__rlimit_resource_t)what, &wanted) == 0;
}

/* --- files --- */

/* A driver reads its own libraries and settings, talks to its nodes and keeps what it compiled. Read from descriptions and
 * traces of others: nothing of it was tried on a GPU. */
static struct landlocked keep_driver_files(const char *backend, struct landlocked wanted)
{
    static const struct grant COMMON[] = {
        {"/usr", GRANT_READ},       {"/lib", GRANT_READ},        {"/lib64", GRANT_READ},
        {"/etc", GRANT_READ},       {"/opt", GRANT_READ},        {"/proc", GRANT_READ},
        {"/sys", GRANT_READ},       {"/dev/null", GRANT_DEVICE}, {"/dev/zero", GRANT_DEVICE},
        {"/dev/dri", GRANT_DEVICE}, {"/dev/shm", GRANT_CHANGE},
    };
    enum { COMMON_COUNT = sizeof COMMON / sizeof *COMMON };
    struct grant grants[COMMON_COUNT + 2 + NODES_MOST];
    char folder[4096], cache[4096];
    size_t count = COMMON_COUNT;
    memcpy(grants, COMMON, sizeof COMMON);
    snprintf(folder, sizeof folder, "%s", backend);
    char *slash = strrchr(folder, '/');
    if (slash != NULL) {
        *slash = 0;
        grants[count++] = (struct grant){folder, GRANT_READ};
    }
    const char *chosen = getenv("CUDA_CACHE_PATH"), *home = getenv("HOME");
    snprintf(cache, sizeof cache, "%s%s",
             chosen != NULL ? chosen
             : home != NULL ? home
                            : "",
             chosen != NULL ? "" : "/.nv");
    grants[count++] = (struct grant){cache, GRANT_CHANGE};
    glob_t nodes = {0};
    if (glob("/dev/nvidia*", 0, NULL, &nodes) == 0)
        for (size_t at = 0; at < nodes.gl_pathc && at < NODES_MOST; at++)
            grants[count++] = (struct grant){nodes.gl_pathv[at], GRANT_DEVICE};
    struct landlocked locked = landlock_restrict(grants, count, wanted);
    globfree(&nodes);
    return locked;
}

uint64_t confine(const struct confinement *confinement)
{
    bool software = confinement->software, checked = CHECKED_BUILD;
    bool own_user = confinement->user != 0 && geteuid() == confinement->user;
    bool done[CONFINEMENT_COUNT] = {0};
#define GIVE_UP(what, condition) \
    if (is_wanted(confinement, CONFINED_##what)) \
    done[CONFINED_##what] = (condition)
    GIVE_UP(NO_NEW_PRIVILEGES, prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    GIVE_UP(NOT_DUMPABLE, !checked && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
    GIVE_UP(NO_CORE, limit(RLIMIT_CORE, 0));
    GIVE_UP(DESCRIPTORS, limit(RLIMIT_NOFILE, software ? DESCRIPTORS_SOFTWARE : DESCRIPTORS_DRIVER));
    GIVE_UP(MEMORY, !checked && confinement->memory_bytes != 0 && limit(RLIMIT_AS, confinement->memory_bytes));
    /* The kernel counts the threads of a user: with the broker's own user, those of all its programs. */
    GIVE_UP(THREADS, !checked && own_user && software && limit(RLIMIT_NPROC, THREADS_MOST));
    GIVE_UP(NO_CAPABILITIES, drop_capabilities());
    GIVE_UP(OWN_USER, !checked && own_user);
    struct landlocked wanted = {is_wanted(confinement, CONFINED_FILES), is_wanted(confinement, CONFINED_NETWORK),
                                is_wanted(confinement, CONFINED_SCOPE)};
    if (!checked && done[CONFINED_NO_NEW_PRIVILEGES]) {
        struct landlocked locked =
            software ? landlock_restrict(NULL, 0, wanted) : keep_driver_files(confinement->backend, wanted);
        done[CONFINED_FILES] = locked.files;
        done[CONFINED_NETWORK] = locked.network;
        done[CONFINED_SCOPE] = locked.scope;
    }
    GIVE_UP(CALLS, !checked && done[CONFINED_NO_NEW_PRIVILEGES] && allow_calls(software, confinement->linked));
#undef GIVE_UP
    uint64_t bits = 0;
    for (int at = 0; at < CONFINEMENT_COUNT; at++)
        bits |= done[at] ? UINT64_C(1) << at : 0;
    return bits;
}
