/* What the workers of one identity use together, so that a quota is the identity's and not a connection's.
 *
 * Each worker writes its own line alone, and the broker clears the line when the worker is gone: a worker can be killed at
 * any moment and leaves no wrong sum and no lock behind.
 */
#ifndef GPUTAX_PROXY_ACCOUNT_H
#define GPUTAX_PROXY_ACCOUNT_H

#include "proxy/page.h"

enum account_kind { ACCOUNT_MEMORY, ACCOUNT_STREAMS, ACCOUNT_MODULES, ACCOUNT_KINDS };

struct account {
    _Atomic uint64_t seats; /* those in use are below; written by the broker */
    _Atomic uint64_t next_launch_ns;
    _Atomic uint64_t next_line_ns; /* of the log, see pace.h */
    _Atomic uint64_t use[SEATS][ACCOUNT_KINDS];
};

uint64_t account_used(const struct account *account, enum account_kind kind);

/* Takes `amount` for this seat; false if the identity would then have more than `most`. Of two workers that want the last
 * of it both may be refused, and never both served. */
bool account_take(struct account *account, uint32_t seat, enum account_kind kind, uint64_t amount, uint64_t most);
void account_give_back(struct account *account, uint32_t seat, enum account_kind kind, uint64_t amount);

/* Sets what this seat has; the same rule if `most` is not 0: false, and nothing is set, if it would be too much. */
bool account_set(struct account *account, uint32_t seat, enum account_kind kind, uint64_t amount, uint64_t most);

/* Takes one launch at so many per second; returns how many ns the caller must wait before it. A pause earns a burst of a
 * tenth of a second's launches, at least one. */
uint64_t account_launch(struct account *account, uint64_t per_second, uint64_t now_ns);

void account_clear(struct account *account, uint32_t seat);

#endif
