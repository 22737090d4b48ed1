"""Which glibc a native file needs, by the symbol versions in it, and which other libraries."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

Version = tuple[int, int]

# What every glibc distribution has and manylinux allows (PEP 600); anything else would have to travel in the wheel.
ALLOWED_LIBRARIES = frozenset(
    ("libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "ld-linux-x86-64.so.2")
)
_GLIBC = re.compile(r"\bGLIBC_(\d+)\.(\d+)")
_NEEDED = re.compile(r"^\s*NEEDED\s+(\S+)$", re.M)


@dataclass(frozen=True)
class Needs:
    """What the loader must find for one file."""

    glibc: Version
    libraries: frozenset[str]

    @property
    def foreign(self) -> frozenset[str]:
        """The libraries that not every distribution has."""
        return self.libraries - ALLOWED_LIBRARIES


def needs_of(headers: str, symbols: str) -> Needs:
    """Read what `objdump -p` and `objdump -T` print of a file."""
    versions = [(int(major), int(minor)) for major, minor in _GLIBC.findall(headers + symbols)]
    return Needs(max(versions, default=(2, 5)), frozenset(_NEEDED.findall(headers)))


def needs(path: Path) -> Needs:
    """Ask objdump what a file needs."""
    return needs_of(_objdump("-p", path), _objdump("-T", path))


def _objdump(option: str, path: Path) -> str:
    return subprocess.run(["objdump", option, path], check=True, capture_output=True, text=True).stdout
