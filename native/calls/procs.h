/* The generated tables of what cuGetProcAddress may answer: one of libvgpu, one of the software device. */
#ifndef GPUTAX_PROCS_H
#define GPUTAX_PROCS_H

#include <stddef.h>

struct proc {
    const char *name;
    int since; /* first driver version with this form */
    int until; /* first driver version with a newer form */
    void *function;
    void *per_thread; /* its form for per-thread default streams; NULL: the same */
};

extern const struct proc procs[];
extern const size_t procs_count;

/* The version of the driver behind the library, or 0 where it is not known yet. */
int procs_driver_version(void);

#endif
