/* The meter that whoever serves a tenant has set; set once, before the first context. */
#include "device/meter.h"

#include <stddef.h>

#include "include/software_abi.h"

static struct gputax_meter meter;

void gputaxSetMeter(const struct gputax_meter *given)
{
    meter = *given;
}

bool meter_take(uint64_t bytes)
{
    return bytes == 0 || meter.take == NULL || meter.take(meter.who, bytes);
}

void meter_give_back(uint64_t bytes)
{
    if (bytes != 0 && meter.give_back != NULL)
        meter.give_back(meter.who, bytes);
}
