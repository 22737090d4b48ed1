"""The first screen: its title, its rows and its numbers."""

from __future__ import annotations

from typing import Any

import pytest

from gputax.report.model import Overview
from gputax.report.overview import MOST_ROWS, MOST_WORDS, WORD, limited
from gputax.report.story import build_report, report_on
from gputax.results.documents.comparison import ComparedMetric
from tests.builders.documents import CPU, HOSTILE, benchmark, comparison, metric, p99, run_source, side, sources
from tests.builders.shared_documents import gpu_record, neighbours_record, shared, sharing_record

FAIL: dict[str, Any] = {"verdict": "fail", "reason": "lower bound is above the budget"}
OPEN: dict[str, Any] = {"verdict": "inconclusive", "ci95_percent": (4.0, 6.0)}


def operation(name: str, percent: float, **changes: Any) -> ComparedMetric:
    values = {"scenario": "single-stream", "batch_size": 1, "metric": "latency_p50", "unit": "ms"}
    values |= {"base_value": 0.136, "other_value": 0.1395, "other": "bare+proxy"}
    return metric(**{**values, "percent": percent, "workload": f"micro:{name}", **changes})


def overview(*metrics: ComparedMetric) -> Overview:
    return report_on(comparison(*metrics)).overview


def rows(shown: Overview) -> list[dict[str, Any]]:
    assert shown.chart is not None
    return list(shown.chart.spec["data"]["values"])


def test_a_layer_is_summarised_by_the_typical_operation_and_a_failing_call_stands_beside_it() -> None:
    shown = overview(
        operation("allocate", 40.6, **FAIL),
        operation("operation", 2.6),
        operation("operation", 3.0, metric="latency_mean"),
    )
    assert shown.title.text == "GPU proxy adds 2.6 % to a typical operation: pass; 1 metric fails"
    assert shown.title.tone == "fail", "the colour of the title is that of the worst verdict"
    (row,) = rows(shown)
    assert row["text"] == "+2.6 % (+2.0 to +3.3) ✓ pass"
    assert row["worst"] == "✗ worst of 3: allocate p50 latency +40.6 %, fail"
    assert (row["value"], row["mark"]) == (2.6, 5.0)


def test_the_verdict_of_a_lone_metric_is_the_title() -> None:
    assert overview(metric()).title.text == "k8s+proxy costs 3.2 % of resnet50 offline throughput: pass"
    assert overview(metric(percent=5.0, **OPEN)).title.text.endswith(": undecided")
    assert overview(metric(percent=6.0, **FAIL)).title.text.endswith("throughput: fail")
    assert overview(metric(verdict="not comparable")).title.text == "k8s+proxy cannot be compared with bare"
    faster = overview(metric(percent=-1.2)).title.text
    assert faster == "k8s+proxy changes resnet50 offline throughput by −1.20 %: pass"


def test_every_layer_has_one_row_and_all_rows_show_the_same_metric() -> None:
    shown = overview(
        metric(other="container", percent=0.4, budget=1.0),
        metric(other="container", scenario="single-stream", batch_size=1, metric="latency_p50", percent=0.2),
        metric(other="k8s+proxy", percent=6.0, **FAIL),
    )
    assert shown.chart is not None
    axis = shown.chart.spec["layer"][-6]["encoding"]["x"]["axis"]["title"]
    assert axis == "overhead in throughput of resnet50 offline b8, % (right is worse)"
    assert [row["name"] for row in rows(shown)] == ["container over bare", "k8s+proxy over bare"]
    assert [row["value"] for row in rows(shown)] == [0.4, 6.0]
    assert shown.title.text == "k8s+proxy fails at +6.0 %; 1 of 2 layers pass"


def test_layers_without_a_common_metric_name_their_own() -> None:
    shown = overview(metric(other="container", percent=0.4), operation("operation", 2.6))
    assert [row["own"] for row in rows(shown)] == [
        "throughput of resnet50 offline b8",
        "p50 latency of micro:operation",
    ]


def test_a_typical_pass_among_layers_does_not_hide_that_another_metric_fails() -> None:
    shown = overview(metric(other="container", percent=0.4), metric(), p99(overhead_absolute=2.6, **FAIL))
    assert shown.title.text == "k8s+proxy costs +3.2 %; 1 metric fails; 1 of 2 layers pass"
    assert shown.title.tone == "fail"


def test_three_numbers_follow() -> None:
    numbers = [(number.text, number.label) for number in overview(operation("operation", 2.6)).numbers]
    assert numbers == [
        ("+2.6 %", "bare+proxy, p50 latency of micro:operation"),
        ("136 → 139.5 µs", "p50 latency of micro:operation, bare to bare+proxy"),
        ("±0.31 %", "noise floor: the base against itself"),
    ]


def test_runs_alone_show_their_cells() -> None:
    run = run_source(benchmark(), benchmark("b", batch_size=32, throughput_samples_per_sec=1600.0, valid=False))
    shown = build_report(sources(runs=(run,))).overview
    assert shown.title.text == "resnet50 on bare: 2 cells measured, 1 not valid"
    assert [row["name"] for row in rows(shown)] == ["resnet50 offline b8", "resnet50 offline b32"]
    assert rows(shown)[0]["text"].startswith("1,524 samples/s (")
    assert rows(shown)[1]["worst"] == "✗ not valid"


def test_tenants_that_share_show_their_slowdown() -> None:
    shown = build_report(shared(sharing_record())).overview
    assert "tenants: latency ×" in shown.title.text
    assert all("1 tenant" not in row["name"].replace("tenants", "") for row in rows(shown))
    assert all(row["text"].startswith("×") for row in rows(shown))
    beside = build_report(shared(neighbours_record())).overview
    assert beside.title.text.startswith("A ")
    assert " neighbour slows " in beside.title.text


@pytest.mark.parametrize(
    "made",
    [
        sources(comparison(metric(other=HOSTILE * 3, workload="many words in one name and then some more of them"))),
        sources(comparison(*(metric(other=f"layer {i} of many", percent=6.0, **FAIL) for i in range(12)))),
        sources(runs=(run_source(benchmark(workload="a workload with a very long name of many words indeed yes")),)),
        shared(gpu_record()),
    ],
)
def test_the_title_has_at_most_twelve_words_and_the_chart_one_screen_of_rows(made: Any) -> None:
    shown = build_report(made).overview
    assert len(WORD.findall(shown.title.text)) <= MOST_WORDS
    assert len(rows(shown)) <= MOST_ROWS


def test_a_cut_title_ends_with_a_sign_of_it() -> None:
    assert limited("one two three") == "one two three"
    assert limited(" ".join("abcdefghijklmn")) == "a b c d e f g h i j k l…"


def test_the_first_chart_names_device_and_date() -> None:
    shown = overview(metric())
    assert shown.chart is not None
    assert shown.chart.spec["title"]["subtitle"] == [CPU, "measured 2026-01-01 12:00 UTC"]
    two = comparison(metric(), sides=(side("bare", device_label="GPU (A100)"), side("k8s+proxy")))
    assert report_on(two).overview.chart is not None
