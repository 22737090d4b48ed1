/* Both halves of the handshake: hello, then welcome or refusal, each of fixed size and within a deadline. */
#include "handshake.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "handshake_bytes.h"
#include "transports.h"

enum { WELCOME_MS = 10000 }; /* the proxy may have to start a device first */

static const char magic[8] = WIRE_MAGIC;

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Takes the descriptor out of one message's control data; more than one is against the format. */
static void take_descriptor(struct msghdr *message, int *passed)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int descriptor;
            memcpy(&descriptor, CMSG_DATA(c) + i * sizeof(int), sizeof descriptor);
            if (passed != NULL && *passed < 0)
                *passed = descriptor;
            else
                close(descriptor);
        }
    }
}

/* Reads exactly `bytes` until the deadline. NULL when done, else what went wrong. `passed` NULL: no descriptor wanted,
 * and without room for control data the kernel drops any that are sent. */
static const char *read_within(int socket, void *to, size_t bytes, int64_t deadline, int *passed)
{
    size_t done = 0;
    while (done < bytes) {
        union {
            struct cmsghdr align;
            char bytes[CMSG_SPACE(sizeof(int))];
        } control;
        struct iovec part = {(char *)to + done, bytes - done};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        if (passed != NULL) {
            message.msg_control = control.bytes;
            message.msg_controllen = sizeof control.bytes;
        }
        ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got > 0) {
            if (passed != NULL)
                take_descriptor(&message, passed);
            done += (size_t)got;
        } else if (got == 0 || errno == ECONNRESET) {
            return "it hung up";
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            int64_t left = deadline - now_ms();
            struct pollfd readable = {.fd = socket, .events = POLLIN};
            if (left <= 0)
                return "it said nothing in time";
            poll(&readable, 1, (int)left);
        } else if (errno != EINTR) {
            return strerror(errno);
        }
    }
    return NULL;
}

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

/* A fresh socket's buffer always has room for the answer; a peer that made it otherwise gets none. */
static bool send_answer(int socket, const struct answer_bytes *answer, int passed)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec part = {(void *)(uintptr_t)answer, sizeof *answer};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (passed >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &passed, sizeof passed);
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof *answer;
}

void wire_refuse(int socket, const char *reason)
{
    struct answer_bytes answer = {.protocol = WIRE_PROTOCOL, .refused = 1};
    memcpy(answer.magic, magic, sizeof magic);
    copy_text(answer.reason, sizeof answer.reason, reason);
    send_answer(socket, &answer, -1);
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
    else if (offer->transport != NULL && strcmp(offer->transport, hello->transport) != 0)
        snprintf(why, why_size, "transport '%s' is not offered here, '%s' is", hello->transport, offer->transport);
    else
        return transport;
    return NULL;
}

static bool welcome_client(int socket, const struct wire_offer *offer, const char *transport, int passed)
{
    struct answer_bytes answer = {.protocol = WIRE_PROTOCOL, .tenant = offer->tenant, .quotas = offer->quotas};
    memcpy(answer.magic, magic, sizeof magic);
    copy_text(answer.transport, sizeof answer.transport, transport);
    copy_text(answer.backend, sizeof answer.backend, offer->backend);
    copy_text(answer.device, sizeof answer.device, offer->device);
    return send_answer(socket, &answer, passed);
}

struct wire *wire_serve(int socket, const struct wire_offer *offer, struct wire_hello *seen, char *why, size_t why_size)
{
    struct hello_bytes hello;
    const char *trouble = read_within(socket, &hello, sizeof hello, now_ms() + WIRE_HANDSHAKE_MS, NULL);
    if (trouble != NULL || memcmp(hello.magic, magic, sizeof magic) != 0) {
        snprintf(why, why_size, "no hello from the client: %s", trouble != NULL ? trouble : "it speaks something else");
        close(socket);
        return NULL;
    }
    clean_text(hello.transport, sizeof hello.transport);
    if (seen != NULL) {
        *seen = (struct wire_hello){.protocol = hello.protocol, .calls = hello.calls};
        copy_text(seen->transport, sizeof seen->transport, hello.transport);
    }
    const struct transport *transport = judge(&hello, offer, why, why_size);
    int passed = -1;
    struct wire *wire = transport != NULL ? transport->serve(socket, offer->spin_us, &passed, why, why_size) : NULL;
    if (wire == NULL) {
        wire_refuse(socket, why);
        return NULL;
    }
    bool sent = welcome_client(socket, offer, transport->name, passed);
    if (passed >= 0)
        close(passed);
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
static bool read_answer(int socket, const char *path, struct answer_bytes *answer, int *passed, char *why,
                        size_t why_size)
{
    const char *trouble = read_within(socket, answer, sizeof *answer, now_ms() + WELCOME_MS, passed);
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
    struct answer_bytes answer;
    int passed = -1;
    struct wire *wire = NULL;
    copy_text(hello.transport, sizeof hello.transport, transport);
    /* A server that refuses at once may have closed before our hello; its reason still waits to be read. */
    (void)!send(socket, &hello, sizeof hello, MSG_NOSIGNAL);
    if (read_answer(socket, path, &answer, &passed, why, why_size)) {
        const struct transport *known = transport_named(transport);
        fill_welcome(welcome, &answer);
        if (known != NULL && strcmp(answer.transport, transport) == 0)
            wire = known->join(socket, passed, why, why_size);
        else
            snprintf(why, why_size, "%s: asked for transport '%s', the GPU proxy chose '%s'", path, transport,
                     answer.transport);
    }
    if (passed >= 0)
        close(passed);
    if (wire == NULL)
        close(socket);
    return wire;
}

struct wire *wire_connect(const char *path, const char *transport, uint64_t calls, struct wire_welcome *welcome,
                          char *why, size_t why_size)
{
    const char *wanted = transport != NULL && *transport != 0 ? transport : wire_transports[0];
    if (transport_named(wanted) == NULL) {
        snprintf(why, why_size, "no transport '%s'; there are 'shm' and 'unix-socket'", wanted);
        return NULL;
    }
    int descriptor = connect_socket(path, why, why_size);
    return descriptor < 0 ? NULL : wire_greet(descriptor, path, wanted, calls, welcome, why, why_size);
}
