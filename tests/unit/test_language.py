"""Plain technical English in what people read: habits that a native engineer stumbles over do not come back.

The numbers in HABITS are a ratchet: a change that removes some of them lowers its number, and nothing raises one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
READ = ("README.md", "CONTRIBUTING.md", "Makefile", "src", "docs", "native", "kubernetes", "suites", "e2e", "bench")
KINDS = {".c", ".h", ".md", ".mk", ".py", ".sh", ".toml", ".yaml"}

# Pattern -> (what to write instead, how many may be left).
HABITS: dict[str, tuple[str, int]] = {
    r"\bmend(s|ed|ing)?\b": ("fix", 1),
    r"\baloud\b": ("with a warning", 0),
    r"\banew\b": ("again, from scratch", 0),
    r"(?<!there )\b(is|are) no (?!longer|more|less|fewer|later|earlier|other)[a-z]": ("is not a", 0),
    r"\bso many (seconds|bytes|times)\b": ("N seconds", 0),
    r"\b(brings?|brought) [^.\n]*\bhome\b": ("download, collect", 0),
    r"\bnames nothing\b": ("is empty", 0),
    r"(?<![`\"'_=-])\binconclusive\b(?![`\"'_-])": ("undecided; `inconclusive` is the value in documents", 0),
    r"\bwithout that it were\b": ("otherwise this would be", 0),
    r"\bthere (is|are) no (evidence|interval|result|number|ratio|verdict|values)\b": ("without, is missing", 0),
    r"\btold_(bytes|ns)\b": ("the thing: limit_bytes, worker_ns", 0),
    r"\bonce more\b": ("again", 1),
    r"\bheeds?\b": ("respects", 0),
}


def texts() -> Iterator[tuple[Path, str]]:
    for name in READ:
        start = ROOT / name
        for path in sorted(start.rglob("*")) if start.is_dir() else [start]:
            known = path.suffix in KINDS or path.name == "Makefile"
            if path.is_file() and known and "build" not in path.relative_to(ROOT).parts:
                yield path.relative_to(ROOT), path.read_text()


@pytest.mark.parametrize("habit", HABITS)
def test_a_habit_does_not_come_back(habit: str) -> None:
    instead, most = HABITS[habit]
    found = [
        f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()!r}"
        for path, text in texts()
        for match in re.finditer(habit, text, re.IGNORECASE)
    ]
    assert len(found) <= most, f"write {instead!r}:\n" + "\n".join(found)


def test_the_files_that_people_read_are_really_read() -> None:
    read = {str(path) for path, _ in texts()}
    assert {"README.md", "docs/method.md", "src/gputax/errors.py", "native/Makefile"} <= read
