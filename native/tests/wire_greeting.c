/* Conformance of the handshake: who gets in, what each side learns, and that nobody who misbehaves holds up others. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire/handshake_bytes.h"
#include "wire_cases.h"

static int open_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    CHECK(folder != NULL, "%s", strerror(errno));
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

static int raw_connection(const struct pair *pair)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", pair->path);
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(connect(descriptor, (struct sockaddr *)&address, sizeof address) == 0, "%s", strerror(errno));
    return descriptor;
}

/* Serves one connection that says `bytes` and then perhaps hangs up; the reason why it failed. */
static const char *serve_bytes(struct pair *pair, const void *bytes, size_t count, bool hang_up,
                               const struct wire_offer *offer, struct answer_bytes *answer)
{
    static char why[512];
    struct wire_peer peer = {0};
    why[0] = 0;
    int client = raw_connection(pair);
    CHECK(count == 0 || send(client, bytes, count, 0) == (ssize_t)count, "%s", strerror(errno));
    if (hang_up)
        shutdown(client, SHUT_WR);
    int socket = wire_accept_socket(pair->listener, &peer);
    CHECK(socket >= 0, "%s", strerror(errno));
    CHECK(peer.pid == getpid() && peer.uid == getuid() && peer.gid == getgid(), "the peer is %ld", (long)peer.pid);
    struct wire *wire = wire_serve(socket, offer, NULL, why, sizeof why);
    memset(answer, 0, sizeof *answer);
    ssize_t got = recv(client, answer, sizeof *answer, MSG_WAITALL);
    CHECK(got <= 0 || got == sizeof *answer, "an answer of %zd bytes", got);
    close(client);
    if (wire != NULL)
        wire->ops->close(wire);
    CHECK((wire == NULL) == (why[0] != 0), "a wire and a reason: %s", why);
    return why;
}

static void bad_hellos(const char *transport)
{
    struct pair pair = {0};
    struct answer_bytes answer;
    listen_somewhere(&pair, 0600);
    struct wire_offer offer = {.tenant = 3, .backend = "b", .device = "d", .calls = 42};
    struct hello_bytes good = {.magic = WIRE_MAGIC, .protocol = WIRE_PROTOCOL, .calls = 42};
    snprintf(good.transport, sizeof good.transport, "%s", transport);
    int before = open_descriptors();
    CHECK(serve_bytes(&pair, &good, sizeof good, false, &offer, &answer)[0] == 0 && answer.refused == 0 &&
              answer.tenant == 3,
          "a good hello was refused: %s", answer.reason);

    char garbage[64];
    memset(garbage, 'G', sizeof garbage);
    CHECK(strstr(serve_bytes(&pair, garbage, 64, false, &offer, &answer), "something else") != NULL, "garbage");
    CHECK(strstr(serve_bytes(&pair, &good, 30, true, &offer, &answer), "hung up") != NULL, "half a hello");
    CHECK(strstr(serve_bytes(&pair, "", 0, true, &offer, &answer), "hung up") != NULL, "no hello");

    struct hello_bytes hello = good;
    hello.protocol = WIRE_PROTOCOL + 1;
    serve_bytes(&pair, &hello, sizeof hello, false, &offer, &answer);
    CHECK(answer.refused == 1 && strstr(answer.reason, "protocol") != NULL, "wrong version: '%s'", answer.reason);
    hello = good;
    hello.calls = 41;
    serve_bytes(&pair, &hello, sizeof hello, false, &offer, &answer);
    CHECK(answer.refused == 1 && strstr(answer.reason, "tables of calls") != NULL, "other calls: '%s'", answer.reason);
    hello = good;
    memset(hello.transport, '\x1b', sizeof hello.transport); /* no end, and poison for a terminal */
    serve_bytes(&pair, &hello, sizeof hello, false, &offer, &answer);
    CHECK(answer.refused == 1 && strchr(answer.reason, '\x1b') == NULL, "no such transport: '%s'", answer.reason);
    offer.refusal = "too many tenants";
    serve_bytes(&pair, &good, sizeof good, false, &offer, &answer);
    CHECK(answer.refused == 1 && strcmp(answer.reason, offer.refusal) == 0, "refusal: '%s'", answer.reason);
    CHECK(open_descriptors() == before, "%d descriptors leaked", open_descriptors() - before);
    forget_socket(&pair);
}

