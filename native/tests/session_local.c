/* A session whose two ends are on one machine: shared memory for granted pages and a socket pair for the event channel.
 *
 *   session_local PROGRAM [WORD...]      session_local --request FILE      session_local --hostile CASE
 * In a hostile case there is no guest; something writes what a guest must not.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "session/carrier.h"
#include "session/frame.h"
#include "session/request.h"
#include "session/serve.h"

static bool never(void)
{
    return false;
}

static void put_raw(struct stream *stream, uint32_t kind, uint32_t bytes)
{
    const struct frame_head head = {kind, bytes};
    stream_put(stream, &head, sizeof head);
    doorbell_ring(&stream->bell);
}

static bool misbehave(struct stream *guest, const char *how)
{
    if (strcmp(how, "counter") == 0) {
        atomic_store(&guest->pages->to_host.written, STREAM_RING_BYTES + 1);
    } else if (strcmp(how, "taken") == 0) {
        atomic_store(&guest->pages->to_guest.taken, 77777);
        put_raw(guest, FRAME_EXIT, 1);
    } else if (strcmp(how, "length") == 0) {
        put_raw(guest, FRAME_OUTPUT, FRAME_MOST + 1);
    } else if (strcmp(how, "huge") == 0) {
        put_raw(guest, FRAME_OUTPUT, UINT32_MAX);
    } else if (strcmp(how, "kind") == 0) {
        put_raw(guest, 999, 0);
    } else if (strcmp(how, "exit") == 0) {
        frame_put_number(guest, FRAME_EXIT, 256);
    } else if (strcmp(how, "input") == 0) {
        frame_put_number(guest, FRAME_TAKEN, 1);
    } else if (strcmp(how, "short") == 0) {
        frame_put(guest, FRAME_EXIT, "x", 1);
    } else if (strcmp(how, "leave") == 0) {
        frame_put(guest, FRAME_OUTPUT, "last words\n", 11);
    } else {
        return false;
    }
    return true;
}

static int guest_end(struct stream *guest, const char *hostile)
{
    prctl(PR_SET_NAME, "session-guest");
    if (hostile == NULL) {
        session_serve(guest);
        return 0;
    }
    if (!misbehave(guest, hostile))
        return 1;
    if (strcmp(hostile, "leave") == 0)
        atomic_store(&guest->pages->guest_lives, 0);
    else
        pause();
    return 0;
}

int main(int count, char **words)
{
    static char text[REQUEST_BYTES + 1];
    size_t bytes = 0;
    const char *hostile = count == 3 && strcmp(words[1], "--hostile") == 0 ? words[2] : NULL;
    if (count == 3 && strcmp(words[1], "--request") == 0) {
        FILE *file = fopen(words[2], "re");
        bytes = file == NULL ? 0 : fread(text, 1, REQUEST_BYTES, file);
        if (file != NULL)
            fclose(file);
    } else {
        for (int i = 1; i < count; i++)
            bytes += (size_t)snprintf(text + bytes, sizeof text - bytes, "a%s", words[i]) + 1;
    }
    int bells[2];
    struct stream_pages *pages = mmap(NULL, sizeof *pages, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, bells) != 0)
        return 99;
    atomic_store(&pages->guest_lives, 1);
    atomic_store(&pages->host_lives, 1);
    int signals = carrier_signals();
    pid_t guest = fork();
    if (guest == 0) {
        struct stream stream = {pages, {bells[0], 0}, true, 0, 0};
        close(bells[1]);
        _exit(guest_end(&stream, hostile));
    }
    struct stream stream = {pages, {bells[1], 0}, false, 0, 0};
    close(bells[0]);
    int code = carrier_run(&stream, signals, text, bytes, never);
    if (hostile != NULL)
        kill(guest, SIGKILL);
    return code;
}
