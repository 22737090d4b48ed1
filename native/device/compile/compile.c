/* Decides what is compiled, and does it: plan, text, code; kept with the kernel for each shape of its blocks. */
#include "device/compile/compile.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "device/compile/build.h"
#include "device/compile/emit.h"
#include "device/compile/run.h"

/* To compile takes half a second: worth it for what costs the interpreter this much. */
#define WORTH_NS 50000000u
/* To look for its code in the cache takes some 10 ms: without it a start interprets each kernel until it has cost WORTH_NS,
 * and ResNet-50 meets 15 such launches (1 s of CPU time). */
#define LOOK_NS 2000000u
#define INTERPRETED_NS_PER_STEP 50.0 /* of a warp */

enum policy { POLICY_AUTO, POLICY_ALWAYS, POLICY_NEVER };
enum { SHAPES_MAX = 64 }; /* of one kernel */

/* What is kept with a kernel. Only the work of its context touches it, one piece at a time: no lock. */
struct compile_state {
    struct compiled *compiled; /* one for each shape */
    unsigned count;
    uint64_t interpreted_ns; /* so far */
    double steps;            /* of one warp, a guess */
};

static enum policy policy;

static void read_policy(void)
{
    const char *text = getenv("GPUTAX_SOFT_COMPILE");
    policy = text && strcmp(text, "always") == 0  ? POLICY_ALWAYS
             : text && strcmp(text, "never") == 0 ? POLICY_NEVER
                                                  : POLICY_AUTO;
    if (policy == POLICY_AUTO && text && *text && strcmp(text, "auto") != 0)
        report_warn("GPUTAX_SOFT_COMPILE is not auto, always or never; auto is used");
}

static void choose_axis(struct plan *plan)
{
    double least = 0;
    uint32_t best = NONE;
    for (uint32_t axis = 0; axis < 3; axis++) {
        if (plan->shape[axis] == 1 && (axis || plan->shape[1] * plan->shape[2] > 1))
            continue;
        double cost = plan_classes(plan, axis);
        if (best == NONE || cost < least)
            best = axis, least = cost;
    }
    plan_classes(plan, best);
}

static char *text_of(const struct ptx_kernel *kernel, const struct ptx_launch *launch, struct compiled *made)
{
    struct plan plan = {.kernel = kernel, .code = kernel->code};
    char *text = NULL;
    memcpy(plan.shape, launch->block, sizeof plan.shape);
    plan.shared_bytes = made->shared_bytes;
    if (plan_read(&plan) && plan_flow(&plan) && plan_names(&plan)) {
        choose_axis(&plan);
        made->axis = plan.axis;
        made->barriers = plan.barrier_count > 0;
        if (!plan.refusal)
            text = emit_kernel(&plan, &made->state_bytes, &made->range_count);
    }
    if (!text)
        report_refusal(plan.refusal ? plan.refusal : "its text is too long");
    plan_close(&plan);
    return text;
}

static void compile(const struct ptx_kernel *kernel, const struct ptx_launch *launch, bool may_build,
                    struct compiled *made)
{
    uint64_t began = run_now_ns();
    char *text = text_of(kernel, launch, made);
    made->missed = false;
    if (!text)
        return;
    made->code = office_get(text, may_build);
    made->run = made->code ? made->code->run : NULL;
    made->missed = !may_build && !made->run;
    free(text);
    report_add(REPORT_COMPILE_NS, run_now_ns() - began);
}

static struct compiled *find(const struct compile_state *state, const struct ptx_launch *launch, uint64_t shared_bytes)
{
    for (struct compiled *at = state->compiled; at; at = at->next)
        if (memcmp(at->block, launch->block, sizeof at->block) == 0 && at->shared_bytes == shared_bytes)
            return at;
    return NULL;
}

static bool number_at(const struct ptx_code *code, uint32_t slot, uint64_t *value)
{
    for (uint32_t i = 0; i < code->constant_count; i++)
        if (code->constants[i].at == slot) {
            *value = code->constants[i].value;
            return true;
        }
    return false;
}

/* How often the loop that this branch closes may run: the number that its end is compared with, be it by a register that
 * a number was moved to; else a guess. */
