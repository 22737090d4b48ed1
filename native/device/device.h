/* Inner types of the software device: contexts and what they own, the handle table, the shared timeline. */
#ifndef GPUTAX_DEVICE_H
#define GPUTAX_DEVICE_H

#include <pthread.h>
#include <stdbool.h>

#include "cuda_calls.h"
#include "device/arena.h"
#include "device/cubin.h"
#include "device/ptx/ptx.h"

enum {
    DEVICE_DRIVER_VERSION = 13000,
    DEVICE_CAPABILITY_MAJOR = 9,
    DEVICE_CAPABILITY_MINOR = 0,
    DEVICE_STATIC_SHARED_BYTES = 48 << 10, /* static + dynamic shared memory of a block without opting in */
    DEVICE_SHARED_BYTES = 227 << 10,       /* with CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
    DEVICE_THREADS_PER_BLOCK = 1024,
    DEVICE_THREADS_PER_MULTIPROCESSOR = 2048,
    DEVICE_BLOCK_DIM_Z = 64,
    DEVICE_GRID_DIM_X = 0x7fffffff,
    DEVICE_GRID_DIM_YZ = 65535,
    DEVICE_CONSTANT_BYTES = 64 << 10,
    DEVICE_PARAMETER_BYTES = PTX_PARAMETER_BYTES,
    DEVICE_NAME_BYTES = 128,
    DEVICE_STREAM_PRIORITY_GREATEST = -5,
    DEVICE_NULL_MULTIPROCESSORS = 132, /* with null kernels, which need none */
};

/* Everything that a context owns hangs in one ring of these, so that destroying the context frees it. */
struct owned {
    struct owned *next, *before;
};

enum handle_kind {
    HANDLE_CONTEXT = 1,
    HANDLE_STREAM,
    HANDLE_EVENT,
    HANDLE_MODULE,
    HANDLE_FUNCTION,
    HANDLE_HOST_MEMORY,
};

struct CUstream_st {
    struct owned link;
    struct CUctx_st *context;
    unsigned int flags;
    int priority;
    uint64_t end_ns; /* when the last work in it ends */
};

struct CUevent_st {
    struct owned link;
    struct CUctx_st *context;
    unsigned int flags;
    bool recorded;
    uint64_t at_ns;
};

struct CUfunc_st {
    struct CUmod_st *module;
    const struct ptx_kernel *kernel;
    unsigned int dynamic_shared_limit;
};

struct CUmod_st {
    struct owned link;
    struct CUctx_st *context;
    struct ptx_module *ptx;      /* or */
    struct cubin *cubin;         /* a binary image, whose kernels are null */
    struct CUfunc_st *functions; /* one per kernel of the module */
};

struct host_memory {
    struct owned link;
    struct CUctx_st *context;
    void *pointer;
    size_t bytes;
    bool is_mapped;     /* kernels reach it */
    bool is_registered; /* the program's own: not unmapped */
};

struct CUctx_st {
    uint64_t id;          /* no other context ever has it, nor the primary one after a reset */
    pthread_mutex_t work; /* held while work of this context computes: one piece of work at a time */
    unsigned int users;   /* threads inside a call on it; guarded by the handle table's lock */
    bool dead;            /* the last user frees it */
    bool primary;
    unsigned int flags;
    unsigned int api_version;
    CUresult failure;         /* sticky: what a faulting kernel left behind */
    uint64_t end_ns;          /* when all its work ends */
    uint64_t blocking_end_ns; /* the same without non-blocking streams: what the default stream waits for */
    struct CUstream_st default_stream;
    struct owned streams, events, modules, host_memory;
    struct arena_owner memory;
    struct ptx_scratch *scratch;
};

/* device.c */
CUresult device_ready(CUdevice device);
CUresult device_initialised(void);
struct arena *device_arena(void);

/* handles.c: which handles are alive. A stale or invented handle is an error, never a crash. */
bool handle_add(void *handle, enum handle_kind kind);
void handle_remove(void *handle);
bool handle_is(const void *handle, enum handle_kind kind);
struct CUctx_st *handle_hold_context(struct CUctx_st *context);
bool handle_release_context(struct CUctx_st *context);

static inline void owned_init(struct owned *ring)
{
    ring->next = ring->before = ring;
}
static inline void owned_add(struct owned *ring, struct owned *item)
{
    item->next = ring->next;
    item->before = ring;
    ring->next->before = item;
    ring->next = item;
}
static inline void owned_remove(struct owned *item)
{
    item->next->before = item->before;
    item->before->next = item->next;
    item->next = item->before = item;
}

/* context.c: the current context, held and locked for work. Every call that touches a context goes through these. */
CUresult context_enter(struct CUctx_st **context);
CUresult context_enter_for(struct CUctx_st *wanted, struct CUctx_st **context);
void context_leave(struct CUctx_st *context);
/* Leaves, and waits for a moment on the timeline without holding the context's lock. */
void context_leave_and_wait(struct CUctx_st *context, uint64_t until_ns, bool sleep);
CUresult context_create(struct CUctx_st **made, unsigned int flags);
void context_end(struct CUctx_st *context);
/* The primary context keeps its handle: it loses what it owns and its id, and may be used again. */
void context_sleep(struct CUctx_st *context);
void context_wake(struct CUctx_st *context, unsigned int flags);

/* stream.c */
CUresult stream_find(struct CUctx_st *context, CUstream handle, struct CUstream_st **stream);
uint64_t stream_end(const struct CUstream_st *stream); /* when all that it has to wait for ends */
void stream_finish(struct CUstream_st *stream, uint64_t end_ns);
void stream_drop_all(struct CUctx_st *context);
/* launch.c */
uint64_t device_timeout_ns(void); /* the longest that one kernel, or the load of one module, may take */
/* module.c */
struct ptx_memory memory_of(struct CUctx_st *context); /* the context's memory, as the interpreter wants it */
void module_drop_all(struct CUctx_st *context);
bool module_owns_address(const struct CUmod_st *module, CUdeviceptr address); /* the start of its variables */
/* memory.c */
void host_memory_drop_all(struct CUctx_st *context);
/* The block around [address, address + bytes), on the device or mapped, which belongs to the context. */
bool memory_find(struct CUctx_st *context, uint64_t address, size_t bytes, bool write, struct arena_range *range);

#endif
