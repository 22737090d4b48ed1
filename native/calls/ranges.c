/* The sorted table of ranges: found by binary search, kept in order by moving its tail. */
#include "ranges.h"

#include <stdlib.h>
#include <string.h>

bool ranges_room(struct ranges *ranges)
{
    if (ranges->count < ranges->capacity)
        return true;
    if (ranges->count >= RANGES_MOST)
        return false;
    size_t capacity = ranges->capacity == 0 ? 64 : ranges->capacity * 2;
    struct range *items = realloc(ranges->items, capacity * sizeof *items);
    if (items == NULL)
        return false;
    ranges->items = items;
    ranges->capacity = capacity;
    return true;
}

/* How many ranges begin at or before the pointer. */
static size_t begun(const struct ranges *ranges, uint64_t pointer)
{
    size_t low = 0, high = ranges->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges->items[middle].base <= pointer)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void ranges_add(struct ranges *ranges, struct range range)
{
    size_t at = begun(ranges, range.base);
    if (at > 0 && ranges->items[at - 1].base == range.base)
        return;
    memmove(&ranges->items[at + 1], &ranges->items[at], (ranges->count - at) * sizeof range);
    ranges->items[at] = range;
    ranges->count++;
}

struct range *ranges_cover(const struct ranges *ranges, uint64_t pointer, uint64_t bytes)
{
    size_t at = begun(ranges, pointer);
    if (at == 0)
        return NULL;
    struct range *range = &ranges->items[at - 1];
    uint64_t offset = pointer - range->base;
    return offset <= range->bytes && bytes <= range->bytes - offset ? range : NULL;
}

struct range *ranges_allocation(const struct ranges *ranges, uint64_t base)
{
    struct range *range = ranges_cover(ranges, base, 0);
    return range != NULL && range->base == base && range->module == 0 ? range : NULL;
}

void ranges_remove(struct ranges *ranges, struct range *range)
{
    size_t at = (size_t)(range - ranges->items);
    ranges->count--;
    memmove(range, range + 1, (ranges->count - at) * sizeof *range);
}

void ranges_drop(struct ranges *ranges, uint64_t context, uint64_t module)
{
    size_t kept = 0;
    for (size_t at = 0; at < ranges->count; at++) {
        const struct range *range = &ranges->items[at];
        bool drop = module != 0 ? range->module == module : range->context == context;
        if (!drop)
            ranges->items[kept++] = *range;
    }
    ranges->count = kept;
}

void ranges_clear(struct ranges *ranges)
{
    free(ranges->items);
    memset(ranges, 0, sizeof *ranges);
}
