"""The README is short, fits a terminal, and starts with the picture."""

from __future__ import annotations

from pathlib import Path

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()


def test_it_has_at_most_nine_hundred_words() -> None:
    assert len(README.split()) <= 900


def test_it_fits_eighty_columns() -> None:
    assert [line for line in README.splitlines() if len(line) > 80] == []


def test_the_picture_comes_before_the_first_section() -> None:
    assert 0 < README.index("](docs/overhead.svg)") < README.index("\n## ")
