"""Whole comparisons: verdicts, marks and what a reader must know."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gputax.compare.document import compare_sources, with_own_labels
from gputax.errors import ResultsError
from gputax.plan.budgets import Budgets
from gputax.plan.notices import Notice
from gputax.results.documents.comparison import Comparison
from gputax.results.importers.source import CellSamples
from tests.builders.documents import by_metric

Make = Callable[..., Any]


def test_every_comparison_says_that_it_is_unpaired(compared: Make) -> None:
    comparison = compared()
    assert comparison.warnings[0].code == "unpaired"
    assert comparison.kind == "compare"
    assert comparison.question == "What does k8s cost over bare?"
    assert not any(row.paired for row in comparison.metrics)


def test_offline_is_judged_by_throughput_alone(cell: Make, source: Make, run: Make) -> None:
    cells = [
        cell(run(mean, 500, seed=seed), 8, scenario="offline", batch_size=8, metrics={"latency_p50": mean})
        for seed, mean in enumerate((10.0, 10.3))
    ]
    comparison = compare_sources(source("bare", cells[0]), [source("k8s", cells[1])], Budgets())
    (row,) = comparison.metrics
    assert (row.metric, row.unit) == ("throughput", "samples/s")
    assert row.base_value == pytest.approx(800, rel=0.01)
    assert row.overhead_percent == pytest.approx(3.0, abs=1.0)
    assert comparison.settings["not_judged"][0]["metric"] == "latency_p50"


def server(make: Make, latency_ns: np.ndarray, qps: float = 100.0, **changes: Any) -> Any:
    scheduled = (np.arange(latency_ns.size) * 1e7).astype(np.int64)
    samples = CellSamples(scheduled, scheduled + latency_ns, np.ones(latency_ns.size, dtype=np.int64))
    conditions = {"target_qps": qps, "latency_bound_ms": 11.0}
    return make(
        None,
        scenario="server",
        batch_size=8,
        load_samples=lambda: samples,
        conditions=conditions,
        metrics={},
        **changes,
    )


def test_server_is_judged_by_latency_and_lateness_at_an_equal_rate(cell: Make, source: Make, run: Make) -> None:
    sides = [server(cell, run(mean, 3000, 0.01, seed)) for seed, mean in enumerate((10.0, 10.2))]
    comparison = compare_sources(source("bare", sides[0]), [source("k8s", sides[1])], Budgets())
    assert [row.metric for row in comparison.metrics] == [
        "latency_p50", "latency_p90", "latency_p99", "over_bound_share",
    ]  # fmt: skip
    share = comparison.metrics[3]
    assert (share.unit, share.by_value, share.base_value, share.other_value) == (
        "%", "within budget by value", 0.0, 0.0,
    )  # fmt: skip
    late = server(cell, run(10.9, 3000, 0.01, seed=3))
    share = compare_sources(source("bare", sides[0]), [source("k8s", late)], Budgets()).metrics[3]
    assert share.by_value == "over budget by value"
    assert share.overhead_percent == share.other_value


def test_unequal_rates_are_not_comparable(cell: Make, source: Make, run: Make) -> None:
    sides = [server(cell, run(10.0, 3000, seed=seed), qps) for seed, qps in enumerate((100.0, 101.0))]
    row = compare_sources(source("bare", sides[0]), [source("k8s", sides[1])], Budgets()).metrics[0]
    assert row.verdict == "not comparable"
    assert "--qps" in row.reason


@pytest.mark.parametrize("both", [False, True])
def test_an_emulated_hypervisor_shows_no_number_even_if_forced(compared: Make, both: bool) -> None:
    emulated = {"conditions": {"emulated": True}}
    sides = {"other": emulated, "force": True} | ({"base": emulated} if both else {})
    for row in compared(20.0, **sides).metrics:
        assert row.verdict == "not comparable"
        assert "emulated in software" in row.differences[0]
        assert (row.base_value, row.other_value, row.overhead_percent, row.ci95_percent) == (None, None, None, None)


def test_unequal_sides_show_no_number_unless_forced(compared: Make) -> None:
    unequal = {"conditions": {"threads": 4, "engine_version": "1.30.0", "kernel": "6.2"}}
    for row in compared(20.0, other=unequal).metrics:
        assert row.verdict == "not comparable"
        assert [text.split(":")[0] for text in row.differences] == ["engine version", "threads"]
        assert (row.base_value, row.other_value, row.overhead_percent, row.ci95_percent) == (None, None, None, None)
        assert (row.overhead_absolute, row.ci95_absolute) == (None, None)
    forced = by_metric(compared(20.0, other=unequal, force=True))
    assert {row.verdict for row in forced.values()} == {"not comparable"}
    assert forced["latency_p50"].overhead_percent == pytest.approx(100.0, abs=1.0)


def test_what_only_is_told_does_not_forbid(compared: Make) -> None:
    row = compared(10.0, base={"conditions": {"kernel": "6.1"}}, other={"conditions": {"kernel": "6.2"}}).metrics[0]
    assert row.verdict == "pass"
    assert any("kernel: 6.1 and 6.2" in warning.text for warning in row.warnings)


def test_what_one_side_does_not_know_is_told(compared: Make) -> None:
    row = compared(10.0, other={"conditions": {"threads": None}}).metrics[0]
    assert row.verdict == "pass"
    assert [warning.text for warning in row.warnings] == ["not checked, because only one side reports it: threads"]


@pytest.mark.parametrize("invalid", ["base", "other"])
def test_an_invalid_run_never_passes(compared: Make, invalid: str) -> None:
    marked = {"valid": False, "invalid_reasons": ("Reduce target QPS",)}
    for row in compared(10.0, **{invalid: marked}).metrics:
        assert row.verdict == "inconclusive"
        assert "INVALID (Reduce target QPS)" in row.reason
        assert row.overhead_percent is not None
        assert any(warning.code == "invalid" for warning in row.warnings)


def test_an_invalid_run_may_fail_but_not_against_an_invalid_base(compared: Make) -> None:
    assert by_metric(compared(12.0, other={"valid": False}))["latency_p50"].verdict == "fail"
    assert by_metric(compared(12.0, base={"valid": False}))["latency_p50"].verdict == "inconclusive"


def failing() -> CellSamples:
    raise ResultsError("samples cannot be read: truncated")


def zeros() -> CellSamples:
    return CellSamples(np.arange(3), np.arange(3), np.ones(3, dtype=np.int64))


def one() -> CellSamples:
    return CellSamples(np.array([0]), np.array([10_000_000]), np.array([1]))


@pytest.mark.parametrize(
    ("load", "complaint"), [(failing, "truncated"), (zeros, "3 of 3 samples"), (one, "one value has no spread")]
)
def test_bad_samples_leave_the_records_figures_without_a_verdict(single: Make, load: Make, complaint: str) -> None:
    metrics = {"latency_mean": 10.0}
    comparison = single(10.0, base={"metrics": metrics}, other={"load_samples": load, "metrics": metrics})
    row = by_metric(comparison)["latency_mean"]
    assert (row.verdict, row.base_value, row.overhead_percent) == ("inconclusive", 10.0, 0.0)
    assert complaint in row.reason


def test_zero_and_missing_values(cell: Make, source: Make) -> None:
    def bare(**metrics: float) -> Any:
        return cell(None, scenario="unknown", metrics=metrics)

    base = source("a", bare(throughput=0.0, latency_p99=1.0, host_to_device=4.3))
    other = source("b", bare(throughput=5.0, latency_p99=0.0))
    comparison = compare_sources(base, [other], Budgets())
    rows = by_metric(comparison)
    assert set(rows) == {"throughput", "latency_p99"}
    assert rows["throughput"].overhead_percent is None
    assert rows["throughput"].reason == (
        "one run each: how much runs differ is not known; the base is zero, so the ratio is undefined; a has no "
        "samples: a difference, but no interval"
    )
    assert rows["latency_p99"].overhead_percent == -100.0
    assert {row.verdict for row in comparison.metrics} == {"inconclusive"}
    assert any("host-to-device" in warning.text and "only a has it" in warning.text for warning in comparison.warnings)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_one_side_names_names_the_row(cell: Make, source: Make, order: tuple[int, int]) -> None:
    cells = [
        cell(None, scenario="offline", batch_size=8, metrics={"throughput": 5.0}, claim="ours"),
        cell(None, scenario="offline", batch_size=None, workload="unknown", metrics={"throughput": 5.0}, claim="theirs",
             conditions={"workload": None, "batch_size": None}),
    ]  # fmt: skip
    base, other = (source(str(number), cells[number]) for number in order)
    (row,) = compare_sources(base, [other], Budgets()).metrics
    assert (row.workload, row.scenario, row.batch_size) == ("resnet50", "offline", 8)
    claims = {"0": "ours", "1": "theirs"}
    assert row.claim == "; ".join(f"{number}: {claims[str(number)]}" for number in order)
    assert compare_sources(base, [base], Budgets()).metrics[0].claim == claims[str(order[0])]


@pytest.mark.parametrize("stopped", [0, 1])
def test_the_side_whose_samples_cannot_be_used_is_named(cell: Make, source: Make, run: Make, stopped: int) -> None:
    # Two batches that end in the same nanosecond leave no time between them.
    good = run(10.0, 100).cumsum()
    ends = [good, good.copy()]
    ends[stopped][50] = ends[stopped][51]
    sides = []
    for label, end in zip(("bare", "k8s"), ends, strict=True):
        samples = CellSamples(end - 5_000_000, end, np.ones(100, dtype=np.int64))
        made = cell(None, scenario="offline", metrics={"throughput": 5.0}, load_samples=lambda samples=samples: samples)
        sides.append(source(label, made))
    (row,) = compare_sources(sides[0], sides[1:], Budgets()).metrics
    assert row.verdict == "inconclusive"
    assert f"{('bare', 'k8s')[stopped]}: sample 52 of 100 is 0" in row.reason


@pytest.mark.parametrize("names", [("unknown", "offline"), ("offline", "unknown")])
def test_whichever_side_names_the_scenario_decides_what_is_judged(
    cell: Make, source: Make, names: tuple[str, str]
) -> None:
    metrics = {"throughput": 5.0, "latency_p50": 1.0}
    sides = [source(name, cell(None, scenario=name, metrics=metrics, conditions={"scenario": None})) for name in names]
    comparison = compare_sources(sides[0], sides[1:], Budgets())
    assert [row.metric for row in comparison.metrics] == ["throughput"]
    assert comparison.metrics[0].scenario == "offline"


def test_units_that_count_other_things_are_not_comparable(cell: Make, source: Make) -> None:
    sides = [
        source(name, cell(None, scenario="offline", metrics={"throughput": 5.0}, conditions={"counted": counted}))
        for name, counted in (("a", "operations"), ("b", "samples"))
    ]
    row = compare_sources(sides[0], sides[1:], Budgets()).metrics[0]
    assert row.verdict == "not comparable"
    assert row.differences == ("throughput counts: operations and samples",)
    assert row.unit == "/s"
    same = dataclasses.replace(sides[1], cells=sides[0].cells)
    assert compare_sources(sides[0], [same], Budgets()).metrics[0].unit == "operations/s"


def test_notices_of_both_sides_travel_with_the_number(compared: Make) -> None:
    noise = {"notices": (Notice("busy", "others used 55 %", 55.0), Notice("too-few-samples", "p99 needs more"))}
    row = compared(10.0, other=noise).metrics[0]
    assert [(warning.code, warning.text) for warning in row.warnings] == [("busy", "k8s: others used 55 %")]


def test_several_others_and_labels_of_their_own(cell: Make, source: Make, run: Make) -> None:
    sources = [source("bare", cell(run(10.0, seed=seed)), path=f"results/{name}") for seed, name in enumerate("aba")]
    comparison = compare_sources(sources[0], sources[1:], Budgets())
    assert [side.label for side in comparison.sides] == ["bare (a)", "bare (b)", "bare (a) #2"]
    assert comparison.question == "What do bare (b) and bare (a) #2 cost over bare (a)?"
    assert {row.other for row in comparison.metrics} == {"bare (b)", "bare (a) #2"}
    assert comparison.settings["judged_together"] == 0, "one run each"
    assert [each.label for each in with_own_labels(sources[:1])] == ["bare"]


def test_files_of_the_same_name_are_told_apart_by_their_directories(cell: Make, source: Make) -> None:
    sources = [source("results", cell(None), path=path) for path in ("old/results.txt", "new/results.txt")]
    assert [each.label for each in with_own_labels(sources)] == [
        "results (old/results.txt)",
        "results (new/results.txt)",
    ]
    deep = [source("r", cell(None), path=path) for path in ("a/x/r", "b/x/r")]
    assert [each.label for each in with_own_labels(deep)] == ["r (a/x/r)", "r (b/x/r)"]


def test_what_a_cell_without_any_number_has_to_say_is_not_lost(cell: Make, source: Make) -> None:
    broken = cell(None, scenario="offline", metrics={}, notices=(Notice("left-out", "left out: throughput is nan"),))
    good = cell(None, scenario="server", batch_size=8, metrics={"latency_p50": 1.0})
    comparison = compare_sources(source("a", broken, good), [source("b", broken, good)], Budgets())
    assert [row.scenario for row in comparison.metrics] == ["server"]
    assert {"a: left out: throughput is nan", "b: left out: throughput is nan"} <= {
        warning.text for warning in comparison.warnings
    }


def test_no_metric_in_common_is_an_error(cell: Make, source: Make) -> None:
    base = source("a", cell(None, scenario="unknown", metrics={"throughput": 5.0}))
    other = source("b", cell(None, scenario="unknown", metrics={"latency_p99": 5.0}))
    with pytest.raises(ResultsError, match="a and b have no metric in common"):
        compare_sources(base, [other], Budgets())


def test_the_document_is_valid_json_without_nan_and_comes_back_whole(compared: Make) -> None:
    comparison = compared(10.0, count=700)
    text = comparison.model_dump_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in the document"))
    assert Comparison.model_validate_json(text) == comparison


def test_unbounded_intervals_are_null(cell: Make, source: Make, run: Make) -> None:
    # 700 samples that wander: p99 has no upper bound, so the document has none either.
    wander = np.repeat(np.random.default_rng(5).lognormal(0, 0.5, 20), 35)
    sides = [
        source(name, cell((run(10.0, 700, seed=seed) * wander).astype(np.int64))) for seed, name in enumerate("ab")
    ]
    row = by_metric(compare_sources(sides[0], sides[1:], Budgets()))["latency_p99"]
    assert row.verdict == "inconclusive"
    assert row.ci95_absolute is None or None in row.ci95_absolute


def test_a_million_samples_on_each_side_take_seconds(single: Make) -> None:
    started = time.process_time()
    comparison = single(10.3, count=1_000_000)
    assert time.process_time() - started < 10
    assert by_metric(comparison)["latency_p99"].by_value == "within budget by value"
