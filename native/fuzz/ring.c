/* Fuzz target: the shared-memory transport's server end against a region whose every byte the input decides.
 *
 * The input is a script: hostile writes to the region, calls of the server's end, and writes that arrive in the middle of
 * the next call (between two looks at the region). The peer is gone, so that no call ever waits.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "script.h"
#include "wire/shm.h"
#include "wire/wait.h"

enum { MOST_CALLS = 64, WRITE_MOST = sizeof(struct wire_header) };

struct strike { /* one hostile write */
    unsigned char *at;
    uint64_t value;
    size_t bytes;
};

static struct shm_region *region;
static struct strike armed;
static unsigned armed_after;       /* so many looks at the region from now */
static size_t written[MOST_CALLS]; /* where in the message ring this input has written */
static size_t writes;

void wire_fuzz_between(void);

static void hit(const struct strike *strike)
{
    if (strike->at != NULL)
        memcpy(strike->at, &strike->value, strike->bytes);
}

void wire_fuzz_between(void)
{
    if (armed_after-- > 0)
        return;
    hit(&armed);
    armed.at = NULL;
}

static struct strike at_counter(struct script *script)
{
    unsigned which = take_number(script, 1) % 8;
    struct shm_lane *lane = &region->lane[which / 4];
    _Atomic uint64_t *counters[] = {&lane->tail, &lane->head, &lane->bulk_tail, &lane->bulk_head};
    uint64_t value = take_number(script, 1) % 2 == 0 ? take_number(script, 8) : take_number(script, 3);
    return (struct strike){(unsigned char *)counters[which % 4], value, 8};
}

static struct strike at_messages(struct script *script)
{
    /* Most strikes fall on the first record's header, where they hurt. */
    size_t offset = take_number(script, 1) % 4 != 0 ? take_number(script, 1) % 64 : take_number(script, 2);
    offset %= SHM_MESSAGE_RING - WRITE_MOST;
    written[writes++] = offset;
    return (struct strike){region->messages[SHM_CLIENT] + offset, take_number(script, 4), 4};
}

/* A header in the region, of which only the words that matter come from the input. */
static void write_header(struct script *script)
{
    struct wire_header header = {.call = 1, .sequence = 1};
    size_t offset = take_number(script, take_number(script, 1) % 4 != 0 ? 1 : 2);
    offset = offset % (SHM_MESSAGE_RING / 8 - sizeof header / 8) * 8;
    header.body_bytes = (uint32_t)take_number(script, take_number(script, 1) % 2 == 0 ? 2 : 4);
    header.flags = (uint32_t)take_number(script, 1);
    memcpy(region->messages[SHM_CLIENT] + offset, &header, sizeof header);
    written[writes++] = offset;
}

static void receive(struct wire *wire, struct script *script)
{
    size_t capacity = take_number(script, 2) % (WIRE_BODY_MAX + 1);
    unsigned char *body = malloc(capacity + 1); /* of the exact size, for the sanitizer */
    struct wire_header header;
    if (body == NULL)
        return;
    body[capacity] = 0x5a;
    int status = wire->ops->receive(wire, &header, body, capacity);
    must_hold(status == WIRE_OK || status == WIRE_CLOSED || status == WIRE_BROKEN);
    must_hold(status != WIRE_OK || header.body_bytes <= capacity);
    must_hold(body[capacity] == 0x5a);
    free(body);
}

static void take_bulk(struct wire *wire, struct script *script)
{
    const void *at;
    size_t granted;
    size_t wanted = take_number(script, 4);
    if (wire->ops->bulk_peek(wire, wanted, &at, &granted) != WIRE_OK)
        return;
    const unsigned char *from = at;
    must_hold(granted <= wanted && granted <= WIRE_BULK_CHUNK && from >= region->bulk[SHM_CLIENT] &&
              from + granted <= region->bulk[SHM_CLIENT] + SHM_BULK_RING);
    wire->ops->bulk_release(wire, take_number(script, 1) % 2 == 0 ? granted : take_number(script, 4));
}

static void give_bulk(struct wire *wire, struct script *script)
{
    void *at;
    size_t granted;
    size_t wanted = take_number(script, 4);
    if (wire->ops->bulk_reserve(wire, wanted, &at, &granted) != WIRE_OK)
        return;
    unsigned char *to = at;
    must_hold(granted <= wanted && granted <= WIRE_BULK_CHUNK && to >= region->bulk[SHM_SERVER] &&
              to + granted <= region->bulk[SHM_SERVER] + SHM_BULK_RING);
    wire->ops->bulk_commit(wire, take_number(script, 1) % 2 == 0 ? granted : take_number(script, 4));
}

static void send_one(struct wire *wire, struct script *script)
{
    static const unsigned char body[WIRE_BODY_MAX];
    struct wire_header header = {.body_bytes = (uint32_t)take_number(script, 2),
                                 .flags = (uint32_t)take_number(script, 1)};
    int status = wire->ops->send(wire, &header, body);
    must_hold(header.body_bytes <= WIRE_BODY_MAX || status != WIRE_OK);
}

static void step(struct wire *wire, struct script *script)
{
    struct strike strike;
    switch (take_number(script, 1) % 10) {
    case 0:
        strike = at_counter(script);
        hit(&strike);
        break;
    case 1:
        strike = at_messages(script);
        hit(&strike);
        break;
    case 2:
        write_header(script);
        break;
    case 3:
        armed = at_counter(script);
        armed_after = (unsigned)take_number(script, 1) % 4;
        break;
    case 4:
        armed = at_messages(script);
        armed_after = (unsigned)take_number(script, 1) % 4;
        break;
    case 5:
        receive(wire, script);
        break;
    case 6:
        take_bulk(wire, script);
        break;
    case 7:
        give_bulk(wire, script);
        break;
    case 8:
        send_one(wire, script);
        break;
    default:
        atomic_store(&region->bell[take_number(script, 1) % 2].wants, (uint32_t)take_number(script, 1));
        wire->ops->flush(wire);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct script script = {bytes, count};
    if (region == NULL) {
        void *at = mmap(NULL, sizeof *region, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        must_hold(at != MAP_FAILED);
        region = at;
    }
    memset(region, 0, offsetof(struct shm_region, messages));
    while (writes > 0)
        memset(region->messages[SHM_CLIENT] + written[--writes], 0, WRITE_MOST);
    armed.at = NULL;
    struct wire *wire = shm_wire(region, SHM_SERVER, -1, 0, 0);
    must_hold(wire != NULL);
    for (int i = 0; i < MOST_CALLS && script.left > 0; i++)
        step(wire, &script);
    wire->ops->close(wire);
    return 0;
}
