/* What the device and a compiled kernel say to each other. This text also stands in front of every generated C file. */
#ifndef GPUTAX_COMPILE_ABI_H
#define GPUTAX_COMPILE_ABI_H

#include <stdint.h>

enum { COMPILED_WIDTH = 8 }; /* threads that run together: a gang */
enum { GANG_ENDED = 0, GANG_AT_BARRIER = 1, GANG_FAILED = 2 };
enum { ENTRY_ENDED = -1 };

struct compiled_gang {
    char *state;     /* what it keeps over a barrier */
    char *local;     /* of its first thread */
    uint32_t tid[3]; /* of its first thread */
    uint32_t live;   /* a bit for each thread that exists */
    int32_t entry;   /* 0: the start; n: behind the n-th barrier */
};

/* What one access instruction knows: the block it hit last, as the number of good start addresses in it; `reach` counts
 * those from which a whole gang's footprint is good. */
struct compiled_range {
    uint64_t from, span, reach;
};

/* Everything that a block sees. */
struct compiled_call {
    const unsigned char *parameters;
    char *shared, *local; /* local: of the gang that runs */
    struct compiled_gang *gangs;
    uint32_t gang_count;
    struct compiled_range *ranges;
    char *registers; /* where operands lie for a step of the interpreter */
    uint32_t ctaid[3], nctaid[3];
    uint32_t fuel; /* backward branches until the next look at the clock */
    int fault;
    void *host;
    /* Finds the block of an address and notes it in the range; 0: there is none. */
    int (*find)(struct compiled_call *c, uint32_t access, uint64_t address, uint32_t bytes, uint64_t footprint,
                int write);
    /* The fuel is used up; not 0: stop. */
    int (*tick)(struct compiled_call *c);
    /* Runs one step of the interpreter on `registers`. */
    void (*step)(struct compiled_call *c, uint32_t insn, uint32_t active);
};

/* Runs all gangs of a block to their end; not 0: a fault, and its number is noted. */
typedef int compiled_block(struct compiled_call *c);

#endif
