"""Whole reports from hand-made documents, as text: Markdown, CSV and the terminal's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gputax.report.exporters.markdown_text import markdown_text
from gputax.report.model import Report
from gputax.report.output import report_text
from gputax.report.story import build_report
from gputax.results.documents.base import Failure, WarningRecord
from tests.builders.documents import benchmark, comparison, metric, p99, run_source, side, sources

HERE = Path(__file__).parent


def short_report() -> Report:
    """One duet: pass, fail, inconclusive and refused, beside each other."""
    return build_report(
        sources(
            comparison(
                metric(),
                p99(verdict="fail", overhead_percent=13.0, ci95_percent=(11.0, 15.5), overhead_absolute=2.6,
                    ci95_absolute=(2.2, 3.1), other_value=22.6),
                metric(scenario="single-stream", batch_size=1, metric="latency_p90", unit="ms", base_value=2.2,
                       other_value=2.3, percent=4.6, ci95_percent=(4.0, 5.2), verdict="inconclusive", pairs_needed=900),
                metric(scenario="single-stream", batch_size=1, metric="latency_p99", unit="ms", percent=None,
                       base_value=None, other_value=None, verdict="inconclusive", decides=False,
                       reason="p99 needs 662 samples, there are 300"),
                question="What does k8s+proxy cost over bare?",
            )
        )
    )  # fmt: skip


def long_report() -> Report:
    """A comparison on disk of four layers with one base, and the runs themselves."""
    slower: dict[str, Any] = {"verdict": "fail", "paired": False, "pairs": None}
    made = comparison(
        metric(other="container", percent=0.4, budget=1.0, ci95_percent=(0.1, 0.7)),
        metric(other="k8s", percent=0.7, budget=1.0, ci95_percent=(0.5, 0.9), budget_source="budget of the layer k8s"),
        metric(other="k8s+proxy", percent=6.1, **slower),
        metric(other="k8s+xen", percent=9.0, budget=10.0, verdict="not comparable", differences=("threads: 2 and 4",)),
        kind="compare", resolution=None, pair_series=(), settings={},
        sides=(side("bare"), *(side(name) for name in ("container", "k8s", "k8s+proxy")),
               side("k8s+xen", fingerprint={"host": {"cores": 2}, "threads": 4})),
        command="gputax compare results/bare results/k8s",
    )  # fmt: skip
    busy = WarningRecord(code="busy", text="Others used 12 %.", value=12)
    failure = Failure(cell="d", kind="EngineError", what="it broke [here]", next="look")
    runs = (
        run_source(benchmark(warnings=(busy,)), failures=(failure,)),
        run_source(
            benchmark("resnet50-offline-b8-k8s", environment="k8s", latency_p99_ms=7.7),
            benchmark("resnet50-server-b8-k8s", environment="k8s", scenario="server", latency_bound_ms=15.0,
                      judged_percentile=0.99),
            environment="k8s", directory="results/k8s", warnings=(busy,),
        ),
    )  # fmt: skip
    return build_report(sources(made, runs=runs))


def written(name: str) -> str:
    match name:
        case "report_duet.md":
            return markdown_text(short_report(), {"overhead-1": "comparison-overhead-1.svg"})
        case "report_layers.md":
            return report_text(long_report(), "markdown")
        case "report_layers.csv":
            return report_text(long_report(), "csv")
    text = report_text(short_report(), "table")
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


@pytest.mark.parametrize("name", ["report_duet.md", "report_layers.md", "report_layers.csv", "report_duet.txt"])
def test_the_whole_report(name: str) -> None:
    text = written(name)
    if os.environ.get("GPUTAX_WRITE_GOLDEN"):  # by hand, and then read what has changed
        (HERE / name).write_text(text)
    assert text == (HERE / name).read_text()
