/* Graphs as both libraries keep them, and what each library does with one that can be launched.
 *
 * A handle is a number (slot, use of the slot, node), so a stale or an invented one is refused, never followed. */
#ifndef GPUTAX_DRIVER_GRAPH_H
#define GPUTAX_DRIVER_GRAPH_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "calls/graph_step.h"
#include "cuda_calls.h"
#include "driver/fork.h"

struct graph_node {
    struct graph_step step;
    uint8_t *block;    /* of a kernel: parameters and attributes, step_block_bytes of it */
    CUcontext context; /* NULL: any */
    uint32_t *after;   /* nodes that come before it */
    uint32_t after_count;
};

struct graph {
    uint64_t id;
    struct graph_node *nodes;
    uint32_t count, capacity;
};

/* A step of an instantiated graph, in the order of running. */
struct exec_step {
    struct graph_step step;
    uint8_t *block;
};

struct graph_exec {
    uint64_t id;
    uint64_t graph_id;
    CUcontext context;
    unsigned long long context_id; /* another one where a primary context was reset */
    unsigned int users;            /* threads inside a call on it; guarded by the tables' lock */
    bool dead;                     /* the last user frees it */
    bool calls_host;               /* a step is a function of the program */
    pthread_mutex_t lock;          /* one call on it at a time */
    struct exec_step *steps;
    uint32_t count;
    uint32_t *place;   /* of each node of the graph: where its step lies */
    uint64_t in_proxy; /* libvgpu: the proxy's handle */
};

/* --- graph.c --- */

struct graph *graph_find(CUgraph handle);
/* The node's graph and position; NULL for a handle that is not alive. */
struct graph *graph_of(CUgraphNode handle, uint32_t *index);
/* Takes over what the node holds, also when it fails. */
CUresult graph_add(CUgraphNode *handle, CUgraph graph, const CUgraphNode *after, size_t after_count,
                   struct graph_node node);
bool graph_has(CUgraph graph, const CUgraphNode *nodes, size_t count);
/* Whether each of these nodes is one of the ends, or comes before one. */
bool graph_comes_before(CUgraph graph, const CUgraphNode *nodes, size_t count, const CUgraphNode *ends,
                        size_t end_count);

/* --- graph_exec.c --- */

void execs_reset(void);
/* Gives a copy of each step, in order, to `add` with the stream. */
CUresult graph_exec_each(CUgraphExec exec, CUresult (*add)(CUstream, const struct graph_step *, uint8_t *),
                         CUstream stream);
/* Runs a step that needs the program: a copy from or to its memory, or a function of it. */
CUresult graph_run_here(const struct graph_step *step, CUstream stream);

/* --- graph_node.c: the caller's parameters as a step; *block comes from malloc --- */

struct launch;
CUresult step_of_launch(const struct launch *launch, struct graph_step *step, uint8_t **block);
CUresult step_of_kernel(const CUDA_KERNEL_NODE_PARAMS_v1 *from, CUkernel kernel, struct graph_step *step,
                        uint8_t **block);
CUresult step_of_copy(const CUDA_MEMCPY3D *from, struct graph_step *step);
CUresult step_of_fill(const CUDA_MEMSET_NODE_PARAMS *from, struct graph_step *step);
CUresult step_of_host(const CUDA_HOST_NODE_PARAMS_v1 *from, struct graph_step *step);

/* --- what each library brings: device/graph_run.c, vgpu/graphs.c --- */

/* Whether this step could run now: a copy's and a fill's memory. */
CUresult graph_check(const struct graph_step *step);
CUresult graph_made(struct graph_exec *exec);
CUresult graph_changed(struct graph_exec *exec, uint32_t place);
CUresult graph_run(struct graph_exec *exec, CUstream stream);
void graph_ended(struct graph_exec *exec);

#endif
