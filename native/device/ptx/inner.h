/* What the lowering writes and the executor reads: instructions over registers that hold the 32 lanes of a warp. */
#ifndef GPUTAX_PTX_INNER_H
#define GPUTAX_PTX_INNER_H

#include <time.h>

#include "device/ptx/ptx.h"

enum { LANES = 32, BARRIERS = 16 };
#define ALL_LANES 0xffffffffu

/* State spaces. Generic addresses carry the space in their top four bits; device memory has zeros there. */
enum space { SPACE_GENERIC, SPACE_GLOBAL, SPACE_SHARED, SPACE_LOCAL, SPACE_PARAM };
enum { WINDOW_SHIFT = 60 };
enum window { WINDOW_GLOBAL = 0, WINDOW_SHARED = 1, WINDOW_LOCAL = 2, WINDOW_PARAM = 3 };

struct warp;
struct insn;
typedef void step(struct warp *w, const struct insn *in, uint32_t mask);

/* d, a, b, c, e: registers as byte offsets into the warp's register file; 0 is a register that nobody reads. */
struct insn {
    step *run;
    uint32_t d, a, b, c, e;
    uint32_t guard; /* predicate; 0: none */
    int64_t immediate;
    uint32_t cache; /* of a memory access: which of the run's caches is its own */
    uint8_t guard_not;
    uint8_t space;
    uint8_t narrow;               /* the address register has 32 bits */
    uint8_t count;                /* elements of a vector access */
    uint8_t mode;                 /* step's own */
    uint8_t from_bytes, to_bytes; /* of a conversion: sizes of its registers */
};

struct constant {
    uint32_t at;
    uint32_t bytes; /* 0: predicate */
    uint64_t value;
};

/* Special registers, filled by the executor: per warp, per launch, or per block. */
enum special {
    SPECIAL_TID_X,
    SPECIAL_TID_Y,
    SPECIAL_TID_Z,
    SPECIAL_LANEID,
    SPECIAL_WARPID,
    SPECIAL_LANEMASK_EQ,
    SPECIAL_LANEMASK_LT,
    SPECIAL_LANEMASK_LE,
    SPECIAL_LANEMASK_GT,
    SPECIAL_LANEMASK_GE,
    SPECIAL_NTID_X,
    SPECIAL_NTID_Y,
    SPECIAL_NTID_Z,
    SPECIAL_NCTAID_X,
    SPECIAL_NCTAID_Y,
    SPECIAL_NCTAID_Z,
    SPECIAL_NWARPID,
    SPECIAL_SMID,
    SPECIAL_NSMID,
    SPECIAL_DYNAMIC_SMEM_SIZE,
    SPECIAL_TOTAL_SMEM_SIZE,
    SPECIAL_ENVREG1,
    SPECIAL_ENVREG2,
    SPECIAL_CTAID_X,
    SPECIAL_CTAID_Y,
    SPECIAL_CTAID_Z,
    SPECIAL_COUNT,
    SPECIAL_PER_LAUNCH = SPECIAL_NTID_X,
    SPECIAL_PER_BLOCK = SPECIAL_CTAID_X,
};

struct compile_state;
struct ptx_code {
    struct insn *insns;
    uint32_t insn_count;
    uint32_t register_bytes; /* of one warp */
    uint32_t cache_count;
    const struct constant *constants;
    uint32_t constant_count;
    uint32_t specials[SPECIAL_COUNT]; /* 0: not used */
    const uint32_t *jumps;            /* targets of brx.idx, behind one another */
    struct compile_state **compile;   /* what the compiler keeps with it */
    uint32_t jump_count;
};

/* The block of memory that an access hit last: the next one is checked against it first. */
struct access_cache {
    uint64_t from;
    uint64_t span; /* number of good start addresses; 0: nothing known */
};

enum fragment_state { FRAGMENT_READY, FRAGMENT_GATHERS, FRAGMENT_AT_BARRIER };

/* Lanes of a warp that are at the same place. */
struct fragment {
    uint32_t pc, mask;
    uint8_t state;
    uint8_t barrier;
};

enum { EVENT_FAULT = 1, EVENT_PICK = 2, EVENT_YIELD = 4 };

