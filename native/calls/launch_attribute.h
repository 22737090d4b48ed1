/* Attributes of a launch as they travel, and as graphs keep them: those whose values are plain numbers. */
#ifndef GPUTAX_LAUNCH_ATTRIBUTE_H
#define GPUTAX_LAUNCH_ATTRIBUTE_H

#include <stdint.h>

enum { LAUNCH_ATTRIBUTES_MOST = 8 };

/* The numbers that CUlaunchAttributeID has. */
enum launch_attribute_id {
    ATTRIBUTE_COOPERATIVE = 2,
    ATTRIBUTE_SYNCHRONISATION_POLICY = 3,
    ATTRIBUTE_CLUSTER_DIMENSION = 4,
    ATTRIBUTE_CLUSTER_SCHEDULING = 5,
    ATTRIBUTE_PROGRAMMATIC_SERIALISATION = 6,
    ATTRIBUTE_PRIORITY = 8,
    ATTRIBUTE_MEMORY_DOMAIN_MAP = 9,
    ATTRIBUTE_MEMORY_DOMAIN = 10,
    ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION = 11,
    ATTRIBUTE_SHARED_MEMORY_CARVEOUT = 14,
};

struct launch_attribute {
    uint32_t id;
    uint32_t value[3];
};

/* How many words its value has; 0: one that does not travel (addresses, events). */
static inline uint32_t launch_attribute_words(uint32_t id)
{
    switch (id) {
    case ATTRIBUTE_CLUSTER_DIMENSION:
    case ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        return 3;
    case ATTRIBUTE_COOPERATIVE:
    case ATTRIBUTE_SYNCHRONISATION_POLICY:
    case ATTRIBUTE_CLUSTER_SCHEDULING:
    case ATTRIBUTE_PROGRAMMATIC_SERIALISATION:
    case ATTRIBUTE_PRIORITY:
    case ATTRIBUTE_MEMORY_DOMAIN_MAP:
    case ATTRIBUTE_MEMORY_DOMAIN:
    case ATTRIBUTE_SHARED_MEMORY_CARVEOUT:
        return 1;
    default:
        return 0;
    }
}

#endif
