"""The table of `micro`'s operations: rates, latencies in microseconds, bandwidths."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from gputax.plan.micro import OPERATIONS
from gputax.results.documents.run import Benchmark

COLUMNS = ("operations/s", "mean µs", "p50 µs", "p90 µs", "p99 µs", "GB/s", "runs")


def micro_table(title: str, benchmarks: Sequence[Benchmark]) -> Table:
    """Return one row per operation."""
    table = Table(title=Text(title), title_justify="left")
    table.add_column("operation")
    table.add_column("what one run does")
    for name in COLUMNS:
        table.add_column(name, justify="right")
    for benchmark in benchmarks:
        table.add_row(*_row(benchmark))
    return table


def _row(benchmark: Benchmark) -> tuple[str, ...]:
    operation = OPERATIONS[benchmark.workload]
    latencies = (
        benchmark.latency_mean_ms,
        benchmark.latency_p50_ms,
        benchmark.latency_p90_ms,
        benchmark.latency_p99_ms,
    )
    return (
        benchmark.workload + ("" if benchmark.valid else "  INVALID"),
        operation.title,
        f"{benchmark.throughput_samples_per_sec:,.0f}"
        if benchmark.throughput_samples_per_sec >= 100
        else f"{benchmark.throughput_samples_per_sec:.3g}",
        *(_microseconds(value) for value in latencies),
        "" if benchmark.bandwidth_gb_per_s is None else f"{benchmark.bandwidth_gb_per_s:.3g}",
        str(benchmark.queries),
    )


def _microseconds(value_ms: float | None) -> str:
    if value_ms is None:
        return "–"
    value = 1000.0 * value_ms
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
