/* Rings and takes a doorbell: an event channel by the interface of the kernel's driver, or a socket. */
#include "doorbell.h"

#include <sys/socket.h>
#include <unistd.h>

#include "include/xen_abi.h"

void doorbell_ring(const struct doorbell *doorbell)
{
    static const char ring = 1;
    struct xen_notify notify = {.port = doorbell->port};
    if (doorbell->port != 0)
        ioctl(doorbell->descriptor, XEN_NOTIFY, &notify);
    else
        send(doorbell->descriptor, &ring, sizeof ring, MSG_DONTWAIT | MSG_NOSIGNAL); /* full: it has been rung */
}

void doorbell_take(const struct doorbell *doorbell)
{
    char rings[256];
    uint32_t port;
    if (doorbell->port == 0) {
        while (recv(doorbell->descriptor, rings, sizeof rings, MSG_DONTWAIT) == (ssize_t)sizeof rings) {
        }
    } else if (read(doorbell->descriptor, &port, sizeof port) == (ssize_t)sizeof port) {
        /* The kernel masks a port that it has reported; what came meanwhile is reported once it is unmasked. */
        (void)!write(doorbell->descriptor, &port, sizeof port);
    }
}
