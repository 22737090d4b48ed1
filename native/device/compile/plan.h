/* A kernel as the compiler understands it: instructions, blocks, names and how each name varies among threads. */
#ifndef GPUTAX_COMPILE_PLAN_H
#define GPUTAX_COMPILE_PLAN_H

#include "device/compile/abi.h"
#include "device/ptx/form.h"

enum kind {
    KIND_FORM,
    KIND_STEP, /* the interpreter's step is called */
    KIND_LOAD,
    KIND_STORE,
    KIND_PARAMETER,
    KIND_BRANCH,
    KIND_EXIT,
    KIND_TRAP,
    KIND_BARRIER,
};

/* What an operation does to evenly spaced values. */
enum linear { LINEAR_NOT, LINEAR_ADD, LINEAR_SUB, LINEAR_MUL, LINEAR_MAD, LINEAR_SHL, LINEAR_MOV, LINEAR_NEG };

struct item { /* one instruction */
    const struct insn *in;
    const struct op_form *form;
    enum kind kind;
    enum linear linear;
    bool widens, sign;    /* of a linear operation: from 32 to 64 bits */
    bool blends;          /* threads that do not take part must keep the old value */
    uint8_t element;      /* of an access: bytes in memory */
    uint8_t source_count; /* operands in the order of the form */
    uint8_t made_count;
    uint32_t registers[5], made_registers[4];
    uint32_t sources[5], made[4]; /* names */
    uint32_t guard_register, guard;
    uint32_t block;
};

enum { NONE = 0xffffffffu };

struct block {
    uint32_t first, end; /* items */
    uint32_t next[2];    /* fall through; target; NONE */
    uint32_t post;       /* the block where all ways out of it meet; NONE: the end */
    uint32_t depth;      /* loops around it */
    bool divergent;      /* only some threads of a gang may be in it */
    bool joined;         /* threads may wait for it: it has a pending mask */
    bool after_barrier;
    uint64_t *live; /* registers that are read before they are written */
};

enum class {
    CLASS_UNSEEN,
    CLASS_EVEN,  /* first thread's value plus a known stride; stride 0: the same for all */
    CLASS_MAYBE, /* evenly spaced unless a widening overflowed, which is seen when it runs */
    CLASS_GENERAL
};

struct name {
    uint8_t bytes; /* 0: predicate */
    uint8_t class;
    bool constant, given; /* a number; or filled before the start */
    int64_t stride;
    uint64_t value;   /* of a constant */
    uint32_t special; /* of a given one */
};

struct plan {
    const struct ptx_kernel *kernel;
    const struct ptx_code *code;
    uint32_t shape[3], axis; /* of the block of threads; which index runs over the threads of a gang */
    uint64_t shared_bytes;
    bool full; /* each gang has all its threads */
    struct item *items;
    uint32_t item_count;
    struct block *blocks;
    uint32_t block_count;
    uint32_t *register_at; /* by place in the register file, in words */
    uint32_t *register_slots;
    uint8_t *register_bytes;
    uint32_t register_count, words; /* words: of 64 registers in a set */
    struct name *names;             /* the first register_count are the registers themselves */
    uint32_t name_count, name_room;
    uint32_t barrier_count;
    const char *refusal;
    void *memory[16]; /* to be freed */
    uint32_t memory_count;
};

/* read.c: what each instruction is. False: refused, and why. */
bool plan_read(struct plan *plan);
/* flow.c */
bool plan_flow(struct plan *plan);
void flow_spread(struct plan *plan);                           /* marks blocks as divergent by the guards' classes */
uint32_t flow_meeting(const struct plan *plan, uint32_t from); /* the next block in which all are together */
/* names.c */
bool plan_names(struct plan *plan);
/* classes.c: for one axis; the cost of running so */
double plan_classes(struct plan *plan, uint32_t axis);
/* How what an instruction makes varies among threads, whatever else its name stands for. */
struct shape {
    enum class class;
    int64_t stride;
};
struct shape item_shape(const struct plan *plan, const struct item *item);
static inline bool is_same(const struct name *name)
{
    return name->class == CLASS_EVEN && name->stride == 0;
}

void *plan_take(struct plan *plan, size_t count, size_t bytes);
void plan_close(struct plan *plan);
unsigned form_type_bytes(const char *type); /* 0: predicate; NONE: not known */

static inline bool set_has(const uint64_t *set, uint32_t at)
{
    return (set[at / 64] >> (at % 64)) & 1;
}
static inline void set_add(uint64_t *set, uint32_t at)
{
    set[at / 64] |= (uint64_t)1 << (at % 64);
}
static inline void set_drop(uint64_t *set, uint32_t at)
{
    set[at / 64] &= ~((uint64_t)1 << (at % 64));
}

#endif
