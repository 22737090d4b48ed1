/* Whole records with descriptors beside them, over a Unix stream socket and within a deadline: the bytes of the handshake. */
#ifndef GPUTAX_WIRE_PASSING_H
#define GPUTAX_WIRE_PASSING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PASSED_MOST = 2 }; /* descriptors beside one record */

int64_t passing_now_ms(void);

/* Reads exactly `bytes` until the deadline. NULL when done, else what went wrong. `passed` takes up to `wanted` descriptors
 * in their order, the rest of its places stay -1; with `wanted` 0 it may be NULL, and any that are sent are dropped. Those
 * that were taken are the caller's, whatever is returned. */
const char *passing_read(int socket, void *to, size_t bytes, int64_t deadline_ms, int *passed, size_t wanted);

/* Sends `bytes` and the descriptors that are not -1 in one piece, without waiting for room: a fresh socket has it. */
bool passing_send(int socket, const void *from, size_t bytes, const int *passed, size_t count);

#endif
