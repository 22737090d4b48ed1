/* A table of slots with a list of the free ones. */
#include "proxy/handles.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { NO_SLOT = 0xffffffff, SLOTS_MOST = 1 << 18 };

void handles_begin(struct handles *handles)
{
    handles->first_free = NO_SLOT;
    if (getrandom(&handles->first_generation, sizeof handles->first_generation, 0) < 0)
        handles->first_generation = 1;
}

bool handles_room(struct handles *handles, enum handle_kind kind)
{
    if (handles->counts[kind] >= handles->limits[kind])
        return false;
    if (handles->first_free != NO_SLOT || handles->used < handles->capacity)
        return true;
    if (handles->capacity >= SLOTS_MOST)
        return false;
    uint32_t capacity = handles->capacity == 0 ? 64 : handles->capacity * 2;
    struct handle *slots = realloc(handles->slots, capacity * sizeof *slots);
    if (slots == NULL)
        return false;
    handles->slots = slots;
    handles->capacity = capacity;
    return true;
}

uint64_t handles_add(struct handles *handles, enum handle_kind kind, void *real, uint64_t owner)
{
    uint32_t index = handles->first_free;
    if (index == NO_SLOT) {
        index = handles->used++;
        handles->slots[index] = (struct handle){.generation = handles->first_generation};
    } else {
        handles->first_free = handles->slots[index].next_free;
    }
    struct handle *slot = &handles->slots[index];
    slot->generation++;
    slot->kind = kind;
    slot->owner = owner;
    slot->real = real;
    slot->extra = NULL;
    handles->counts[kind]++;
    return handle_id(kind, index, slot->generation);
}

struct handle *handles_find(const struct handles *handles, enum handle_kind kind, uint64_t id)
{
    uint32_t index = handle_index(id);
    if (index >= handles->used || handle_kind_of(id) != (uint32_t)kind)
        return NULL;
    struct handle *slot = &handles->slots[index];
    return slot->kind == kind && slot->generation == handle_generation(id) ? slot : NULL;
}

static void release(struct handles *handles, struct handle *slot)
{
    handles->counts[slot->kind]--;
    free(slot->extra);
    slot->extra = NULL;
    slot->real = NULL;
    slot->kind = HANDLE_NONE;
    slot->next_free = handles->first_free;
    handles->first_free = (uint32_t)(slot - handles->slots);
}

void handles_remove(struct handles *handles, enum handle_kind kind, uint64_t id)
{
    struct handle *slot = handles_find(handles, kind, id);
    if (slot == NULL)
        return;
    release(handles, slot);
    if (kind != HANDLE_CONTEXT && kind != HANDLE_MODULE)
        return;
    for (uint32_t index = 0; index < handles->used; index++) {
        const struct handle *owned = &handles->slots[index];
        if (owned->kind != HANDLE_NONE && owned->owner == id) /* a context owns modules, which own functions */
            handles_remove(handles, owned->kind, handle_id(owned->kind, index, owned->generation));
    }
}

void handles_end(struct handles *handles)
{
    for (uint32_t index = 0; index < handles->used; index++)
        free(handles->slots[index].kind != HANDLE_NONE ? handles->slots[index].extra : NULL);
    free(handles->slots);
    memset(handles, 0, sizeof *handles);
}
