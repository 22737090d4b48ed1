/* Instantiated graphs: their steps in an order that honours the dependencies, changed in place, launched again and again. */
#include <stdlib.h>

#include "driver/front.h"
#include "driver/graph.h"

enum { EXECS_MOST = 1 << 14, EXEC_TAG = 0xffffff, SLOT_SHIFT = 24, SLOT_BITS = 16, USE_SHIFT = 40 };

static struct graph_exec **execs; /* by slot; guarded by the graphs' lock */
static uint32_t slots;
static uint64_t uses;

static void free_exec(struct graph_exec *exec)
{
    for (uint32_t at = 0; exec->steps != NULL && at < exec->count; at++)
        free(exec->steps[at].block);
    pthread_mutex_destroy(&exec->lock);
    free(exec->steps);
    free(exec->place);
    free(exec);
}

/* Another thread of the parent may have been inside one, so they are left behind. */
void execs_reset(void)
{
    for (uint32_t at = 0; at < slots; at++)
        execs[at] = NULL;
}

static uint32_t slot_of(uint64_t id)
{
    return (uint32_t)(id >> SLOT_SHIFT) & ((1u << SLOT_BITS) - 1);
}

/* Finds it, keeps it alive and locks it; let_go undoes that. */
static struct graph_exec *hold(CUgraphExec handle)
{
    uint64_t id = (uint64_t)(uintptr_t)handle;
    uint32_t slot = slot_of(id);
    graphs_lock();
    struct graph_exec *exec = slot < slots && execs[slot] != NULL && execs[slot]->id == id ? execs[slot] : NULL;
    if (exec != NULL)
        exec->users++;
    graphs_unlock();
    if (exec != NULL)
        pthread_mutex_lock(&exec->lock);
    return exec;
}

static void let_go(struct graph_exec *exec)
{
    pthread_mutex_unlock(&exec->lock);
    graphs_lock();
    bool last = --exec->users == 0 && exec->dead;
    graphs_unlock();
    if (last) {
        graph_ended(exec);
        free_exec(exec);
    }
}

static bool keep(struct graph_exec *exec)
{
    uint32_t slot = 0;
    graphs_lock();
    while (slot < slots && execs[slot] != NULL)
        slot++;
    if (slot == slots) {
        uint32_t more = slots == 0 ? 16 : slots * 2;
        struct graph_exec **grown = slots < EXECS_MOST ? realloc(execs, more * sizeof *grown) : NULL;
        if (grown == NULL) {
            graphs_unlock();
            return false;
        }
        memset(grown + slots, 0, (more - slots) * sizeof *grown);
        execs = grown;
        slots = more;
    }
    exec->id = ++uses << USE_SHIFT | (uint64_t)slot << SLOT_SHIFT | EXEC_TAG;
    execs[slot] = exec;
    graphs_unlock();
    return true;
}

/* Sorts so that each node comes behind those that it waits for, otherwise as they were added; false for a circle.
 * `waits` has the number of dependencies that have not run, `next` the nodes behind each node as one array. */
static bool sort(const struct graph *graph, uint32_t *order, uint32_t *waits, uint32_t *first, uint32_t *next)
{
    uint32_t ready = 0;
    for (uint32_t at = 0; at < graph->count; at++)
        for (uint32_t edge = 0; edge < graph->nodes[at].after_count; edge++)
            first[graph->nodes[at].after[edge] + 1]++;
    for (uint32_t at = 0; at < graph->count; at++)
        first[at + 1] += first[at];
    for (uint32_t at = 0; at < graph->count; at++) {
        waits[at] = graph->nodes[at].after_count;
        for (uint32_t edge = 0; edge < waits[at]; edge++)
            next[first[graph->nodes[at].after[edge]]++] = at;
        if (waits[at] == 0)
            order[ready++] = at;
    }
    /* Filling moved each begin to its end, so the successors of a node end where its `first` is now. */
    for (uint32_t done = 0; done < ready; done++) {
        uint32_t node = order[done];
        for (uint32_t edge = node == 0 ? 0 : first[node - 1]; edge < first[node]; edge++)
            if (--waits[next[edge]] == 0)
                order[ready++] = next[edge];
    }
    return ready == graph->count;
}

