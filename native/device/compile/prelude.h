/* The vocabulary of generated C: vectors of eight threads, masks, and accesses that need a closer look. Only compiled
 * as a part of generated files. A register of the gang is a vector; a predicate has all bits of a lane set or clear. */
#define INLINE static inline __attribute__((always_inline))
#define COLD static __attribute__((noinline, cold, unused))
#define LIKELY(x) __builtin_expect(!!(x), 1)

typedef uint16_t w2 __attribute__((vector_size(16)));
typedef uint32_t w4 __attribute__((vector_size(32)));
typedef uint64_t w8 __attribute__((vector_size(64)));

struct mode { /* what a step may read of its instruction */
    int64_t immediate;
    uint8_t mode;
};

#define ALL_LANES ((w4){~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u})
#define NO_LANES ((w4){0, 0, 0, 0, 0, 0, 0, 0})

INLINE w2 spread2(uint16_t x, uint16_t stride)
{
    return (w2){x, x, x, x, x, x, x, x} + (w2){0, 1, 2, 3, 4, 5, 6, 7} * stride;
}
INLINE w4 spread4(uint32_t x, uint32_t stride)
{
    return (w4){x, x, x, x, x, x, x, x} + (w4){0, 1, 2, 3, 4, 5, 6, 7} * stride;
}
INLINE w8 spread8(uint64_t x, uint64_t stride)
{
    return (w8){x, x, x, x, x, x, x, x} +
           (w8){0, stride, stride * 2, stride * 3, stride * 4, stride * 5, stride * 6, stride * 7};
}

INLINE w2 pick2(w4 m, w2 x, w2 y)
{
    w2 d;
    for (int l = 0; l < 8; l++)
        d[l] = m[l] ? x[l] : y[l];
    return d;
}
INLINE w4 pick4(w4 m, w4 x, w4 y)
{
    return (m & x) | (~m & y);
}
INLINE w8 pick8(w4 m, w8 x, w8 y)
{
    int64_t w_[8];
    int32_t m_[8];
    __builtin_memcpy(m_, &m, sizeof m_);
    for (int l = 0; l < 8; l++)
        w_[l] = m_[l];
    w8 w;
    __builtin_memcpy(&w, w_, sizeof w);
    return (w & x) | (~w & y);
}

INLINE uint32_t bits(w4 m)
{
#ifdef __AVX__
    return (uint32_t)__builtin_ia32_movmskps256((float __attribute__((vector_size(32))))m);
#else
    uint32_t r = 0;
    for (int l = 0; l < 8; l++)
        r |= (m[l] & 1) << l;
    return r;
#endif
}
INLINE w4 lanes_of(uint32_t live)
{
    return (w4)(((w4){live, live, live, live, live, live, live, live} & (w4){1, 2, 4, 8, 16, 32, 64, 128}) != 0);
}

/* Spaces and windows, as the interpreter numbers them. */
enum { SPACE_GENERIC, SPACE_GLOBAL, SPACE_SHARED, SPACE_LOCAL, SPACE_PARAM };
enum { FAULT_ADDRESS = 700, FAULT_ALIGNMENT = 716, FAULT_TRAP = 719 };

struct access {
    uint32_t index, space, element, count;
    uint64_t footprint; /* from the first thread's address to the last one's */
    int write, is_signed;
    uint64_t shared_bytes, local_bytes, parameter_bytes;
};

INLINE char *inside(char *base, uint64_t room, uint64_t offset, uint64_t bytes)
{
    return offset <= room && bytes <= room - offset ? base + offset : 0;
}

/* Where an address of one thread lies; 0: the fault is noted. */
COLD char *place_of(struct compiled_call *c, const struct access *in, uint64_t address, uint32_t lane)
{
    uint32_t bytes = in->element * in->count, space = in->space;
    uint64_t offset = address;
    char *at = 0;
    if (space == SPACE_GENERIC) {
        space = SPACE_GLOBAL + (uint32_t)(address >> 60);
        offset = address & ~((uint64_t)15 << 60);
    }
    const struct compiled_range *range = &c->ranges[in->index];
    switch (space) {
    case SPACE_GLOBAL:
        if (address - range->from < range->span || c->find(c, in->index, address, bytes, in->footprint, in->write))
            at = (char *)(uintptr_t)address;
        break;
    case SPACE_SHARED:
        at = inside(c->shared, in->shared_bytes, offset, bytes);
        break;
    case SPACE_LOCAL:
        at = inside(c->local + lane * in->local_bytes, in->local_bytes, offset, bytes);
        break;
    case SPACE_PARAM:
        if (!in->write)
            at = inside((char *)(uintptr_t)c->parameters, in->parameter_bytes, offset, bytes);
        break;
    default:
        break;
    }
    if (at && !(address & (bytes - 1)))
        return at;
    c->fault = at ? FAULT_ALIGNMENT : FAULT_ADDRESS;
    return 0;
}

