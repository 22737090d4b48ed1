/* Graphs of a tenant: kept as a checked list, replayed against the backend as ordinary launches, copies and fills.
 *
 * Not as a graph of the backend: a list is checked again at every replay (a module may have been unloaded and memory freed
 * since), each of its kernels counts for the launch quota, a tenant that dies ends the replay between two steps, and it
 * works on any backend. The price is one backend call for each step, and that branches do not overlap.
 */
#include <stdlib.h>
#include <string.h>

#include "calls/graph_step.h"
#include "proxy/clock.h"
#include "proxy/serve.h"

CUresult serve_cuGraphInstantiateWithFlags(struct request *request);
CUresult serve_cuGraphExecKernelNodeSetParams_v2(struct request *request);
CUresult serve_cuGraphExecMemcpyNodeSetParams(struct request *request);
CUresult serve_cuGraphExecMemsetNodeSetParams(struct request *request);
CUresult serve_cuGraphLaunch(struct request *request);
CUresult serve_cuGraphExecDestroy(struct request *request);

struct graph_facts {
    uint64_t charged_bytes;
    uint64_t list_bytes;
    uint32_t count;
    uint32_t *offsets; /* of each step in the list; behind it in the same block */
    uint8_t list[];
};

/* The kernel of a step, if it is the tenant's, of the current context, and takes this many bytes. */
static const struct handle *kernel_of(struct tenant *tenant, const struct graph_step *step)
{
    const struct handle *function = handles_find(&tenant->handles, HANDLE_FUNCTION, step->kernel.function);
    const struct handle *module =
        function != NULL ? handles_find(&tenant->handles, HANDLE_MODULE, function->owner) : NULL;
    if (module == NULL || module->owner != tenant->current)
        return NULL;
    return ((const struct function_facts *)function->extra)->bytes == step->parameter_bytes ? function : NULL;
}

