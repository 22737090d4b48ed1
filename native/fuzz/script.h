/* How a fuzz target reads its input as numbers, and how it says that something must never be. */
#ifndef GPUTAX_FUZZ_SCRIPT_H
#define GPUTAX_FUZZ_SCRIPT_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);
/* A target may have mutations of its own for the form that its input has. */
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t count, size_t most, unsigned int seed) __attribute__((weak));

struct script {
    const uint8_t *at;
    size_t left;
};

/* The next `bytes` bytes as a little-endian number; an input that has ended gives zeros. */
static inline uint64_t take_number(struct script *script, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes && script->left > 0; i++) {
        value |= (uint64_t)*script->at++ << (8 * i);
        script->left--;
    }
    return value;
}

/* abort is what every fuzzer counts as a crash. */
static inline void must_hold(int condition)
{
    if (!condition)
        abort();
}

#endif
