/* The common part of a device that several processes use, each in a place of its own. */
#include "device/shared.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

static struct gputax_shared_device own = {.places = 1};
static struct gputax_shared_device *device = &own;
static uint64_t place; /* of this process */

struct gputax_shared_device *shared_device(void)
{
    return device;
}

bool shared_with_others(void)
{
    return device != &own;
}

bool shared_open(void)
{
    const char *text = getenv("GPUTAX_SOFT_SHARED");
    int descriptor;
    unsigned int number;
    char rest;
    struct stat facts;
    if (!text || !*text)
        return true;
    if (sscanf(text, "%d:%u%c", &descriptor, &number, &rest) == 2 && number < SHARED_PLACES &&
        fstat(descriptor, &facts) == 0 && facts.st_size >= (off_t)sizeof own) {
        void *at = mmap(NULL, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
        if (at != MAP_FAILED) {
            device = at;
            place = number;
            atomic_store(&device->attached, 1);
            return true;
        }
    }
    fprintf(stderr, "gputax software device: GPUTAX_SOFT_SHARED=%s is not a shared device\n", text);
    return false;
}

static uint64_t places_used(void)
{
    uint64_t places = atomic_load_explicit(&device->places, memory_order_relaxed);
    places = places > place ? places : place + 1;
    return places < SHARED_PLACES ? places : SHARED_PLACES;
}

uint64_t shared_used(void)
{
    uint64_t used = 0;
    for (uint64_t at = 0, end = places_used(); at < end; at++)
        used += atomic_load_explicit(&device->place[at].used_bytes, memory_order_relaxed);
    return used;
}

/* First taken, then looked at: of two that want the last bytes both may be refused, and never both served. */
bool shared_charge(uint64_t bytes, uint64_t total)
{
    if (bytes > total)
        return false;
    atomic_fetch_add(&device->place[place].used_bytes, bytes);
    if (shared_used() <= total)
        return true;
    shared_discharge(bytes);
    return false;
}

void shared_discharge(uint64_t bytes)
{
    atomic_fetch_sub(&device->place[place].used_bytes, bytes);
}

void shared_count_context(bool alive)
{
    atomic_fetch_add_explicit(&device->place[place].contexts, alive ? 1 : UINT64_MAX, memory_order_relaxed);
}

uint64_t shared_contexts(void)
{
    uint64_t contexts = 0;
    for (uint64_t at = 0, end = places_used(); at < end; at++)
        contexts += atomic_load_explicit(&device->place[at].contexts, memory_order_relaxed);
    return contexts;
}

void shared_note_work(uint64_t now_ns)
{
    atomic_store_explicit(&device->place[place].submitted_ns, now_ns, memory_order_relaxed);
}

bool shared_contended(uint64_t now_ns, uint64_t within_ns)
{
    for (uint64_t at = 0, end = places_used(); at < end; at++) {
        uint64_t last = atomic_load_explicit(&device->place[at].submitted_ns, memory_order_relaxed);
        if (at != place && last != 0 && last + within_ns > now_ns)
            return true;
    }
    return false;
}
