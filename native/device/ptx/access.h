/* How a step reaches memory: addresses of all lanes, each checked for its space, bounds and alignment. */
#ifndef GPUTAX_PTX_ACCESS_H
#define GPUTAX_PTX_ACCESS_H

#include "device/ptx/inner.h"

/* The slow way, when the instruction's cache does not know the block. NULL: nobody's, or somebody else's, memory. */
char *access_search(struct warp *w, const struct insn *in, uint64_t address, unsigned bytes, bool write);

static inline char *access_global(struct warp *w, const struct insn *in, uint64_t address, unsigned bytes, bool write)
{
    const struct access_cache *known = &w->run->caches[in->cache];
    if (__builtin_expect(address - known->from < known->span, 1))
        return (char *)(uintptr_t)address;
    return access_search(w, in, address, bytes, write);
}

static inline char *access_in(char *base, uint64_t room, uint64_t offset, unsigned bytes)
{
    return offset <= room && bytes <= room - offset ? base + offset : NULL;
}

static inline char *access_local(struct warp *w, uint32_t lane, uint64_t offset, unsigned bytes)
{
    return access_in(w->local + lane * w->run->local_bytes, w->run->local_bytes, offset, bytes);
}

/* Parameters of a kernel are read only; a store to them has no place. */
static inline char *access_parameter(struct warp *w, uint64_t offset, unsigned bytes, bool write)
{
    if (write)
        return NULL;
    return access_in((char *)(uintptr_t)w->run->parameters, w->run->parameter_bytes, offset, bytes);
}

static inline char *access_generic(struct warp *w, const struct insn *in, uint32_t lane, uint64_t address,
                                   unsigned bytes, bool write)
{
    uint64_t offset = address & (((uint64_t)1 << WINDOW_SHIFT) - 1);
    switch (address >> WINDOW_SHIFT) {
    case WINDOW_GLOBAL:
        return access_global(w, in, address, bytes, write);
    case WINDOW_SHARED:
        return access_in(w->run->shared, w->run->shared_bytes, offset, bytes);
    case WINDOW_LOCAL:
        return access_local(w, lane, offset, bytes);
    case WINDOW_PARAM:
        return access_parameter(w, offset, bytes, write);
    default:
        return NULL;
    }
}

static inline uint64_t access_address(struct warp *w, const struct insn *in, uint32_t lane)
{
    uint64_t base = in->narrow ? REG(uint32_t, in->a)[lane] : REG(uint64_t, in->a)[lane];
    return base + (uint64_t)in->immediate;
}

#define ACCESS_LANES(mask, bytes, FIND, ...) \
    for (uint32_t left_ = (mask); left_; left_ &= left_ - 1) { \
        uint32_t l = (uint32_t)__builtin_ctz(left_); \
        uint64_t address = access_address(w, in, l); \
        char *at = FIND; \
        if (__builtin_expect(!at || (address & ((bytes)-1)), 0)) { \
            run_fault(w, at ? CUDA_ERROR_MISALIGNED_ADDRESS : CUDA_ERROR_ILLEGAL_ADDRESS); \
            return; \
        } \
        __VA_ARGS__ \
    }

/* Runs the statement for each lane `l` of the mask with its checked host pointer `at`; one loop per space. */
#define ACCESS(mask, bytes, write, ...) \
    switch (in->space) { \
    case SPACE_GLOBAL: \
        ACCESS_LANES(mask, bytes, access_global(w, in, address, bytes, write), __VA_ARGS__) \
        break; \
    case SPACE_SHARED: \
        ACCESS_LANES(mask, bytes, access_in(w->run->shared, w->run->shared_bytes, address, bytes), __VA_ARGS__) \
        break; \
    case SPACE_LOCAL: \
        ACCESS_LANES(mask, bytes, access_local(w, l, address, bytes), __VA_ARGS__) \
        break; \
    case SPACE_PARAM: \
        ACCESS_LANES(mask, bytes, access_parameter(w, address, bytes, write), __VA_ARGS__) \
        break; \
    default: \
        ACCESS_LANES(mask, bytes, access_generic(w, in, l, address, bytes, write), __VA_ARGS__) \
    }

#endif
