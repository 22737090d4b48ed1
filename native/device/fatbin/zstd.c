/* Unpacks one Zstandard frame (RFC 8878) into one block of memory: no dictionaries, no streaming, checksums not compared.
 *
 * The names are those of the RFC. Its bit streams are read from the end to the start; a read below the start gives zeros and
 * leaves a negative place, which the callers look at. Everything that depends on the input is checked against a bound.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "device/fatbin/fatbin.h"

enum {
    BLOCK_MOST = 128 << 10,
    FSE_LOG_MOST = 9,
    HUFFMAN_BITS_MOST = 11,
    SYMBOLS_MOST = 256,
    LITERAL_LENGTHS = 36,
    OFFSETS = 32,
    MATCH_LENGTHS = 53,
};

struct bytes { /* what is left of an input */
    const uint8_t *at;
    size_t left;
};

struct backward { /* a bit stream that is read from its end */
    const uint8_t *from;
    int64_t place; /* the lowest bit that was read */
};

struct fse_state {
    uint8_t symbol, bits;
    uint16_t base;
};
struct fse_table {
    unsigned int log;
    bool known;
    struct fse_state states[1 << FSE_LOG_MOST];
};

struct huffman_table {
    unsigned int bits_most; /* 0: none yet */
    uint8_t symbols[1 << HUFFMAN_BITS_MOST], bits[1 << HUFFMAN_BITS_MOST];
};

struct frame {
    uint8_t *to;
    size_t room, done;
    uint64_t offsets[3];
    struct huffman_table huffman;
    struct fse_table literal_lengths, offset_codes, match_lengths;
    uint8_t literals[BLOCK_MOST];
    size_t literals_count;
};

static unsigned int highest_bit(uint64_t value)
{
    return 63u - (unsigned int)__builtin_clzll(value);
}

static bool take(struct bytes *from, size_t count, const uint8_t **taken)
{
    if (count > from->left)
        return false;
    *taken = from->at;
    from->at += count;
    from->left -= count;
    return true;
}

static bool take_number(struct bytes *from, size_t count, uint64_t *value)
{
    const uint8_t *at;
    if (!take(from, count, &at))
        return false;
    *value = 0;
    for (size_t i = 0; i < count; i++)
        *value |= (uint64_t)at[i] << (8 * i);
    return true;
}

