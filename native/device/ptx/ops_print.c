/* printf and assert of a kernel: text goes into a bounded buffer of the context, which is shown when somebody waits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/ptx/access.h"
#include "device/ptx/scratch.h"

enum { OUTPUT_ROOM = 1 << 20, FORMAT_MOST = 4096, STRING_MOST = 1024, FIELD_MOST = 256, PIECE_ROOM = 1024 };

static void put(struct ptx_output *out, const char *text, size_t length)
{
    if (!out->text)
        out->text = malloc(OUTPUT_ROOM);
    size_t room = out->text ? OUTPUT_ROOM - out->used : 0, taken = length < room ? length : room;
    if (taken)
        memcpy(out->text + out->used, text, taken);
    out->used += taken;
    out->lost += length - taken;
}

/* Shows what kernels have printed. Behind a proxy it is dropped: a tenant's text has no place in the proxy's log. */
void ptx_output_drain(struct ptx_scratch *scratch)
{
    struct ptx_output *out = &scratch->output;
    const char *setting = getenv("GPUTAX_SOFT_PRINTF");
    if (!out->used && !out->lost)
        return;
    if (!setting || strcmp(setting, "off") != 0) {
        fwrite(out->text, 1, out->used, stdout);
        if (out->lost)
            printf("\ngputax software device: %llu bytes of a kernel's output did not fit and are lost\n",
                   (unsigned long long)out->lost);
        fflush(stdout);
    }
    out->used = 0;
    out->lost = 0;
}

static bool read_bytes(struct warp *w, const struct insn *in, uint32_t lane, uint64_t address, void *to, size_t count)
{
    for (size_t i = 0; i < count; i++) { /* always one byte: the cache of an instruction knows one size */
        const char *at = access_generic(w, in, lane, address + i, 1, false);
        if (!at) {
            run_fault(w, CUDA_ERROR_ILLEGAL_ADDRESS);
            return false;
        }
        ((char *)to)[i] = *at;
    }
    return true;
}

static bool read_string(struct warp *w, const struct insn *in, uint32_t lane, uint64_t address, char *to, size_t room)
{
    size_t length = 0;
    for (; length < room - 1; length++) {
        if (!read_bytes(w, in, lane, address + length, to + length, 1))
            return false;
        if (!to[length])
            return true;
    }
    to[length] = '\0';
    return true;
}

/* A parameter of the call, in the lane's local memory. */
static uint64_t parameter(struct warp *w, uint32_t lane, uint32_t offset, unsigned bytes)
{
    uint64_t value = 0;
    const char *at = access_local(w, lane, offset, bytes);
    if (at)
        memcpy(&value, at, bytes);
    return value;
}

struct printer {
    struct warp *w;
    const struct insn *in;
    uint32_t lane;
    uint64_t next; /* where the next argument lies */
    uint32_t arguments;
};

static bool argument(struct printer *p, unsigned bytes, uint64_t *value)
{
    *value = 0;
    p->next = (p->next + bytes - 1) / bytes * bytes;
    if (!read_bytes(p->w, p->in, p->lane, p->next, value, bytes))
        return false;
    p->next += bytes;
    p->arguments++;
    return true;
}

struct field {
    char flags[8];
    int width, precision; /* -1: not given */
    unsigned bits;        /* of an integer */
    char conversion;
};

static bool number_or_star(struct printer *p, const char **at, int *value)
{
    uint64_t given;
    if (**at == '*') {
        (*at)++;
        if (!argument(p, 4, &given))
            return false;
        *value = (int32_t)given < 0 ? 0 : (int32_t)given > FIELD_MOST ? FIELD_MOST : (int32_t)given;
        return true;
    }
    for (; **at >= '0' && **at <= '9'; (*at)++)
        *value = (*value < 0 ? 0 : *value) * 10 + (**at - '0') > FIELD_MOST
                     ? FIELD_MOST
                     : (*value < 0 ? 0 : *value) * 10 + (**at - '0');
    return true;
}

static bool read_field(struct printer *p, const char **at, struct field *field)
{
    size_t flags = 0;
    *field = (struct field){.width = -1, .precision = -1, .bits = 32};
    for (; **at && strchr("-+ #0", **at); (*at)++)
        if (flags < sizeof field->flags - 1)
            field->flags[flags++] = **at;
    if (!number_or_star(p, at, &field->width))
        return false;
    if (**at == '.') {
        (*at)++;
        field->precision = 0;
        if (!number_or_star(p, at, &field->precision))
            return false;
    }
    for (; **at && strchr("hljzt", **at); (*at)++)
        field->bits = **at != 'h' ? 64 : field->bits == 16 ? 8 : 16;
    field->conversion = **at;
    *at += field->conversion != '\0';
    return true;
}

