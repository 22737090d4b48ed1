"""Budgets against known differences: which one applies, in which unit, and to which metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gputax.cli.duet import exit_code
from gputax.compare.document import compare_sources
from gputax.plan.budgets import Budgets, parse_budgets
from tests.builders.documents import by_metric

Make = Callable[..., Any]


def test_throughput_budgets_count_what_is_lost(repeated: Make, source: Make) -> None:
    # 42,000 -> 39,900 samples/s: 5.0 % lost, 5.26 % more time.
    def offline(rates: list[float], first_s: float) -> Any:
        runs = [np.full(20, 8e9 / rate) for rate in rates]
        return repeated(runs, 8, first_s=first_s, scenario="offline", batch_size=8)

    base, other = offline([41_990.0, 42_000.0, 42_010.0], 0.0), offline([39_890.0, 39_900.0, 39_910.0], 30.0)
    (row,) = compare_sources(source("bare", base), [source("k8s", other)], parse_budgets(["5.1%"])).metrics
    assert (row.verdict, row.loss) == ("pass", "throughput")
    assert row.overhead_percent == pytest.approx(5.0, abs=0.001)


@pytest.mark.parametrize(("percent", "verdict"), [(0.0, "pass"), (3.2, "pass"), (6.0, "fail"), (10.0, "fail")])
def test_known_overheads_against_five_percent(compared: Make, percent: float, verdict: str) -> None:
    rows = by_metric(compared(10.0 * (1 + percent / 100)))
    for name in ("latency_mean", "latency_p50", "latency_p90"):
        row = rows[name]
        assert row.verdict == verdict
        assert row.overhead_percent == pytest.approx(percent, abs=0.2)
        assert row.ci95_percent is not None
        low, high = row.ci95_percent
        assert low is not None
        assert high is not None
        assert low < percent < high
        assert high - low < 1.0
        assert (row.budget, row.budget_unit, row.paired, row.pairs) == (5.0, "%", False, None)


def test_on_the_budget_nothing_is_decided(compared: Make) -> None:
    row = by_metric(compared(10.5))["latency_p50"]
    assert row.verdict == "inconclusive"
    assert "is between" in row.reason


def test_p99_may_grow_by_two_milliseconds(compared: Make) -> None:
    row = by_metric(compared(11.5))["latency_p99"]
    assert (row.verdict, row.budget, row.budget_unit) == ("pass", 2.0, "ms")
    assert row.overhead_absolute == pytest.approx(1.5, abs=0.05)
    assert row.ci95_absolute is not None
    assert by_metric(compared(12.5))["latency_p99"].verdict == "fail"
    assert by_metric(compared(11.5, "latency_p99=5%"))["latency_p99"].verdict == "fail"
    assert by_metric(compared(11.5, "1ms"))["latency_p99"].verdict == "fail"


def test_a_mean_can_be_held_against_milliseconds(compared: Make) -> None:
    row = by_metric(compared(11.0, "latency_mean=2ms"))["latency_mean"]
    assert (row.verdict, row.budget_unit) == ("pass", "ms")
    assert by_metric(compared(11.0, "latency_mean=0.5ms"))["latency_mean"].verdict == "fail"


def test_the_environments_choose_the_budget(cell: Make, source: Make, run: Make) -> None:
    base, other = source("bare", cell(run(10.0))), source("k", cell(run(10.0, seed=2)), environment="k8s")
    row = compare_sources(base, [other], Budgets()).metrics[0]
    assert (row.budget, row.budget_source) == (1.0, "budget of the layer k8s")


def test_many_rows_share_the_risk_of_a_false_fail(compared: Make) -> None:
    comparison = compared(20.0)
    assert comparison.settings["judged_together"] == 4
    assert "4 judged together" in comparison.metrics[0].reason
    assert "together" not in compared().metrics[0].reason, "a pass of all needs no correction"


def test_a_percentile_below_its_floor_has_no_number_and_decides_only_when_asked(compared: Make) -> None:
    comparison = compared(10.0, count=500)
    row = by_metric(comparison)["latency_p99"]
    assert (row.verdict, row.base_value, row.overhead_percent, row.decides) == ("inconclusive", None, None, False)
    assert "p99 needs 662 samples" in row.reason
    assert [each.metric for each in comparison.metrics if not each.decides] == ["latency_p99"]
    assert exit_code(comparison) == 0
    asked = compared(10.0, "latency_p99=2ms", count=500)
    assert by_metric(asked)["latency_p99"].decides
    assert exit_code(asked) == 7
    assert exit_code(compared(10.0, "2ms", count=500)) == 0, "a budget for all names no metric"


def test_a_budget_brings_its_metric_along_or_the_row_says_why_not(compared: Make) -> None:
    assert by_metric(compared(10.0, "latency_p95=5%"))["latency_p95"].verdict == "pass"
    comparison = compared(10.0, "latency_p99=2ms", "host_to_device=5%")
    row = by_metric(comparison)["host_to_device"]
    assert (row.verdict, row.reason, row.decides) == ("inconclusive", "neither bare nor k8s has it", True)
    assert exit_code(comparison) == 7


def test_a_p99_budget_for_offline_logs_is_a_row_with_its_reason(cell: Make, source: Make) -> None:
    """LoadGen's offline latencies are those of one query with all samples, so the reader does not keep them."""
    logs = {"scenario": "offline", "batch_size": None, "metrics": {"throughput": 42_000.0}}
    sides = [source(name, cell(None, **logs), environment=name) for name in ("bare", "k8s")]
    assert set(by_metric(compare_sources(sides[0], sides[1:], Budgets()))) == {"throughput"}
    for text in ("latency_p99=2ms", "p99=2ms", "k8s:p99=2ms"):
        row = by_metric(compare_sources(sides[0], sides[1:], parse_budgets((text,))))["latency_p99"]
        assert (row.verdict, row.budget, row.decides) == ("inconclusive", 2.0, True)
        assert row.reason == "neither bare nor k8s has it: requests of offline are not timed one by one"


