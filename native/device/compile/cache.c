/* Compiled kernels on disk: in the user's cache, by the hash of all that they depend on, each with its own checksum. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "device/compile/build.h"

/* Behind the object in its file: this, and the SHA-256 of what stands before. */
static const char SEAL[8] = "GPUTAX1";
enum { SEAL_BYTES = sizeof SEAL + HASH_BYTES, LIBRARY_CAP = 64 << 20 };
enum { CACHE_CAP = 256 << 20 }; /* ResNet-50 takes 2 MiB */
enum { LEFTOVER_S = 3600 };     /* no compiler runs that long */
enum { ENTRY_NAME = 2 * HASH_BYTES + 3 };

static char folder[PATH_BYTES - 512];
static bool temporary;       /* no cache: the folder is this process's own */
static const char *unusable; /* why not */

/* Makes the folder and those above it; it must be ours alone, for what lies in it is run. */
static bool make_folder(char *path)
{
    struct stat info;
    for (char *at = path + 1; *at; at++)
        if (*at == '/') {
            *at = '\0';
            mkdir(path, 0700);
            *at = '/';
        }
    mkdir(path, 0700);
    return lstat(path, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 077) == 0;
}

static void find_folder(void)
{
    const char *chosen = getenv("GPUTAX_SOFT_CODE"), *cache = getenv("XDG_CACHE_HOME"), *user = getenv("HOME");
    int needed = 0;
    if (chosen && *chosen == '/')
        needed = snprintf(folder, sizeof folder, "%s", chosen);
    else if (cache && *cache == '/')
        needed = snprintf(folder, sizeof folder, "%s/gputax/kernels", cache);
    else if (user && *user == '/')
        needed = snprintf(folder, sizeof folder, "%s/.cache/gputax/kernels", user);
    if (needed > 0 && (size_t)needed < sizeof folder && make_folder(folder))
        return;
    if (needed > 0)
        unusable = "the folder of compiled kernels cannot be used: it must be a directory of this user with mode 0700 "
                   "(GPUTAX_SOFT_CODE names another one)";
    snprintf(folder, sizeof folder, "/tmp/gputax-kernels.XXXXXX");
    temporary = true;
    if (!mkdtemp(folder))
        folder[0] = '\0';
}

static void remove_folder(const char *path)
{
    DIR *open_folder = opendir(path);
    for (const struct dirent *entry; open_folder && (entry = readdir(open_folder));)
        unlinkat(dirfd(open_folder), entry->d_name, 0);
    if (open_folder)
        closedir(open_folder);
    rmdir(path);
}

static __attribute__((destructor)) void remove_temporary(void)
{
    if (temporary && folder[0])
        remove_folder(folder);
}

static char *read_whole(const char *path, size_t *bytes)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat info;
    char *data = NULL;
    *bytes = 0;
    if (file >= 0 && fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() && info.st_size > 0 &&
        info.st_size < LIBRARY_CAP && (data = malloc((size_t)info.st_size)))
        while (*bytes < (size_t)info.st_size) {
            ssize_t part = read(file, data + *bytes, (size_t)info.st_size - *bytes);
            if (part <= 0 && !(part < 0 && errno == EINTR))
                break;
            *bytes += part > 0 ? (size_t)part : 0;
        }
    if (file >= 0)
        close(file);
    return data;
}

static bool write_whole(const char *path, const char *data, size_t bytes)
{
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    size_t done = 0;
    while (file >= 0 && done < bytes) {
        ssize_t part = write(file, data + done, bytes - done);
        if (part <= 0 && !(part < 0 && errno == EINTR))
            break;
        done += part > 0 ? (size_t)part : 0;
    }
    return file >= 0 && close(file) == 0 && done == bytes;
}

static void seal_of(const char *data, size_t bytes, char seal[SEAL_BYTES])
{
    struct hash hash;
    memcpy(seal, SEAL, sizeof SEAL);
    hash_begin(&hash);
    hash_add(&hash, data, bytes);
    hash_end(&hash, (uint8_t *)seal + sizeof SEAL);
}

enum entry { ENTRY_ABSENT, ENTRY_GOOD, ENTRY_CORRUPTED };

/* The object of an entry, without its seal. */
static enum entry look(const char *path, char **object, uint64_t *object_bytes)
{
    char seal[SEAL_BYTES];
    size_t bytes;
    char *data = read_whole(path, &bytes);
    if (!data)
        return access(path, F_OK) == 0 ? ENTRY_CORRUPTED : ENTRY_ABSENT;
    if (bytes > SEAL_BYTES) {
        seal_of(data, bytes - SEAL_BYTES, seal);
        if (memcmp(seal, data + bytes - SEAL_BYTES, SEAL_BYTES) == 0) {
            *object = data;
            *object_bytes = bytes - SEAL_BYTES;
            return ENTRY_GOOD;
        }
    }
    free(data);
    return ENTRY_CORRUPTED;
}

