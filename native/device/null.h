/* Null kernels: launches that take a stated time and compute nothing, for images that nobody could run here. */
#ifndef GPUTAX_NULL_H
#define GPUTAX_NULL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads the setting; `suffix` gets what the device's name says of it ("" without null kernels). False: it makes no sense. */
bool null_open(char *suffix, size_t capacity);
bool null_kernels(void);
bool null_timed(void); /* whether any launch takes time */
/* Counts a launch of this kernel with that many blocks, and threads in each, and says how many ns it takes. */
double null_launch(const char *kernel, uint64_t blocks, uint64_t threads);

#endif
