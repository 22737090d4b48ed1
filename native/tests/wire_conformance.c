/* The conformance suite that every transport must pass: `wire_conformance [TRANSPORT [PART OF A CASE'S NAME]]`.
 *
 * Each case runs in a process of its own with an alarm, so that a crash or a hang is one failed case. One line per case,
 * "ok" or "not ok"; the exit code is 1 when any case failed. `wire_conformance --failing` runs cases that must fail.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire_cases.h"

enum { CASE_SECONDS = 120 };

static const char *const transports[] = {"shm", "unix-socket", "xen"};

static void fails(struct wire *wire, void *argument)
{
    (void)wire;
    (void)argument;
    CHECK(false, "on purpose");
}

static void other_end_fails_connected(const char *transport)
{
    open_pair(transport, ROLE_CLIENT, 50, fails, NULL);
    for (;;)
        pause();
}

static void other_end_fails_before_it_connects(const char *transport)
{
    struct pair pair = {0};
    (void)transport;
    listen_somewhere(&pair, 0600);
    if (fork() == 0)
        fails(NULL, NULL);
    accept_wire(&pair, "shm", 50);
}

static const struct wire_case failing_cases[] = {
    {"the other end fails a check while this end waits", other_end_fails_connected, NULL},
    {"the other end fails a check before it connects", other_end_fails_before_it_connects, NULL},
    {NULL, NULL, NULL},
};

static const char *ended_by(int signal)
{
    switch (signal) {
    case SIGALRM:
        return "hangs";
    case OTHER_END_FAILED:
        return "a check failed at the other end";
    default:
        return strsignal(signal);
    }
}

static bool passes(const struct wire_case *test, const char *transport)
{
    fflush(stdout);
    int64_t start = now_ms();
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        alarm(CASE_SECONDS);
        test->run(transport);
        exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    kill(-child, SIGKILL); /* the other ends that a failed case left behind */
    long long took = (long long)(now_ms() - start);
    if (status == 0)
        printf("ok %s: %s (%lld ms)\n", transport, test->name, took);
    else if (WIFSIGNALED(status))
        printf("not ok %s: %s: %s after %lld ms\n", transport, test->name, ended_by(WTERMSIG(status)), took);
    else
        printf("not ok %s: %s: exit code %d\n", transport, test->name, WEXITSTATUS(status));
    return status == 0;
}

int main(int argc, char **argv)
{
    const struct wire_case *const suites[] = {traffic_cases, end_cases, hostile_cases, handshake_cases, link_cases};
    int run = 0;
    int failed = 0;
    if (argc > 1 && strcmp(argv[1], "--failing") == 0) {
        for (const struct wire_case *test = failing_cases; test->name != NULL; test++)
            passes(test, transports[0]);
        return 1;
    }
    for (size_t t = 0; t < sizeof transports / sizeof transports[0]; t++) {
        if (argc > 1 && strcmp(argv[1], transports[t]) != 0)
            continue;
        for (size_t s = 0; s < sizeof suites / sizeof suites[0]; s++) {
            for (const struct wire_case *test = suites[s]; test->name != NULL; test++) {
                if ((test->only != NULL && strstr(test->only, transports[t]) == NULL) ||
                    (argc > 2 && strstr(test->name, argv[2]) == NULL))
                    continue;
                run++;
                failed += !passes(test, transports[t]);
            }
        }
    }
    printf("%d cases, %d failed\n", run, failed);
    return run == 0 || failed > 0;
}
