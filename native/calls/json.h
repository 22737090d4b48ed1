/* Writes JSON (or any text) into a buffer of fixed or growing size. */
#ifndef GPUTAX_JSON_H
#define GPUTAX_JSON_H

#include <stdbool.h>
#include <stddef.h>

struct json {
    char *data;
    size_t used;
    size_t capacity;
    bool grows;    /* data is from malloc and may be made larger; the owner frees it */
    bool overflow; /* something did not fit; data is still a string */
};

__attribute__((format(printf, 2, 3))) void json_add(struct json *json, const char *format, ...);

/* A quoted string with everything escaped that needs it; bytes that are not ASCII are written as they are. */
void json_string(struct json *json, const char *text);

#endif
