/* The handshake of a link with a tenant's library and with the GPU proxy. */
#include "link/ends.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "link/name.h"
#include "wire/passing.h"

enum { ANSWER_MS = 20000 }; /* the proxy may have to start a device first */

static const char magic[8] = WIRE_MAGIC;

bool link_read_hello(int client, struct hello_bytes *hello, char *why, size_t why_size)
{
    const char *trouble = passing_read(client, hello, sizeof *hello, passing_now_ms() + WIRE_HANDSHAKE_MS, NULL, 0);
    if (trouble != NULL || memcmp(hello->magic, magic, sizeof magic) != 0) {
        snprintf(why, why_size, "no hello from the client: %s", trouble != NULL ? trouble : "it speaks something else");
        return false;
    }
    hello->transport[sizeof hello->transport - 1] = 0;
    if (strcmp(hello->transport, xen_transport.name) == 0)
        return true;
    struct answer_bytes answer = {.protocol = WIRE_PROTOCOL, .refused = 1};
    memcpy(answer.magic, magic, sizeof magic);
    snprintf(answer.reason, sizeof answer.reason,
             "in a Xen guest the transport is 'xen'; set GPUTAX_PROXY_TRANSPORT=xen");
    passing_send(client, &answer, sizeof answer, NULL, 0);
    snprintf(why, why_size, "the client asked for another transport than 'xen'");
    return false;
}

int link_connect(const char *path, unsigned int domain, const char *pod, unsigned long connection, char *why,
                 size_t why_size)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        snprintf(why, why_size, "%s: longer than the path of a socket", path);
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    struct sockaddr_un own = {0};
    socklen_t own_size = link_name(&own, domain, pod, getpid(), connection);
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (own_size == 0)
        errno = EINVAL;
    if (server >= 0 && own_size != 0 && bind(server, (struct sockaddr *)&own, own_size) == 0 &&
        connect(server, (struct sockaddr *)&address, sizeof address) == 0)
        return server;
    snprintf(why, why_size, "%s: %s", path, strerror(errno));
    if (server >= 0)
        close(server);
    return -1;
}

bool link_ask(int server, struct hello_bytes *hello, const struct wire_parts *parts, struct answer_bytes *answer,
              char *why, size_t why_size)
{
    const int passed[] = {parts->region, parts->doorbell};
    hello->doorbell = parts->port;
    /* A proxy that refuses at once may have closed before the hello; its reason still waits to be read. */
    (void)passing_send(server, hello, sizeof *hello, passed, 2);
    const char *trouble = passing_read(server, answer, sizeof *answer, passing_now_ms() + ANSWER_MS, NULL, 0);
    if (trouble != NULL || memcmp(answer->magic, magic, sizeof magic) != 0) {
        snprintf(why, why_size, "no answer from the GPU proxy: %s", trouble != NULL ? trouble : "it speaks otherwise");
        return false;
    }
    return true;
}

bool link_answer(int client, struct answer_bytes *answer, const struct wire_parts *parts)
{
    const int passed[] = {parts->region, parts->doorbell};
    answer->doorbell = parts->port;
    return passing_send(client, answer, sizeof *answer, passed, answer->refused ? 0 : 2);
}

bool link_hung_up(int socket)
{
    struct pollfd line = {.fd = socket, .events = POLLRDHUP};
    return poll(&line, 1, 0) > 0 && line.revents != 0;
}
