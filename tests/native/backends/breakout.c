/* A backend that tries to get out of its worker: cuMemAlloc of N bytes tries everything, N being the pid of another worker,
 * and writes what the kernel said as one line of JSON to stderr. It calls itself DEVICE_NAME. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 100, FILES = 100, OUT_OF_MEMORY = 2 };

static long victim, broker;
static char said[4096];
static size_t used;

static void say(const char *what, long result)
{
    used += (size_t)snprintf(said + used, sizeof said - used, "%s\"%s\": \"%s\"", used ? ", " : "", what,
                             result >= 0 ? "ok" : strerrorname_np(errno));
}

static void *rest(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* -1 with EAGAIN if not all of them can live at once. */
static long start_threads(int count)
{
    static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t threads[THREADS];
    int made = 0, error = 0;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    pthread_mutex_lock(&gate);
    while (made < count && (error = pthread_create(&threads[made], &small, rest, &gate)) == 0)
        made++;
    pthread_mutex_unlock(&gate);
    for (int at = 0; at < made; at++)
        pthread_join(threads[at], NULL);
    errno = error;
    return made == count ? 0 : -1;
}

static long open_many(void)
{
    int files[FILES], made = 0;
    while (made < FILES && (files[made] = (int)syscall(SYS_memfd_create, "many", 0)) >= 0)
        made++;
    int error = errno;
    for (int at = 0; at < made; at++)
        close(files[at]);
    errno = error;
    return made == FILES ? 0 : -1;
}

static long connect_to(const struct sockaddr *address, socklen_t bytes)
{
    int made = socket(address->sa_family, SOCK_STREAM, 0);
    long result = made < 0 ? -1 : connect(made, address, bytes);
    int error = errno;
    if (made >= 0)
        close(made);
    errno = error;
    return result;
}

static long connect_unix(const char *name, int is_abstract)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path + is_abstract, sizeof address.sun_path - 1, "%s", name);
    return connect_to((struct sockaddr *)&address,
                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)is_abstract + strlen(name)));
}

static long connect_tcp(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return connect_to((struct sockaddr *)&address, sizeof address);
}

static long start_process(void)
{
    long child = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0)
        _exit(0);
    if (child > 0)
        waitpid((pid_t)child, NULL, 0);
    return child;
}

static long map(size_t bytes, int rights)
{
    void *at = mmap(NULL, bytes, rights, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at != MAP_FAILED)
        munmap(at, bytes);
    return at == MAP_FAILED ? -1 : 0;
}

static long read_memory_of(long pid)
{
    char byte;
    struct iovec here = {&byte, 1}, there = {&victim, 1};
    long result = process_vm_readv((pid_t)pid, &here, 1, &there, 1, 0);
    return result < 0 && errno == EFAULT ? 0 : result; /* it may; there is nothing at this address */
}

/* By one plain call: dprintf asks where the file ends. */
static void print(const char *before, const char *text, const char *behind)
{
    struct iovec parts[] = {
        {(void *)before, strlen(before)}, {(void *)text, strlen(text)}, {(void *)behind, strlen(behind)}};
    if (writev(2, parts, 3) < 0)
        abort();
}

static void try_all(void)
{
    char path[64];
    used = 0;
    say("thread", start_threads(1));
    say("many_threads", start_threads(THREADS));
    say("many_files", open_many());
    say("huge_memory", map((size_t)1 << 40, PROT_NONE));
    say("code_that_is_written", map(4096, PROT_READ | PROT_WRITE | PROT_EXEC));
    say("read_file", open("/etc/passwd", O_RDONLY));
    say("write_file", open(getenv("GPUTAX_SOFT_TEST_FILE"), O_WRONLY | O_CREAT, 0600));
    say("tcp", connect_tcp(atoi(getenv("GPUTAX_SOFT_TEST_PORT"))));
    say("status_socket", connect_unix(getenv("GPUTAX_SOFT_TEST_STATUS"), 0));
    say("abstract_socket", connect_unix(getenv("GPUTAX_SOFT_TEST_ABSTRACT"), 1));
    say("process", start_process());
    say("signal_broker", kill((pid_t)broker, 0));
    say("signal_worker", kill((pid_t)victim, 0));
    snprintf(path, sizeof path, "/proc/%ld/mem", victim);
    say("memory_file_of_worker", open(path, O_RDWR));
    say("memory_of_worker", read_memory_of(victim));
    say("trace_worker", ptrace(PTRACE_SEIZE, (pid_t)victim, NULL, NULL));
    say("be_root", setresuid(0, 0, 0));
    say("namespace", unshare(CLONE_NEWUTS));
    print("attempts {", said, "}\n");
    char *const none[] = {NULL};
    char *const words[] = {(char *)"true", NULL};
    execve("/bin/true", words, none);
    print("exec ", strerrorname_np(errno), "\n");
}

int cuInit(unsigned int flags)
{
    (void)flags;
    broker = getppid();
    return 0;
}
int cuDeviceGet(int *device, int number)
{
    *device = number;
    return 0;
}
int cuDeviceGetName(char *name, int room, int device)
{
    (void)device;
    snprintf(name, (size_t)room, "%s", DEVICE_NAME);
    return 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    (void)device;
    *bytes = (size_t)1 << 30;
    return 0;
}
int cuCtxCreate_v2(void **context, unsigned int flags, int device)
{
    (void)flags, (void)device;
    *context = &victim;
    return 0;
}
int cuCtxDestroy_v2(void *context)
{
    (void)context;
    return 0;
}
int cuCtxSetCurrent(void *context)
{
    (void)context;
    return 0;
}
int cuCtxSynchronize(void)
{
    return 0;
}
int cuMemAlloc_v2(unsigned long long *pointer, size_t bytes)
{
    *pointer = 0;
    victim = (long)bytes;
    try_all();
    return OUT_OF_MEMORY;
}
int cuMemFree_v2(unsigned long long pointer)
{
    (void)pointer;
    return 0;
}
int cuMemGetInfo_v2(size_t *left, size_t *all)
{
    *left = *all = (size_t)1 << 30;
    return 0;
}
int cuMemsetD8_v2(unsigned long long pointer, unsigned char value, size_t bytes)
{
    (void)pointer, (void)value, (void)bytes;
    return 0;
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes, void *stream)
{
    (void)to, (void)from, (void)bytes, (void)stream;
    return 0;
}
int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes, void *stream)
{
    (void)to, (void)from, (void)bytes, (void)stream;
    return 0;
}
int cuStreamSynchronize(void *stream)
{
    (void)stream;
    return 0;
}
