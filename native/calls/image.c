/* Finds the end of a module image from its own headers; the proxy uses it to refuse images whose headers lie. */
#include "image.h"

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct fat_header {
    uint32_t magic;
    uint16_t version;
    uint16_t header_bytes;
    uint64_t bytes;
};

static const uint32_t FAT_MAGIC = 0xba55ed50, WRAPPER_MAGIC = 0x466243b1;

/* Raises *end to offset + bytes; false if that is behind the limit. */
static bool extend(size_t *end, uint64_t offset, uint64_t bytes, size_t limit)
{
    if (offset > limit || bytes > limit - offset)
        return false;
    if (offset + bytes > *end)
        *end = (size_t)(offset + bytes);
    return true;
}

static size_t elf_bytes(const uint8_t *image, size_t limit)
{
    Elf64_Ehdr header;
    size_t end = 0;
    if (!extend(&end, 0, sizeof header, limit))
        return 0;
    memcpy(&header, image, sizeof header);
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || (header.e_shnum != 0 && header.e_shentsize != sizeof(Elf64_Shdr)))
        return 0;
    if (!extend(&end, header.e_shoff, (uint64_t)header.e_shnum * sizeof(Elf64_Shdr), limit) ||
        !extend(&end, header.e_phoff, (uint64_t)header.e_phnum * header.e_phentsize, limit))
        return 0;
    for (unsigned at = 0; at < header.e_shnum; at++) {
        Elf64_Shdr section;
        memcpy(&section, image + header.e_shoff + at * sizeof section, sizeof section);
        if (section.sh_type != SHT_NOBITS && !extend(&end, section.sh_offset, section.sh_size, limit))
            return 0;
    }
    return end;
}

static size_t fat_bytes(const uint8_t *image, size_t limit)
{
    struct fat_header header;
    size_t end = 0;
    if (!extend(&end, 0, sizeof header, limit))
        return 0;
    memcpy(&header, image, sizeof header);
    return extend(&end, header.header_bytes, header.bytes, limit) ? end : 0;
}

const void *image_unwrapped(const void *image)
{
    struct wrapper {
        uint32_t magic, version;
        const void *data;
    } wrapper;
    if (strnlen(image, sizeof wrapper.magic) < sizeof wrapper.magic)
        return image;
    memcpy(&wrapper.magic, image, sizeof wrapper.magic);
    if (wrapper.magic != WRAPPER_MAGIC)
        return image;
    memcpy(&wrapper, image, sizeof wrapper);
    return wrapper.data;
}

size_t image_bytes(const void *image, size_t limit)
{
    uint32_t magic = 0;
    size_t text = strnlen(image, limit < sizeof magic ? limit : sizeof magic);
    if (text == sizeof magic) {
        memcpy(&magic, image, sizeof magic);
        if (magic == FAT_MAGIC)
            return fat_bytes(image, limit);
        if (magic == WRAPPER_MAGIC) /* it holds an address: whoever got it from another process must not follow it */
            return 0;
        if (memcmp(image, ELFMAG, SELFMAG) == 0)
            return elf_bytes(image, limit);
    }
    text = strnlen(image, limit);
    return text < limit && text > 0 ? text + 1 : 0;
}
