/* Fuzz target: decoded messages against the proxy's dispatcher, with the software device as its backend.
 *
 * The input is a script of messages. Their arguments are small numbers, absurd ones, or what earlier answers gave back,
 * so that handles and addresses are met alive, stale and changed. Each input is one tenant: when it has gone, nothing of it
 * may be left on the device.
 */
#include <stdlib.h>
#include <string.h>

#include "calls/graph_step.h"
#include "proxy/serve.h"
#include "proxy/tenant.h"
#include "script.h"

enum { MESSAGES_MOST = 48, KNOWN_MOST = 16, BULK_MOST = 1 << 16 };

static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                          ".visible .global .align 4 .u32 cell = 7;\n"
                          ".visible .entry put(.param .u64 p, .param .u32 v)\n{\n"
                          ".reg .b64 %rd<3>;\n.reg .b32 %r<3>;\n"
                          "ld.param.u64 %rd1, [p];\nld.param.u32 %r1, [v];\nst.global.u32 [%rd1], %r1;\nret;\n}\n";

struct play {
    struct wire wire; /* first: what the dispatcher holds is this */
    struct script script;
    uint64_t known[KNOWN_MOST];
    size_t known_count;
    uint64_t bulk_left;
    bool sends_ptx;
    size_t ptx_at;
    uint8_t bulk[BULK_MOST];
    size_t answers;
};

static struct backend backend;
static struct page page;
static struct account account;
static struct play play;

void wire_fuzz_between(void);
void wire_fuzz_between(void) /* the shared region is another target's; here nothing strikes */
{
}

static int take_answer(struct wire *wire, const struct wire_header *header, const void *body)
{
    (void)wire;
    must_hold(header->body_bytes <= WIRE_BODY_MAX);
    must_hold(header->status != CUDA_SUCCESS || header->body_bytes >= call_entries[header->call].out_bytes);
    if (header->status == CUDA_SUCCESS && header->body_bytes >= 8 && play.known_count < KNOWN_MOST)
        memcpy(&play.known[play.known_count++], body, 8);
    play.answers++;
    return WIRE_OK;
}

static int reserve(struct wire *wire, size_t wanted, void **at, size_t *granted)
{
    (void)wire;
    *at = play.bulk;
    *granted = wanted < BULK_MOST ? wanted : BULK_MOST;
    return WIRE_OK;
}

static int commit(struct wire *wire, size_t bytes)
{
    (void)wire;
    must_hold(bytes <= BULK_MOST);
    return WIRE_OK;
}

static int peek(struct wire *wire, size_t wanted, const void **at, size_t *granted)
{
    (void)wire;
    if (play.bulk_left == 0 || play.script.left == 0)
        return WIRE_CLOSED; /* the tenant dies in the middle of its copy */
    if (play.sends_ptx) {
        *at = ptx + play.ptx_at;
        *granted = sizeof ptx - play.ptx_at;
    } else {
        *at = play.bulk;
        *granted = BULK_MOST;
    }
    *granted = *granted < wanted ? *granted : wanted;
    if (*granted > play.bulk_left)
        *granted = play.bulk_left;
    return *granted > 0 ? WIRE_OK : WIRE_CLOSED;
}

static int release(struct wire *wire, size_t bytes)
{
    (void)wire;
    must_hold(bytes <= play.bulk_left);
    play.bulk_left -= bytes;
    play.ptx_at += bytes;
    return WIRE_OK;
}

static const struct wire_ops ops = {.name = "fuzz",
                                    .send = take_answer,
                                    .bulk_reserve = reserve,
                                    .bulk_commit = commit,
                                    .bulk_peek = peek,
                                    .bulk_release = release};

static uint64_t word(void)
{
    static const uint64_t absurd[] = {
        0, 1, 1 << 12, UINT64_C(1) << 32, UINT64_C(1) << 62, UINT64_MAX, UINT64_MAX - 4095, 1 << 20};
    uint8_t how = (uint8_t)take_number(&play.script, 1);
    if (how < 0x80)
        return play.known_count > 0
                   ? play.known[how % play.known_count] + (how < 0x60 ? 0 : take_number(&play.script, 1))
                   : how;
    if (how < 0xc0)
        return absurd[how % 8];
    return take_number(&play.script, how < 0xe0 ? 1 : 8);
}

