/* Makes and maps the shared region of the shared-memory transport: a memfd that nobody can resize. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm.h"
#include "transports.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

/* A region that could shrink would be a way to kill the other end by SIGBUS. */
enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static struct wire *failed(const char *what, char *why, size_t why_size)
{
    snprintf(why, why_size, "shared memory: %s: %s", what, strerror(errno));
    return NULL;
}

/* The client takes all 16 MiB at once, so that no page fault interrupts a copy, and its own control group pays for them. The
 * server takes pages as they are used: an idle tenant costs it next to nothing. */
static struct shm_region *map(int descriptor, enum shm_end end)
{
    int flags = MAP_SHARED | (end == SHM_CLIENT ? MAP_POPULATE : 0);
    void *at = mmap(NULL, sizeof(struct shm_region), PROT_READ | PROT_WRITE, flags, descriptor, 0);
    return at == MAP_FAILED ? NULL : at;
}

static struct wire *end_over(int descriptor, enum shm_end end, int socket, uint32_t spin_us, char *why, size_t why_size)
{
    struct shm_region *region = map(descriptor, end);
    if (region == NULL)
        return failed("mmap", why, why_size);
    struct wire *wire = shm_wire(region, end, socket, spin_us, 1);
    if (wire == NULL) {
        munmap(region, sizeof *region);
        errno = ENOMEM;
        return failed("allocation", why, why_size);
    }
    return wire;
}

static struct wire *serve(int socket, uint32_t spin_us, struct wire_parts *parts, char *why, size_t why_size)
{
    int descriptor = memfd_create("gputax-wire", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (descriptor < 0 && errno == EINVAL) /* Linux before 6.3 */
        descriptor = memfd_create("gputax-wire", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (descriptor < 0)
        return failed("memfd_create", why, why_size);
    struct wire *wire = NULL;
    if (ftruncate(descriptor, sizeof(struct shm_region)) != 0)
        failed("ftruncate", why, why_size);
    else if (fcntl(descriptor, F_ADD_SEALS, SEALS) != 0)
        failed("sealing", why, why_size);
    else
        wire = end_over(descriptor, SHM_SERVER, socket, spin_us, why, why_size);
    if (wire == NULL)
        close(descriptor);
    else
        parts->region = descriptor;
    return wire;
}

/* What speaks against a region that the other side made, into `why`. Granted pages are a device's and have neither size nor
 * seals; they stay mapped whatever their owner does. */
static bool is_whole(int region, bool granted_too, char *why, size_t why_size)
{
    struct stat facts;
    if (region < 0) {
        snprintf(why, why_size, "shared memory: the proxy's welcome came without the region");
        return false;
    }
    if (fstat(region, &facts) != 0) {
        failed("fstat", why, why_size);
        return false;
    }
    if (granted_too && S_ISCHR(facts.st_mode))
        return true;
    int seals = fcntl(region, F_GET_SEALS);
    if (facts.st_size == (off_t)sizeof(struct shm_region) && seals >= 0 && (seals & SEALS) == SEALS)
        return true;
    snprintf(why, why_size, "shared memory: the proxy's region has %lld bytes and seals %#x, not %zu and %#x",
             (long long)facts.st_size, (unsigned)seals, sizeof(struct shm_region), (unsigned)SEALS);
    return false;
}

static struct wire *join(int socket, struct wire_parts *parts, char *why, size_t why_size)
{
    if (!is_whole(parts->region, false, why, why_size))
        return NULL;
    return end_over(parts->region, SHM_CLIENT, socket, 0, why, why_size);
}

const struct transport shm_transport = {"shm", false, serve, join};

/* The same region in memory that a link between two domains gives to both, with a doorbell in place of the futex: the
 * transport "xen". */

static struct wire *linked_end(int socket, struct wire_parts *parts, enum shm_end end, uint32_t spin_us, char *why,
                               size_t why_size)
{
    if (parts->region < 0 || parts->doorbell < 0) {
        snprintf(why, why_size, "transport 'xen': it came without granted memory and its doorbell; see docs/xen.md");
        return NULL;
    }
    struct doorbell doorbell = {parts->doorbell, parts->port};
    struct wire *wire = end_over(parts->region, end, socket, spin_us, why, why_size);
    if (wire != NULL) {
        shm_use_doorbell(wire, &doorbell);
        parts->doorbell = -1;
    }
    return wire;
}

/* Who connects where this transport is offered is the driver domain's own link, so its memory is taken as it is. */
static struct wire *serve_link(int socket, uint32_t spin_us, struct wire_parts *parts, char *why, size_t why_size)
{
    return linked_end(socket, parts, SHM_SERVER, spin_us, why, why_size);
}

static struct wire *join_link(int socket, struct wire_parts *parts, char *why, size_t why_size)
{
    if (parts->region >= 0 && !is_whole(parts->region, true, why, why_size))
        return NULL;
    return linked_end(socket, parts, SHM_CLIENT, 0, why, why_size);
}

const struct transport xen_transport = {"xen", true, serve_link, join_link};
