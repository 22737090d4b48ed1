/* Event channels by the interface of /dev/xen/evtchn. */
#include "link/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "include/xen_abi.h"

static bool open_device(struct doorbell *channel)
{
    *channel = (struct doorbell){open("/dev/xen/evtchn", O_RDWR | O_CLOEXEC | O_NONBLOCK), 0};
    return channel->descriptor >= 0;
}

static bool bound(struct doorbell *channel, int port)
{
    if (port > 0) {
        channel->port = (uint32_t)port;
        return true;
    }
    int error = errno;
    channel_close(channel);
    errno = error;
    return false;
}

bool channel_offer(struct doorbell *channel, unsigned int domain)
{
    struct xen_bind_unbound ask = {domain};
    return open_device(channel) && bound(channel, ioctl(channel->descriptor, XEN_BIND_UNBOUND, &ask));
}

bool channel_bind(struct doorbell *channel, unsigned int domain, uint32_t port)
{
    struct xen_bind_interdomain ask = {domain, port};
    struct xen_restrict only = {(uint16_t)domain};
    if (!open_device(channel) || !bound(channel, ioctl(channel->descriptor, XEN_BIND_INTERDOMAIN, &ask)))
        return false;
    if (ioctl(channel->descriptor, XEN_RESTRICT, &only) == 0)
        return true;
    return bound(channel, -1);
}

void channel_close(struct doorbell *channel)
{
    if (channel->descriptor >= 0)
        close(channel->descriptor);
    *channel = (struct doorbell){-1, 0};
}
