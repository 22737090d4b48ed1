/* Values that libraries of a program keep with a context, each under a key of its own, until the context ends. */
#include <pthread.h>
#include <stdlib.h>

#include "driver/fork.h"
#include "driver/runtime.h"

struct value {
    struct value *next;
    unsigned long long context; /* its id, which no other context ever has */
    void *key, *value;
    storage_destructor destructor;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct value *first;

void storage_lock(void)
{
    pthread_mutex_lock(&lock);
}

void storage_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* The parent's values: their destructors are not for the child to call. */
void storage_reset(void)
{
    pthread_mutex_init(&lock, NULL);
    while (first != NULL) {
        struct value *next = first->next;
        free(first);
        first = next;
    }
}

/* The link to the value of this key, or to the end of the list. `any_key`: to any value of the context. */
static struct value **find(unsigned long long context, const void *key, bool any_key)
{
    struct value **at = &first;
    while (*at != NULL && ((*at)->context != context || (!any_key && (*at)->key != key)))
        at = &(*at)->next;
    return at;
}

CUresult storage_put(CUcontext context, void *key, void *value, storage_destructor destructor)
{
    unsigned long long id;
    CUresult result = cuCtxGetId(context, &id);
    if (result != CUDA_SUCCESS)
        return result;
    struct value *made = calloc(1, sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    storage_lock();
    struct value *known = *find(id, key, false);
    if (known == NULL) {
        *made = (struct value){.next = first, .context = id, .key = key};
        known = first = made;
        made = NULL;
    }
    known->value = value;
    known->destructor = destructor;
    storage_unlock();
    free(made);
    return CUDA_SUCCESS;
}

/* Takes one value out of the list; NULL if there is none. */
static struct value *take_out(unsigned long long context, const void *key, bool any_key)
{
    storage_lock();
    struct value **at = find(context, key, any_key), *found = *at;
    if (found != NULL)
        *at = found->next;
    storage_unlock();
    return found;
}

CUresult storage_delete(CUcontext context, void *key)
{
    unsigned long long id;
    CUresult result = cuCtxGetId(context, &id);
    if (result != CUDA_SUCCESS)
        return result;
    struct value *found = take_out(id, key, false);
    free(found);
    return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult storage_get(void **value, CUcontext context, void *key)
{
    unsigned long long id;
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cuCtxGetId(context, &id);
    if (result != CUDA_SUCCESS)
        return result;
    storage_lock();
    const struct value *found = *find(id, key, false);
    if (found != NULL)
        *value = found->value;
    storage_unlock();
    return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

void storage_end(CUcontext context)
{
    unsigned long long id;
    struct value *found;
    if (context == NULL || cuCtxGetId(context, &id) != CUDA_SUCCESS)
        return;
    while ((found = take_out(id, NULL, true)) != NULL) {
        if (found->destructor != NULL)
            found->destructor(context, found->key, found->value);
        free(found);
    }
}
