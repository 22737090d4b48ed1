/* A bump allocator with a cap: all memory of a module goes at once. */
#include <stdlib.h>

#include "device/ptx/build.h"

struct chunk {
    struct chunk *next;
    size_t used, room;
    _Alignas(16) char bytes[];
};
struct pool {
    struct chunk *chunks;
    size_t left;
};
#ifdef __SANITIZE_ADDRESS__
enum { CHUNK_BYTES = 0 }; /* each piece by itself, so that a step beyond one is seen */
#else
enum { CHUNK_BYTES = 64 << 10 };
#endif

struct pool *pool_open(size_t cap)
{
    struct pool *pool = calloc(1, sizeof *pool);
    if (pool)
        pool->left = cap;
    return pool;
}

void *pool_take(struct pool *pool, size_t bytes)
{
    if (bytes > pool->left)
        return NULL;
    bytes = (bytes + 15) / 16 * 16;
    struct chunk *chunk = pool->chunks;
    if (!chunk || chunk->room - chunk->used < bytes) {
        size_t room = bytes > (size_t)CHUNK_BYTES ? bytes : CHUNK_BYTES;
        if (room > pool->left || !(chunk = calloc(1, sizeof *chunk + room)))
            return NULL;
        pool->left -= room;
        chunk->room = room;
        chunk->next = pool->chunks;
        pool->chunks = chunk;
    }
    void *memory = chunk->bytes + chunk->used;
    chunk->used += bytes;
    return memory;
}

void pool_close(struct pool *pool)
{
    if (!pool)
        return;
    for (struct chunk *chunk = pool->chunks, *after; chunk; chunk = after) {
        after = chunk->next;
        free(chunk);
    }
    free(pool);
}
