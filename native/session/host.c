/* Asks a guest for a session, maps its pages, and carries the session. What the guest says are numbers that Xen checks. */
#include "session/host.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "link/channel.h"
#include "link/grants.h"
#include "link/xenstore.h"
#include "session/carrier.h"
#include "session/place.h"

enum { OFFER_S = 300, LOOK_MS = 1000, PATH_BYTES = 160 };

static struct {
    struct xenstore store;
    unsigned int domain;
} guest;

static int fail(const char *what)
{
    fprintf(stderr, "xen-session: domain %u: %s: %s\n", guest.domain, what, strerror(errno));
    return CARRIER_BROKEN;
}

static bool is_gone(void)
{
    return !xenstore_is_alive(&guest.store, guest.domain);
}

/* Waits for the guest's answer. */
static bool find_place(struct place *place)
{
    char asked[PATH_BYTES], offered[PATH_BYTES], text[PLACE_BYTES];
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const time_t until = now.tv_sec + OFFER_S;
    unsigned long part = (unsigned long)now.tv_nsec;
    snprintf(asked, sizeof asked, "/local/domain/%u/" PLACE_ASKED "/%ld-%lu", guest.domain, (long)getpid(), part);
    snprintf(offered, sizeof offered, "/local/domain/%u/" PLACE_OFFERED "/%ld-%lu", guest.domain, (long)getpid(), part);
    if (!xenstore_watch(&guest.store, offered) || !xenstore_watch(&guest.store, "@releaseDomain") ||
        !xenstore_write(&guest.store, asked, "1"))
        return false;
    while (!xenstore_read(&guest.store, offered, text, sizeof text)) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (is_gone() || now.tv_sec > until) {
            xenstore_remove(&guest.store, asked);
            errno = is_gone() ? ESRCH : ETIMEDOUT;
            return false;
        }
        xenstore_wait(&guest.store, LOOK_MS);
    }
    xenstore_remove(&guest.store, offered);
    errno = EPROTO;
    return place_read(place, text);
}

int host_carry(unsigned int domain, int signals, const char *request, size_t bytes)
{
    struct place place;
    struct stream stream = {.in_guest = false, .bell = {-1, 0}};
    guest.domain = domain;
    if (!xenstore_open(&guest.store))
        return fail("XenStore");
    if (is_gone())
        return errno = ESRCH, fail("guest");
    if (!find_place(&place))
        return fail("no session from the guest's agent");
    int pages = grants_map(domain, STREAM_PAGES, place.references);
    if (pages < 0)
        return fail("/dev/xen/gntdev");
    if (!channel_bind(&stream.bell, domain, place.port))
        return fail("/dev/xen/evtchn");
    if (!grants_tell(pages, false, offsetof(struct stream_pages, host_lives), stream.bell.port))
        return fail("unmap notification");
    void *at = mmap(NULL, sizeof *stream.pages, PROT_READ | PROT_WRITE, MAP_SHARED, pages, 0);
    if (at == MAP_FAILED)
        return fail("the guest's pages");
    stream.pages = at;
    return carrier_run(&stream, signals, request, bytes, is_gone);
}