/* Everything that a step says is checked here, when it comes and whenever it runs. */
static CUresult check(struct tenant *tenant, const struct graph_step *step)
{
    uint64_t bytes;
    if (step->kind != STEP_KERNEL && step->parameter_bytes != 0)
        return CUDA_ERROR_INVALID_VALUE;
    switch (step->kind) {
    case STEP_KERNEL:
        return kernel_of(tenant, step) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    case STEP_COPY:
        return tenant_owns(tenant, step->copy.to, step->copy.bytes) &&
                       tenant_owns(tenant, step->copy.from, step->copy.bytes)
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_VALUE;
    case STEP_FILL:
        if (step->fill.width != 1 && step->fill.width != 2 && step->fill.width != 4)
            return CUDA_ERROR_INVALID_VALUE;
        return !__builtin_mul_overflow(step->fill.count, (uint64_t)step->fill.width, &bytes) &&
                       tenant_owns(tenant, step->fill.to, bytes)
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_VALUE;
    case STEP_EMPTY:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Takes the bulk bytes into private memory: the tenant can still change the others. */
static bool take_list(struct request *request, uint8_t *to, uint64_t bytes)
{
    struct wire *wire = request->tenant->wire;
    for (uint64_t done = 0; done < bytes;) {
        const void *at;
        size_t granted;
        if (wire->ops->bulk_peek(wire, (size_t)(bytes - done), &at, &granted) != WIRE_OK) {
            request->broken = true;
            return false;
        }
        memcpy(to + done, at, granted);
        done += granted;
        request->bulk_left -= granted;
        if (wire->ops->bulk_release(wire, granted) != WIRE_OK) {
            request->broken = true;
            return false;
        }
    }
    return true;
}

static bool too_many_attributes(const struct graph_step *step)
{
    return step->kind == STEP_KERNEL && step->kernel.attribute_count > LAUNCH_ATTRIBUTES_MOST;
}

/* Finds each step, which must fill the list exactly, and checks it. */
static CUresult read_list(struct tenant *tenant, struct graph_facts *facts)
{
    uint64_t at = 0;
    for (uint32_t index = 0; index < facts->count; index++) {
        struct graph_step step;
        if (facts->list_bytes - at < sizeof step)
            return CUDA_ERROR_INVALID_VALUE;
        memcpy(&step, facts->list + at, sizeof step);
        if (step.parameter_bytes > PARAMETER_INLINE_MOST || too_many_attributes(&step) ||
            step_stride(&step) > facts->list_bytes - at)
            return CUDA_ERROR_INVALID_VALUE;
        CUresult result = check(tenant, &step);
        if (result != CUDA_SUCCESS)
            return result;
        facts->offsets[index] = (uint32_t)at;
        at += step_stride(&step);
    }
    return at == facts->list_bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult serve_cuGraphInstantiateWithFlags(struct request *request)
{
    const struct cuGraphInstantiateWithFlags_in *in = request->in;
    struct cuGraphInstantiateWithFlags_out *out = request->out;
    struct tenant *tenant = request->tenant;
    if (in->list_bytes != request->bulk_left || in->list_bytes > GRAPH_LIST_MOST || in->list_bytes % 8 != 0 ||
        in->step_count > GRAPH_STEPS_MOST || (request->header->flags & WIRE_POSTED))
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t bytes = sizeof(struct graph_facts) + in->list_bytes + in->step_count * sizeof(uint32_t);
    if (!tenant_room(tenant, HANDLE_GRAPH) || !tenant_charge(tenant, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct graph_facts *facts = malloc(bytes);
    CUresult result = facts != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (facts != NULL) {
        *facts = (struct graph_facts){.charged_bytes = bytes, .list_bytes = in->list_bytes, .count = in->step_count};
        facts->offsets = (uint32_t *)(void *)(facts->list + in->list_bytes);
        result = take_list(request, facts->list, in->list_bytes) ? read_list(tenant, facts) : CUDA_ERROR_UNKNOWN;
    }
    if (result != CUDA_SUCCESS) {
        free(facts);
        tenant_discharge(tenant, bytes);
        return result;
    }
    out->exec = tenant_add(tenant, HANDLE_GRAPH, NULL);
    handles_find(&tenant->handles, HANDLE_GRAPH, out->exec)->extra = facts;
    return CUDA_SUCCESS;
}

/* The graph of this handle, if it was made in the current context. */
static struct graph_facts *find_graph(struct tenant *tenant, uint64_t id)
{
    const struct handle *handle = handles_find(&tenant->handles, HANDLE_GRAPH, id);
    return handle != NULL && handle->owner == tenant->current ? handle->extra : NULL;
}

static CUresult change(struct request *request, uint64_t id, uint32_t place, uint32_t bytes, enum step_kind kind)
{
    struct tenant *tenant = request->tenant;
    struct graph_facts *facts = find_graph(tenant, id);
    struct graph_step step, old;
    if (facts == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (place >= facts->count || bytes != request->variable_bytes || bytes < sizeof step)
        return CUDA_ERROR_INVALID_VALUE;
    uint8_t *kept = facts->list + facts->offsets[place];
    memcpy(&step, request->variable, sizeof step);
    memcpy(&old, kept, sizeof old);
    if (step.kind != kind || old.kind != kind || step.parameter_bytes != old.parameter_bytes ||
        too_many_attributes(&step) || step_stride(&step) != step_stride(&old) || step_stride(&step) != bytes)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check(tenant, &step);
    if (result == CUDA_SUCCESS)
        memcpy(kept, request->variable, bytes);
    return result;
}

CUresult serve_cuGraphExecKernelNodeSetParams_v2(struct request *request)
{
    const struct cuGraphExecKernelNodeSetParams_v2_in *in = request->in;
    return change(request, in->exec, in->place, in->step_bytes, STEP_KERNEL);
}

CUresult serve_cuGraphExecMemcpyNodeSetParams(struct request *request)
{
    const struct cuGraphExecMemcpyNodeSetParams_in *in = request->in;
    return change(request, in->exec, in->place, in->step_bytes, STEP_COPY);
}

CUresult serve_cuGraphExecMemsetNodeSetParams(struct request *request)
{
    const struct cuGraphExecMemsetNodeSetParams_in *in = request->in;
    return change(request, in->exec, in->place, in->step_bytes, STEP_FILL);
}

static CUresult run_kernel(struct request *request, const struct graph_step *step, uint8_t *packed, CUstream stream)
{
    struct tenant *tenant = request->tenant;
    const struct backend_calls *calls = &tenant->backend->calls;
    const struct handle *function = kernel_of(tenant, step);
    if (function == NULL || calls->cuLaunchKernel == NULL)
        return function == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_NOT_SUPPORTED;
    const struct function_facts *facts = function->extra;
    void *parameters[PARAMETERS_MOST];
    for (uint32_t at = 0; at < facts->count; at++)
        parameters[at] = packed + facts->parameters[at].offset;
    if (!tenant_throttle(tenant)) {
        request->broken = true;
        return CUDA_ERROR_LAUNCH_FAILED;
    }
    const uint32_t *grid = step->kernel.grid, *block = step->kernel.block;
    const struct serve_launch launch = {.function = function->real,
                                        .grid = grid,
                                        .block = block,
                                        .shared_bytes = step->kernel.shared_bytes,
                                        .stream = stream,
                                        .parameters = parameters,
                                        .attributes = packed + step_attributes_at(step),
                                        .attribute_count = step->kernel.attribute_count};
    return serve_launch(tenant, &launch);
}

static CUresult run_fill(const struct backend_calls *calls, const struct graph_step *step, CUstream stream)
{
    if (step->fill.width == 4 && calls->cuMemsetD32Async != NULL)
        return calls->cuMemsetD32Async(step->fill.to, step->fill.value, step->fill.count, stream);
    if (step->fill.width == 2 && calls->cuMemsetD16Async != NULL)
        return calls->cuMemsetD16Async(step->fill.to, (unsigned short)step->fill.value, step->fill.count, stream);
    if (step->fill.width == 1 && calls->cuMemsetD8Async != NULL)
        return calls->cuMemsetD8Async(step->fill.to, (unsigned char)step->fill.value, step->fill.count, stream);
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult run_step(struct request *request, uint8_t *at, CUstream stream)
{
    const struct backend_calls *calls = &request->tenant->backend->calls;
    struct graph_step step;
    memcpy(&step, at, sizeof step);
    CUresult result = check(request->tenant, &step);
    if (result != CUDA_SUCCESS || step.kind == STEP_EMPTY)
        return result;
    if (step.kind == STEP_KERNEL)
        return run_kernel(request, &step, at + sizeof step, stream);
    if (step.kind == STEP_FILL)
        return run_fill(calls, &step, stream);
    return calls->cuMemcpyDtoDAsync_v2 != NULL
               ? calls->cuMemcpyDtoDAsync_v2(step.copy.to, step.copy.from, step.copy.bytes, stream)
               : CUDA_ERROR_NOT_SUPPORTED;
}

/* Whether a long replay still serves anyone: asked only after so much time that the question costs nothing. */
static bool goes_on(const struct tenant *tenant, uint64_t *asked_ns)
{
    const uint64_t often_ns = 10000000;
    uint64_t now = now_ns();
    if (now - *asked_ns < often_ns)
        return true;
    *asked_ns = now;
    return tenant_alive(tenant);
}

CUresult serve_cuGraphLaunch(struct request *request)
{
    const struct cuGraphLaunch_in *in = request->in;
    struct tenant *tenant = request->tenant;
    struct graph_facts *facts = find_graph(tenant, in->exec);
    void *stream;
    if (facts == NULL || !tenant_find(tenant, HANDLE_STREAM, in->stream, &stream))
        return CUDA_ERROR_INVALID_HANDLE;
    if (in->first > facts->count || in->count > facts->count - in->first)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    uint64_t asked_ns = now_ns();
    for (uint32_t at = in->first; at < in->first + in->count && result == CUDA_SUCCESS; at++) {
        if (!goes_on(tenant, &asked_ns)) {
            request->broken = true;
            return CUDA_ERROR_LAUNCH_FAILED;
        }
        result = run_step(request, facts->list + facts->offsets[at], stream);
        atomic_fetch_add_explicit(&tenant->record->replayed, 1, memory_order_relaxed);
    }
    return result;
}

CUresult serve_cuGraphExecDestroy(struct request *request)
{
    const struct cuGraphExecDestroy_in *in = request->in;
    struct tenant *tenant = request->tenant;
    const struct handle *handle = handles_find(&tenant->handles, HANDLE_GRAPH, in->exec);
    if (handle == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    tenant_discharge(tenant, ((const struct graph_facts *)handle->extra)->charged_bytes);
    tenant_remove(tenant, HANDLE_GRAPH, in->exec);
    return CUDA_SUCCESS;
}

void serve_end_graphs(struct tenant *tenant, uint64_t context)
{
    for (uint32_t index = 0; index < tenant->handles.used; index++) {
        const struct handle *handle = &tenant->handles.slots[index];
        if (handle->kind == HANDLE_GRAPH && handle->owner == context && handle->extra != NULL)
            tenant_discharge(tenant, ((const struct graph_facts *)handle->extra)->charged_bytes);
    }
}
