/* The agent: it watches what dom0 asks for, and gives each session pages and an event channel. */
#include "session/guest.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "link/channel.h"
#include "link/grants.h"
#include "link/xenstore.h"
#include "session/place.h"
#include "session/serve.h"

enum { LOOK_MS = 5000, NAMES_BYTES = 4097, NAME_MOST = 64 };

static int fail(const char *what)
{
    fprintf(stderr, "xen-session: %s: %s\n", what, strerror(errno));
    return 1;
}

/* In a process of its own: its end takes the pages away and tells dom0. */
static int serve(const char *name, unsigned int host)
{
    struct xenstore store;
    struct place place = {0};
    struct stream stream = {.in_guest = true, .bell = {-1, 0}};
    char path[sizeof PLACE_OFFERED + NAME_MOST + 2], text[PLACE_BYTES];
    int pages = grants_make(host, STREAM_PAGES, place.references);
    if (pages < 0)
        return fail("/dev/xen/gntalloc");
    void *at = mmap(NULL, sizeof *stream.pages, PROT_READ | PROT_WRITE, MAP_SHARED, pages, 0);
    if (at == MAP_FAILED)
        return fail("granted pages");
    stream.pages = at;
    if (!channel_offer(&stream.bell, host))
        return fail("/dev/xen/evtchn");
    place.port = stream.bell.port;
    atomic_store(&stream.pages->guest_lives, 1);
    atomic_store(&stream.pages->host_lives, 1);
    if (!grants_tell(pages, true, offsetof(struct stream_pages, guest_lives), stream.bell.port))
        return fail("unmap notification");
    snprintf(path, sizeof path, PLACE_OFFERED "/%.*s", (int)NAME_MOST, name);
    place_write(&place, text);
    if (!xenstore_open(&store) || !xenstore_write(&store, path, text))
        return fail(path);
    session_serve(&stream);
    return 0;
}

static void begin(struct xenstore *store, const char *name, unsigned int host)
{
    char path[sizeof PLACE_ASKED + NAME_MOST + 2];
    if (strlen(name) >= NAME_MOST)
        return;
    snprintf(path, sizeof path, PLACE_ASKED "/%.*s", (int)NAME_MOST, name);
    if (!xenstore_remove(store, path))
        return;
    pid_t session = fork();
    if (session == 0) {
        xenstore_close(store);
        signal(SIGCHLD, SIG_DFL);
        _exit(serve(name, host));
    }
    if (session < 0)
        fail("session");
}

int guest_agent(unsigned int host)
{
    struct xenstore store;
    char names[NAMES_BYTES];
    signal(SIGCHLD, SIG_IGN); /* sessions tell dom0 themselves how they end */
    if (!xenstore_open(&store) || !xenstore_watch(&store, PLACE_ASKED))
        return fail("XenStore");
    for (;;) {
        if (xenstore_list(&store, PLACE_ASKED, names, sizeof names))
            for (const char *name = names; *name != 0; name += strlen(name) + 1)
                begin(&store, name, host);
        xenstore_wait(&store, LOOK_MS);
    }
}
