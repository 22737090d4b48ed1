/* What the compiler's instrumentation tells while one input runs. */
#ifndef GPUTAX_FUZZ_COVERAGE_H
#define GPUTAX_FUZZ_COVERAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { COVERAGE_SLOTS = 1 << 16, COMPARISONS = 256 };

struct comparison { /* two numbers that the code under test compared and that differed */
    uint64_t left, right;
    unsigned bytes;
};

void coverage_start(void);
/* How many edges, or counts of them, the run since coverage_start reached that no remembered run had reached. */
size_t coverage_new(bool remember);
size_t coverage_edges(void);
void coverage_forget(void);
/* Some comparison of the last run; false if there was none. */
bool coverage_comparison(uint32_t random, struct comparison *comparison);

#endif
