"""The picture of the README: drawn from the results in docs/example, and never older than they are."""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from gputax.report.output import report_text
from gputax.report.sources import read_sources
from gputax.report.story import build_report

DOCS = Path(__file__).parents[2] / "docs"
PICTURE = DOCS / "overhead.svg"


def test_the_picture_is_what_the_report_draws_from_the_example() -> None:
    pytest.importorskip("vl_convert", reason="charts need vl-convert-python")
    drawn = report_text(build_report(read_sources([DOCS / "example"])), "svg")
    if os.environ.get("GPUTAX_WRITE_GOLDEN"):  # by hand, and then look at it
        PICTURE.write_text(drawn)
    assert drawn == PICTURE.read_text(), "gputax report docs/example --out docs/overhead.svg"


def test_the_picture_stands_alone_and_says_that_it_is_not_of_a_gpu() -> None:
    text = PICTURE.read_text()
    ET.fromstring(text)
    assert "not a GPU" in text
    assert "href" not in text
    assert "@import" not in text
    assert "url(" not in text


def test_the_example_is_small_and_names_no_place_of_the_machine_it_was_measured_on() -> None:
    files = [path for path in (DOCS / "example").rglob("*") if path.is_file()]
    assert files
    assert {path.suffix for path in files} == {".json"}
    assert sum(path.stat().st_size for path in files) < 300_000
    assert all('"/' not in path.read_text().replace('"cgroup": "/"', "") for path in files)
