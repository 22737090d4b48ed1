/* The allocator of device memory: best fit over two treaps, neighbours joined and contents zeroed at free. */
#include "device/arena.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device/shared.h"

/* Bookkeeping lies outside of the arena, where no kernel can reach it. */
struct arena_block {
    struct arena_block *left[2], *right[2]; /* [0]: tree by address, [1]: tree by size */
    uint32_t priority[2];
    uint64_t address;
    size_t bytes;                      /* rounded up to the alignment */
    size_t asked;                      /* what the owner asked for: accesses beyond it are errors */
    const struct arena_owner *owner;   /* NULL: free */
    bool dirty;                        /* written since it was handed out */
    struct arena_block *next, *before; /* neighbours by address */
    struct arena_block *owned_next, *owned_before;
};

/* Above this, giving pages back to the system is cheaper than clearing them, and keeps the process small. */
enum { RETURN_BYTES = 1 << 20 };
enum { BY_ADDRESS = 0, BY_SIZE = 1 };

static bool less(int tree, const struct arena_block *a, const struct arena_block *b)
{
    if (tree == BY_SIZE && a->bytes != b->bytes)
        return a->bytes < b->bytes;
    return a->address < b->address;
}

static void split(int tree, struct arena_block *root, const struct arena_block *key, struct arena_block **low,
                  struct arena_block **high)
{
    if (!root) {
        *low = *high = NULL;
    } else if (less(tree, root, key)) {
        *low = root;
        split(tree, root->right[tree], key, &root->right[tree], high);
    } else {
        *high = root;
        split(tree, root->left[tree], key, low, &root->left[tree]);
    }
}

static struct arena_block *join(int tree, struct arena_block *low, struct arena_block *high)
{
    if (!low || !high)
        return low ? low : high;
    if (low->priority[tree] > high->priority[tree]) {
        low->right[tree] = join(tree, low->right[tree], high);
        return low;
    }
    high->left[tree] = join(tree, low, high->left[tree]);
    return high;
}

static void tree_insert(struct arena *arena, int tree, struct arena_block **root, struct arena_block *block)
{
    arena->random = arena->random * 6364136223846793005u + 1442695040888963407u;
    block->priority[tree] = (uint32_t)(arena->random >> 32);
    while (*root && (*root)->priority[tree] >= block->priority[tree])
        root = less(tree, *root, block) ? &(*root)->right[tree] : &(*root)->left[tree];
    split(tree, *root, block, &block->left[tree], &block->right[tree]);
    *root = block;
}

static void tree_remove(int tree, struct arena_block **root, struct arena_block *block)
{
    while (*root != block)
        root = less(tree, *root, block) ? &(*root)->right[tree] : &(*root)->left[tree];
    *root = join(tree, block->left[tree], block->right[tree]);
}

static struct arena_block *smallest_with(struct arena *arena, size_t bytes)
{
    struct arena_block *best = NULL;
    for (struct arena_block *at = arena->by_size; at;) {
        if (at->bytes >= bytes) {
            best = at;
            at = at->left[BY_SIZE];
        } else {
            at = at->right[BY_SIZE];
        }
    }
    return best;
}

/* The last block that starts at or before the address. */
static struct arena_block *block_at(struct arena *arena, uint64_t address)
{
    struct arena_block *best = NULL;
    for (struct arena_block *at = arena->by_address; at;) {
        if (at->address <= address) {
            best = at;
            at = at->right[BY_ADDRESS];
        } else {
            at = at->left[BY_ADDRESS];
        }
    }
    return best;
}

bool arena_open(struct arena *arena, size_t bytes)
{
    memset(arena, 0, sizeof *arena);
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct arena_block *whole = calloc(1, sizeof *whole);
    if (base == MAP_FAILED || !whole) {
        if (base != MAP_FAILED)
            munmap(base, bytes);
        free(whole);
        return false;
    }
    pthread_mutex_init(&arena->lock, NULL);
    arena->base = (uint64_t)(uintptr_t)base;
    arena->bytes = bytes;
    whole->address = arena->base;
    whole->bytes = bytes;
    tree_insert(arena, BY_ADDRESS, &arena->by_address, whole);
    tree_insert(arena, BY_SIZE, &arena->by_size, whole);
    return true;
}

/* Cuts the block after `bytes`; the rest becomes a free block of its own. False when there is no host memory for it. */
static bool cut(struct arena *arena, struct arena_block *block, size_t bytes)
{
    if (block->bytes == bytes)
        return true;
    struct arena_block *rest = calloc(1, sizeof *rest);
    if (!rest)
        return false;
    rest->address = block->address + bytes;
    rest->bytes = block->bytes - bytes;
    rest->before = block;
    rest->next = block->next;
    if (rest->next)
        rest->next->before = rest;
    block->next = rest;
    block->bytes = bytes;
    tree_insert(arena, BY_ADDRESS, &arena->by_address, rest);
    tree_insert(arena, BY_SIZE, &arena->by_size, rest);
    return true;
}

