/* What a tenant holds: handles, memory, contexts and quotas, from its first call to its end. */
#include "proxy/tenant.h"

#include <poll.h>

#include "proxy/clock.h"
#include "proxy/serve.h"

enum { CONTEXTS_MOST = 16, EVENTS_MOST = 1 << 16, FUNCTIONS_MOST = 1 << 16, OTHERS_MOST = 1 << 14 };
enum {
    PIECE_BYTES = 512,
    HANDLE_BYTES = 512
}; /* what an allocation and a handle count with: what
 * is behind them, and their places in our tables and the backend's */

_Atomic bool tenant_stopping;

static bool take_host_memory(void *who, uint64_t bytes)
{
    return tenant_charge(who, bytes);
}

static void give_host_memory_back(void *who, uint64_t bytes)
{
    tenant_discharge(who, bytes);
}

void tenant_begin(struct tenant *tenant)
{
    const struct gputax_meter meter = {.take = take_host_memory, .give_back = give_host_memory_back, .who = tenant};
    if (tenant->backend->set_meter != NULL)
        tenant->backend->set_meter(&meter);
    handles_begin(&tenant->handles);
    uint32_t *limits = tenant->handles.limits;
    limits[HANDLE_CONTEXT] = CONTEXTS_MOST;
    limits[HANDLE_STREAM] = OTHERS_MOST;
    limits[HANDLE_EVENT] = EVENTS_MOST;
    limits[HANDLE_MODULE] = OTHERS_MOST;
    limits[HANDLE_FUNCTION] = FUNCTIONS_MOST;
    limits[HANDLE_GRAPH] = OTHERS_MOST;
}

bool tenant_find(struct tenant *tenant, enum handle_kind kind, uint64_t id, void **real)
{
    if ((kind == HANDLE_STREAM && id <= (uintptr_t)CU_STREAM_LEGACY) || (kind == HANDLE_CONTEXT && id == 0)) {
        *real = (void *)(uintptr_t)id; /* the default stream; "the current context" */
        return true;
    }
    const struct handle *handle = handles_find(&tenant->handles, kind, id);
    if (handle != NULL)
        *real = handle->real;
    return handle != NULL;
}

/* Gives back what was charged for handles that are not there, or not any more. */
static void settle_handles(struct tenant *tenant)
{
    uint64_t count = 0;
    for (int kind = 0; kind < HANDLE_KINDS; kind++)
        count += tenant->handles.counts[kind];
    if (tenant->handle_bytes > count * HANDLE_BYTES) {
        tenant_discharge(tenant, tenant->handle_bytes - count * HANDLE_BYTES);
        tenant->handle_bytes = count * HANDLE_BYTES;
    }
}

/* Streams and modules have a limit for the whole identity; this worker's line of its account says what it holds of them. */
void tenant_publish(struct tenant *tenant)
{
    const uint32_t *counts = tenant->handles.counts;
    settle_handles(tenant);
    account_set(tenant->account, tenant->settings.seat, ACCOUNT_STREAMS, counts[HANDLE_STREAM], 0);
    account_set(tenant->account, tenant->settings.seat, ACCOUNT_MODULES, counts[HANDLE_MODULE], 0);
}

/* The one more is taken here, and given back by tenant_publish if nothing comes of it. */
bool tenant_room(struct tenant *tenant, enum handle_kind kind)
{
    const struct limits *limits = &tenant->settings.limits;
    uint64_t most = kind == HANDLE_STREAM ? limits->streams : kind == HANDLE_MODULE ? limits->modules : 0;
    enum account_kind line = kind == HANDLE_STREAM ? ACCOUNT_STREAMS : ACCOUNT_MODULES;
    uint64_t then = (uint64_t)tenant->handles.counts[kind] + 1;
    if (!handles_room(&tenant->handles, kind) ||
        (most != 0 && !account_set(tenant->account, tenant->settings.seat, line, then, most)) ||
        !tenant_charge(tenant, HANDLE_BYTES))
        return false;
    tenant->handle_bytes += HANDLE_BYTES;
    return true;
}

uint64_t tenant_add(struct tenant *tenant, enum handle_kind kind, void *real)
{
    return handles_add(&tenant->handles, kind, real, kind == HANDLE_CONTEXT ? 0 : tenant->current);
}

void tenant_remove(struct tenant *tenant, enum handle_kind kind, uint64_t id)
{
    handles_remove(&tenant->handles, kind, id);
    if (kind == HANDLE_STREAM || kind == HANDLE_MODULE)
        tenant_publish(tenant);
    else
        settle_handles(tenant);
}

bool tenant_owns(struct tenant *tenant, uint64_t pointer, uint64_t bytes)
{
    return bytes == 0 || ranges_cover(&tenant->memory, pointer, bytes) != NULL; /* an empty range needs no owner */
}

unsigned int tenant_context_flags(const struct tenant *tenant)
{
    uint32_t spin_us = atomic_load_explicit(&tenant->page->spin_us, memory_order_relaxed);
    return spin_us <= SPIN_LIMIT_SHORT_US ? CU_CTX_SCHED_BLOCKING_SYNC : CU_CTX_SCHED_AUTO;
}

