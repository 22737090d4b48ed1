/* A container in a guest: its own file system and namespaces. The guest is the boundary; this keeps the containers of one pod
 * apart as a pod expects it. */
#ifndef GPUTAX_SESSION_CONTAINER_H
#define GPUTAX_SESSION_CONTAINER_H

#include "session/request.h"

enum { CONTAINER_NAMESPACES = 0x20000000 | 0x00020000 | 0x04000000 | 0x08000000 }; /* pid, mount, uts, ipc */

/* In the first process of new namespaces: mounts the root file system and makes it the root. False with errno; `what` names the step. */
bool container_enter(const struct request *request, const char **what);

/* Remembers and forgets the first process, by which others join. */
bool container_remember(const char *name, pid_t process);
void container_forget(const char *name);

/* A pidfd of the first process, or -1. */
int container_find(const char *name);

#endif
