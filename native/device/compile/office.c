/* Asks for the code of a text: in this process, with its own cache and C compiler, or, where GPUTAX_SOFT_COMPILER names a
 * socket, a compiler process behind it, because a confined process can open no file and start no program. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "device/compile/build.h"

static int office = -1;
static bool ended; /* nobody answers any more */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void find_office(void)
{
    const char *text = getenv("GPUTAX_SOFT_COMPILER");
    char rest;
    if (text && sscanf(text, "%d%c", &office, &rest) != 1)
        office = -1;
}

static bool is_served(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_office);
    return office >= 0;
}

bool office_send(int socket, const void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t part = send(socket, (const char *)data + done, bytes - done, MSG_NOSIGNAL);
        if (part < 0 && errno != EINTR)
            return false;
        done += part > 0 ? (size_t)part : 0;
    }
    return true;
}

bool office_receive(int socket, void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t part = recv(socket, (char *)data + done, bytes - done, MSG_WAITALL);
        if (part == 0 || (part < 0 && errno != EINTR))
            return false;
        done += part > 0 ? (size_t)part : 0;
    }
    return true;
}

static bool exchange(const char *text, bool may_build, struct answer *answer, char **object)
{
    struct order order = {.magic = ORDER_MAGIC, .may_build = may_build, .bytes = strlen(text)};
    *object = NULL;
    if (order.bytes > OFFICE_TEXT_MOST) {
        *answer = (struct answer){.outcome = CODE_FAILED};
        return true;
    }
    if (!office_send(office, &order, sizeof order) || !office_send(office, text, order.bytes) ||
        !office_receive(office, answer, sizeof *answer) || answer->bytes > OFFICE_OBJECT_MOST)
        return false;
    answer->warning[sizeof answer->warning - 1] = '\0';
    if (answer->bytes == 0)
        return true;
    *object = malloc(answer->bytes);
    return *object && office_receive(office, *object, answer->bytes);
}

static char *ask(const char *text, bool may_build, struct answer *answer)
{
    char *object = NULL;
    pthread_mutex_lock(&lock);
    if (ended || !exchange(text, may_build, answer, &object)) {
        free(object);
        object = NULL;
        *answer = (struct answer){.outcome = CODE_FAILED};
        if (!ended)
            report_warn("the compiler process has ended; kernels without code are interpreted from now on");
        ended = true;
    } else if (answer->outcome == CODE_NO_COMPILER) {
        ended = true; /* office_open says so from now on */
    }
    pthread_mutex_unlock(&lock);
    return object;
}

bool office_open(void)
{
    return is_served() ? !ended : child_identity() != NULL;
}

struct code *office_get(const char *text, bool may_build)
{
    struct answer answer;
    char *object = is_served() ? ask(text, may_build, &answer) : cache_get(text, may_build, &answer);
    struct code *code = object ? code_load(object, answer.bytes) : NULL;
    free(object);
    if (answer.warning[0])
        report_warn(answer.warning);
    if (answer.outcome == CODE_NO_COMPILER)
        report_warn(NO_COMPILER);
    if (answer.damaged)
        report_add(REPORT_CACHE_CORRUPTED, 1);
    if (answer.outcome == CODE_FAILED && !ended)
        report_warn("the C compiler failed on generated code; the interpreter runs the kernel");
    if (object && !code)
        report_warn("a compiled kernel could not be loaded; the interpreter runs it");
    if (answer.outcome == CODE_FAILED || (object && !code))
        report_add(REPORT_COMPILER_FAILED, 1);
    else if (code)
        report_add(answer.outcome == CODE_KEPT ? REPORT_KERNELS_FROM_CACHE : REPORT_KERNELS_COMPILED, 1);
    return code;
}
