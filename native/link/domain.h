/* The number of a Xen domain, as a word of the command line. */
#ifndef GPUTAX_LINK_DOMAIN_H
#define GPUTAX_LINK_DOMAIN_H

#include <stdbool.h>
#include <stdlib.h>

/* From 0x7ff0 on numbers are Xen's own names for domains, such as "myself". */
static inline bool domain_read(const char *text, unsigned int *domain)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    *domain = (unsigned int)value;
    return *text != 0 && *end == 0 && value < 0x7ff0;
}

#endif
