/* Graphs on their way to the proxy: the whole list once, then what changes, and one posted message for each launch. */
#include "driver/graph.h"

#include <stdlib.h>

#include "vgpu/current.h"
#include "vgpu/vgpu.h"

enum { VARIABLE_MOST = 7168 };
_Static_assert(sizeof(struct graph_step) + PARAMETER_INLINE_MOST +
                       LAUNCH_ATTRIBUTES_MOST * sizeof(struct launch_attribute) <=
                   VARIABLE_MOST,
               "a changed step fits into a message");

CUresult graph_check(const struct graph_step *step)
{
    uint64_t bytes = 0;
    bool good = true, copies = step_type(step) == STEP_COPY;
    if (copies && step->kind != STEP_COPY_OUT)
        good = vgpu_owns(step->copy.to, step->copy.bytes);
    if (copies && step->kind != STEP_COPY_IN)
        good = good && vgpu_owns(step->copy.from, step->copy.bytes);
    if (step->kind == STEP_FILL)
        good = !__builtin_mul_overflow(step->fill.count, (uint64_t)step->fill.width, &bytes) &&
               vgpu_owns(step->fill.to, bytes);
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The steps and their parameters as one block of bytes. */
static uint8_t *list_of(const struct graph_exec *exec, uint64_t *bytes)
{
    *bytes = 0;
    for (uint32_t at = 0; at < exec->count; at++)
        *bytes += step_stride(&exec->steps[at].step);
    uint8_t *list = *bytes <= GRAPH_LIST_MOST ? calloc(1, *bytes + 1) : NULL;
    uint8_t *end = list;
    for (uint32_t at = 0; at < exec->count && list != NULL; at++) {
        const struct exec_step *one = &exec->steps[at];
        const struct graph_step empty = {.kind = STEP_EMPTY};
        memcpy(end, step_is_here(&one->step) ? &empty : &one->step, sizeof one->step);
        if (one->block != NULL)
            memcpy(end + sizeof one->step, one->block, step_block_bytes(&one->step));
        end += step_stride(&one->step);
    }
    return list;
}

CUresult graph_made(struct graph_exec *exec)
{
    uint64_t bytes;
    uint8_t *list = list_of(exec, &bytes);
    if (list == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct cuGraphInstantiateWithFlags_in in = {.list_bytes = bytes, .step_count = exec->count};
    struct cuGraphInstantiateWithFlags_out out = {0};
    struct question question = {.call = CALL_cuGraphInstantiateWithFlags,
                                .flags = QUESTION_CONTEXT,
                                .in = &in,
                                .in_bytes = sizeof in,
                                .bulk_bytes = bytes,
                                .out = &out,
                                .out_bytes = sizeof out};
    CUresult result = vgpu_enter();
    if (result == CUDA_SUCCESS) {
        result = vgpu_send(&question);
        if (result == CUDA_SUCCESS && bytes != 0)
            result = vgpu_bulk_out(list, bytes);
        if (result == CUDA_SUCCESS)
            result = vgpu_receive(&question);
        vgpu_leave();
    }
    exec->in_proxy = out.exec;
    free(list);
    return result;
}

_Static_assert(sizeof(struct cuGraphExecKernelNodeSetParams_v2_in) ==
                       sizeof(struct cuGraphExecMemcpyNodeSetParams_in) &&
                   sizeof(struct cuGraphExecKernelNodeSetParams_v2_in) ==
                       sizeof(struct cuGraphExecMemsetNodeSetParams_in),
               "one question for all kinds of steps");

CUresult graph_changed(struct graph_exec *exec, uint32_t place)
{
    const struct exec_step *one = &exec->steps[place];
    if (step_is_here(&one->step))
        return CUDA_SUCCESS;
    uint8_t packed[VARIABLE_MOST];
    size_t bytes = step_stride(&one->step);
    memcpy(packed, &one->step, sizeof one->step);
    if (one->block != NULL)
        memcpy(packed + sizeof one->step, one->block, step_block_bytes(&one->step));
    struct cuGraphExecKernelNodeSetParams_v2_in in = {
        .exec = exec->in_proxy, .place = place, .step_bytes = (uint32_t)bytes};
    struct question question = {.call = one->step.kind == STEP_KERNEL ? CALL_cuGraphExecKernelNodeSetParams_v2
                                        : one->step.kind == STEP_COPY ? CALL_cuGraphExecMemcpyNodeSetParams
                                                                      : CALL_cuGraphExecMemsetNodeSetParams,
                                .flags = QUESTION_CONTEXT | QUESTION_POSTED,
                                .in = &in,
                                .in_bytes = sizeof in,
                                .variable = packed,
                                .variable_bytes = bytes};
    return vgpu_ask(&question);
}

/* Posts a part of the list. */
static CUresult run_part(const struct graph_exec *exec, uint32_t first, uint32_t count, CUstream stream)
{
    struct cuGraphLaunch_in in = {
        .exec = exec->in_proxy, .stream = (uint64_t)(uintptr_t)stream, .first = first, .count = count};
    struct question question = {.call = CALL_cuGraphLaunch,
                                .flags = QUESTION_CONTEXT | QUESTION_POSTED | QUESTION_FLUSH,
                                .in = &in,
                                .in_bytes = sizeof in};
    return vgpu_ask(&question);
}

/* One message, or one for each part between the steps that need the program. */
CUresult graph_run(struct graph_exec *exec, CUstream stream)
{
    CUresult result = exec->count == 0 ? run_part(exec, 0, 0, stream) : CUDA_SUCCESS;
    for (uint32_t at = 0; at < exec->count && result == CUDA_SUCCESS; at++) {
        uint32_t first = at;
        while (at < exec->count && !step_is_here(&exec->steps[at].step))
            at++;
        if (at > first)
            result = run_part(exec, first, at - first, stream);
        if (at < exec->count && result == CUDA_SUCCESS)
            result = graph_run_here(&exec->steps[at].step, stream);
    }
    return result;
}

/* Where its context has ended, the proxy has ended it too. */
void graph_ended(struct graph_exec *exec)
{
    struct cuGraphExecDestroy_in in = {.exec = exec->in_proxy};
    struct question question = {
        .call = CALL_cuGraphExecDestroy, .flags = QUESTION_POSTED, .in = &in, .in_bytes = sizeof in};
    if (vgpu_enter() != CUDA_SUCCESS)
        return;
    if (vgpu_context_with_id(exec->context_id) != 0)
        vgpu_ask_inside(&question);
    vgpu_leave();
}
