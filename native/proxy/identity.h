/* Who a tenant is, whatever number of connections it makes: the Xen guest behind a link, the place it came through, or else
 * its user and its control group up to the pod. */
#ifndef GPUTAX_PROXY_IDENTITY_H
#define GPUTAX_PROXY_IDENTITY_H

#include <stdatomic.h>
#include <stdbool.h>

#include "proxy/account.h"

enum { IDENTITY_GROUP_MAX = 512 };

struct identity_name {
    unsigned int place;  /* whose socket it came through: a container has it for itself, so it says all; 0: none */
    unsigned int domain; /* of a guest, with its pod in `group`; 0: none. A number is used again, a pod's uid is not */
    uid_t uid;
    pid_t pid; /* 0 unless each process is an identity of its own */
    char group[IDENTITY_GROUP_MAX];
};

struct identity {
    struct identity *next;
    uint64_t number;
    struct identity_name name;
    struct account *account;
    int account_file;
    unsigned int connections;
    _Atomic uint64_t next_start_ns; /* of a worker for it, see pace.h */
    uint64_t left_ns;               /* when the last one ended */
};

/* Reads the name of a connection's other end; *process becomes a pidfd of it, or -1 where the kernel hides the process
 * (another PID namespace: then its group is not known either). `by_process`: see the name's pid. */
struct identity_name identity_read(int socket, const struct wire_peer *peer, bool by_process, int *process);

bool identity_same(const struct identity_name *one, const struct identity_name *other);

/* The group of /proc/PID/cgroup's text; in Kubernetes all containers of one pod are one. Apart for tests. */
void identity_group(const char *text, char *group, size_t size);

#endif
