"""Read small kernel files; whatever cannot be read is None, never an exception."""

from __future__ import annotations

from pathlib import Path


def read_text(path: Path) -> str | None:
    """Return the stripped text of the file, or None if it cannot be read."""
    try:
        return path.read_bytes().decode(errors="replace").strip()
    except OSError:
        return None


def read_int(path: Path) -> int | None:
    """Return the integer in the file, or None (also for `max`)."""
    try:
        return int(read_text(path) or "")
    except ValueError:
        return None


def read_fields(path: Path) -> dict[str, str]:
    """Return the `name: value` or `name value` lines of the file; the first line of a name wins."""
    fields: dict[str, str] = {}
    for line in (read_text(path) or "").splitlines():
        name, _, value = line.partition(":" if ":" in line else " ")
        fields.setdefault(name.strip(), value.strip())
    return fields
