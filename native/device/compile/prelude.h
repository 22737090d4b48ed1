/* The vocabulary of generated C: vectors of eight threads, masks, and accesses that need a closer look. Only compiled
 * as a part of generated files. A register of the gang is a vector; a predicate has all bits of a lane set or clear. */
#define INLINE static inline __attribute__((always_inline))
#define COLD static __attribute__((noinline, unused))
#define LIKELY(x) __builtin_expect(!!(x), 1)

typedef uint16_t w2 __attribute__((vector_size(16)));
typedef uint32_t w4 __attribute__((vector_size(32)));
typedef uint64_t w8 __attribute__((vector_size(64)));

typedef uint32_t v_uint32_t __attribute__((vector_size(32)));
typedef uint64_t v_uint64_t __attribute__((vector_size(64)));
typedef float v_float __attribute__((vector_size(32)));
typedef double v_double __attribute__((vector_size(64)));

struct mode { /* what a step may read of its instruction */
    int64_t immediate;
    uint8_t mode;
};

#define ALL_LANES ((w4){~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u})
#define NO_LANES ((w4){0, 0, 0, 0, 0, 0, 0, 0})

/* A vector of what lies at PLACE for each thread l. Through an array the processor would wait for eight stores before it
 * can load the vector: on a convolution of tinygrad that was half of the time. */
#define LANE(L, T, W, PLACE) \
    ({ \
        enum { l = L }; \
        T t_; \
        __builtin_memcpy(&t_, PLACE, sizeof t_); \
        (W) t_; \
    })
#define LANES(T, W, PLACE) \
    { \
        LANE(0, T, W, PLACE), LANE(1, T, W, PLACE), LANE(2, T, W, PLACE), LANE(3, T, W, PLACE), LANE(4, T, W, PLACE), \
            LANE(5, T, W, PLACE), LANE(6, T, W, PLACE), LANE(7, T, W, PLACE) \
    }

/* Neighbouring words of each thread, which lie at PLACE, as one vector for each word: whole rows are read and turned,
 * because eight loads of single words for each vector were half of the time of ResNet-50. */
#ifndef __has_builtin
#define __has_builtin(x) 0
#endif
#if __has_builtin(__builtin_shufflevector)
typedef uint32_t half4 __attribute__((vector_size(16)));
#define HALF(L, PLACE) \
    ({ \
        enum { l = L }; \
        half4 h_; \
        __builtin_memcpy(&h_, PLACE, sizeof h_); \
        h_; \
    })
#define PAIR(L, PLACE) \
    ({ \
        enum { l = L }; \
        uint64_t h_; \
        __builtin_memcpy(&h_, PLACE, sizeof h_); \
        h_; \
    })
#define ROW4(L, PLACE) __builtin_shufflevector(HALF(L, PLACE), HALF(L + 4, PLACE), 0, 1, 2, 3, 4, 5, 6, 7)
#define TURN4(D, PLACE) \
    do { \
        const w4 r0_ = ROW4(0, PLACE), r1_ = ROW4(1, PLACE), r2_ = ROW4(2, PLACE), r3_ = ROW4(3, PLACE); \
        const w4 a_ = __builtin_shufflevector(r0_, r1_, 0, 8, 1, 9, 4, 12, 5, 13); \
        const w4 b_ = __builtin_shufflevector(r0_, r1_, 2, 10, 3, 11, 6, 14, 7, 15); \
        const w4 c_ = __builtin_shufflevector(r2_, r3_, 0, 8, 1, 9, 4, 12, 5, 13); \
        const w4 d_ = __builtin_shufflevector(r2_, r3_, 2, 10, 3, 11, 6, 14, 7, 15); \
        (D)[0] = __builtin_shufflevector(a_, c_, 0, 1, 8, 9, 4, 5, 12, 13); \
        (D)[1] = __builtin_shufflevector(a_, c_, 2, 3, 10, 11, 6, 7, 14, 15); \
        (D)[2] = __builtin_shufflevector(b_, d_, 0, 1, 8, 9, 4, 5, 12, 13); \
        (D)[3] = __builtin_shufflevector(b_, d_, 2, 3, 10, 11, 6, 7, 14, 15); \
    } while (0)
typedef uint64_t quarter8 __attribute__((vector_size(32)));
#define TURN2(D, PLACE) \
    do { \
        const quarter8 p_ = {PAIR(0, PLACE), PAIR(1, PLACE), PAIR(4, PLACE), PAIR(5, PLACE)}; \
        const quarter8 q_ = {PAIR(2, PLACE), PAIR(3, PLACE), PAIR(6, PLACE), PAIR(7, PLACE)}; \
        (D)[0] = __builtin_shufflevector((w4)p_, (w4)q_, 0, 2, 8, 10, 4, 6, 12, 14); \
        (D)[1] = __builtin_shufflevector((w4)p_, (w4)q_, 1, 3, 9, 11, 5, 7, 13, 15); \
    } while (0)