static void silence(const char *transport)
{
    struct pair pair = {0};
    struct answer_bytes answer;
    struct wire_offer offer = {.backend = "b", .device = "d"};
    (void)transport;
    listen_somewhere(&pair, 0600);
    int64_t start = now_ms();
    const char *why = serve_bytes(&pair, "g", 1, false, &offer, &answer);
    CHECK(strstr(why, "nothing in time") != NULL, "%s", why);
    CHECK(now_ms() - start >= WIRE_HANDSHAKE_MS && now_ms() - start < WIRE_HANDSHAKE_MS + 1000, "after %lld ms",
          (long long)(now_ms() - start));
    /* Accepting does not wait for a silent client: the next one is accepted at once. */
    int silent = raw_connection(&pair);
    int second = raw_connection(&pair);
    struct wire_peer peer;
    start = now_ms();
    int a = wire_accept_socket(pair.listener, &peer);
    int b = wire_accept_socket(pair.listener, &peer);
    CHECK(a >= 0 && b >= 0 && now_ms() - start < 500, "accepting took %lld ms", (long long)(now_ms() - start));
    wire_refuse(a, "no");
    wire_refuse(b, "no");
    close(silent);
    close(second);
    forget_socket(&pair);
}

static void client_of(struct pair *pair, const char *transport, const char *expected)
{
    struct wire_welcome welcome;
    char why[512] = "";
    struct wire *wire = wire_connect(pair->path, transport, 9, &welcome, why, sizeof why);
    CHECK((wire == NULL) == (expected != NULL), "%s", why);
    CHECK(expected == NULL || strstr(why, expected) != NULL, "'%s' does not say '%s'", why, expected);
    CHECK(expected == NULL || strstr(expected, "transport") != NULL || strstr(why, pair->path) != NULL,
          "'%s' does not name the socket", why);
    if (wire == NULL)
        return;
    CHECK(welcome.tenant == 77 && welcome.protocol == WIRE_PROTOCOL && welcome.quotas.memory_bytes == 1 &&
              welcome.quotas.streams == 2 && welcome.quotas.modules == 3 && welcome.quotas.launches_per_s == 4,
          "tenant %llu", (unsigned long long)welcome.tenant);
    CHECK(strcmp(welcome.backend, "the backend") == 0 && strcmp(welcome.device, "the device") == 0, "%s",
          welcome.device);
    CHECK(strcmp(welcome.transport, transport) == 0 && strcmp(wire->ops->name, transport) == 0, "%s",
          welcome.transport);
    wire->ops->close(wire);
}

static void serve_client(const char *transport, const struct wire_offer *offer, const char *expected)
{
    struct pair pair = {0};
    struct wire_peer peer;
    struct wire_hello hello = {0};
    char why[512] = "";
    listen_somewhere(&pair, 0600);
    pair.other = fork();
    if (pair.other == 0) {
        client_of(&pair, transport, expected);
        exit(0);
    }
    int socket = wire_accept_socket(pair.listener, &peer);
    CHECK(socket >= 0 && peer.pid == pair.other, "the peer is %ld, not %ld", (long)peer.pid, (long)pair.other);
    pair.wire = wire_serve(socket, offer, &hello, why, sizeof why);
    CHECK(strcmp(hello.transport, transport) == 0 && hello.calls == 9, "the client asked for %s", hello.transport);
    forget_socket(&pair);
    close_pair(&pair, 0);
}

static void what_the_client_learns(const char *transport)
{
    struct wire_offer offer = {.tenant = 77, .quotas = {1, 2, 3, 4}, .backend = "the backend", .device = "the device"};
    serve_client(transport, &offer, NULL);
    offer.refusal = "the node is full";
    serve_client(transport, &offer, "refused: the node is full");
    offer.refusal = NULL;
    offer.calls = 10;
    serve_client(transport, &offer, "refused: client and proxy have different tables");
    offer.calls = 9;
    serve_client(transport, &offer, NULL);
    offer.transport = strcmp(transport, "shm") == 0 ? "unix-socket" : "shm";
    serve_client(transport, &offer, "is not offered here");

    struct pair nobody = {.path = "/tmp/wire-test-no-such-socket"};
    client_of(&nobody, transport, "no GPU proxy serves it");
    client_of(&nobody, "carrier-pigeon", "no transport 'carrier-pigeon'");
}

