/* What the one answer about the attributes of the device carries: for each number what the backend said of it. */
#ifndef GPUTAX_DEVICE_ATTRIBUTES_H
#define GPUTAX_DEVICE_ATTRIBUTES_H

#include <stdint.h>

enum { DEVICE_ATTRIBUTES = 256 }; /* CUDA 13 has 150 */

struct device_attribute {
    int32_t value;
    int32_t result;
};

#endif
