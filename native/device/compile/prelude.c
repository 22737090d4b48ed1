/* The text in front of all generated C: the very headers that this library is compiled with. */
#include "device/compile/emit.h"

__asm__(".section .rodata\n"
        ".hidden PRELUDE_TEXT\n"
        ".globl PRELUDE_TEXT\n"
        "PRELUDE_TEXT:\n"
        ".incbin \"device/ptx/scalar.h\"\n"
        ".incbin \"device/compile/abi.h\"\n"
        ".incbin \"device/compile/prelude.h\"\n"
        ".byte 0\n"
        ".previous\n");
