"""Results of load generators against each other: equal definitions are compared, two under one name are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputax.compare.document import compare_sources
from gputax.plan.budgets import Budgets
from gputax.results.documents.comparison import ComparedMetric
from gputax.results.importers.detect import read_source

FILES = Path(__file__).parents[1] / "results/token_tools"
Gputax = Callable[..., Any]


def test_equal_definitions_under_different_names_are_compared_with_intervals() -> None:
    rows = _rows("aiperf", "inference-perf")
    assert rows["tpot_p50"].verdict == "inconclusive"
    assert rows["tpot_p50"].base_value == pytest.approx(26.7, abs=0.1)
    for name in ("ttft_p50", "tpot_p50", "itl_p50", "itl_p99", "latency_p50"):
        assert rows[name].ci95_percent is not None, name
        assert rows[name].spread == "within one run"
    assert "ITL is compared as tpot" in " ".join(warning.text for warning in rows["tpot_p50"].warnings)


def test_percentiles_below_their_floor_are_refused() -> None:
    row = _rows("aiperf", "inference-perf")["ttft_p99"]
    assert (row.verdict, row.base_value, row.decides) == ("inconclusive", None, False)
    assert row.reason == "p99 needs 662 samples on each side, there are 70 and 78"


def test_two_definitions_under_one_name_are_refused_and_both_are_named() -> None:
    rows = _rows("vllm-bench.json", "guidellm")
    assert rows["itl_p50"].verdict == rows["ttft_p50"].verdict == rows["latency_p50"].verdict == "not comparable"
    assert rows["itl_p50"].differences == (
        "two definitions under one name: ITL of vLLM bench serve counts each gap between two chunks of a response and "
        "ITL of guidellm counts (last - first token) / (tokens - 1) of each request",
    )
    assert "connecting included" in rows["ttft_p50"].differences[0]
    assert "connecting excluded" in rows["ttft_p50"].differences[0]
    assert rows["tpot_p50"].verdict == "inconclusive"  # guidellm's ITL and vLLM's TPOT count the same
    assert rows["tpot_p50"].ci95_percent is not None


def test_force_shows_the_numbers_of_two_definitions() -> None:
    row = _rows("vllm-bench.json", "guidellm", force=True)["ttft_p50"]
    assert row.verdict == "not comparable"
    assert row.base_value == pytest.approx(204.3, abs=0.1)


def test_a_summary_gives_a_difference_without_an_interval() -> None:
    row = _rows("vllm-bench-summary.json", "llm-d-report.yaml")["ttft_p50"]
    assert row.verdict == "inconclusive"
    assert row.overhead_percent == pytest.approx(-1.4, abs=0.1)
    assert row.ci95_percent is None


def test_the_command_line_compares_and_reports_them(gputax: Gputax) -> None:
    done = gputax("compare", str(FILES / "vllm-bench.json"), str(FILES / "guidellm"), "--json")
    assert done.returncode == 7
    assert "two definitions under one name" in done.stdout
    done = gputax("report", str(FILES / "aiperf"), str(FILES / "inference-perf"), "--format", "table")
    assert done.returncode == 0, done.stderr
    assert "p50 time per output token" in done.stdout


def test_one_result_of_another_tool_is_not_a_report_and_says_what_to_do(gputax: Gputax) -> None:
    done = gputax("report", str(FILES / "aiperf/profile_export.jsonl"), "--format", "table")
    assert done.returncode == 5
    assert "one result of another tool" in done.stderr
    assert "gputax compare" in done.stderr


def _rows(base: str, other: str, *, force: bool = False) -> dict[str, ComparedMetric]:
    comparison = compare_sources(read_source(FILES / base), [read_source(FILES / other)], Budgets(), force=force)
    return {row.metric: row for row in comparison.metrics}
