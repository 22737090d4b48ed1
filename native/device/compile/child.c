/* The C compiler as a confined child process: clean environment, limits, no privileges to gain, nothing inherited. */
#include "device/compile/build.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "confine/seccomp.h"

/* A large kernel takes the compiler some seconds and 300 MB. */
enum { LOOK_MS = 2, CPU_S = 60, WALL_S = 120, MEMORY_MB = 2048, FILE_MB = 64, FILES = 64 };

static const char *const FLAGS[] = {"-O2",
                                    "-march=native",
                                    "-ffp-contract=off",
                                    "-fno-math-errno",
                                    "-fno-trapping-math",
                                    "-fno-strict-aliasing",
                                    "-fvisibility=hidden",
                                    "-std=gnu11",
                                    "-w",
#ifdef __x86_64__
                                    "-mno-red-zone", /* calls that the compiler does not see use the stack */
#endif
                                    "-fno-stack-protector",
                                    "-fno-asynchronous-unwind-tables",
                                    "-fPIC",
                                    "-shared",
                                    "-nostdlib", /* load.c finds the functions of libc and libm */
                                    "-Wl,-e,gputax_block",
                                    "-Wl,-z,noexecstack",
                                    "-o",
                                    "kernel.so",
                                    "kernel.c",
                                    "-lgcc"};
enum { FLAG_COUNT = sizeof FLAGS / sizeof *FLAGS };
/* Passes of GCC that took a third of its time and made nothing of ResNet-50 faster; clang does not know their names. */
static const char *const GCC_FLAGS[] = {"-fno-gcse",
                                        "-fno-tree-pre",
                                        "-fno-tree-vrp",
                                        "-fno-rerun-cse-after-loop",
                                        "-fno-tree-slp-vectorize",
                                        "-fno-tree-pta",
                                        "-fno-tree-dominator-opts",
                                        "-fno-ipa-modref"};
enum { GCC_FLAG_COUNT = sizeof GCC_FLAGS / sizeof *GCC_FLAGS };

/* What no compiler needs, and who takes one over would: other processes, the network, the kernel's larger doors. */
static const struct call_row REFUSED[] = {
    {.number = SYS_ptrace, .why = "other processes"},
    {.number = SYS_process_vm_readv, .why = "other processes"},
    {.number = SYS_process_vm_writev, .why = "other processes"},
    {.number = SYS_pidfd_open, .why = "other processes"},
    {.number = SYS_pidfd_getfd, .why = "other processes"},
    {.number = SYS_pidfd_send_signal, .why = "other processes"},
    {.number = SYS_kill, .why = "other processes"},
    {.number = SYS_tkill, .why = "other processes"},
    {.number = SYS_rt_sigqueueinfo, .why = "other processes"},
    {.number = SYS_rt_tgsigqueueinfo, .why = "other processes"},
    {.number = SYS_socket, .why = "the network"},
    {.number = SYS_socketpair, .why = "the network"},
    {.number = SYS_io_uring_setup, .why = "calls that this list would not see"},
    {.number = SYS_bpf, .why = "the kernel"},
    {.number = SYS_perf_event_open, .why = "the kernel"},
    {.number = SYS_userfaultfd, .why = "the kernel"},
    {.number = SYS_keyctl, .why = "the kernel"},
    {.number = SYS_add_key, .why = "the kernel"},
    {.number = SYS_request_key, .why = "the kernel"},
    {.number = SYS_unshare, .why = "namespaces"},
    {.number = SYS_setns, .why = "namespaces"},
    {.number = SYS_mount, .why = "namespaces"},
    {.number = SYS_umount2, .why = "namespaces"},
};

static char compiler[PATH_BYTES];
static char prefix[PATH_BYTES]; /* where it is installed, with its own programs and headers */
static bool is_gcc;
static int watched = -1;
static _Atomic pid_t running; /* 0: none */
static char identity[PATH_BYTES + 4096];

