/* Starts programs of sessions. */
#include "session/program.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "session/container.h"

enum { CANNOT_RUN = 126, NOT_FOUND = 127, JOIN_TRIES = 600, JOIN_EACH_MS = 100 };

static void give_up(const char *what)
{
    int error = errno;
    fprintf(stderr, "xen-session: %s: %s\n", what, strerror(error));
    fflush(stderr);
    _exit(error == ENOENT ? NOT_FOUND : CANNOT_RUN);
}

static void become_user(const struct request *request)
{
    if (request->user == geteuid() && request->group == getegid() && request->group_count == 0)
        return;
    if (setgroups(request->group_count, request->groups) != 0 || setgid(request->group) != 0 ||
        setuid(request->user) != 0)
        give_up("user");
}

static void on_end(int signal)
{
    _exit(128 + signal);
}

static void hold(void)
{
    signal(SIGTERM, on_end);
    signal(SIGINT, on_end);
    signal(SIGHUP, on_end);
    for (;;)
        pause();
}

/* In the new process. */
static void run(const struct request *request, int container)
{
    const char *what = "container";
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int number = 1; number < SIGSYS; number++)
        signal(number, SIG_DFL);
    if (container >= 0 && setns(container, CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC) != 0)
        give_up("container");
    if (request->container != NULL && !container_enter(request, &what))
        give_up(what);
    if (request->hold)
        hold();
    if (chdir(request->folder) != 0)
        give_up(request->folder);
    if (request->no_new_privileges && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        give_up("no new privileges");
    become_user(request);
    clearenv();
    for (size_t i = 0; i < request->environment_count; i++)
        putenv(request->environment[i]);
    execvp(request->words[0], request->words);
    give_up(request->words[0]);
}

static bool make_pipes(int pipes[3][2])
{
    for (int i = 0; i < 3; i++)
        if (pipe2(pipes[i], O_CLOEXEC) != 0)
            return false;
    return true;
}

static bool make_terminal(int pipes[3][2])
{
    int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0)
        return false;
    int inside = open(ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
    for (int i = 0; i < 3; i++) {
        pipes[i][0] = i == 0 ? inside : terminal;
        pipes[i][1] = i == 0 ? terminal : inside;
    }
    return inside >= 0;
}

static void take_stdio(int pipes[3][2], bool terminal)
{
    setsid();
    dup2(pipes[0][0], 0);
    dup2(pipes[1][1], 1);
    dup2(pipes[2][1], 2);
    if (terminal && ioctl(0, TIOCSCTTY, 0) != 0)
        give_up("terminal");
}

static pid_t fork_into(int namespaces)
{
    if (namespaces == 0)
        return fork();
    return (pid_t)syscall(SYS_clone, namespaces | SIGCHLD, NULL, NULL, NULL, NULL);
}

static void keep_ends(struct program *program, int pipes[3][2], bool terminal)
{
    close(pipes[0][0]);
    if (!terminal) {
        close(pipes[1][1]);
        close(pipes[2][1]);
    }
    program->input = pipes[0][1];
    program->output = pipes[1][0];
    program->errors = terminal ? -1 : pipes[2][0];
    for (int i = 0; i < 3; i++) {
        int end = pipes[i][i == 0 ? 1 : 0];
        fcntl(end, F_SETFL, O_NONBLOCK | fcntl(end, F_GETFL));
    }
}

/* Others may join a container once its program runs: the pipe's end closes with execve. */
static void wait_for_exec(int entered[2])
{
    char none;
    close(entered[1]);
    while (read(entered[0], &none, 1) < 0 && errno == EINTR) {
    }
    close(entered[0]);
}

/* dom0 may ask for a further process while the container is still being made. */
static int find_container(const char *name)
{
    int found = -1;
    for (int i = 0; i < JOIN_TRIES && (found = container_find(name)) < 0; i++)
        poll(NULL, 0, JOIN_EACH_MS);
    return found;
}

bool program_start(struct program *program, const struct request *request, char *why, size_t why_size)
{
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}}, entered[2], container = -1;
    if (request->joined != NULL) {
        container = find_container(request->joined);
        if (container < 0 || setns(container, CLONE_NEWPID) != 0) {
            snprintf(why, why_size, "container %s does not run", request->joined);
            return false;
        }
    }
    if (!(request->terminal ? make_terminal(pipes) : make_pipes(pipes)) || pipe2(entered, O_CLOEXEC) != 0) {
        snprintf(why, why_size, "stdio: %s", strerror(errno));
        return false;
    }
    program->process = fork_into(request->container == NULL ? 0 : CONTAINER_NAMESPACES);
    if (program->process == 0) {
        take_stdio(pipes, request->terminal);
        run(request, container);
    }
    keep_ends(program, pipes, request->terminal);
    if (request->container != NULL)
        wait_for_exec(entered);
    program->ended = program->process < 0 ? -1 : (int)syscall(SYS_pidfd_open, program->process, 0);
    bool known = request->container == NULL || container_remember(request->container, program->process);
    if (program->ended >= 0 && known)
        return true;
    snprintf(why, why_size, "%s: %s", known ? "process" : request->container, strerror(errno));
    if (program->process > 0) {
        kill(program->process, SIGKILL);
        waitpid(program->process, NULL, 0);
    }
    return false;
}

int program_wait(const struct program *program, const struct request *request)
{
    int status = 0;
    while (waitpid(program->process, &status, 0) < 0 && errno == EINTR) {
    }
    if (request->container != NULL)
        container_forget(request->container);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
