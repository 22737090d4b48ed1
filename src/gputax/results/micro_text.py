"""`micro_results.txt`: the operations as text in the users' own format, which `gputax compare` can read.

The key metrics are one unnamed cell, as in the users' own files, so that both can be compared. The table of
all operations below is for reading; the record next to it has every number.
"""

from __future__ import annotations

from gputax.plan.micro import OPERATIONS, is_micro
from gputax.results.documents.run import Benchmark, RunRecord
from gputax.text import digits

FILE_NAME = "micro_results.txt"
HEADINGS = ("operation", "ops/sec", "mean us", "p50 us", "p90 us", "p99 us", "GB/s", "runs")


def micro_text(record: RunRecord) -> str:
    """Return the text, empty if no operation was measured; invalid ones are listed without a number."""
    measured = [benchmark for benchmark in record.cells if is_micro(benchmark.workload)]
    if not measured:
        return ""
    lines = [
        "GPU benchmark of the driver's operations, by gputax",
        f"Device: {record.gpu_info.name.removeprefix('no GPU used: ')}",
        f"Environment: {record.environment}, on {record.device_label}",
        f"Date: {record.timestamp}",
        "",
        *_key_metrics({benchmark.workload: benchmark for benchmark in measured if benchmark.valid}),
        "All operations",
        _row(HEADINGS),
        *(_row(_cells(benchmark)) for benchmark in measured),
    ]
    return "\n".join(lines) + "\n"


def _key_metrics(valid: dict[str, Benchmark]) -> list[str]:
    lines: list[str] = []
    operation = valid.get("micro:operation")
    if operation is not None:
        percentiles = (("p50", operation.latency_p50_ms), ("p99", operation.latency_p99_ms))
        lines += [
            f"- Throughput: {operation.throughput_samples_per_sec:,.1f} ops/sec",
            f"- Average Latency: {operation.latency_mean_ms:.6f} ms",
            *(f"- {name} Latency: {value:.6f} ms" for name, value in percentiles if value is not None),
        ]
    copies = [(valid.get(f"micro:{kind}-100MB"), short) for kind, short in (("copy-in", "H2D"), ("copy-out", "D2H"))]
    rates = [(each.bandwidth_gb_per_s, short) for each, short in copies if each is not None]
    known = [f"{digits(rate, 4)} GB/s ({short})" for rate, short in rates if rate is not None]
    lines += [f"- Memory Bandwidth: {', '.join(known)}"] if known else []
    title = f"Key Metrics (one op is {OPERATIONS['micro:operation'].title}; bandwidth of 100 MB)"
    return [title, *lines, ""] if lines else []


def _cells(benchmark: Benchmark) -> tuple[str, ...]:
    if not benchmark.valid:
        return (benchmark.workload, "INVALID", *[""] * (len(HEADINGS) - 2))
    latencies = (
        benchmark.latency_mean_ms,
        benchmark.latency_p50_ms,
        benchmark.latency_p90_ms,
        benchmark.latency_p99_ms,
    )
    bandwidth = benchmark.bandwidth_gb_per_s
    return (
        benchmark.workload,
        f"{benchmark.throughput_samples_per_sec:,.1f}",
        *("-" if value is None else f"{1000.0 * value:.3f}" for value in latencies),
        "" if bandwidth is None else f"{bandwidth:.4g}",
        str(benchmark.queries),
    )


def _row(cells: tuple[str, ...]) -> str:
    first, *rest = cells
    return (f"  {first:<22}" + "".join(f"{cell:>13}" for cell in rest)).rstrip()