static bool find_compiler(struct stat *info)
{
    static const char *const NAMES[] = {"cc", "gcc", "clang"};
    const char *path = getenv("PATH");
    for (size_t i = 0; path && i < sizeof NAMES / sizeof *NAMES; i++)
        for (const char *at = path; *at; at += strcspn(at, ":"), at += *at == ':') {
            int length = (int)strcspn(at, ":");
            if (*at == '/' && length < PATH_BYTES - 16) { /* never one of the working directory */
                snprintf(compiler, sizeof compiler, "%.*s/%s", length, at, NAMES[i]);
                if (access(compiler, X_OK) == 0 && stat(compiler, info) == 0 && S_ISREG(info->st_mode))
                    return true;
            }
        }
    compiler[0] = '\0';
    return false;
}

/* The processor, because -march=native means this one. */
static void add_processor(char *to, size_t room)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[4096];
    struct hash hash;
    uint8_t digest[HASH_BYTES];
    hash_begin(&hash);
    while (file && fgets(line, sizeof line, file) && line[0] != '\n')
        if (!strstr(line, "MHz") && !strstr(line, "bogomips") && !strstr(line, "BogoMIPS"))
            hash_add(&hash, line, strlen(line));
    if (file)
        fclose(file);
    hash_end(&hash, digest);
    for (size_t i = 0; i < 16 && 2 * i + 3 < room; i++)
        snprintf(to + 2 * i, room - 2 * i, "%02x", digest[i]);
}

/* /opt/gcc of /opt/gcc/bin/gcc; the folder alone where that would be the whole system or the user's own files. */
static void find_prefix(const char *real)
{
    const char *home = getenv("HOME");
    snprintf(prefix, sizeof prefix, "%s", real);
    *strrchr(prefix, '/') = '\0';
    char *slash = strrchr(prefix, '/');
    size_t length = slash ? (size_t)(slash - prefix) : 0;
    if (length > 0 && strcmp(slash, "/bin") == 0 && !(home && strncmp(home, prefix, length) == 0))
        *slash = '\0';
}

size_t child_grants(struct grant *grants)
{
    static const struct grant READ[] = {
        {"/usr", GRANT_READ},
        {"/lib", GRANT_READ},
        {"/lib64", GRANT_READ},
        {"/bin", GRANT_READ},
        {"/opt", GRANT_READ},
        {"/nix/store", GRANT_READ}, /* where a wrapper of the compiler starts programs of many folders */
        {"/gnu/store", GRANT_READ},
        {"/etc/ld.so.cache", GRANT_READ},
        {"/proc/cpuinfo", GRANT_READ}, /* -march=native, on aarch64 */
        {"/dev/null", GRANT_DEVICE},
    };
    enum { COUNT = sizeof READ / sizeof *READ };
    memcpy(grants, READ, sizeof READ);
    if (!child_identity() || prefix[0] == '\0')
        return COUNT;
    grants[COUNT] = (struct grant){prefix, GRANT_READ};
    return COUNT + 1;
}

static void identify(void)
{
    struct stat info;
    char processor[64] = "";
    if (!find_compiler(&info))
        return;
    char *real = realpath(compiler, NULL); /* `cc` may mean either */
    is_gcc = real && !strstr(real, "clang");
    if (real)
        find_prefix(real);
    free(real);
    add_processor(processor, sizeof processor);
    size_t used = (size_t)snprintf(identity, sizeof identity, "%s %lld %lld %lld %s", compiler, (long long)info.st_size,
                                   (long long)info.st_mtim.tv_sec, (long long)info.st_ino, processor);
    for (size_t i = 0; i < FLAG_COUNT; i++)
        used += (size_t)snprintf(identity + used, sizeof identity - used, " %s", FLAGS[i]);
    for (size_t i = 0; i < GCC_FLAG_COUNT && is_gcc; i++)
        used += (size_t)snprintf(identity + used, sizeof identity - used, " %s", GCC_FLAGS[i]);
}

const char *child_identity(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, identify);
    return identity[0] ? identity : NULL;
}

