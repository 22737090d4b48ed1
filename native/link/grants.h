/* Pages of a guest that both domains see: granted in the guest (gntalloc), mapped in the driver domain (gntdev).
 *
 * One connection has the wire's region, page for page, and before it some pages of the link's own: the first holds the
 * handshake and who lives, the others the references of the region's pages.
 */
#ifndef GPUTAX_LINK_GRANTS_H
#define GPUTAX_LINK_GRANTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "wire/handshake_bytes.h"
#include "wire/shm.h"

enum {
    PAGE = 4096,
    REGION_PAGES = (sizeof(struct shm_region) + PAGE - 1) / PAGE,
    REFERENCES_A_PAGE = PAGE / sizeof(uint32_t),
    LIST_PAGES = (REGION_PAGES + REFERENCES_A_PAGE - 1) / REFERENCES_A_PAGE,
    LINK_PAGES = 1 + LIST_PAGES,
};

/* Written by both domains, so each copies out what it reads and believes nothing twice. */
struct link_pages {
    _Atomic uint8_t guest_lives, host_lives; /* cleared by the kernel of each domain when its link is gone */
    _Atomic uint32_t answered;
    struct hello_bytes hello;   /* of the client in the guest */
    struct answer_bytes answer; /* of the proxy */
    alignas(PAGE) uint32_t references[LIST_PAGES * REFERENCES_A_PAGE];
};
_Static_assert(sizeof(struct link_pages) == LINK_PAGES * PAGE, "the link's pages have no rest");

/* In the guest: new pages, all zero, granted to `domain`. A descriptor that maps them at offset 0, or -1 with errno. */
int grants_make(unsigned int domain, uint32_t count, uint32_t *references);

/* In the driver domain: the same for pages that `domain` has granted. They are mapped by mmap, once. */
int grants_map(unsigned int domain, uint32_t count, const uint32_t *references);

/* When the pages are no longer mapped here, for whatever reason, clears the byte at this offset and notifies the port. */
bool grants_tell(int grants, bool made_here, uint64_t offset, uint32_t port);

#endif
