/* Reads the headers of a fat binary and takes an entry out. */
#include "device/fatbin/fatbin.h"

#include <stdlib.h>
#include <string.h>

enum { FLAG_LZ4 = 0x2000, FLAG_ZSTD = 0x8000, FLAG_PACKED_OTHERWISE = 0x1000 };

struct fat_header {
    uint32_t magic;
    uint16_t version;
    uint16_t header_bytes;
    uint64_t bytes; /* of all entries */
};

struct entry_header {
    uint16_t kind;
    uint16_t version;
    uint32_t header_bytes;
    uint64_t bytes;        /* from the end of this header to the next entry */
    uint32_t packed_bytes; /* without the padding behind; 0 where nothing is packed */
    uint32_t unknown;
    uint16_t minor, major;
    uint32_t architecture;
    uint32_t name_offset, name_bytes;
    uint64_t flags;
    uint64_t unknown_too;
    uint64_t unpacked_bytes; /* 0 where nothing is packed */
};

static const uint32_t FAT_MAGIC = 0xba55ed50;

bool fat_open(struct fat_reader *reader, const void *image, size_t bytes)
{
    struct fat_header header;
    if (bytes < sizeof header)
        return false;
    memcpy(&header, image, sizeof header);
    if (header.magic != FAT_MAGIC || header.header_bytes < sizeof header || header.header_bytes > bytes ||
        header.bytes > bytes - header.header_bytes)
        return false;
    *reader = (struct fat_reader){(const uint8_t *)image + header.header_bytes, (size_t)header.bytes};
    return true;
}

bool fat_next(struct fat_reader *reader, struct fat_entry *entry)
{
    struct entry_header header;
    if (reader->left < sizeof header)
        return false;
    memcpy(&header, reader->at, sizeof header);
    if (header.header_bytes < sizeof header || header.header_bytes > reader->left ||
        header.bytes > reader->left - header.header_bytes)
        return false;
    bool packed = (header.flags & (FLAG_LZ4 | FLAG_ZSTD | FLAG_PACKED_OTHERWISE)) != 0;
    size_t bytes = (size_t)header.bytes;
    if (packed && header.packed_bytes > bytes)
        return false;
    *entry = (struct fat_entry){
        .kind = header.kind,
        .architecture = header.architecture,
        .flags = header.flags,
        .data = reader->at + header.header_bytes,
        .bytes = packed ? header.packed_bytes : bytes,
        .unpacked_bytes = packed ? (size_t)header.unpacked_bytes : bytes,
    };
    reader->at += header.header_bytes + bytes;
    reader->left -= header.header_bytes + bytes;
    return true;
}

void *fat_unpack(const struct fat_entry *entry, size_t most, size_t *bytes)
{
    if ((entry->flags & FLAG_PACKED_OTHERWISE) != 0 || entry->unpacked_bytes > most)
        return NULL;
    uint8_t *content = malloc(entry->unpacked_bytes + 1);
    if (content == NULL)
        return NULL;
    int64_t got = (int64_t)entry->unpacked_bytes;
    if ((entry->flags & FLAG_ZSTD) != 0)
        got = zstd_unpack(entry->data, entry->bytes, content, entry->unpacked_bytes);
    else if ((entry->flags & FLAG_LZ4) != 0)
        got = lz4_unpack(entry->data, entry->bytes, content, entry->unpacked_bytes);
    else
        memcpy(content, entry->data, entry->unpacked_bytes);
    if (got != (int64_t)entry->unpacked_bytes) {
        free(content);
        return NULL;
    }
    content[entry->unpacked_bytes] = 0;
    *bytes = entry->unpacked_bytes;
    return content;
}

char *fat_ptx(const void *image, size_t bytes, uint32_t architecture, size_t most, const char **why)
{
    struct fat_reader reader;
    struct fat_entry entry, best = {0};
    bool binaries = false, newer = false;
    if (!fat_open(&reader, image, bytes)) {
        *why = "the fat binary's header is damaged";
        return NULL;
    }
    while (fat_next(&reader, &entry)) {
        binaries |= entry.kind == FAT_CUBIN;
        newer |= entry.kind == FAT_PTX && entry.architecture > architecture;
        if (entry.kind == FAT_PTX && entry.architecture <= architecture && entry.architecture > best.architecture)
            best = entry;
    }
    if (best.data == NULL) {
        *why = newer      ? "the fat binary has PTX for newer devices only"
               : binaries ? "the fat binary has code for GPUs only and no PTX; this device runs PTX"
                          : "the fat binary has no PTX";
        return NULL;
    }
    size_t unpacked;
    char *text = fat_unpack(&best, most, &unpacked);
    if (text == NULL)
        *why = "the PTX in the fat binary cannot be unpacked: damaged, too large or packed in an unknown way";
    return text;
}

void *fat_cubin(const void *image, size_t bytes, uint32_t architecture, size_t most, size_t *unpacked)
{
    struct fat_reader reader;
    struct fat_entry entry, best = {0};
    if (!fat_open(&reader, image, bytes))
        return NULL;
    while (fat_next(&reader, &entry)) {
        bool fits = entry.architecture / 10 == architecture / 10 && entry.architecture <= architecture;
        if (entry.kind == FAT_CUBIN && fits && entry.architecture > best.architecture)
            best = entry;
    }
    return best.data != NULL ? fat_unpack(&best, most, unpacked) : NULL;
}
