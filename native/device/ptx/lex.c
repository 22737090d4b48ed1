/* PTX text into tokens, and the small acts of reading them. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "device/ptx/build.h"

static void refuse_at(struct build *b, CUresult result, const char *format, va_list values)
{
    char words[400];
    vsnprintf(words, sizeof words, format, values);
    uint32_t line = b->tokens && b->at ? b->tokens[b->at - 1].line : 0;
    snprintf(b->log->text, sizeof b->log->text, "PTX line %u: %s", line, words);
    b->result = result;
}

void refuse(struct build *b, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    refuse_at(b, CUDA_ERROR_INVALID_PTX, format, values);
    va_end(values);
    longjmp(b->failed, 1);
}

void refuse_with(struct build *b, CUresult result, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    refuse_at(b, result, format, values);
    va_end(values);
    longjmp(b->failed, 1);
}

static void *from(struct build *b, struct pool *pool, size_t bytes)
{
    void *memory = pool_take(pool, &b->budget, bytes ? bytes : 1);
    if (!memory)
        refuse_with(b, CUDA_ERROR_OUT_OF_MEMORY, "the module needs more memory than it may have");
    return memory;
}

void *take(struct build *b, size_t bytes)
{
    return from(b, b->build, bytes);
}

void *keep(struct build *b, size_t bytes)
{
    return from(b, b->kept, bytes);
}

void spend(struct build *b, uint64_t bytes)
{
    if (bytes > b->budget.left)
        refuse_with(b, CUDA_ERROR_OUT_OF_MEMORY, "the module needs more memory than it may have");
    b->budget.left -= bytes;
}

void watch(struct build *b)
{
    enum { STEPS = 1024 };
    if (++b->steps < STEPS)
        return;
    b->steps = 0;
    if (b->bounds->goes_on && !b->bounds->goes_on(b->bounds->who))
        refuse_with(b, CUDA_ERROR_TIMEOUT, "nobody waits for the module any more");
    if (now_ns() - b->begun_ns > b->bounds->timeout_ns)
        refuse_with(b, CUDA_ERROR_TIMEOUT, "the module takes longer to load than a kernel may run");
}

static bool in_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

static const char *skip_blank(const char *at, uint32_t *line)
{
    for (;;) {
        if (*at == '\n') {
            (*line)++;
            at++;
        } else if (isspace((unsigned char)*at)) {
            at++;
        } else if (at[0] == '/' && at[1] == '/') {
            while (*at && *at != '\n')
                at++;
        } else if (at[0] == '/' && at[1] == '*') {
            for (at += 2; *at && !(at[0] == '*' && at[1] == '/'); at++)
                *line += *at == '\n';
            if (*at)
                at += 2;
        } else {
            return at;
        }
    }
}

static const char *token_end(const char *at, enum token_kind *kind)
{
    const char *end = at;
    if (*at == '"') {
        *kind = TOKEN_STRING;
        for (end++; *end && *end != '"' && *end != '\n'; end++)
            continue;
        return *end == '"' ? end + 1 : end;
    }
    if (!in_word(*at)) {
        *kind = TOKEN_MARK;
        return at + 1;
    }
    *kind = isdigit((unsigned char)*at) ? TOKEN_NUMBER : TOKEN_WORD;
    /* `::` is part of a word (.L2::128B), a single colon ends a label. */
    while (in_word(*end) || (end[0] == ':' && end[1] == ':'))
        end += *end == ':' ? 2 : 1;
    if (*at == '.') /* `.reg.b32` is two words: no directive has a dot inside */
        for (const char *dot = at + 1; dot < end; dot++)
            if (*dot == '.')
                return dot;
    return end;
}

void lex(struct build *b, const char *text)
{
    uint32_t room = 0, line = 1;
    struct token *tokens = NULL;
    for (const char *at = text;;) {
        at = skip_blank(at, &line);
        if (b->token_count + 1 >= room) {
            uint32_t wanted = room ? room * 2 : 1024;
            struct token *bigger = take(b, wanted * sizeof *bigger);
            if (tokens)
                memcpy(bigger, tokens, b->token_count * sizeof *bigger);
            tokens = bigger;
            room = wanted;
        }
        watch(b);
        struct token *token = &tokens[b->token_count];
        token->at = at;
        token->line = line;
        if (!*at)
            break;
        at = token_end(at, &token->kind);
        token->length = (uint32_t)(at - token->at);
        b->token_count++;
    }
    b->tokens = tokens; /* ends with a TOKEN_END, which pool memory is by itself */
}

const struct token *peek(const struct build *b)
{
    return &b->tokens[b->at];
}

const struct token *next(struct build *b)
{
    const struct token *token = &b->tokens[b->at];
    if (token->kind == TOKEN_END)
        refuse(b, "the text ends too early");
    b->at++;
    return token;
}

bool token_is(const struct token *token, const char *text)
{
    return token->length == strlen(text) && memcmp(token->at, text, token->length) == 0;
}

bool accept(struct build *b, const char *text)
{
    bool is = token_is(peek(b), text);
    b->at += is;
    return is;
}

void expect(struct build *b, const char *text)
{
    const struct token *token = next(b);
    if (!token_is(token, text))
        refuse(b, "expected '%s', found '%.*s'", text, shown(token), token->at);
}

const struct token *expect_word(struct build *b)
{
    const struct token *token = next(b);
    if (token->kind != TOKEN_WORD)
        refuse(b, "expected a name, found '%.*s'", shown(token), token->at);
    return token;
}

uint64_t expect_count(struct build *b)
{
    const struct token *token = next(b);
    uint64_t value;
    if (!number_integer(token, &value) || value > UINT32_MAX)
        refuse(b, "expected a number, found '%.*s'", shown(token), token->at);
    return value;
}
