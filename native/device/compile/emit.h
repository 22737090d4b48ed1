/* Writing C: a growing text, and what the parts of the emission share. */
#ifndef GPUTAX_COMPILE_EMIT_H
#define GPUTAX_COMPILE_EMIT_H

#include "device/compile/plan.h"

struct text {
    char *at;
    size_t length, room;
    bool failed;
};
void say(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

struct place { /* how the addresses of one access lie */
    const struct name *address;
    unsigned element, count, whole, wide; /* bytes in memory, how many, of all; bytes of a register */
    bool even, shared, global;
    uint64_t footprint;
};

struct root {             /* of an address */
    uint32_t base, index; /* names of 64 and of 32 bits; index NONE: the address is the base */
    int64_t scale;
    bool sign; /* how the index is widened */
};

struct cover { /* what a block touches around one root */
    uint32_t id;
    struct root root;
    bool global, write;
    int64_t low, end;    /* of addresses, from the root */
    int64_t least, most; /* of what is added to the index */
    unsigned align;
};

struct covered { /* an access: through which cover, and where from its root */
    uint32_t cover;
    int64_t offset;
};

struct turned {         /* a load that is a part of a row */
    uint32_t row, word; /* row 0: it is not */
    bool first;
    int64_t from; /* offset of the row */
};

enum { WORDS = 16, WORD_BYTES = 96 };
struct emitter {
    const struct plan *plan;
    struct text functions; /* in front of the kernel: one for each form that is used, tables of accesses */
    struct text body;
    bool *used; /* forms */
    uint32_t access_count, cover_count;
    bool *first, *lazy;      /* by item: computed before the block's checks; only where they fail */
    struct covered *covered; /* by item: what these checks say of it */
    bool *needed;            /* by name: used by others than covered accesses */
    uint32_t cover_ids;      /* so far */
    bool sure, unsure;       /* in the text where these have held; where they have not */
    struct turned *turned;   /* by item */
    uint32_t rows;           /* so far */
    uint32_t *state_at;      /* by register: its place in what a gang keeps; 0: not kept */
    uint32_t state_bytes;
    uint64_t *dirty,
        *restored;     /* by barrier: registers that go to their places in front of it, come from them behind it */
    uint32_t barriers; /* seen so far */
    char words[WORDS][WORD_BYTES];
    unsigned word;
};

/* Expressions; each lives until WORDS more have been made. */
const char *word(struct emitter *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *scalar_of(struct emitter *e, uint32_t name);
const char *spread_of(struct emitter *e, unsigned width, const char *scalar, int64_t stride); /* for all threads */
const char *vector_of(struct emitter *e, uint32_t name);
const char *scalar_type(unsigned bytes);
unsigned width_of(unsigned bytes);                                     /* of a lane; predicates have 4 */
const char *mask_of(const struct emitter *e, const struct item *item); /* who takes part, but for the guard */
bool takes_all(const struct emitter *e, const struct item *item);

/* `name = value`, a value that is evenly spaced, or a vector. */
void put_scalar(struct emitter *e, const struct item *item, uint32_t k, const char *value, int64_t stride);
void put_vector(struct emitter *e, const struct item *item, uint32_t k, const char *value);

void emit_item(struct emitter *e, uint32_t at);
void emit_access(struct emitter *e, const struct item *item);
struct place access_place(const struct emitter *e, const struct item *item);
bool access_is_sure(const struct emitter *e,
                    const struct item *item); /* whether a check of its range is all it needs */
void emit_items(struct emitter *e, uint32_t block);
void emit_entry(struct emitter *e);
void emit_block(struct emitter *e, uint32_t block);
void emit_end(struct emitter *e);

/* root.c: the root of an access, what is added to its index, and the access from there */
void root_read(const struct plan *plan, uint32_t at, struct root *root, int64_t *number, int64_t *offset);

/* turn.c: which covered loads are done in rows, with what that asks of the checks; the row that begins with an item */
void turn_choose(struct emitter *e, const struct block *block, struct cover *covers, uint32_t count);
void turn_emit(struct emitter *e, uint32_t at);

/* state.c; barrier 0: all that is kept */
bool state_waits_apart(const struct plan *plan); /* whether some of a gang may wait where others do not */
bool state_place(struct emitter *e);
void state_save(struct emitter *e, uint32_t barrier, const uint64_t *live);
void state_restore(struct emitter *e, uint32_t barrier);

/* emit.c: the whole file; NULL: no memory. The caller frees it. */
char *emit_kernel(const struct plan *plan, uint32_t *state_bytes, uint32_t *range_count);

/* prelude.c */
extern const char PRELUDE_TEXT[];

#endif
