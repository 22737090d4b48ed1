/* Grants by the interface of the kernel's devices. */
#include "link/grants.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "include/xen_abi.h"

/* The descriptor if the call went well and gave offset 0, as it does on a device that was opened just now. */
static int checked(int device, int result, uint64_t index)
{
    if (result == 0 && index == 0)
        return device;
    int error = result == 0 ? EPROTO : errno;
    close(device);
    errno = error;
    return -1;
}

int grants_make(unsigned int domain, uint32_t count, uint32_t *references)
{
    struct xen_grant_pages *ask = calloc(1, sizeof *ask + count * sizeof *references + 8);
    int device = ask == NULL ? -1 : open("/dev/xen/gntalloc", O_RDWR | O_CLOEXEC);
    if (device >= 0) {
        ask->domain = (uint16_t)domain;
        ask->flags = XEN_GRANT_WRITABLE;
        ask->count = count;
        device = checked(device, ioctl(device, XEN_GRANT_PAGES, ask), ask->index);
        if (device >= 0)
            memcpy(references, ask->references, count * sizeof *references);
    }
    free(ask);
    return device;
}

int grants_map(unsigned int domain, uint32_t count, const uint32_t *references)
{
    struct xen_map_references *ask = calloc(1, sizeof *ask + count * sizeof *ask->references);
    int device = ask == NULL ? -1 : open("/dev/xen/gntdev", O_RDWR | O_CLOEXEC);
    if (device >= 0) {
        ask->count = count;
        for (uint32_t i = 0; i < count; i++) {
            ask->references[i].domain = domain;
            ask->references[i].reference = references[i];
        }
        device = checked(device, ioctl(device, XEN_MAP_REFERENCES, ask), ask->index);
    }
    free(ask);
    return device;
}

bool grants_tell(int grants, bool made_here, uint64_t offset, uint32_t port)
{
    struct xen_unmap_notify notify = {offset, XEN_CLEAR_BYTE | XEN_SEND_EVENT, port};
    return ioctl(grants, made_here ? XEN_GRANTED_NOTIFY : XEN_MAPPED_NOTIFY, &notify) == 0;
}
