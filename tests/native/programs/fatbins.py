"""Fat binaries against the reader of the software device: `fatbins.py PROGRAM_FATBIN DAMAGES`; one line per case."""

from __future__ import annotations

import ctypes
import random
import struct
import sys
from pathlib import Path

OK, INVALID_IMAGE, NO_BINARY = 0, 200, 209
PTX, CUBIN = 1, 2
LZ4, ZSTD, UNKNOWN = 0x2000, 0x8000, 0x1000
TEXT = b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry %s()\n{\nret;\n}\n"

driver = ctypes.CDLL("libcuda.so.1")


def entry(content: bytes, unpacked: int = 0, kind: int = PTX, architecture: int = 80, flags: int = 0) -> bytes:
    padded = content + bytes(-len(content) % 8)
    packed = len(content) if unpacked else 0
    head = struct.pack(
        "<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(padded), packed, 0, 0, 7, architecture, 0, 0, flags, 0, unpacked
    )
    assert len(head) == 64
    return head + padded


def fatbin(*entries: bytes) -> bytes:
    content = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(content)) + content


def literals(text: bytes) -> bytes:
    """Return an LZ4 block without any copy."""
    rest = len(text) - 15
    return bytes([0xF0]) + b"\xff" * (rest // 255) + bytes([rest % 255]) + text


def copied(text: bytes, times: int) -> bytes:
    """Return an LZ4 block of this text, then copies of its last byte, then five literals."""
    rest = times - 4 - 15
    return (
        literals(text)[:1].replace(b"\xf0", b"\xff")
        + literals(text)[1:]
        + b"\x01\x00"
        + bytes([rest])
        + b"\x50\n\n\n\n\n"
    )


def stored(*parts: bytes) -> bytes:
    """Return a Zstandard frame of raw blocks, the last one a newline repeated ten times."""
    blocks = [struct.pack("<I", len(part) << 3)[:3] + part for part in parts]
    return struct.pack("<IBB", 0xFD2FB528, 0, 0x58) + b"".join(blocks) + struct.pack("<I", 10 << 3 | 2 | 1)[:3] + b"\n"


def load(image: bytes) -> tuple[int, ctypes.c_void_p]:
    module = ctypes.c_void_p()
    code: int = driver.cuModuleLoadData(ctypes.byref(module), ctypes.create_string_buffer(image, len(image)))
    return code, module


def kernels(image: bytes, *names: bytes) -> list[int]:
    """Load it, which must succeed, and look for kernels."""
    code, module = load(image)
    assert code == OK, code
    function = ctypes.c_void_p()
    found = [driver.cuModuleGetFunction(ctypes.byref(function), module, name) for name in names]
    assert driver.cuModuleUnload(module) == OK
    return found


def the_newest_architecture_that_runs_is_taken() -> None:
    old, fit, new = TEXT % b"old", TEXT % b"fit", TEXT % b"new"
    entries = [entry(old, architecture=75), entry(fit, architecture=90), entry(new, architecture=100)]
    for order in (entries, entries[::-1]):
        assert kernels(fatbin(*order), b"fit", b"old", b"new") == [OK, 500, 500]


def packed_text_is_unpacked() -> None:
    text = TEXT % b"packed"
    block = literals(text)
    assert kernels(fatbin(entry(block, len(text), flags=LZ4)), b"packed") == [OK]
    block = copied(text, 200)
    assert kernels(fatbin(entry(block, len(text) + 205, flags=LZ4)), b"packed") == [OK]
    frame = stored(text[:40], b"", text[40:])
    assert kernels(fatbin(entry(frame, len(text) + 10, flags=ZSTD)), b"packed") == [OK]


def what_cannot_run_is_refused() -> None:
    text = TEXT % b"one"
    for image in (
        fatbin(),
        fatbin(entry(b"\x7fELF" + bytes(60), kind=CUBIN)),
        fatbin(entry(text, architecture=100)),
        fatbin(entry(literals(text), len(text) + 1, flags=LZ4)),
        fatbin(entry(literals(text), len(text) - 1, flags=LZ4)),
        fatbin(entry(stored(text)[:-1], len(text) + 10, flags=ZSTD)),
        fatbin(entry(stored(text) + b"\0", len(text) + 10, flags=ZSTD)),
        fatbin(entry(text, len(text), flags=UNKNOWN)),
        fatbin(entry(literals(text), 1 << 40, flags=LZ4)),
    ):
        assert load(image)[0] == NO_BINARY
    short = bytearray(fatbin(entry(text)))
    short[24:32] = struct.pack("<Q", 1 << 62)  # the entry's size
    assert load(bytes(short))[0] == NO_BINARY


def damage_is_survived(image: bytes, damages: int) -> None:
    """Change bytes of a real fat binary, but not the size of the whole, which a driver has to believe."""
    dice = random.Random(7)
    codes: dict[int, int] = {}
    for _ in range(damages):
        changed = bytearray(image)
        for _ in range(dice.choice((1, 1, 2, 8))):
            place = dice.randrange(16, len(image))
            changed[place] = dice.choice((0, 0xFF, changed[place] ^ 1 << dice.randrange(8), dice.randrange(256)))
        code, module = load(bytes(changed))
        codes[code] = codes.get(code, 0) + 1
        if code == OK:
            assert driver.cuModuleUnload(module) == OK
    assert codes.get(NO_BINARY, 0) > damages // 20, codes


if __name__ == "__main__":
    context = ctypes.c_void_p()
    assert driver.cuInit(0) == OK
    assert driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == OK
    real = Path(sys.argv[1]).read_bytes()
    assert kernels(real, b"weigh", b"_Z5scaleIfEvPKT_PS0_iS0_", b"none") == [OK, OK, 500]
    the_newest_architecture_that_runs_is_taken()
    packed_text_is_unpacked()
    what_cannot_run_is_refused()
    damage_is_survived(real, int(sys.argv[2]))
    assert driver.cuCtxDestroy_v2(context) == OK
    print("done")
