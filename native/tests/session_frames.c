/* The reader of frames against every way to cut a stream, and against bytes by chance: it reads what was written or refuses. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session/frame.h"
#include "session/place.h"
#include "session/request.h"

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%d: %s\n", __LINE__, #what); \
            exit(1); \
        } \
    } while (0)

static struct stream_pages pages;
static struct stream guest, host;

static void begin(void)
{
    memset(&pages, 0, sizeof pages);
    guest = (struct stream){&pages, {-1, 0}, true, 0, 0};
    host = (struct stream){&pages, {-1, 0}, false, 0, 0};
}

static void frames_of_every_size_arrive_however_they_are_cut(void)
{
    static unsigned char bytes[FRAME_MOST], stored[sizeof(struct frame_head) + FRAME_MOST];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 7);
    begin();
    for (size_t size = 0; size <= FRAME_MOST; size += size < 40 ? 1 : 1019) {
        for (size_t cut = 1; cut < 40; cut += 3) {
            struct frame_reader reader = {.have = 0};
            const struct frame_head head = {FRAME_OUTPUT, (uint32_t)size};
            memcpy(stored, &head, sizeof head);
            memcpy(stored + sizeof head, bytes, size);
            for (size_t at = 0; at < sizeof head + size; at += cut) {
                size_t left = sizeof head + size - at;
                CHECK(stream_room(&guest) >= (ssize_t)cut);
                stream_put(&guest, stored + at, left < cut ? left : cut);
                CHECK(frame_next(&reader, &host) == (left <= cut));
            }
            CHECK(reader.head.kind == FRAME_OUTPUT && reader.head.bytes == size);
            CHECK(memcmp(reader.bytes, bytes, size) == 0);
            CHECK(frame_next(&reader, &host) == 0);
        }
    }
}

static void a_full_ring_takes_nothing_more(void)
{
    static const unsigned char bytes[FRAME_MOST];
    int count = 0;
    begin();
    while (frame_put(&guest, FRAME_OUTPUT, bytes, 1000))
        count++;
    CHECK(count == STREAM_RING_BYTES / 1008);
    CHECK(!frame_put(&guest, FRAME_OUTPUT, bytes, FRAME_MOST + 1));
    CHECK(frame_room(&guest) == STREAM_RING_BYTES % 1008 - 8);
}

static void counters_that_cannot_be_are_refused(void)
{
    static struct frame_reader reader;
    for (uint32_t lie = STREAM_RING_BYTES + 1; lie > STREAM_RING_BYTES; lie = lie * 2 + 1) {
        begin();
        atomic_store(&pages.to_host.written, lie);
        CHECK(frame_next(&reader, &host) == -1);
        atomic_store(&pages.to_guest.taken, 0U - lie);
        CHECK(stream_room(&host) == -1 && frame_room(&host) == -1);
        CHECK(!frame_put_number(&host, FRAME_SIGNAL, 15));
        if (lie == UINT32_MAX)
            break;
    }
}

/* Whatever lies in the ring, a reader never holds more than a frame; sanitizers watch. */
static void chance_is_read_or_refused(unsigned int rounds)
{
    unsigned int refused = 0, read = 0;
    srand(1);
    for (unsigned int i = 0; i < rounds; i++) {
        static struct frame_reader reader;
        reader.have = 0;
        begin();
        for (size_t at = 0; at < 512; at++)
            pages.host_bytes[at] = (unsigned char)(rand() % (i % 2 ? 256 : 3));
        atomic_store(&pages.to_host.written, (uint32_t)rand() % (STREAM_RING_BYTES + 100));
        int found;
        while ((found = frame_next(&reader, &host)) == 1) {
            CHECK(reader.head.bytes <= FRAME_MOST);
            read++;
        }
        refused += found < 0;
    }
    CHECK(refused > 0 && read > 0);
}

static void requests_are_read_or_refused(void)
{
    static struct request request;
    static const struct {
        const char *text;
        size_t bytes;
        bool good;
    } cases[] = {
#define CASE(text, good) {text, sizeof(text) - 1, good}
        CASE("a/bin/x\0", true),
        CASE("a/bin/x\0aone\0eA=b\0d/tmp\0u1\0g2\0G3\0n\0", true),
        CASE("s\0", true),
        CASE("cname\0r/dev/xvda\0ax\0", true),
        CASE("xname\0ax\0", true),
        CASE("", false),
        CASE("a/bin/x", false),
        CASE("ax\0\0", false),
        CASE("eA=b\0", false),
        CASE("ax\0u-1\0", false),
        CASE("ax\0u4294967295\0", false),
        CASE("ax\0u\0", false),
        CASE("ax\0dtmp\0", false),
        CASE("cname\0ax\0", false),
        CASE("r/dev/xvda\0ax\0", false),
        CASE("c../up\0r/dev/xvda\0ax\0", false),
        CASE("c..\0r/dev/xvda\0ax\0", false),
        CASE("cname\0rxvda\0ax\0", false),
        CASE("cname\0r/dev/xvda\0xname\0ax\0", false),
        CASE("ax\0?\0", false),
#undef CASE
    };
    char text[128];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(text, cases[i].text, cases[i].bytes);
        text[cases[i].bytes] = 0;
        if (request_read(&request, text, cases[i].bytes) != cases[i].good) {
            fprintf(stderr, "request %zu\n", i);
            exit(1);
        }
    }
}

static void places_are_read_as_they_were_written_or_refused(void)
{
    struct place place = {.port = 7}, again;
    char text[PLACE_BYTES];
    for (int i = 0; i < STREAM_PAGES; i++)
        place.references[i] = UINT32_MAX - (uint32_t)i;
    place_write(&place, text);
    CHECK(place_read(&again, text) && memcmp(&place, &again, sizeof place) == 0);
    CHECK(!place_read(&again, ""));
    CHECK(!place_read(&again, "1 7 4294967296 1 1 1 1 1 1 1 1"));
    CHECK(!place_read(&again, "2 7 1 1 1 1 1 1 1 1 1"));
    CHECK(!place_read(&again, "1 0 1 1 1 1 1 1 1 1 1"));
    CHECK(!place_read(&again, "1 7 1 1 1 1 1 1 1 1 1 1"));
    CHECK(!place_read(&again, "1 7 -1 1 1 1 1 1 1 1 1"));
    CHECK(place_read(&again, "1 7 1 1 1 1 1 1 1 1 1"));
}

int main(void)
{
    frames_of_every_size_arrive_however_they_are_cut();
    a_full_ring_takes_nothing_more();
    counters_that_cannot_be_are_refused();
    chance_is_read_or_refused(20000);
    requests_are_read_or_refused();
    places_are_read_as_they_were_written_or_refused();
    puts("ok");
    return 0;
}
