/* What the calls on captured streams (captured.c) need of the captures (capture.c). */
#ifndef GPUTAX_DRIVER_CAPTURE_H
#define GPUTAX_DRIVER_CAPTURE_H

#include "driver/front.h"

bool capture_has(CUstream stream); /* whether it is being captured */
void capture_forget_context(CUcontext context);
CUresult capture_conflicts(CUcontext context); /* makes its captures void, if there are any */

/* Adds a node behind what the stream has captured; takes the block over. */
CUresult capture_add(CUstream stream, const struct graph_step *step, uint8_t *block);
CUresult capture_break(CUstream stream, CUresult why); /* ends what the stream captures with this error */

#endif