def test_a_named_metric_is_asked_only_of_cells_that_can_have_it(cell: Make, source: Make) -> None:
    """With an offline and a single-stream cell, p99=2ms is for the second one."""
    cells = (
        cell(None, scenario="offline", metrics={"throughput": 42_000.0}),
        cell(None, metrics={"latency_p50": 5.0, "latency_p99": 12.0}),
    )
    sides = [source(name, *cells, environment=name) for name in ("bare", "k8s")]
    comparison = compare_sources(sides[0], sides[1:], parse_budgets(("p99=2ms",)))
    assert [row.scenario for row in comparison.metrics if row.metric == "latency_p99"] == ["single-stream"]


def test_a_named_metric_is_judged_in_every_cell_that_has_it_on_both_sides(cell: Make, source: Make) -> None:
    """The users' texts give a p99 of Offline too, and their script compares it with 2 ms."""
    cells = (
        cell(None, scenario="offline", metrics={"throughput": 42_000.0, "latency_p99": 12.0}),
        cell(None, metrics={"latency_p50": 5.0, "latency_p99": 15.0}),
    )
    sides = [source(name, *cells, environment=name) for name in ("bare", "k8s")]

    def judged(*budgets: str) -> list[str]:
        rows = compare_sources(sides[0], sides[1:], parse_budgets(budgets)).metrics
        return [row.scenario for row in rows if row.metric == "latency_p99"]

    assert judged() == ["single-stream"]
    assert judged("p99=2ms") == ["offline", "single-stream"]


def test_the_p99_budget_fits_the_size_of_a_request(cell: Make, source: Make) -> None:
    """+283 % of an operation of 0.2 ms passed against +2 ms."""
    for request_ms, expected in ((0.14, (2.0, "%")), (10.0, (2.0, "ms"))):
        metrics = {"latency_mean": request_ms, "latency_p99": 1.4 * request_ms}
        sides = [source(name, cell(None, metrics=metrics), environment=name) for name in ("bare", "k8s")]
        row = by_metric(compare_sources(sides[0], sides[1:], Budgets()))["latency_p99"]
        assert (row.budget, row.budget_unit) == expected


def test_a_budget_for_a_layer_that_is_not_there_is_said(compared: Make) -> None:
    unused = [warning.text for warning in compared(10.0, "xen=10%").warnings if warning.code == "unused-budget"]
    assert unused == ["the budget for xen was not used: nothing that is compared has it and its base has not"]