#else
#define TURN_ONE(D, I, PLACE) (D)[I] = (w4)LANES(uint32_t, uint32_t, (PLACE) + 4 * I)
#define TURN2(D, PLACE) \
    do { \
        TURN_ONE(D, 0, PLACE); \
        TURN_ONE(D, 1, PLACE); \
    } while (0)
#define TURN4(D, PLACE) \
    do { \
        TURN2(D, PLACE); \
        TURN_ONE(D, 2, PLACE); \
        TURN_ONE(D, 3, PLACE); \
    } while (0)
#endif

#if defined(__FMA__) && defined(__AVX2__) && !defined(__clang__)
#define fused(x, y, z) __builtin_ia32_vfmaddps256(x, y, z)
#else
INLINE v_float fused(v_float x, v_float y, v_float z)
{
    v_float d;
    for (int l = 0; l < 8; l++)
        d[l] = __builtin_fmaf(x[l], y[l], z[l]);
    return d;
}
#endif

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

/* A call that leaves all vector registers as they are. Calls are rare and stand between the instructions of inner loops;
 * with plain ones the C compiler keeps sums in memory (5 instead of 10 GFLOP/s). */
struct request {
    struct compiled_call *c;
    const void *what;
    w8 addresses;
    uint64_t address, stride;
    char *values; /* of thread l, element i: at i * 8 + l, as wide as a register */
    uint32_t active, lane;
    char *place;
};
typedef int answer(struct request *q);
#if defined(__x86_64__) && defined(__AVX__) && !defined(__AVX512F__)
__asm__(".text\n"
        ".p2align 4\n"
        "gputax_kept:\n"
        "push %rbp\n"
        "mov %rsp, %rbp\n"
        "and $-64, %rsp\n"
        "sub $512, %rsp\n"
        "vmovaps %ymm0, (%rsp)\n"
        "vmovaps %ymm1, 32(%rsp)\n"
        "vmovaps %ymm2, 64(%rsp)\n"
        "vmovaps %ymm3, 96(%rsp)\n"
        "vmovaps %ymm4, 128(%rsp)\n"
        "vmovaps %ymm5, 160(%rsp)\n"
        "vmovaps %ymm6, 192(%rsp)\n"
        "vmovaps %ymm7, 224(%rsp)\n"
        "vmovaps %ymm8, 256(%rsp)\n"
        "vmovaps %ymm9, 288(%rsp)\n"
        "vmovaps %ymm10, 320(%rsp)\n"
        "vmovaps %ymm11, 352(%rsp)\n"
        "vmovaps %ymm12, 384(%rsp)\n"
        "vmovaps %ymm13, 416(%rsp)\n"
        "vmovaps %ymm14, 448(%rsp)\n"
        "vmovaps %ymm15, 480(%rsp)\n"
        "call *%rax\n"
        "vmovaps (%rsp), %ymm0\n"
        "vmovaps 32(%rsp), %ymm1\n"
        "vmovaps 64(%rsp), %ymm2\n"
        "vmovaps 96(%rsp), %ymm3\n"
        "vmovaps 128(%rsp), %ymm4\n"
        "vmovaps 160(%rsp), %ymm5\n"
        "vmovaps 192(%rsp), %ymm6\n"
        "vmovaps 224(%rsp), %ymm7\n"
        "vmovaps 256(%rsp), %ymm8\n"
        "vmovaps 288(%rsp), %ymm9\n"
        "vmovaps 320(%rsp), %ymm10\n"
        "vmovaps 352(%rsp), %ymm11\n"
        "vmovaps 384(%rsp), %ymm12\n"
        "vmovaps 416(%rsp), %ymm13\n"
        "vmovaps 448(%rsp), %ymm14\n"
        "vmovaps 480(%rsp), %ymm15\n"
        "leave\n"
        "ret\n");
