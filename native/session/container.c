/* Mounts of a container in a guest, and the file by which a running one is found. */
#include "session/container.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define FOLDER "/run/containers"
enum { DEVICE_TRIES = 400, DEVICE_EACH_MS = 50 };

_Static_assert(CONTAINER_NAMESPACES == (CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC), "sched.h says so");

/* A disk that was attached just now appears a little later. */
static bool wait_for_device(const char *device)
{
    for (int i = 0; i < DEVICE_TRIES; i++) {
        if (access(device, R_OK) == 0)
            return true;
        poll(NULL, 0, DEVICE_EACH_MS);
    }
    return false;
}

static bool made(const char *path)
{
    return mkdir(path, 0755) == 0 || errno == EEXIST;
}

/* The image below, memory on top of it. */
static bool mount_root(const struct request *request, const char **what)
{
    if (!wait_for_device(request->device) || mount(request->device, "lower", "erofs", MS_RDONLY, NULL) != 0) {
        *what = request->device;
        return false;
    }
    *what = "the layer in memory";
    if (mount("tmpfs", "over", "tmpfs", 0, NULL) != 0 || !made("over/upper") || !made("over/work"))
        return false;
    struct stat lower;
    if (stat("lower", &lower) == 0) /* the root directory's own owner and mode are those of the upper layer's */
        (void)!(chown("over/upper", lower.st_uid, lower.st_gid) | chmod("over/upper", lower.st_mode & 07777));
    *what = "overlay";
    return mount("overlay", "root", "overlay", 0, "lowerdir=lower,upperdir=over/upper,workdir=over/work") == 0;
}

static bool make_devices(void)
{
    static const struct {
        const char *path;
        unsigned int major, minor;
    } nodes[] = {{"dev/null", 1, 3},   {"dev/zero", 1, 5},    {"dev/full", 1, 7},
                 {"dev/random", 1, 8}, {"dev/urandom", 1, 9}, {"dev/tty", 5, 0}};
    static const struct {
        const char *to, *path;
    } links[] = {{"/proc/self/fd", "dev/fd"},
                 {"/proc/self/fd/0", "dev/stdin"},
                 {"/proc/self/fd/1", "dev/stdout"},
                 {"/proc/self/fd/2", "dev/stderr"},
                 {"pts/ptmx", "dev/ptmx"}};
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++)
        if (mknod(nodes[i].path, S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor)) != 0)
            return false;
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        if (symlink(links[i].to, links[i].path) != 0)
            return false;
    return true;
}

static bool mount_inside(const char **what)
{
    static const struct {
        const char *kind, *at, *options;
        unsigned long flags;
    } mounts[] = {{"proc", "proc", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC},
                  {"sysfs", "sys", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY},
                  {"tmpfs", "dev", "mode=755,size=64k", MS_NOSUID},
                  {"devpts", "dev/pts", "newinstance,ptmxmode=0666,mode=0620", MS_NOSUID | MS_NOEXEC},
                  {"tmpfs", "dev/shm", "mode=1777", MS_NOSUID | MS_NODEV | MS_NOEXEC}};
    for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++) {
        *what = mounts[i].at;
        if (!made(mounts[i].at) ||
            mount(mounts[i].kind, mounts[i].at, mounts[i].kind, mounts[i].flags, mounts[i].options) != 0)
            return false;
    }
    *what = "dev";
    if (!make_devices())
        return false;
    *what = "run/gputax"; /* the way to the GPU proxy */
    return made("run") && made("run/gputax") && mount("/run/gputax", "run/gputax", NULL, MS_BIND | MS_REC, NULL) == 0;
}

bool container_enter(const struct request *request, const char **what)
{
    char folder[sizeof FOLDER + CONTAINER_NAME_MOST + 8];
    umask(022);
    snprintf(folder, sizeof folder, FOLDER "/%s", request->container);
    *what = "the container's folder";
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || !made(FOLDER) || !made(folder) ||
        chdir(folder) != 0 || !made("lower") || !made("over") || !made("root"))
        return false;
    if (!mount_root(request, what) || (*what = "root", chdir("root")) != 0)
        return false;
    umask(0);
    if (!mount_inside(what))
        return false;
    umask(022);
    *what = "a new root";
    /* The guest's first file system cannot be moved away, so the new root is moved over it. */
    if (mount(".", "/", NULL, MS_MOVE, NULL) != 0 || chroot(".") != 0 || chdir("/") != 0)
        return false;
    if (request->read_only && mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY | MS_BIND, NULL) != 0)
        return false;
    *what = "the host name";
    return request->hostname == NULL || sethostname(request->hostname, strlen(request->hostname)) == 0;
}

static void file_of(const char *name, char *path, size_t size)
{
    snprintf(path, size, FOLDER "/%s.process", name);
}

bool container_remember(const char *name, pid_t process)
{
    char path[512], text[32];
    file_of(name, path, sizeof path);
    int bytes = snprintf(text, sizeof text, "%ld", (long)process);
    if (!made(FOLDER))
        return false;
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool written = file >= 0 && write(file, text, (size_t)bytes) == bytes;
    if (file >= 0)
        close(file);
    return written;
}

void container_forget(const char *name)
{
    char path[512];
    file_of(name, path, sizeof path);
    unlink(path);
}

int container_find(const char *name)
{
    char path[512], text[32] = "";
    file_of(name, path, sizeof path);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    return got <= 0 ? -1 : (int)syscall(SYS_pidfd_open, (pid_t)strtol(text, NULL, 10), 0);
}