/* Whether the whole footprint from this address on lies in one block. */
COLD int look_for(struct compiled_call *c, const struct access *in, uint64_t address)
{
    const struct compiled_range *range = &c->ranges[in->index];
    return c->find(c, in->index, address, in->element * in->count, in->footprint, in->write) &&
           address - range->from < range->reach;
}
INLINE int reached(struct compiled_call *c, const struct compiled_range *range, const struct access *in,
                   uint64_t address)
{
    return LIKELY(address - range->from < range->reach) || look_for(c, in, address);
}

/* Thread by thread, those that are active: the interpreter's way. Values are wide, element by element. */
COLD int load_each(struct compiled_call *c, const struct access *in, w8 addresses, uint32_t active,
                   uint64_t (*values)[8])
{
    uint64_t address[8];
    __builtin_memcpy(address, &addresses, sizeof address);
    for (uint32_t l = 0; l < 8; l++) {
        if (!((active >> l) & 1))
            continue;
        const char *at = place_of(c, in, address[l], l);
        if (!at)
            return 1;
        for (uint32_t i = 0; i < in->count; i++) {
            uint64_t value = 0;
            __builtin_memcpy(&value, at + i * in->element, in->element);
            uint32_t shift = 64 - 8 * in->element;
            values[i][l] = in->is_signed ? (uint64_t)((int64_t)(value << shift) >> shift) : value;
        }
    }
    return 0;
}
COLD int store_each(struct compiled_call *c, const struct access *in, w8 addresses, uint32_t active,
                    uint64_t (*values)[8])
{
    uint64_t address[8];
    __builtin_memcpy(address, &addresses, sizeof address);
    for (uint32_t l = 0; l < 8; l++) {
        if (!((active >> l) & 1))
            continue;
        char *at = place_of(c, in, address[l], l);
        if (!at)
            return 1;
        for (uint32_t i = 0; i < in->count; i++)
            __builtin_memcpy(at + i * in->element, &values[i][l], in->element);
    }
    return 0;
}

/* Whether all threads' addresses lie in the known block and are aligned. */
INLINE int gathered(const struct compiled_range *range, w8 addresses, uint64_t bytes)
{
    uint64_t address[8], bad = 0;
    __builtin_memcpy(address, &addresses, sizeof address);
    for (int l = 0; l < 8; l++)
        bad |= (uint64_t)(address[l] - range->from >= range->span) | (address[l] & (bytes - 1));
    return LIKELY(!bad);
}
INLINE int gathered_in(uint64_t room, w8 addresses, uint64_t bytes)
{
    uint64_t address[8], bad = bytes > room;
    __builtin_memcpy(address, &addresses, sizeof address);
    for (int l = 0; l < 8; l++)
        bad |= (uint64_t)(address[l] > room - bytes) | (address[l] & (bytes - 1));
    return LIKELY(!bad);
}
INLINE w8 zero_extended(w4 x)
{
    uint64_t d_[8];
    for (int l = 0; l < 8; l++)
        d_[l] = x[l];
    w8 d;
    __builtin_memcpy(&d, d_, sizeof d);
    return d;
}

INLINE w2 narrow2(const uint64_t *x)
{
    w2 d;
    for (int l = 0; l < 8; l++)
        d[l] = (uint16_t)x[l];
    return d;
}
INLINE w4 narrow4(const uint64_t *x)
{
    w4 d;
    for (int l = 0; l < 8; l++)
        d[l] = (uint32_t)x[l];
    return d;
}
INLINE w8 narrow8(const uint64_t *x)
{
    w8 d;
    __builtin_memcpy(&d, x, sizeof d);
    return d;
}
INLINE void widen2(uint64_t *d, w2 x)
{
    for (int l = 0; l < 8; l++)
        d[l] = x[l];
}
INLINE void widen4(uint64_t *d, w4 x)
{
    for (int l = 0; l < 8; l++)
        d[l] = x[l];
}
INLINE void widen8(uint64_t *d, w8 x)
{
    __builtin_memcpy(d, &x, sizeof x);
}

/* Whether lanes `x + i * stride` stay numbers of 32 bits: only then widening keeps them evenly spaced. */
INLINE int fits_signed(uint32_t x, int64_t stride)
{
    int64_t last = (int64_t)(int32_t)x + 7 * stride;
    return last == (int64_t)(int32_t)last;
}
INLINE int fits_unsigned(uint32_t x, int64_t stride)
{
    int64_t last = (int64_t)x + 7 * stride;
    return last >= 0 && last <= (int64_t)UINT32_MAX;
}
