/* GPUTAX_SOFT_KERNELS=null and GPUTAX_SOFT_KERNEL_NS: one time for all kernels, or a file with lines `NS KERNEL` or
 * `NS KERNEL BLOCKS THREADS`. KERNEL may hold `*`; the line `NS *` is for the kernels that no other names. */
#include "device/null.h"

#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/compile/build.h"

enum { LINE_MOST = 1 << 16, ENTRIES_MOST = 1 << 20, FILE_SHOWN = 40 };

struct timed {
    const char *kernel;
    uint64_t blocks, threads; /* 0: of any launch */
    double ns;
};

struct table {
    struct timed *entries;
    size_t count;
};

static bool is_null;
static double each_ns;        /* of kernels that the table does not name */
static struct table named;    /* sorted */
static struct table patterns; /* in the order of the file: the first that fits counts */

static bool complain(const char *text, const char *why)
{
    fprintf(stderr, "gputax software device: GPUTAX_SOFT_KERNEL_NS=%s: %s\n", text, why);
    return false;
}

static bool number(const char *text, char **rest, double *ns)
{
    errno = 0;
    *ns = strtod(text, rest);
    return !errno && *rest != text && isfinite(*ns) && *ns >= 0 && *ns <= 1e12;
}

static int by_name(const void *one, const void *other)
{
    const struct timed *a = one, *b = other;
    int order = strcmp(a->kernel, b->kernel);
    if (order == 0)
        order = (a->blocks > b->blocks) - (a->blocks < b->blocks);
    return order != 0 ? order : (a->threads > b->threads) - (a->threads < b->threads);
}

static bool add(struct table *table, const struct timed *entry)
{
    struct timed *grown = table->entries;
    if ((table->count & (table->count - 1)) == 0) { /* full at the powers of two */
        if (table->count >= ENTRIES_MOST)
            return false;
        grown = realloc(grown, (table->count ? table->count * 2 : 1) * sizeof *grown);
    }
    if (!grown)
        return false;
    table->entries = grown;
    grown[table->count] = *entry;
    grown[table->count].kernel = strdup(entry->kernel);
    return grown[table->count++].kernel != NULL;
}

/* A whole number above zero; moves on behind it. */
static bool count_in(char **text, uint64_t *count)
{
    char *rest;
    *text += strspn(*text, " \t");
    if (**text < '0' || **text > '9')
        return false;
    errno = 0;
    *count = strtoull(*text, &rest, 10);
    *text = rest;
    return !errno && *count > 0;
}

static bool add_line(char *line, bool *has_rest)
{
    struct timed entry = {0};
    char *rest;
    line[strcspn(line, "\r\n")] = '\0';
    if (line[0] == '#' || line[0] == '\0')
        return true;
    if (!number(line, &rest, &entry.ns))
        return false;
    char *kernel = rest + strspn(rest, " \t");
    if (kernel == rest || *kernel == '\0')
        return false;
    rest = kernel + strcspn(kernel, " \t");
    bool has_shape = rest[strspn(rest, " \t")] != '\0';
    if (*rest != '\0')
        *rest++ = '\0';
    if (has_shape && (!count_in(&rest, &entry.blocks) || !count_in(&rest, &entry.threads) || *rest != '\0'))
        return false;
    if (strcmp(kernel, "*") == 0 && !has_shape) {
        *has_rest = true;
        each_ns = entry.ns;
        return true;
    }
    entry.kernel = kernel;
    return add(strchr(kernel, '*') ? &patterns : &named, &entry);
}

static bool read_table(const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return complain(path, "neither a number nor a file that can be read");
    char *line = malloc(LINE_MOST);
    bool good = line, has_rest = false;
    while (good && fgets(line, LINE_MOST, file))
        good = add_line(line, &has_rest);
    free(line);
    fclose(file);
    if (!good)
        return complain(path, "every line is a time in ns, a kernel, and after it its blocks and threads or nothing");
    if (!has_rest)
        return complain(path, "a line `NS *` must say how long the kernels take that it does not name");
    if (named.count)
        qsort(named.entries, named.count, sizeof *named.entries, by_name);
    return true;
}

/* The last part of the path as far as a name can show it. */
static void shown(const char *path, char to[FILE_SHOWN])
{
    const char *last = strrchr(path, '/');
    snprintf(to, FILE_SHOWN, "%s", last ? last + 1 : path);
    for (char *at = to; *at; at++)
        if (*at < ' ' || *at > '~' || *at == '"' || *at == '\\')
            *at = '?';
}

bool null_open(char *suffix, size_t capacity)
{
    const char *kernels = getenv("GPUTAX_SOFT_KERNELS"), *ns = getenv("GPUTAX_SOFT_KERNEL_NS");
    const char *us = getenv("GPUTAX_SOFT_KERNEL_US");
    char *rest, file[FILE_SHOWN];
    suffix[0] = '\0';
    if (!kernels || !*kernels || strcmp(kernels, "computed") == 0)
        return !ns || !*ns || complain(ns, "is the time of null kernels; set GPUTAX_SOFT_KERNELS=null too");
    if (strcmp(kernels, "null") != 0) {
        fprintf(stderr, "gputax software device: GPUTAX_SOFT_KERNELS=%s is neither computed nor null\n", kernels);
        return false;
    }
    is_null = true;
    if (ns && *ns && us && *us)
        return complain(ns, "contradicts GPUTAX_SOFT_KERNEL_US");
    if (us && *us) /* the timeline reads it, and says so in the name */
        snprintf(suffix, capacity, ", null kernels");
    else if (!ns || !*ns)
        snprintf(suffix, capacity, ", null kernels of 0 ns");
    else if (number(ns, &rest, &each_ns) && *rest == '\0')
        snprintf(suffix, capacity, ", null kernels of %.12g ns", each_ns);
    else if (!read_table(ns))
        return false;
    else {
        shown(ns, file);
        snprintf(suffix, capacity, ", null kernels timed by %s", file);
    }
    return true;
}

bool null_kernels(void)
{
    return is_null;
}

bool null_timed(void)
{
    return each_ns > 0 || named.count || patterns.count;
}

static const struct timed *find(const char *kernel, uint64_t blocks, uint64_t threads)
{
    const struct timed wanted = {kernel, blocks, threads, 0};
    return named.count ? bsearch(&wanted, named.entries, named.count, sizeof *named.entries, by_name) : NULL;
}

static bool fits(const struct timed *entry, const char *kernel, uint64_t blocks, uint64_t threads)
{
    return (entry->blocks == 0 || (entry->blocks == blocks && entry->threads == threads)) &&
           fnmatch(entry->kernel, kernel, FNM_NOESCAPE) == 0;
}

double null_launch(const char *kernel, uint64_t blocks, uint64_t threads)
{
    report_add(REPORT_LAUNCHES_NULL, 1);
    const struct timed *found = find(kernel, blocks, threads);
    if (!found)
        found = find(kernel, 0, 0);
    for (size_t at = 0; !found && at < patterns.count; at++)
        if (fits(&patterns.entries[at], kernel, blocks, threads))
            found = &patterns.entries[at];
    return found ? found->ns : each_ns;
}
