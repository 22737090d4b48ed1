"""The wheel with the native parts: its tag is what the parts need, its listing is what is in it."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from pathlib import Path

import pytest

from release.symbols import Needs, needs_of
from release.wheel import WheelError, platform_tag, retagged, with_parts

HEADERS = """
Dynamic Section:
  NEEDED               libm.so.6
  NEEDED               libc.so.6
Version References:
  required from libc.so.6:
    0x069691b4 0x00 08 GLIBC_2.34
"""
SYMBOLS = """
0000000000000000      DF *UND*  0000000000000000 (GLIBC_2.2.5) free
0000000000000000      DF *UND*  0000000000000000 (GLIBC_2.9)  pipe2
"""


def test_what_a_file_needs_is_read_from_its_symbols() -> None:
    needs = needs_of(HEADERS, SYMBOLS)
    assert needs == Needs((2, 34), frozenset(("libm.so.6", "libc.so.6")))
    assert needs.foreign == frozenset()


def test_versions_are_numbers_not_text() -> None:
    assert needs_of("", SYMBOLS).glibc == (2, 9)


def test_the_tag_is_that_of_the_part_that_needs_most() -> None:
    parts = {"a": Needs((2, 17), frozenset()), "b": Needs((2, 34), frozenset(("libc.so.6",)))}
    assert platform_tag(parts, "x86_64") == "manylinux_2_34_x86_64"


def test_a_library_that_is_not_everywhere_is_refused() -> None:
    with pytest.raises(WheelError, match=r"part needs libstdc\+\+"):
        platform_tag({"part": Needs((2, 17), frozenset(("libstdc++.so.6",)))}, "x86_64")


def test_the_wheel_is_for_one_platform_and_any_python() -> None:
    text = "Wheel-Version: 1.0\nGenerator: hatchling\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    assert retagged(text, "manylinux_2_34_x86_64") == (
        "Wheel-Version: 1.0\nGenerator: hatchling\nRoot-Is-Purelib: false\nTag: py3-none-manylinux_2_34_x86_64\n"
    )


def test_every_file_is_listed_with_its_hash_and_programs_are_executable(tmp_path: Path) -> None:
    pure, out = tmp_path / "gputax-1.0-py3-none-any.whl", tmp_path / "dist"
    out.mkdir()
    with zipfile.ZipFile(pure, "w") as wheel:
        wheel.writestr("gputax/__init__.py", "")
        wheel.writestr("gputax-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("gputax-1.0.dist-info/RECORD", "")
    (tmp_path / "program").write_bytes(b"\x7fELF")
    parts = {"gputax-proxy": tmp_path / "program", "kernels/micro.ptx": tmp_path / "program"}
    made = with_parts(pure, parts, "manylinux_2_34_x86_64", out)
    assert made.name == "gputax-1.0-py3-none-manylinux_2_34_x86_64.whl"
    assert [path.name for path in out.iterdir()] == [made.name]
    with zipfile.ZipFile(made) as wheel:
        modes = {info.filename: info.external_attr >> 16 & 0o777 for info in wheel.infolist()}
        rows = list(csv.reader(io.StringIO(wheel.read("gputax-1.0.dist-info/RECORD").decode())))
        assert {row[0] for row in rows} == set(wheel.namelist())
        for name, digest, size in rows:
            if digest:
                content = wheel.read(name)
                expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                assert (digest, int(size)) == (f"sha256={expected}", len(content))
    assert modes["gputax/_native/gputax-proxy"] == 0o755
    assert modes["gputax/_native/kernels/micro.ptx"] == 0o644
