/* What ran compiled and what interpreted, as JSON for whoever measures with this device; and warnings, each once. */
#include "device/compile/build.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static _Atomic uint64_t counts[REPORT_COUNT];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char warning[512]; /* the last one; ours, without quotes or backslashes */
static const char *_Atomic refusal = "";

void report_add(enum report what, uint64_t count)
{
    atomic_fetch_add_explicit(&counts[what], count, memory_order_relaxed);
}

void report_refusal(const char *why)
{
    atomic_store(&refusal, why);
    report_add(REPORT_KERNELS_REFUSED, 1);
}

void report_warn(const char *text)
{
    pthread_mutex_lock(&lock);
    if (strcmp(warning, text) != 0) {
        snprintf(warning, sizeof warning, "%s", text);
        fprintf(stderr, "gputax software device: %s\n", warning);
    }
    pthread_mutex_unlock(&lock);
}

/* Writes a JSON object; returns its length, as snprintf does. Not a call of CUDA: found by name by those who know. */
__attribute__((visibility("default"))) int gputax_soft_report(char *to, size_t room);
int gputax_soft_report(char *to, size_t room)
{
    static const char *const NAMES[REPORT_COUNT] = {
        "kernels_compiled", "kernels_from_cache", "kernels_refused",      "cache_corrupted",
        "compiler_failed",  "launches_compiled",  "launches_interpreted", "compile_ns",
    };
    int used = 0;
    for (int i = 0; i < REPORT_COUNT; i++)
        used += snprintf(to ? to + used : NULL, to && (size_t)used < room ? room - (size_t)used : 0, "%s\"%s\": %llu",
                         i ? ", " : "{", NAMES[i],
                         (unsigned long long)atomic_load_explicit(&counts[i], memory_order_relaxed));
    pthread_mutex_lock(&lock);
    used += snprintf(to ? to + used : NULL, to && (size_t)used < room ? room - (size_t)used : 0,
                     ", \"refusal\": \"%s\", \"warning\": \"%s\"}", atomic_load(&refusal), warning);
    pthread_mutex_unlock(&lock);
    return used;
}
