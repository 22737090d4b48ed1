/* A filter of system calls from a table: those that are listed, with the arguments that are listed. */
#ifndef GPUTAX_CONFINE_SECCOMP_H
#define GPUTAX_CONFINE_SECCOMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What an argument must be for the row to hold; the low 32 bits are looked at, as the kernel does for these calls. */
enum argument_rule {
    ANY_ARGUMENTS,
    ARGUMENT_IS,      /* equal to the value */
    ARGUMENT_HAS,     /* all bits of the value are set */
    ARGUMENT_LACKS,   /* not all bits of the value are set */
    ARGUMENT_IS_SELF, /* this process's number */
};

struct call_row {
    int number;
    uint8_t argument; /* from 0 */
    enum argument_rule rule;
    uint32_t value;
    int error;       /* not 0: the row answers with it instead of its list's action */
    const char *why; /* for readers; nothing prints it */
};

/* Rows are tried in their order, so the most frequent calls come first. Calls that no row matches get `otherwise`, an
 * errno; 0: they are allowed, and the rows are those that are refused with EPERM. All threads of the process are
 * filtered, for good. A call of another architecture's interface kills the process. */
bool seccomp_restrict(const struct call_row *rows, size_t count, int otherwise);

#endif
