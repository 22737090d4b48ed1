"""Look at samples that a report does not read: whether they are there, and whether they are whole Parquet files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"PAR1"
# The magic number at both ends and the footer's length: every Parquet file is longer.
SHORTEST_BYTES = 12


@dataclass(frozen=True)
class Unreadable:
    """Samples that nobody can look at again."""

    missing: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()


ALL_READABLE = Unreadable()


def unreadable(directory: Path, names: Iterable[str]) -> Unreadable:
    """Return which of the named files of a directory are missing or cannot be Parquet."""
    missing, damaged = [], []
    for name in dict.fromkeys(names):
        try:
            if not (directory / name).is_file():
                missing.append(name)
            elif not _whole(directory / name):
                damaged.append(name)
        except OSError:
            damaged.append(name)
    return Unreadable(tuple(missing), tuple(damaged))


def _whole(path: Path) -> bool:
    """Whether both ends are Parquet's; a writer that is killed, or a copy that is cut, leaves no end."""
    size = path.stat().st_size
    if size < SHORTEST_BYTES:
        return False
    with path.open("rb") as file:
        begin = file.read(len(MAGIC))
        file.seek(size - len(MAGIC))
        return begin == MAGIC and file.read() == MAGIC
