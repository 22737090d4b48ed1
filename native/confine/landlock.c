/* The three system calls of Landlock, with the numbers and bits of its versions 1 to 6: a C library or header of the
 * system that knows them is not needed. */
#include "confine/landlock.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The same on every architecture. */
enum { CREATE_RULESET = 444, ADD_RULE = 445, RESTRICT_SELF = 446 };
enum { ASK_VERSION = 1, RULE_PATH_BENEATH = 1 };

enum {
    FS_EXECUTE = 1 << 0,
    FS_WRITE_FILE = 1 << 1,
    FS_READ_FILE = 1 << 2,
    FS_READ_DIR = 1 << 3,
    FS_REMOVE_DIR = 1 << 4,
    FS_REMOVE_FILE = 1 << 5,
    FS_MAKE_CHAR = 1 << 6,
    FS_MAKE_DIR = 1 << 7,
    FS_MAKE_REG = 1 << 8,
    FS_MAKE_SOCK = 1 << 9,
    FS_MAKE_FIFO = 1 << 10,
    FS_MAKE_BLOCK = 1 << 11,
    FS_MAKE_SYM = 1 << 12,
    FS_REFER = 1 << 13,     /* version 2 */
    FS_TRUNCATE = 1 << 14,  /* version 3 */
    FS_IOCTL_DEV = 1 << 15, /* version 5 */
};
enum { NET_BIND_TCP = 1 << 0, NET_CONNECT_TCP = 1 << 1 };       /* version 4 */
enum { SCOPE_ABSTRACT_SOCKET = 1 << 0, SCOPE_SIGNAL = 1 << 1 }; /* version 6 */

enum { OF_FILES = FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE | FS_IOCTL_DEV };

struct ruleset {
    uint64_t files, network, scope;
};

struct path_beneath {
    uint64_t allowed;
    int32_t directory;
} __attribute__((packed));

static const uint64_t RIGHTS[] = {
    [GRANT_READ] = FS_EXECUTE | FS_READ_FILE | FS_READ_DIR,
    [GRANT_CHANGE] = FS_WRITE_FILE | FS_READ_FILE | FS_READ_DIR | FS_REMOVE_DIR | FS_REMOVE_FILE | FS_MAKE_DIR |
                     FS_MAKE_REG | FS_REFER | FS_TRUNCATE,
    [GRANT_DEVICE] = FS_WRITE_FILE | FS_READ_FILE | FS_READ_DIR | FS_TRUNCATE | FS_IOCTL_DEV,
};

static bool add(int rules, const struct grant *grant, uint64_t handled)
{
    struct stat facts;
    int place = open(grant->path, O_PATH | O_CLOEXEC);
    if (place < 0)
        return true;
    uint64_t rights = RIGHTS[grant->kind] & handled;
    if (fstat(place, &facts) == 0 && !S_ISDIR(facts.st_mode))
        rights &= OF_FILES;
    struct path_beneath beneath = {rights, place};
    bool done = syscall(ADD_RULE, rules, RULE_PATH_BENEATH, &beneath, 0) == 0;
    close(place);
    return done;
}

struct landlocked landlock_restrict(const struct grant *grants, size_t count, struct landlocked wanted)
{
    struct landlocked none = {false, false, false};
    long version = syscall(CREATE_RULESET, NULL, 0, ASK_VERSION);
    if (version < 1)
        return none;
    struct ruleset handled = {0};
    if (wanted.files)
        handled.files = (FS_REFER - 1) | (version >= 2 ? FS_REFER : 0) | (version >= 3 ? FS_TRUNCATE : 0) |
                        (version >= 5 ? FS_IOCTL_DEV : 0);
    if (wanted.network && version >= 4)
        handled.network = NET_BIND_TCP | NET_CONNECT_TCP;
    if (wanted.scope && version >= 6)
        handled.scope = SCOPE_ABSTRACT_SOCKET | SCOPE_SIGNAL;
    size_t known = version >= 6 ? 24 : version >= 4 ? 16 : 8; /* bytes of the structure */
    int rules = (int)syscall(CREATE_RULESET, &handled, known, 0);
    if (rules < 0)
        return none;
    bool done = true;
    for (size_t at = 0; at < count && done && wanted.files; at++)
        done = add(rules, &grants[at], handled.files);
    done = done && syscall(RESTRICT_SELF, rules, 0) == 0;
    close(rules);
    if (!done)
        return none;
    return (struct landlocked){handled.files != 0, handled.network != 0, handled.scope != 0};
}
