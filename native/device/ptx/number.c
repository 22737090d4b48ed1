/* Numbers of PTX: decimal, hexadecimal, octal, binary, and floats by value or by their bits. */
#include <stdlib.h>
#include <string.h>

#include "device/ptx/build.h"

enum { NUMBER_BYTES = 64 };

static bool copy_text(const struct token *token, char *text)
{
    if (token->kind != TOKEN_NUMBER || token->length >= NUMBER_BYTES)
        return false;
    memcpy(text, token->at, token->length);
    text[token->length] = '\0';
    return true;
}

bool number_integer(const struct token *token, uint64_t *value)
{
    char text[NUMBER_BYTES], *rest;
    if (!copy_text(token, text))
        return false;
    size_t length = strlen(text);
    if (text[length - 1] == 'U')
        text[length - 1] = '\0';
    if (text[0] == '0' && (text[1] == 'b' || text[1] == 'B'))
        *value = strtoull(text + 2, &rest, 2);
    else
        *value = strtoull(text, &rest, 0);
    return *rest == '\0' && rest != text;
}

/* 0f3F800000 is a float, 0d3FF0000000000000 a double; either may stand for the other, by value. */
bool number_float(const struct token *token, bool is_double, uint64_t *bits)
{
    char text[NUMBER_BYTES], *rest;
    if (!copy_text(token, text))
        return false;
    double value;
    char kind = text[0] == '0' ? text[1] : '\0';
    if (kind == 'f' || kind == 'F') {
        uint32_t raw = (uint32_t)strtoull(text + 2, &rest, 16);
        float single;
        if (*rest || strlen(text) != 10)
            return false;
        memcpy(&single, &raw, 4);
        if (!is_double) {
            *bits = raw; /* not through a float: it might change the bits of a NaN */
            return true;
        }
        value = (double)single;
    } else if (kind == 'd' || kind == 'D') {
        uint64_t raw = strtoull(text + 2, &rest, 16);
        if (*rest || strlen(text) != 18)
            return false;
        memcpy(&value, &raw, 8);
    } else {
        value = strtod(text, &rest);
        if (*rest)
            return false;
    }
    *bits = 0;
    if (is_double) {
        memcpy(bits, &value, 8);
    } else {
        float single = (float)value;
        memcpy(bits, &single, 4);
    }
    return true;
}
