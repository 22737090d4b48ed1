/* Descriptors of tensors for the copy engine of newer GPUs: their form is the driver's secret, so the backend makes them. */
#include "calls/tensor_map.h"

#include <string.h>

#include "vgpu/vgpu.h"

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, int type, cuuint32_t rank, void *address,
                                const cuuint64_t *dimensions, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *element_strides, int interleave, int swizzle, int promotion, int fill)
{
    if (map == NULL || rank == 0 || rank > TENSOR_RANK_MOST || dimensions == NULL || (rank > 1 && strides == NULL) ||
        box == NULL || element_strides == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct tensor_layout layout = {.address = (uint64_t)(uintptr_t)address,
                                   .rank = rank,
                                   .type = type,
                                   .interleave = interleave,
                                   .swizzle = swizzle,
                                   .promotion = promotion,
                                   .fill = fill};
    memcpy(layout.dimensions, dimensions, rank * sizeof *dimensions);
    if (rank > 1)
        memcpy(layout.strides, strides, (rank - 1) * sizeof *strides);
    memcpy(layout.box, box, rank * sizeof *box);
    memcpy(layout.element_strides, element_strides, rank * sizeof *element_strides);
    struct cuTensorMapEncodeTiled_in in = {.map_bytes = sizeof *map, .layout_bytes = sizeof layout};
    CUtensorMap made = {{0}};
    struct question question = {.call = CALL_cuTensorMapEncodeTiled,
                                .in = &in,
                                .in_bytes = sizeof in,
                                .variable = &layout,
                                .variable_bytes = sizeof layout,
                                .out_variable = &made,
                                .out_capacity = sizeof made};
    CUresult result = vgpu_ask(&question);
    if (result == CUDA_SUCCESS && question.out_variable_bytes != sizeof made)
        result = CUDA_ERROR_UNKNOWN;
    if (result == CUDA_SUCCESS)
        *map = made;
    return result;
}
