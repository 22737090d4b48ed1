/* XenStore over /dev/xen/xenbus: the few requests of a link, without a library. */
#ifndef GPUTAX_LINK_XENSTORE_H
#define GPUTAX_LINK_XENSTORE_H

#include <stdbool.h>
#include <stddef.h>

struct xenstore {
    int descriptor;
    unsigned int request;
    bool watched; /* an event came while an answer was awaited; xenstore_wait returns at once */
};

/* False with errno. Each thread has its own. */
bool xenstore_open(struct xenstore *store);
void xenstore_close(struct xenstore *store);

/* Each returns false with errno; texts end with 0 and are cut to `size`. */
bool xenstore_read(struct xenstore *store, const char *path, char *value, size_t size);
bool xenstore_write(struct xenstore *store, const char *path, const char *value);
bool xenstore_remove(struct xenstore *store, const char *path);
/* Names below a path, each ended by 0, one more 0 behind the last. */
bool xenstore_list(struct xenstore *store, const char *path, char *names, size_t size);
bool xenstore_watch(struct xenstore *store, const char *path);
/* Whether xenstored knows this domain: one that was destroyed is not known. */
bool xenstore_is_alive(struct xenstore *store, unsigned int domain);

/* Waits until something that is watched has changed, at most `milliseconds`. True if it has. */
bool xenstore_wait(struct xenstore *store, int milliseconds);

#endif
