/* An instantiated graph on the software device: its steps one after another in the stream, which is one of the orders that
 * CUDA allows. */
#include "device/device.h"
#include "driver/graph.h"
#include "driver/launch.h"

static bool lies_inside(struct CUctx_st *context, uint64_t address, uint64_t bytes)
{
    struct arena_range range;
    return bytes == 0 || memory_find(context, address, bytes, false, &range);
}

CUresult graph_check(const struct graph_step *step)
{
    struct CUctx_st *context;
    uint64_t bytes = 0;
    bool copies = step_type(step) == STEP_COPY;
    if (!copies && step->kind != STEP_FILL)
        return CUDA_SUCCESS;
    if (step->kind == STEP_FILL && __builtin_mul_overflow(step->fill.count, (uint64_t)step->fill.width, &bytes))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = context_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    bool good = true;
    if (step->kind == STEP_FILL)
        good = lies_inside(context, step->fill.to, bytes);
    if (copies && step->kind != STEP_COPY_OUT)
        good = lies_inside(context, step->copy.to, step->copy.bytes);
    if (copies && step->kind != STEP_COPY_IN)
        good = good && lies_inside(context, step->copy.from, step->copy.bytes);
    context_leave(context);
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult graph_made(struct graph_exec *exec)
{
    (void)exec;
    return CUDA_SUCCESS;
}

CUresult graph_changed(struct graph_exec *exec, uint32_t place)
{
    (void)exec;
    (void)place;
    return CUDA_SUCCESS;
}

void graph_ended(struct graph_exec *exec)
{
    (void)exec;
}

static CUresult run_kernel(const struct exec_step *one, CUstream stream)
{
    const struct graph_step *step = &one->step;
    const uint32_t *grid = step->kernel.grid, *block = step->kernel.block;
    size_t bytes = step->parameter_bytes;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, one->block, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    struct launch launch = {.function = (CUfunction)(uintptr_t)step->kernel.function,
                            .grid = {grid[0], grid[1], grid[2]},
                            .block = {block[0], block[1], block[2]},
                            .shared_bytes = step->kernel.shared_bytes,
                            .attribute_count = step->kernel.attribute_count,
                            .stream = stream,
                            .extra = extra};
    memcpy(launch.attributes, one->block + step_attributes_at(step),
           launch.attribute_count * sizeof *launch.attributes);
    return launch_run(&launch);
}

static CUresult run_step(const struct exec_step *one, CUstream stream)
{
    const struct graph_step *step = &one->step;
    switch (step->kind) {
    case STEP_KERNEL:
        return run_kernel(one, stream);
    case STEP_COPY:
        return cuMemcpyDtoDAsync_v2(step->copy.to, step->copy.from, step->copy.bytes, stream);
    case STEP_FILL:
        if (step->fill.width == 4)
            return cuMemsetD32Async(step->fill.to, step->fill.value, step->fill.count, stream);
        if (step->fill.width == 2)
            return cuMemsetD16Async(step->fill.to, (unsigned short)step->fill.value, step->fill.count, stream);
        return cuMemsetD8Async(step->fill.to, (unsigned char)step->fill.value, step->fill.count, stream);
    case STEP_EMPTY:
        return CUDA_SUCCESS;
    default:
        return graph_run_here(step, stream);
    }
}

/* A kernel that faults ends the run, and its error shows at the next call, as after a launch. */
CUresult graph_run(struct graph_exec *exec, CUstream stream)
{
    struct CUctx_st *context;
    struct CUstream_st *found;
    CUresult result = context_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    result = stream_find(context, stream, &found);
    context_leave(context);
    for (uint32_t at = 0; at < exec->count && result == CUDA_SUCCESS; at++)
        result = run_step(&exec->steps[at], stream);
    if (result == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    CUresult state = context_enter(&context);
    if (state == CUDA_SUCCESS)
        context_leave(context);
    return state == CUDA_SUCCESS ? result : CUDA_SUCCESS;
}
