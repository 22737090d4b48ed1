/* What the libraries' own cuMemFree tells the pools. */
#ifndef GPUTAX_DRIVER_POOLS_H
#define GPUTAX_DRIVER_POOLS_H

#include "cuda_calls.h"

void pools_forget(CUdeviceptr pointer); /* it is being freed, whoever allocated it */

#endif