CUresult tenant_use(struct tenant *tenant, uint64_t context)
{
    struct handle *handle = handles_find(&tenant->handles, HANDLE_CONTEXT, context);
    if (handle == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    const struct backend_calls *calls = &tenant->backend->calls;
    if (tenant->current != context) {
        CUresult result = calls->cuCtxSetCurrent(handle->real);
        if (result != CUDA_SUCCESS)
            return result;
        tenant->current = context;
    }
    unsigned int *flags = handle->extra;
    unsigned int wanted = tenant_context_flags(tenant);
    if (flags != NULL && *flags != wanted && calls->cuCtxSetFlags != NULL) {
        calls->cuCtxSetFlags(wanted); /* a backend that refuses keeps its way of waiting: slower, not wrong */
        *flags = wanted;
    }
    return CUDA_SUCCESS;
}

uint64_t tenant_left(const struct tenant *tenant)
{
    uint64_t most = tenant->settings.limits.memory_bytes, used = account_used(tenant->account, ACCOUNT_MEMORY);
    return used < most ? most - used : 0;
}

uint64_t tenant_largest(const struct tenant *tenant)
{
    return tenant_left(tenant) / PIECE_BYTES * PIECE_BYTES;
}

/* A small allocation takes a whole piece of the device, and its places in three tables of the host. */
uint64_t tenant_allocation_bytes(uint64_t bytes)
{
    const uint64_t piece = PIECE_BYTES;
    return bytes > UINT64_MAX - piece ? bytes : (bytes + piece - 1) / piece * piece;
}

bool tenant_charge(struct tenant *tenant, uint64_t bytes)
{
    if (!account_take(tenant->account, tenant->settings.seat, ACCOUNT_MEMORY, bytes,
                      tenant->settings.limits.memory_bytes))
        return false;
    atomic_fetch_add_explicit(&tenant->record->memory_bytes, bytes, memory_order_relaxed);
    return true;
}

bool tenant_alive(const struct tenant *tenant)
{
    struct pollfd death = {.fd = tenant->process, .events = POLLIN}; /* poll passes over a negative one */
    return poll(&death, 1, 0) == 0 && !wire_gone(tenant->wire) && !atomic_load(&tenant_stopping);
}

void tenant_discharge(struct tenant *tenant, uint64_t bytes)
{
    account_give_back(tenant->account, tenant->settings.seat, ACCOUNT_MEMORY, bytes);
    atomic_fetch_sub_explicit(&tenant->record->memory_bytes, bytes, memory_order_relaxed);
}

CUresult tenant_clear(struct tenant *tenant, CUdeviceptr pointer, size_t bytes)
{
    const struct backend_calls *calls = &tenant->backend->calls;
    uint64_t begun = now_ns();
    CUresult result = calls->cuMemsetD8_v2(pointer, 0, bytes);
    if (result == CUDA_SUCCESS)
        result = calls->cuCtxSynchronize();
    atomic_fetch_add_explicit(&tenant->record->cleared_ns, now_ns() - begun, memory_order_relaxed);
    if (result == CUDA_SUCCESS)
        atomic_fetch_add_explicit(&tenant->record->cleared_bytes, bytes, memory_order_relaxed);
    return result;
}

/* Forgets a context's memory. The backend frees it with the context. */
static void end_memory(struct tenant *tenant, uint64_t context)
{
    for (size_t at = 0; at < tenant->memory.count; at++) {
        const struct range *range = &tenant->memory.items[at];
        if (range->context == context && range->module == 0)
            tenant_discharge(tenant, tenant_allocation_bytes(range->bytes));
    }
    ranges_drop(&tenant->memory, context, 0);
}

CUresult tenant_end_context(struct tenant *tenant, uint64_t id)
{
    struct handle *handle = handles_find(&tenant->handles, HANDLE_CONTEXT, id);
    if (handle == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    const struct backend_calls *calls = &tenant->backend->calls;
    CUcontext real = handle->real;
    tenant_use(tenant, id);
    serve_end_host(tenant, id);
    CUresult result = calls->cuCtxDestroy_v2(real);
    end_memory(tenant, id);
    serve_end_modules(tenant, id);
    serve_end_graphs(tenant, id);
    handles_remove(&tenant->handles, HANDLE_CONTEXT, id);
    tenant_publish(tenant);
    calls->cuCtxSetCurrent(NULL);
    tenant->current = 0;
    if (tenant->primary == id)
        tenant->primary = 0;
    return result;
}

void tenant_end(struct tenant *tenant)
{
    for (uint32_t index = 0; index < tenant->handles.used; index++) {
        const struct handle *handle = &tenant->handles.slots[index];
        if (handle->kind == HANDLE_CONTEXT)
            tenant_end_context(tenant, handle_id(HANDLE_CONTEXT, index, handle->generation));
    }
    handles_end(&tenant->handles);
    settle_handles(tenant);
    ranges_clear(&tenant->memory);
}
