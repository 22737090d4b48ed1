/* The table of live handles: open addressing by pointer, so that a stale or invented handle is recognised. */
#include <stdlib.h>

#include "device/device.h"

struct slot {
    void *handle;
    enum handle_kind kind;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slot *slots;
static size_t capacity, count;

static size_t place_of(const void *handle)
{
    return (size_t)(((uint64_t)(uintptr_t)handle * 0x9e3779b97f4a7c15u) >> 20) & (capacity - 1);
}

static struct slot *find(const void *handle)
{
    if (!capacity || !handle)
        return NULL;
    size_t at = place_of(handle);
    while (slots[at].handle) {
        if (slots[at].handle == handle)
            return &slots[at];
        at = (at + 1) & (capacity - 1);
    }
    return NULL;
}

static void put(struct slot item)
{
    size_t at = place_of(item.handle);
    while (slots[at].handle)
        at = (at + 1) & (capacity - 1);
    slots[at] = item;
}

static bool grow(void)
{
    size_t wanted = capacity ? capacity * 2 : 64;
    struct slot *bigger = calloc(wanted, sizeof *bigger);
    if (!bigger)
        return false;
    struct slot *old = slots;
    size_t old_capacity = capacity;
    slots = bigger;
    capacity = wanted;
    for (size_t i = 0; i < old_capacity; i++)
        if (old[i].handle)
            put(old[i]);
    free(old);
    return true;
}

bool handle_add(void *handle, enum handle_kind kind)
{
    pthread_mutex_lock(&lock);
    bool room = (count + 1) * 2 <= capacity || grow();
    if (room) {
        put((struct slot){handle, kind});
        count++;
    }
    pthread_mutex_unlock(&lock);
    return room;
}

static void take_out(const void *handle)
{
    struct slot *hole = find(handle);
    if (!hole)
        return;
    hole->handle = NULL;
    count--;
    /* Those behind the hole may have been pushed on by it: insert them again. */
    size_t at = (size_t)(hole - slots);
    for (at = (at + 1) & (capacity - 1); slots[at].handle; at = (at + 1) & (capacity - 1)) {
        struct slot item = slots[at];
        slots[at].handle = NULL;
        put(item);
    }
}

void handle_remove(void *handle)
{
    pthread_mutex_lock(&lock);
    take_out(handle);
    pthread_mutex_unlock(&lock);
}

bool handle_is(const void *handle, enum handle_kind kind)
{
    pthread_mutex_lock(&lock);
    const struct slot *slot = find(handle);
    bool is = slot && slot->kind == kind;
    pthread_mutex_unlock(&lock);
    return is;
}

/* A held context is not freed by another thread that destroys it. NULL if it is not alive. */
struct CUctx_st *handle_hold_context(struct CUctx_st *context)
{
    pthread_mutex_lock(&lock);
    const struct slot *slot = find(context);
    if (!slot || slot->kind != HANDLE_CONTEXT)
        context = NULL;
    else
        context->users++;
    pthread_mutex_unlock(&lock);
    return context;
}

/* True when the caller was the last one in a dead context and has to free it. */
bool handle_release_context(struct CUctx_st *context)
{
    pthread_mutex_lock(&lock);
    bool last = --context->users == 0 && context->dead;
    pthread_mutex_unlock(&lock);
    return last;
}
