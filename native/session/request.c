/* Reads the request of a session. */
#include "session/request.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static bool read_number(const char *text, uint32_t *number)
{
    char *end;
    unsigned long value = *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : ULONG_MAX;
    *number = (uint32_t)value;
    return value < UINT32_MAX && *end == 0;
}

/* A name is a part of a path in the guest. */
static bool is_name(const char *text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t length = strlen(text);
    return length > 0 && length < CONTAINER_NAME_MOST && text[0] != '.' && strspn(text, allowed) == length;
}

static bool add(char **list, size_t *count, char *text)
{
    if (*count >= REQUEST_WORDS)
        return false;
    list[(*count)++] = text;
    return true;
}

static bool read_item(struct request *request, char letter, char *text)
{
    switch (letter) {
    case 'a':
        return add(request->words, &request->word_count, text);
    case 'e':
        return add(request->environment, &request->environment_count, text);
    case 'd':
        request->folder = text;
        return text[0] == '/';
    case 'c':
        request->container = text;
        return is_name(text);
    case 'x':
        request->joined = text;
        return is_name(text);
    case 'r':
        request->device = text;
        return strncmp(text, "/dev/", 5) == 0;
    case 'h':
        request->hostname = text;
        return true;
    case 'u':
        return read_number(text, &request->user);
    case 'g':
        return read_number(text, &request->group);
    case 'G':
        return request->group_count < REQUEST_GROUPS && read_number(text, &request->groups[request->group_count++]);
    case 'n':
        return request->no_new_privileges = true;
    case 't':
        return request->terminal = true;
    case 'o':
        return request->read_only = true;
    case 's':
        return request->hold = true;
    default:
        return false;
    }
}

bool request_read(struct request *request, char *text, size_t bytes)
{
    *request = (struct request){.folder = "/"};
    for (size_t at = 0; at < bytes;) {
        size_t length = strnlen(text + at, bytes - at);
        if (length == 0 || at + length == bytes || !read_item(request, text[at], text + at + 1))
            return false;
        at += length + 1;
    }
    return (request->word_count > 0 || request->hold) && (request->container == NULL) == (request->device == NULL) &&
           (request->container == NULL || request->joined == NULL);
}
