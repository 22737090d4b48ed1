/* A compiled kernel, and how a launch of it is run over threads. */
#ifndef GPUTAX_COMPILE_RUN_H
#define GPUTAX_COMPILE_RUN_H

#include <stdatomic.h>

#include "device/compile/build.h"
#include "device/ptx/inner.h"

struct compiled { /* for one shape of blocks */
    struct compiled *next;
    uint32_t block[3], axis;
    uint64_t shared_bytes;
    bool barriers;
    uint32_t state_bytes, range_count;
    compiled_block *run; /* NULL: refused, or missed */
    bool missed;         /* not in the cache, and not worth a compilation so far */
    struct code *code;
};

/* One launch; its blocks are taken one after another by whoever has time. */
struct job {
    const struct compiled *compiled;
    const struct ptx_kernel *kernel;
    const struct ptx_launch *launch;
    uint64_t block_count, deadline_ns;
    _Atomic uint64_t next;
    _Atomic int fault;     /* the first; not 0: all stop */
    _Atomic bool reserved; /* memory for one thread, which none has taken yet */
};

uint64_t run_now_ns(void);
bool run_reserve(struct job *job); /* memory for one thread; without it nothing can run */
void run_blocks(struct job *job);  /* takes blocks until there are none; by several threads at once */
/* threads.c: run_blocks on up to this many threads, the caller's among them. */
void threads_run(struct job *job, unsigned most);

#endif
