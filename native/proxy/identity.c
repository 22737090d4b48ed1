/* Reads who made a connection from what the kernel says, never from what the tenant says. */
#include "proxy/identity.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/* "0::/path" of version 2, or the line of the memory controller of version 1. */
static const char *path_of(const char *text)
{
    const char *found = "";
    for (const char *line = text; line != NULL && *line != 0;) {
        const char *controllers = strchr(line, ':');
        const char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (path == NULL)
            break;
        if (strncmp(line, "0::", 3) == 0 && *found == 0)
            found = path + 1;
        if (strncmp(controllers, ":memory:", 8) == 0)
            found = path + 1;
        line = strchr(path, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    return found;
}

/* A pod's folder is "podUID" (cgroupfs) or "kubepods-...-podUID.slice" (systemd); below it are its containers. */
static bool is_pod(const char *part, size_t length)
{
    char name[256];
    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), part);
    return strncmp(name, "pod", 3) == 0 || (strncmp(name, "kubepods", 8) == 0 && strstr(name, "-pod") != NULL);
}

void identity_group(const char *text, char *group, size_t size)
{
    const char *path = path_of(text);
    size_t length = strcspn(path, "\n"), used = 0;
    bool kubernetes = false;
    while (used < length) {
        size_t part = strcspn(path + used + 1, "/\n");
        kubernetes = kubernetes || strncmp(path + used + 1, "kubepods", 8) == 0;
        bool pod = kubernetes && is_pod(path + used + 1, part);
        used += part + 1;
        if (pod)
            break;
    }
    used = used < length ? used : length;
    snprintf(group, size, "%.*s", (int)(used < size ? used : size - 1), path);
}

static int open_process(int socket, pid_t pid)
{
    int process = -1;
    socklen_t size = sizeof process;
    if (pid <= 0)
        return -1;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &process, &size) == 0) { /* Linux 6.5 */
        fcntl(process, F_SETFD, FD_CLOEXEC);
        return process;
    }
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

struct identity_name identity_read(int socket, const struct wire_peer *peer, bool by_process, int *process)
{
    struct identity_name name = {.uid = peer->uid, .pid = by_process ? peer->pid : 0};
    char path[64], text[4096];
    *process = open_process(socket, peer->pid);
    if (peer->domain != 0) {
        struct identity_name guest = {.domain = peer->domain};
        snprintf(guest.group, sizeof guest.group, "%s", peer->pod);
        return guest;
    }
    if (peer->place != 0)
        return (struct identity_name){.place = peer->place};
    if (*process < 0)
        return name;
    snprintf(path, sizeof path, "/proc/%ld/cgroup", (long)peer->pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    struct pollfd death = {.fd = *process, .events = POLLIN};
    if (got > 0 && poll(&death, 1, 0) == 0) { /* it lives, so the number was still its own when the file was read */
        text[got] = 0;
        identity_group(text, name.group, sizeof name.group);
    }
    return name;
}

bool identity_same(const struct identity_name *one, const struct identity_name *other)
{
    return one->domain == other->domain && one->place == other->place && one->uid == other->uid &&
           one->pid == other->pid && strcmp(one->group, other->group) == 0;
}
