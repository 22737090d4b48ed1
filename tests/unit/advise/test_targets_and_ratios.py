"""Targets are read strictly; a percentile is carried by its measured ratio to the mean, with its spread."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest

from gputax.advise.advice import advise
from gputax.advise.ratios import ratio_of
from gputax.advise.table import Series, from_record
from gputax.advise.targets import Question, Target, parse_target, parse_targets
from gputax.errors import ResultsError, UsageError
from gputax.results.documents.sharing import SharedCell
from tests.builders.sharing_records import cell, cells, contention, record


def series(*found: object, **changes: object) -> Series:
    made = found or cells("mps", contention(), **changes)  # type: ignore[arg-type]
    return from_record(record(*made)).series[0]


@pytest.mark.parametrize(
    ("text", "statistic", "at_most_ms"),
    [
        ("p99=50ms", "p99", 50.0), ("mean=0.2s", "mean", 200.0), ("p50=800us", "p50", 0.8),
        (" p90 = 1.5 ms ", "p90", 1.5), ("mean=.5s", "mean", 500.0), ("p50=20µs", "p50", 0.02),
    ],
)  # fmt: skip
def test_targets_with_units(text: str, statistic: str, at_most_ms: float) -> None:
    target = parse_target(text)
    assert target.statistic == statistic
    assert target.at_most_ms == pytest.approx(at_most_ms)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("50ms", "is not a target"), ("p98=50ms", "unknown statistic 'p98'"), ("p99=50", "not a time with a unit"),
        ("p99=ms", "not a time with a unit"), ("p99=-5ms", "not a time with a unit"), ("p99=0ms", "above zero"),
        ("p99=nans", "not a time with a unit"), ("p99=1e400s", "not a time with a unit"),
        ("p99=5min", "not a time with a unit"),
        ("p99=" + "9" * 400 + "s", "above zero"),
    ],
)  # fmt: skip
def test_targets_that_cannot_be_right(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        parse_target(text)


def test_several_targets_and_none_twice() -> None:
    assert parse_targets(("p99=50ms,mean=20ms", "p50=15ms")) == (
        Target("p99", 50.0), Target("mean", 20.0), Target("p50", 15.0),
    )  # fmt: skip
    with pytest.raises(UsageError, match="p99 twice"):
        parse_targets(("p99=50ms", "p99=40ms"))


def test_a_question_reads_as_a_sentence() -> None:
    asked = Question((Target("p99", 50.0),), rate_per_s=10.0)
    assert str(asked) == "p99 ≤ 50 ms and at least 10 inferences/s for each tenant"


def test_the_mean_needs_no_ratio() -> None:
    ratio = ratio_of(series(), "mean")
    assert ratio is not None
    assert ratio.log == 0.0
    assert ratio.uncertainty.half_width() == 0.0


def test_the_ratio_is_the_measured_one_with_its_spread() -> None:
    ratio = ratio_of(series(tail=1.5), "p99")
    assert ratio is not None
    assert math.exp(ratio.log) == pytest.approx(1.5, rel=0.02)
    low, high = ratio.uncertainty.around(ratio.log) or (0.0, 0.0)
    assert low < 1.5 < high < 1.7
    assert ratio.tenants == (1, 3, 5, 7)
    assert ratio.notices == ()


def test_no_percentile_no_ratio() -> None:
    assert ratio_of(series(tail=None), "p99") is None


def test_a_percentile_that_only_some_cells_have_is_said() -> None:
    found = [cell("mps", count, run, 10.0, tail=1.5 + run / 100) for count in (1, 3) for run in (1, 2, 3)]
    ratio = ratio_of(series(*found, cell("mps", 7, 1, 30.0, tail=None)), "p99")
    assert ratio is not None
    assert ratio.tenants == (1, 3)
    assert [notice.code for notice in ratio.notices] == ["ratio-partly"]
    assert "there were too few samples for 7" in ratio.notices[0].text


def test_a_ratio_that_was_measured_once_has_no_interval() -> None:
    ratio = ratio_of(series(cell("mps", 1, 1, 10.0), cell("mps", 3, 1, 20.0, tail=None)), "p99")
    assert ratio is not None
    assert ratio.uncertainty.half_width() is None
    assert "ratio-once" in [notice.code for notice in ratio.notices]


def test_a_ratio_that_grows_with_the_tenants_is_said() -> None:
    growing = [
        cell("mps", count, run, 10.0, tail=1.2 + 0.2 * count + run / 1000) for count in (1, 3, 5) for run in (1, 2)
    ]
    ratio = ratio_of(series(*growing), "p99")
    assert ratio is not None
    assert ratio.changes
    assert "1.40 at 1, 2.20 at 5" in ratio.notices[0].text


def test_targets_of_tokens_are_their_p90_unless_they_say_more() -> None:
    assert parse_target("ttft=200ms") == Target("ttft_p90", 200.0)
    assert parse_target("tpot_p99=30ms") == Target("tpot_p99", 30.0)
    with pytest.raises(UsageError, match="twice"):
        parse_targets(("ttft=1s,ttft_p90=2s",))


def with_tokens(found: Iterable[SharedCell], factor: float) -> list[SharedCell]:
    """Every cell's p90 of ttft a fixed part of its mean, that of its worst tenant a tenth more."""
    made = []
    for each in found:
        results = tuple(
            result.model_copy(update={"tokens": {"ttft_p90_ms": factor * result.mean_ms * 1.1}})
            for result in each.results
        )
        mean_ms = each.mean_ms or sum(result.mean_ms for result in each.results) / len(each.results)
        made.append(each.model_copy(update={"tokens": {"ttft_p90_ms": factor * mean_ms}, "results": results}))
    return made


def test_tokens_have_their_own_ratio_to_the_mean() -> None:
    found = from_record(record(*with_tokens(cells("time-slicing", contention(20.0, 0.5)), 0.25))).series[0]
    ratio = ratio_of(found, "ttft_p90")
    assert ratio is not None
    assert ratio.log == pytest.approx(math.log(0.25))
    assert ratio_of(found, "tpot_p90") is None


def test_tokens_that_nobody_measured_are_refused_with_the_reason() -> None:
    table = from_record(record(*cells("time-slicing", contention(20.0, 0.5))))
    with pytest.raises(ResultsError, match="no tokens"):
        advise(table, Question(parse_targets(("tpot=5ms",))))
