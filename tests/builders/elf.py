"""A shared library with one of its symbols hidden, as an older driver would lack it."""

from __future__ import annotations

import struct

DYNAMIC_SYMBOLS = 11
SECTION = struct.Struct("<IIQQQQIIQQ")
ENTRY = struct.Struct("<IBBHQQ")


def without_symbol(library: bytes, symbol: bytes) -> bytes:
    """Return the ELF library with one symbol made local: it works as before, and no other library finds the symbol."""
    changed = bytearray(library)
    (table_at,), (count,) = struct.unpack_from("<Q", library, 40), struct.unpack_from("<H", library, 60)
    sections = [SECTION.unpack_from(library, table_at + number * SECTION.size) for number in range(count)]
    symbols = next(each for each in sections if each[1] == DYNAMIC_SYMBOLS)
    names_at = sections[symbols[6]][4]
    for at in range(symbols[4], symbols[4] + symbols[5], ENTRY.size):
        name, kind, *rest = ENTRY.unpack_from(library, at)
        if library.startswith(symbol + b"\0", names_at + name):
            ENTRY.pack_into(changed, at, name, kind & 0x0F, *rest)
            return bytes(changed)
    raise AssertionError(f"{symbol!r} is not there")