/* Puts the seal behind the object and moves it to its name: others see all of it or nothing. Returns the object. */
static char *publish(const char *work, const char *path, uint64_t *object_bytes)
{
    char from[PATH_BYTES], sealed[PATH_BYTES];
    size_t bytes;
    snprintf(from, sizeof from, "%s/kernel.so", work);
    snprintf(sealed, sizeof sealed, "%s/sealed.so", work);
    char *data = read_whole(from, &bytes);
    char *bigger = data ? realloc(data, bytes + SEAL_BYTES) : NULL;
    if (!bigger) {
        free(data);
        return NULL;
    }
    seal_of(bigger, bytes, bigger + bytes);
    *object_bytes = bytes;
    if (write_whole(sealed, bigger, bytes + SEAL_BYTES) && rename(sealed, path) == 0)
        return bigger;
    free(bigger);
    return NULL;
}

static char *build(const char *text, const char *path, uint64_t *object_bytes)
{
    char work[PATH_BYTES - 256], source[PATH_BYTES];
    snprintf(work, sizeof work, "%s/work.XXXXXX", folder);
    if (!mkdtemp(work))
        return NULL;
    snprintf(source, sizeof source, "%s/kernel.c", work);
    char *object = NULL;
    if (write_whole(source, text, strlen(text)) && child_compile(work))
        object = publish(work, path, object_bytes);
    remove_folder(work);
    return object;
}

struct use { /* of an entry */
    struct timespec last;
    off_t bytes;
    char name[ENTRY_NAME + 1];
};

static int by_age(const void *x, const void *y)
{
    const struct timespec *a = &((const struct use *)x)->last, *b = &((const struct use *)y)->last;
    if (a->tv_sec != b->tv_sec)
        return a->tv_sec < b->tv_sec ? -1 : 1;
    return (a->tv_nsec > b->tv_nsec) - (a->tv_nsec < b->tv_nsec);
}

static bool is_entry(const char *name)
{
    return strlen(name) == ENTRY_NAME && strspn(name, "0123456789abcdef") == ENTRY_NAME - 3 &&
           strcmp(name + ENTRY_NAME - 3, ".so") == 0;
}

/* What a compiler that was killed has left behind. */
static void remove_leftover(const char *name, const struct stat *info)
{
    char path[PATH_BYTES];
    if (strncmp(name, "work.", 5) != 0 || !S_ISDIR(info->st_mode) || time(NULL) - info->st_mtime < LEFTOVER_S)
        return;
    snprintf(path, sizeof path, "%s/%.255s", folder, name);
    remove_folder(path);
}

/* The entries whose last use is longest ago go, until the others are small enough. Who runs one keeps it. */
static void trim(void)
{
    struct use *uses = NULL;
    size_t count = 0, room = 0;
    off_t total = 0;
    struct stat info;
    DIR *all = opendir(folder);
    for (const struct dirent *entry; all && (entry = readdir(all));) {
        if (fstatat(dirfd(all), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        remove_leftover(entry->d_name, &info);
        if (!is_entry(entry->d_name) || !S_ISREG(info.st_mode))
            continue;
        if (count == room) {
            struct use *more = realloc(uses, (room = room * 2 + 64) * sizeof *more);
            if (!more)
                break;
            uses = more;
        }
        uses[count].last = info.st_mtim;
        uses[count].bytes = info.st_size;
        snprintf(uses[count++].name, sizeof uses->name, "%.*s", (int)sizeof uses->name - 1, entry->d_name);
        total += info.st_size;
    }
    if (uses && total > CACHE_CAP)
        qsort(uses, count, sizeof *uses, by_age);
    for (size_t i = 0; i < count && total > CACHE_CAP; i++)
        if (unlinkat(dirfd(all), uses[i].name, 0) == 0)
            total -= uses[i].bytes;
    if (all)
        closedir(all);
    free(uses);
}

static void name_of(const char *text, char *path, size_t room)
{
    struct hash hash;
    uint8_t digest[HASH_BYTES];
    char hexadecimal[2 * HASH_BYTES + 1];
    const char *identity = child_identity();
    hash_begin(&hash);
    hash_add(&hash, identity, strlen(identity) + 1);
    hash_add(&hash, text, strlen(text));
    hash_end(&hash, digest);
    for (int i = 0; i < HASH_BYTES; i++)
        snprintf(hexadecimal + 2 * i, 3, "%02x", digest[i]);
    snprintf(path, room, "%s/%s.so", folder, hexadecimal);
}

const char *cache_folder(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_folder);
    return folder[0] ? folder : NULL;
}

char *cache_get(const char *text, bool may_build, struct answer *answer)
{
    char path[PATH_BYTES], *object = NULL;
    *answer = (struct answer){.outcome = CODE_NO_COMPILER};
    if (!cache_folder() || !child_identity())
        return NULL;
    if (unusable)
        snprintf(answer->warning, sizeof answer->warning, "%s", unusable);
    name_of(text, path, sizeof path);
    enum entry found = look(path, &object, &answer->bytes);
    answer->outcome = CODE_KEPT;
    if (found == ENTRY_GOOD) {
        utimensat(AT_FDCWD, path, NULL, 0); /* used now: trim() takes others first */
        return object;
    }
    answer->outcome = CODE_MISSED;
    if (!may_build)
        return NULL;
    if (found == ENTRY_CORRUPTED) {
        answer->damaged = 1;
        snprintf(answer->warning, sizeof answer->warning, "the compiled kernel %.300s is damaged and is compiled again",
                 path);
        unlink(path);
    }
    object = build(text, path, &answer->bytes);
    answer->outcome = object ? CODE_BUILT : CODE_FAILED;
    if (object)
        trim();
    return object;
}
