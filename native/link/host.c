/* The driver domain's end: it maps what one guest has granted, and connects to the proxy in the guest's name.
 *
 * All that the guest says is copied out once and checked: ports and references are numbers that Xen itself checks against what
 * this very domain has granted, the hello goes to the proxy, which checks it as it does any client's. Who the guest is comes
 * from the command line.
 */
#include "link/host.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "link/channel.h"
#include "link/ends.h"
#include "link/key.h"
#include "link/xenstore.h"

enum { CONNECTIONS_MOST = 64, LOOK_MS = 1000, NAMES_BYTES = 4097 };

static struct {
    unsigned int domain;
    const char *pod, *proxy;
    _Atomic bool guest_gone;
    _Atomic unsigned int serving;
} link_state;

struct connection {
    unsigned long number;
    struct link_key key;
    struct link_pages *pages;
    int pages_file, region, server;
    struct doorbell control, bell;
    char why[256];
};

static bool fail(struct connection *c, const char *what)
{
    snprintf(c->why, sizeof c->why, "%s: %s", what, strerror(errno));
    return false;
}

static bool map_memory(struct connection *c)
{
    uint32_t references[REGION_PAGES];
    c->pages_file = grants_map(link_state.domain, LINK_PAGES, c->key.references);
    if (c->pages_file < 0)
        return fail(c, "/dev/xen/gntdev");
    if (!channel_bind(&c->control, link_state.domain, c->key.control) ||
        !channel_bind(&c->bell, link_state.domain, c->key.bell))
        return fail(c, "/dev/xen/evtchn");
    if (!grants_tell(c->pages_file, false, offsetof(struct link_pages, host_lives), c->control.port))
        return fail(c, "unmap notification");
    void *at = mmap(NULL, sizeof *c->pages, PROT_READ | PROT_WRITE, MAP_SHARED, c->pages_file, 0);
    if (at == MAP_FAILED)
        return fail(c, "the guest's pages");
    c->pages = at;
    memcpy(references, c->pages->references, sizeof references);
    c->region = grants_map(link_state.domain, REGION_PAGES, references);
    return c->region >= 0 || fail(c, "the guest's region");
}

static bool join_ends(struct connection *c)
{
    if (!map_memory(c))
        return false;
    struct hello_bytes hello = c->pages->hello;
    struct answer_bytes answer;
    const struct wire_parts parts = {c->region, c->bell.descriptor, c->bell.port};
    c->server = link_connect(link_state.proxy, link_state.domain, link_state.pod, c->number, c->why, sizeof c->why);
    if (c->server < 0 || !link_ask(c->server, &hello, &parts, &answer, c->why, sizeof c->why))
        return false;
    c->pages->answer = answer;
    atomic_store(&c->pages->answered, 1);
    doorbell_ring(&c->control);
    return !answer.refused;
}

static bool is_over(const struct connection *c)
{
    return atomic_load(&c->pages->guest_lives) == 0 || atomic_load(&link_state.guest_gone) || link_hung_up(c->server);
}

static void *serve(void *argument)
{
    struct connection *c = argument;
    if (join_ends(c)) {
        /* The worker alone holds the region and the bell from here on. */
        close(c->region);
        c->region = -1;
        channel_close(&c->bell);
        struct pollfd lines[] = {{.fd = c->control.descriptor, .events = POLLIN},
                                 {.fd = c->server, .events = POLLRDHUP}};
        while (!is_over(c))
            if (poll(lines, 2, LOOK_MS) > 0 && lines[0].revents != 0)
                doorbell_take(&c->control);
    }
    if (c->why[0] != 0)
        fprintf(stderr, "xen-link: domain %u, connection %lu: %s\n", link_state.domain, c->number, c->why);
    if (c->server >= 0)
        close(c->server);
    if (c->pages != NULL) {
        atomic_store(&c->pages->host_lives, 0);
        doorbell_ring(&c->control);
        munmap(c->pages, sizeof *c->pages);
    }
    if (c->region >= 0)
        close(c->region);
    if (c->pages_file >= 0)
        close(c->pages_file);
    channel_close(&c->control);
    channel_close(&c->bell);
    free(c);
    atomic_fetch_sub(&link_state.serving, 1);
    return NULL;
}

static void begin(unsigned long number, const struct link_key *key)
{
    pthread_t thread;
    struct connection *c = malloc(sizeof *c);
    if (c == NULL)
        return;
    *c = (struct connection){.number = number,
                             .key = *key,
                             .pages_file = -1,
                             .region = -1,
                             .server = -1,
                             .control = {-1, 0},
                             .bell = {-1, 0}};
    atomic_fetch_add(&link_state.serving, 1);
    if (pthread_create(&thread, NULL, serve, c) == 0) {
        pthread_detach(thread);
    } else {
        atomic_fetch_sub(&link_state.serving, 1);
        free(c);
    }
}

/* A guest counts its connections up; each number is served once. True when one had to wait for a free place. */
static bool look(struct xenstore *store, const char *folder, unsigned long *served)
{
    char names[NAMES_BYTES], path[128], text[KEY_BYTES];
    unsigned long last = *served;
    bool waits = false;
    if (!xenstore_list(store, folder, names, sizeof names))
        return false;
    for (const char *name = names; *name != 0; name += strlen(name) + 1) {
        char *end;
        unsigned long number = strtoul(name, &end, 10);
        struct link_key key;
        if (*end != 0 || number <= *served)
            continue;
        if (atomic_load(&link_state.serving) >= CONNECTIONS_MOST) {
            waits = true;
            continue;
        }
        snprintf(path, sizeof path, "%s/%lu", folder, number);
        if (xenstore_read(store, path, text, sizeof text) && key_read(&key, text))
            begin(number, &key);
        last = number > last ? number : last;
    }
    if (!waits)
        *served = last;
    return waits;
}

int host_serve(unsigned int domain, const char *pod, const char *proxy)
{
    struct xenstore store;
    char folder[128];
    unsigned long served = 0;
    snprintf(folder, sizeof folder, "/local/domain/%u/" LINK_FOLDER, domain);
    link_state.domain = domain;
    link_state.pod = pod;
    link_state.proxy = proxy;
    if (!xenstore_open(&store) || !xenstore_watch(&store, folder) || !xenstore_watch(&store, "@releaseDomain")) {
        fprintf(stderr, "xen-link: XenStore: %s\n", strerror(errno));
        return 1;
    }
    puts("ready");
    fflush(stdout);
    while (xenstore_is_alive(&store, domain)) {
        look(&store, folder, &served);
        xenstore_wait(&store, LOOK_MS);
    }
    atomic_store(&link_state.guest_gone, true);
    for (int i = 0; i < 50 && atomic_load(&link_state.serving) > 0; i++)
        poll(NULL, 0, 100);
    return 0;
}
