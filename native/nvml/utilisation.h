/* Utilisation: the share of a window of time in which the device worked for this process. */
#ifndef GPUTAX_NVML_UTILISATION_H
#define GPUTAX_NVML_UTILISATION_H

#include <stdint.h>

#include "include/cuda_abi.h"
#include "nvml/nvml_abi.h"

/* Asks the proxy how long the device worked for this process so far. */
typedef CUresult busy_question(cuuint64_t *kernels_ns, cuuint64_t *copies_ns);

/* Begins the first window. Both are called by one thread at a time. */
void utilisation_open(busy_question *ask);
/* CUDA_ERROR_NOT_SUPPORTED where nobody counts it. */
CUresult utilisation_rates(busy_question *ask, nvmlUtilization_t *rates);

#endif
