/* What the processes that share this device have in common: its memory size, its timeline, its report. */
#ifndef GPUTAX_DEVICE_SHARED_H
#define GPUTAX_DEVICE_SHARED_H

#include "include/software_abi.h"

/* The device's common part: this process's own unless shared_open found a shared one. */
struct gputax_shared_device *shared_device(void);
/* Reads GPUTAX_SOFT_SHARED. False when it is set and there is no such memory. */
bool shared_open(void);
bool shared_with_others(void); /* whether the common part is shared */

/* Takes device memory for this process; false when less than that is free of the device's `total`. */
bool shared_charge(uint64_t bytes, uint64_t total);
void shared_discharge(uint64_t bytes);
uint64_t shared_used(void);

void shared_count_context(bool alive);
uint64_t shared_contexts(void);

/* Notes that this process has work for the device. */
void shared_note_work(uint64_t now_ns);
/* Whether another process had any within this time. */
bool shared_contended(uint64_t now_ns, uint64_t within_ns);

#endif
