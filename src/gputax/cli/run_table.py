"""The table at the end of a run, with what the numbers may be called and every warning that goes with them."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.table import Table

from gputax.results.record import Benchmark, RunRecord

WIDTH_WITHOUT_TERMINAL = 120


def run_table(record: RunRecord, directory: Path, stream: TextIO) -> None:
    """Write the run's results for people."""
    width = None if stream.isatty() else WIDTH_WITHOUT_TERMINAL
    console = Console(file=stream, highlight=False, width=width)
    table = Table(title=f"{record.environment} on {record.device_label}", title_justify="left")
    for title in ("workload", "scenario", "batch"):
        table.add_column(title)
    for title in ("samples/s", "p50 ms", "p90 ms", "p99 ms", "samples"):
        table.add_column(title, justify="right")
    table.add_column("LoadGen")
    for benchmark in record.benchmarks:
        table.add_row(*_row(benchmark))
    console.print(table)
    for failure in record.failures:
        console.print(f"FAILED {failure.cell}: {failure.what}", markup=False, style="red")
        if failure.next:
            console.print(f"       next: {failure.next}", markup=False)
    for line in notes(record):
        console.print(line, markup=False)
    console.print(f"Results: {directory}", markup=False)


def _row(benchmark: Benchmark) -> tuple[str, ...]:
    batch = str(benchmark.batch_size)
    if benchmark.scenario == "server":
        batch = f"≤{benchmark.batch_size} (mean {benchmark.mean_batch_size:.1f})"
    return (
        benchmark.workload,
        benchmark.scenario.replace("_", "-"),
        batch,
        _number(benchmark.throughput_samples_per_sec),
        _number(benchmark.latency_p50_ms),
        _number(benchmark.latency_p90_ms),
        _number(benchmark.latency_p99_ms),
        str(benchmark.samples),
        _judgement(benchmark),
    )


def _judgement(benchmark: Benchmark) -> str:
    if benchmark.loadgen is None:
        return "not used"
    text = "VALID" if benchmark.valid else "INVALID"
    if benchmark.latency_bound_ms is not None and benchmark.judged_percentile is not None:
        return f"{text} (p{100 * benchmark.judged_percentile:g} ≤ {benchmark.latency_bound_ms:.3g} ms)"
    return text


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def notes(record: RunRecord) -> list[str]:
    """Return what must be read with the table, each thing said once."""
    lines = [f"Claim: {claim}." for claim in dict.fromkeys(benchmark.claim for benchmark in record.benchmarks)]
    if any(benchmark.scenario in ("offline", "saturate") for benchmark in record.benchmarks):
        lines.append("Latency of offline and saturate is that of one batch.")
    for benchmark in record.benchmarks:
        if (benchmark.latency_bound_source or "").startswith("ours"):
            lines.append(f"Bound of {benchmark.cell}: {benchmark.latency_bound_source}.")
    lines += [f"Note: {warning.text}" for warning in record.warnings]
    return lines + _warnings(record.benchmarks)


def _warnings(benchmarks: tuple[Benchmark, ...]) -> list[str]:
    """Return one line per kind of warning: its worst case, and how many cells share it."""
    by_code: dict[str, list[tuple[float, str, str]]] = {}
    for benchmark in benchmarks:
        for warning in benchmark.warnings:
            by_code.setdefault(warning.code, []).append((abs(warning.value or 0.0), warning.text, benchmark.cell))
    lines = []
    for code, cases in by_code.items():
        if code == "too-few-samples":
            lines.append("–: too few samples for that percentile (p50 needs 10, p90 64, p95 130, p99 662).")
            continue
        _, text, cell = max(cases)
        cells = len({case[2] for case in cases})
        shared = f"; worst of {cells} cells" if cells > 1 else ""
        lines.append(f"Warning: {text} ({cell}{shared})")
    return lines
