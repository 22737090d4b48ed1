/* From generated C to a function in this process: hash, cache, the C compiler in a child process. */
#ifndef GPUTAX_COMPILE_BUILD_H
#define GPUTAX_COMPILE_BUILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/compile/abi.h"
#include "device/shared.h"

/* hash.c: SHA-256 */
enum { HASH_BYTES = 32 };
struct hash {
    uint32_t state[8];
    uint64_t length;
    uint8_t block[64];
};
void hash_begin(struct hash *hash);
void hash_add(struct hash *hash, const void *data, size_t bytes);
void hash_end(struct hash *hash, uint8_t digest[HASH_BYTES]);

/* child.c: the C compiler */
enum { PATH_BYTES = 4096 };
/* What the result depends on besides the text: compiler, flags, processor. NULL: there is no compiler. */
const char *child_identity(void);
/* Compiles `folder`/kernel.c to `folder`/kernel.so in a confined child process. */
bool child_compile(const char *folder);

/* cache.c: the function of this text that runs a block, from the cache or, if it may be built, freshly compiled; NULL: it
 * cannot be had. */
compiled_block *cache_get(const char *text, bool may_build, void **library);
void cache_release(void *library);

/* report.c: counts of what ran how, for whoever asks. */
enum report {
#define COUNT(what, name) REPORT_##what = GPUTAX_SOFT_##what,
    SOFTWARE_COUNTS(COUNT)
#undef COUNT
};
void report_add(enum report what, uint64_t count);
void report_refusal(const char *why); /* why a kernel is interpreted: one of our own words */
void report_warn(const char *text);   /* once per text */

#endif
