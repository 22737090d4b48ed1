/* Conformance of the transport "xen" where it differs: who may bring memory, and what a link says of its guest. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "link/ends.h"
#include "link/key.h"
#include "link/name.h"
#include "wire/passing.h"
#include "wire/shm.h"
#include "wire_cases.h"

static struct hello_bytes good_hello(void)
{
    struct hello_bytes hello = {.magic = WIRE_MAGIC, .protocol = WIRE_PROTOCOL, .transport = "xen"};
    return hello;
}

static int sealed_memory(size_t bytes, int seals)
{
    int file = memfd_create("link-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(file >= 0 && ftruncate(file, (off_t)bytes) == 0 && fcntl(file, F_ADD_SEALS, seals) == 0, "%s",
          strerror(errno));
    return file;
}

/* What a server that offers `only` answers to a hello with these descriptors. */
static void answer_to(const char *only, const int *passed, size_t count, struct answer_bytes *answer)
{
    int ends[2];
    char why[256] = "";
    struct hello_bytes hello = good_hello();
    struct wire_offer offer = {.backend = "b", .device = "d", .transport = only};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "%s", strerror(errno));
    CHECK(passing_send(ends[0], &hello, sizeof hello, passed, count), "%s", strerror(errno));
    struct wire *wire = wire_serve(ends[1], &offer, NULL, why, sizeof why);
    CHECK(recv(ends[0], answer, sizeof *answer, MSG_WAITALL) == (ssize_t)sizeof *answer, "%s", strerror(errno));
    CHECK((wire == NULL) == (answer->refused == 1), "a wire and a refusal: %s", answer->reason);
    if (wire != NULL)
        wire->ops->close(wire);
    close(ends[0]);
}

static void memory_only_where_links_are_offered(const char *transport)
{
    struct answer_bytes answer;
    int bells[2];
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, bells) == 0, "%s", strerror(errno));
    const int all[] = {sealed_memory(sizeof(struct shm_region), seals), bells[0]};
    answer_to(transport, all, 2, &answer);
    CHECK(answer.refused == 0, "%s", answer.reason);
    answer_to(transport, all, 1, &answer);
    CHECK(answer.refused == 1 && strstr(answer.reason, "without granted memory") != NULL, "'%s'", answer.reason);
    answer_to(transport, NULL, 0, &answer);
    CHECK(answer.refused == 1 && strstr(answer.reason, "without granted memory") != NULL, "'%s'", answer.reason);
    answer_to(NULL, all, 2, &answer); /* an ordinary socket of the proxy */
    CHECK(answer.refused == 1 && strstr(answer.reason, "not offered here") != NULL, "'%s'", answer.reason);
}

static const char *joined_with(int region, size_t count)
{
    static char why[256];
    int ends[2], bells[2];
    struct hello_bytes hello;
    struct wire_welcome welcome;
    struct answer_bytes answer = {.magic = WIRE_MAGIC, .protocol = WIRE_PROTOCOL, .transport = "xen"};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, bells) == 0, "%s", strerror(errno));
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "%s", strerror(errno));
    const int passed[] = {region, bells[0]};
    CHECK(passing_send(ends[1], &answer, sizeof answer, passed, count), "%s", strerror(errno));
    why[0] = 0;
    struct wire *wire = wire_greet(ends[0], "p", "xen", 0, &welcome, why, sizeof why);
    CHECK((wire == NULL) == (why[0] != 0), "a wire and a reason: %s", why);
    CHECK(recv(ends[1], &hello, sizeof hello, MSG_WAITALL) == (ssize_t)sizeof hello, "%s", strerror(errno));
    if (wire != NULL)
        wire->ops->close(wire);
    close(ends[1]);
    return why;
}

static void memory_that_could_shrink(const char *transport)
{
    (void)transport;
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    CHECK(joined_with(sealed_memory(sizeof(struct shm_region), seals), 2)[0] == 0, "a good region");
    CHECK(strstr(joined_with(sealed_memory(4096, seals), 2), "4096 bytes") != NULL, "a small region");
    CHECK(strstr(joined_with(sealed_memory(sizeof(struct shm_region), F_SEAL_GROW), 2), "seals") != NULL, "unsealed");
    CHECK(strstr(joined_with(sealed_memory(sizeof(struct shm_region), seals), 1), "doorbell") != NULL, "no doorbell");
}

