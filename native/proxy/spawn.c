/* fork and exec of workers: clean environment, fixed descriptors, no signal mask. */
#include "proxy/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proxy/page.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

enum { VARIABLES_MOST = 256, FREE_FROM = 64 };

static int program = -1;
static char *variables[ROLES][VARIABLES_MOST + 1];

/* What a backend reads: the software device's settings, CUDA's own, and, for a compiler process, where the C compiler and
 * the cache are. Whatever else the operator's shell holds, credentials for example, is not a tenant's neighbour. */
static bool is_passed(const char *variable, enum role role)
{
    enum { SOFTWARE = 1 << ROLE_SOFTWARE, DRIVER = 1 << ROLE_DRIVER, COMPILER = 1 << ROLE_COMPILER };
    static const struct {
        const char *begin;
        unsigned int roles;
    } passed[] = {
        {"GPUTAX_SOFT_", SOFTWARE | DRIVER | COMPILER},
        {"CUDA_", DRIVER},
        {"NVIDIA_", DRIVER},
        {"HOME=", DRIVER | COMPILER},
        {"PATH=", COMPILER},
        {"XDG_CACHE_HOME=", COMPILER},
        {"TMPDIR=", COMPILER},
        {"LD_LIBRARY_PATH=", SOFTWARE | DRIVER | COMPILER},
        {"ASAN_OPTIONS=", SOFTWARE | DRIVER | COMPILER},
        {"UBSAN_OPTIONS=", SOFTWARE | DRIVER | COMPILER},
        {"LSAN_OPTIONS=", SOFTWARE | DRIVER | COMPILER},
        {"TSAN_OPTIONS=", SOFTWARE | DRIVER | COMPILER},
    };
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        if (strncmp(variable, passed[i].begin, strlen(passed[i].begin)) == 0)
            return passed[i].roles >> role & 1;
    return false;
}

bool spawn_prepare(void)
{
    for (enum role role = 0; role < ROLES; role++) {
        size_t count = 0;
        for (char **at = environ; *at != NULL && count < VARIABLES_MOST; at++)
            if (is_passed(*at, role))
                variables[role][count++] = *at;
    }
    program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC); /* the same one also after an upgrade on disk */
    return program >= 0;
}

/* Between fork and exec in a process with threads: system calls only. */
static _Noreturn void become(enum role role, const int *given)
{
    enum { COUNT = WORKER_DESCRIPTORS - WORKER_SOCKET };
    static char *const worker[] = {(char *)(uintptr_t) "gputax-worker", (char *)(uintptr_t) "--worker", NULL};
    static char *const compiler[] = {(char *)(uintptr_t) "gputax-compiler", (char *)(uintptr_t) "--compiler", NULL};
    int moved[COUNT];
    sigset_t none;
    for (int i = 0; i < COUNT; i++) { /* out of the way first: a target may be another one's number */
        moved[i] = given[i] < 0 ? -1 : fcntl(given[i], F_DUPFD, FREE_FROM);
        if (given[i] >= 0 && moved[i] < 0)
            _exit(126);
    }
    int self = fcntl(program, F_DUPFD_CLOEXEC, FREE_FROM), null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (self < 0 || null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0)
        _exit(126);
    for (int i = 0; i < COUNT; i++) {
        close(WORKER_SOCKET + i);
        if (moved[i] >= 0 && dup2(moved[i], WORKER_SOCKET + i) < 0)
            _exit(126);
    }
    dup3(self, WORKER_DESCRIPTORS, O_CLOEXEC);
    if (syscall(SYS_close_range, WORKER_DESCRIPTORS + 1, ~0U, 0) != 0)
        for (int i = WORKER_DESCRIPTORS + 1; i < 65536; i++)
            close(i);
    signal(SIGINT, SIG_IGN); /* of a terminal: the broker ends us in order */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    syscall(SYS_execveat, WORKER_DESCRIPTORS, "", role == ROLE_COMPILER ? compiler : worker, variables[role],
            AT_EMPTY_PATH);
    _exit(127);
}

pid_t spawn(enum role role, const int *given)
{
    pid_t process = fork();
    if (process == 0)
        become(role, given);
    return process;
}

int spawn_memory(const char *name, size_t bytes, void **at)
{
    int file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (file < 0 && errno == EINVAL) /* Linux before 6.3 */
        file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0)
        return -1;
    void *mapped = MAP_FAILED;
    if (ftruncate(file, (off_t)bytes) == 0 && fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) {
        close(file);
        return -1;
    }
    *at = mapped;
    return file;
}
