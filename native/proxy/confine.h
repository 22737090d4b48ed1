/* What a worker gives up before it reads the first byte of its tenant. */
#ifndef GPUTAX_PROXY_CONFINE_H
#define GPUTAX_PROXY_CONFINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The measures, as bits of a worker's record; the names are those of the status and of --unconfined. */
#define CONFINEMENTS(MEASURE) \
    MEASURE(NO_NEW_PRIVILEGES, "no_new_privs") \
    MEASURE(NOT_DUMPABLE, "not_dumpable") \
    MEASURE(NO_CORE, "no_core") \
    MEASURE(DESCRIPTORS, "descriptor_limit") \
    MEASURE(MEMORY, "memory_limit") \
    MEASURE(THREADS, "thread_limit") \
    MEASURE(NO_CAPABILITIES, "no_capabilities") \
    MEASURE(OWN_USER, "own_user") \
    MEASURE(FILES, "landlock_files") \
    MEASURE(NETWORK, "landlock_network") \
    MEASURE(SCOPE, "landlock_scope") \
    MEASURE(CALLS, "seccomp")
enum {
#define MEASURE(what, name) CONFINED_##what,
    CONFINEMENTS(MEASURE)
#undef MEASURE
        CONFINEMENT_COUNT
};
#define CONFINED_ALL ((UINT64_C(1) << CONFINEMENT_COUNT) - 1)

struct confinement {
    bool software;         /* the backend is the software device: what it needs is known */
    bool linked;           /* the tenant is in another domain */
    const char *backend;   /* the path of its library */
    uint64_t memory_bytes; /* of address space; 0: no limit */
    uid_t user;            /* also the group; 0: the broker's */
    uint64_t without;      /* measures that the operator has switched off */
};

/* The names of all measures in this set, as a JSON list. */
struct json;
void confine_list(struct json *json, uint64_t measures);
/* The measures in a list with commas, or "all"; 0 and the first unknown name if there is one. */
uint64_t confine_named(const char *names, const char **unknown);

/* Takes another user and gives its groups up. False: it cannot, and the caller must end. */
bool confine_user(const struct confinement *confinement);

/* Gives up all the rest, and returns what is in force, a bit for each measure. */
uint64_t confine(const struct confinement *confinement);

/* The seat's user for a range that begins at `first`: whether this process can give it to a worker, and signal it then;
 * else the reason. */
bool confine_users_can(uid_t first, unsigned int count, const char **why);

/* allowed.c: the lists of system calls. */
bool allow_calls(bool software, bool linked);

#endif
