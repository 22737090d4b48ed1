/* The clock of broker and workers: one for all processes of a machine. */
#ifndef GPUTAX_PROXY_CLOCK_H
#define GPUTAX_PROXY_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Milliseconds in the unit of the clock. */
static inline uint64_t ms(uint64_t count)
{
    return count * 1000000;
}

#endif
