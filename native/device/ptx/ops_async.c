/* Copies that PTX lets run beside the program, and barriers in shared memory. Here a copy is done when it is asked for:
 * a program that waits for it as PTX demands cannot see the difference. */
#include <string.h>

#include "device/ptx/access.h"

/* cp.async with a size of its source, or a predicate to ignore it: what is not read becomes zero, and is not touched.
 * d: a block of `count` registers; b: the size in bytes, or 0; e: the predicate, or 0. */
void step_async_load(struct warp *w, const struct insn *in, uint32_t m)
{
    uint32_t all = 4u * in->count, ignored = in->e ? PRED(in->e) : 0;
    for (uint32_t left = m; left; left &= left - 1) {
        uint32_t l = (uint32_t)__builtin_ctz(left), wanted = in->b ? REG(uint32_t, in->b)[l] : all;
        uint64_t address = access_address(w, in, l);
        char bytes[16] = {0};
        wanted = (ignored >> l) & 1 ? 0 : wanted < all ? wanted : all;
        if (wanted && address % all) {
            run_fault(w, CUDA_ERROR_MISALIGNED_ADDRESS);
            return;
        }
        for (uint32_t i = 0; i < wanted; i++) { /* always one byte: the cache of an instruction knows one size */
            const char *at = access_global(w, in, address + i, 1, false);
            if (!at) {
                run_fault(w, CUDA_ERROR_ILLEGAL_ADDRESS);
                return;
            }
            bytes[i] = *at;
        }
        for (uint32_t i = 0; i < in->count; i++)
            memcpy(REG(uint32_t, in->d + i * 4 * LANES) + l, bytes + 4 * i, 4);
    }
}

/* The word of an mbarrier: arrivals that are missing, arrivals that a phase needs, number of the phase. */
enum { COUNT_BITS = 20, PHASE_SHIFT = 40 };
#define COUNT_MASK (((uint64_t)1 << COUNT_BITS) - 1)

static bool arrive(uint64_t *word, uint32_t count, bool drop)
{
    uint64_t missing = *word & COUNT_MASK, needed = *word >> COUNT_BITS & COUNT_MASK, phase = *word >> PHASE_SHIFT;
    if (count == 0 || count > missing || (drop && count > needed))
        return false;
    missing -= count;
    needed -= drop ? count : 0;
    if (missing == 0)
        missing = needed, phase++;
    *word = missing | needed << COUNT_BITS | phase << PHASE_SHIFT;
    return true;
}

/* b: the count, or the state or parity that is waited for; d: state or predicate. Lanes arrive one after another. */
void step_mbarrier(struct warp *w, const struct insn *in, uint32_t m)
{
    uint32_t found = 0;
    ACCESS(m, 8u, true, {
        uint64_t word;
        memcpy(&word, at, 8);
        uint64_t before = word;
        bool good = true;
        switch (in->mode) {
        case MBARRIER_INIT: {
            uint64_t count = REG(uint32_t, in->b)[l];
            good = count && count <= COUNT_MASK;
            word = count | count << COUNT_BITS;
            break;
        }
        case MBARRIER_INVALIDATE:
            word = 0;
            break;
        case MBARRIER_ARRIVE:
        case MBARRIER_DROP:
            good = arrive(&word, REG(uint32_t, in->b)[l], in->mode == MBARRIER_DROP);
            if (good && in->d)
                REG(uint64_t, in->d)[l] = before;
            break;
        case MBARRIER_WAIT:
            found |= (uint32_t)(word >> PHASE_SHIFT != REG(uint64_t, in->b)[l] >> PHASE_SHIFT) << l;
            break;
        default: /* the phase of that parity has ended if another one runs */
            found |= (uint32_t)((word >> PHASE_SHIFT & 1) != (REG(uint32_t, in->b)[l] & 1)) << l;
        }
        if (!good) {
            run_fault(w, CUDA_ERROR_ILLEGAL_INSTRUCTION);
            return;
        }
        if (word != before)
            memcpy(at, &word, 8);
    })
    if (in->mode >= MBARRIER_WAIT)
        set_predicate(w, in->d, m, found);
}

void step_mbarrier_pending(struct warp *w, const struct insn *in, uint32_t m)
{
    EACH(m, REG(uint32_t, in->d)[l] = (uint32_t)(REG(uint64_t, in->a)[l] & COUNT_MASK));
}
