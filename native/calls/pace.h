/* How often something may happen: so many at once, then one each so often. */
#ifndef GPUTAX_PACE_H
#define GPUTAX_PACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Takes one turn. `next_ns` is 0 at first; it may lie in memory that several processes share. False: it is too early. */
static inline bool pace_take(_Atomic uint64_t *next_ns, uint64_t each_ns, uint64_t at_once, uint64_t now_ns)
{
    uint64_t burst = at_once * each_ns, due = atomic_load(next_ns), from;
    do {
        from = due + burst < now_ns ? now_ns - burst : due;
        if (from + each_ns > now_ns)
            return false;
    } while (!atomic_compare_exchange_weak(next_ns, &due, from + each_ns));
    return true;
}

/* Whether a tenant may cause one more line in a log. */
static inline bool pace_line(_Atomic uint64_t *next_ns, uint64_t now_ns)
{
    return pace_take(next_ns, 1000000000, 20, now_ns);
}

#endif
