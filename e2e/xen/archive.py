"""Initial file systems: cpio archives in the format that Linux unpacks at boot, written without root."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

TRAILER = "TRAILER!!!"


@dataclass(frozen=True)
class Entry:
    """One file of an archive; `source` is read when it is written."""

    name: str
    mode: int
    content: bytes = b""
    source: Path | None = None
    device: tuple[int, int] = (0, 0)


def text(name: str, content: str, mode: int = 0o644) -> Entry:
    """Return a file with this text."""
    return Entry(name, stat.S_IFREG | mode, content.encode())


def program(name: str, source: Path) -> Entry:
    """Return a copy of a file that can be run."""
    return Entry(name, stat.S_IFREG | 0o755, source=source)


def folder(name: str) -> Entry:
    """Return an empty folder."""
    return Entry(name, stat.S_IFDIR | 0o755)


def node(name: str, major: int, minor: int) -> Entry:
    """Return a character device."""
    return Entry(name, stat.S_IFCHR | 0o600, device=(major, minor))


def tree(root: Path, without: Iterable[str] = ()) -> Iterator[Entry]:
    """Every file below a folder but those below the paths in `without`; sockets, pipes and devices are left out."""
    left_out = {root / each for each in without}
    for directory, directories, files in os.walk(root):
        here = Path(directory)
        directories[:] = sorted(each for each in directories if here / each not in left_out)
        for name in sorted([*directories, *files]):
            path = here / name
            if path in left_out:
                continue
            mode = path.lstat().st_mode
            relative = str(path.relative_to(root))
            if stat.S_ISLNK(mode):
                yield Entry(relative, mode, str(path.readlink()).encode())
            elif stat.S_ISDIR(mode):
                yield Entry(relative, mode)
            elif stat.S_ISREG(mode):
                yield Entry(relative, mode, source=path)


def _pad(out: BinaryIO) -> None:
    out.write(b"\0" * (-out.tell() % 4))


def write(path: Path, entries: Iterable[Entry]) -> None:
    """Write the archive; of two entries with one name the later one holds."""
    by_name = {entry.name: entry for entry in entries}
    with path.open("wb") as out:
        for number, entry in enumerate([*by_name.values(), Entry(TRAILER, 0)], 1):
            content = entry.source.read_bytes() if entry.source else entry.content
            name = entry.name.encode() + b"\0"
            fields = (number, entry.mode, 0, 0, 1, 0, len(content), 0, 0, *entry.device, len(name), 0)
            out.write(b"070701" + b"".join(b"%08x" % field for field in fields) + name)
            _pad(out)
            out.write(content)
            _pad(out)