/* One step of a graph at `to`, and its length; a kernel's is often that of the module above. */
static size_t write_step(uint8_t *to)
{
    static const uint32_t kinds[] = {STEP_KERNEL, STEP_KERNEL, STEP_COPY, STEP_FILL, STEP_EMPTY, 3, 77, STEP_KERNEL};
    enum { PUT_BYTES = 12 };
    uint8_t how = (uint8_t)take_number(&play.script, 1);
    struct graph_step step = {.kind = kinds[how % 8]};
    if (step.kind == STEP_KERNEL) {
        step.parameter_bytes = how < 0xf0 ? PUT_BYTES : (uint32_t)word();
        step.kernel.function = word();
        uint32_t *shape = step.kernel.grid; /* one that ends within this second */
        shape[0] = (uint32_t)take_number(&play.script, 1) % 5, shape[1] = shape[2] = 1;
        shape = step.kernel.block;
        shape[0] = (uint32_t)take_number(&play.script, 1) % 65, shape[1] = shape[2] = 1;
    } else if (step.kind == STEP_FILL) {
        step.fill.to = word(), step.fill.count = word(), step.fill.width = how % 5, step.fill.value = how;
    } else {
        step.copy.to = word(), step.copy.from = word(), step.copy.bytes = word();
    }
    memcpy(to, &step, sizeof step);
    memset(to + sizeof step, 0, PUT_BYTES + 4);
    uint64_t pointer = word();
    memcpy(to + sizeof step, &pointer, sizeof pointer);
    return sizeof step + (step.kind == STEP_KERNEL ? PUT_BYTES + 4 : 0);
}

/* A list of up to seven steps as the bulk bytes, and its sizes in the message. */
static void write_list(uint8_t *body, uint8_t flags)
{
    struct cuGraphInstantiateWithFlags_in *in = (struct cuGraphInstantiateWithFlags_in *)(void *)body;
    uint32_t count = (uint32_t)take_number(&play.script, 1) % 8;
    size_t bytes = 0;
    for (uint32_t at = 0; at < count; at++)
        bytes += write_step(play.bulk + bytes);
    play.bulk_left = bytes;
    in->list_bytes = bytes;
    in->step_count = count + ((flags & 32) != 0);
}

static bool changes_step(uint32_t call)
{
    return call == CALL_cuGraphExecKernelNodeSetParams_v2 || call == CALL_cuGraphExecMemcpyNodeSetParams ||
           call == CALL_cuGraphExecMemsetNodeSetParams;
}

/* The fixed part: the first context that was made, then words by the script. */
static size_t write_body(uint32_t call, uint8_t *body)
{
    const struct call_entry *entry = &call_entries[call];
    size_t bytes = entry->in_bytes;
    for (size_t at = 0; at + 8 <= bytes; at += 8) {
        uint64_t value =
            at == 0 && (entry->flags & ENTRY_CONTEXT) && play.known_count > 0 && take_number(&play.script, 1) < 0xf0
                ? play.known[0]
                : word();
        memcpy(body + at, &value, 8);
    }
    if (call == CALL_cuLaunchKernel) { /* a grid that ends within this second */
        struct cuLaunchKernel_in *in = (struct cuLaunchKernel_in *)(void *)body;
        in->grid_x %= 5, in->grid_y %= 3, in->grid_z %= 3, in->block_x %= 65, in->block_y %= 5, in->block_z %= 3;
    }
    if (changes_step(call) && take_number(&play.script, 1) < 0xe0) {
        struct cuGraphExecKernelNodeSetParams_v2_in *in = (struct cuGraphExecKernelNodeSetParams_v2_in *)(void *)body;
        size_t step_bytes = write_step(body + bytes);
        in->place %= 8;
        in->step_bytes = (uint32_t)(step_bytes > sizeof(struct graph_step) ? step_bytes - 4 : step_bytes);
        return bytes + in->step_bytes;
    }
    static const char *const names[] = {"put", "cell", "", "no such name"};
    uint8_t how = (uint8_t)take_number(&play.script, 1);
    if (how < 0x40 && entry->variable_most > 64) {
        size_t length = strlen(names[how % 4]) + 1;
        memcpy(body + bytes, names[how % 4], length);
        return bytes + length;
    }
    size_t extra = how < 0x80 ? 0 : take_number(&play.script, how < 0xf8 ? 1 : 2) % (WIRE_BODY_MAX - bytes);
    for (size_t at = 0; at < extra; at++)
        body[bytes + at] = at < 32 ? (uint8_t)take_number(&play.script, 1) : 0x41;
    return bytes + extra;
}

