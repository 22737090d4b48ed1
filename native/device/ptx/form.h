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

/* Pointers to all forms lie side by side in a section, whose bounds the linker names: no list to be forgotten in. */
extern const struct op_form *const __start_op_forms[] __attribute__((visibility("hidden")));
extern const struct op_form *const __stop_op_forms[] __attribute__((visibility("hidden")));
#define OP_FORM(name, D, A, B, C, E, ...) \
    static const struct op_form name##_form = {name, {#D, #A, #B, #C, #E}, #__VA_ARGS__}; \
    static const struct op_form *const name##_entry __attribute__((section("op_forms"), used)) = &name##_form;

#endif
