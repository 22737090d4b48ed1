"""The block that answers a duet on a console: the range that decided, noise and evidence, in about ten lines."""

from __future__ import annotations

import io
from typing import Any

import pytest

from gputax.report.duet import range_used, why_facts
from gputax.report.exporters.console_text import write_console
from gputax.report.exporters.markdown_text import markdown_text
from gputax.report.exporters.summary_text import summary_text
from gputax.report.story import report_on
from gputax.results.documents.base import WarningRecord
from gputax.results.documents.comparison import Comparison, Explanation, Resolution, Verdict
from tests.builders.documents import comparison, metric, p99, side

CELL: dict[str, Any] = {"scenario": "single-stream", "batch_size": 1}
PASSED = "upper bound 3.61 % is below the budget of 5 % (one-sided 95 %)"
COUNTED = {"layer": "proxy", "active": True, "calls_by_worker": 1_204_331, "calls_by_proxy": 1_204_331}


def document(**changes: Any) -> Comparison:
    sides = (
        side("bare").model_copy(update={"evidence": {"layer": "none", "active": True}}),
        side("k8s+proxy").model_copy(update={"evidence": COUNTED}),
    )
    values: dict[str, Any] = {"sides": sides, "settings": {"restarts": 3, "seconds": 5.2}}
    rows = (metric(**CELL, reason=PASSED), p99(**CELL, verdict="pass", reason="upper bound 1.2 ms is below the budget"))
    return comparison(*rows, **{**values, **changes})


def shown(document: Comparison, width: int = 80) -> str:
    stream = io.StringIO()
    write_console(report_on(document), stream, "screen", width)
    return stream.getvalue()


def test_one_workload_is_answered_in_ten_lines() -> None:
    lines = shown(document(warnings=())).splitlines()
    assert len(lines) <= 10, lines
    assert "k8s+proxy vs bare · resnet50 single-stream · CPU (Test CPU), not a GPU · " in " ".join([*lines, ""])
    assert "in 5 s, 3 restarts" in " ".join(lines[:2])
    (row,) = [line for line in lines if line.startswith("throughput")]
    assert row.endswith("+3.2 %   ≤ 3.6 %     5 %  ✓ pass")
    assert "Evidence: k8s+proxy: 1,204,331 calls counted on both sides." in lines


@pytest.mark.parametrize(
    ("verdict", "bounds", "reason", "text"),
    [
        ("pass", (1.6, 3.6), "", "≤ 3.6 %"),
        ("fail", (5.04, 9.0), "", "≥ 5.04 %"),
        ("inconclusive", (-4.13, 10.5), "", "−4.1 to 10.5 %"),
        ("inconclusive", (1.6, 3.6), "others were at work; otherwise this would be a pass: …", "≤ 3.6 %"),
        # as earlier versions stored them
        ("pass", None, PASSED, "≤ 3.6 %"),
        ("fail", None, "lower bound 3.01e+03 % is above the budget of 5 % (one-sided 95 %)", "≥ 3,010 %"),
        ("pass", None, "somebody wrote this by hand", "95 % CI +2.6 to +3.9"),
    ],
)
def test_the_range_is_the_one_that_decided(
    verdict: Verdict, bounds: tuple[float, float] | None, reason: str, text: str
) -> None:
    assert range_used(metric(verdict=verdict, bounds=bounds, reason=reason)) == text


def test_a_verdict_that_was_withheld_says_why() -> None:
    reason = f"the machine was busy; otherwise this would be a pass: {PASSED}"
    text = shown(document(metrics=(metric(**CELL, verdict="inconclusive", reason=reason, pairs_needed=None),)))
    assert "throughput: the machine was busy\n" in text


def test_a_control_that_found_what_is_not_there_is_marked() -> None:
    control = Resolution(
        half_width_percent=9.5, ci95_percent=(-18.8, -1.8), pairs=194, seconds=3.0, contains_zero=False
    )
    text = shown(document(resolution=control))
    assert "Noise: ±9.5 % (A against A, 194 pairs in 3 s); 95 % CI −18.8 to −1.8, without 0.\n" in text


def test_each_kind_of_warning_is_one_line_with_its_worst_value() -> None:
    busy = [WarningRecord(code="busy-neighbours", text=f"{v} % used by others", value=v) for v in (40.0, 182.0)]
    pairs = [WarningRecord(code="pairs", text=text) for text in ("drift: it moved", "outliers, kept: 3 pairs")]
    text = shown(document(warnings=tuple(busy + pairs)))
    assert text.count("Warning: ") == 3
    assert "up to 182 %" in text
    assert "drift: it moved" in text
    assert "outliers, kept" in text


def why(workload: str, code: str | None, text: str, slower: str = "k8s+proxy") -> Explanation:
    return Explanation(workload=workload, slower=slower, code=code, text=text)


def test_the_cause_of_a_difference_is_one_line_in_every_format() -> None:
    explained = document(warnings=(), explanations=(why("resnet50", "cpu-quota", "CPU quota throttling: 3 ms"),))
    line = "Why k8s+proxy is slower: CPU quota throttling: 3 ms."
    assert line in shown(explained).splitlines()
    report = report_on(explained)
    assert all(line in text for text in (markdown_text(report).replace("\\", ""), summary_text(report)))


def test_workloads_with_one_cause_share_a_line_and_a_slow_load_has_its_own() -> None:
    rows = [metric(**CELL, workload=name) for name in ("u", "v", "w")]
    explained = comparison(*rows, explanations=(
        why("u", "host-calls", "host calls: 9 µs"), why("v", "host-calls", "host calls: 8 µs"), why("w", None, "none"),
        why("u", "load-storage", "loading takes 3 s longer"),
    ))  # fmt: skip
    assert [fact.text for fact in why_facts(explained)] == [
        "Why k8s+proxy is slower (u and v): host calls: 9 µs.",
        "Why k8s+proxy is slower (w): none.",
        "k8s+proxy: loading takes 3 s longer.",
    ]