uint64_t arena_allocate(struct arena *arena, struct arena_owner *owner, size_t bytes)
{
    if (bytes == 0 || bytes > arena->bytes)
        return 0;
    size_t rounded = (bytes + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
    if (!shared_charge(rounded, arena->bytes))
        return 0;
    uint64_t address = 0;
    pthread_mutex_lock(&arena->lock);
    struct arena_block *block = smallest_with(arena, rounded);
    if (block) {
        tree_remove(BY_SIZE, &arena->by_size, block);
        if (cut(arena, block, rounded)) {
            block->owner = owner;
            block->asked = bytes;
            block->dirty = false;
            block->owned_before = NULL;
            block->owned_next = owner->first;
            if (owner->first)
                owner->first->owned_before = block;
            owner->first = block;
            address = block->address;
        } else {
            tree_insert(arena, BY_SIZE, &arena->by_size, block);
        }
    }
    pthread_mutex_unlock(&arena->lock);
    if (!address)
        shared_discharge(rounded);
    return address;
}

static void erase(const struct arena_block *block)
{
    char *from = (char *)(uintptr_t)block->address; /* the one place where a device address becomes a host pointer */
    size_t bytes = block->bytes;
    if (!block->dirty)
        return;
    if (bytes >= RETURN_BYTES) {
        /* Whole pages inside of the block read as zero again after this; the edges are cleared by hand. */
        uintptr_t first = ((uintptr_t)from + 4095) & ~(uintptr_t)4095;
        uintptr_t last = ((uintptr_t)from + bytes) & ~(uintptr_t)4095;
        if (madvise((void *)first, last - first, MADV_DONTNEED) == 0) {
            memset(from, 0, first - (uintptr_t)from);
            memset((void *)last, 0, (uintptr_t)from + bytes - last);
            return;
        }
    }
    memset(from, 0, bytes);
}

/* Joins `block` with the free block after it. */
static void swallow_next(struct arena *arena, struct arena_block *block)
{
    struct arena_block *next = block->next;
    tree_remove(BY_ADDRESS, &arena->by_address, next);
    tree_remove(BY_SIZE, &arena->by_size, next);
    block->bytes += next->bytes;
    block->next = next->next;
    if (block->next)
        block->next->before = block;
    free(next);
}

/* Neither free nor anybody's: its contents are being cleared. */
static const struct arena_owner CLEARING;

/* Takes the block from its owner, before anything of it is cleared. */
static void detach(struct arena_owner *owner, struct arena_block *block)
{
    if (block->owned_before)
        block->owned_before->owned_next = block->owned_next;
    else
        owner->first = block->owned_next;
    if (block->owned_next)
        block->owned_next->owned_before = block->owned_before;
    block->owner = &CLEARING;
}

/* Clears the block and makes it free. Entered and left with the lock, which others may have while it is cleared. */
static void release(struct arena *arena, struct arena_block *block)
{
    pthread_mutex_unlock(&arena->lock);
    erase(block);
    pthread_mutex_lock(&arena->lock);
    shared_discharge(block->bytes);
    block->owner = NULL;
    if (block->next && !block->next->owner)
        swallow_next(arena, block);
    struct arena_block *before = block->before;
    if (before && !before->owner) {
        /* The tree by size must be left before the size changes. */
        tree_insert(arena, BY_SIZE, &arena->by_size, block);
        tree_remove(BY_SIZE, &arena->by_size, before);
        swallow_next(arena, before);
        block = before;
    }
    tree_insert(arena, BY_SIZE, &arena->by_size, block);
}

bool arena_free(struct arena *arena, struct arena_owner *owner, uint64_t address)
{
    pthread_mutex_lock(&arena->lock);
    struct arena_block *block = block_at(arena, address);
    bool found = block && block->address == address && block->owner == owner;
    if (found) {
        detach(owner, block);
        release(arena, block);
    }
    pthread_mutex_unlock(&arena->lock);
    return found;
}

void arena_free_all(struct arena *arena, struct arena_owner *owner)
{
    pthread_mutex_lock(&arena->lock);
    for (struct arena_block *block; (block = owner->first);) {
        detach(owner, block);
        release(arena, block);
    }
    pthread_mutex_unlock(&arena->lock);
}

bool arena_find(struct arena *arena, const struct arena_owner *owner, uint64_t address, size_t bytes, bool write,
                struct arena_range *range)
{
    if (address < arena->base || address - arena->base >= arena->bytes)
        return false;
    pthread_mutex_lock(&arena->lock);
    struct arena_block *block = block_at(arena, address);
    bool found = block && block->owner == owner && address - block->address <= block->asked &&
                 bytes <= block->asked - (size_t)(address - block->address);
    if (found) {
        block->dirty = block->dirty || write;
        range->from = block->address;
        range->to = block->address + block->asked;
    }
    pthread_mutex_unlock(&arena->lock);
    return found;
}

size_t arena_available(const struct arena *arena)
{
    uint64_t used = shared_used();
    return used < arena->bytes ? arena->bytes - used : 0;
}