INLINE int ask(answer *f, struct request *q)
{
    uint64_t result = (uint64_t)(uintptr_t)f;
    __asm__ volatile("call gputax_kept"
                     : "+a"(result), "+D"(q)
                     :
                     : "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
    return (int)result;
}
#else
INLINE int ask(answer *f, struct request *q)
{
    return f(q);
}
#endif

struct access {
    uint32_t index, space, element, count, wide; /* wide: bytes of a register */
    uint64_t footprint;                          /* from the first thread's address to the last one's */
    int write, is_signed;
    uint64_t shared_bytes, local_bytes, parameter_bytes;
    int narrow;      /* addresses are numbers of 32 bits, */
    uint64_t offset; /* to which this is added */
};

INLINE char *inside(char *base, uint64_t room, uint64_t offset, uint64_t bytes)
{
    return offset <= room && bytes <= room - offset ? base + offset : 0;
}

/* Where an address of one thread lies; 0: the fault is noted. */
COLD char *find_place(struct compiled_call *c, const struct access *in, uint64_t address, uint32_t lane)
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

COLD int answer_place(struct request *q)
{
    q->place = find_place(q->c, q->what, q->address, q->lane);
    return q->place == 0;
}
INLINE char *place_of(struct compiled_call *c, const struct access *in, uint64_t address)
{
    struct request q;
    q.c = c, q.what = in, q.address = address, q.lane = 0;
    ask(answer_place, &q);
    return q.place;
}

/* Whether the whole footprint from this address on lies in one block. */
COLD int answer_reach(struct request *q)
{
    const struct access *in = q->what;
    const struct compiled_range *range = &q->c->ranges[in->index];
    return q->c->find(q->c, in->index, q->address, in->element * in->count, in->footprint, in->write) &&
           q->address - range->from < range->reach;
}
INLINE int reached(struct compiled_call *c, const struct compiled_range *range, const struct access *in,
                   uint64_t address)
{
    if (LIKELY(address - range->from < range->reach))
        return 1;
    struct request q;
    q.c = c, q.what = in, q.address = address;
    return ask(answer_reach, &q);
}

/* Thread by thread, those that are active: the interpreter's way. */
COLD int answer_load(struct request *q)
{
    const struct access *in = q->what;
    uint64_t address[8];
    __builtin_memcpy(address, &q->addresses, sizeof address);
    for (uint32_t l = 0; l < 8; l++) {
        int active = (q->active >> l) & 1;
        const char *at = active ? find_place(q->c, in, address[l], l) : 0;
        if (active && !at)
            return 1;
        for (uint32_t i = 0; i < in->count; i++) {
            uint64_t value = 0;
            if (active)
                __builtin_memcpy(&value, at + i * in->element, in->element);
            uint32_t shift = 64 - 8 * in->element;
            value = in->is_signed ? (uint64_t)((int64_t)(value << shift) >> shift) : value;
            __builtin_memcpy(q->values + (i * 8 + l) * in->wide, &value, in->wide);
        }
    }
    return 0;
}
COLD int answer_store(struct request *q)
{
    const struct access *in = q->what;
    uint64_t address[8];
    __builtin_memcpy(address, &q->addresses, sizeof address);
    for (uint32_t l = 0; l < 8; l++) {
        if (!((q->active >> l) & 1))
            continue;
        char *at = find_place(q->c, in, address[l], l);
        if (!at)
            return 1;
        for (uint32_t i = 0; i < in->count; i++)
            __builtin_memcpy(at + i * in->element, q->values + (i * 8 + l) * in->wide, in->element);
    }
    return 0;
}
INLINE int load_each(struct compiled_call *c, const struct access *in, w8 addresses, uint32_t active, void *values)
{
    struct request q;
    q.c = c, q.what = in, q.addresses = addresses, q.active = active, q.values = values;
    return ask(answer_load, &q);
}
INLINE int store_each(struct compiled_call *c, const struct access *in, w8 addresses, uint32_t active, void *values)
{
    struct request q;
    q.c = c, q.what = in, q.addresses = addresses, q.active = active, q.values = values;
    return ask(answer_store, &q);
}
/* The same for addresses that are evenly spaced. */
INLINE void spread_addresses(struct request *q)
{
    const struct access *in = q->what;
    for (uint32_t l = 0; l < 8; l++) {
        uint64_t address = q->address + l * q->stride;
        q->addresses[l] = (in->narrow ? (uint32_t)address : address) + in->offset;
    }
}
COLD int answer_load_even(struct request *q)
{
    spread_addresses(q);
    return answer_load(q);
}
COLD int answer_store_even(struct request *q)
{
    spread_addresses(q);
    return answer_store(q);
}
INLINE int load_even(struct compiled_call *c, const struct access *in, uint64_t address, uint64_t stride,
                     uint32_t active, void *values)
{
    struct request q;
    q.c = c, q.what = in, q.address = address, q.stride = stride, q.active = active, q.values = values;
    return ask(answer_load_even, &q);
}
INLINE int store_even(struct compiled_call *c, const struct access *in, uint64_t address, uint64_t stride,
                      uint32_t active, void *values)
{
    struct request q;
    q.c = c, q.what = in, q.address = address, q.stride = stride, q.active = active, q.values = values;
    return ask(answer_store_even, &q);
}
COLD int answer_tick(struct request *q)
{
    return q->c->tick(q->c);
}
INLINE int ticked(struct compiled_call *c)
{
    struct request q;
    q.c = c;
    return ask(answer_tick, &q);
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
/* The same for lanes from `x + first` to `x + last`. */
INLINE int stays_signed(uint32_t x, int64_t first, int64_t last)
{
    int64_t at = (int32_t)x;
    return at + first >= INT32_MIN && at + last <= INT32_MAX;
}
INLINE int stays_unsigned(uint32_t x, int64_t first, int64_t last)
{
    int64_t at = x;
    return at + first >= 0 && at + last <= (int64_t)UINT32_MAX;
}
