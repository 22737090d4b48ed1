/* The system calls that a worker may make, each with its reason; all others are refused with EPERM.
 *
 * Refused, not killed: libraries ask for things that they can do without (a locale's file, the number of processors from
 * /sys), and an error costs the tenant nothing there. Who has taken over a worker gets the same error as an answer, and
 * nothing else. docs/security.md has these tables for readers, and a test compares the two. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "confine/seccomp.h"
#include "include/xen_abi.h"
#include "proxy/confine.h"

enum { THREAD = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD };

#define ALLOW(call, reason) \
    { \
        .number = SYS_##call, .why = (reason) \
    }
#define ALLOW_IF(call, which, what, wanted, reason) \
    { \
        .number = SYS_##call, .argument = (which), .rule = (what), .value = (uint32_t)(wanted), .why = (reason) \
    }

/* In the order of how often they are made: the filter looks at the rows one after the other. */
static const struct call_row SOFTWARE[] = {
    ALLOW(futex, "waits for the tenant's next message, locks"),
    ALLOW(sendmsg, "messages of the socket transport, descriptors of mapped memory"),
    ALLOW(recvfrom, "messages of the socket transport"),
    ALLOW(recvmsg, "the handshake"),
    ALLOW(sendto, "texts for the compiler process"),
#ifdef SYS_poll
    ALLOW(poll, "waits for the socket, whether the tenant lives"),
#endif
    ALLOW(ppoll, "the same"),
    ALLOW(clock_nanosleep, "the time that work takes on a throttled device"),
    ALLOW(sched_yield, "waits while others need the core"),
    ALLOW(clock_gettime, "time, where the kernel does not give it without a call"),
    ALLOW(gettimeofday, "the same"),
    ALLOW(madvise, "gives freed memory back"),
    ALLOW(munmap, "gives memory back"),
    ALLOW_IF(mmap, 2, ARGUMENT_LACKS, PROT_WRITE | PROT_EXEC, "memory, but not to write and run at once"),
    ALLOW_IF(mprotect, 2, ARGUMENT_LACKS, PROT_WRITE | PROT_EXEC, "compiled kernels become code"),
    ALLOW(mremap, "memory that grows"),
    ALLOW(brk, "memory"),
    ALLOW(memfd_create, "the ring of the connection, mapped host memory"),
    ALLOW(ftruncate, "their size"),
    ALLOW_IF(fcntl, 1, ARGUMENT_IS, F_ADD_SEALS, "that nobody changes the size"),
    ALLOW_IF(fcntl, 1, ARGUMENT_IS, F_GET_SEALS, "that nobody has"),
    ALLOW_IF(fcntl, 1, ARGUMENT_IS, F_GETFD, "whether a descriptor was given"),
    ALLOW_IF(fcntl, 1, ARGUMENT_IS, F_GETFL, "how a socket waits"),
    ALLOW(close, "the descriptors of memory that was handed over, the connection"),
    ALLOW(shutdown, "the end of a connection"),
    ALLOW(write, "messages for the log"),
    ALLOW(writev, "the same"),
    ALLOW_IF(clone, 0, ARGUMENT_HAS, THREAD, "helpers of compiled kernels: threads, never processes"),
    {.number = SYS_clone3, .error = ENOSYS, .why = "its flags cannot be seen here; libc then takes clone"},
    ALLOW(set_robust_list, "the start of a thread"),
    ALLOW(rseq, "the same"),
    ALLOW(sched_getaffinity, "how many helpers"),
    ALLOW_IF(prctl, 0, ARGUMENT_IS, PR_SET_TIMERSLACK, "waits that end on time"),
    ALLOW(rt_sigaction, "signals of an orderly end"),
    ALLOW(rt_sigprocmask, "the start of a thread"),
    ALLOW(rt_sigreturn, "the return from a signal"),
    ALLOW(restart_syscall, "a wait that a signal interrupted"),
    ALLOW(getpid, "abort, of a check that failed"),
    ALLOW(gettid, "the same"),
    ALLOW_IF(tgkill, 0, ARGUMENT_IS_SELF, 0, "the same: a signal to this process alone"),
    ALLOW(getrandom, "the seed of tables of names and handles"),
    ALLOW(exit, "the end of a thread"),
    ALLOW(exit_group, "the end"),
};

/* What a worker calls beside these whose tenant is in another domain: it waits for an event channel in place of a futex. */
static const struct call_row LINKED[] = {
    ALLOW(read, "rings of the doorbell"),
    ALLOW_IF(ioctl, 1, ARGUMENT_IS, XEN_NOTIFY, "rings it: the notification of an event channel and nothing else"),
};

