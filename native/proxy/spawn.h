/* Starts workers and compiler processes: this program again, with nothing of the broker but the descriptors that it is given. */
#ifndef GPUTAX_PROXY_SPAWN_H
#define GPUTAX_PROXY_SPAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Finds this program and chooses the variables that workers get. False with errno. */
bool spawn_prepare(void);

/* What a process is for; it decides its variables. */
enum role { ROLE_SOFTWARE, ROLE_DRIVER, ROLE_COMPILER, ROLES };

/* Starts a process; `given` are its descriptors from WORKER_SOCKET on, -1 for none. -1 with errno. The calling thread must
 * live as long as the broker: workers end with it. */
pid_t spawn(enum role role, const int *given);

/* Memory to share with workers: a descriptor that nobody can resize, mapped at *at. -1 with errno. */
int spawn_memory(const char *name, size_t bytes, void **at);

#endif
