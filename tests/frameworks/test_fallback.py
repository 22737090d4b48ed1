"""ONNX Runtime goes on with the CPU when one symbol of the driver is missing; gputax refuses and names the symbol."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

from gputax.environments.driver import SOFTWARE_DEVICE, native_part
from tests.conftest import Gputax
from tests.frameworks.conftest import NULL

SYMBOL = b"cuTensorMapEncodeTiled"
DYNAMIC_SYMBOLS = 11
SECTION = struct.Struct("<IIQQQQIIQQ")
ENTRY = struct.Struct("<IBBHQQ")


def without(library: bytes, symbol: bytes) -> bytes:
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


def test_a_driver_without_one_symbol_is_refused_and_the_symbol_named(gputax: Gputax, tmp_path: Path) -> None:
    lacking = tmp_path / "lacking" / "libcuda.so.1"
    lacking.parent.mkdir()
    lacking.write_bytes(without(native_part(SOFTWARE_DEVICE).read_bytes(), SYMBOL))
    driver = ctypes.CDLL(str(lacking))
    assert hasattr(driver, "cuInit")
    assert not hasattr(driver, SYMBOL.decode())
    words = ("--engine", "onnx", "--scenario", "single-stream", *NULL, "--libcuda", str(lacking))
    done = gputax("run", *words, "--out", "o", timeout=300)
    said = " ".join(done.stderr.split())
    assert done.returncode == 3, said
    assert "after loading the session runs on CPUExecutionProvider" in said
    assert f"undefined symbol: {SYMBOL.decode()}" in said
    assert not (tmp_path / "o").exists()
