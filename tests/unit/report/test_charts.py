"""Charts are data: what they draw is read from their specs."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from gputax.report.charts.comparison import MOST_POINTS, overhead_chart, pairs_chart, waterfall_chart
from gputax.report.charts.run import latency_chart, telemetry_chart, throughput_chart
from gputax.report.charts.theme import PALETTE, colour, series_scales
from gputax.report.grouping import Compared, chart_groups, curves_of, measured_cells
from gputax.report.layers import waterfalls
from gputax.report.story import build_report
from tests.builders.documents import (
    CPU,
    benchmark,
    comparison,
    metric,
    p99,
    row,
    run_source,
    series,
    side,
    sources,
)


def rows_of(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return list(spec["data"]["values"])


def everything() -> list[dict[str, Any]]:
    """All specs of a report that has every kind of chart."""
    duet = comparison(metric(other="k8s", percent=1.0), metric("k8s", "k8s+proxy"), p99())
    runs = (
        run_source(),
        run_source(benchmark("resnet50-offline-b8-k8s"), environment="k8s", directory="results/k8s"),
    )
    report = build_report(sources(duet, runs=runs))
    kinds = {chart.name.rsplit("-", 1)[0] for chart in report.charts}
    assert kinds == {"overview", "waterfall", "pairs", "throughput", "latency", "telemetry"}
    return [chart.spec for chart in report.charts]


def test_every_chart_names_its_device_in_its_title() -> None:
    for spec in everything():
        assert " ".join(spec["title"]["subtitle"]).startswith(CPU)
        assert spec["title"]["text"][0]


def test_every_spec_is_strict_json_without_a_reference_to_fetch() -> None:
    for spec in everything():
        text = json.dumps({key: value for key, value in spec.items() if key != "$schema"}, allow_nan=False)
        assert "http" not in text
        assert '"url"' not in text


def test_no_two_roles_share_a_colour_for_each_is_turned_dark_by_its_own_rule() -> None:
    lights = [light for light, _ in PALETTE.values()]
    assert len(set(lights)) == len(lights)


def test_an_environment_keeps_its_colour_in_every_chart() -> None:
    known = ["bare", "k8s", "k8s+proxy"]
    alone, _ = series_scales(["k8s+proxy"], known)
    both, _ = series_scales(["bare", "k8s+proxy"], known)
    assert alone["range"] == [both["range"][1]] == [colour("series 3")]


def test_the_overhead_chart_shows_interval_budget_and_verdict() -> None:
    spec = overhead_chart("t", [("proxy", row())])
    assert spec is not None
    (drawn,) = rows_of(spec)
    assert (drawn["overhead"], drawn["budget"]) == (3.2, 5.0)
    assert (drawn["low"], drawn["high"]) == pytest.approx((2.6, 3.9))
    assert drawn["colour"] == colour("pass")
    assert drawn["tip"] == "proxy: +3.2 % (95 % CI +2.6 to +3.9), budget 5 %, pass"


def test_a_budget_in_ms_is_drawn_where_it_lies_in_percent() -> None:
    made = Compared(p99(), side("bare"), side("k8s+proxy"))
    spec = overhead_chart("t", [("p99", made)])
    assert spec is not None
    (drawn,) = rows_of(spec)
    assert drawn["budget"] == pytest.approx(10.0), "2 ms of 20 ms"
    assert (drawn["overhead"], drawn["low"], drawn["high"]) == pytest.approx((7.0, 5.5, 9.0))


def test_without_a_base_a_budget_in_ms_has_no_place_in_percent() -> None:
    made = Compared(p99(base_value=0.0), side("bare"), side("k8s+proxy"))
    spec = overhead_chart("t", [("p99", made)])
    assert spec is not None
    assert rows_of(spec)[0]["budget"] is None


def test_a_budget_in_ms_far_above_the_value_itself_does_not_press_the_other_rows_to_the_edge() -> None:
    tiny = Compared(p99(base_value=0.0024), side("bare"), side("k8s+proxy"))
    spec = overhead_chart("t", [("mean", row()), ("p99 of 2 µs", tiny)])
    assert spec is not None
    assert [drawn["row"] for drawn in rows_of(spec)] == ["mean"]


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_what_has_no_number_is_not_drawn(value: float | None) -> None:
    assert overhead_chart("t", [("a", row(percent=value, ci95_percent=None))]) is None


def test_the_axis_holds_everything_that_is_drawn() -> None:
    spec = overhead_chart("t", [("a", row(percent=-3.0)), ("b", row(percent=12.0))])
    assert spec is not None
    low, high = spec["layer"][-1]["encoding"]["x"]["scale"]["domain"]
    assert low < -3.6
    assert high > 12.7


def test_bars_of_the_waterfall_begin_where_their_parent_ends() -> None:
    (found,) = waterfalls([row("bare", "k8s", 1.0), row("k8s", "k8s+proxy", 5.0)])
    spec = waterfall_chart("t", [CPU], found)
    pod, proxy = rows_of(spec)
    assert (pod["start"], pod["end"]) == (0.0, pytest.approx(1.0))
    assert (proxy["start"], proxy["end"]) == (pytest.approx(1.0), pytest.approx(6.05))
    assert proxy["low"] == pytest.approx(100 * (1.01 * 1.044 - 1)), "the interval of its own cost, where the bar ends"
    assert proxy["text"] == "+5.0 % ✓"
    assert spec["layer"][-1]["data"]["values"] == [{"layer": "bare", "start": 0.0, "text": "0, the base"}]


def test_a_line_across_the_chart_is_drawn_once_and_not_once_per_row() -> None:
    for spec in everything():
        for layer in spec.get("layer", []):
            if any("datum" in channel for channel in layer["encoding"].values()):
                assert layer["data"] == {"values": [{}]}


def test_throughput_needs_two_cells_to_be_seen_beside_each_other() -> None:
    runs = (run_source(), run_source(environment="k8s", directory="results/k8s"))
    groups = chart_groups(measured_cells(runs))
    ((title, device), cells), *rest = groups.items()
    assert rest == []
    spec = throughput_chart(title, device, cells, ["bare", "k8s"])
    assert spec is not None
    assert [drawn["label"] for drawn in rows_of(spec)] == ["bare", "k8s"]
    assert rows_of(spec)[0]["low"] < rows_of(spec)[0]["high"]
    assert throughput_chart(title, device, cells[:1], ["bare", "k8s"]) is None


def test_one_environment_shows_its_batch_sizes_in_one_chart() -> None:
    run = run_source(benchmark("a", batch_size=1), benchmark("b", batch_size=8))
    ((key, cells),) = chart_groups(measured_cells([run])).items()
    assert key == ("resnet50 offline", CPU)
    assert [label for label, _ in cells] == ["bare b1", "bare b8"]


def test_two_runs_of_one_environment_are_told_apart_by_their_directories() -> None:
    cells = measured_cells([run_source(directory="results/monday"), run_source(directory="results/tuesday/")])
    assert [cell.label for cell in cells] == ["bare (monday)", "bare (tuesday)"]


def test_runs_on_two_devices_never_share_a_chart() -> None:
    runs = [run_source(), run_source(environment="k8s", device_label="GPU (A100)", directory="results/k8s")]
    assert [device for _, device in chart_groups(measured_cells(runs))] == [CPU, "GPU (A100)"]


def test_latency_curves_have_few_points_and_an_axis_of_nines() -> None:
    ((title, device), cells), *_ = chart_groups(measured_cells([run_source()])).items()
    spec = latency_chart(title, [device], curves_of(cells), ["bare b8"])
    assert spec is not None
    assert 50 < len(rows_of(spec)) <= 240
    assert rows_of(spec)[0]["nines"] == 1.0
    assert spec["encoding"]["x"]["axis"]["values"] == [1, 2, 10, 100]
    assert spec["encoding"]["y"]["scale"]["type"] == "linear"


def test_pairs_show_order_budget_and_interval() -> None:
    spec = pairs_chart("t", [CPU], series(), row())
    assert spec is not None
    assert [drawn["first"] for drawn in rows_of(spec)] == ["other side first", "base first", "other side first"]
    drawn = json.dumps(spec["layer"])
    assert '"y": {"datum": 5.0}' in drawn
    assert '"y2": {"datum": 3.9' in drawn


def test_pairs_without_numbers_are_left_out_and_many_are_thinned() -> None:
    some = series(time_s=(0.0, 1.0, math.nan), overhead_percent=(math.nan, 1.0, 2.0), b_first=(True, True, True))
    spec = pairs_chart("t", [CPU], some, None)
    assert spec is not None
    assert [drawn["percent"] for drawn in rows_of(spec)] == [1.0]
    none = series(time_s=(0.0,), overhead_percent=(math.inf,), b_first=(True,))
    assert pairs_chart("t", [CPU], none, None) is None
    many = series(time_s=tuple(range(9000)), overhead_percent=(1.0,) * 9000, b_first=(True,) * 9000)
    spec = pairs_chart("t", [CPU], many, None)
    assert spec is not None
    assert len(rows_of(spec)) == MOST_POINTS


def test_telemetry_draws_what_was_sampled() -> None:
    telemetry: dict[str, list[float | None]] = {
        "time_ns": [5e9, 6e9, 7e9],
        "own_busy_percent": [None, 50.0, math.nan],
        "gpu_utilisation_percent": [1.0, 2.0, 3.0],
    }
    spec = telemetry_chart("t", CPU, telemetry)
    assert spec is not None
    assert {(drawn["what"], drawn["s"], drawn["percent"]) for drawn in rows_of(spec)} == {
        ("GPU", 0.0, 1.0), ("GPU", 1.0, 2.0), ("GPU", 2.0, 3.0), ("own CPU", 1.0, 50.0),
    }  # fmt: skip
    assert telemetry_chart("t", CPU, {"time_ns": [], "own_busy_percent": []}) is None
    assert telemetry_chart("t", CPU, {}) is None
