/* What ran compiled and what interpreted, as JSON for whoever measures with this device; and warnings, each once. */
#include "device/compile/build.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "calls/pace.h"
#include "device/timeline.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void report_add(enum report what, uint64_t count)
{
    atomic_fetch_add_explicit(&shared_device()->counts[what], count, memory_order_relaxed);
}

void report_refusal(const char *why)
{
    pthread_mutex_lock(&lock);
    snprintf(shared_device()->refusal, SHARED_TEXT_BYTES, "%s", why);
    pthread_mutex_unlock(&lock);
    report_add(REPORT_KERNELS_REFUSED, 1);
}

/* The texts are ours, without quotes or backslashes. */
void report_warn(const char *text)
{
    static char last[SHARED_TEXT_BYTES];
    pthread_mutex_lock(&lock);
    if (strcmp(last, text) != 0) {
        snprintf(last, sizeof last, "%s", text);
        snprintf(shared_device()->warning, SHARED_TEXT_BYTES, "%s", text);
        if (pace_line(&shared_device()->next_line_ns, timeline_now()))
            fprintf(stderr, "gputax software device: %s\n", last);
    }
    pthread_mutex_unlock(&lock);
}

/* Writes a JSON object; returns its length, as snprintf does. Not a call of CUDA: found by name by those who know. */
__attribute__((visibility("default"))) int gputax_soft_report(char *to, size_t room);
int gputax_soft_report(char *to, size_t room)
{
#define COUNT(what, name) #name,
    static const char *const NAMES[] = {SOFTWARE_COUNTS(COUNT)};
#undef COUNT
    const struct gputax_shared_device *device = shared_device();
    int used = 0;
    for (int i = 0; i < SOFTWARE_COUNT; i++)
        used += snprintf(to ? to + used : NULL, to && (size_t)used < room ? room - (size_t)used : 0, "%s\"%s\": %llu",
                         i ? ", " : "{", NAMES[i],
                         (unsigned long long)atomic_load_explicit(&device->counts[i], memory_order_relaxed));
    pthread_mutex_lock(&lock);
    used += snprintf(to ? to + used : NULL, to && (size_t)used < room ? room - (size_t)used : 0,
                     ", \"refusal\": \"%s\", \"warning\": \"%s\"}", device->refusal, device->warning);
    pthread_mutex_unlock(&lock);
    return used;
}
