/* What a worker gives up before it reads the first byte of its tenant. */
#ifndef GPUTAX_PROXY_CONFINE_H
#define GPUTAX_PROXY_CONFINE_H

#include <stdbool.h>
#include <stdint.h>

/* The measures, as bits of a worker's record; the names are those of the status. */
#define CONFINEMENTS(MEASURE) \
    MEASURE(NO_NEW_PRIVILEGES, "no_new_privs") \
    MEASURE(NOT_DUMPABLE, "not_dumpable") \
    MEASURE(NO_CORE, "no_core") \
    MEASURE(DESCRIPTORS, "descriptor_limit")
enum {
#define MEASURE(what, name) CONFINED_##what,
    CONFINEMENTS(MEASURE)
#undef MEASURE
        CONFINEMENT_COUNT
};

/* Gives up all it can, and returns what is in force, a bit for each measure. */
uint64_t confine(bool software);

#endif
