"""The README is short, fits a terminal, and starts with the picture."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text()
EXAMPLE = json.loads((REPOSITORY / "docs/example/bare-proxy/comparison.json").read_text())
# Those that decide the number; the picture's duet measured more operations in the same time.
OTHERS = ("--workload", "--max-time")


def test_it_has_at_most_nine_hundred_words() -> None:
    assert len(README.split()) <= 900


def test_it_fits_eighty_columns() -> None:
    assert [line for line in README.splitlines() if len(line) > 80] == []


def test_the_picture_comes_before_the_first_section() -> None:
    assert 0 < README.index("](docs/overhead.svg)") < README.index("\n## ")


def options(command: str) -> dict[str, str]:
    words = shlex.split(command)
    return {word: words[at + 1] for at, word in enumerate(words) if word.startswith("--") and word not in OTHERS}


def test_its_duets_are_measured_as_its_picture_was() -> None:
    commands = re.findall(r"^gputax duet [^`\n]*", README.replace("\\\n", " "), flags=re.M)
    assert len(commands) == 2
    assert [options(command) for command in commands] == [options(EXAMPLE["command"])] * 2


def test_the_number_behind_its_duet_is_that_of_the_picture() -> None:
    (row,) = (
        each for each in EXAMPLE["metrics"] if (each["workload"], each["metric"]) == ("micro:operation", "latency_p50")
    )
    low, high = row["ci95_percent"]
    assert f"+{row['overhead_percent']:.2f} % ({low:.2f} to {high:.2f}), budget 5 %: {row['verdict']}" in README
