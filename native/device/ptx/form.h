/* The text of a step: what the interpreter's step computes for one thread, kept as a string, with its types. The
 * compiler writes these strings into C, so that each operation is defined in one place. */
#ifndef GPUTAX_PTX_FORM_H
#define GPUTAX_PTX_FORM_H

#include "device/ptx/inner.h"
#include "device/ptx/scalar.h"

/* In the text x, y, z, v are the operands a, b, c, e; `in->mode` and `in->immediate` are the instruction's.
 * Types are those of d, a, b, c, e; an empty one: no operand; `bool`: a predicate. */
struct op_form {
    step *run;
    const char *types[5];
    const char *text;
};

/* All forms lie side by side in a section of their own, whose bounds the linker names: no list to be forgotten in. */
extern const struct op_form __start_op_forms[], __stop_op_forms[];
#define OP_FORM(name, D, A, B, C, E, ...) \
    static const struct op_form name##_form \
        __attribute__((section("op_forms"), used)) = {name, {#D, #A, #B, #C, #E}, #__VA_ARGS__};

#endif
