/* The two sockets of a link: a tenant's library on one side, the GPU proxy on the other, and the handshake between them.
 *
 * A link gives the same memory and the two ends of one doorbell to both sides, and then only watches that both live.
 */
#ifndef GPUTAX_LINK_ENDS_H
#define GPUTAX_LINK_ENDS_H

#include <stdbool.h>
#include <stddef.h>

#include "wire/handshake_bytes.h"
#include "wire/transports.h"

/* Reads the client's hello; one that wants another transport is refused with the reason. False: it was told and `why` says. */
bool link_read_hello(int client, struct hello_bytes *hello, char *why, size_t why_size);

/* Connects to the proxy's socket for links in the name of this guest: the socket's own name says it, see link_name. -1 with
 * the reason. */
int link_connect(const char *path, unsigned int domain, const char *pod, unsigned long connection, char *why,
                 size_t why_size);

/* Gives hello and memory to the proxy and reads its answer, a welcome or a refusal. */
bool link_ask(int server, struct hello_bytes *hello, const struct wire_parts *parts, struct answer_bytes *answer,
              char *why, size_t why_size);

/* Gives the answer, and with a welcome the memory, to the client. */
bool link_answer(int client, struct answer_bytes *answer, const struct wire_parts *parts);

/* Whether the other side of a socket has hung up. */
bool link_hung_up(int socket);

#endif