/* At most 32 bits from a place that lies inside of the stream. */
static uint32_t bits_at(const uint8_t *from, uint64_t place, unsigned int count)
{
    uint64_t value = 0;
    unsigned int shift = (unsigned int)(place % 8);
    const uint8_t *at = from + place / 8;
    for (unsigned int i = 0; i * 8 < shift + count; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return (uint32_t)(value >> shift & ((UINT64_C(1) << count) - 1));
}

static bool open_backward(struct backward *stream, const uint8_t *from, size_t bytes)
{
    if (bytes == 0 || from[bytes - 1] == 0)
        return false;
    *stream = (struct backward){from, (int64_t)(bytes - 1) * 8 + highest_bit(from[bytes - 1])};
    return true;
}

static uint32_t read_bits(struct backward *stream, unsigned int count)
{
    stream->place -= count;
    if (stream->place >= 0)
        return bits_at(stream->from, (uint64_t)stream->place, count);
    int64_t missing = -stream->place;
    if (missing >= (int64_t)count) {
        if (stream->place < -4096)
            stream->place = -4096; /* far enough below for every check */
        return 0;
    }
    return bits_at(stream->from, 0, count - (unsigned int)missing) << missing;
}

/* --- finite state entropy --- */

static bool build_fse(struct fse_table *table, const int16_t *counts, unsigned int symbols, unsigned int log)
{
    uint32_t size = 1u << log, high = size, place = 0, step = (size >> 1) + (size >> 3) + 3;
    uint16_t next[SYMBOLS_MOST];
    for (unsigned int symbol = 0; symbol < symbols; symbol++) {
        next[symbol] = (uint16_t)(counts[symbol] < 0 ? 1 : counts[symbol]);
        if (counts[symbol] < 0)
            table->states[--high].symbol = (uint8_t)symbol;
    }
    for (unsigned int symbol = 0; symbol < symbols; symbol++)
        for (int i = 0; i < counts[symbol]; i++) {
            table->states[place].symbol = (uint8_t)symbol;
            do
                place = (place + step) & (size - 1);
            while (place >= high);
        }
    if (place != 0)
        return false;
    for (uint32_t i = 0; i < size; i++) {
        struct fse_state *state = &table->states[i];
        uint32_t count = next[state->symbol]++;
        state->bits = (uint8_t)(log - highest_bit(count));
        state->base = (uint16_t)((count << state->bits) - size);
    }
    table->log = log;
    table->known = true;
    return true;
}

/* The description of a table: how often each symbol comes, in fewer bits the less is left to give away. */
static bool read_fse(struct bytes *from, struct fse_table *table, unsigned int symbols_most, unsigned int log_most)
{
    int16_t counts[SYMBOLS_MOST] = {0};
    uint8_t padded[8 + SYMBOLS_MOST * 2] = {0}; /* no description is longer */
    size_t known = from->left < sizeof padded - 8 ? from->left : sizeof padded - 8;
    uint64_t place = 4;
    unsigned int symbol = 0;
    memcpy(padded, from->at, known);
    unsigned int log = (padded[0] & 15u) + 5;
    if (known == 0 || log > log_most)
        return false;
    int32_t left = 1 << log;
    while (left > 0) {
        if (symbol >= symbols_most || place > known * 8)
            return false;
        unsigned int bits = highest_bit((uint64_t)left + 1) + 1;
        uint32_t value = bits_at(padded, place, bits), low_mask = (1u << (bits - 1)) - 1;
        uint32_t short_ones = (1u << bits) - 1 - ((uint32_t)left + 1);
        if ((value & low_mask) < short_ones) {
            value &= low_mask;
            place += bits - 1;
        } else {
            if (value > low_mask)
                value -= short_ones;
            place += bits;
        }
        counts[symbol] = (int16_t)((int32_t)value - 1);
        left -= counts[symbol] < 0 ? 1 : counts[symbol];
        if (counts[symbol++] != 0)
            continue;
        for (uint32_t zeros = 3; zeros == 3;) {
            if (place > known * 8)
                return false;
            zeros = bits_at(padded, place, 2);
            place += 2;
            symbol += zeros;
            if (symbol > symbols_most)
                return false;
        }
    }
    size_t used = (size_t)(place + 7) / 8;
    const uint8_t *taken;
    return left == 0 && take(from, used, &taken) && build_fse(table, counts, symbol, log);
}

static unsigned int start_state(const struct fse_table *table, struct backward *stream)
{
    return read_bits(stream, table->log);
}

static void next_state(const struct fse_table *table, struct backward *stream, unsigned int *state)
{
    const struct fse_state *now = &table->states[*state];
    *state = now->base + read_bits(stream, now->bits);
}

/* --- literals --- */

static bool read_packed_weights(const uint8_t *at, size_t bytes, uint8_t *weights, unsigned int *count)
{
    struct fse_table table = {0};
    struct bytes from = {at, bytes};
    struct backward stream;
    if (!read_fse(&from, &table, SYMBOLS_MOST, 6) || !open_backward(&stream, from.at, from.left))
        return false;
    unsigned int states[2];
    states[0] = start_state(&table, &stream);
    states[1] = start_state(&table, &stream);
    for (unsigned int turn = 0; *count < SYMBOLS_MOST - 1; turn ^= 1) {
        weights[(*count)++] = table.states[states[turn]].symbol;
        next_state(&table, &stream, &states[turn]);
        if (stream.place >= 0)
            continue;
        if (*count == SYMBOLS_MOST - 1)
            return false;
        weights[(*count)++] = table.states[states[turn ^ 1]].symbol;
        return true;
    }
    return false;
}

static bool read_weights(struct bytes *from, uint8_t *weights, unsigned int *count)
{
    uint64_t header;
    const uint8_t *at;
    *count = 0;
    if (!take_number(from, 1, &header))
        return false;
    if (header < 128)
        return take(from, (size_t)header, &at) && read_packed_weights(at, (size_t)header, weights, count);
    *count = (unsigned int)header - 127;
    if (!take(from, (*count + 1) / 2, &at))
        return false;
    for (unsigned int i = 0; i < *count; i++)
        weights[i] = i % 2 == 0 ? at[i / 2] >> 4 : at[i / 2] & 15;
    return true;
}

/* The last weight is not stored: it fills the sum up to a power of two. */
static bool read_huffman(struct bytes *from, struct huffman_table *table)
{
    uint8_t weights[SYMBOLS_MOST];
    unsigned int count;
    uint32_t sum = 0, ranks[HUFFMAN_BITS_MOST + 2] = {0};
    table->bits_most = 0;
    if (!read_weights(from, weights, &count))
        return false;
    for (unsigned int i = 0; i < count; i++) {
        if (weights[i] > HUFFMAN_BITS_MOST)
            return false;
        sum += weights[i] != 0 ? 1u << (weights[i] - 1) : 0;
    }
    if (sum == 0)
        return false;
    unsigned int bits_most = highest_bit(sum) + 1;
    uint32_t rest = (1u << bits_most) - sum;
    if (bits_most > HUFFMAN_BITS_MOST || (rest & (rest - 1)) != 0)
        return false;
    weights[count++] = (uint8_t)(highest_bit(rest) + 1);
    for (unsigned int i = 0; i < count; i++)
        if (weights[i] != 0)
            ranks[weights[i]] += 1u << (weights[i] - 1);
    uint32_t place = 0;
    for (unsigned int weight = 1; weight <= bits_most; weight++) { /* the longest codes come first */
        uint32_t width = ranks[weight];
        ranks[weight] = place;
        place += width;
    }
    for (unsigned int symbol = 0; symbol < count; symbol++) {
        if (weights[symbol] == 0)
            continue;
        uint32_t width = 1u << (weights[symbol] - 1), at = ranks[weights[symbol]];
        memset(table->symbols + at, (int)symbol, width);
        memset(table->bits + at, (int)(bits_most + 1 - weights[symbol]), width);
        ranks[weights[symbol]] += width;
    }
    table->bits_most = bits_most;
    return true;
}

static bool read_huffman_stream(const struct huffman_table *table, const uint8_t *from, size_t bytes, uint8_t *to,
                                size_t count)
{
    struct backward stream;
    if (!open_backward(&stream, from, bytes))
        return false;
    uint32_t mask = (1u << table->bits_most) - 1, state = read_bits(&stream, table->bits_most);
    for (size_t i = 0; i < count; i++) {
        unsigned int bits = table->bits[state];
        to[i] = table->symbols[state];
        state = (state << bits | read_bits(&stream, bits)) & mask;
    }
    return stream.place == -(int64_t)table->bits_most;
}

static bool read_four_streams(struct frame *frame, const uint8_t *at, size_t bytes)
{
    enum { JUMPS = 6 };
    if (bytes < JUMPS)
        return false;
    size_t left = bytes - JUMPS, part = (frame->literals_count + 3) / 4, done = 0;
    const uint8_t *from = at + JUMPS;
    for (int i = 0; i < 4; i++) {
        size_t size = i < 3 ? (size_t)(at[2 * i] | at[2 * i + 1] << 8) : left;
        size_t count = i < 3 ? part : frame->literals_count - done;
        if (size > left || count > frame->literals_count - done ||
            !read_huffman_stream(&frame->huffman, from, size, frame->literals + done, count))
            return false;
        from += size;
        left -= size;
        done += count;
    }
    return true;
}

static bool read_packed_literals(struct frame *frame, struct bytes *from, bool tree, unsigned int format)
{
    static const uint8_t HEADER_BYTES[] = {3, 3, 4, 5}, SIZE_BITS[] = {10, 10, 14, 18};
    uint64_t header;
    const uint8_t *at;
    if (!take_number(from, HEADER_BYTES[format], &header))
        return false;
    uint64_t mask = (UINT64_C(1) << SIZE_BITS[format]) - 1;
    frame->literals_count = (size_t)(header >> 4 & mask);
    size_t packed = (size_t)(header >> (4 + SIZE_BITS[format]) & mask);
    if (frame->literals_count > BLOCK_MOST || !take(from, packed, &at))
        return false;
    struct bytes content = {at, packed};
    if (tree && !read_huffman(&content, &frame->huffman))
        return false;
    if (frame->huffman.bits_most == 0)
        return false;
    return format == 0
               ? read_huffman_stream(&frame->huffman, content.at, content.left, frame->literals, frame->literals_count)
               : read_four_streams(frame, content.at, content.left);
}

static bool read_literals(struct frame *frame, struct bytes *from)
{
    enum { RAW, REPEATED, PACKED, PACKED_WITH_LAST_TREE };
    if (from->left == 0)
        return false;
    unsigned int kind = from->at[0] & 3u, format = from->at[0] >> 2 & 3u;
    if (kind >= PACKED)
        return read_packed_literals(frame, from, kind == PACKED, format);
    uint64_t header;
    const uint8_t *at;
    bool one_byte = format % 2 == 0;
    if (!take_number(from, one_byte ? 1 : format == 1 ? 2 : 3, &header))
        return false;
    frame->literals_count = (size_t)(header >> (one_byte ? 3 : 4));
    if (frame->literals_count > BLOCK_MOST || !take(from, kind == RAW ? frame->literals_count : 1, &at))
        return false;
    if (kind == RAW)
        memcpy(frame->literals, at, frame->literals_count);
    else
        memset(frame->literals, at[0], frame->literals_count);
    return true;
}

/* --- sequences --- */

struct code { /* a length from here on, with so many bits more */
    uint32_t base;
    uint8_t bits;
};
static const struct code LITERAL_LENGTH_CODES[LITERAL_LENGTHS] = {
    {0, 0},   {1, 0},   {2, 0},     {3, 0},     {4, 0},     {5, 0},     {6, 0},      {7, 0},      {8, 0},
    {9, 0},   {10, 0},  {11, 0},    {12, 0},    {13, 0},    {14, 0},    {15, 0},     {16, 1},     {18, 1},
    {20, 1},  {22, 1},  {24, 2},    {28, 2},    {32, 3},    {40, 3},    {48, 4},     {64, 6},     {128, 7},
    {256, 8}, {512, 9}, {1024, 10}, {2048, 11}, {4096, 12}, {8192, 13}, {16384, 14}, {32768, 15}, {65536, 16},
};
static const struct code MATCH_LENGTH_CODES[MATCH_LENGTHS] = {
    {3, 0},   {4, 0},     {5, 0},     {6, 0},     {7, 0},     {8, 0},      {9, 0},      {10, 0},     {11, 0},
    {12, 0},  {13, 0},    {14, 0},    {15, 0},    {16, 0},    {17, 0},     {18, 0},     {19, 0},     {20, 0},
    {21, 0},  {22, 0},    {23, 0},    {24, 0},    {25, 0},    {26, 0},     {27, 0},     {28, 0},     {29, 0},
    {30, 0},  {31, 0},    {32, 0},    {33, 0},    {34, 0},    {35, 1},     {37, 1},     {39, 1},     {41, 1},
    {43, 2},  {47, 2},    {51, 3},    {59, 3},    {67, 4},    {83, 4},     {99, 5},     {131, 7},    {259, 8},
    {515, 9}, {1027, 10}, {2051, 11}, {4099, 12}, {8195, 13}, {16387, 14}, {32771, 15}, {65539, 16},
};
static const int16_t LITERAL_LENGTH_COUNTS[LITERAL_LENGTHS] = {
    4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1};
static const int16_t OFFSET_COUNTS[29] = {1, 1, 1, 1, 1, 1, 2, 2, 2, 1,  1,  1,  1,  1, 1,
                                          1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1};
static const int16_t MATCH_LENGTH_COUNTS[MATCH_LENGTHS] = {1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1,  1,  1,  1,  1,  1,  1, 1,
                                                           1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,  1,  1,  1,  1,  1,  1, 1,
                                                           1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1};

struct table_kind {
    const int16_t *counts;
    unsigned int counts_count, counts_log, symbols_most, log_most;
};
static const struct table_kind LITERAL_LENGTH_TABLE = {LITERAL_LENGTH_COUNTS, LITERAL_LENGTHS, 6, LITERAL_LENGTHS, 9};
static const struct table_kind OFFSET_TABLE = {OFFSET_COUNTS, 29, 5, OFFSETS, 8};
static const struct table_kind MATCH_LENGTH_TABLE = {MATCH_LENGTH_COUNTS, MATCH_LENGTHS, 6, MATCH_LENGTHS, 9};

static bool read_table(struct bytes *from, struct fse_table *table, unsigned int mode, const struct table_kind *kind)
{
    enum { PREDEFINED, ONE_SYMBOL, DESCRIBED, AS_BEFORE };
    uint64_t symbol;
    switch (mode) {
    case PREDEFINED:
        return build_fse(table, kind->counts, kind->counts_count, kind->counts_log);
    case ONE_SYMBOL:
        if (!take_number(from, 1, &symbol) || symbol >= kind->symbols_most)
            return false;
        table->log = 0;
        table->known = true;
        table->states[0] = (struct fse_state){.symbol = (uint8_t)symbol};
        return true;
    case DESCRIBED:
        table->known = false;
        return read_fse(from, table, kind->symbols_most, kind->log_most);
    default:
        return table->known;
    }
}

static bool append(struct frame *frame, const uint8_t *from, size_t count)
{
    if (count > frame->room - frame->done)
        return false;
    memcpy(frame->to + frame->done, from, count);
    frame->done += count;
    return true;
}

static bool append_repeated(struct frame *frame, uint8_t value, size_t count)
{
    if (count > frame->room - frame->done)
        return false;
    memset(frame->to + frame->done, value, count);
    frame->done += count;
    return true;
}

/* Three offsets are remembered; the values 1 to 3 mean them, shifted by one where no literals came before. */
static bool real_offset(uint64_t offsets[3], uint64_t value, bool literals, uint64_t *offset)
{
    unsigned int index = (unsigned int)(value > 3 ? 3 : value - 1 + !literals);
    *offset = value > 3 ? value - 3 : index < 3 ? offsets[index] : offsets[0] - 1;
    if (index >= 2)
        offsets[2] = offsets[1];
    if (index >= 1)
        offsets[1] = offsets[0];
    offsets[0] = *offset;
    return *offset != 0;
}

static bool copy_match(struct frame *frame, uint64_t offset, size_t length)
{
    if (offset > frame->done || length > frame->room - frame->done)
        return false;
    for (; length > 0; length--, frame->done++) /* it may overlap what it writes */
        frame->to[frame->done] = frame->to[frame->done - offset];
    return true;
}

static bool run_sequences(struct frame *frame, struct backward *stream, uint64_t count)
{
    const struct fse_table *lengths = &frame->literal_lengths, *offsets = &frame->offset_codes;
    const struct fse_table *matches = &frame->match_lengths;
    unsigned int length_state = start_state(lengths, stream), offset_state = start_state(offsets, stream);
    unsigned int match_state = start_state(matches, stream);
    size_t used = 0;
    for (uint64_t i = 0; i < count; i++) {
        unsigned int offset_code = offsets->states[offset_state].symbol;
        const struct code *match = &MATCH_LENGTH_CODES[matches->states[match_state].symbol];
        const struct code *literal = &LITERAL_LENGTH_CODES[lengths->states[length_state].symbol];
        uint64_t value = (UINT64_C(1) << offset_code) + read_bits(stream, offset_code), offset;
        size_t match_length = match->base + read_bits(stream, match->bits);
        size_t literal_length = literal->base + read_bits(stream, literal->bits);
        if (stream->place < 0 || literal_length > frame->literals_count - used ||
            !append(frame, frame->literals + used, literal_length) ||
            !real_offset(frame->offsets, value, literal_length != 0, &offset) ||
            !copy_match(frame, offset, match_length))
            return false;
        used += literal_length;
        if (i + 1 < count) {
            next_state(lengths, stream, &length_state);
            next_state(matches, stream, &match_state);
            next_state(offsets, stream, &offset_state);
        }
    }
    return stream->place == 0 && append(frame, frame->literals + used, frame->literals_count - used);
}

static bool read_block(struct frame *frame, struct bytes from)
{
    uint64_t count, more, modes;
    if (!read_literals(frame, &from) || !take_number(&from, 1, &count))
        return false;
    if (count == 255) {
        if (!take_number(&from, 2, &more))
            return false;
        count = more + 0x7f00;
    } else if (count >= 128) {
        if (!take_number(&from, 1, &more))
            return false;
        count = (count - 128) << 8 | more;
    }
    if (count == 0)
        return from.left == 0 && append(frame, frame->literals, frame->literals_count);
    struct backward stream;
    return take_number(&from, 1, &modes) && (modes & 3) == 0 &&
           read_table(&from, &frame->literal_lengths, modes >> 6 & 3, &LITERAL_LENGTH_TABLE) &&
           read_table(&from, &frame->offset_codes, modes >> 4 & 3, &OFFSET_TABLE) &&
           read_table(&from, &frame->match_lengths, modes >> 2 & 3, &MATCH_LENGTH_TABLE) &&
           open_backward(&stream, from.at, from.left) && run_sequences(frame, &stream, count);
}

/* --- frames --- */

static bool read_frame_header(struct bytes *from, bool *checksum)
{
    static const uint8_t DICTIONARY_BYTES[] = {0, 1, 2, 4}, SIZE_BYTES[] = {0, 2, 4, 8};
    uint64_t magic, descriptor, dictionary, unused;
    if (!take_number(from, 4, &magic) || magic != 0xfd2fb528 || !take_number(from, 1, &descriptor))
        return false;
    bool single = (descriptor >> 5 & 1) != 0;
    size_t size_bytes = SIZE_BYTES[descriptor >> 6];
    if (size_bytes == 0 && single)
        size_bytes = 1;
    *checksum = (descriptor >> 2 & 1) != 0;
    return (descriptor & 8) == 0 && (single || take_number(from, 1, &unused)) &&
           take_number(from, DICTIONARY_BYTES[descriptor & 3], &dictionary) && dictionary == 0 &&
           take_number(from, size_bytes, &unused);
}

static bool read_frame(struct frame *frame, struct bytes *from)
{
    enum { RAW, REPEATED, PACKED };
    bool checksum, last = false;
    uint64_t header;
    const uint8_t *at;
    if (!read_frame_header(from, &checksum))
        return false;
    while (!last) {
        if (!take_number(from, 3, &header))
            return false;
        last = (header & 1) != 0;
        unsigned int kind = header >> 1 & 3;
        size_t size = (size_t)(header >> 3);
        if (kind > PACKED || size > BLOCK_MOST || !take(from, kind == REPEATED ? 1 : size, &at))
            return false;
        if (kind == REPEATED ? !append_repeated(frame, at[0], size)
            : kind == RAW    ? !append(frame, at, size)
                             : !read_block(frame, (struct bytes){at, size}))
            return false;
    }
    return !checksum || take(from, 4, &at);
}

int64_t zstd_unpack(const uint8_t *from, size_t bytes, uint8_t *to, size_t room)
{
    struct bytes left = {from, bytes};
    struct frame *frame = calloc(1, sizeof *frame);
    if (frame == NULL)
        return -1;
    frame->to = to;
    frame->room = room;
    frame->offsets[0] = 1, frame->offsets[1] = 4, frame->offsets[2] = 8;
    int64_t done = read_frame(frame, &left) && left.left == 0 ? (int64_t)frame->done : -1;
    free(frame);
    return done;
}