static double guess_rounds(const struct ptx_code *code, uint32_t branch)
{
    enum { BACK = 64, MOST = 4096, ELSE = 16 };
    uint32_t wanted = code->insns[branch].guard;
    uint64_t value = 0;
    for (uint32_t i = branch; wanted && i-- > 0 && i + BACK > branch;) {
        const struct insn *in = &code->insns[i];
        if (in->d != wanted)
            continue;
        if (!number_at(code, in->b, &value))
            for (uint32_t j = 0; j < branch && j < MOST; j++)
                if (code->insns[j].d == in->b) {
                    number_at(code, code->insns[j].a, &value);
                    break;
                }
        break;
    }
    return (uint32_t)value > 1 && (uint32_t)value <= MOST ? (double)(uint32_t)value : ELSE;
}

/* A guess at what one warp has to do. */
static double guess_steps(const struct ptx_code *code)
{
    double steps = 0, rounds = 1;
    struct {
        double begins, ends; /* by how much the rounds grow in front of it and shrink behind it */
    } *loops = calloc(code->insn_count + 1, sizeof *loops);
    for (uint32_t i = 0; loops && i < code->insn_count; i++)
        loops[i].begins = loops[i].ends = 1;
    for (uint32_t i = 0; loops && i < code->insn_count; i++)
        if (code->insns[i].run == step_branch && (uint64_t)code->insns[i].immediate <= i) {
            loops[i].ends = guess_rounds(code, i);
            loops[code->insns[i].immediate].begins *= loops[i].ends;
        }
    for (uint32_t i = 0; loops && i < code->insn_count; i++) {
        rounds *= loops[i].begins;
        steps += rounds;
        rounds /= loops[i].ends;
    }
    free(loops);
    return steps;
}

static struct compile_state *state_of(const struct ptx_code *code)
{
    if (!*code->compile && (*code->compile = calloc(1, sizeof **code->compile)))
        (*code->compile)->steps = guess_steps(code);
    return *code->compile;
}

static bool costs(const struct compile_state *state, const struct ptx_launch *launch, uint64_t ns)
{
    double warps = (double)((launch->block[0] * launch->block[1] * launch->block[2] + LANES - 1) / LANES);
    double blocks = (double)launch->grid[0] * launch->grid[1] * launch->grid[2];
    return policy == POLICY_ALWAYS || state->interpreted_ns > ns ||
           state->steps * warps * blocks * INTERPRETED_NS_PER_STEP > (double)ns;
}

static struct compiled *get(const struct ptx_kernel *kernel, const struct ptx_launch *launch)
{
    struct compile_state *state = state_of(kernel->code);
    uint64_t shared_bytes = kernel->shared_bytes + (uint64_t)launch->dynamic_shared_bytes;
    struct compiled *known = state ? find(state, launch, shared_bytes) : NULL;
    if (!state || (known && !known->missed))
        return known;
    bool worth = costs(state, launch, WORTH_NS);
    if (known && !worth)
        return known;
    if (!known && (state->count == SHAPES_MAX || !costs(state, launch, LOOK_NS)))
        return NULL;
    if (!office_open()) {
        if (worth)
            report_warn(NO_COMPILER);
        return NULL;
    }
    if (known) {
        compile(kernel, launch, worth, known);
        return known;
    }
    struct compiled *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    *made = (struct compiled){.next = state->compiled, .shared_bytes = shared_bytes};
    memcpy(made->block, launch->block, sizeof made->block);
    compile(kernel, launch, worth, made);
    state->compiled = made;
    state->count++;
    return made;
}

bool compile_run(const struct ptx_kernel *kernel, const struct ptx_launch *launch, CUresult *result)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_policy);
    const struct compiled *compiled = policy == POLICY_NEVER ? NULL : get(kernel, launch);
    if (!compiled || !compiled->run) {
        report_add(REPORT_LAUNCHES_INTERPRETED, 1);
        return false;
    }
    struct job job = {
        .compiled = compiled,
        .kernel = kernel,
        .launch = launch,
        .block_count = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2],
        .deadline_ns = run_now_ns() + launch->timeout_ns,
    };
    threads_run(&job, job.block_count < 64 ? (unsigned)job.block_count : 64);
    *result = (CUresult)atomic_load(&job.fault);
    report_add(REPORT_LAUNCHES_COMPILED, 1);
    return true;
}

void compile_interpreted(const struct ptx_kernel *kernel, uint64_t ns)
{
    if (*kernel->code->compile)
        (*kernel->code->compile)->interpreted_ns += ns;
}

void compile_forget(const struct ptx_code *code)
{
    struct compile_state *state = code ? *code->compile : NULL;
    while (state && state->compiled) {
        struct compiled *gone = state->compiled;
        state->compiled = gone->next;
        code_unload(gone->code);
        free(gone);
    }
    free(state);
    if (code)
        *code->compile = NULL;
}
