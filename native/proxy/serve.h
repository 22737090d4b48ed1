/* What the code that serves one call works with; the generated dispatch and the hand-written serve_*.c use it. */
#ifndef GPUTAX_PROXY_SERVE_H
#define GPUTAX_PROXY_SERVE_H

#include "calls/launch_attribute.h"
#include "calls/layout.h"
#include "proxy/tenant.h"

/* What the proxy knows about a function beside its handle. */
struct function_facts {
    uint32_t count;
    uint32_t bytes;
    struct parameter parameters[];
};

/* A launch whose handles are the backend's already; the attributes are still as the tenant wrote them. */
struct serve_launch {
    CUfunction function;
    const uint32_t *grid, *block;
    uint32_t shared_bytes;
    uint32_t attribute_count; /* at most LAUNCH_ATTRIBUTES_MOST */
    CUstream stream;
    void **parameters;
    const uint8_t *attributes;
};

struct request {
    struct tenant *tenant;
    const struct wire_header *header;
    const void *in; /* the fixed part, its size checked; a private copy */
    const uint8_t *variable;
    size_t variable_bytes;
    uint64_t bulk_left; /* bulk bytes that came with the message and have not been taken */
    void *out;          /* zeroed */
    uint8_t *out_variable;
    size_t out_variable_bytes; /* set by the call; an answer with an error carries these alone */
    bool answered;             /* the call has sent its answer itself */
    bool broken;               /* the connection is of no further use */
};

enum { ENTRY_CONTEXT = 1, ENTRY_ALWAYS = 2 };

struct call_entry {
    CUresult (*serve)(struct request *request);
    uint32_t in_bytes;
    uint32_t variable_most;
    uint32_t out_bytes;
    uint32_t flags;
};

extern const struct call_entry call_entries[CALL_COUNT];

/* Serves one message: checks, call, answer. False when the connection is of no further use. Also the fuzzer's entrance. */
bool serve_message(struct tenant *tenant, const struct wire_header *header, const void *body);

/* Handles: find translates, room is asked before anything is created in the backend. */
bool tenant_find(struct tenant *tenant, enum handle_kind kind, uint64_t id, void **real);
bool tenant_room(struct tenant *tenant, enum handle_kind kind);
uint64_t tenant_add(struct tenant *tenant, enum handle_kind kind, void *real);
void tenant_remove(struct tenant *tenant, enum handle_kind kind, uint64_t id);

/* Whether these bytes are the tenant's. */
bool tenant_owns(struct tenant *tenant, uint64_t pointer, uint64_t bytes);

/* Makes a context of the tenant current in this thread, with the wait policy in force. */
CUresult tenant_use(struct tenant *tenant, uint64_t context);

/* Says in the account how many streams and modules there are; after a call that failed and may have taken one. */
void tenant_publish(struct tenant *tenant);

/* How the backend is to wait: as the broker says now. */
unsigned int tenant_context_flags(const struct tenant *tenant);

/* Takes from the tenant's memory quota; false if it does not fit. */
uint64_t tenant_left(const struct tenant *tenant);    /* of the memory quota */
uint64_t tenant_largest(const struct tenant *tenant); /* the largest allocation within that */
bool tenant_alive(const struct tenant *tenant);       /* false: nobody waits for the answer of what is being served */
uint64_t tenant_allocation_bytes(uint64_t bytes);     /* what an allocation of so many counts with */
bool tenant_charge(struct tenant *tenant, uint64_t bytes);
void tenant_discharge(struct tenant *tenant, uint64_t bytes);

CUresult serve_launch(struct tenant *tenant, const struct serve_launch *launch);

/* Waits for the launch quota; false if the tenant died meanwhile, or the broker ends. */
bool tenant_throttle(struct tenant *tenant);

/* Clears device memory of the current context and waits for it. */
CUresult tenant_clear(struct tenant *tenant, CUdeviceptr pointer, size_t bytes);

/* Ends a context: its memory cleared and freed, its handles gone. */
CUresult tenant_end_context(struct tenant *tenant, uint64_t id);

/* Sends the answer of a request (which must not be posted) with what was put into `out`. */
bool request_answer(struct request *request, CUresult result, uint64_t bulk_bytes);

#endif
