/* The fuzzer's mutations: flips, arithmetic, telling numbers, what the code compared with, splices, cuts and inserts. */
#include "mutate.h"

#include <string.h>

#include "coverage.h"

static uint64_t state = 1;

uint64_t random_number(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * UINT64_C(0x2545f4914f6cdd1d);
}

void random_seed(uint64_t seed)
{
    state = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
}

size_t random_below(size_t limit)
{
    return limit == 0 ? 0 : (size_t)(random_number() >> 16) % limit;
}

/* Sizes and limits of all kinds of formats lie at or beside powers of two. */
static uint64_t telling_number(void)
{
    uint64_t power = UINT64_C(1) << random_below(64);
    switch (random_below(5)) {
    case 0:
        return power;
    case 1:
        return power - 1;
    case 2:
        return power + 1;
    case 3:
        return (uint64_t)0 - power;
    default:
        return random_below(300);
    }
}

static size_t random_width(size_t count)
{
    size_t width = (size_t)1 << random_below(4);
    while (width > count)
        width /= 2;
    return width;
}

static void change_number(uint8_t *bytes, size_t count)
{
    size_t width = random_width(count);
    uint8_t *at = bytes + random_below(count - width + 1);
    uint64_t value = 0;
    memcpy(&value, at, width);
    switch (random_below(3)) {
    case 0:
        value += random_below(64);
        break;
    case 1:
        value -= random_below(64);
        break;
    default:
        value = telling_number();
    }
    memcpy(at, &value, width);
}

/* Where the input holds one side of a comparison, write the other side, or one off it. */
static void satisfy_comparison(uint8_t *bytes, size_t count)
{
    struct comparison pair;
    if (!coverage_comparison((uint32_t)random_number(), &pair) || pair.bytes > count)
        return;
    uint64_t from = random_below(2) ? pair.left : pair.right;
    uint64_t to = from == pair.left ? pair.right : pair.left;
    to += random_below(4) == 0 ? 1 : 0;
    to -= random_below(4) == 0 ? 1 : 0;
    size_t places = count - pair.bytes + 1;
    size_t first = random_below(places);
    for (size_t i = 0; i < places; i++) {
        uint8_t *at = bytes + (first + i) % places;
        if (memcmp(at, &from, pair.bytes) == 0) {
            memcpy(at, &to, pair.bytes);
            return;
        }
    }
    memcpy(bytes + first, &to, pair.bytes);
}

static size_t cut(uint8_t *bytes, size_t count)
{
    size_t length = 1 + random_below(count < 32 ? count : random_below(4) ? 32 : count);
    size_t at = random_below(count - (length < count ? length : count) + 1);
    length = length < count - at ? length : count - at;
    memmove(bytes + at, bytes + at + length, count - at - length);
    return count - length;
}

static size_t insert(uint8_t *bytes, size_t count, const uint8_t *from, size_t length)
{
    size_t at = random_below(count + 1);
    if (length > INPUT_MOST - count)
        length = INPUT_MOST - count;
    memmove(bytes + at + length, bytes + at, count - at);
    if (from != NULL)
        memcpy(bytes + at, from, length);
    for (size_t i = 0; from == NULL && i < length; i++)
        bytes[at + i] = (uint8_t)random_number();
    return count + length;
}

static size_t insert_part(uint8_t *bytes, size_t count, const struct input *other)
{
    uint8_t part[256];
    if (other->count == 0)
        return count;
    size_t length = 1 + random_below(other->count < sizeof part ? other->count : sizeof part);
    memcpy(part, other->bytes + random_below(other->count - length + 1), length);
    return insert(bytes, count, part, length);
}

static size_t mutate_once(uint8_t *bytes, size_t count, const struct input *other)
{
    if (count == 0)
        return insert(bytes, count, NULL, 1 + random_below(16));
    struct input self = {bytes, count};
    switch (random_below(10)) {
    case 0:
        bytes[random_below(count)] ^= (uint8_t)(1 << random_below(8));
        return count;
    case 1:
        bytes[random_below(count)] = (uint8_t)random_number();
        return count;
    case 2:
    case 3:
        change_number(bytes, count);
        return count;
    case 4:
    case 5:
        satisfy_comparison(bytes, count);
        return count;
    case 6:
        return cut(bytes, count);
    case 7:
        return insert(bytes, count, NULL, 1 + random_below(16));
    case 8:
        return insert_part(bytes, count, &self);
    default:
        return insert_part(bytes, count, other);
    }
}

size_t mutate(uint8_t *bytes, size_t count, const struct input *other)
{
    size_t rounds = (size_t)1 << random_below(5);
    while (rounds-- > 0)
        count = mutate_once(bytes, count, other);
    return count;
}
