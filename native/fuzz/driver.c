/* A small coverage-guided fuzzer for gcc, for any target with LLVMFuzzerTestOneInput:
 *
 *   TARGET [--executions N] [--seconds S] [--corpus DIR]... [--write DIR] [--crashes DIR] [--seed N]
 *   TARGET FILE...        runs these inputs once each
 *
 * Prints one JSON line with what was reached. Inputs of --corpus are where it starts; with --write the smallest set of
 * inputs that reaches all that was reached is written at the end. A crash, a hang of more than 10 s or a failed check ends
 * the run with exit code 1 and saves its input below --crashes (default: the current folder). Same seed, same run.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "coverage.h"
#include "mutate.h"
#include "script.h"

enum { ENTRIES_MOST = 65536, TRIM_RUNS = 128, HANG_SECONDS = 10 };

static const char *target = "?";
static const char *crash_folder = ".";
static struct input corpus[ENTRIES_MOST];
static size_t entries;
static uint64_t executions;
static double started;
static uint8_t current[INPUT_MOST];
static volatile size_t current_count;
static volatile sig_atomic_t seconds_in_this_run;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void report(int crashes, const char *crash_file)
{
    double seconds = now() - started;
    printf("{\"target\": \"%s\", \"executions\": %llu, \"seconds\": %.2f, \"per_second\": %.0f, \"edges\": %zu, "
           "\"corpus\": %zu, \"crashes\": %d%s%s%s}\n",
           target, (unsigned long long)executions, seconds, (double)executions / (seconds > 0 ? seconds : 1),
           coverage_edges(), entries, crashes, crash_file ? ", \"crash_file\": \"" : "", crash_file ? crash_file : "",
           crash_file ? "\"" : "");
    fflush(stdout);
}

static uint64_t name_of(const uint8_t *bytes, size_t count)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static void write_input(const char *folder, const char *prefix, const uint8_t *bytes, size_t count, char *path,
                        size_t size)
{
    snprintf(path, size, "%s/%s%016llx", folder, prefix, (unsigned long long)name_of(bytes, count));
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0 || write(file, bytes, count) != (ssize_t)count)
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
    if (file >= 0)
        close(file);
}

/* Also called by the sanitizers before they end the process. */
static void save_crash(void)
{
    static volatile sig_atomic_t once;
    char path[4200];
    if (once++)
        return;
    write_input(crash_folder, "crash-", current, current_count, path, sizeof path);
    report(1, path);
}

static void on_signal(int signal)
{
    if (signal == SIGALRM && ++seconds_in_this_run <= HANG_SECONDS)
        return;
    fprintf(stderr, "%s: %s\n", target, signal == SIGALRM ? "hangs" : strsignal(signal));
    save_crash();
    _exit(1);
}

extern void __sanitizer_set_death_callback(void (*)(void)) __attribute__((weak));
const char *__asan_default_options(void);
__attribute__((visibility("default"), used)) const char *__asan_default_options(void)
{
    /* No fill, short stacks and a small quarantine, for more executions. Leaks: LeakSanitizer needs ptrace. */
    return "quarantine_size_mb=1:max_malloc_fill_size=0:malloc_context_size=4:detect_leaks=0:abort_on_error=0:exitcode="
           "1";
}

/* with libasan, libubsan has no death callback; it can abort, which we see as a signal. */
const char *__ubsan_default_options(void);
__attribute__((visibility("default"), used)) const char *__ubsan_default_options(void)
{
    return "abort_on_error=1:print_stacktrace=1";
}

static void watch(void)
{
    static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        /* SIGSEGV and its like are the sanitizer's own where there is one; it tells more. */
        if (__sanitizer_set_death_callback == NULL || signals[i] == SIGABRT || signals[i] == SIGALRM)
            sigaction(signals[i], &(struct sigaction){.sa_handler = on_signal, .sa_flags = SA_RESTART}, NULL);
    }
    if (__sanitizer_set_death_callback != NULL)
        __sanitizer_set_death_callback(save_crash);
    struct itimerval second = {{1, 0}, {1, 0}};
    setitimer(ITIMER_REAL, &second, NULL);
}

static void run(const uint8_t *bytes, size_t count)
{
    /* Copied to memory of its own size, so that a target that reads beyond its input is caught. */
    uint8_t *exact = malloc(count ? count : 1);
    if (exact == NULL)
        exit(1);
    memcpy(exact, bytes, count);
    if (bytes != current)
        memcpy(current, bytes, count);
    current_count = count;
    seconds_in_this_run = 0;
    coverage_start();
    LLVMFuzzerTestOneInput(exact, count);
    executions++;
    free(exact);
}

/* Shortens `current` as long as it still reaches as much that is new. */
static size_t trim(size_t count, size_t news)
{
    static uint8_t tried[INPUT_MOST];
    int runs = 0;
    for (size_t length = count / 2; length > 0 && runs < TRIM_RUNS; length /= 2) {
        for (size_t at = 0; at + length <= count && runs < TRIM_RUNS; runs++) {
            memcpy(tried, current, at);
            memcpy(tried + at, current + at + length, count - at - length);
            static uint8_t kept[INPUT_MOST];
            memcpy(kept, current, count);
            run(tried, count - length);
            if (coverage_new(false) >= news) {
                count -= length;
            } else {
                memcpy(current, kept, count);
                at += length;
            }
        }
    }
    run(current, count);
    return count;
}

