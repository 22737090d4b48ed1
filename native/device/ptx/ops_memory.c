/* Loads and stores. Every address is checked: against the block that the instruction hit last, else by a search. */
#include <string.h>

#include "device/ptx/access.h"
#include "device/ptx/form.h"

char *access_search(struct warp *w, const struct insn *in, uint64_t address, unsigned bytes, bool write)
{
    uint64_t from, to;
    const struct ptx_memory *memory = w->run->launch->memory;
    if (address >> WINDOW_SHIFT || !memory->find(memory->who, address, bytes, write, &from, &to))
        return NULL;
    w->run->caches[in->cache] = (struct access_cache){from, to - from - bytes + 1};
    return (char *)(uintptr_t)address;
}

/* A full warp that touches neighbouring elements, the usual case, is one check and one copy. NULL: it is not that. */
static char *contiguous(struct warp *w, const struct insn *in, uint32_t m, unsigned bytes, bool write)
{
    if (m != ALL_LANES || in->count != 1 || in->narrow || in->space != SPACE_GLOBAL)
        return NULL;
    const uint64_t *a = REG(uint64_t, in->a);
    uint64_t first = a[0], differs = 0;
    for (uint32_t l = 0; l < LANES; l++)
        differs |= a[l] - first - (uint64_t)l * bytes;
    uint64_t address = first + (uint64_t)in->immediate;
    if (differs || (address & (bytes - 1)) || !access_global(w, in, address, bytes, write))
        return NULL;
    /* The check of the last element finds the same block, so all between them lie in it. */
    const struct access_cache *known = &w->run->caches[in->cache];
    return address + (LANES - 1) * (uint64_t)bytes - known->from < known->span ? (char *)(uintptr_t)address : NULL;
}

/* Values travel by memcpy: a vector access is aligned for its whole width, which was checked. */
#define LOAD(name, M, R) \
    static void name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        const uint32_t to[4] = {in->d, in->b, in->c, in->e}; \
        const unsigned count = in->count; \
        const char *row = sizeof(M) == sizeof(R) ? contiguous(w, in, m, sizeof(M), false) : NULL; \
        if (row) { \
            memcpy(REG(R, in->d), row, LANES * sizeof(R)); \
            return; \
        } \
        ACCESS( \
            m, (unsigned)sizeof(M) * count, false, for (unsigned i = 0; i < count; i++) { \
                M value; \
                memcpy(&value, at + i * sizeof(M), sizeof(M)); \
                REG(R, to[i])[l] = (R)value; \
            }) \
    } \
    OP_FORM(name, R, M, , , , load)
#define STORE(name, M, R) \
    static void name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        const uint32_t from[4] = {in->d, in->b, in->c, in->e}; \
        const unsigned count = in->count; \
        char *row = sizeof(M) == sizeof(R) ? contiguous(w, in, m, sizeof(M), true) : NULL; \
        if (row) { \
            memcpy(row, REG(R, in->d), LANES * sizeof(R)); \
            return; \
        } \
        ACCESS( \
            m, (unsigned)sizeof(M) * count, true, for (unsigned i = 0; i < count; i++) { \
                M value = (M)REG(R, from[i])[l]; \
                memcpy(at + i * sizeof(M), &value, sizeof(M)); \
            }) \
    } \
    OP_FORM(name, R, M, , , , store)

LOAD(load_u8_2, uint8_t, uint16_t)
LOAD(load_u8_4, uint8_t, uint32_t)
LOAD(load_u8_8, uint8_t, uint64_t)
LOAD(load_s8_2, int8_t, int16_t)
LOAD(load_s8_4, int8_t, int32_t)
LOAD(load_s8_8, int8_t, int64_t)
LOAD(load_u16_2, uint16_t, uint16_t)
LOAD(load_u16_4, uint16_t, uint32_t)
LOAD(load_u16_8, uint16_t, uint64_t)
LOAD(load_s16_4, int16_t, int32_t)
LOAD(load_s16_8, int16_t, int64_t)
LOAD(load_u32_4, uint32_t, uint32_t)
LOAD(load_u32_8, uint32_t, uint64_t)
LOAD(load_s32_8, int32_t, int64_t)
LOAD(load_u64_8, uint64_t, uint64_t)
STORE(store_1_2, uint8_t, uint16_t)
STORE(store_1_4, uint8_t, uint32_t)
STORE(store_1_8, uint8_t, uint64_t)
STORE(store_2_2, uint16_t, uint16_t)
STORE(store_2_4, uint16_t, uint32_t)
STORE(store_2_8, uint16_t, uint64_t)
STORE(store_4_4, uint32_t, uint32_t)
STORE(store_4_8, uint32_t, uint64_t)
STORE(store_8_8, uint64_t, uint64_t)

/* ld.param of a kernel at a fixed place: the same value for all lanes. `immediate` has been checked by the lowering. */
#define LOAD_PARAMETER(name, T) \
    void name(struct warp *w, const struct insn *in, uint32_t m) \
    { \
        T value, *d = REG(T, in->d); \
        memcpy(&value, w->run->parameters + in->immediate, sizeof value); \
        EACH(m, d[l] = value); \
    } \
    OP_FORM(name, T, , , , , parameter)
LOAD_PARAMETER(step_load_parameter4, uint32_t)
LOAD_PARAMETER(step_load_parameter8, uint64_t)

/* NULL: the register is too narrow. */
step *load_step(enum type type, unsigned register_bytes)
{
    int wide = register_bytes == 8 ? 2 : register_bytes == 4 ? 1 : 0;
    static step *const U8[] = {load_u8_2, load_u8_4, load_u8_8}, *const S8[] = {load_s8_2, load_s8_4, load_s8_8};
    static step *const U16[] = {load_u16_2, load_u16_4, load_u16_8};
    static step *const S16[] = {load_u16_2, load_s16_4, load_s16_8};
    static step *const U32[] = {NULL, load_u32_4, load_u32_8}, *const S32[] = {NULL, load_u32_4, load_s32_8};
    switch (type) {
    case TYPE_U8:
        return U8[wide];
    case TYPE_S8:
        return S8[wide];
    case TYPE_U16:
        return U16[wide];
    case TYPE_S16:
        return S16[wide];
    case TYPE_U32:
        return U32[wide];
    case TYPE_S32:
        return S32[wide];
    default:
        return wide == 2 ? load_u64_8 : NULL;
    }
}

step *store_step(unsigned bytes, unsigned register_bytes)
{
    int wide = register_bytes == 8 ? 2 : register_bytes == 4 ? 1 : 0;
    static step *const ONE[] = {store_1_2, store_1_4, store_1_8}, *const TWO[] = {store_2_2, store_2_4, store_2_8};
    static step *const FOUR[] = {NULL, store_4_4, store_4_8};
    switch (bytes) {
    case 1:
        return ONE[wide];
    case 2:
        return TWO[wide];
    case 4:
        return FOUR[wide];
    default:
        return wide == 2 ? store_8_8 : NULL;
    }
}
