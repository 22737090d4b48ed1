/* The guest's end: for each client it grants memory, tells dom0 where it is, and gives it to the client with the welcome. */
#include "link/guest.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "link/channel.h"
#include "link/ends.h"
#include "link/key.h"
#include "link/xenstore.h"
#include "wire/passing.h"

enum { ANSWER_MS = 60000, LOOK_MS = 1000 };

struct connection {
    int client;
    unsigned int host;
    unsigned long number;
    struct xenstore store;
    struct link_pages *pages;
    int pages_file, region;
    struct doorbell control, bell;
    char path[64];
    char why[256];
};

static bool fail(struct connection *c, const char *what)
{
    snprintf(c->why, sizeof c->why, "%s: %s", what, strerror(errno));
    return false;
}

static bool make_memory(struct connection *c, struct link_key *key)
{
    c->pages_file = grants_make(c->host, LINK_PAGES, key->references);
    if (c->pages_file < 0)
        return fail(c, "/dev/xen/gntalloc");
    void *at = mmap(NULL, sizeof *c->pages, PROT_READ | PROT_WRITE, MAP_SHARED, c->pages_file, 0);
    if (at == MAP_FAILED)
        return fail(c, "granted pages");
    c->pages = at;
    c->region = grants_make(c->host, REGION_PAGES, c->pages->references);
    if (c->region < 0)
        return fail(c, "/dev/xen/gntalloc (its limit is /sys/module/xen_gntalloc/parameters/limit)");
    if (!channel_offer(&c->control, c->host) || !channel_offer(&c->bell, c->host))
        return fail(c, "/dev/xen/evtchn");
    key->control = c->control.port;
    key->bell = c->bell.port;
    atomic_store(&c->pages->guest_lives, 1);
    atomic_store(&c->pages->host_lives, 1);
    return grants_tell(c->pages_file, true, offsetof(struct link_pages, guest_lives), c->control.port) ||
           fail(c, "unmap notification");
}

static bool is_over(const struct connection *c)
{
    return atomic_load(&c->pages->host_lives) == 0 || link_hung_up(c->client);
}

/* Until dom0 rings or the client hangs up, at most this long. */
static void wait_a_while(const struct connection *c, int milliseconds)
{
    struct pollfd lines[] = {{.fd = c->control.descriptor, .events = POLLIN}, {.fd = c->client, .events = POLLRDHUP}};
    if (poll(lines, 2, milliseconds) > 0 && lines[0].revents != 0)
        doorbell_take(&c->control);
}

static bool wait_for_answer(struct connection *c)
{
    int64_t until = passing_now_ms() + ANSWER_MS;
    while (atomic_load(&c->pages->answered) == 0) {
        if (is_over(c) || passing_now_ms() > until) {
            snprintf(c->why, sizeof c->why, "no answer from dom0; is xen-link host running for this guest?");
            return false;
        }
        wait_a_while(c, LOOK_MS);
    }
    return true;
}

static bool join_ends(struct connection *c)
{
    struct link_key key;
    char text[KEY_BYTES];
    struct hello_bytes hello;
    if (!link_read_hello(c->client, &hello, c->why, sizeof c->why) || !make_memory(c, &key))
        return false;
    c->pages->hello = hello;
    key_write(&key, text);
    if (!xenstore_open(&c->store))
        return fail(c, "/dev/xen/xenbus");
    if (!xenstore_write(&c->store, c->path, text))
        return fail(c, c->path);
    if (!wait_for_answer(c))
        return false;
    struct answer_bytes answer = c->pages->answer;
    const struct wire_parts parts = {c->region, c->bell.descriptor, c->bell.port};
    return link_answer(c->client, &answer, &parts) && !answer.refused;
}

/* The client has its own copies from here on: when it ends, the memory's last holder does. */
static void *serve(void *argument)
{
    struct connection *c = argument;
    if (join_ends(c)) {
        close(c->region);
        c->region = -1;
        channel_close(&c->bell);
        while (!is_over(c))
            wait_a_while(c, LOOK_MS);
    }
    if (c->why[0] != 0)
        fprintf(stderr, "xen-link: connection %lu: %s\n", c->number, c->why);
    xenstore_remove(&c->store, c->path);
    xenstore_close(&c->store);
    close(c->client);
    if (c->pages != NULL)
        munmap(c->pages, sizeof *c->pages);
    if (c->pages_file >= 0)
        close(c->pages_file);
    if (c->region >= 0)
        close(c->region);
    channel_close(&c->control);
    channel_close(&c->bell);
    free(c);
    return NULL;
}

int guest_serve(int listener, unsigned int host)
{
    for (unsigned long number = 1;; number++) {
        struct wire_peer peer;
        pthread_t thread;
        int client = wire_accept_socket(listener, &peer);
        struct connection *c = client < 0 ? NULL : malloc(sizeof *c);
        if (client < 0 && errno != EAGAIN)
            poll(NULL, 0, 10); /* out of descriptors */
        if (c != NULL) {
            *c = (struct connection){.client = client,
                                     .host = host,
                                     .number = number,
                                     .store = {.descriptor = -1},
                                     .pages_file = -1,
                                     .region = -1,
                                     .control = {-1, 0},
                                     .bell = {-1, 0}};
            snprintf(c->path, sizeof c->path, LINK_FOLDER "/%lu", number);
        }
        if (c != NULL && pthread_create(&thread, NULL, serve, c) == 0) {
            pthread_detach(thread);
        } else if (client >= 0) {
            close(client);
            free(c);
        }
    }
}
