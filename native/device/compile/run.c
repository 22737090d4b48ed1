/* Runs blocks of a compiled kernel: gangs of a block in turn, from barrier to barrier. */
#include "device/compile/run.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FUEL = 4096 }; /* backward branches between looks at the clock */

struct worker {                /* one thread's part of a launch */
    struct compiled_call call; /* first: the compiled code gives its address back */
    struct job *job;
    struct warp warp;
    uint32_t gang_count;
    struct {
        uint32_t tid[3], live;
    } * gangs;         /* where each begins */
    uint32_t *entries; /* of gangs: where each goes on; ENDED */
    char *states, *local;
};
enum { ENDED = 0xffffffffu };

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
    const uint32_t *block = worker->job->launch->block;
    uint32_t axis = worker->job->compiled->axis, other = axis == 0 ? 1 : 0, last = axis == 2 ? 1 : 2;
    uint32_t row = (block[axis] + COMPILED_WIDTH - 1) / COMPILED_WIDTH;
    for (uint32_t i = 0; i < worker->gang_count; i++) {
        uint32_t *tid = worker->gangs[i].tid;
        tid[axis] = i % row * COMPILED_WIDTH;
        tid[other] = i / row % block[other];
        tid[last] = i / row / block[other];
        uint32_t left = block[axis] - tid[axis];
        worker->gangs[i].live = left >= COMPILED_WIDTH ? 255 : (1u << left) - 1;
    }
}

/* False: a fault. */
static bool run_gang(struct worker *worker, uint32_t at)
{
    struct compiled_call *c = &worker->call;
    const struct compiled *compiled = worker->job->compiled;
    memcpy(c->tid, worker->gangs[at].tid, sizeof c->tid);
    c->live = worker->gangs[at].live;
    c->entry = worker->entries[at];
    c->state = worker->states + (size_t)at * compiled->state_bytes;
    c->local = worker->local + (size_t)at * COMPILED_WIDTH * worker->job->kernel->local_bytes;
    int result = compiled->gang(c);
    worker->entries[at] = result == GANG_AT_BARRIER ? c->entry : ENDED;
    if (result == GANG_FAILED)
        stop(worker->job, c->fault);
    return result != GANG_FAILED;
}

static bool run_block(struct worker *worker)
{
    memset(worker->entries, 0, worker->gang_count * sizeof *worker->entries);
    for (bool waits = true; waits;) {
        waits = false;
        for (uint32_t i = 0; i < worker->gang_count; i++) {
            if (worker->entries[i] == ENDED)
                continue;
            if (!run_gang(worker, i))
                return false;
            waits = waits || worker->entries[i] != ENDED;
        }
    }
    return true;
}

static bool open_worker(struct worker *worker, struct job *job)
{
    const struct ptx_kernel *kernel = job->kernel;
    const uint32_t *block = job->launch->block;
    uint32_t axis = job->compiled->axis, threads = block[0] * block[1] * block[2];
    uint32_t row = (block[axis] + COMPILED_WIDTH - 1) / COMPILED_WIDTH;
    worker->job = job;
    worker->gang_count = threads / block[axis] * row;
    worker->gangs = calloc(worker->gang_count, sizeof *worker->gangs);
    worker->entries = calloc(worker->gang_count, sizeof *worker->entries);
    worker->states = calloc(worker->gang_count, job->compiled->state_bytes + 1);
    worker->local = calloc(worker->gang_count, (size_t)kernel->local_bytes * COMPILED_WIDTH + 1);
    worker->warp.registers = calloc(1, kernel->code->register_bytes + 64);
    worker->call = (struct compiled_call){
        .parameters = job->launch->parameters,
        .shared = calloc(1, job->compiled->shared_bytes + 64),
        .ranges = calloc(job->compiled->range_count + 1, sizeof(struct compiled_range)),
        .registers = worker->warp.registers,
        .fuel = FUEL,
        .host = worker,
        .find = find,
        .tick = tick,
        .step = step_on,
    };
    memcpy(worker->call.nctaid, job->launch->grid, sizeof worker->call.nctaid);
    if (worker->gangs)
        place_gangs(worker);
    return worker->gangs && worker->entries && worker->states && worker->local && worker->warp.registers &&
           worker->call.shared && worker->call.ranges;
}

static void close_worker(struct worker *worker)
{
    free(worker->gangs);
    free(worker->entries);
    free(worker->states);
    free(worker->local);
    free(worker->warp.registers);
    free(worker->call.shared);
    free(worker->call.ranges);
}

void run_blocks(struct job *job)
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
            if (!run_block(worker))
                break;
            if ((++done & 255) == 0 && run_now_ns() > job->deadline_ns)
                stop(job, CUDA_ERROR_LAUNCH_TIMEOUT);
        }
    if (worker)
        close_worker(worker);
    free(worker);
}
