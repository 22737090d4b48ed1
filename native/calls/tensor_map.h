/* The arguments of cuTensorMapEncodeTiled as they travel: its arrays have at most five elements. */
#ifndef GPUTAX_TENSOR_MAP_H
#define GPUTAX_TENSOR_MAP_H

#include <stdint.h>

enum { TENSOR_RANK_MOST = 5 };

struct tensor_layout {
    uint64_t address;
    uint64_t dimensions[TENSOR_RANK_MOST];
    uint64_t strides[TENSOR_RANK_MOST]; /* one less than the rank */
    uint32_t box[TENSOR_RANK_MOST];
    uint32_t element_strides[TENSOR_RANK_MOST];
    uint32_t rank;
    int32_t type, interleave, swizzle, promotion, fill;
};

#endif
