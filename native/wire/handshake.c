/* Both halves of the handshake: hello, then welcome or refusal, each of fixed size and within a deadline. */
#include "handshake.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "handshake_bytes.h"
#include "passing.h"
#include "transports.h"

enum {
    WELCOME_MS = 10000,       /* the proxy may have to start a device first */
    LINKED_WELCOME_MS = 60000 /* and another domain must first be given time by its hypervisor */
};

static const char magic[8] = WIRE_MAGIC;

static void copy_text(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from != NULL ? from : "");
}

/* A text that came from the other side: ended somewhere, nothing that would confuse a terminal or a log. */
static void clean_text(char *text, size_t size)
{
    text[size - 1] = 0;
    for (size_t i = 0; text[i] != 0; i++) {
        if ((unsigned char)text[i] < ' ' || text[i] == 127)
            text[i] = '?';
    }
}

void wire_refuse(int socket, const char *reason)
{
    struct answer_bytes answer = {.protocol = WIRE_PROTOCOL, .refused = 1};
    memcpy(answer.magic, magic, sizeof magic);
    copy_text(answer.reason, sizeof answer.reason, reason);
    /* A fresh socket's buffer always has room for the answer; a peer that made it otherwise gets none. */
    passing_send(socket, &answer, sizeof answer, NULL, 0);
    /* Closing with the peer's bytes unread would reset the connection before it can read the reason. */
    char rest[sizeof(struct hello_bytes)];
    shutdown(socket, SHUT_WR);
    for (int i = 0; i < 8 && recv(socket, rest, sizeof rest, MSG_DONTWAIT) > 0; i++) {
    }
    close(socket);
}

/* What speaks against this hello, into `why`; NULL transport then. */
static const struct transport *judge(const struct hello_bytes *hello, const struct wire_offer *offer, char *why,
                                     size_t why_size)
{
    const struct transport *transport = transport_named(hello->transport);
    if (hello->protocol != WIRE_PROTOCOL)
        snprintf(why, why_size,
                 "the client speaks wire protocol %u, this proxy %d; use libvgpu and proxy of one release",
                 hello->protocol, (int)WIRE_PROTOCOL);
    else if (offer->refusal != NULL)
        snprintf(why, why_size, "%s", offer->refusal);
    else if (offer->calls != 0 && hello->calls != offer->calls)
        snprintf(why, why_size,
                 "client and proxy have different tables of calls; use libvgpu and proxy of one release");
    else if (transport == NULL)
        snprintf(why, why_size, "no transport '%s'", hello->transport);
    else if (transport->linked && offer->transport == NULL)
        snprintf(why, why_size,
                 "transport '%s' is not offered here; a guest reaches the proxy by xen-link (docs/xen.md)",
                 hello->transport);
    else if (offer->transport != NULL && strcmp(offer->transport, hello->transport) != 0)
        snprintf(why, why_size, "transport '%s' is not offered here, '%s' is", hello->transport, offer->transport);
    else
        return transport;
    return NULL;
}

static void drop_parts(struct wire_parts *parts)
{
    if (parts->region >= 0)
        close(parts->region);
    if (parts->doorbell >= 0)
        close(parts->doorbell);
    *parts = (struct wire_parts){-1, -1, 0};
}

static bool welcome_client(int socket, const struct wire_offer *offer, const char *transport, int region)
{
    struct answer_bytes answer = {.protocol = WIRE_PROTOCOL, .tenant = offer->tenant, .quotas = offer->quotas};
    memcpy(answer.magic, magic, sizeof magic);
    copy_text(answer.transport, sizeof answer.transport, transport);
    copy_text(answer.backend, sizeof answer.backend, offer->backend);
    copy_text(answer.device, sizeof answer.device, offer->device);
    return passing_send(socket, &answer, sizeof answer, &region, 1);
}

/* Whether a hello may bring memory with it: where nothing but a link is served. Elsewhere the kernel drops it. */
static bool is_linked(const struct wire_offer *offer)
{
    const struct transport *only = offer->transport != NULL ? transport_named(offer->transport) : NULL;
    return only != NULL && only->linked;
}

struct wire *wire_serve(int socket, const struct wire_offer *offer, struct wire_hello *seen, char *why, size_t why_size)
{
    struct hello_bytes hello;
    int passed[2] = {-1, -1};
    const char *trouble = passing_read(socket, &hello, sizeof hello, passing_now_ms() + WIRE_HANDSHAKE_MS, passed,
                                       is_linked(offer) ? 2 : 0);
    struct wire_parts parts = {passed[0], passed[1], 0};
    if (trouble != NULL || memcmp(hello.magic, magic, sizeof magic) != 0) {
        snprintf(why, why_size, "no hello from the client: %s", trouble != NULL ? trouble : "it speaks something else");
        drop_parts(&parts);
        close(socket);
        return NULL;
    }
    parts.port = hello.doorbell;
    clean_text(hello.transport, sizeof hello.transport);
    if (seen != NULL) {
        *seen = (struct wire_hello){.protocol = hello.protocol, .calls = hello.calls};
        copy_text(seen->transport, sizeof seen->transport, hello.transport);
    }
    const struct transport *transport = judge(&hello, offer, why, why_size);
    struct wire *wire = transport != NULL ? transport->serve(socket, offer->spin_us, &parts, why, why_size) : NULL;
    if (wire == NULL) {
        drop_parts(&parts);
        wire_refuse(socket, why);
        return NULL;
    }
    bool sent = welcome_client(socket, offer, transport->name, transport->linked ? -1 : parts.region);
    drop_parts(&parts);
    if (!sent) {
        snprintf(why, why_size, "the client was gone before its welcome");
        wire->ops->close(wire);
        return NULL;
    }
    return wire;
}