static void limit(int what, rlim_t most)
{
    struct rlimit now;
    if (getrlimit((__rlimit_resource_t)what, &now) == 0 && (now.rlim_max == RLIM_INFINITY || now.rlim_max > most)) {
        struct rlimit less = {most, most};
        setrlimit((__rlimit_resource_t)what, &less);
    }
}

static void close_from(int first)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, (unsigned)first, ~0u, 0u) == 0)
        return;
#endif
    for (int i = first; i < 65536; i++)
        close(i);
}

/* Between fork and exec in a process with threads: system calls only. */
static _Noreturn void become_compiler(const char *folder, char *const *arguments, char *const *environment)
{
    struct grant grants[TOOLCHAIN_GRANTS];
    size_t grant_count = child_grants(grants);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setsid();
    int null = open("/dev/null", O_RDWR);
    if (null < 0 || chdir(folder) != 0)
        _exit(126);
    int log = open("log", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(null, 0);
    dup2(log < 0 ? null : log, 1);
    dup2(log < 0 ? null : log, 2);
    close_from(3);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    umask(077);
    limit(RLIMIT_CPU, CPU_S);
    limit(RLIMIT_AS, (rlim_t)MEMORY_MB << 20);
    limit(RLIMIT_FSIZE, (rlim_t)FILE_MB << 20);
    limit(RLIMIT_NOFILE, FILES);
    limit(RLIMIT_CORE, 0);
    grants[grant_count] = (struct grant){folder, GRANT_CHANGE};
    landlock_restrict(grants, grant_count + 1, LANDLOCK_ALL);
    seccomp_restrict(REFUSED, sizeof REFUSED / sizeof *REFUSED, 0);
    execve(compiler, arguments, environment);
    _exit(127);
}

void child_watch(int socket)
{
    watched = socket;
}

static void end_group(pid_t child)
{
    kill(-child, SIGKILL); /* its own group: what it has started goes too */
    kill(child, SIGKILL);
}

void child_end(void)
{
    pid_t child = running;
    if (child > 0)
        end_group(child);
}

static bool wait_for(pid_t child)
{
    struct pollfd wanted = {.fd = watched}; /* poll passes over a negative one */
    struct timespec began, now;
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (;;) {
        int status;
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child)
            return WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (ended < 0 && errno != EINTR)
            return errno == ECHILD; /* the program reaps its children itself: the result's file will show */
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - began.tv_sec > WALL_S || wanted.revents != 0) {
            end_group(child);
            while (waitpid(child, &status, 0) < 0 && errno == EINTR)
                continue;
            return false;
        }
        poll(&wanted, 1, LOOK_MS);
    }
}

bool child_compile(const char *folder)
{
    char path[PATH_BYTES + 64], temporary[PATH_BYTES + 16],
        language[] = "LC_ALL=C", cacheless[] = "CCACHE_DISABLE=1"; /* it could not write its files */
    char *arguments[FLAG_COUNT + GCC_FLAG_COUNT + 2], *const environment[] = {path, temporary, language, cacheless,
                                                                              NULL};
    if (!child_identity())
        return false;
    const char *slash = strrchr(compiler, '/');
    snprintf(path, sizeof path, "PATH=%.*s:/usr/local/bin:/usr/bin:/bin", (int)(slash - compiler), compiler);
    snprintf(temporary, sizeof temporary, "TMPDIR=%s", folder);
    size_t count = 0;
    arguments[count++] = compiler;
    for (size_t i = 0; i < FLAG_COUNT; i++)
        arguments[count++] = (char *)(uintptr_t)FLAGS[i];
    for (size_t i = 0; i < GCC_FLAG_COUNT && is_gcc; i++)
        arguments[count++] = (char *)(uintptr_t)GCC_FLAGS[i];
    arguments[count] = NULL;
    pid_t child = fork();
    if (child == 0)
        become_compiler(folder, arguments, environment);
    running = child;
    bool done = child > 0 && wait_for(child);
    running = 0;
    return done;
}
