/* xen-link: joins libvgpu in a Xen guest with the GPU proxy in its driver domain, one end in each. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "link/domain.h"
#include "link/guest.h"
#include "link/host.h"
#include "wire/handshake.h"

static const char usage[] =
    "usage: xen-link guest SOCKET [DRIVER-DOMAIN]\n"
    "       xen-link host DOMAIN POD PROXY-XEN-SOCKET\n"
    "The guest's end serves libvgpu at SOCKET (GPUTAX_PROXY_TRANSPORT=xen). The other end runs\n"
    "where the GPU proxy does, for one guest, and ends with it.\n";

static int guest(const char *path, unsigned int host)
{
    char why[512];
    int listener = wire_listen(path, 0666, why, sizeof why); /* all of a guest is one tenant */
    if (listener < 0) {
        fprintf(stderr, "xen-link: %s\n", why);
        return 1;
    }
    puts("ready");
    fflush(stdout);
    return guest_serve(listener, host);
}

int main(int count, char **words)
{
    unsigned int domain = 0;
    signal(SIGPIPE, SIG_IGN);
    if ((count == 3 || (count == 4 && domain_read(words[3], &domain))) && strcmp(words[1], "guest") == 0)
        return guest(words[2], domain);
    if (count == 5 && strcmp(words[1], "host") == 0 && domain_read(words[2], &domain) && domain != 0)
        return host_serve(domain, words[3], words[4]);
    fputs(usage, stderr);
    return 2;
}
