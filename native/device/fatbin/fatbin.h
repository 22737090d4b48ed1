/* Fat binaries, as nvcc puts them into programs: entries with PTX text or a binary, each possibly compressed.
 *
 * They come from tenants: nothing is read outside of the given bytes, and no more is unpacked than the caller allows. */
#ifndef GPUTAX_FATBIN_H
#define GPUTAX_FATBIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fat_kind { FAT_PTX = 1, FAT_CUBIN = 2 }; /* others exist, and are passed over */

struct fat_entry {
    uint32_t kind;
    uint32_t architecture; /* 90 for compute_90 and sm_90 */
    uint64_t flags;
    const uint8_t *data;
    size_t bytes;          /* as stored */
    size_t unpacked_bytes; /* as its header claims */
};

struct fat_reader {
    const uint8_t *at;
    size_t left;
};

/* False: not a fat binary, or its header lies. */
bool fat_open(struct fat_reader *reader, const void *image, size_t bytes);
/* The next entry; false at the end, and where an entry's header points behind the end. */
bool fat_next(struct fat_reader *reader, struct fat_entry *entry);

/* The entry's content in memory of malloc, with a 0 behind it. NULL: damaged, packed in an unknown way, or more than `most`
 * bytes. */
void *fat_unpack(const struct fat_entry *entry, size_t most, size_t *bytes);

/* The PTX text for a device of this architecture, from malloc: that of the highest architecture that it can run. NULL, and
 * *why says why. */
char *fat_ptx(const void *image, size_t bytes, uint32_t architecture, size_t most, const char **why);

/* The binary for a device of this architecture, from malloc: that of the same generation and the highest revision. NULL: there
 * is none, or it cannot be unpacked. */
void *fat_cubin(const void *image, size_t bytes, uint32_t architecture, size_t most, size_t *unpacked);

/* The two ways of packing. Both write at most `room` bytes and return how many, or -1 for damaged input. */
int64_t lz4_unpack(const uint8_t *from, size_t bytes, uint8_t *to, size_t room);
int64_t zstd_unpack(const uint8_t *from, size_t bytes, uint8_t *to, size_t room);

#endif