/* Runs the input and keeps it if it reaches something new. */
static void consider(const uint8_t *bytes, size_t count)
{
    run(bytes, count);
    size_t news = coverage_new(false);
    if (news == 0 || entries == ENTRIES_MOST)
        return;
    count = trim(count, news);
    coverage_new(true);
    uint8_t *copy = malloc(count ? count : 1);
    if (copy == NULL)
        exit(1);
    memcpy(copy, current, count);
    corpus[entries++] = (struct input){copy, count};
}

static size_t read_input(const char *path, uint8_t *bytes)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, bytes, INPUT_MOST);
    if (file >= 0)
        close(file);
    if (got < 0)
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
    return got < 0 ? 0 : (size_t)got;
}

static void load(const char *folder)
{
    static uint8_t bytes[INPUT_MOST];
    struct dirent **names;
    int count = scandir(folder, &names, NULL, alphasort); /* a fixed order, for the same run again */
    if (count < 0) {
        fprintf(stderr, "%s: %s\n", folder, strerror(errno));
        exit(2);
    }
    for (int i = 0; i < count; i++) {
        char path[4200];
        if (names[i]->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
            consider(bytes, read_input(path, bytes));
        }
        free(names[i]);
    }
    free(names);
}

static int shorter(const void *a, const void *b)
{
    size_t x = ((const struct input *)a)->count;
    size_t y = ((const struct input *)b)->count;
    return (x > y) - (x < y);
}

/* Smallest inputs first, each only if it reaches an edge that those before it do not. */
static void write_corpus(const char *folder)
{
    qsort(corpus, entries, sizeof corpus[0], shorter);
    coverage_forget();
    for (size_t i = 0; i < entries; i++) {
        char path[4200];
        size_t before = coverage_edges();
        run(corpus[i].bytes, corpus[i].count);
        coverage_new(true);
        if (coverage_edges() > before)
            write_input(folder, "", corpus[i].bytes, corpus[i].count, path, sizeof path);
    }
}

static void fuzz(uint64_t most_executions, double most_seconds)
{
    static uint8_t bytes[INPUT_MOST];
    while (executions < most_executions) {
        if (executions % 64 == 0 && now() - started > most_seconds)
            break;
        /* New entries are the more promising half of the time. */
        size_t recent = entries < 16 ? entries : 16;
        size_t pick = random_below(2) ? entries - 1 - random_below(recent) : random_below(entries);
        struct input from = entries > 0 ? corpus[pick] : (struct input){bytes, 0};
        struct input other = entries > 0 ? corpus[random_below(entries)] : from;
        if (from.count > 0)
            memcpy(bytes, from.bytes, from.count);
        size_t count = from.count;
        if (LLVMFuzzerCustomMutator != NULL && random_below(4) != 0)
            count = LLVMFuzzerCustomMutator(bytes, count, INPUT_MOST, (unsigned int)random_number());
        else
            count = mutate(bytes, count, &other);
        consider(bytes, count);
    }
}

int main(int argc, char **argv)
{
    uint64_t most_executions = UINT64_MAX;
    double most_seconds = 10;
    const char *write_to = NULL;
    int first = 1;
    target = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    random_seed(1);
    started = now();
    for (; first + 1 < argc && strncmp(argv[first], "--", 2) == 0; first += 2) {
        const char *option = argv[first] + 2;
        const char *value = argv[first + 1];
        if (strcmp(option, "executions") == 0)
            most_executions = strtoull(value, NULL, 10), most_seconds = 1e9;
        else if (strcmp(option, "write") == 0)
            write_to = value;
        else if (strcmp(option, "crashes") == 0)
            crash_folder = value;
        else if (strcmp(option, "seed") == 0)
            random_seed(strtoull(value, NULL, 10));
        else if (strcmp(option, "seconds") != 0 && strcmp(option, "corpus") != 0)
            first = argc;
    }
    if (first > argc || (first < argc && argv[first][0] == '-')) {
        fprintf(stderr,
                "usage: %s [--executions N] [--seconds S] [--corpus DIR] [--write DIR] [--crashes DIR] [--seed N] "
                "[FILE...]\n",
                target);
        return 2;
    }
    watch();
    for (int i = 1; i + 1 < first; i += 2) {
        if (strcmp(argv[i], "--seconds") == 0)
            most_seconds = strtod(argv[i + 1], NULL);
        if (strcmp(argv[i], "--corpus") == 0)
            load(argv[i + 1]);
    }
    static uint8_t bytes[INPUT_MOST];
    for (int i = first; i < argc; i++)
        consider(bytes, read_input(argv[i], bytes));
    if (first == argc) {
        consider(bytes, 0);
        fuzz(most_executions, most_seconds);
    }
    if (write_to != NULL)
        write_corpus(write_to);
    report(0, NULL);
    return 0;
}
