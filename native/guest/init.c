/* The first process of a Xen guest: devices, modules, the link to the GPU proxy, the agent, then its orders. No shell is needed.
 *
 * Modules are loaded from /modules in the order of their names. /etc/gputax/orders has one program with its words in each line;
 * they run one after the other, their output goes to the console, and each end is told as `order N: exit CODE`. After the last
 * one the guest powers off. Without orders it stays and collects processes that have lost their parents; what runs then, dom0
 * starts through the agent (native/session).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "link/xenstore.h"

#define SOCKET "/run/gputax/proxy.sock"
#define READY "data/gputax/ready"
enum { WORDS_MOST = 32, LINE_BYTES = 1024, SOCKET_TRIES = 200, SOCKET_EACH_MS = 50 };

static void complain(const char *what)
{
    fprintf(stderr, "guest-init: %s: %s\n", what, strerror(errno));
}

static void mount_all(void)
{
    static const struct {
        const char *kind, *at;
    } mounts[] = {{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"},
                  {"tmpfs", "/run"}, {"tmpfs", "/tmp"}, {"devpts", "/dev/pts"}};
    for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++) {
        mkdir(mounts[i].at, 0755);
        if (mount(mounts[i].kind, mounts[i].at, mounts[i].kind, MS_NOSUID, NULL) != 0 && errno != EBUSY)
            complain(mounts[i].at);
    }
    mkdir("/run/gputax", 0755);
}

/* The kernel starts the first process with the console open, unless /dev was empty then. */
static void open_console(void)
{
    if (fcntl(2, F_GETFD) >= 0)
        return;
    int console = open("/dev/console", O_RDWR);
    for (int i = 0; i < 3 && console >= 0; i++)
        dup2(console, i);
}

static int is_module(const struct dirent *entry)
{
    return strstr(entry->d_name, ".ko") != NULL;
}

static void load_modules(void)
{
    struct dirent **names;
    char path[512];
    int count = scandir("/modules", &names, is_module, alphasort);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "/modules/%s", names[i]->d_name);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0 || (syscall(SYS_finit_module, file, "", 0) != 0 && errno != EEXIST))
            complain(path);
        if (file >= 0)
            close(file);
        free(names[i]);
    }
    if (count >= 0)
        free(names);
}

static void write_file(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0 || write(file, text, strlen(text)) != (ssize_t)strlen(text))
        complain(path);
    if (file >= 0)
        close(file);
}

static pid_t start(char *const *words)
{
    static char *const environment[] = {(char *)(uintptr_t) "PATH=/bin",
                                        (char *)(uintptr_t) "GPUTAX_PROXY_SOCKET=" SOCKET,
                                        (char *)(uintptr_t) "GPUTAX_PROXY_TRANSPORT=xen", NULL};
    pid_t process = fork();
    if (process == 0) {
        execve(words[0], words, environment);
        complain(words[0]);
        _exit(127);
    }
    return process;
}

/* Waits for this one and collects all others that end meanwhile. */
static int wait_for(pid_t process)
{
    int status = 0;
    for (pid_t ended; (ended = wait(&status)) != process;)
        if (ended < 0 && errno != EINTR)
            return 255;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void start_link(void)
{
    char *const words[] = {(char *)(uintptr_t) "/bin/xen-link", (char *)(uintptr_t) "guest", (char *)(uintptr_t)SOCKET,
                           NULL};
    start(words);
    for (int i = 0; i < SOCKET_TRIES && access(SOCKET, F_OK) != 0; i++)
        poll(NULL, 0, SOCKET_EACH_MS);
}

static void start_agent(void)
{
    char *const words[] = {(char *)(uintptr_t) "/bin/xen-session", (char *)(uintptr_t) "guest", NULL};
    start(words);
}

/* Containers see /run/gputax and find the driver's library there, whatever is in their own file system. */
static void show_library(void)
{
    mkdir("/run/gputax/lib", 0755);
    int file = open("/run/gputax/lib/libcuda.so.1", O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    if (file >= 0)
        close(file);
    if (mount("/lib/libcuda.so.1", "/run/gputax/lib/libcuda.so.1", NULL, MS_BIND, NULL) != 0)
        complain("/lib/libcuda.so.1");
}

static void say_ready(void)
{
    struct xenstore store;
    if (!xenstore_open(&store) || !xenstore_write(&store, READY, "1"))
        complain(READY);
    xenstore_close(&store);
}

static void follow(FILE *orders)
{
    char line[LINE_BYTES];
    for (int number = 1; fgets(line, sizeof line, orders) != NULL; number++) {
        char *words[WORDS_MOST + 1], *rest = line;
        int count = 0;
        for (char *word; count < WORDS_MOST && (word = strtok_r(rest, " \n", &rest)) != NULL;)
            words[count++] = word;
        words[count] = NULL;
        if (count == 0)
            continue;
        fflush(stdout);
        int code = wait_for(start(words));
        printf("order %d: exit %d\n", number, code);
        fflush(stdout);
    }
}

int main(void)
{
    mount_all();
    open_console();
    load_modules();
    write_file("/sys/module/xen_gntalloc/parameters/limit", "65536");
    show_library();
    start_link();
    start_agent();
    say_ready();
    FILE *orders = fopen("/etc/gputax/orders", "re");
    if (orders != NULL) {
        follow(orders);
        sync();
        reboot(RB_POWER_OFF);
    }
    for (;;)
        if (wait(NULL) < 0)
            pause();
}
