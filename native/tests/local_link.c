/* `local_link LISTEN-SOCKET PROXY-SOCKET DOMAIN POD`: a link without Xen, for tests of the proxy's transport "xen". */
#include <stdio.h>
#include <stdlib.h>

#include "link/local.h"
#include "wire/handshake.h"

int main(int argc, char **argv)
{
    char why[512];
    if (argc != 5)
        return 2;
    int listener = wire_listen(argv[1], 0666, why, sizeof why);
    if (listener < 0) {
        fprintf(stderr, "local_link: %s\n", why);
        return 1;
    }
    puts("ready");
    fflush(stdout);
    local_link_serve(listener, argv[2], (unsigned int)strtoul(argv[3], NULL, 10), argv[4]);
    return 1;
}
