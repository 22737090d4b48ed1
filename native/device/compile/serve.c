/* The compiler process of a tenant: takes texts from its worker, looks into the cache, builds, and answers with objects.
 *
 * The worker may have been taken over. Of what it sends only text that our generator could have written reaches the C
 * compiler, and only this process reads and writes the cache: an object lies there under the hash of the text that it was
 * made of, whoever asked for it. */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "device/compile/build.h"
#include "device/compile/emit.h"

enum { IDLE_MS = 10000 }; /* then it ends; it is started again with the next text */

/* Behind the common prelude the generator writes no directive but definitions of its own forms, no string and no
 * continued line. Without these no text can name a file (include, incbin in an asm) or change the compiler's options. */
static bool is_generated(const char *text, size_t bytes)
{
    size_t prelude = strlen(PRELUDE_TEXT);
    if (strlen(text) != bytes || bytes < prelude || memcmp(text, PRELUDE_TEXT, prelude) != 0)
        return false;
    for (const char *at = text + prelude; *at; at++)
        if (strchr("\"'\\?", *at) ? *at != '?' || at[1] == '?' : *at == '%' && at[1] == ':')
            return false;
        else if (*at == '#' && (at[-1] != '\n' || strncmp(at, "#define f", 9) != 0))
            return false;
    return true;
}

/* Not in builds with sanitizers: their leak check reads /proc at the end. */
static void confine(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    struct grant grants[TOOLCHAIN_GRANTS];
    size_t count = child_grants(grants);
    if (cache_folder())
        grants[count++] = (struct grant){cache_folder(), GRANT_CHANGE};
    landlock_restrict(grants, count, LANDLOCK_ALL);
#endif
}

static void on_end(int number)
{
    (void)number;
    child_end();
    _exit(1);
}

static bool serve_one(int socket)
{
    struct order order;
    struct answer answer = {.outcome = CODE_FAILED};
    char *text = NULL, *object = NULL;
    bool well = office_receive(socket, &order, sizeof order) && order.magic == ORDER_MAGIC &&
                order.bytes <= OFFICE_TEXT_MOST && (text = malloc(order.bytes + 1)) &&
                office_receive(socket, text, order.bytes);
    if (well) {
        text[order.bytes] = '\0';
        if (is_generated(text, order.bytes))
            object = cache_get(text, order.may_build != 0, &answer);
        if (!object)
            answer.bytes = 0;
        well = office_send(socket, &answer, sizeof answer) && office_send(socket, object, answer.bytes);
    }
    free(object);
    free(text);
    return well;
}

gputax_serve_compiler gputaxServeCompiler;
int gputaxServeCompiler(int socket)
{
    struct pollfd ready = {.fd = socket, .events = POLLIN};
    struct sigaction action = {.sa_handler = on_end};
    sigaction(SIGTERM, &action, NULL);
    child_watch(socket);
    confine();
    while (poll(&ready, 1, IDLE_MS) > 0) {
        if (!(ready.revents & POLLIN))
            return 0; /* the worker has gone */
        char byte;
        if (recv(socket, &byte, 1, MSG_PEEK) == 0)
            return 0;
        if (!serve_one(socket))
            return 1;
    }
    return 0;
}
