/* The compiler of kernels as the rest of the device sees it. */
#ifndef GPUTAX_COMPILE_H
#define GPUTAX_COMPILE_H

#include "device/ptx/inner.h"

/* Runs the launch as compiled code. False: the interpreter must. */
bool compile_run(const struct ptx_kernel *kernel, const struct ptx_launch *launch, CUresult *result);
/* The interpreter ran this kernel for so long. */
void compile_interpreted(const struct ptx_kernel *kernel, uint64_t ns);
/* The module is being unloaded: its code goes. */
void compile_forget(const struct ptx_code *code);

#endif