static void an_impostor(const char *transport)
{
    struct pair pair = {0};
    listen_somewhere(&pair, 0600);
    pair.other = fork();
    if (pair.other == 0) {
        client_of(&pair, transport, "is not a GPU proxy");
        client_of(&pair, transport, "it hung up");
        exit(0);
    }
    struct wire_peer peer;
    char noise[sizeof(struct answer_bytes)];
    memset(noise, 'N', sizeof noise);
    int socket = wire_accept_socket(pair.listener, &peer);
    CHECK(send(socket, noise, sizeof noise, 0) == sizeof noise, "%s", strerror(errno));
    close(wire_accept_socket(pair.listener, &peer));
    close(socket);
    forget_socket(&pair);
    close_pair(&pair, 0);
}

static void permissions(const char *transport)
{
    static const mode_t modes[] = {0600, 0660, 0666};
    static const mode_t masks[] = {0, 022, 077, 0777};
    for (size_t i = 0; i < 12; i++) {
        struct pair pair = {0};
        struct stat facts;
        mode_t before = umask(0);
        snprintf(pair.folder, sizeof pair.folder, "/tmp/wire-test-XXXXXX");
        CHECK(mkdtemp(pair.folder) != NULL, "%s", strerror(errno));
        chmod(pair.folder, 0755);
        snprintf(pair.path, sizeof pair.path, "%s/socket", pair.folder);
        char why[512] = "";
        umask(masks[i / 3]);
        pair.listener = wire_listen(pair.path, modes[i % 3], why, sizeof why);
        umask(before);
        CHECK(pair.listener >= 0 && stat(pair.path, &facts) == 0, "%s", why);
        CHECK((facts.st_mode & 07777) == modes[i % 3], "mode %o in place of %o", (unsigned)facts.st_mode,
              (unsigned)modes[i % 3]);
        if (geteuid() == 0 && modes[i % 3] != 0666) {
            pid_t stranger = fork();
            if (stranger == 0) {
                CHECK(setgid(65534) == 0 && setuid(65534) == 0, "%s", strerror(errno));
                client_of(&pair, transport, "permissions do not let");
                exit(0);
            }
            int status;
            waitpid(stranger, &status, 0);
            CHECK(status == 0, "a stranger: %#x", (unsigned)status);
        }
        forget_socket(&pair);
    }
}

static void stale_and_living_sockets(const char *transport)
{
    struct pair pair = {0};
    char why[512] = "";
    (void)transport;
    listen_somewhere(&pair, 0600);
    CHECK(wire_listen(pair.path, 0600, why, sizeof why) < 0 && strstr(why, "another server serves it") != NULL, "%s",
          why);
    close(pair.listener); /* dies without removing its file */
    pair.listener = wire_listen(pair.path, 0600, why, sizeof why);
    CHECK(pair.listener >= 0, "a stale socket: %s", why);
    close(raw_connection(&pair));
    wire_unlisten(pair.listener, pair.path);
    CHECK(access(pair.path, F_OK) != 0, "the socket file stays");
    FILE *file = fopen(pair.path, "w");
    CHECK(file != NULL && fclose(file) == 0, "%s", strerror(errno));
    CHECK(wire_listen(pair.path, 0600, why, sizeof why) < 0 && strstr(why, "is not a socket") != NULL, "%s", why);
    CHECK(unlink(pair.path) == 0 && rmdir(pair.folder) == 0, "%s", strerror(errno));
    CHECK(wire_listen(pair.path, 0600, why, sizeof why) < 0 && strstr(why, "its folder") != NULL, "%s", why);
    char long_path[300];
    memset(long_path, 'x', sizeof long_path);
    long_path[299] = 0;
    CHECK(wire_listen(long_path, 0600, why, sizeof why) < 0 && strstr(why, "107 bytes") != NULL, "%s", why);
}

const struct wire_case handshake_cases[] = {
    {"bad hellos", bad_hellos, "shm,unix-socket"},
    {"silence", silence, NULL},
    {"what the client learns", what_the_client_learns, "shm,unix-socket"},
    {"an impostor for a proxy", an_impostor, NULL},
    {"permissions", permissions, NULL},
    {"stale and living sockets", stale_and_living_sockets, NULL},
    {NULL, NULL, NULL},
};