static CUresult order_of(const struct graph *graph, uint32_t *order)
{
    size_t edges = 0;
    for (uint32_t at = 0; at < graph->count; at++)
        edges += graph->nodes[at].after_count;
    uint32_t *waits = calloc(graph->count + 1, sizeof *waits);
    uint32_t *first = calloc((size_t)graph->count + 1, sizeof *first);
    uint32_t *next = calloc(edges + 1, sizeof *next);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (waits != NULL && first != NULL && next != NULL)
        result = sort(graph, order, waits, first, next) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    free(waits);
    free(first);
    free(next);
    return result;
}

static uint8_t *copy_block(const struct graph_step *step, const uint8_t *block)
{
    size_t bytes = (size_t)step_block_bytes(step);
    uint8_t *copy = malloc(bytes + 1);
    if (copy != NULL && bytes != 0)
        memcpy(copy, block, bytes);
    return copy;
}

static CUresult copy_step(const struct graph_node *node, CUcontext context, struct exec_step *to)
{
    if (node->context != NULL && node->context != context)
        return CUDA_ERROR_NOT_SUPPORTED; /* one graph in several contexts */
    to->step = node->step;
    if (node->block != NULL) {
        to->block = copy_block(&node->step, node->block);
        if (to->block == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

/* The graph's steps in order, in memory of their own; the graph may change or end afterwards. */
static CUresult copy_graph(const struct graph *graph, struct graph_exec *exec)
{
    exec->graph_id = graph->id;
    exec->steps = calloc((size_t)graph->count + 1, sizeof *exec->steps);
    exec->place = calloc((size_t)graph->count + 1, sizeof *exec->place);
    uint32_t *order = calloc((size_t)graph->count + 1, sizeof *order);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (exec->steps != NULL && exec->place != NULL && order != NULL)
        result = order_of(graph, order);
    for (uint32_t at = 0; at < graph->count && result == CUDA_SUCCESS; at++) {
        exec->count = at + 1;
        exec->place[order[at]] = at;
        exec->calls_host = exec->calls_host || graph->nodes[order[at]].step.kind == STEP_HOST;
        result = copy_step(&graph->nodes[order[at]], exec->context, &exec->steps[at]);
    }
    free(order);
    return result;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *handle, CUgraph graph_handle, unsigned long long flags)
{
    const unsigned long long harmless =
        CU_GRAPH_INSTANTIATE_AUTO_FREE_ON_LAUNCH | CU_GRAPH_INSTANTIATE_USE_NODE_PRIORITY;
    CUcontext context = NULL;
    if (handle == NULL || (flags & ~(harmless | CU_GRAPH_INSTANTIATE_UPLOAD | CU_GRAPH_INSTANTIATE_DEVICE_LAUNCH)))
        return CUDA_ERROR_INVALID_VALUE;
    if ((flags & ~harmless) != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = cuCtxGetCurrent(&context);
    if (result != CUDA_SUCCESS || context == NULL)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_CONTEXT;
    unsigned long long context_id = 0;
    result = cuCtxGetId(context, &context_id);
    if (result != CUDA_SUCCESS)
        return result;
    struct graph_exec *exec = calloc(1, sizeof *exec);
    if (exec == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_init(&exec->lock, NULL);
    exec->context = context;
    exec->context_id = context_id;
    graphs_lock();
    const struct graph *graph = graph_find(graph_handle);
    result = graph != NULL ? copy_graph(graph, exec) : CUDA_ERROR_INVALID_VALUE;
    graphs_unlock();
    for (uint32_t at = 0; at < exec->count && result == CUDA_SUCCESS; at++)
        result = graph_check(&exec->steps[at].step);
    if (result == CUDA_SUCCESS)
        result = graph_made(exec);
    if (result == CUDA_SUCCESS && !keep(exec)) {
        graph_ended(exec);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS)
        *handle = (CUgraphExec)(uintptr_t)exec->id;
    else
        free_exec(exec);
    return result;
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_bytes)
{
    if (error_node != NULL)
        *error_node = NULL;
    if (log != NULL && log_bytes != 0)
        log[0] = 0;
    return cuGraphInstantiateWithFlags(exec, graph, 0);
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_bytes)
{
    return cuGraphInstantiate_v2(exec, graph, error_node, log, log_bytes);
}

/* Whether the thread's current context is the one that the graph was made for. */
static CUresult in_context(const struct graph_exec *exec)
{
    unsigned long long current;
    CUresult result = cuCtxGetId(NULL, &current);
    if (result != CUDA_SUCCESS)
        return result;
    return current == exec->context_id ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/* Where the node's step lies: the node must be of the graph that was instantiated, and of this kind. */
static CUresult find_step(const struct graph_exec *exec, CUgraphNode node, uint32_t kind, uint32_t *place)
{
    uint32_t index = 0;
    graphs_lock();
    const struct graph *graph = graph_of(node, &index);
    bool same = graph != NULL && graph->id == exec->graph_id && index < exec->count;
    graphs_unlock();
    if (!same)
        return CUDA_ERROR_INVALID_VALUE;
    *place = exec->place[index];
    return exec->steps[*place].step.kind == kind ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A changed kernel node keeps its attributes: its parameters do not name any. */
static CUresult keep_attributes(const struct exec_step *old, struct graph_step *step, uint8_t **block)
{
    if (step->kind != STEP_KERNEL || old->step.kernel.attribute_count == 0 ||
        step->parameter_bytes != old->step.parameter_bytes)
        return CUDA_SUCCESS;
    uint8_t *grown = realloc(*block, (size_t)step_block_bytes(&old->step) + 1);
    if (grown == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint32_t at = step_attributes_at(step);
    step->kernel.attribute_count = old->step.kernel.attribute_count;
    memcpy(grown + at, old->block + at, step->kernel.attribute_count * sizeof(struct launch_attribute));
    *block = grown;
    return CUDA_SUCCESS;
}

/* Replaces a step if it differs; takes the block over. */
static CUresult change(struct graph_exec *exec, CUgraphNode node, const struct graph_step *given, uint8_t *block)
{
    struct graph_step copy = *given, *step = &copy;
    uint32_t place = 0;
    CUresult result = in_context(exec);
    if (result == CUDA_SUCCESS)
        result = find_step(exec, node, step->kind, &place);
    if (result == CUDA_SUCCESS)
        result = keep_attributes(&exec->steps[place], step, &block);
    if (result == CUDA_SUCCESS && step_block_bytes(step) != step_block_bytes(&exec->steps[place].step))
        result = CUDA_ERROR_NOT_SUPPORTED; /* a kernel with other parameters */
    if (result == CUDA_SUCCESS)
        result = graph_check(step);
    if (result != CUDA_SUCCESS) {
        free(block);
        return result;
    }
    struct exec_step *old = &exec->steps[place];
    if (memcmp(&old->step, step, sizeof *step) == 0 &&
        (step_block_bytes(step) == 0 || memcmp(old->block, block, step_block_bytes(step)) == 0)) {
        free(block);
        return CUDA_SUCCESS;
    }
    free(old->block);
    *old = (struct exec_step){*step, block};
    return graph_changed(exec, place);
}

static CUresult set(CUgraphExec handle, CUgraphNode node, const struct graph_step *step, uint8_t *block)
{
    /* A launch that waits for functions of the program has the steps of its own moment. */
    CUresult result = front_is_quiet() ? CUDA_SUCCESS : host_wait_all(NULL);
    struct graph_exec *exec = result == CUDA_SUCCESS ? hold(handle) : NULL;
    if (exec == NULL) {
        free(block);
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    result = change(exec, node, step, block);
    let_go(exec);
    return result;
}

static CUresult set_kernel(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *launch,
                           CUkernel kernel)
{
    struct graph_step step;
    uint8_t *block = NULL;
    CUresult result = step_of_kernel(launch, kernel, &step, &block);
    return result == CUDA_SUCCESS ? set(exec, node, &step, block) : result;
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *kernel)
{
    return set_kernel(exec, node, kernel, NULL);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2 *kernel)
{
    return kernel != NULL ? set_kernel(exec, node, &kernel->launch, kernel->kern) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy,
                                        CUcontext context)
{
    struct graph_step step;
    (void)context; /* the graph's own */
    CUresult result = step_of_copy(copy, &step);
    return result == CUDA_SUCCESS ? set(exec, node, &step, NULL) : result;
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *fill,
                                        CUcontext context)
{
    struct graph_step step;
    (void)context;
    CUresult result = step_of_fill(fill, &step);
    return result == CUDA_SUCCESS ? set(exec, node, &step, NULL) : result;
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS_v1 *host)
{
    struct graph_step step;
    CUresult result = step_of_host(host, &step);
    return result == CUDA_SUCCESS ? set(exec, node, &step, NULL) : result;
}

CUresult cuGraphUpload(CUgraphExec handle, CUstream stream)
{
    (void)stream;
    struct graph_exec *exec = hold(handle);
    if (exec == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = in_context(exec);
    let_go(exec);
    return result;
}

CUresult graph_run_here(const struct graph_step *step, CUstream stream)
{
    if (step->kind == STEP_COPY_IN)
        return cuMemcpyHtoDAsync_v2(step->copy.to, (const void *)(uintptr_t)step->copy.from, step->copy.bytes, stream);
    if (step->kind == STEP_COPY_OUT)
        return cuMemcpyDtoHAsync_v2((void *)(uintptr_t)step->copy.to, step->copy.from, step->copy.bytes, stream);
    CUresult result = cuStreamSynchronize(stream);
    if (result == CUDA_SUCCESS)
        ((CUhostFn)(uintptr_t)step->host.function)((void *)(uintptr_t)step->host.data);
    return result;
}

/* A graph with functions of the program runs on the thread that calls them, under the lock of that graph alone. */
struct run_later {
    struct host_task task; /* first */
    struct graph_exec *exec;
};

static CUresult run_later(struct host_task *task, CUresult before)
{
    struct graph_exec *exec = ((struct run_later *)task)->exec;
    pthread_mutex_lock(&exec->lock);
    CUresult result = before == CUDA_SUCCESS ? graph_run(exec, task->stream) : CUDA_SUCCESS;
    let_go(exec);
    return result;
}

static CUresult launch_later(struct graph_exec *exec, CUstream stream)
{
    struct run_later *later = malloc(sizeof *later);
    if (later == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *later = (struct run_later){.task = {.stream = stream, .run = run_later}, .exec = exec};
    graphs_lock();
    exec->users++;
    graphs_unlock();
    CUresult result = host_enqueue(&later->task);
    if (result != CUDA_SUCCESS) {
        free(later);
        graphs_lock();
        exec->users--; /* the caller is one, too: never the last */
        graphs_unlock();
    }
    return result;
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream)
{
    struct graph_exec *exec = hold(handle);
    if (exec == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = in_context(exec);
    if (result == CUDA_SUCCESS)
        result = exec->calls_host ? launch_later(exec, stream) : graph_run(exec, stream);
    let_go(exec);
    return result;
}

CUresult graph_exec_each(CUgraphExec handle, CUresult (*add)(CUstream, const struct graph_step *, uint8_t *),
                         CUstream stream)
{
    struct graph_exec *exec = hold(handle);
    if (exec == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = in_context(exec);
    for (uint32_t at = 0; at < exec->count && result == CUDA_SUCCESS; at++) {
        const struct exec_step *one = &exec->steps[at];
        uint8_t *block = one->block != NULL ? copy_block(&one->step, one->block) : NULL;
        result = one->block != NULL && block == NULL ? CUDA_ERROR_OUT_OF_MEMORY : add(stream, &one->step, block);
    }
    let_go(exec);
    return result;
}

CUresult cuGraphExecDestroy(CUgraphExec handle)
{
    struct graph_exec *exec = hold(handle);
    if (exec == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    graphs_lock();
    bool first = !exec->dead;
    exec->dead = true;
    if (first)
        execs[slot_of(exec->id)] = NULL;
    graphs_unlock();
    let_go(exec); /* a launch that waits for functions of the program still uses it */
    return first ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
