/* Connects clients of one socket with the GPU proxy at another, as two ends of xen-link do between domains. */
#include "link/local.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "link/ends.h"
#include "wire/shm.h"

struct connection {
    int client;
    const char *server_path;
    unsigned int domain;
    const char *pod;
    unsigned long number;
};

static int make_region(void)
{
    int region = memfd_create("gputax-link", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (region < 0 || ftruncate(region, sizeof(struct shm_region)) != 0 ||
        fcntl(region, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        if (region >= 0)
            close(region);
        return -1;
    }
    return region;
}

/* The whole handshake; true when both sides have what they need. */
static bool join_ends(const struct connection *connection, int server, char *why, size_t why_size)
{
    struct hello_bytes hello;
    struct answer_bytes answer;
    int bells[2] = {-1, -1};
    int region = make_region();
    bool joined = false;
    if (region < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, bells) != 0) {
        snprintf(why, why_size, "no memory or no socket: %s", strerror(errno));
    } else if (link_read_hello(connection->client, &hello, why, why_size)) {
        const struct wire_parts theirs = {region, bells[0], 0}, ours = {region, bells[1], 0};
        joined = link_ask(server, &hello, &theirs, &answer, why, why_size) &&
                 link_answer(connection->client, &answer, &ours) && !answer.refused;
    }
    for (int i = 0; i < 2; i++)
        if (bells[i] >= 0)
            close(bells[i]);
    if (region >= 0)
        close(region);
    return joined;
}

static void *serve(void *argument)
{
    struct connection connection = *(struct connection *)argument;
    char why[256] = "";
    free(argument);
    int server =
        link_connect(connection.server_path, connection.domain, connection.pod, connection.number, why, sizeof why);
    if (server >= 0 && join_ends(&connection, server, why, sizeof why)) {
        struct pollfd lines[] = {{.fd = connection.client, .events = POLLRDHUP}, {.fd = server, .events = POLLRDHUP}};
        while (poll(lines, 2, -1) < 0 && errno == EINTR) {
        }
    }
    if (why[0] != 0)
        fprintf(stderr, "local link: %s\n", why);
    if (server >= 0)
        close(server);
    close(connection.client);
    return NULL;
}

void local_link_serve(int listener, const char *server_path, unsigned int domain, const char *pod)
{
    for (unsigned long number = 1;; number++) {
        struct wire_peer peer;
        struct connection *connection = malloc(sizeof *connection);
        int client = wire_accept_socket(listener, &peer);
        pthread_t thread;
        if (connection == NULL || client < 0) {
            free(connection);
            if (client >= 0)
                close(client);
            if (client < 0 && errno != EAGAIN)
                return;
            continue;
        }
        *connection = (struct connection){client, server_path, domain, pod, number};
        if (pthread_create(&thread, NULL, serve, connection) == 0) {
            pthread_detach(thread);
        } else {
            close(client);
            free(connection);
        }
    }
}
