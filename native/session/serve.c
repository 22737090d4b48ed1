/* One session in the guest: a request from dom0, a program, its stdio in frames. */
#include "session/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "session/frame.h"
#include "session/program.h"

enum { LOOK_MS = 1000, REQUEST_S = 60, SAID = 512 };

struct session {
    struct stream *stream;
    struct frame_reader reader;
    char text[REQUEST_BYTES + 1];
    size_t text_bytes;
    struct request request;
    struct program program;
    bool runs, broken, input_ends;
    unsigned char input[INPUT_WINDOW];
    size_t input_from, input_count; /* what the program has not read yet */
    uint32_t taken;                 /* of it, not told yet */
    struct winsize window;
};

static void start(struct session *s)
{
    char why[256] = "the request is malformed";
    s->program = (struct program){.process = -1, .ended = -1, .input = -1, .output = -1, .errors = -1};
    s->runs =
        request_read(&s->request, s->text, s->text_bytes) && program_start(&s->program, &s->request, why, sizeof why);
    s->broken = !s->runs;
    if (s->broken) {
        char text[sizeof why + 32];
        int bytes = snprintf(text, sizeof text, "xen-session: %s\n", why);
        frame_put(s->stream, FRAME_ERRORS, text, (size_t)bytes);
    }
}

static void send_signal(const struct session *s, uint32_t number)
{
    if (number == 0 || number > (uint32_t)SIGRTMAX)
        return;
    kill(s->program.process, (int)number);
}

static void take_input(struct session *s)
{
    size_t count = s->reader.head.bytes;
    if (count > sizeof s->input - s->input_count) {
        s->broken = true;
        return;
    }
    memmove(s->input, s->input + s->input_from, s->input_count);
    s->input_from = 0;
    memcpy(s->input + s->input_count, s->reader.bytes, count);
    s->input_count += count;
}

static void take_frame(struct session *s)
{
    uint32_t numbers[2];
    size_t bytes = s->reader.head.bytes;
    switch (s->runs ? s->reader.head.kind : 256 + s->reader.head.kind) {
    case 256 + FRAME_REQUEST:
        if (bytes > REQUEST_BYTES - s->text_bytes) {
            s->broken = true;
            return;
        }
        memcpy(s->text + s->text_bytes, s->reader.bytes, bytes);
        s->text_bytes += bytes;
        return;
    case 256 + FRAME_START:
        start(s);
        return;
    case FRAME_INPUT:
        take_input(s);
        return;
    case FRAME_INPUT_END:
        s->input_ends = true;
        return;
    case FRAME_SIGNAL:
        if (frame_numbers(&s->reader, numbers, 1))
            send_signal(s, numbers[0]);
        return;
    case FRAME_WINDOW:
        if (s->request.terminal && frame_numbers(&s->reader, numbers, 2)) {
            s->window = (struct winsize){.ws_row = (unsigned short)numbers[0], .ws_col = (unsigned short)numbers[1]};
            ioctl(s->program.output, TIOCSWINSZ, &s->window);
        }
        return;
    default:
        s->broken = true;
    }
}

static void take_frames(struct session *s)
{
    int found;
    while (!s->broken && (found = frame_next(&s->reader, s->stream)) != 0) {
        if (found < 0)
            s->broken = true;
        else
            take_frame(s);
        doorbell_ring(&s->stream->bell);
    }
}

static void close_input(struct session *s)
{
    static const char end_of_file = 4;
    if (s->program.input < 0)
        return;
    if (s->request.terminal) {
        (void)!write(s->program.input, &end_of_file, 1);
        s->input_ends = false;
        return;
    }
    close(s->program.input);
    s->program.input = -1;
}

/* Input of a program that does not want it any more is dropped. */
static void feed(struct session *s)
{
    while (s->input_count > 0) {
        ssize_t done = s->program.input < 0 ? (ssize_t)s->input_count
                                            : write(s->program.input, s->input + s->input_from, s->input_count);
        if (done < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (done < 0) {
            close_input(s);
            continue;
        }
        s->input_from += (size_t)done;
        s->input_count -= (size_t)done;
        s->taken += (uint32_t)done;
    }
    if (s->taken > 0 && frame_put_number(s->stream, FRAME_TAKEN, s->taken))
        s->taken = 0;
    if (s->input_ends && s->input_count == 0)
        close_input(s);
}

/* True while there may be more at once. */
static bool carry(struct session *s, int *from, enum frame_kind kind)
{
    unsigned char bytes[FRAME_MOST];
    ssize_t room = frame_room(s->stream);
    if (*from < 0 || room < SAID)
        return false;
    ssize_t got = read(*from, bytes, (size_t)room - SAID / 2); /* what is left is for small frames */
    if (got > 0)
        return frame_put(s->stream, kind, bytes, (size_t)got);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (!s->request.terminal)
        close(*from);
    *from = -1;
    return false;
}

static void wait_a_while(struct session *s, bool ended)
{
    bool room = frame_room(s->stream) >= SAID;
    struct pollfd lines[] = {
        {.fd = s->stream->bell.descriptor, .events = POLLIN},
        {.fd = s->runs && !ended ? s->program.ended : -1, .events = POLLIN},
        {.fd = s->runs && room ? s->program.output : -1, .events = POLLIN},
        {.fd = s->runs && room ? s->program.errors : -1, .events = POLLIN},
        {.fd = s->runs && s->input_count > 0 ? s->program.input : -1, .events = POLLOUT},
    };
    if (poll(lines, 5, LOOK_MS) <= 0)
        return;
    if (lines[0].revents & (POLLHUP | POLLERR))
        atomic_store(&s->stream->pages->host_lives, 0);
    if (lines[0].revents != 0)
        doorbell_take(&s->stream->bell);
}

static bool has_ended(const struct session *s)
{
    struct pollfd line = {.fd = s->program.ended, .events = POLLIN};
    return s->runs && poll(&line, 1, 0) > 0;
}

static bool is_late(const struct session *s, time_t begun)
{
    return !s->runs && time(NULL) - begun > REQUEST_S;
}

void session_serve(struct stream *stream)
{
    static struct session session; /* one process, one session */
    struct session *s = &session;
    time_t begun = time(NULL);
    *s = (struct session){.stream = stream};
    signal(SIGPIPE, SIG_IGN);
    while (!stream_is_over(stream) && !s->broken && !is_late(s, begun)) {
        take_frames(s);
        s->broken = s->broken || stream_room(stream) < 0;
        bool ended = has_ended(s), more = false;
        if (s->runs) {
            feed(s);
            more = carry(s, &s->program.output, FRAME_OUTPUT);
            more = carry(s, &s->program.errors, FRAME_ERRORS) || more;
        }
        if (ended && !more && frame_room(stream) >= SAID) {
            frame_put_number(stream, FRAME_EXIT, (uint32_t)program_wait(&s->program, &s->request));
            return;
        }
        if (!more && !s->broken)
            wait_a_while(s, ended);
    }
    if (s->runs) {
        kill(-s->program.process, SIGKILL);
        kill(s->program.process, SIGKILL);
        program_wait(&s->program, &s->request);
    } else if (s->broken) {
        frame_put_number(stream, FRAME_EXIT, 126);
    }
}