static bool one_message(struct tenant *tenant, uint64_t sequence)
{
    static _Alignas(16) uint8_t body[WIRE_BODY_MAX];
    memset(body, 0, sizeof body);
    uint32_t call = (uint32_t)take_number(&play.script, 1);
    uint8_t flags = (uint8_t)take_number(&play.script, 1);
    bool known = call < CALL_COUNT;
    size_t bytes = known ? write_body(call, body) : (size_t)take_number(&play.script, 1);
    if (flags & 2) /* cut short */
        bytes = bytes > 0 ? bytes - 1 : 0;
    play.sends_ptx = (flags & 4) != 0;
    play.ptx_at = 0;
    play.bulk_left = 0;
    if (flags & 8) {
        play.bulk_left = play.sends_ptx ? sizeof ptx : word();
        if (known && play.sends_ptx && call == CALL_cuModuleLoadData)
            memcpy(body + 8, &(uint64_t){sizeof ptx}, 8);
        if (known && (call == CALL_cuMemcpyHtoD_v2 || call == CALL_cuMemcpyHtoDAsync_v2) && bytes >= 24 && (flags & 16))
            memcpy(&play.bulk_left, body + 16, 8);
    }
    if (call == CALL_cuGraphInstantiateWithFlags && (flags & 4) &&
        bytes >= sizeof(struct cuGraphInstantiateWithFlags_in)) {
        play.sends_ptx = false;
        write_list(body, flags);
    }
    if (play.bulk_left > 1 << 22) /* longer ones end as the shorter do: the script is over first */
        play.bulk_left = 1 << 22;
    struct wire_header header = {.call = call,
                                 .body_bytes = (uint32_t)bytes,
                                 .sequence = sequence,
                                 .bulk_bytes = play.bulk_left,
                                 .flags = flags & 1 ? WIRE_POSTED : 0};
    size_t answers = play.answers;
    bool goes_on = serve_message(tenant, &header, body);
    if (goes_on)
        must_hold((play.answers > answers) == ((flags & 1) == 0) && play.bulk_left == 0);
    return goes_on;
}

static void open_backend(void)
{
    setenv("GPUTAX_SOFT_MEMORY_MB", "16", 1);
    setenv("GPUTAX_SOFT_TIMEOUT_S", "1", 1);
    setenv("GPUTAX_SOFT_COMPILE", "never", 1); /* a compiler would be another process for each kernel */

#define TAKE(name) backend.calls.name = &name;
    BACKEND_CALLS(TAKE)
#undef TAKE
    backend.load_bounded = gputaxModuleLoadBounded;
    backend.set_meter = gputaxSetMeter;
    backend.busy = gputaxBusy;
    must_hold(cuInit(0) == CUDA_SUCCESS);
    must_hold(cuDeviceTotalMem_v2(&backend.memory_bytes, 0) == CUDA_SUCCESS);
    backend.path = "fuzz";
    backend.clears_itself = true;
}

/* What is free on the device, asked from a context that lives as long as the fuzzer. */
static size_t free_bytes(void)
{
    static CUcontext watcher;
    size_t available = 0, total = 0;
    if (watcher == NULL)
        must_hold(cuCtxCreate_v2(&watcher, 0, 0) == CUDA_SUCCESS);
    must_hold(cuCtxSetCurrent(watcher) == CUDA_SUCCESS);
    must_hold(cuMemGetInfo_v2(&available, &total) == CUDA_SUCCESS);
    return available;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static size_t at_first;
    if (backend.path == NULL) {
        open_backend();
        at_first = free_bytes();
    }
    memset(&page, 0, sizeof page);
    memset(&account, 0, sizeof account);
    account.seats = 1;
    play.wire.ops = &ops;
    play.script = (struct script){bytes, count};
    play.known_count = 0;
    play.answers = 0;
    memset(play.bulk, 0, 1024); /* what lists left: the same input is the same run */
    struct tenant tenant = {
        .settings = {.policy = SPIN_NEVER, .limits = {.memory_bytes = 8 << 20, .streams = 4, .modules = 3}},
        .page = &page,
        .account = &account,
        .record = &page.record,
        .backend = &backend,
        .wire = &play.wire,
        .process = -1};
    tenant_begin(&tenant);
    struct cuCtxCreate_v2_in in = {0};
    struct wire_header first = {.call = CALL_cuCtxCreate_v2, .body_bytes = sizeof in, .sequence = 1};
    must_hold(serve_message(&tenant, &first, &in));
    for (uint64_t sequence = 2; sequence < MESSAGES_MOST && play.script.left > 0; sequence++)
        if (!one_message(&tenant, sequence))
            break;
    tenant_end(&tenant);
    must_hold(page.record.memory_bytes == 0 && account_used(&account, ACCOUNT_MEMORY) == 0);
    must_hold(free_bytes() == at_first);
    return 0;
}
