/* Host memory that the device takes on behalf of a program: metered, where somebody keeps an account of it. */
#ifndef GPUTAX_METER_H
#define GPUTAX_METER_H

#include <stdbool.h>
#include <stdint.h>

/* False: it would be more than the program may have. Without a meter there is always enough. */
bool meter_take(uint64_t bytes);
void meter_give_back(uint64_t bytes);

#endif
