/* Runs blocks of a compiled kernel, and answers what its code asks. */
#include "device/compile/run.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/meter.h"

enum { FUEL = 4096 }; /* backward branches between looks at the clock */
enum { LINE = 64 };   /* bytes of a cache line */

struct worker {                /* one thread's part of a launch */
    struct compiled_call call; /* first: the compiled code gives its address back */
    struct job *job;
    struct warp warp;
    char *states, *locals;
};

uint64_t run_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void stop(struct job *job, int fault)
{
    int none = 0;
    atomic_compare_exchange_strong(&job->fault, &none, fault);
}

static int find(struct compiled_call *c, uint32_t access, uint64_t address, uint32_t bytes, uint64_t footprint,
                int write)
{
    const struct worker *worker = c->host;
    const struct ptx_memory *memory = worker->job->launch->memory;
    uint64_t from, to;
    if (address >> WINDOW_SHIFT || !memory->find(memory->who, address, bytes, write != 0, &from, &to))
        return 0;
    uint64_t room = to - from - bytes;
    c->ranges[access] = (struct compiled_range){from, room + 1, room >= footprint ? room - footprint + 1 : 0};
    return 1;
}

static int tick(struct compiled_call *c)
{
    const struct worker *worker = c->host;
    c->fuel = FUEL;
    if (atomic_load_explicit(&worker->job->fault, memory_order_relaxed)) {
        c->fault = atomic_load(&worker->job->fault);
        return 1;
    }
    if (run_now_ns() <= worker->job->deadline_ns)
        return 0;
    c->fault = CUDA_ERROR_LAUNCH_TIMEOUT;
    return 1;
}

static void step_on(struct compiled_call *c, uint32_t insn, uint32_t active)
{
    struct worker *worker = c->host;
    const struct insn *in = &worker->job->kernel->code->insns[insn];
    in->run(&worker->warp, in, active);
}

/* Gangs follow the axis that their threads lie on, then the other two. */
static void place_gangs(struct worker *worker)
{
    const struct compiled *compiled = worker->job->compiled;
    const uint32_t *block = worker->job->launch->block;
    size_t local_bytes = (size_t)worker->job->kernel->local_bytes * COMPILED_WIDTH;
    uint32_t axis = compiled->axis, other = axis == 0 ? 1 : 0, last = axis == 2 ? 1 : 2;
    uint32_t row = (block[axis] + COMPILED_WIDTH - 1) / COMPILED_WIDTH;
    for (uint32_t i = 0; i < worker->call.gang_count; i++) {
        struct compiled_gang *gang = &worker->call.gangs[i];
        uint32_t *tid = gang->tid;
        tid[axis] = i % row * COMPILED_WIDTH;
        tid[other] = i / row % block[other];
        tid[last] = i / row / block[other];
        uint32_t left = block[axis] - tid[axis];
        gang->live = left >= COMPILED_WIDTH ? 255 : (1u << left) - 1;
        gang->state = worker->states + i * (size_t)compiled->state_bytes;
        gang->local = worker->locals + i * local_bytes;
    }
}

/* Zeroes at the begin of a cache line: a vector that lies in two of them costs twice. */
static void *lines(size_t bytes)
{
    size_t whole = (bytes / LINE + 1) * LINE;
    void *memory = bytes < SIZE_MAX - LINE ? aligned_alloc(LINE, whole) : NULL;
    return memory ? memset(memory, 0, whole) : NULL;
}

static uint32_t gangs_of(const struct job *job)
{
    const uint32_t *block = job->launch->block;
    uint32_t axis = job->compiled->axis, threads = block[0] * block[1] * block[2];
    return threads / block[axis] * ((block[axis] + COMPILED_WIDTH - 1) / COMPILED_WIDTH);
}

/* What one thread's part takes. */
static uint64_t worker_bytes(const struct job *job)
{
    const struct compiled *compiled = job->compiled;
    uint64_t gang =
        compiled->state_bytes + (uint64_t)job->kernel->local_bytes * COMPILED_WIDTH + sizeof(struct compiled_gang);
    return sizeof(struct worker) + gangs_of(job) * gang + job->kernel->code->register_bytes + compiled->shared_bytes +
           (compiled->range_count + 1) * sizeof(struct compiled_range) + 4 * LINE;
}

bool run_reserve(struct job *job)
{
    atomic_store(&job->reserved, meter_take(worker_bytes(job)));
    return atomic_load(&job->reserved);
}

static bool open_worker(struct worker *worker, struct job *job)
{
    const struct ptx_kernel *kernel = job->kernel;
    worker->job = job;
    uint32_t gang_count = gangs_of(job);
    worker->states = lines(gang_count * (size_t)job->compiled->state_bytes);
    worker->locals = lines(gang_count * (size_t)kernel->local_bytes * COMPILED_WIDTH);
    worker->warp.registers = calloc(1, kernel->code->register_bytes + 64);
    worker->call = (struct compiled_call){
        .parameters = job->launch->parameters,
        .shared = lines(job->compiled->shared_bytes),
        .gangs = calloc(gang_count, sizeof(struct compiled_gang)),
        .gang_count = gang_count,
        .ranges = calloc(job->compiled->range_count + 1, sizeof(struct compiled_range)),
        .registers = worker->warp.registers,
        .fuel = FUEL,
        .host = worker,
        .find = find,
        .tick = tick,
        .step = step_on,
    };
    memcpy(worker->call.nctaid, job->launch->grid, sizeof worker->call.nctaid);
    if (worker->call.gangs)
        place_gangs(worker);
    return worker->call.gangs && worker->states && worker->locals && worker->warp.registers && worker->call.shared &&
           worker->call.ranges;
}

static void close_worker(struct worker *worker)
{
    free(worker->call.gangs);
    free(worker->states);
    free(worker->locals);
    free(worker->warp.registers);
    free(worker->call.shared);
    free(worker->call.ranges);
}

static void run_metered(struct job *job)
{
    const uint32_t *grid = job->launch->grid;
    struct worker *worker = calloc(1, sizeof *worker);
    uint64_t done = 0, at;
    if (!worker || !open_worker(worker, job))
        stop(job, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    else
        while (!atomic_load_explicit(&job->fault, memory_order_relaxed) &&
               (at = atomic_fetch_add(&job->next, 1)) < job->block_count) {
            worker->call.ctaid[0] = (uint32_t)(at % grid[0]);
            worker->call.ctaid[1] = (uint32_t)(at / grid[0] % grid[1]);
            worker->call.ctaid[2] = (uint32_t)(at / grid[0] / grid[1]);
            if (job->compiled->run(&worker->call)) {
                stop(job, worker->call.fault);
                break;
            }
            if ((++done & 255) == 0 && run_now_ns() > job->deadline_ns)
                stop(job, CUDA_ERROR_LAUNCH_TIMEOUT);
        }
    if (worker)
        close_worker(worker);
    free(worker);
}

/* The first to come has the memory that was reserved; the others help if there is memory for them too. */
void run_blocks(struct job *job)
{
    if (!atomic_exchange(&job->reserved, false) && !meter_take(worker_bytes(job)))
        return;
    run_metered(job);
    meter_give_back(worker_bytes(job));
}
