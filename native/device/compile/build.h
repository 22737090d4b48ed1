/* From generated C to a function in this process: hash, cache, the C compiler in a child process, the code in memory. */
#ifndef GPUTAX_COMPILE_BUILD_H
#define GPUTAX_COMPILE_BUILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "confine/landlock.h"
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
/* Whoever has the other end of this socket wants the result: once it has hung up, the child process is ended. */
void child_watch(int socket);
void child_end(void); /* ends a compiler that runs, with all that it has started; for a signal handler */
/* The places that a compiler reads; `room` is at least TOOLCHAIN_GRANTS. Returns how many. */
enum { TOOLCHAIN_GRANTS = 16 };
size_t child_grants(struct grant *grants);

/* What came of a text; it also travels over a socket. */
enum outcome { CODE_MISSED, CODE_KEPT, CODE_BUILT, CODE_FAILED, CODE_NO_COMPILER };
struct answer {
    uint32_t outcome;
    uint32_t damaged; /* an entry of the cache was, and is gone */
    uint64_t bytes;   /* of the object */
    char warning[SHARED_TEXT_BYTES];
};

/* cache.c: the object of this text from the cache or, if it may be built, freshly compiled, as answer->bytes that the
 * caller frees; NULL: it cannot be had. */
char *cache_get(const char *text, bool may_build, struct answer *answer);
const char *cache_folder(void); /* NULL: there is none */

/* load.c: an object in the memory of this process, without a file. NULL: it is not one of ours. */
struct code {
    void *at;
    size_t bytes;
    compiled_block *run;
};
struct code *code_load(const char *object, size_t bytes);
void code_unload(struct code *code);

/* office.c: who makes code for this process: it itself, or a process at the other end of a socket. */
enum { OFFICE_TEXT_MOST = 32 << 20, OFFICE_OBJECT_MOST = 64 << 20 };
struct order {
    uint32_t magic, may_build;
    uint64_t bytes; /* of the text, which follows */
};
enum { ORDER_MAGIC = 0x6b637067 };
struct code *office_get(const char *text, bool may_build);
bool office_open(void); /* false: there is no compiler */
#define NO_COMPILER "no C compiler (cc, gcc or clang) is on the PATH; kernels are interpreted, which is slow"
bool office_send(int socket, const void *data, size_t bytes);
bool office_receive(int socket, void *data, size_t bytes);

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
