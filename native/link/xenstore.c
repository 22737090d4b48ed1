/* Requests and answers of XenStore, as the kernel's device takes them. */
#include "link/xenstore.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "include/xen_abi.h"

static const struct {
    const char *name;
    int number;
} errors[] = {{"ENOENT", ENOENT}, {"EACCES", EACCES}, {"EINVAL", EINVAL},
              {"EEXIST", EEXIST}, {"EQUOTA", EDQUOT}, {"ENOSPC", ENOSPC}};

bool xenstore_open(struct xenstore *store)
{
    *store = (struct xenstore){.descriptor = open("/dev/xen/xenbus", O_RDWR | O_CLOEXEC)};
    return store->descriptor >= 0;
}

void xenstore_close(struct xenstore *store)
{
    if (store->descriptor >= 0)
        close(store->descriptor);
    store->descriptor = -1;
}

static bool read_all(int descriptor, void *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = read(descriptor, (char *)to + done, bytes - done);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            return false;
        done += got > 0 ? (size_t)got : 0;
    }
    return true;
}

/* The next message, cut to the size. False with errno. */
static bool read_message(const struct xenstore *store, struct xenstore_message *head, char *text, size_t size,
                         size_t *length)
{
    char payload[XENSTORE_PAYLOAD_MOST + 1];
    if (!read_all(store->descriptor, head, sizeof *head))
        return false;
    if (head->bytes > XENSTORE_PAYLOAD_MOST) {
        errno = EPROTO;
        return false;
    }
    if (!read_all(store->descriptor, payload, head->bytes))
        return false;
    *length = head->bytes < size - 1 ? head->bytes : size - 1;
    memcpy(text, payload, *length);
    text[*length] = 0;
    return true;
}

static bool ask(struct xenstore *store, enum xenstore_request type, const void *payload, size_t bytes, char *answer,
                size_t size, size_t *length)
{
    struct {
        struct xenstore_message head;
        char payload[XENSTORE_PAYLOAD_MOST];
    } message = {.head = {(uint32_t)type, ++store->request, 0, (uint32_t)bytes}};
    if (bytes > sizeof message.payload) {
        errno = E2BIG;
        return false;
    }
    memcpy(message.payload, payload, bytes);
    if (write(store->descriptor, &message, sizeof message.head + bytes) != (ssize_t)(sizeof message.head + bytes))
        return false;
    struct xenstore_message head;
    for (;;) {
        if (!read_message(store, &head, answer, size, length))
            return false;
        if (head.type != XENSTORE_EVENT)
            break;
        store->watched = true;
    }
    if (head.type != XENSTORE_ERROR)
        return true;
    errno = EIO;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (strcmp(answer, errors[i].name) == 0)
            errno = errors[i].number;
    return false;
}

bool xenstore_read(struct xenstore *store, const char *path, char *value, size_t size)
{
    char answer[XENSTORE_PAYLOAD_MOST + 1];
    size_t length;
    if (!ask(store, XENSTORE_READ, path, strlen(path) + 1, answer, sizeof answer, &length))
        return false;
    snprintf(value, size, "%s", answer);
    return true;
}

bool xenstore_write(struct xenstore *store, const char *path, const char *value)
{
    char payload[XENSTORE_PAYLOAD_MOST], answer[64];
    size_t name = strlen(path) + 1, bytes = strlen(value), length;
    if (name + bytes > sizeof payload) {
        errno = E2BIG;
        return false;
    }
    memcpy(payload, path, name);
    memcpy(payload + name, value, bytes);
    return ask(store, XENSTORE_WRITE, payload, name + bytes, answer, sizeof answer, &length);
}

bool xenstore_remove(struct xenstore *store, const char *path)
{
    char answer[64];
    size_t length;
    return ask(store, XENSTORE_REMOVE, path, strlen(path) + 1, answer, sizeof answer, &length);
}

bool xenstore_list(struct xenstore *store, const char *path, char *names, size_t size)
{
    size_t length;
    if (!ask(store, XENSTORE_DIRECTORY, path, strlen(path) + 1, names, size - 1, &length))
        return false;
    names[length + 1] = 0;
    return true;
}

bool xenstore_watch(struct xenstore *store, const char *path)
{
    char payload[256], answer[64];
    size_t length;
    int bytes = snprintf(payload, sizeof payload, "%s%cgputax%c", path, 0, 0);
    if (bytes < 0 || (size_t)bytes >= sizeof payload) {
        errno = E2BIG;
        return false;
    }
    return ask(store, XENSTORE_WATCH, payload, (size_t)bytes, answer, sizeof answer, &length);
}

bool xenstore_is_alive(struct xenstore *store, unsigned int domain)
{
    char text[16], answer[64];
    size_t length;
    int bytes = snprintf(text, sizeof text, "%u", domain);
    return ask(store, XENSTORE_IS_INTRODUCED, text, (size_t)bytes + 1, answer, sizeof answer, &length) &&
           answer[0] == 'T';
}

bool xenstore_wait(struct xenstore *store, int milliseconds)
{
    struct xenstore_message head;
    char text[XENSTORE_PAYLOAD_MOST + 1];
    size_t length;
    struct pollfd ready = {.fd = store->descriptor, .events = POLLIN};
    if (!store->watched && poll(&ready, 1, milliseconds) > 0)
        store->watched = read_message(store, &head, text, sizeof text, &length) && head.type == XENSTORE_EVENT;
    bool watched = store->watched;
    store->watched = false;
    return watched;
}
