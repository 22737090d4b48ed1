/* Confinement of this process: privileges that it can gain, dumps that others can take, descriptors that it can open.
 *
 * A leak check of a sanitizer attaches to the process, so its build stays dumpable.
 */
#include "proxy/confine.h"

#include <sys/prctl.h>
#include <sys/resource.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CHECKED_BUILD = 1 };
#else
enum { CHECKED_BUILD = 0 };
#endif

/* The software device needs few; how many a driver opens is not known. */
enum { DESCRIPTORS_SOFTWARE = 64, DESCRIPTORS_DRIVER = 4096 };

static bool limit(int what, rlim_t most)
{
    struct rlimit now, wanted = {most, most};
    if (getrlimit((__rlimit_resource_t)what, &now) == 0 && now.rlim_max != RLIM_INFINITY && now.rlim_max < most)
        wanted.rlim_cur = wanted.rlim_max = now.rlim_max;
    return setrlimit((__rlimit_resource_t)what, &wanted) == 0;
}

uint64_t confine(bool software)
{
    const bool done[CONFINEMENT_COUNT] = {
        [CONFINED_NO_NEW_PRIVILEGES] = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0,
        [CONFINED_NOT_DUMPABLE] = !CHECKED_BUILD && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0,
        [CONFINED_NO_CORE] = limit(RLIMIT_CORE, 0),
        [CONFINED_DESCRIPTORS] = limit(RLIMIT_NOFILE, software ? DESCRIPTORS_SOFTWARE : DESCRIPTORS_DRIVER),
    };
    uint64_t bits = 0;
    for (int at = 0; at < CONFINEMENT_COUNT; at++)
        bits |= done[at] ? UINT64_C(1) << at : 0;
    return bits;
}
