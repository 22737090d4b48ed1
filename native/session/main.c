/* xen-session: runs programs in a Xen guest from dom0, one end in each. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "link/domain.h"
#include "session/carrier.h"
#include "session/guest.h"
#include "session/host.h"
#include "session/request.h"

static const char usage[] =
    "usage: xen-session guest [DRIVER-DOMAIN]\n"
    "       xen-session host DOMAIN PROGRAM [WORD...]\n"
    "       xen-session host DOMAIN --request FILE [--wait FIFO]\n"
    "In the guest it serves sessions. In dom0 it carries one: its stdio is the program's, and so is its exit code.\n"
    "A request (native/session/request.h) says more than words. With --wait it begins once the FIFO has been opened.\n";

static char *from_words(char **words, size_t *bytes)
{
    *bytes = 0;
    for (char **word = words; *word != NULL; word++)
        *bytes += strlen(*word) + 2;
    char *text = malloc(*bytes), *at = text;
    for (char **word = words; *word != NULL && text != NULL; word++)
        at += sprintf(at, "a%s", *word) + 1;
    return text;
}

static char *from_file(const char *path, size_t *bytes)
{
    char *text = malloc(REQUEST_BYTES + 1);
    FILE *file = fopen(path, "re");
    *bytes = file != NULL && text != NULL ? fread(text, 1, REQUEST_BYTES + 1, file) : 0;
    if (file != NULL)
        fclose(file);
    if (*bytes > 0)
        return text;
    free(text);
    return NULL;
}

/* Opens for reading once somebody has opened it for writing. */
static bool wait_for(const char *fifo)
{
    int gate;
    while ((gate = open(fifo, O_RDONLY | O_CLOEXEC)) < 0 && errno == EINTR) {
    }
    if (gate >= 0)
        close(gate);
    return gate >= 0;
}

/* The line discipline is the guest's. */
static void make_raw(void)
{
    struct termios mode;
    if (tcgetattr(0, &mode) != 0)
        return;
    cfmakeraw(&mode);
    tcsetattr(0, TCSANOW, &mode);
}

static bool wants_terminal(const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += strnlen(text + at, bytes - at) + 1)
        if (text[at] == 't')
            return true;
    return false;
}

static int host(unsigned int domain, char **words)
{
    bool by_file = strcmp(words[0], "--request") == 0;
    const char *fifo =
        by_file && words[1] != NULL && words[2] != NULL && strcmp(words[2], "--wait") == 0 ? words[3] : NULL;
    size_t bytes = 0;
    if (fifo != NULL && !wait_for(fifo)) {
        fprintf(stderr, "xen-session: %s: %s\n", fifo, strerror(errno));
        return CARRIER_BROKEN;
    }
    char *text = !by_file ? from_words(words, &bytes) : words[1] != NULL ? from_file(words[1], &bytes) : NULL;
    if (text == NULL || bytes > REQUEST_BYTES) {
        fprintf(stderr, "xen-session: no request, or one of more than %d bytes\n", (int)REQUEST_BYTES);
        free(text);
        return CARRIER_BROKEN;
    }
    if (wants_terminal(text, bytes))
        make_raw();
    int code = host_carry(domain, carrier_signals(), text, bytes);
    free(text);
    return code;
}

int main(int count, char **words)
{
    unsigned int domain = 0;
    if (count == 2 || count == 3)
        if (strcmp(words[1], "guest") == 0 && (count == 2 || domain_read(words[2], &domain)))
            return guest_agent(domain);
    if (count >= 4 && strcmp(words[1], "host") == 0 && domain_read(words[2], &domain) && domain != 0)
        return host(domain, words + 3);
    fputs(usage, stderr);
    return 2;
}
