/* What the parts of libvgpu share: the one connection of this process, questions to the proxy, and what is known locally. */
#ifndef GPUTAX_VGPU_H
#define GPUTAX_VGPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "calls.h"
#include "calls/ranges.h"
#include "wire/wire.h"

/* Every call from the moment on at which the proxy is gone; a new process may connect again. */
#define VGPU_PROXY_GONE CUDA_ERROR_SYSTEM_NOT_READY

enum {
    QUESTION_CONTEXT = 1, /* the thread's current context goes into the first field */
    QUESTION_POSTED = 2,
    QUESTION_CACHED = 4,
    QUESTION_FLUSH = 8,
};

struct question {
    uint32_t call;
    uint32_t flags;
    void *in;
    size_t in_bytes;
    const void *variable; /* follows `in` in the message */
    size_t variable_bytes;
    uint64_t bulk_bytes; /* bulk bytes that the caller sends after vgpu_send */
    void *out;
    size_t out_bytes;
    void *out_variable; /* takes what follows `out` in the answer, at most out_capacity */
    size_t out_capacity;
    bool text; /* out_variable is a string and ends with 0, however short */
    size_t out_variable_bytes;
    uint64_t answer_bulk; /* bulk bytes that follow the answer */
};

/* Sends the question and, unless it is posted, waits for its answer. */
CUresult vgpu_ask(struct question *question);

/* The answer of a cached call, if it was asked before; never connects. */
bool vgpu_cached(struct question *question);

/* The pieces of vgpu_ask, for calls with bulk bytes or with tables of their own. Everything between enter and leave is
 * under the process's one lock; enter connects if need be and fails without taking the lock. */
CUresult vgpu_enter(void);
void vgpu_leave(void);
CUresult vgpu_ask_inside(struct question *question);
CUresult vgpu_send(struct question *question);
CUresult vgpu_receive(struct question *question);
/* The connection's bulk path: all bytes, in pieces. */
CUresult vgpu_bulk_out(const void *from, size_t bytes);
CUresult vgpu_bulk_in(void *to, size_t bytes);

/* cuInit's part: marks the process as initialised and connects. */
CUresult vgpu_initialise(void);

/* --- known locally; the table of memory and functions is used inside enter and leave --- */

extern struct ranges vgpu_memory;

/* Whether these bytes are this process's device memory (takes the lock itself). */
bool vgpu_owns(CUdeviceptr pointer, size_t bytes);

/* Mapped host memory, by an address of it in this process or on the device; inside enter and leave. */
struct host_address {
    void *at;
    uint64_t device;
    uint64_t base, bytes, context; /* of the whole allocation, on the device */
};
bool vgpu_host_address(uint64_t pointer, struct host_address *found);
void vgpu_forget_host(uint64_t context);

/* The thread's current context, 0 for none; and whether it still lives. */
uint64_t vgpu_current(void);
bool vgpu_context_lives(uint64_t context);

/* Forget what a context or a module held. */
void vgpu_forget_functions(uint64_t context, uint64_t module);

/* In the child after a fork: everything known belongs to the parent. */
void vgpu_contexts_reset(void);
void vgpu_functions_reset(void);
void vgpu_cache_reset(void);
void vgpu_host_reset(void);

/* Answers of cached calls. */
bool vgpu_cache_find(struct question *question);
void vgpu_cache_keep(const struct question *question);

#endif