/* The format is written again from what was understood: nothing of the kernel's own text reaches the C library. */
static int print_field(const struct field *field, uint64_t bits, const char *string, char *piece)
{
    char format[48], width[16] = "", precision[16] = "";
    if (field->width >= 0)
        snprintf(width, sizeof width, "%d", field->width);
    if (field->precision >= 0)
        snprintf(precision, sizeof precision, ".%d", field->precision);
    bool integer = strchr("diuoxX", field->conversion) != NULL;
    snprintf(format, sizeof format, "%%%s%s%s%s%c", field->flags, width, precision, integer ? "ll" : "",
             field->conversion);
    unsigned shift = 64 - field->bits;
    double number;
    memcpy(&number, &bits, 8);
    switch (field->conversion) {
    case 'd':
    case 'i':
        return snprintf(piece, PIECE_ROOM, format, (long long)(int64_t)(bits << shift) >> shift);
    case 'u':
    case 'o':
    case 'x':
    case 'X':
        return snprintf(piece, PIECE_ROOM, format, (unsigned long long)(bits << shift >> shift));
    case 'c':
        return snprintf(piece, PIECE_ROOM, format, (int)(unsigned char)bits);
    case 's':
        return snprintf(piece, PIECE_ROOM, format, string);
    case 'p':
        return snprintf(piece, PIECE_ROOM, "0x%llx", (unsigned long long)bits);
    default:
        return snprintf(piece, PIECE_ROOM, format, number);
    }
}

static bool print_conversion(struct printer *p, const char **at)
{
    struct field field;
    uint64_t bits;
    char string[STRING_MOST] = "", piece[PIECE_ROOM];
    struct ptx_output *out = p->w->run->output;
    if (!read_field(p, at, &field))
        return false;
    if (field.conversion == '%' || !field.conversion || !strchr("diuoxXcspfFeEgGaA", field.conversion)) {
        put(out, "%", 1);
        if (field.conversion && field.conversion != '%')
            put(out, &field.conversion, 1);
        return true;
    }
    bool wide = field.bits == 64 || !strchr("diuoxXc", field.conversion);
    if (!argument(p, wide ? 8 : 4, &bits))
        return false;
    if (field.conversion == 's' && bits && !read_string(p->w, p->in, p->lane, bits, string, sizeof string))
        return false;
    int length = print_field(&field, bits, string, piece);
    put(out, piece, length < 0 ? 0 : length < PIECE_ROOM ? (size_t)length : PIECE_ROOM - 1);
    return true;
}

/* vprintf(format, arguments), for each lane in order. immediate: where the two parameters lie; e: the result, if mode. */
void step_print(struct warp *w, const struct insn *in, uint32_t m)
{
    char format[FORMAT_MOST];
    for (uint32_t left = m; left; left &= left - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(left);
        struct printer p = {.w = w, .in = in, .lane = lane};
        p.next = parameter(w, lane, (uint32_t)((uint64_t)in->immediate >> 32), 8);
        if (!read_string(w, in, lane, parameter(w, lane, (uint32_t)in->immediate, 8), format, sizeof format))
            return;
        for (const char *at = format; *at;) {
            size_t plain = strcspn(at, "%");
            put(w->run->output, at, plain);
            at += plain;
            if (*at && (at++, !print_conversion(&p, &at)))
                return;
        }
        char *result = in->mode ? access_local(w, lane, in->e, 4) : NULL;
        if (result)
            memcpy(result, &p.arguments, 4);
    }
}

/* __assertfail(message, file, line, function, size of a character): the words that CUDA prints, then the fault. */
void step_assert_failed(struct warp *w, const struct insn *in, uint32_t m)
{
    char message[STRING_MOST], file[STRING_MOST], function[STRING_MOST], line[4 * STRING_MOST];
    const uint32_t *size = w->run->launch->block, *block = w->file->block;
    for (uint32_t left = m; left; left &= left - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(left), thread = w->index * LANES + lane;
        if (!read_string(w, in, lane, parameter(w, lane, (uint32_t)in->immediate, 8), message, sizeof message) ||
            !read_string(w, in, lane, parameter(w, lane, (uint32_t)((uint64_t)in->immediate >> 32), 8), file,
                         sizeof file) ||
            !read_string(w, in, lane, parameter(w, lane, in->c, 8), function, sizeof function))
            return;
        int length =
            snprintf(line, sizeof line, "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n",
                     file, (uint32_t)parameter(w, lane, in->e, 4), function, block[0], block[1], block[2],
                     thread % size[0], thread / size[0] % size[1], thread / size[0] / size[1], message);
        put(w->run->output, line, length < 0 ? 0 : (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
    }
    run_fault(w, CUDA_ERROR_ASSERT);
}

void step_bad_call(struct warp *w, const struct insn *in, uint32_t m)
{
    (void)in, (void)m;
    run_fault(w, CUDA_ERROR_INVALID_PC);
}

void step_too_deep(struct warp *w, const struct insn *in, uint32_t m)
{
    (void)in, (void)m;
    run_fault(w, CUDA_ERROR_HARDWARE_STACK_ERROR);
}
