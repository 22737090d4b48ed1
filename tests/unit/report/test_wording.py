from __future__ import annotations

import math
from typing import Any

import pytest

from gputax.report import wording
from gputax.text import LONGEST_TEXT
from tests.builders.documents import metric, p99


@pytest.mark.parametrize(
    ("value", "bounds", "text"),
    [
        (3.2, (2.6, 3.9), "+3.2 % (95 % CI +2.6 to +3.9)"),
        (-0.44, (-0.71, 0.12), "−0.44 % (95 % CI −0.71 to +0.12)"),
        (0.0, (-0.004, 0.004), "+0.00 % (95 % CI +0.00 to +0.00)"),
        (812.0, (700.0, 930.0), "+812 % (95 % CI +700 to +930)"),
        (3.2, None, "+3.2 % (no interval)"),
        (0.3, (-51.0, 104.0), "+0.3 % (95 % CI −51.0 to +104.0)"),
        (3.2, (None, None), "+3.2 % (no interval)"),
        (3.2, (-100.0, math.inf), "+3.2 % (no interval)"),
        (3.2, (2.6, math.inf), "+3.2 % (95 % CI from +2.6)"),
        (None, (1.0, 2.0), "–"),
        (math.nan, (1.0, 2.0), "–"),
        (math.inf, None, "–"),
    ],
)
def test_overheads(value: float | None, bounds: wording.Bounds, text: str) -> None:
    assert wording.overhead(value, bounds, "%") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (math.nan, "–"), (-math.inf, "–"), (0.0, "0"), (1234.5, "1,234"), (12.3456, "12.35"), (-2.0, "−2")],
)
def test_numbers(value: float | None, text: str) -> None:
    assert wording.number(value) == text


def test_a_budget_in_ms_shows_ms_first_and_percent_beside() -> None:
    assert wording.metric_overhead(p99()) == "+1.40 ms (95 % CI +1.10 to +1.80)"
    assert wording.overhead_beside(p99()) == "+7.0 %"
    assert wording.overhead_beside(metric()) == ""
    assert wording.budget(p99()) == "+2 ms"
    assert wording.short_overhead(p99()) == "+1.40 ms"


def test_a_missing_budget_is_a_dash() -> None:
    assert wording.budget(metric(budget=None)) == "–"
    assert wording.budget(metric(budget=math.nan)) == "–"


def test_pairs_and_what_is_still_needed() -> None:
    assert wording.pairs(metric(pairs=1200)) == "1,200"
    assert wording.pairs_needed(metric(pairs_needed=4000)) == "about 4,000 pairs needed"
    assert wording.pairs(metric(paired=False)) == "unpaired (weaker)"


def test_every_verdict_has_a_mark_beside_its_colour() -> None:
    assert [wording.marked(verdict) for verdict in wording.MARKS] == [
        "✓ pass", "✗ fail", "? undecided", "≠ not comparable",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "evident"),
    [
        ({}, True),
        ({"ci95_percent": (2.6, 5.1)}, False),
        ({"verdict": "fail", "ci95_percent": (5.5, 6.0)}, True),
        ({"verdict": "inconclusive"}, False),
        ({"verdict": "inconclusive", "ci95_percent": (4.0, 6.0)}, True),
        ({"verdict": "not comparable"}, False),
        ({"ci95_percent": None}, False),
    ],
)
def test_a_reason_is_needed_where_the_interval_does_not_say_the_verdict(changes: dict[str, Any], evident: bool) -> None:
    assert wording.evident(metric(**changes)) is evident


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\tc", "a b c"),
        ("red\x1b[31m", "red\ufffd[31m"),
        ("nul\0", "nul\ufffd"),
        ("\ud800", "\ufffd"),
        ("abc\u202etxt.exe", "abc\ufffdtxt.exe"),
        ("<script>", "<script>"),
        ("naïve 模型 🙂", "naïve 模型 🙂"),
    ],
)
def test_plain_leaves_nothing_to_obey(text: str, shown: str) -> None:
    assert wording.plain(text) == shown
    shown.encode()


def test_a_file_where_a_name_belongs_is_cut() -> None:
    assert len(wording.plain("x" * 1_000_000)) == LONGEST_TEXT + 1


def test_batch_sizes_are_named_where_they_mean_something() -> None:
    assert wording.cell_title("resnet50", "offline", 8) == "resnet50 offline b8"
    assert wording.cell_title("resnet50", "single_stream", 1) == "resnet50 single-stream"
    assert wording.cell_title("yolos-small", "saturate", 1, tenants=3) == "yolos-small saturate b1 ×3"


def test_moments_are_for_people_and_strangers_stay_as_they_are() -> None:
    assert wording.moment("2026-01-01T12:00:59+00:00") == "2026-01-01 12:00 UTC"
    assert wording.moment("2026-01-01T12:00:59+02:00") == "2026-01-01 12:00 +02:00"
    assert wording.moment("yesterday") == "yesterday"


def test_the_floors_are_those_of_the_statistics() -> None:
    assert "p50 10, p90 64, p95 130, p99 662" in wording.floors_note()