struct warp {
    char *registers;
    uint32_t pc, active; /* the running fragment; no lanes: none runs */
    uint32_t stop;       /* where another fragment waits to be joined */
    uint32_t event;
    uint32_t born, exited; /* lanes */
    uint32_t index;
    uint32_t place; /* among the warps of all blocks that live at once: where its local memory lies */
    uint32_t fragment_count;
    bool forced; /* run the next warp-wide instruction without those who never come */
    struct run *run;
    char *local;
    struct register_file *file;
    struct fragment fragments[LANES];
};

struct barrier {
    uint32_t arrived, expected; /* threads; expected 0: all that live */
    uint32_t count, all, any;   /* of bar.red */
};

/* One launch. */
struct run {
    const struct ptx_code *code;
    const struct ptx_launch *launch;
    const struct ptx_kernel *kernel;
    struct access_cache *caches;
    char *shared;
    const char *parameters;
    uint64_t shared_bytes, local_bytes, parameter_bytes;
    uint64_t deadline_ns;
    uint64_t workspace; /* of a cooperative launch */
    uint32_t turn;      /* backward branches of a warp's turn */
    uint32_t fuel;      /* what is left of it */
    uint32_t watch;     /* instructions until the next look at the clock */
    uint32_t live;      /* threads of the block that have not ended */
    CUresult fault;
    struct ptx_output *output;
    struct barrier barriers[BARRIERS];
};

#define REG(type, at) ((type *)(void *)(w->registers + (at)))
#define PRED(at) (*REG(uint32_t, at))

/* Runs the statement for every lane `l` of the mask; full warps take the loop that the compiler can vectorise. */
#define EACH(mask, ...) \
    do { \
        if ((mask) == ALL_LANES) { \
            _Pragma("GCC ivdep") for (uint32_t l = 0; l < LANES; l++) \
            { \
                __VA_ARGS__; \
            } \
        } else { \
            for (uint32_t left_ = (mask); left_; left_ &= left_ - 1) { \
                uint32_t l = (uint32_t)__builtin_ctz(left_); \
                __VA_ARGS__; \
            } \
        } \
    } while (0)

static inline void set_predicate(struct warp *w, uint32_t at, uint32_t mask, uint32_t value)
{
    PRED(at) = (PRED(at) & ~mask) | (value & mask);
}

static inline uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void run_fault(struct warp *w, CUresult fault);
void run_park(struct warp *w, uint32_t pc, uint32_t mask, enum fragment_state state);

/* One row of the instruction table: the mnemonic, its step and the shape of its operands, destination first:
 * 1 predicate; 2 4 8 integer registers of that many bytes; f d floats of 4 and 8 bytes; i a number in the instruction;
 * K no operand: the carry flag. */
struct op_row {
    const char *name;
    step *run;
    const char *shape;
    uint8_t mode;
};
struct op_table {
    const struct op_row *rows;
    size_t count;
};
extern const struct op_table OPS_INTEGER, OPS_BITS, OPS_FLOAT, OPS_COMPARE, OPS_WARP, OPS_HALF, OPS_PACKED;
const struct op_row *op_named(const char *name);

/* Steps that the lowering picks by more than a name. */
enum type {
    TYPE_NONE,
    TYPE_U8,
    TYPE_S8,
    TYPE_U16,
    TYPE_S16,
    TYPE_U32,
    TYPE_S32,
    TYPE_U64,
    TYPE_S64,
    TYPE_F16,
    TYPE_F32,
    TYPE_F64,
    TYPE_PRED,
    TYPE_BF16
};
enum rounding { ROUND_NONE, ROUND_RN, ROUND_RZ, ROUND_RM, ROUND_RP, ROUND_RNI, ROUND_RZI, ROUND_RMI, ROUND_RPI };
enum { CONVERT_SATURATE = 1, CONVERT_FLUSH = 2, CONVERT_RELU = 4 };
step *convert_step(enum type to, enum type from, enum rounding rounding, int flags, unsigned to_bytes,
                   unsigned from_bytes);
int64_t convert_packed(enum type to, enum type from, enum rounding rounding, int flags); /* the step's immediate */
step *load_step(enum type type, unsigned register_bytes);
step step_load_parameter4, step_load_parameter8;
step *store_step(unsigned bytes, unsigned register_bytes);
step *atomic_step(const char *operation, const char *type);