static int connect_socket(const char *path, char *why, size_t why_size)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = WELCOME_MS / 1000};
    struct timeval for_ever = {0};
    if (strlen(path) >= sizeof address.sun_path) {
        snprintf(why, why_size, "%s: longer than the %zu bytes of a socket's path", path, sizeof address.sun_path - 1);
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor >= 0) {
        /* A server that does not accept lets connect wait once its queue is full. */
        setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        if (connect(descriptor, (struct sockaddr *)&address, sizeof address) == 0) {
            setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &for_ever, sizeof for_ever);
            return descriptor;
        }
    }
    const char *hint = errno == ENOENT || errno == ECONNREFUSED ? "; no GPU proxy serves it (gputax proxy start)"
                       : errno == EACCES                        ? "; its permissions do not let this user in"
                                                                : "";
    snprintf(why, why_size, "%s: %s%s", path, strerror(errno), hint);
    if (descriptor >= 0)
        close(descriptor);
    return -1;
}

/* The server's answer, or what was wrong with it in `why`. */
static bool read_answer(int socket, const char *path, int64_t patience_ms, struct answer_bytes *answer, int passed[2],
                        char *why, size_t why_size)
{
    const char *trouble = passing_read(socket, answer, sizeof *answer, passing_now_ms() + patience_ms, passed, 2);
    if (trouble != NULL) {
        snprintf(why, why_size, "%s: no welcome from the GPU proxy: %s", path, trouble);
        return false;
    }
    clean_text(answer->reason, sizeof answer->reason);
    clean_text(answer->transport, sizeof answer->transport);
    clean_text(answer->backend, sizeof answer->backend);
    clean_text(answer->device, sizeof answer->device);
    if (memcmp(answer->magic, magic, sizeof magic) != 0)
        snprintf(why, why_size, "%s: what serves this socket is not a GPU proxy", path);
    else if (answer->refused)
        snprintf(why, why_size, "%s: the GPU proxy refused: %s", path, answer->reason);
    else if (answer->protocol != WIRE_PROTOCOL)
        snprintf(why, why_size, "%s: the GPU proxy speaks wire protocol %u, this library %d", path, answer->protocol,
                 (int)WIRE_PROTOCOL);
    else
        return true;
    return false;
}

static void fill_welcome(struct wire_welcome *welcome, const struct answer_bytes *answer)
{
    *welcome = (struct wire_welcome){.protocol = answer->protocol, .tenant = answer->tenant, .quotas = answer->quotas};
    copy_text(welcome->transport, sizeof welcome->transport, answer->transport);
    copy_text(welcome->backend, sizeof welcome->backend, answer->backend);
    copy_text(welcome->device, sizeof welcome->device, answer->device);
}

struct wire *wire_greet(int socket, const char *path, const char *transport, uint64_t calls,
                        struct wire_welcome *welcome, char *why, size_t why_size)
{
    struct hello_bytes hello = {.magic = WIRE_MAGIC, .protocol = WIRE_PROTOCOL, .calls = calls};
    struct answer_bytes answer = {0};
    int passed[2] = {-1, -1};
    struct wire *wire = NULL;
    copy_text(hello.transport, sizeof hello.transport, transport);
    /* A server that refuses at once may have closed before our hello; its reason still waits to be read. */
    (void)!send(socket, &hello, sizeof hello, MSG_NOSIGNAL);
    const struct transport *known = transport_named(transport);
    int64_t patience_ms = known != NULL && known->linked ? LINKED_WELCOME_MS : WELCOME_MS;
    bool welcomed = read_answer(socket, path, patience_ms, &answer, passed, why, why_size);
    struct wire_parts parts = {passed[0], passed[1], answer.doorbell};
    if (welcomed) {
        fill_welcome(welcome, &answer);
        if (known != NULL && strcmp(answer.transport, transport) == 0)
            wire = known->join(socket, &parts, why, why_size);
        else
            snprintf(why, why_size, "%s: asked for transport '%s', the GPU proxy chose '%s'", path, transport,
                     answer.transport);
    }
    drop_parts(&parts);
    if (wire == NULL)
        close(socket);
    return wire;
}

struct wire *wire_connect(const char *path, const char *transport, uint64_t calls, struct wire_welcome *welcome,
                          char *why, size_t why_size)
{
    const char *wanted = transport != NULL && *transport != 0 ? transport : wire_transports[0];
    if (transport_named(wanted) == NULL) {
        snprintf(why, why_size, "no transport '%s'; there are 'shm', 'unix-socket' and, in a Xen guest, 'xen'", wanted);
        return NULL;
    }
    int descriptor = connect_socket(path, why, why_size);
    return descriptor < 0 ? NULL : wire_greet(descriptor, path, wanted, calls, welcome, why, why_size);
}
