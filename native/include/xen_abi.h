/* The interface of Linux's Xen devices that the link uses: /dev/xen/evtchn, gntalloc, gntdev and xenbus. The kernel's own
 * headers need types of Xen's, and not every machine that builds this has them. */
#ifndef GPUTAX_XEN_ABI_H
#define GPUTAX_XEN_ABI_H

#include <stdint.h>
#include <sys/ioctl.h>

struct xen_bind_interdomain {
    unsigned int domain, port;
};
struct xen_bind_unbound {
    unsigned int domain;
};
struct xen_notify {
    unsigned int port;
};
struct xen_restrict {
    uint16_t domain;
};
#define XEN_BIND_INTERDOMAIN _IOC(_IOC_NONE, 'E', 1, sizeof(struct xen_bind_interdomain))
#define XEN_BIND_UNBOUND _IOC(_IOC_NONE, 'E', 2, sizeof(struct xen_bind_unbound))
#define XEN_NOTIFY _IOC(_IOC_NONE, 'E', 4, sizeof(struct xen_notify))
#define XEN_RESTRICT _IOC(_IOC_NONE, 'E', 6, sizeof(struct xen_restrict))

struct xen_grant_pages { /* of this domain's memory to another one */
    uint16_t domain;
    uint16_t flags;
    uint32_t count;
    uint64_t index; /* answer: the offset for mmap */
    uint32_t references[];
};
struct xen_map_references { /* of another domain's memory */
    uint32_t count;
    uint32_t padding;
    uint64_t index; /* answer: the offset for mmap */
    struct {
        uint32_t domain, reference;
    } references[];
};
struct xen_unmap_notify {
    uint64_t index;
    uint32_t action;
    uint32_t port;
};
enum { XEN_GRANT_WRITABLE = 1, XEN_CLEAR_BYTE = 1, XEN_SEND_EVENT = 2 };
/* The kernel counts one reference in the size of the first two. */
#define XEN_GRANT_PAGES _IOC(_IOC_NONE, 'G', 5, 24)
#define XEN_GRANTED_NOTIFY _IOC(_IOC_NONE, 'G', 7, sizeof(struct xen_unmap_notify))
#define XEN_MAP_REFERENCES _IOC(_IOC_NONE, 'G', 0, 24)
#define XEN_MAPPED_NOTIFY _IOC(_IOC_NONE, 'G', 7, sizeof(struct xen_unmap_notify))

enum xenstore_request {
    XENSTORE_DIRECTORY = 1,
    XENSTORE_READ = 2,
    XENSTORE_WATCH = 4,
    XENSTORE_WRITE = 11,
    XENSTORE_REMOVE = 13,
    XENSTORE_EVENT = 15,
    XENSTORE_ERROR = 16,
    XENSTORE_IS_INTRODUCED = 17,
};
struct xenstore_message {
    uint32_t type, request, transaction, bytes;
};
enum { XENSTORE_PAYLOAD_MOST = 4096 };

#endif
