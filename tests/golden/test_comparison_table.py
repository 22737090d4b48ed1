"""The whole table of a comparison, from a hand-made document."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from gputax.report.comparison_tables import not_judged
from gputax.report.exporters.console_text import Screen, write_console
from gputax.report.notices import UNPAIRED
from gputax.report.story import report_on
from gputax.results.documents.base import WarningRecord
from gputax.results.documents.comparison import ComparedMetric, Comparison, Side

GOLDEN = Path(__file__).parent / "comparison_table.txt"


def metric(name: str, verdict: Any, **changes: Any) -> ComparedMetric:
    values: dict[str, Any] = {
        "workload": "resnet50", "scenario": "single-stream", "batch_size": 1, "metric": name, "unit": "ms",
        "base": "bare", "other": "k8s+proxy", "base_value": 10.0, "other_value": 10.32, "overhead_percent": 3.2,
        "ci95_percent": (2.6, 3.8), "overhead_absolute": 0.32, "ci95_absolute": (0.26, 0.38), "budget": 5.0,
        "budget_unit": "%", "verdict": verdict, "reason": "upper bound 3.7 % is below the budget of 5 %",
        "paired": False, "claim": "CPU number, not a GPU's",
    }  # fmt: skip
    return ComparedMetric(**{**values, **changes})


def document(*metrics: ComparedMetric, **changes: Any) -> Comparison:
    label = "CPU (Test CPU), not a GPU"
    sides = tuple(
        Side(label=name, environment=name, device_label=label, source=f"results/{name}", format="gputax")
        for name in ("bare", "k8s+proxy", "k8s+xen")
    )
    values: dict[str, Any] = {
        "kind": "compare", "gputax_version": "0", "timestamp": "2026-01-01T00:00:00+00:00",
        "question": "What do k8s+proxy and k8s+xen cost over bare?", "command": "gputax compare a b c", "sides": sides,
    }  # fmt: skip
    return Comparison(metrics=metrics, **{**values, **changes})


def shown(comparison: Comparison) -> str:
    stream = io.StringIO()
    write_console(report_on(comparison), stream, "screen", 80)
    Screen(stream, 80).notes(not_judged(comparison))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def test_the_whole_table() -> None:
    busy = [WarningRecord(code="busy", text=f"bare: others used {share} %", value=share) for share in (12, 55)]
    nothing: dict[str, Any] = dict.fromkeys(
        ("base_value", "other_value", "overhead_percent", "ci95_percent", "overhead_absolute", "ci95_absolute")
    )
    text = shown(
        document(
            metric("latency_mean", "pass", warnings=(busy[0],)),
            metric("latency_p50", "pass", warnings=(busy[1],)),
            metric(
                "latency_p99", "inconclusive", base_value=12.0, other_value=13.5, overhead_absolute=1.5,
                ci95_absolute=(0.2, None), budget=2.0, budget_unit="ms", reason="the budget lies between",
            ),
            metric(
                "throughput", "fail", scenario="offline", batch_size=8, unit="samples/s", base_value=41500.0,
                other_value=38000.0, overhead_percent=9.21, ci95_percent=(8.8, 9.7), reason="lower bound is above",
            ),
            metric(
                "throughput", "not comparable", scenario="offline", batch_size=8, unit="samples/s", other="k8s+xen",
                reason="threads: 2 and 4", **nothing,
            ),
            metric(
                "over_bound_share", "inconclusive", scenario="server", batch_size=32, unit="%", other="k8s+xen",
                base_value=0.0, other_value=0.4, overhead_percent=0.4, ci95_percent=None, budget=1.0,
                reason="k8s+xen has no samples", claim="",
            ),
            settings={
                "not_judged": [
                    {"cell": "resnet50 offline batch 8", "metric": "latency_p50", "unit": "ms", "base": "bare",
                     "other": "k8s+proxy", "base_value": 6.25, "other_value": 6.5}
                ]
            },
            warnings=(WarningRecord(code="unpaired", text="unpaired: weaker"),),
        )
    )  # fmt: skip
    if os.environ.get("GPUTAX_WRITE_GOLDEN"):  # by hand, and then read what has changed
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_hostile_names_are_shown_as_text() -> None:
    name = "<script>[bold]x[/bold]\x1b[31m"
    text = shown(document(metric("latency_mean", "fail", workload=name, reason="[red]no[/red]\x07")))
    assert "<script>[bold]x" in text
    assert "[red]no[/red]" in text
    assert not {"\x1b", "\x07"} & set(text)


def test_a_metric_that_nobody_knows_keeps_its_name() -> None:
    assert "tokens_per_joule" in shown(document(metric("tokens_per_joule", "pass")))


def test_a_verdict_that_its_numbers_do_not_show_has_its_reason() -> None:
    same = {"workload": "unknown", "scenario": "unknown", "batch_size": None, "reason": "bare has no samples"}
    text = shown(document(*(metric(name, "inconclusive", **same) for name in ("latency_mean", "latency_p99"))))
    assert "mean latency; p99 latency: bare has no samples\n" in text, "one reason for several metrics is said once"


def test_an_overhead_near_its_budget_is_not_rounded_onto_it() -> None:
    text = shown(document(metric("latency_mean", "fail", overhead_percent=5.04, ci95_percent=(3.1, 12.0))))
    assert "+5.04 % (+3.10 to +12.00)" in text
    text = shown(document(metric("latency_mean", "fail", overhead_percent=7.0, ci95_percent=(4.996, 12.0))))
    assert "+7.000 % (+4.996 to +12.000)" in text


def test_that_it_is_unpaired_is_said_once_below_the_table() -> None:
    report = report_on(
        document(metric("latency_mean", "pass"), warnings=(WarningRecord(code="unpaired", text="weak"),))
    )
    assert [fact.text for fact in report.facts] == [UNPAIRED]
    assert not report.remarks


def test_what_was_refused_does_not_look_as_if_it_had_decided() -> None:
    refused = {"base_value": None, "other_value": None, "overhead_percent": None, "reason": "p99 needs 662"}
    text = shown(document(metric("latency_p99", "inconclusive", decides=False, **refused)))
    assert "– not judged" in text
    assert "p99 latency: p99 needs 662" in text
