/* Windows that begin with a question and end with a later one. */
#include "nvml/utilisation.h"

#include <stdbool.h>
#include <time.h>

enum { WINDOW_NS = 1000000000 / 6 }; /* the shortest sample period that nvml.h names */

struct sample {
    uint64_t at_ns;
    cuuint64_t kernels_ns, copies_ns;
};

static struct sample opened;    /* when the present window began */
static nvmlUtilization_t rates; /* of the window before it */
static bool has_rates;

static CUresult take_sample(busy_question *ask, struct sample *sample)
{
    struct timespec now;
    CUresult result = ask(&sample->kernels_ns, &sample->copies_ns);
    clock_gettime(CLOCK_MONOTONIC, &now);
    sample->at_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return result;
}

void utilisation_open(busy_question *ask)
{
    has_rates = false;
    opened = (struct sample){0};
    take_sample(ask, &opened); /* where nobody counts it, the next question says so */
}

static unsigned int share(uint64_t from_ns, uint64_t to_ns, uint64_t window_ns)
{
    uint64_t busy_ns = to_ns > from_ns ? to_ns - from_ns : 0;
    uint64_t percent = window_ns > 0 ? (busy_ns * 100 + window_ns / 2) / window_ns : 0;
    return percent < 100 ? (unsigned int)percent : 100;
}

/* A window that is too short says little: it goes on, and until it is long enough the one before it is the answer. */
CUresult utilisation_rates(busy_question *ask, nvmlUtilization_t *answer)
{
    struct sample now = {0};
    CUresult result = take_sample(ask, &now);
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t window_ns = now.at_ns - opened.at_ns;
    if (window_ns >= WINDOW_NS || !has_rates)
        rates = (nvmlUtilization_t){share(opened.kernels_ns, now.kernels_ns, window_ns),
                                    share(opened.copies_ns, now.copies_ns, window_ns)};
    if (window_ns >= WINDOW_NS) {
        opened = now;
        has_rates = true;
    }
    *answer = rates;
    return CUDA_SUCCESS;
}
