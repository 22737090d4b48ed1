/* A kernel's name and the layout of its parameters, as cuModuleGetFunction and its answer carry them and as a launch packs
 * them. */
#ifndef GPUTAX_LAYOUT_H
#define GPUTAX_LAYOUT_H

#include <stdint.h>

enum {
    NAME_MOST = 7168, /* with its end: names of templates are long; what a message can carry (calls.toml) */
    PARAMETERS_MOST = 256,
    PARAMETER_BYTES_MOST = 32764, /* CUDA's limit since PTX 8.1 */
    PARAMETER_INLINE_MOST = 4096, /* what a message carries; more travels as bulk bytes */
};

struct parameter {
    uint32_t offset;
    uint32_t bytes;
};

/* The end of the last parameter, or UINT32_MAX if one does not fit. */
static inline uint32_t layout_bytes(const struct parameter *parameters, uint32_t count)
{
    uint32_t end = 0;
    for (uint32_t at = 0; at < count; at++) {
        const struct parameter *one = &parameters[at];
        if (one->offset > PARAMETER_BYTES_MOST || one->bytes > PARAMETER_BYTES_MOST - one->offset)
            return UINT32_MAX;
        if (one->offset + one->bytes > end)
            end = one->offset + one->bytes;
    }
    return end;
}

#endif
