/* The software device but for one call: its descriptor of a tensor is the arguments as they arrived, packed into 128 bytes.
 * A rank of 4 is refused, as a driver refuses what its GPU cannot do. */
#include <stdint.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 801, RANK_MOST = 5, REFUSED_RANK = 4 };

struct descriptor {
    uint64_t address;
    uint8_t type, rank, interleave, swizzle, promotion, fill, unused[2];
    uint64_t dimensions[RANK_MOST], strides[RANK_MOST - 1];
    uint32_t box[RANK_MOST], element_strides[RANK_MOST];
};

int cuTensorMapEncodeTiled(struct descriptor *map, int type, uint32_t rank, void *address, const uint64_t *dimensions,
                           const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides,
                           int interleave, int swizzle, int promotion, int fill)
{
    _Static_assert(sizeof *map == 128, "a CUtensorMap has 128 bytes");
    if (rank == REFUSED_RANK)
        return NOT_SUPPORTED;
    memset(map, 0, sizeof *map);
    map->address = (uintptr_t)address;
    map->type = (uint8_t)type;
    map->rank = (uint8_t)rank;
    map->interleave = (uint8_t)interleave;
    map->swizzle = (uint8_t)swizzle;
    map->promotion = (uint8_t)promotion;
    map->fill = (uint8_t)fill;
    for (uint32_t at = 0; at < rank; at++) {
        map->dimensions[at] = dimensions[at];
        map->box[at] = box[at];
        map->element_strides[at] = element_strides[at];
        if (at + 1 < rank)
            map->strides[at] = strides[at];
    }
    return SUCCESS;
}
