/* Carries stdio, signals and the exit code between this process and a program in a guest. */
#include "session/carrier.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "session/frame.h"

enum { LOOK_MS = 1000, RUNNING = -1 };

static const int forwarded[] = {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGALRM, SIGCONT, SIGWINCH};

struct carrier {
    struct stream *stream;
    int signals;
    const char *request; /* what of it is not sent yet */
    size_t request_bytes;
    bool started, input_ended;
    size_t input_room; /* bytes of input that the guest takes without the program reading them */
    struct frame_reader reader;
};

int carrier_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof forwarded / sizeof *forwarded; i++)
        sigaddset(&set, forwarded[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* A reader of ours that has gone away does not end the program. */
static void write_all(int to, const unsigned char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t done = write(to, bytes, count);
        if (done < 0 && errno == EAGAIN) {
            struct pollfd line = {.fd = to, .events = POLLOUT};
            poll(&line, 1, LOOK_MS);
        } else if (done < 0 && errno != EINTR) {
            return;
        }
        bytes += done > 0 ? done : 0;
        count -= done > 0 ? (size_t)done : 0;
    }
}

static void send_window(struct stream *stream)
{
    struct winsize size;
    if (ioctl(0, TIOCGWINSZ, &size) != 0)
        return;
    const uint32_t numbers[] = {size.ws_row, size.ws_col};
    frame_put(stream, FRAME_WINDOW, numbers, sizeof numbers);
}

static void send_request(struct carrier *c)
{
    while (!c->started) {
        ssize_t room = frame_room(c->stream);
        if (room <= 0)
            return;
        size_t part = c->request_bytes < (size_t)room ? c->request_bytes : (size_t)room;
        if (part > 0 && !frame_put(c->stream, FRAME_REQUEST, c->request, part))
            return;
        c->request += part;
        c->request_bytes -= part;
        if (c->request_bytes == 0 && frame_put(c->stream, FRAME_START, "", 0)) {
            c->started = true;
            send_window(c->stream);
        }
    }
}

static void send_signals(struct carrier *c)
{
    struct signalfd_siginfo told;
    while (frame_room(c->stream) >= 64 && read(c->signals, &told, sizeof told) == (ssize_t)sizeof told) {
        if (told.ssi_signo == SIGWINCH)
            send_window(c->stream);
        else
            frame_put_number(c->stream, FRAME_SIGNAL, told.ssi_signo);
    }
}

static size_t input_now(const struct carrier *c)
{
    ssize_t room = frame_room(c->stream);
    if (!c->started || c->input_ended || room < 64)
        return 0;
    return c->input_room < (size_t)room ? c->input_room : (size_t)room;
}

static void send_input(struct carrier *c)
{
    unsigned char bytes[FRAME_MOST];
    size_t most = input_now(c);
    ssize_t got = most == 0 ? -1 : read(0, bytes, most);
    if (most == 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    if (got > 0) {
        c->input_room -= (size_t)got;
        frame_put(c->stream, FRAME_INPUT, bytes, (size_t)got);
    } else {
        c->input_ended = frame_put(c->stream, FRAME_INPUT_END, "", 0);
    }
}

static int broken(const char *how)
{
    fprintf(stderr, "xen-session: the guest %s\n", how);
    return CARRIER_BROKEN;
}

/* The exit code once it is known. */
static int take_frame(struct carrier *c)
{
    uint32_t number;
    switch (c->reader.head.kind) {
    case FRAME_OUTPUT:
        write_all(1, c->reader.bytes, c->reader.head.bytes);
        return RUNNING;
    case FRAME_ERRORS:
        write_all(2, c->reader.bytes, c->reader.head.bytes);
        return RUNNING;
    case FRAME_TAKEN:
        if (!frame_numbers(&c->reader, &number, 1) || number > INPUT_WINDOW - c->input_room)
            return broken("took input that it was not given");
        c->input_room += number;
        return RUNNING;
    case FRAME_EXIT:
        return frame_numbers(&c->reader, &number, 1) && number <= 255 ? (int)number : broken("told no exit code");
    default:
        return broken("sent a frame of an unknown kind");
    }
}

static int take_frames(struct carrier *c)
{
    int found, code = RUNNING;
    while (code == RUNNING && (found = frame_next(&c->reader, c->stream)) != 0) {
        code = found < 0 ? broken("broke the rules of the stream") : take_frame(c);
        doorbell_ring(&c->stream->bell); /* there is room again */
    }
    return code;
}

int carrier_run(struct stream *stream, int signals, const char *request, size_t bytes, bool (*is_gone)(void))
{
    struct carrier c = {
        .stream = stream, .signals = signals, .request = request, .request_bytes = bytes, .input_room = INPUT_WINDOW};
    signal(SIGPIPE, SIG_IGN);
    for (;;) {
        bool over = stream_is_over(stream) || is_gone();
        int code = take_frames(&c);
        if (code != RUNNING)
            return code;
        if (over)
            return broken("is gone");
        if (stream_room(stream) < 0)
            return broken("broke the rules of the stream");
        send_request(&c);
        send_signals(&c);
        struct pollfd lines[] = {{.fd = stream->bell.descriptor, .events = POLLIN},
                                 {.fd = signals, .events = POLLIN},
                                 {.fd = input_now(&c) > 0 ? 0 : -1, .events = POLLIN}};
        if (poll(lines, 3, LOOK_MS) < 0)
            continue;
        if (lines[0].revents & (POLLHUP | POLLERR))
            atomic_store(&stream->pages->guest_lives, 0); /* a socket for a bell tells it by itself */
        if (lines[0].revents != 0)
            doorbell_take(&stream->bell);
        if (lines[2].revents != 0)
            send_input(&c);
    }
}