static void names_of_guests(const char *transport)
{
    (void)transport;
    struct pair pair = {0};
    struct wire_peer peer;
    char why[256];
    listen_somewhere(&pair, 0600);
    int server = link_connect(pair.path, 12, "0a1b-pod", 3, why, sizeof why);
    CHECK(server >= 0, "%s", why);
    int accepted = wire_accept_socket(pair.listener, &peer);
    CHECK(link_read_name(accepted, &peer) && peer.domain == 12 && strcmp(peer.pod, "0a1b-pod") == 0, "%u %s",
          peer.domain, peer.pod);
    CHECK(link_connect(pair.path, 0, "pod", 1, why, sizeof why) < 0, "domain 0 is not a guest");
    CHECK(link_connect(pair.path, 0x7ff0, "pod", 1, why, sizeof why) < 0, "a number of Xen's own");
    CHECK(link_connect(pair.path, 1, "a/b", 1, why, sizeof why) < 0, "a pod with a slash");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", pair.path);
    int nameless = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(connect(nameless, (struct sockaddr *)&address, sizeof address) == 0, "%s", strerror(errno));
    int other = wire_accept_socket(pair.listener, &peer);
    CHECK(!link_read_name(other, &peer), "a connection without a name");
    close(nameless);
    close(server);
    forget_socket(&pair);
}

static void another_transport_at_a_link(const char *transport)
{
    (void)transport;
    struct pair pair = {0};
    struct wire_welcome welcome;
    char why[512] = "";
    listen_somewhere(&pair, 0600);
    link_somewhere(&pair);
    CHECK(wire_connect(pair.link_path, "shm", 0, &welcome, why, sizeof why) == NULL, "shm through a link");
    CHECK(strstr(why, "GPUTAX_PROXY_TRANSPORT=xen") != NULL, "%s", why);
    forget_socket(&pair);
}

static void keys_of_a_hostile_guest(const char *transport)
{
    static const char *const bad[] = {
        "",
        "1",
        "1 5 6",
        "1 5 6 1 2 3 4 5",            /* one reference is missing */
        "1 5 6 1 2 3 4 5 6 7",        /* one too many */
        "1 5 6 1 2 3 4 5 6 ",         /* not the end */
        "2 5 6 1 2 3 4 5 6",          /* another version */
        "1 0 6 1 2 3 4 5 6",          /* no port */
        "1 5 0 1 2 3 4 5 6",          /* no port */
        "1 -5 6 1 2 3 4 5 6",         /* below zero */
        "1  5 6 1 2 3 4 5 6",         /* two blanks */
        "1 5 6 1 2 3 4 5 4294967296", /* above 32 bits */
        "1 5 6 1 2 3 4 5 99999999999999999999999",
        "1 5 6 1 2 3 4 5 0x6",
        "one 5 6 1 2 3 4 5 6",
    };
    (void)transport;
    struct link_key made = {.control = 5, .bell = UINT32_MAX}, read;
    char text[KEY_BYTES];
    for (int i = 0; i < LINK_PAGES; i++)
        made.references[i] = UINT32_MAX - (uint32_t)i;
    key_write(&made, text);
    CHECK(key_read(&read, text) && memcmp(&made, &read, sizeof made) == 0, "'%s'", text);
    CHECK(LINK_PAGES == 6 && key_read(&read, "1 5 6 1 2 3 4 5 6"), "a good key");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!key_read(&read, bad[i]), "'%s' was taken", bad[i]);
}

const struct wire_case link_cases[] = {
    {"memory only where links are offered", memory_only_where_links_are_offered, "xen"},
    {"memory that could shrink", memory_that_could_shrink, "xen"},
    {"names of guests", names_of_guests, "xen"},
    {"keys of a hostile guest", keys_of_a_hostile_guest, "xen"},
    {"another transport at a link", another_transport_at_a_link, "xen"},
    {NULL, NULL, NULL},
};