/* f16 and bf16, in ops_half.c. `mode` has the flags, `count` says whether a register holds one number or two. */
enum half_operation {
    HALF_ADD,
    HALF_SUB,
    HALF_MUL,
    HALF_FMA,
    HALF_MIN,
    HALF_MAX,
    HALF_NEG,
    HALF_ABS,
    HALF_EX2,
    HALF_TANH
};
enum { HALF_FTZ = 1, HALF_SAT = 2, HALF_RELU = 4, HALF_NAN_WINS = 8, HALF_XORSIGN = 16 };
enum { HALF_PACK_BF16 = 1, HALF_PACK_RELU = 2, HALF_PACK_ZERO = 4 };
enum { HALF_COMPARE_FTZ = 16, HALF_COMPARE_BF16 = 32 }; /* beside one of these: */
enum {
    COMPARE_EQ,
    COMPARE_NE,
    COMPARE_LT,
    COMPARE_LE,
    COMPARE_GT,
    COMPARE_GE,
    COMPARE_EQU,
    COMPARE_NEU,
    COMPARE_LTU,
    COMPARE_LEU,
    COMPARE_GTU,
    COMPARE_GEU,
    COMPARE_NUM,
    COMPARE_NAN
};
enum { HALF_F16_ONE = 0x3c00, HALF_BF16_ONE = 0x3f80, HALF_NAN = 0x7fff };
step *half_step(enum half_operation operation, bool is_bf16);
step *half_convert_step(enum type to, enum type from);
step *half_atomic_step(const char *type);
step step_half_setp2, step_half_set, step_half_pack, step_convert_tf32;

/* Matrices of a warp, in ops_matrix.c. */
enum matrix_type {
    MATRIX_F16,
    MATRIX_BF16,
    MATRIX_TF32,
    MATRIX_S8,
    MATRIX_U8,
    MATRIX_F64,
    MATRIX_E4M3,
    MATRIX_E5M2,
    MATRIX_F32,
    MATRIX_S32
};
enum matrix_part { PART_A, PART_B, PART_C };
enum { MATRIX_WMMA = 1, MATRIX_SATURATE = 2, MATRIX_BY_COLUMN = 4, MATRIX_DOUBLED = 8 };
enum { MATRIX_TRANSPOSED = 1, MATRIX_IS_STORE = 2 };
struct matrix_shape {
    uint32_t m, n, k;
};
unsigned matrix_bits(enum matrix_type type);
/* Of one lane's fragment. */
unsigned matrix_elements(struct matrix_shape shape, enum matrix_part part, enum matrix_type type, bool is_wmma);
uint64_t matrix_packed(struct matrix_shape shape, unsigned flags); /* the step's immediate */
step step_matrix_multiply, step_matrix_load, step_matrix_store, step_matrix_rows, step_matrix_transpose;

/* Packed integers, in ops_packed.c. */
enum packed_operation { PACKED_ADD, PACKED_SUB, PACKED_ABSDIFF, PACKED_MIN, PACKED_MAX };
enum {
    PACKED_A_SIGNED = 1,
    PACKED_B_SIGNED = 2,
    PACKED_D_SIGNED = 4,
    PACKED_SATURATE = 8,
    PACKED_SUM = 16,
    PACKED_RELU = 32
};
step step_packed, step_pack;

/* In ops_async.c. */
enum { MBARRIER_INIT, MBARRIER_INVALIDATE, MBARRIER_ARRIVE, MBARRIER_DROP, MBARRIER_WAIT, MBARRIER_PARITY };
step step_async_load, step_mbarrier, step_mbarrier_pending;

/* Output of kernels, and calls that go wrong, in ops_print.c. */
step step_print, step_assert_failed, step_bad_call, step_too_deep;

/* Control, in run.c and barrier.c. */
step step_branch, step_branch_indexed, step_exit, step_trap, step_barrier, step_clock;
/* Warp-wide, in ops_warp.c. */
uint32_t warp_gather(struct warp *w, uint32_t *m, uint32_t members_at, uint32_t *members);
step step_shuffle, step_vote, step_match, step_reduce, step_warp_barrier, step_active_mask, step_elect;
enum { SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_BFLY, SHUFFLE_IDX };
enum { VOTE_ALL, VOTE_ANY, VOTE_UNI, VOTE_BALLOT };
enum { REDUCE_ADD, REDUCE_MIN_U, REDUCE_MAX_U, REDUCE_MIN_S, REDUCE_MAX_S, REDUCE_AND, REDUCE_OR, REDUCE_XOR };
enum { BARRIER_SYNC, BARRIER_ARRIVE, BARRIER_COUNT, BARRIER_ALL, BARRIER_ANY };
enum { CLOCK_TICKS, CLOCK_TICKS64, CLOCK_HIGH };

#endif
