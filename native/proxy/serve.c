/* The path of every message: its number, size and flags are checked, then the call's own code runs, then it is answered. */
#include "proxy/serve.h"

#include <string.h>

#include "proxy/clock.h"

/* Takes bulk bytes that a failed call left: the next message's would follow them. */
static bool drain(struct request *request)
{
    struct wire *wire = request->tenant->wire;
    while (request->bulk_left > 0) {
        const void *at;
        size_t granted, wanted = request->bulk_left < WIRE_BULK_CHUNK ? (size_t)request->bulk_left : WIRE_BULK_CHUNK;
        if (wire->ops->bulk_peek(wire, wanted, &at, &granted) != WIRE_OK ||
            wire->ops->bulk_release(wire, granted) != WIRE_OK)
            return false;
        request->bulk_left -= granted;
    }
    return true;
}

bool request_answer(struct request *request, CUresult result, uint64_t bulk_bytes)
{
    const struct call_entry *entry = &call_entries[request->header->call];
    struct wire *wire = request->tenant->wire;
    if (!drain(request))
        return false;
    struct wire_header answer = {
        .call = request->header->call,
        .body_bytes = (result == CUDA_SUCCESS ? entry->out_bytes : 0) + (uint32_t)request->out_variable_bytes,
        .sequence = request->header->sequence,
        .bulk_bytes = bulk_bytes,
        .status = (int32_t)result,
    };
    return wire->ops->send(wire, &answer, result == CUDA_SUCCESS ? request->out : request->out_variable) == WIRE_OK;
}

/* The context first, then the call; an error that a posted call left is reported instead of starting new work. */
static CUresult run(struct request *request, const struct call_entry *entry, bool posted)
{
    struct tenant *tenant = request->tenant;
    CUresult told = posted ? CUDA_SUCCESS : tenant->pending;
    if (!posted)
        tenant->pending = CUDA_SUCCESS;
    if (told != CUDA_SUCCESS && !(entry->flags & ENTRY_ALWAYS))
        return told;
    if (entry->flags & ENTRY_CONTEXT) {
        uint64_t context;
        memcpy(&context, request->in, sizeof context);
        CUresult result = tenant_use(tenant, context);
        if (result != CUDA_SUCCESS)
            return result;
    }
    CUresult result = entry->serve(request);
    return result == CUDA_SUCCESS ? told : result;
}

bool serve_message(struct tenant *tenant, const struct wire_header *header, const void *body)
{
    const struct call_entry *entry = header->call < CALL_COUNT ? &call_entries[header->call] : NULL;
    if (entry == NULL || header->body_bytes < entry->in_bytes ||
        header->body_bytes - entry->in_bytes > entry->variable_most) {
        atomic_fetch_add_explicit(&tenant->record->refused, 1, memory_order_relaxed);
        return false;
    }
    atomic_fetch_add_explicit(&tenant->record->calls[header->call], 1, memory_order_relaxed);
    _Alignas(16) uint8_t out[WIRE_BODY_MAX];
    memset(out, 0, entry->out_bytes);
    struct request request = {
        .tenant = tenant,
        .header = header,
        .in = body,
        .variable = (const uint8_t *)body + entry->in_bytes,
        .variable_bytes = header->body_bytes - entry->in_bytes,
        .bulk_left = header->bulk_bytes,
        .out = out,
        .out_variable = out + entry->out_bytes,
    };
    bool posted = (header->flags & WIRE_POSTED) != 0;
    if (posted)
        atomic_fetch_add_explicit(&tenant->record->posted, 1, memory_order_relaxed);
    CUresult result = run(&request, entry, posted);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) { /* the answer of a query is not an error */
        atomic_fetch_add_explicit(&tenant->record->errors, 1, memory_order_relaxed);
        tenant_publish(tenant);
    }
    if (request.broken)
        return false;
    if (posted) {
        if (result != CUDA_SUCCESS && tenant->pending == CUDA_SUCCESS)
            tenant->pending = result;
        return drain(&request);
    }
    return request.answered || request_answer(&request, result, 0);
}

/* The broker decides how long both ends may spin; the wire is told before the next message is waited for. */
static void follow_spin(struct tenant *tenant)
{
    uint32_t spin_us = atomic_load_explicit(&tenant->page->spin_us, memory_order_relaxed);
    if (spin_us != tenant->spin_us) {
        wire_set_spin(tenant->wire, spin_us);
        tenant->spin_us = spin_us;
    }
}

uint64_t tenant_serve(struct tenant *tenant)
{
    struct wire *wire = tenant->wire;
    struct record *record = tenant->record;
    _Alignas(16) uint8_t body[WIRE_BODY_MAX];
    for (;;) {
        struct wire_header header;
        follow_spin(tenant);
        int status = wire->ops->receive(wire, &header, body, sizeof body);
        if (status != WIRE_OK)
            return status == WIRE_CLOSED ? TENANT_LEFT : TENANT_BROKE;
        uint64_t now = now_ns();
        atomic_store_explicit(&record->last_call_ns, now, memory_order_relaxed);
        atomic_store_explicit(&record->busy_since_ns, now, memory_order_relaxed);
        if (!serve_message(tenant, &header, body))
            return record->refused != 0 ? TENANT_BROKE : TENANT_LEFT;
        atomic_store_explicit(&record->busy_since_ns, 0, memory_order_relaxed);
    }
}

CUresult serve_gputaxWaitPolicy(struct request *request);
CUresult serve_gputaxWaitPolicy(struct request *request)
{
    const char *policy = spin_policy_name(request->tenant->settings.policy);
    size_t bytes = strlen(policy) + 1;
    memcpy(request->out_variable, policy, bytes);
    request->out_variable_bytes = bytes;
    return CUDA_SUCCESS;
}
