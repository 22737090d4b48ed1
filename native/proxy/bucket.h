/* A token bucket: how long to wait so that launches stay below a rate. */
#ifndef GPUTAX_PROXY_BUCKET_H
#define GPUTAX_PROXY_BUCKET_H

#include <stdint.h>

struct bucket {
    uint64_t per_second; /* 0: no limit */
    uint64_t next_ns;    /* when the next token is due if all were taken on time */
};

/* Takes one token and returns how many ns the caller must wait before it uses it. A pause earns a burst of a tenth of a
 * second's tokens, at least one. */
static inline uint64_t bucket_take(struct bucket *bucket, uint64_t now_ns)
{
    if (bucket->per_second == 0)
        return 0;
    const uint64_t second = 1000000000;
    uint64_t each = second / bucket->per_second;
    uint64_t burst = second / 10 > each ? second / 10 : each;
    if (bucket->next_ns + burst < now_ns)
        bucket->next_ns = now_ns - burst;
    bucket->next_ns += each;
    return bucket->next_ns > now_ns ? bucket->next_ns - now_ns : 0;
}

#endif
