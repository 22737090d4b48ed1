/* Receives gcc's -fsanitize-coverage=trace-pc,trace-cmp; itself compiled without it. */
#include "coverage.h"

#include <string.h>

static uint8_t counts[COVERAGE_SLOTS]; /* hits of each edge in this run */
static uint8_t seen[COVERAGE_SLOTS];   /* which powers of two of hits all runs have shown */
static uint16_t touched[COVERAGE_SLOTS];
static size_t touched_count;
static uintptr_t previous;
static struct comparison comparisons[COMPARISONS];
static size_t comparison_count;
static bool running;

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_cmp1(uint8_t a, uint8_t b);
void __sanitizer_cov_trace_cmp2(uint16_t a, uint16_t b);
void __sanitizer_cov_trace_cmp4(uint32_t a, uint32_t b);
void __sanitizer_cov_trace_cmp8(uint64_t a, uint64_t b);
void __sanitizer_cov_trace_const_cmp1(uint8_t a, uint8_t b);
void __sanitizer_cov_trace_const_cmp2(uint16_t a, uint16_t b);
void __sanitizer_cov_trace_const_cmp4(uint32_t a, uint32_t b);
void __sanitizer_cov_trace_const_cmp8(uint64_t a, uint64_t b);
void __sanitizer_cov_trace_cmpf(float a, float b);
void __sanitizer_cov_trace_cmpd(double a, double b);
void __sanitizer_cov_trace_switch(uint64_t value, uint64_t *cases);

void __sanitizer_cov_trace_pc(void)
{
    uintptr_t here = (uintptr_t)__builtin_return_address(0);
    here ^= here >> 16;
    size_t slot = (here ^ previous) % COVERAGE_SLOTS;
    previous = (here * 5) >> 1; /* so that an edge and its reverse differ */
    if (counts[slot] == 0 && running)
        touched[touched_count++] = (uint16_t)slot;
    if (counts[slot] < UINT8_MAX && running)
        counts[slot]++;
}

static void compared(uint64_t a, uint64_t b, unsigned bytes)
{
    if (running && a != b)
        comparisons[comparison_count++ % COMPARISONS] = (struct comparison){a, b, bytes};
}

void __sanitizer_cov_trace_cmp1(uint8_t a, uint8_t b)
{
    compared(a, b, 1);
}
void __sanitizer_cov_trace_cmp2(uint16_t a, uint16_t b)
{
    compared(a, b, 2);
}
void __sanitizer_cov_trace_cmp4(uint32_t a, uint32_t b)
{
    compared(a, b, 4);
}
void __sanitizer_cov_trace_cmp8(uint64_t a, uint64_t b)
{
    compared(a, b, 8);
}
void __sanitizer_cov_trace_const_cmp1(uint8_t a, uint8_t b)
{
    compared(a, b, 1);
}
void __sanitizer_cov_trace_const_cmp2(uint16_t a, uint16_t b)
{
    compared(a, b, 2);
}
void __sanitizer_cov_trace_const_cmp4(uint32_t a, uint32_t b)
{
    compared(a, b, 4);
}
void __sanitizer_cov_trace_const_cmp8(uint64_t a, uint64_t b)
{
    compared(a, b, 8);
}
void __sanitizer_cov_trace_cmpf(float a, float b)
{
    (void)a, (void)b;
}
void __sanitizer_cov_trace_cmpd(double a, double b)
{
    (void)a, (void)b;
}

void __sanitizer_cov_trace_switch(uint64_t value, uint64_t *cases)
{
    for (uint64_t i = 0; i < cases[0]; i++) /* count, bits of the value, then the cases */
        compared(value, cases[2 + i], (unsigned)cases[1] / 8);
}

void coverage_start(void)
{
    for (size_t i = 0; i < touched_count; i++)
        counts[touched[i]] = 0;
    touched_count = 0;
    previous = 0;
    comparison_count = 0;
    running = true;
}

/* Counts of 1, 2, 3, 4-7, 8-15, 16-31, 32-127 and more are told apart. */
static uint8_t bucket(uint8_t hits)
{
    int mark = hits <= 3 ? 1 << (hits - 1) : hits < 8 ? 8 : hits < 16 ? 16 : hits < 32 ? 32 : hits < 128 ? 64 : 128;
    return (uint8_t)mark;
}

size_t coverage_new(bool remember)
{
    size_t news = 0;
    running = false;
    for (size_t i = 0; i < touched_count; i++) {
        uint8_t mark = bucket(counts[touched[i]]);
        news += !(seen[touched[i]] & mark);
        if (remember)
            seen[touched[i]] |= mark;
    }
    return news;
}

size_t coverage_edges(void)
{
    size_t edges = 0;
    for (size_t i = 0; i < COVERAGE_SLOTS; i++)
        edges += seen[i] != 0;
    return edges;
}

void coverage_forget(void)
{
    memset(seen, 0, sizeof seen);
}

bool coverage_comparison(uint32_t random, struct comparison *comparison)
{
    size_t kept = comparison_count < COMPARISONS ? comparison_count : COMPARISONS;
    if (kept == 0)
        return false;
    *comparison = comparisons[random % kept];
    return true;
}
