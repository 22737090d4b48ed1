/* The calls that launch a kernel, now or as a node of a captured graph. */
#include "driver/launch.h"

#include <string.h>

#include "driver/capture.h"
#include "driver/graph.h"

/* The caller's attributes as they travel. One that does not could change what the kernel does, so it is refused. */
static CUresult read_attributes(const CUlaunchConfig *config, struct launch *launch)
{
    for (unsigned int at = 0; at < config->numAttrs; at++) {
        const CUlaunchAttribute *from = &config->attrs[at];
        uint32_t words = launch_attribute_words((uint32_t)from->id);
        if (from->id == CU_LAUNCH_ATTRIBUTE_IGNORE)
            continue;
        if (words == 0)
            return CUDA_ERROR_NOT_SUPPORTED;
        if (launch->attribute_count == LAUNCH_ATTRIBUTES_MOST)
            return CUDA_ERROR_INVALID_VALUE;
        struct launch_attribute *to = &launch->attributes[launch->attribute_count++];
        to->id = (uint32_t)from->id;
        memcpy(to->value, from->value.bytes, words * sizeof *to->value);
    }
    return CUDA_SUCCESS;
}

static CUresult read_config(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra,
                            struct launch *launch)
{
    if (config == NULL || (config->numAttrs != 0 && config->attrs == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    *launch = (struct launch){.function = function,
                              .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                              .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
                              .shared_bytes = config->sharedMemBytes,
                              .stream = config->hStream,
                              .parameters = parameters,
                              .extra = extra};
    return read_attributes(config, launch);
}

static CUresult capture(const struct launch *launch)
{
    struct graph_step step;
    uint8_t *block = NULL;
    CUresult result = step_of_launch(launch, &step, &block);
    return result == CUDA_SUCCESS ? capture_add(launch->stream, &step, block) : result;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                        CUstream stream, void **parameters, void **extra)
{
    const struct launch launch = {.function = function,
                                  .grid = {grid_x, grid_y, grid_z},
                                  .block = {block_x, block_y, block_z},
                                  .shared_bytes = shared_bytes,
                                  .stream = stream,
                                  .parameters = parameters,
                                  .extra = extra};
    return launch_run(&launch);
}

CUresult captured_cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                 unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                 unsigned int shared_bytes, CUstream stream, void **parameters, void **extra)
{
    const struct launch launch = {.function = function,
                                  .grid = {grid_x, grid_y, grid_z},
                                  .block = {block_x, block_y, block_z},
                                  .shared_bytes = shared_bytes,
                                  .stream = stream,
                                  .parameters = parameters,
                                  .extra = extra};
    return capture(&launch);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)
{
    struct launch launch;
    CUresult result = read_config(config, function, parameters, extra, &launch);
    return result == CUDA_SUCCESS ? launch_run(&launch) : result;
}

CUresult front_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)
{
    struct launch launch;
    CUresult result = read_config(config, function, parameters, extra, &launch);
    if (result != CUDA_SUCCESS)
        return result;
    if (front_captures(&launch.stream, &result))
        return capture(&launch);
    return result == CUDA_SUCCESS ? launch_run(&launch) : result;
}

static struct launch cooperative(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                 unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                 unsigned int shared_bytes, CUstream stream, void **parameters)
{
    return (struct launch){.function = function,
                           .grid = {grid_x, grid_y, grid_z},
                           .block = {block_x, block_y, block_z},
                           .shared_bytes = shared_bytes,
                           .stream = stream,
                           .parameters = parameters,
                           .attributes = {{.id = ATTRIBUTE_COOPERATIVE, .value = {1}}},
                           .attribute_count = 1};
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                   unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                   unsigned int shared_bytes, CUstream stream, void **parameters)
{
    const struct launch launch =
        cooperative(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters);
    return launch_run(&launch);
}

CUresult captured_cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                            unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                            unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                            void **parameters)
{
    const struct launch launch =
        cooperative(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters);
    return capture(&launch);
}
