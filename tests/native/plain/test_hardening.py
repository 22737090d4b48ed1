"""What makes a fault in the native parts harder to use, read from the binaries of the release build."""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

BINARIES = ("gputax-proxy", "software/libcuda.so.1", "vgpu/libcuda.so.1", "vgpu/libnvidia-ml.so.1")
ET_DYN = 3
PT_GNU_STACK, PT_GNU_RELRO = 0x6474E551, 0x6474E552
PF_X = 1
DT_FLAGS_1 = 0x6FFFFFFB
DF_1_NOW, DF_1_PIE = 0x1, 0x08000000
STT_FUNC = 2
ENDBR64 = b"\xf3\x0f\x1e\xfa"


@dataclass(frozen=True)
class Symbol:
    name: str
    is_function: bool
    section: int
    address: int


class Elf:
    """The parts of a 64-bit little-endian ELF file that say how it was built."""

    def __init__(self, path: Path) -> None:
        self._data = path.read_bytes()
        assert self._data[:6] == b"\x7fELF\x02\x01"
        self.kind = self._unpack("<H", 16)[0]
        (self._segments_at, self._sections_at) = self._unpack("<QQ", 32)
        (self._segment_size, self._segment_count, self._section_size, self._section_count, self._names) = self._unpack(
            "<HHHHH", 54
        )

    def _unpack(self, form: str, at: int) -> tuple[int, ...]:
        return struct.unpack_from(form, self._data, at)

    @cached_property
    def segments(self) -> dict[int, int]:
        """The flags of each segment by its type."""
        places = (self._segments_at + self._segment_size * number for number in range(self._segment_count))
        found = (self._unpack("<II", place) for place in places)
        return {each[0]: each[1] for each in found}

    @cached_property
    def _sections(self) -> dict[str, tuple[int, int, int]]:
        """Address, place in the file and size of each section by its name."""
        found = []
        for number in range(self._section_count):
            place = self._sections_at + self._section_size * number
            found.append((self._unpack("<I", place)[0], *self._unpack("<QQQ", place + 16)))
        names = found[self._names][2]
        return {self._text(names + name): (address, at, size) for name, address, at, size in found}

    def _text(self, at: int) -> str:
        return self._data[at : self._data.index(b"\0", at)].decode()

    @cached_property
    def flags_1(self) -> int:
        """The flags of the dynamic section."""
        _, at, size = self._sections[".dynamic"]
        entries = (self._unpack("<QQ", place) for place in range(at, at + size, 16))
        return sum(value for tag, value in entries if tag == DT_FLAGS_1)

    def symbols(self) -> Iterator[Symbol]:
        """Yield what it imports and exports."""
        _, at, size = self._sections[".dynsym"]
        names = self._sections[".dynstr"][1]
        for place in range(at + 24, at + size, 24):
            name, info, _, section, address, _ = struct.unpack_from("<IBBHQQ", self._data, place)
            yield Symbol(self._text(names + name), info & 15 == STT_FUNC, section, address)

    def code(self, address: int, length: int) -> bytes:
        """Return the first bytes at an address of the code; none if it is elsewhere."""
        begin, at, size = self._sections[".text"]
        inside = begin <= address < begin + size
        return self._data[at + address - begin :][:length] if inside else b""

    def all_code(self) -> bytes:
        _, at, size = self._sections[".text"]
        return self._data[at : at + size]


@pytest.fixture(params=BINARIES)
def binary(request: pytest.FixtureRequest, native_build: Path) -> Elf:
    return Elf(native_build / str(request.param))


def test_it_is_loaded_at_any_address_and_its_tables_are_read_only_before_it_runs(binary: Elf) -> None:
    assert binary.kind == ET_DYN
    assert PT_GNU_RELRO in binary.segments
    assert binary.flags_1 & DF_1_NOW
    assert not binary.segments[PT_GNU_STACK] & PF_X


def test_the_program_is_position_independent(native_build: Path) -> None:
    assert Elf(native_build / "gputax-proxy").flags_1 & DF_1_PIE


def test_it_checks_its_stack_frames_and_the_bounds_of_copies(binary: Elf) -> None:
    imported = {symbol.name for symbol in binary.symbols() if not symbol.section}
    assert "__stack_chk_fail" in imported
    fortified = {name for name in imported if name.startswith("__") and name.endswith("_chk")}
    assert {"__snprintf_chk", "__vsnprintf_chk"} & fortified


def test_on_x86_64_every_function_that_it_exports_begins_as_a_target_of_jumps(binary: Elf) -> None:
    if platform.machine() != "x86_64":
        return  # the flag does not exist elsewhere
    exported = [symbol for symbol in binary.symbols() if symbol.section and symbol.is_function]
    begins = {symbol.name: binary.code(symbol.address, 4) for symbol in exported}
    assert {name: begin for name, begin in begins.items() if begin not in (ENDBR64, b"")} == {}
    # Not only those: a function whose address is taken begins in the same way.
    assert binary.all_code().count(ENDBR64) > len([begin for begin in begins.values() if begin])
