"""Run-to-run spread: one run decides nothing; repeats, or another run of this machine, give the interval."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gputax.cli.duet import exit_code
from gputax.compare.document import compare_sources
from gputax.errors import ResultsError
from gputax.plan.budgets import Budgets, parse_budgets
from tests.builders.documents import by_metric

Make = Callable[..., Any]


@pytest.mark.parametrize(("mean_ms", "word"), [(10.3, "within budget by value"), (12.0, "over budget by value")])
def test_a_single_run_on_each_side_decides_nothing(single: Make, mean_ms: float, word: str) -> None:
    comparison = single(mean_ms)
    row = by_metric(comparison)["latency_mean"]
    assert (row.verdict, row.by_value, row.repeats) == ("inconclusive", word, (1, 1))
    assert row.reason == "one run each: how much runs differ is not known"
    assert row.spread == "within one run"
    assert row.ci95_percent is not None
    assert {each.verdict for each in comparison.metrics} == {"inconclusive"}
    assert exit_code(comparison) == 7


def test_plain_numbers_have_no_interval_but_a_side_of_the_budget(cell: Make, source: Make) -> None:
    sides = [source(name, cell(None, metrics={"latency_mean": ms})) for name, ms in (("a", 10.0), ("b", 11.0))]
    (row,) = compare_sources(sides[0], sides[1:], Budgets()).metrics
    assert (row.verdict, row.by_value, row.ci95_percent, row.spread) == (
        "inconclusive", "over budget by value", None, None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("repeats", "reason"),
    [
        ((2, 5), "2 and 5 repeats: a verdict needs at least 3 on each side"),
        ((5, 1), "k8s was measured once: how much its runs differ is not known"),
        ((1, 5), "bare was measured once: how much its runs differ is not known"),
    ],
)
def test_too_few_repeats_decide_nothing(compared: Make, repeats: tuple[int, int], reason: str) -> None:
    for row in compared(12.0, repeats=repeats).metrics:
        assert (row.verdict, row.reason, row.repeats) == ("inconclusive", reason, repeats)


@pytest.mark.parametrize(("percent", "verdict"), [(2.0, "pass"), (12.0, "fail"), (5.0, "inconclusive")])
def test_another_run_of_this_machine_may_give_the_spread(
    cell: Make, repeated: Make, source: Make, run: Make, percent: float, verdict: str
) -> None:
    sides = [
        source(name, cell(run(ms, seed=seed)))
        for seed, (name, ms) in enumerate((("a", 10.0), ("b", 10.0 * (1 + percent / 100))))
    ]
    runs = [run(9.0 * luck, 1000, 0.01, seed=seed) for seed, luck in enumerate((0.99, 1.0, 1.005, 1.01, 0.995))]
    history = source("history", repeated(runs), path="results/history")
    row = by_metric(compare_sources(sides[0], sides[1:], Budgets(), history=history))["latency_mean"]
    assert (row.verdict, row.spread, row.spread_source) == (verdict, "from another run", "results/history")
    # The standard deviation of the five is 0.79 %; t with four degrees of freedom is 2.776.
    assert row.ci95_percent is not None
    assert None not in row.ci95_percent
    low, high = row.ci95_percent
    assert high - low == pytest.approx(2 * 2.776 * 0.79 * 2**0.5 * (1 + percent / 100), rel=0.05)  # type: ignore[operator]


def test_a_history_of_another_machine_or_without_repeats_is_refused(
    cell: Make, repeated: Make, source: Make, run: Make
) -> None:
    sides = [source(name, cell(run(10.0, seed=seed))) for seed, name in enumerate("ab")]
    runs = [run(10.0, 100, seed=seed) for seed in range(5)]
    elsewhere = source("h", repeated(runs, conditions={"device_name": "Another CPU"}))
    for history in (elsewhere, source("h", cell(run(10.0))), source("h", repeated(runs[:2]))):
        with pytest.raises(ResultsError, match="no cell of this run has 3 repeats"):
            compare_sources(sides[0], sides[1:], Budgets(), history=history)
    own = source("c", repeated(runs))
    row = compare_sources(own, [own], Budgets(), history=elsewhere).metrics[0]
    assert row.spread == "between repeats", "sides with repeats need no other spread"


def test_the_overhead_is_the_ratio_of_the_two_columns(compared: Make) -> None:
    row = by_metric(compared(10.4))["latency_p99"]
    assert row.base_value is not None
    assert row.other_value is not None
    assert row.overhead_percent == pytest.approx(100 * (row.other_value / row.base_value - 1))
    assert row.spread == "between repeats"
    assert row.by_value is None


def test_a_drift_from_one_side_to_the_other_is_not_an_overhead(repeated: Make, source: Make, run: Make) -> None:
    # 1 % slower with every repeat, base first: the mean of the second half is 5 % above that of the first.
    slower = [run(10.0 * 1.01**minute, 1000, 0.001, seed=minute) for minute in range(10)]
    base, other = repeated(slower[:5]), repeated(slower[5:], first_s=300.0)
    (row, *_) = compare_sources(source("bare", base), [source("k8s", other)], parse_budgets(["3%"])).metrics
    assert row.overhead_percent == pytest.approx(5.1, abs=0.2)
    assert row.ci95_percent is not None
    assert row.ci95_percent[0] is not None
    assert row.ci95_percent[0] < 0.1
    assert (row.verdict, row.by_value) == ("inconclusive", "over budget by value")


@pytest.mark.parametrize("side", ["base", "other"])
def test_without_spread_there_is_a_difference_and_no_verdict(single: Make, side: str) -> None:
    bare = {"load_samples": None, "metrics": {"latency_mean": 10.0, "latency_p99": 11.0}}
    both = {"metrics": {"latency_mean": 10.0, "latency_p99": 11.0}}
    other = "other" if side == "base" else "base"
    comparison = single(10.0, **{side: bare, other: both})
    assert [row.metric for row in comparison.metrics] == ["latency_mean", "latency_p99"]
    for row in comparison.metrics:
        assert row.verdict == "inconclusive"
        assert row.overhead_percent == 0.0
        assert (row.ci95_percent, row.ci95_absolute) == (None, None)
        assert "no samples: a difference, but no interval" in row.reason
