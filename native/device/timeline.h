/* The device's timeline: throttled work takes its place there, and whoever synchronises waits for its end. */
#ifndef GPUTAX_TIMELINE_H
#define GPUTAX_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum timeline_wait { WAIT_SPIN, WAIT_YIELD, WAIT_SLEEP };

enum timeline_kind { WORK_KERNEL, WORK_COPY, TIMELINE_KINDS };

struct timeline_work {
    uint64_t end_ns; /* earliest end by the throttle */
    uint64_t begun_ns, length_ns;
    enum timeline_kind kind;
};

/* Reads the throttles; `suffix` gets what the device's name says about them ("" without any). `kernels_timed`: kernels bring
 * times of their own. */
bool timeline_open(bool kernels_timed, char *suffix, size_t capacity);
uint64_t timeline_now(void);
/* Work is computed between begin and end, on the calling thread, while its time passes on the timeline. */
struct timeline_work timeline_begin_kernel(double ns); /* its own time, where no throttle gives one */
struct timeline_work timeline_begin_copy(size_t bytes);
struct timeline_work timeline_begin_other(void);
/* When the work ends: its throttled end, or now if computing took longer than that. */
uint64_t timeline_end(struct timeline_work work);
void timeline_wait(uint64_t until_ns, enum timeline_wait how);

#endif