/* What a GPU driver's library calls beside these, as known from descriptions of others. It was not tried on a GPU. Which
 * files and nodes it reaches is Landlock's matter; programs, other processes and the network stay closed. */
static const struct call_row DRIVER[] = {
    ALLOW(ioctl, "every work of the driver, on its nodes"),
    ALLOW(openat, "its nodes, libraries and settings"),
    ALLOW(read, "settings, events"),
    ALLOW(pread64, "libraries"),
    ALLOW(lseek, "files"),
    ALLOW(newfstatat, "files"),
    ALLOW(fstat, "files"),
    ALLOW(statx, "files"),
    ALLOW(faccessat, "files"),
    ALLOW(faccessat2, "files"),
    ALLOW(readlinkat, "files"),
    ALLOW(getdents64, "/proc/driver/nvidia and /sys"),
    ALLOW(statfs, "huge pages"),
    ALLOW(mkdirat, "the cache of compiled kernels"),
    ALLOW(unlinkat, "the same"),
    ALLOW(renameat2, "the same"),
    ALLOW(pwrite64, "the same"),
    ALLOW(flock, "the same"),
    ALLOW(fsync, "the same"),
    ALLOW(fcntl, "flags of descriptors"),
    ALLOW(dup, "descriptors"),
    ALLOW(dup3, "descriptors"),
    ALLOW(pipe2, "threads of the driver wake each other"),
    ALLOW(eventfd2, "the same"),
    ALLOW(epoll_create1, "the same"),
    ALLOW(epoll_ctl, "the same"),
    ALLOW(epoll_pwait, "the same"),
    ALLOW(timerfd_create, "the same"),
    ALLOW(timerfd_settime, "the same"),
    ALLOW(prctl, "names of threads"),
    ALLOW(uname, "the version of the kernel"),
    ALLOW(sysinfo, "the size of memory"),
    ALLOW(getcpu, "where memory is near"),
    ALLOW(sched_setaffinity, "threads of the driver"),
    ALLOW(sched_getscheduler, "threads of the driver"),
    ALLOW(sched_getparam, "threads of the driver"),
    ALLOW(mbind, "memory near the GPU"),
    ALLOW(get_mempolicy, "the same"),
    ALLOW(set_mempolicy, "the same"),
    ALLOW(mlock, "memory that the GPU reads"),
    ALLOW(munlock, "the same"),
    ALLOW(msync, "files of the cache"),
    ALLOW(membarrier, "locks of the driver"),
    ALLOW(sigaltstack, "the start of a thread"),
    ALLOW(getuid, "who runs it"),
    ALLOW(geteuid, "who runs it"),
    ALLOW(getgid, "who runs it"),
    ALLOW(getegid, "who runs it"),
    ALLOW(getppid, "who runs it"),
    ALLOW_IF(prlimit64, 0, ARGUMENT_IS, 0, "its own limits"),
#ifdef SYS_open
    ALLOW(open, "as openat"),
    ALLOW(stat, "as newfstatat"),
    ALLOW(lstat, "as newfstatat"),
    ALLOW(access, "as faccessat"),
    ALLOW(readlink, "as readlinkat"),
    ALLOW(mkdir, "as mkdirat"),
    ALLOW(unlink, "as unlinkat"),
    ALLOW(rename, "as renameat2"),
    ALLOW(dup2, "as dup3"),
    ALLOW(pipe, "as pipe2"),
    ALLOW(epoll_wait, "as epoll_pwait"),
#endif
};

enum {
    SOFTWARE_ROWS = sizeof SOFTWARE / sizeof *SOFTWARE,
    LINKED_ROWS = sizeof LINKED / sizeof *LINKED,
    DRIVER_ROWS = sizeof DRIVER / sizeof *DRIVER
};

bool allow_calls(bool software, bool linked)
{
    struct call_row rows[SOFTWARE_ROWS + LINKED_ROWS + DRIVER_ROWS];
    size_t count = 0;
    for (size_t at = 0; at < SOFTWARE_ROWS; at++)
        rows[count++] = SOFTWARE[at];
    for (size_t at = 0; at < LINKED_ROWS && linked; at++)
        rows[count++] = LINKED[at];
    for (size_t at = 0; at < DRIVER_ROWS && !software; at++)
        rows[count++] = DRIVER[at];
    return seccomp_restrict(rows, count, EPERM);
}
