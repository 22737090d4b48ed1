/* A compiler process: started by the broker when a worker has a text for it, so that the worker itself starts nothing. */
#ifndef GPUTAX_PROXY_COMPILER_H
#define GPUTAX_PROXY_COMPILER_H

/* The whole life of a compiler process, by the descriptors that it was born with; returns its exit code. */
int compiler_main(void);

#endif
