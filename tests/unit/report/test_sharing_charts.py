"""Charts of sharing are data: what they draw is read from their specs, and the colours from the palette."""

from __future__ import annotations

import itertools
import json
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from gputax.report.charts.sharing import AGGREGATE, JAIN, MEAN, P99, STEPS, neighbours_chart, tenants_chart
from gputax.report.charts.theme import PALETTE, SHAPES, colour
from gputax.report.sharing_answers import Experiment, experiments_of, techniques_of
from gputax.report.story import build_report
from gputax.report.svg import inline_svg
from gputax.results.documents.sharing import SharedFigure, SharingRecord
from tests.builders.documents import CPU
from tests.builders.shared_documents import (
    GPU,
    figure,
    gpu_record,
    neighbour,
    neighbours_record,
    shared,
    shared_row,
    sharing_record,
)

VICTIM = "micro single-stream"


def experiment(record: SharingRecord) -> Experiment:
    (found,) = experiments_of(shared(record).sharing)
    return found


def drawn(record: SharingRecord, measure: Any = MEAN) -> dict[str, Any]:
    made = experiment(record)
    spec = tenants_chart(made, measure, techniques_of([made]))
    assert spec is not None
    return spec


def values(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return list(spec["data"]["values"])


def heat(*rows: Any) -> dict[tuple[str, str], dict[str, Any]]:
    spec = neighbours_chart(experiment(neighbours_record(neighbours=rows)), VICTIM)
    assert spec is not None
    return {(cell["technique"], cell["aggressor"]): cell for cell in values(spec)}


def test_each_technique_is_a_line_by_tenants_with_its_intervals() -> None:
    points = [row for row in values(drawn(sharing_record())) if row["label"] == "cpu-shared (stand-in)"]
    assert [(row["tenants"], row["value"]) for row in points] == [(1, 60.0), (3, 114.0), (5, 168.0), (7, 222.0)]
    assert (points[-1]["low"], points[-1]["high"]) == pytest.approx((217.56, 226.44))
    assert points[-1]["tip"] == (
        "cpu-shared (stand-in), 7 tenants: 222 ms (95 % CI 217.6 to 226.4), each may use up to all cores"
    )


def test_what_is_invalid_is_not_drawn() -> None:
    places = {(row["label"], row["tenants"]) for row in values(drawn(gpu_record()))}
    assert ("MPS", 5) in places
    assert ("MPS", 7) not in places


def test_a_refused_percentile_is_not_drawn() -> None:
    rows = tuple(shared_row("mps", count, p99_ms=figure(None if count < 5 else 100.0)) for count in (1, 3, 5, 7))
    spec = drawn(sharing_record(("mps",), rows=rows), P99)
    assert [row["tenants"] for row in values(spec)] == [5, 7]


def test_fairness_is_drawn_for_tenants_that_are_not_alone_on_an_axis_that_ends_at_1() -> None:
    spec = drawn(sharing_record(), JAIN)
    assert {row["tenants"] for row in values(spec)} == {3, 5, 7}
    assert spec["layer"][0]["encoding"]["y"]["scale"]["domain"] == [0.9, 1.01]
    unfair = tuple(shared_row("mps", count, jain=figure(0.5, None)) for count in (3, 7))
    low, _ = drawn(sharing_record(("mps",), rows=unfair), JAIN)["layer"][0]["encoding"]["y"]["scale"]["domain"]
    assert low <= 0.5


def test_intervals_of_fairness_end_with_their_axis_at_1_and_are_told_whole() -> None:
    wide = SharedFigure(value=0.98, ci95=(1 / 3, 1.0))
    spec = drawn(sharing_record(("mps",), rows=tuple(shared_row("mps", n, jain=wide) for n in (3, 7))), JAIN)
    low, high = spec["layer"][0]["encoding"]["y"]["scale"]["domain"]
    assert (low, high) == (0.9, 1.01)
    assert {(row["low"], row["high"]) for row in values(spec)} == {(0.9, 1.0)}, "cut below, never beyond 1"
    assert "0.3333 to 1)" in values(spec)[0]["tip"]


def test_latency_and_throughput_begin_at_nothing() -> None:
    for measure in (MEAN, P99, AGGREGATE):
        low, high = drawn(sharing_record(), measure)["layer"][0]["encoding"]["y"]["scale"]["domain"]
        assert low == 0.0
        assert high > max(row["value"] for row in values(drawn(sharing_record(), measure)))


def test_points_at_one_number_of_tenants_stand_beside_each_other() -> None:
    rows = [row for row in values(drawn(gpu_record())) if row["tenants"] == 3]
    assert len({row["x"] for row in rows}) == 3
    assert all(abs(row["x"] - 3) < 0.5 for row in rows)


def test_a_huge_interval_of_two_repeats_does_not_press_the_figures_to_the_floor() -> None:
    wide = SharedFigure(value=100.0, ci95=(0.1, 90_000.0))
    spec = drawn(sharing_record(("mps",), rows=tuple(shared_row("mps", n, mean_ms=wide) for n in (1, 3))))
    top = spec["layer"][0]["encoding"]["y"]["scale"]["domain"][1]
    assert top < 200.0
    assert {row["high"] for row in values(spec)} == {top}, "cut at the edge"
    assert "90,000" in values(spec)[0]["tip"], "and shown whole"


@pytest.mark.parametrize("measure", [MEAN, P99, AGGREGATE, JAIN])
def test_one_point_alone_is_no_chart(measure: Any) -> None:
    made = experiment(sharing_record(("cpu-shared",), (7,)))
    assert tenants_chart(made, measure, techniques_of([made])) is None


def test_one_number_of_tenants_still_shows_techniques_beside_each_other() -> None:
    spec = drawn(sharing_record(tenants=(7,)))
    assert [row["label"] for row in values(spec)] == ["cpu-shared (stand-in)", "cpu-quota (stand-in)"]


def test_a_technique_keeps_colour_and_shape_in_every_chart_of_the_report() -> None:
    report = build_report(shared(sharing_record(), sharing_record(("cpu-quota",))))
    looks = set()
    for chart in (*report.answer_charts, *(chart for section in report.sections for chart in section.charts)):
        points = chart.spec["layer"][-1]["encoding"]
        labels = points["color"]["scale"]["domain"]
        place = labels.index("cpu-quota (stand-in)")
        looks.add((points["color"]["scale"]["range"][place], points["shape"]["scale"]["range"][place]))
    assert looks == {(colour("series 2"), SHAPES[1])}


def test_colour_is_never_the_only_sign() -> None:
    points = drawn(gpu_record())["layer"][-1]["encoding"]
    assert len(set(points["shape"]["scale"]["range"])) == 3


def test_charts_of_two_devices_are_two_charts() -> None:
    report = build_report(shared(sharing_record(), gpu_record()))
    overview, *charts = report.charts
    for chart in charts:
        (device,) = {" ".join(chart.spec["title"]["subtitle"])}
        assert device in (CPU, GPU)
        assert chart.title.endswith(f"on {device}")
    assert len([chart for chart in charts if chart.name.startswith("sharing-latency")]) == 2
    devices = {row["own"].removeprefix("on ") for row in overview.spec["data"]["values"]}
    assert devices == {CPU, GPU}, "rows of two devices name their own"


def test_every_spec_is_strict_json_without_a_reference_to_fetch() -> None:
    report = build_report(shared(gpu_record(), neighbours_record()))
    assert {chart.name.rsplit("-", 1)[0] for chart in report.charts} == {
        "overview", "sharing-latency", "sharing-p99", "sharing-throughput", "sharing-fairness", "neighbours",
    }  # fmt: skip
    for chart in report.charts:
        text = json.dumps({key: value for key, value in chart.spec.items() if key != "$schema"}, allow_nan=False)
        assert "http" not in text
        assert '"url"' not in text


def test_every_chart_has_its_table_beside_it_or_in_the_answer() -> None:
    report = build_report(shared(gpu_record(), neighbours_record()))
    assert all(chart.table is not None for chart in report.charts[1:]), "the first chart is the sum of them all"
    alone = build_report(shared(gpu_record()))
    assert [chart.name for chart in alone.charts[1:] if chart.table is None] == ["sharing-latency-1"]
    assert [table.name for table in alone.tables].count("sharing") == 1


def test_a_heat_map_has_the_number_in_each_cell_and_the_interval_in_its_sentence() -> None:
    cell = heat(neighbour(percent=38.0))["GPU proxy", "memory"]
    assert (cell["text"], cell["step"]) == ("+38.0 %", "≤ 100 %")
    assert cell["tip"] == "GPU proxy, memory: +38.0 % (95 % CI +35.0 to +41.0)"


@pytest.mark.parametrize(
    ("percent", "step"),
    [(-4.0, 0), (5.0, 0), (5.1, 1), (25.0, 1), (99.0, 2), (300.0, 3), (301.0, 4), (1e9, 4)],
)
def test_steps_of_the_scale(percent: float, step: int) -> None:
    assert heat(neighbour(percent=percent))["GPU proxy", "memory"]["step"] == STEPS[step][1]


def test_what_is_not_distinguishable_from_none_stands_in_brackets() -> None:
    cell = heat(neighbour(percent=1.0))["GPU proxy", "memory"]
    assert cell["text"] == "(+1.0 %)"
    assert cell["tip"].endswith("(95 % CI −2.0 to +4.0), not distinguishable from none")


@pytest.mark.parametrize("bounds", [(-20.6, 944.2), (None, None), (None, 900.0)])
def test_what_may_be_chance_has_no_colour_of_the_scale_however_large_it_is(bounds: Any) -> None:
    chance = neighbour(aggressor="crash", slowdown_percent=SharedFigure(value=400.0, ci95=bounds))
    spec = neighbours_chart(experiment(neighbours_record(neighbours=(neighbour(percent=5.0), chance))), VICTIM)
    assert spec is not None
    cells = {cell["aggressor"]: cell for cell in values(spec)}
    assert (cells["crash"]["step"], cells["crash"]["unclear"]) == ("", True)
    assert (cells["memory"]["step"], cells["memory"]["unclear"]) == ("≤ 5 %", False)
    (pale,) = [layer for layer in spec["layer"] if layer.get("transform") == [{"filter": "datum.unclear"}]]
    assert (pale["mark"]["color"], pale["mark"]["strokeDash"]) == (colour("paper"), [3, 3])


def test_a_matrix_of_chance_alone_is_drawn_without_a_colour() -> None:
    assert heat(neighbour(percent=1.0), neighbour(aggressor="crash", percent=-1.0)).keys() == {
        ("GPU proxy", "memory"), ("GPU proxy", "crash"),
    }  # fmt: skip


def test_invalid_and_unmeasured_cells_have_words_and_no_colour_of_the_scale() -> None:
    cells = heat(neighbour(), neighbour("cpu-quota", "crash", valid=False), neighbour(aggressor="copies", percent=None))
    assert [(cells[key]["text"], cells[key]["step"]) for key in (
        ("cpu-quota (stand-in)", "crash"), ("GPU proxy", "crash"), ("GPU proxy", "copies"),
    )] == [("invalid", ""), ("–", ""), ("–", "")]  # fmt: skip
    assert cells["GPU proxy", "crash"]["tip"] == "GPU proxy, crash: not measured"


def test_without_a_valid_cell_there_is_no_heat_map() -> None:
    assert neighbours_chart(experiment(neighbours_record(neighbours=(neighbour(valid=False),))), VICTIM) is None


def test_a_pair_measured_twice_is_drawn_once() -> None:
    assert heat(neighbour(percent=10.0), neighbour(percent=12.0))["GPU proxy", "memory"]["text"] == "+12.0 %"


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", [0, 1])
def test_text_is_readable_on_every_step_and_steps_differ_also_in_grey(scheme: int) -> None:
    steps = [PALETTE[f"heat {i + 1}"][scheme] for i in range(len(STEPS))]
    for step in (*steps, PALETTE["band"][scheme]):
        assert contrast(step, PALETTE["ink"][scheme]) >= 4.5
    away = [contrast(step, PALETTE["paper"][scheme]) for step in steps]
    assert all(later > earlier * 1.1 for earlier, later in itertools.pairwise(away)), "each step is further from paper"


def test_drawings_speak_at_every_point_and_use_only_our_elements() -> None:
    pytest.importorskip("vl_convert", reason="charts need vl-convert-python")
    report = build_report(shared(gpu_record(), neighbours_record()))
    said = {
        element.get("aria-label", "")
        for chart in (report.charts[1], report.charts[-1])
        for element in ET.fromstring(inline_svg(chart)).iter()
        if element.get("role") == "graphics-symbol"
    }
    assert "MIG, 7 tenants: 344.4 ms (95 % CI 337.5 to 351.3), each may use 1g.10gb" in said
    assert "GPU proxy, launches: +720 % (95 % CI +717 to +723)" in said
    assert "GPU proxy, crash: the neighbour did not start again" in said
