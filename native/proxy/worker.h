/* A worker: the process that owns the backend for one tenant and serves its calls. */
#ifndef GPUTAX_PROXY_WORKER_H
#define GPUTAX_PROXY_WORKER_H

/* The whole life of a worker, by the descriptors that it was born with; returns its exit code. */
int worker_main(void);

#endif
