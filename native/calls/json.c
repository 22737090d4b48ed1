/* The text buffer: grows if it may, else marks the overflow. */
#include "json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static bool reserve(struct json *json, size_t more)
{
    if (json->used + more < json->capacity)
        return true;
    if (json->grows) {
        size_t capacity = (json->used + more + 1) * 2;
        char *data = realloc(json->data, capacity);
        if (data != NULL) {
            json->data = data;
            json->capacity = capacity;
            return true;
        }
    }
    json->overflow = true;
    return false;
}

void json_add(struct json *json, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int needed = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (needed < 0 || !reserve(json, (size_t)needed))
        return;
    va_start(arguments, format);
    json->used += (size_t)vsnprintf(json->data + json->used, json->capacity - json->used, format, arguments);
    va_end(arguments);
}

void json_string(struct json *json, const char *text)
{
    json_add(json, "\"");
    for (; *text != 0; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '"' || byte == '\\')
            json_add(json, "\\%c", byte);
        else if (byte < 0x20)
            json_add(json, "\\u%04x", byte);
        else
            json_add(json, "%c", byte);
    }
    json_add(json, "\"");
}
