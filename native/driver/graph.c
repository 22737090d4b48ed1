/* Graphs and their nodes: built in the program's own memory, whatever will run them. */
#include "driver/graph.h"

#include <stdlib.h>

enum { GRAPHS_MOST = 1 << 14, NODE_BITS = 24, GRAPH_BITS = 40 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct graph **graphs; /* by slot */
static uint32_t slots;
static uint64_t uses; /* graphs that ever were: part of each handle */

void graphs_lock(void)
{
    pthread_mutex_lock(&lock);
}

void graphs_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

static uint64_t graph_part(uint64_t handle)
{
    return handle >> NODE_BITS << NODE_BITS;
}

static uint32_t slot_of(uint64_t id)
{
    return (uint32_t)(id >> NODE_BITS) & ((1u << (GRAPH_BITS - NODE_BITS)) - 1);
}

static struct graph *find(uint64_t id)
{
    uint32_t slot = slot_of(id);
    return slot < slots && graphs[slot] != NULL && graphs[slot]->id == id ? graphs[slot] : NULL;
}

struct graph *graph_find(CUgraph handle)
{
    return find((uint64_t)(uintptr_t)handle);
}

static CUgraphNode node_handle(const struct graph *graph, uint32_t index)
{
    return (CUgraphNode)(uintptr_t)(graph->id + index + 1);
}

struct graph *graph_of(CUgraphNode handle, uint32_t *index)
{
    uint64_t id = (uint64_t)(uintptr_t)handle;
    struct graph *graph = find(graph_part(id));
    uint64_t number = id - graph_part(id);
    if (graph == NULL || number == 0 || number > graph->count)
        return NULL;
    *index = (uint32_t)number - 1;
    return graph;
}

static void free_graph(struct graph *graph)
{
    for (uint32_t at = 0; at < graph->count; at++) {
        free(graph->nodes[at].block);
        free(graph->nodes[at].after);
    }
    free(graph->nodes);
    free(graph);
}

void graphs_reset(void)
{
    pthread_mutex_init(&lock, NULL);
    for (uint32_t at = 0; at < slots; at++) {
        if (graphs[at] != NULL)
            free_graph(graphs[at]);
        graphs[at] = NULL;
    }
    execs_reset();
}

/* A free slot, or GRAPHS_MOST. */
static uint32_t free_slot(void)
{
    for (uint32_t at = 0; at < slots; at++)
        if (graphs[at] == NULL)
            return at;
    uint32_t first = slots, more = slots == 0 ? 16 : slots * 2;
    struct graph **grown = slots < GRAPHS_MOST ? realloc(graphs, more * sizeof *graphs) : NULL;
    if (grown == NULL)
        return GRAPHS_MOST;
    memset(grown + slots, 0, (more - slots) * sizeof *grown);
    graphs = grown;
    slots = more;
    return first;
}

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
    int count;
    CUresult result = cuDeviceGetCount(&count); /* whether there is a device at all */
    if (result != CUDA_SUCCESS)
        return result;
    if (graph == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct graph *made = calloc(1, sizeof *made);
    graphs_lock();
    uint32_t slot = made != NULL ? free_slot() : GRAPHS_MOST;
    if (slot < GRAPHS_MOST) {
        made->id = ++uses << GRAPH_BITS | (uint64_t)slot << NODE_BITS;
        graphs[slot] = made;
        *graph = (CUgraph)(uintptr_t)made->id;
    } else {
        free(made);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    graphs_unlock();
    return result;
}

CUresult cuGraphDestroy(CUgraph handle)
{
    graphs_lock();
    struct graph *graph = graph_find(handle);
    if (graph != NULL) {
        graphs[slot_of(graph->id)] = NULL;
        free_graph(graph);
    }
    graphs_unlock();
    return graph != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The positions of these nodes, which are all of this graph and all different. */
static CUresult read_after(const struct graph *graph, const CUgraphNode *after, size_t count, uint32_t **positions)
{
    *positions = NULL;
    if (count == 0)
        return CUDA_SUCCESS;
    if (after == NULL || count > graph->count)
        return CUDA_ERROR_INVALID_VALUE;
    uint32_t *found = malloc(count * sizeof *found);
    uint8_t *seen = calloc(graph->count, 1);
    CUresult result = found != NULL && seen != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t at = 0; at < count && result == CUDA_SUCCESS; at++) {
        uint32_t index = 0;
        if (graph_of(after[at], &index) != graph || seen[index]++ != 0)
            result = CUDA_ERROR_INVALID_VALUE;
        found[at] = index;
    }
    free(seen);
    if (result != CUDA_SUCCESS)
        free(found);
    else
        *positions = found;
    return result;
}

static bool has_room(struct graph *graph)
{
    if (graph->count < graph->capacity)
        return true;
    uint32_t capacity = graph->capacity == 0 ? 16 : graph->capacity * 2;
    struct graph_node *grown = graph->count < GRAPH_STEPS_MOST ? realloc(graph->nodes, capacity * sizeof *grown) : NULL;
    if (grown == NULL)
        return false;
    graph->nodes = grown;
    graph->capacity = capacity;
    return true;
}

CUresult graph_add(CUgraphNode *handle, CUgraph graph_handle, const CUgraphNode *after, size_t after_count,
                   struct graph_node node)
{
    CUresult result = handle != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    graphs_lock();
    struct graph *graph = graph_find(graph_handle);
    if (graph == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = read_after(graph, after, after_count, &node.after);
    if (result == CUDA_SUCCESS && !has_room(graph))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        node.after_count = (uint32_t)after_count;
        graph->nodes[graph->count] = node;
        *handle = node_handle(graph, graph->count++);
    } else {
        free(node.block);
        free(node.after);
    }
    graphs_unlock();
    return result;
}

static CUresult add_kernel(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t after_count,
                           const CUDA_KERNEL_NODE_PARAMS_v1 *launch, CUkernel kernel, CUcontext context)
{
    struct graph_node made = {.context = context};
    CUresult result = context == NULL ? cuCtxGetCurrent(&made.context) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = step_of_kernel(launch, kernel, &made.step, &made.block);
    return result == CUDA_SUCCESS ? graph_add(node, graph, after, after_count, made) : result;
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t after_count,
                              const CUDA_KERNEL_NODE_PARAMS_v1 *kernel)
{
    return add_kernel(node, graph, after, after_count, kernel, NULL, NULL);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t after_count,
                                 const CUDA_KERNEL_NODE_PARAMS_v2 *kernel)
{
    if (kernel == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return add_kernel(node, graph, after, after_count, &kernel->launch, kernel->kern, kernel->ctx);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t after_count,
                              const CUDA_MEMCPY3D *copy, CUcontext context)
{
    struct graph_node made = {.context = context};
    CUresult result = step_of_copy(copy, &made.step);
    return result == CUDA_SUCCESS ? graph_add(node, graph, after, after_count, made) : result;
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t after_count,
                              const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext context)
{
    struct graph_node made = {.context = context};
    CUresult result = step_of_fill(fill, &made.step);
    return result == CUDA_SUCCESS ? graph_add(node, graph, after, after_count, made) : result;
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t after_count)
{
    return graph_add(node, graph, after, after_count, (struct graph_node){.step = {.kind = STEP_EMPTY}});
}

/* A circle is found when the graph is instantiated. */
CUresult cuGraphAddDependencies(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    CUresult result = CUDA_SUCCESS;
    if (count != 0 && (from == NULL || to == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    graphs_lock();
    struct graph *graph = graph_find(handle);
    if (graph == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    for (size_t at = 0; at < count && result == CUDA_SUCCESS; at++) {
        uint32_t before = 0, behind = 0;
        if (graph_of(from[at], &before) != graph || graph_of(to[at], &behind) != graph || before == behind) {
            result = CUDA_ERROR_INVALID_VALUE;
            break;
        }
        struct graph_node *node = &graph->nodes[behind];
        uint32_t *grown = realloc(node->after, (node->after_count + 1) * sizeof *grown);
        if (grown == NULL) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
            break;
        }
        node->after = grown;
        node->after[node->after_count++] = before;
    }
    graphs_unlock();
    return result;
}

/* Without `nodes` their number alone; with it, at most *count, and what is left of the array is cleared. */
CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *count)
{
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    graphs_lock();
    const struct graph *graph = graph_find(handle);
    if (graph != NULL && nodes != NULL) {
        for (size_t at = 0; at < *count; at++)
            nodes[at] = at < graph->count ? node_handle(graph, (uint32_t)at) : NULL;
        if (*count > graph->count)
            *count = graph->count;
    } else if (graph != NULL) {
        *count = graph->count;
    }
    graphs_unlock();
    return graph != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type)
{
    uint32_t index = 0;
    if (type == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    graphs_lock();
    const struct graph *graph = graph_of(handle, &index);
    if (graph != NULL)
        *type = (CUgraphNodeType)step_type(&graph->nodes[index].step);
    graphs_unlock();
    return graph != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t after_count,
                            const CUDA_HOST_NODE_PARAMS_v1 *host)
{
    struct graph_node made = {0};
    CUresult result = step_of_host(host, &made.step);
    return result == CUDA_SUCCESS ? graph_add(node, graph, after, after_count, made) : result;
}

bool graph_has(CUgraph handle, const CUgraphNode *nodes, size_t count)
{
    graphs_lock();
    const struct graph *graph = graph_find(handle);
    bool has = graph != NULL;
    for (size_t at = 0; at < count && has; at++) {
        uint32_t index = 0;
        has = graph_of(nodes[at], &index) == graph;
    }
    graphs_unlock();
    return has;
}

/* Marks these nodes and all that they come behind. */
static bool mark_before(const struct graph *graph, const CUgraphNode *nodes, size_t count, uint8_t *marks)
{
    uint32_t *left = malloc(((size_t)graph->count + 1) * sizeof *left);
    uint32_t left_count = 0, index = 0;
    if (left == NULL)
        return false;
    for (size_t at = 0; at < count; at++)
        if (graph_of(nodes[at], &index) == graph && marks[index]++ == 0)
            left[left_count++] = index;
    while (left_count != 0) {
        const struct graph_node *node = &graph->nodes[left[--left_count]];
        for (uint32_t edge = 0; edge < node->after_count; edge++)
            if (marks[node->after[edge]] == 0) {
                marks[node->after[edge]] = 1;
                left[left_count++] = node->after[edge];
            }
    }
    free(left);
    return true;
}

bool graph_comes_before(CUgraph handle, const CUgraphNode *nodes, size_t count, const CUgraphNode *ends,
                        size_t end_count)
{
    graphs_lock();
    const struct graph *graph = graph_find(handle);
    uint8_t *marks = graph != NULL ? calloc((size_t)graph->count + 1, 1) : NULL;
    bool before = marks != NULL && mark_before(graph, ends, end_count, marks);
    for (size_t at = 0; at < count && before; at++) {
        uint32_t index = 0;
        before = graph_of(nodes[at], &index) == graph && marks[index] != 0;
    }
    graphs_unlock();
    free(marks);
    return before;
}
