/* Loads of neighbouring words by threads that lie apart: where a block's checks have held, four words of each thread are
 * read at once and turned into four vectors. A word that nobody asked for is read only where the checks cover it. */
#include "device/compile/emit.h"

enum { ROW_WORDS = 4, ROW_BYTES = 16, WORTH_WORDS = 2 };

static bool can_turn(const struct emitter *e, uint32_t at)
{
    const struct item *item = &e->plan->items[at];
    if (item->kind != KIND_LOAD || !e->covered[at].cover || e->turned[at].row)
        return false;
    struct place p = access_place(e, item);
    return p.count == 1 && p.element == 4 && p.wide == 4 && p.address->stride != 0 && p.address->stride != 4;
}

/* Loads behind `first` that may as well be done there: around the same root, and nothing is stored before them. */
static bool goes_along(const struct emitter *e, uint32_t first, uint32_t at)
{
    return can_turn(e, at) && e->covered[first].cover == e->covered[at].cover;
}

static uint32_t run_end(const struct emitter *e, const struct block *block, uint32_t first)
{
    uint32_t at = first;
    while (at < block->end && e->plan->items[at].kind != KIND_STORE)
        at++;
    return at;
}

/* How many loads of the row that begins at `offset` there are. */
static unsigned in_row(const struct emitter *e, uint32_t first, uint32_t end, int64_t offset)
{
    unsigned seen = 0;
    for (uint32_t i = first; i < end; i++) {
        int64_t distance = e->covered[i].offset - offset;
        if (distance >= 0 && distance < ROW_BYTES && goes_along(e, first, i))
            seen |= 1u << (distance / 4);
    }
    return (unsigned)__builtin_popcount(seen);
}

/* The best row that holds the load at `first`. */
static int64_t best_row(const struct emitter *e, uint32_t first, uint32_t end, unsigned *words)
{
    int64_t offset = e->covered[first].offset, best = offset;
    bool forward = e->plan->items[first].in->space != SPACE_GLOBAL; /* where checks look at the end only */
    *words = 0;
    for (int64_t from = offset - ROW_BYTES + 4; from <= offset; from += 4) {
        unsigned count = forward && from < 0 ? 0 : in_row(e, first, end, from);
        if (count >= *words)
            *words = count, best = from;
    }
    return best;
}

void turn_choose(struct emitter *e, const struct block *block, struct cover *covers, uint32_t count)
{
    for (uint32_t first = block->first; first < block->end; first++) {
        if (!can_turn(e, first))
            continue;
        unsigned words;
        uint32_t end = run_end(e, block, first);
        int64_t from = best_row(e, first, end, &words);
        const struct item *item = &e->plan->items[first];
        struct cover *cover = covers;
        while (cover < covers + count && cover->id != e->covered[first].cover)
            cover++;
        if (words < WORTH_WORDS || cover == covers + count)
            continue;
        int64_t row_end = from + ROW_BYTES + (int64_t)access_place(e, item).footprint;
        cover->low = from < cover->low ? from : cover->low;
        cover->end = row_end > cover->end ? row_end : cover->end;
        e->rows++;
        for (uint32_t i = end; i-- > first;) { /* the first one last: it stands for the others */
            int64_t distance = e->covered[i].offset - from;
            if (distance >= 0 && distance < ROW_BYTES && goes_along(e, first, i))
                e->turned[i] = (struct turned){e->rows, (uint32_t)distance / 4, i == first, from};
        }
    }
}

void turn_emit(struct emitter *e, uint32_t at)
{
    const struct item *item = &e->plan->items[at];
    struct turned turned = e->turned[at];
    if (!turned.first)
        return;
    struct place p = access_place(e, item);
    say(&e->body, "w4 t%u[%u];\n{\nconst char *at = %sg%u + %lldll;\n", turned.row, ROW_WORDS,
        p.global ? "(const char *)(uintptr_t)" : "S + ", e->covered[at].cover, (long long)turned.from);
    say(&e->body, "TURN4(t%u, at + l * %lldll);\n}\n", turned.row, (long long)p.address->stride);
}
