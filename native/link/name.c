/* Writes and reads the name of a link's socket. */
#include "link/name.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { DOMAIN_MOST = 0x7fef }; /* the numbers above are Xen's own */

/* Kubernetes' uids and containerd's names: nothing that could be mistaken in a status or a log. */
static bool is_pod(const char *pod)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t length = strlen(pod);
    return length < WIRE_POD_MAX && strspn(pod, allowed) == length;
}

socklen_t link_name(struct sockaddr_un *address, unsigned int domain, const char *pod, pid_t link,
                    unsigned long connection)
{
    char *text = address->sun_path + 1; /* the leading 0 makes it abstract: there is no file to remove */
    size_t room = sizeof address->sun_path - 1;
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (domain == 0 || domain > DOMAIN_MOST || !is_pod(pod))
        return 0;
    int length = snprintf(text, room, "gputax-xen/%u/%s/%ld.%lu", domain, pod, (long)link, connection);
    if (length < 0 || (size_t)length >= room)
        return 0;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

bool link_read_name(int socket, struct wire_peer *peer)
{
    struct sockaddr_un address = {0};
    socklen_t size = sizeof address;
    char text[sizeof address.sun_path + 1] = "";
    unsigned int domain;
    int used = 0;
    if (getpeername(socket, (struct sockaddr *)&address, &size) != 0 ||
        size <= offsetof(struct sockaddr_un, sun_path) + 1 || address.sun_path[0] != 0)
        return false;
    memcpy(text, address.sun_path + 1, size - offsetof(struct sockaddr_un, sun_path) - 1);
    if (sscanf(text, "gputax-xen/%5u/%n", &domain, &used) != 1 || used == 0 || domain == 0 || domain > DOMAIN_MOST)
        return false;
    const char *end = strchr(text + used, '/');
    if (end == NULL || (size_t)(end - text) - (size_t)used >= sizeof peer->pod)
        return false;
    peer->domain = domain;
    snprintf(peer->pod, sizeof peer->pod, "%.*s", (int)(end - text - used), text + used);
    return is_pod(peer->pod);
}
