/* Answers that never change while the process lives (attributes, names), kept by call and arguments. */
#include <stdlib.h>
#include <string.h>

#include "vgpu/vgpu.h"

enum { BUCKETS = 64, ENTRIES_MOST = 1024 };

struct answer {
    struct answer *next;
    uint32_t call;
    size_t in_bytes, out_bytes, variable_bytes;
    uint8_t bytes[]; /* in, out, variable */
};

static struct answer *buckets[BUCKETS];
static size_t entries;

static struct answer **bucket_of(const struct question *question)
{
    uint32_t hash = question->call * 2654435761u;
    for (size_t at = 0; at < question->in_bytes; at++)
        hash = (hash ^ ((const uint8_t *)question->in)[at]) * 16777619u;
    return &buckets[hash % BUCKETS];
}

bool vgpu_cache_find(struct question *question)
{
    for (const struct answer *answer = *bucket_of(question); answer != NULL; answer = answer->next) {
        if (answer->call != question->call || answer->in_bytes != question->in_bytes)
            continue;
        if (answer->in_bytes != 0 && memcmp(answer->bytes, question->in, answer->in_bytes) != 0)
            continue;
        const uint8_t *out = answer->bytes + answer->in_bytes;
        if (answer->out_bytes != 0)
            memcpy(question->out, out, answer->out_bytes);
        if (answer->variable_bytes != 0) /* the capacity is part of `in`, so it is the same */
            memcpy(question->out_variable, out + answer->out_bytes, answer->variable_bytes);
        question->out_variable_bytes = answer->variable_bytes;
        return true;
    }
    return false;
}

void vgpu_cache_keep(const struct question *question)
{
    size_t bytes = question->in_bytes + question->out_bytes + question->out_variable_bytes;
    struct answer *answer = entries < ENTRIES_MOST ? malloc(sizeof *answer + bytes) : NULL;
    if (answer == NULL)
        return;
    struct answer **bucket = bucket_of(question);
    *answer =
        (struct answer){*bucket, question->call, question->in_bytes, question->out_bytes, question->out_variable_bytes};
    if (question->in_bytes != 0)
        memcpy(answer->bytes, question->in, question->in_bytes);
    if (question->out_bytes != 0)
        memcpy(answer->bytes + question->in_bytes, question->out, question->out_bytes);
    if (question->out_variable_bytes != 0)
        memcpy(answer->bytes + question->in_bytes + question->out_bytes, question->out_variable,
               question->out_variable_bytes);
    *bucket = answer;
    entries++;
}

void vgpu_cache_reset(void)
{
    for (size_t at = 0; at < BUCKETS; at++) {
        while (buckets[at] != NULL) {
            struct answer *answer = buckets[at];
            buckets[at] = answer->next;
            free(answer);
        }
    }
    entries = 0;
}
