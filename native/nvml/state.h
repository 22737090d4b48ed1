/* What every answer of the library asks first. */
#ifndef GPUTAX_NVML_STATE_H
#define GPUTAX_NVML_STATE_H

#include <stdbool.h>

#define EXPORT __attribute__((visibility("default")))

bool nvml_initialised(void); /* whether anyone has called nvmlInit without nvmlShutdown */

#endif
