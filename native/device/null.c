/* GPUTAX_SOFT_KERNELS=null and GPUTAX_SOFT_KERNEL_NS: one time for all kernels, or a file with a line `NS KERNEL` for each
 * and one for `*`, the kernels that it does not name. */
#include "device/null.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/compile/build.h"

enum { LINE_MOST = 1 << 16, ENTRIES_MOST = 1 << 20, FILE_SHOWN = 40 };

struct timed {
    const char *kernel;
    double ns;
};

static bool is_null;
static double each_ns; /* of kernels that the table does not name */
static struct timed *table;
static size_t table_count;

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
    return strcmp(((const struct timed *)one)->kernel, ((const struct timed *)other)->kernel);
}

static bool add_line(char *line, bool *has_rest)
{
    double ns;
    char *rest;
    line[strcspn(line, "\r\n")] = '\0';
    if (line[0] == '#' || line[0] == '\0')
        return true;
    if (!number(line, &rest, &ns))
        return false;
    const char *kernel = rest + strspn(rest, " \t");
    if (kernel == rest || *kernel == '\0')
        return false;
    if (strcmp(kernel, "*") == 0) {
        *has_rest = true;
        each_ns = ns;
        return true;
    }
    struct timed *grown = table;
    if ((table_count & (table_count - 1)) == 0) /* full at the powers of two */
        grown = table_count < ENTRIES_MOST ? realloc(table, (table_count ? table_count * 2 : 1) * sizeof *grown) : NULL;
    char *copy = grown ? strdup(kernel) : NULL;
    if (grown)
        table = grown;
    if (!copy)
        return false;
    table[table_count++] = (struct timed){copy, ns};
    return true;
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
        return complain(path, "every line is a time in ns and the name of a kernel");
    if (!has_rest)
        return complain(path, "a line `NS *` must say how long the kernels take that it does not name");
    if (table_count)
        qsort(table, table_count, sizeof *table, by_name);
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
    return each_ns > 0 || table_count;
}

double null_launch(const char *kernel)
{
    report_add(REPORT_LAUNCHES_NULL, 1);
    const struct timed wanted = {.kernel = kernel};
    const struct timed *found = table_count ? bsearch(&wanted, table, table_count, sizeof *table, by_name) : NULL;
    return found ? found->ns : each_ns;
}
