/* How many bytes a module image has: CUDA's own calls are given only its address. */
#ifndef GPUTAX_IMAGE_H
#define GPUTAX_IMAGE_H

#include <stddef.h>

enum { IMAGE_MOST = 64 << 20 }; /* larger images are refused on both sides */

/* The bytes of a PTX text (with its final 0), a cubin (ELF) or a fat binary, reading none at or behind `limit`. 0: the image
 * is longer than the limit or is none of these. */
size_t image_bytes(const void *image, size_t limit);

/* The fat binary behind the wrapper that nvcc puts into host programs; any other image stays what it is. Only for images
 * of this very process. */
const void *image_unwrapped(const void *image);

#endif
