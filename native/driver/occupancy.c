/* The best block size for a kernel, from how many blocks of each size fit. */
#include "cuda_calls.h"

enum { WARP = 32 };

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int block_size,
                                                     size_t shared_bytes)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size, shared_bytes, 0);
}

/* The size with the most threads at work at once, the larger one of equals; of sizes that are whole warps. */
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid_size, int *block_size, CUfunction function,
                                                   CUoccupancyB2DSize shared_of, size_t shared_bytes, int limit,
                                                   unsigned int flags)
{
    int most = 0, processors = 0, best = 0, best_blocks = 0;
    if (grid_size == NULL || block_size == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cuFuncGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function);
    if (result == CUDA_SUCCESS)
        result = cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
    if (limit > 0 && limit < most)
        most = limit;
    for (int size = most; size > 0 && result == CUDA_SUCCESS; size = (size - 1) / WARP * WARP) {
        int blocks = 0;
        result = cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
            &blocks, function, size, shared_of != NULL ? shared_of(size) : shared_bytes, flags);
        if (result == CUDA_SUCCESS && blocks * size > best * best_blocks) {
            best = size;
            best_blocks = blocks;
        }
    }
    if (result == CUDA_SUCCESS) {
        *block_size = best;
        *grid_size = best_blocks * processors;
    }
    return result;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *grid_size, int *block_size, CUfunction function,
                                          CUoccupancyB2DSize shared_of, size_t shared_bytes, int limit)
{
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid_size, block_size, function, shared_of, shared_bytes, limit,
                                                     0);
}
