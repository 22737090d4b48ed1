/* A bump allocator within a budget: all memory of a module, or of its build, goes at once. */
#include <stdlib.h>

#include "device/ptx/build.h"

struct chunk {
    struct chunk *next;
    size_t used, room;
    _Alignas(16) char bytes[];
};
struct pool {
    struct chunk *chunks;
    size_t bytes;
};
#ifdef __SANITIZE_ADDRESS__
enum { CHUNK_LEAST = 0, CHUNK_MOST = 0 }; /* each piece by itself, so that a step beyond one is seen */
#else
enum { CHUNK_LEAST = 2 << 10, CHUNK_MOST = 64 << 10 };
#endif

struct pool *pool_open(void)
{
    return calloc(1, sizeof(struct pool));
}

/* Chunks grow with the pool: a module of one small kernel is charged what it needs. */
static size_t chunk_room(const struct pool *pool, size_t bytes)
{
    const size_t least = CHUNK_LEAST, most = CHUNK_MOST;
    size_t usual = pool->bytes > least ? pool->bytes : least;
    usual = usual > most ? most : usual;
    return bytes > usual ? bytes : usual;
}

static struct chunk *add_chunk(struct pool *pool, struct budget *budget, size_t bytes)
{
    size_t room = chunk_room(pool, bytes), whole = sizeof(struct chunk) + room;
    if (whole > budget->host_left || whole > budget->left)
        return NULL;
    struct chunk *chunk = calloc(1, whole);
    if (!chunk)
        return NULL;
    budget->host_left -= whole;
    budget->left -= whole;
    pool->bytes += whole;
    chunk->room = room;
    chunk->next = pool->chunks;
    pool->chunks = chunk;
    return chunk;
}

void *pool_take(struct pool *pool, struct budget *budget, size_t bytes)
{
    if (bytes > budget->host_left)
        return NULL;
    bytes = (bytes + 15) / 16 * 16;
    struct chunk *chunk = pool->chunks;
    if ((!chunk || chunk->room - chunk->used < bytes) && !(chunk = add_chunk(pool, budget, bytes)))
        return NULL;
    void *memory = chunk->bytes + chunk->used;
    chunk->used += bytes;
    return memory;
}

size_t pool_bytes(const struct pool *pool)
{
    return pool->bytes;
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
