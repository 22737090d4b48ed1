/* What a text has named, found by hash: looking up must not become quadratic in a text that somebody wrote for that.
 *
 * One table serves symbols, labels, functions, constants and variables. Every load draws its own seed, so that nobody can
 * choose names that fall together.
 */
#include <ctype.h>
#include <string.h>
#include <sys/random.h>

#include "device/ptx/build.h"

enum { BUCKETS_LEAST = 256 };

void names_begin(struct build *b)
{
    if (getrandom(&b->seed, sizeof b->seed, GRND_NONBLOCK) != sizeof b->seed)
        b->seed = (uint64_t)(uintptr_t)b * 0x9e3779b97f4a7c15u; /* where the heap lies is not known outside either */
    b->buckets = take(b, BUCKETS_LEAST * sizeof *b->buckets);
    b->bucket_count = BUCKETS_LEAST;
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9fb21c651e98df25u;
    return hash ^ hash >> 29;
}

static uint64_t hash_bytes(const struct build *b, enum entry_kind kind, uint64_t scope, const char *at, size_t length)
{
    uint64_t hash = mix(mix(b->seed, scope << 8 | (uint64_t)kind), length);
    for (; length >= 8; at += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = mix(hash, word);
    }
    uint64_t rest = 0;
    memcpy(&rest, at, length);
    hash = mix(hash, rest);
    return hash ^ hash >> 32;
}

/* Twice the buckets; entries of one bucket keep their order, newest first. */
static void grow(struct build *b)
{
    size_t half = b->bucket_count;
    struct entry **wider = take(b, 2 * half * sizeof *wider);
    for (size_t i = 0; i < half; i++) {
        struct entry **low = &wider[i], **high = &wider[i + half];
        for (struct entry *at = b->buckets[i], *after; at; at = after) {
            struct entry ***end = at->hash & half ? &high : &low;
            after = at->next_in_bucket;
            at->next_in_bucket = NULL;
            **end = at;
            *end = &at->next_in_bucket;
        }
    }
    b->buckets = wider;
    b->bucket_count = 2 * half;
}

void entry_add(struct build *b, struct entry *entry, enum entry_kind kind, uint64_t scope, const void *key,
               size_t key_bytes)
{
    if (b->entry_count >= b->bucket_count)
        grow(b);
    *entry = (struct entry){.kind = kind,
                            .scope = scope,
                            .key = key,
                            .key_bytes = key_bytes,
                            .hash = hash_bytes(b, kind, scope, key, key_bytes)};
    struct entry **bucket = &b->buckets[entry->hash & (b->bucket_count - 1)];
    entry->next_in_bucket = *bucket;
    *bucket = entry;
    b->entry_count++;
}

static struct entry *first_match(struct entry *at, uint64_t hash, enum entry_kind kind, uint64_t scope, const void *key,
                                 size_t key_bytes)
{
    for (; at; at = at->next_in_bucket)
        if (at->hash == hash && at->kind == kind && at->scope == scope && at->key_bytes == key_bytes &&
            memcmp(at->key, key, key_bytes) == 0)
            return at;
    return NULL;
}

struct entry *entry_find(const struct build *b, enum entry_kind kind, uint64_t scope, const void *key, size_t key_bytes)
{
    uint64_t hash = hash_bytes(b, kind, scope, key, key_bytes);
    return first_match(b->buckets[hash & (b->bucket_count - 1)], hash, kind, scope, key, key_bytes);
}

struct entry *entry_next(const struct entry *entry)
{
    return first_match(entry->next_in_bucket, entry->hash, entry->kind, entry->scope, entry->key, entry->key_bytes);
}

static void entry_remove(struct build *b, const struct entry *entry)
{
    struct entry **at = &b->buckets[entry->hash & (b->bucket_count - 1)];
    while (*at != entry)
        at = &(*at)->next_in_bucket;
    *at = entry->next_in_bucket;
    b->entry_count--;
}

struct symbol *symbol_add(struct build *b, const struct token *name, enum symbol_kind kind, uint32_t count)
{
    struct symbol *symbol = take(b, sizeof *symbol);
    entry_add(b, &symbol->entry, count ? ENTRY_RANGE : ENTRY_SYMBOL, b->frame, name->at, name->length);
    symbol->kind = kind;
    symbol->count = count;
    symbol->order = ++b->symbol_order;
    symbol->next = b->symbols;
    b->symbols = symbol;
    return symbol;
}

void symbols_drop(struct build *b, const struct symbol *until)
{
    for (; b->symbols != until; b->symbols = b->symbols->next)
        entry_remove(b, &b->symbols->entry);
}

/* `%r12` may be the twelfth of `%r<20>`, or the second of `%r1<9>`. */
static struct symbol *find_numbered(const struct build *b, uint32_t frame, const struct token *name, uint32_t *index)
{
    enum { DIGITS_MOST = 7 };
    struct symbol *best = NULL;
    uint32_t value = 0, power = 1;
    for (uint32_t digits = 1; digits <= DIGITS_MOST && digits < name->length; digits++, power *= 10) {
        char digit = name->at[name->length - digits];
        if (!isdigit((unsigned char)digit))
            break;
        value += (uint32_t)(digit - '0') * power;
        for (struct entry *at = entry_find(b, ENTRY_RANGE, frame, name->at, name->length - digits); at;
             at = entry_next(at)) {
            struct symbol *symbol = (struct symbol *)at;
            if (value >= symbol->count)
                continue;
            if (!best || best->order < symbol->order) {
                best = symbol;
                *index = value;
            }
            break;
        }
    }
    return best;
}

static struct symbol *find_in(const struct build *b, uint32_t frame, const struct token *name, uint32_t *index)
{
    struct symbol *plain = (struct symbol *)entry_find(b, ENTRY_SYMBOL, frame, name->at, name->length);
    struct symbol *numbered = find_numbered(b, frame, name, index);
    if (!plain || (numbered && numbered->order > plain->order))
        return numbered;
    *index = 0;
    return plain;
}

struct symbol *symbol_lookup(const struct build *b, const struct token *name, uint32_t *index)
{
    struct symbol *symbol = b->frame ? find_in(b, b->frame, name, index) : NULL;
    return symbol ? symbol : find_in(b, 0, name, index);
}
