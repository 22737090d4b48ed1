/* The sections .nv.info of a cubin: where each parameter of a kernel lies, and what the kernel needs. */
#include <string.h>

#include "device/cubin_reader.h"

/* One entry of .nv.info: format, attribute, then a value of 16 bits or the number of bytes that follow. */
enum { FORMAT_BYTES = 4 };
enum {
    INFO_MAX_THREADS = 0x05,    /* x, y, z */
    INFO_FRAME_BYTES = 0x11,    /* symbol, bytes */
    INFO_PARAMETER = 0x17,      /* index, ordinal and offset (16 bits each), size in the upper 14 bits */
    INFO_REGISTERS = 0x2f,      /* symbol, count */
    INFO_LONG_PARAMETER = 0x45, /* index, ordinal, offset, size (16 bits each): for kernels with more than 4 KiB */
    INFO_PARAMETER_BYTES = 12,
};

struct info_entry {
    uint8_t attribute;
    uint16_t bytes;
    const uint8_t *value;
};

static uint32_t word(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint16_t half_word(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* The next entry with bytes of its own; false at the end, and for a damaged section, which fails. */
static bool next_entry(struct reader *r, const uint8_t **at, const uint8_t *end, struct info_entry *entry)
{
    while (end - *at >= 4) {
        const uint8_t *head = *at;
        *at += 4;
        if (head[0] != FORMAT_BYTES)
            continue;
        *entry = (struct info_entry){head[1], half_word(head + 2), head + 4};
        if (entry->bytes > end - *at)
            return cubin_fail(r, CUDA_ERROR_INVALID_IMAGE, "an entry of .nv.info is longer than its section");
        *at += entry->bytes;
        return true;
    }
    return false;
}

static bool open_info(struct reader *r, const struct section *section, const uint8_t **at, const uint8_t **end)
{
    *end = *at = cubin_contents(r, &section->header);
    if (!*at || section->header.sh_size > r->info_left)
        return cubin_fail(r, CUDA_ERROR_INVALID_IMAGE, "its sections .nv.info lie outside of it, or overlap");
    r->info_left -= section->header.sh_size;
    *end = *at + section->header.sh_size;
    return true;
}

static bool is_parameter(const struct info_entry *entry)
{
    return (entry->attribute == INFO_PARAMETER || entry->attribute == INFO_LONG_PARAMETER) &&
           entry->bytes == INFO_PARAMETER_BYTES;
}

static bool read_parameter(struct reader *r, const struct info_entry *entry, struct ptx_kernel *kernel,
                           struct ptx_parameter *parameters)
{
    uint32_t ordinal = half_word(entry->value + 4), offset = half_word(entry->value + 6);
    uint32_t bytes =
        entry->attribute == INFO_PARAMETER ? word(entry->value + 8) >> 18 : (uint32_t)half_word(entry->value + 8);
    if (ordinal >= kernel->parameter_count || parameters[ordinal].bytes || !bytes ||
        offset + bytes > PTX_PARAMETER_BYTES)
        return cubin_fail(r, CUDA_ERROR_INVALID_IMAGE, "the parameters of a kernel contradict each other");
    parameters[ordinal] = (struct ptx_parameter){offset, bytes};
    if (offset + bytes > kernel->parameter_bytes)
        kernel->parameter_bytes = offset + bytes;
    return true;
}

bool cubin_kernel_info(struct reader *r, const struct section *section, struct ptx_kernel *kernel)
{
    const uint8_t *begin, *end;
    struct info_entry entry;
    if (!open_info(r, section, &begin, &end))
        return false;
    for (const uint8_t *at = begin; next_entry(r, &at, end, &entry);)
        kernel->parameter_count += is_parameter(&entry);
    struct ptx_parameter *parameters = cubin_table(r, r->cubin->pool, kernel->parameter_count, sizeof *parameters);
    if (!parameters)
        return false;
    kernel->parameters = parameters;
    for (const uint8_t *at = begin; r->result == CUDA_SUCCESS && next_entry(r, &at, end, &entry);) {
        if (is_parameter(&entry) && !read_parameter(r, &entry, kernel, parameters))
            return false;
        if (entry.attribute == INFO_MAX_THREADS && entry.bytes >= 12) {
            uint64_t threads = (uint64_t)word(entry.value) * word(entry.value + 4);
            threads = threads > THREADS_MOST ? THREADS_MOST : threads * word(entry.value + 8);
            if (threads && threads < THREADS_MOST)
                kernel->threads_max = (uint32_t)threads;
        }
    }
    return r->result == CUDA_SUCCESS;
}

/* What .nv.info says of all kernels, by their symbols. */
bool cubin_common_info(struct reader *r, const struct section *section)
{
    const uint8_t *at, *end;
    struct info_entry entry;
    if (!open_info(r, section, &at, &end))
        return false;
    while (next_entry(r, &at, end, &entry)) {
        bool wanted = entry.attribute == INFO_REGISTERS || entry.attribute == INFO_FRAME_BYTES;
        if (!wanted || entry.bytes < 8 || word(entry.value) >= r->symbol_count)
            continue;
        Elf64_Sym symbol = cubin_symbol(r, word(entry.value));
        const struct section *home = cubin_home(r, &symbol);
        if (!home || !home->kernel)
            continue;
        struct ptx_kernel *kernel = &r->cubin->kernels[home->kernel - 1];
        uint32_t value = word(entry.value + 4) & 0x7fffffff;
        if (entry.attribute == INFO_REGISTERS)
            kernel->register_count = value;
        else
            kernel->local_bytes = value;
    }
    return r->result == CUDA_SUCCESS;
}
