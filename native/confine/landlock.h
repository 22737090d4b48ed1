/* Landlock by its system calls: what this process may reach of the file system, and no TCP, no signal and no abstract
 * socket beyond itself, as far as the kernel knows these. */
#ifndef GPUTAX_CONFINE_LANDLOCK_H
#define GPUTAX_CONFINE_LANDLOCK_H

#include <stdbool.h>
#include <stddef.h>

enum grant_kind {
    GRANT_READ,   /* files and directories; programs may be run */
    GRANT_CHANGE, /* everything but to run, and no device nodes */
    GRANT_DEVICE, /* read, write and ioctl of a node */
};

/* What lies at and below a path that is open; a path that does not exist grants nothing. */
struct grant {
    const char *path;
    enum grant_kind kind;
};

struct landlocked {
    bool files, network, scope; /* what is wanted, or in force */
};

/* Restricts this thread and those that it starts; no_new_privs must be set. Returns which of the wanted parts are in force.
 * System calls only, so also between fork and exec. */
struct landlocked landlock_restrict(const struct grant *grants, size_t count, struct landlocked wanted);
#define LANDLOCK_ALL ((struct landlocked){true, true, true})

#endif
