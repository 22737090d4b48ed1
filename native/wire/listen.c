/* The server's socket: created with exact permissions, never in place of a living server's, and its connections. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "handshake.h"

enum { WAITING_CONNECTIONS = 128, LISTENERS_MOST = 1024 };

/* What each listener made in the file system, by its descriptor: a server removes its own socket and no successor's. */
static struct {
    dev_t device;
    ino_t number;
} made[LISTENERS_MOST];

static void remember(int listener, const char *path)
{
    struct stat facts;
    if (listener < LISTENERS_MOST && lstat(path, &facts) == 0) {
        made[listener].device = facts.st_dev;
        made[listener].number = facts.st_ino;
    }
}

static bool is_own(int listener, const struct stat *facts)
{
    return listener < LISTENERS_MOST && S_ISSOCK(facts->st_mode) && made[listener].number == facts->st_ino &&
           made[listener].device == facts->st_dev;
}

/* Whether `path` is free or was freed; a socket that refuses connections is left over from a dead server. */
static bool make_way(const char *path, const struct sockaddr_un *address, char *why, size_t why_size)
{
    struct stat facts;
    if (lstat(path, &facts) != 0) {
        if (errno == ENOENT)
            return true;
        snprintf(why, why_size, "%s: %s", path, strerror(errno));
        return false;
    }
    if (!S_ISSOCK(facts.st_mode)) {
        snprintf(why, why_size, "%s exists and is not a socket; remove it or choose another path", path);
        return false;
    }
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int answer = probe < 0 ? -1 : connect(probe, (const struct sockaddr *)address, sizeof *address);
    int error = answer == 0 ? 0 : errno;
    if (probe >= 0)
        close(probe);
    if (error != ECONNREFUSED) {
        snprintf(why, why_size, "%s: %s", path,
                 error == 0 || error == EAGAIN ? "another server serves it" : strerror(error));
        return false;
    }
    if (unlink(path) != 0) {
        snprintf(why, why_size, "%s is left over from a dead server and cannot be removed: %s", path, strerror(errno));
        return false;
    }
    return true;
}

struct lock {
    char path[sizeof(struct sockaddr_un) + sizeof ".lock"];
    int file;
};

/* Two servers that start at once must not both find the path free: one of them holds a lock, the other one ends.
 * A tenant that may only read the folder must not be able to hold it, so it is a write lock on a file that only our
 * user can open, and only for writing; the folder itself could be locked by everybody who can read it. */
static bool take_lock(struct lock *lock, const char *path, char *why, size_t why_size)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct stat ours, named;
    snprintf(lock->path, sizeof lock->path, "%s.lock", path);
    lock->file = open(lock->path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0200);
    if (lock->file < 0) {
        snprintf(why, why_size, errno == ENOENT ? "%s: its folder: %s" : "%s: %s", errno == ENOENT ? path : lock->path,
                 strerror(errno));
        return false;
    }
    /* The one before us removes the file while it holds the lock: ours may be one that has no name any more. */
    if (fcntl(lock->file, F_OFD_SETLK, &whole) == 0 && fstat(lock->file, &ours) == 0 &&
        lstat(lock->path, &named) == 0 && ours.st_ino == named.st_ino && ours.st_dev == named.st_dev)
        return true;
    snprintf(why, why_size, "%s: another server is starting: it holds %s", path, lock->path);
    close(lock->file);
    return false;
}

static void drop_lock(const struct lock *lock)
{
    unlink(lock->path);
    close(lock->file);
}

int wire_listen(const char *path, mode_t mode, char *why, size_t why_size)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (*path == 0 || strlen(path) >= sizeof address.sun_path) {
        snprintf(why, why_size, "'%s': a socket's path has 1 to %zu bytes", path, sizeof address.sun_path - 1);
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    struct lock lock;
    if (!take_lock(&lock, path, why, why_size))
        return -1;
    int listener = -1;
    if (make_way(path, &address, why, why_size)) {
        listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        /* Until listen nobody can connect, so the time before chmod gives nothing away, whatever the umask. */
        if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
            chmod(path, mode) != 0 || listen(listener, WAITING_CONNECTIONS) != 0) {
            snprintf(why, why_size, "%s: %s", path, strerror(errno));
            if (listener >= 0)
                close(listener);
            listener = -1;
        } else {
            remember(listener, path);
        }
    }
    drop_lock(&lock);
    return listener;
}

void wire_unlisten(int listener, const char *path)
{
    struct stat facts;
    if (lstat(path, &facts) == 0 && is_own(listener, &facts))
        unlink(path);
    close(listener);
}

int wire_accept_socket(int listener, struct wire_peer *peer)
{
    int descriptor = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (descriptor < 0) {
        if (errno == ECONNABORTED || errno == EINTR)
            errno = EAGAIN;
        return -1;
    }
    struct ucred who;
    socklen_t size = sizeof who;
    if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) {
        close(descriptor);
        errno = EAGAIN;
        return -1;
    }
    *peer = (struct wire_peer){.pid = who.pid, .uid = who.uid, .gid = who.gid};
    return descriptor;
}
