/* A worker: the process that owns the backend for one tenant and serves its calls. */
#ifndef GPUTAX_PROXY_WORKER_H
#define GPUTAX_PROXY_WORKER_H

#include <stddef.h>

#include "proxy/page.h"

/* Memory that the broker shares by this descriptor. NULL: there is none of that size. */
void *worker_map(int descriptor, size_t bytes);

/* The whole life of a worker, by the descriptors that it was born with; returns its exit code. */
int worker_main(void);

#endif
