/* Makes new inputs from old ones. */
#ifndef GPUTAX_FUZZ_MUTATE_H
#define GPUTAX_FUZZ_MUTATE_H

#include <stddef.h>
#include <stdint.h>

enum { INPUT_MOST = 8192 };

struct input {
    uint8_t *bytes;
    size_t count;
};

uint64_t random_number(void);
void random_seed(uint64_t seed);
size_t random_below(size_t limit);

/* Changes `count` bytes at `bytes` (room for INPUT_MOST) in some ways, perhaps with parts of `other`; the new count. */
size_t mutate(uint8_t *bytes, size_t count, const struct input *other);

#endif
