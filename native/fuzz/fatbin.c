/* Fuzz target: a tenant's fat binary against its reader, and packed bytes against both ways of unpacking.
 *
 * The first byte chooses: 'l' an LZ4 block, 'z' a Zstandard frame, anything else a fat binary, which then begins with this
 * byte. All memory is exactly as large as it may be used, so that AddressSanitizer sees a step beyond it.
 */
#include <stdlib.h>
#include <string.h>

#include "device/fatbin/fatbin.h"
#include "script.h"

enum { ROOM = 64 << 10, MOST = 1 << 20, ARCHITECTURE = 90 };

static void unpack(const uint8_t *bytes, size_t count, int64_t (*how)(const uint8_t *, size_t, uint8_t *, size_t))
{
    uint8_t *room = malloc(ROOM);
    must_hold(room != NULL);
    int64_t got = how(bytes, count, room, ROOM);
    must_hold(got >= -1 && got <= ROOM);
    for (int64_t i = 0; i < got; i++) /* what it says it wrote can be read */
        room[i] ^= 1;
    free(room);
}

static void read_image(const uint8_t *bytes, size_t count)
{
    struct fat_reader reader;
    struct fat_entry entry;
    const char *why = NULL;
    char *text = fat_ptx(bytes, count, ARCHITECTURE, MOST, &why);
    must_hold(text != NULL || why != NULL);
    must_hold(text == NULL || strlen(text) <= MOST);
    free(text);
    if (!fat_open(&reader, bytes, count))
        return;
    while (fat_next(&reader, &entry)) {
        size_t unpacked = 0;
        char *content = fat_unpack(&entry, MOST, &unpacked);
        must_hold(content == NULL || (unpacked <= MOST && content[unpacked] == 0));
        free(content);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (count == 0)
        return 0;
    uint8_t *own = malloc(count);
    must_hold(own != NULL);
    memcpy(own, bytes, count);
    if (own[0] == 'l' || own[0] == 'z') {
        uint8_t *packed = malloc(count - 1);
        must_hold(packed != NULL);
        memcpy(packed, own + 1, count - 1);
        unpack(packed, count - 1, own[0] == 'l' ? lz4_unpack : zstd_unpack);
        free(packed);
    } else {
        read_image(own, count);
    }
    free(own);
    return 0;
}
