"""The table at the end of a run, with what the numbers may be called and every warning that goes with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gputax.cli.micro_table import micro_table
from gputax.plan.micro import is_micro
from gputax.results.documents.run import Benchmark, RunRecord

WIDTH_WITHOUT_TERMINAL = 130
BATCH_SCENARIOS = ("offline", "saturate")
NO_SPREAD_PERCENT = 100.0


def run_table(record: RunRecord, directory: Path, stream: TextIO) -> None:
    """Write the run's results for people."""
    width = None if stream.isatty() else WIDTH_WITHOUT_TERMINAL
    console = Console(file=stream, highlight=False, width=width)
    threads = ", ".join(sorted({plural(each.threads, "thread") for each in record.benchmarks}))
    title = f"{record.environment} on {record.device_label}" + (f", {threads}" if threads else "")
    models = [each for each in record.benchmarks if not is_micro(each.workload)]
    operations = [each for each in record.benchmarks if is_micro(each.workload)]
    if models or not operations:
        console.print(_model_table(title, models))
    if operations:
        console.print(micro_table(title, operations))
    for failure in record.failures:
        console.print(f"FAILED {failure.cell}: {failure.what}", markup=False, style="red")
        if failure.next:
            console.print(f"       next: {failure.next}", markup=False)
    for line in notes(record):
        console.print(line, markup=False)
    console.print(f"Results: {directory}", markup=False)


def _model_table(title: str, benchmarks: Sequence[Benchmark]) -> Table:
    table = Table(title=Text(title), title_justify="left")
    for title in ("workload", "scenario", "batch"):
        table.add_column(title)
    for title in ("samples/s", "p50 ms", "p90 ms", "p99 ms", "samples"):
        table.add_column(title, justify="right")
    table.add_column("LoadGen")
    for benchmark in benchmarks:
        table.add_row(*_row(benchmark))
    return table


def _row(benchmark: Benchmark) -> tuple[str, ...]:
    batch, samples = str(benchmark.batch_size), str(benchmark.samples)
    rate = _number(benchmark.throughput_samples_per_sec)
    half_width = benchmark.throughput_half_width_percent
    if half_width is not None:
        # A few batches that drift carry no interval worth a number.
        rate += f" ±{half_width:.2g} %" if half_width < NO_SPREAD_PERCENT else " ±?"
    if benchmark.scenario == "server":
        batch = f"≤{benchmark.batch_size} (mean {benchmark.mean_batch_size:.1f})"
        rate += f" of {_number(benchmark.target_qps)} offered"
    if benchmark.scenario in BATCH_SCENARIOS:
        samples += f" in {benchmark.queries} batches"
    return (
        benchmark.workload,
        benchmark.scenario.replace("_", "-"),
        batch,
        rate,
        _number(benchmark.latency_p50_ms),
        _number(benchmark.latency_p90_ms),
        _number(benchmark.latency_p99_ms),
        samples,
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
    if any(each.scenario in BATCH_SCENARIOS and not is_micro(each.workload) for each in record.benchmarks):
        lines.append("Latency of offline and saturate is that of one batch.")
    if any(benchmark.loadgen and not benchmark.load.get("official") for benchmark in record.benchmarks):
        lines.append("VALID is LoadGen's word on this suite's own minimums; for offline that is the number of samples.")
    if any(not is_micro(benchmark.workload) for benchmark in record.benchmarks):
        lines.append(
            "± is the 95 % interval within this run (±?: too few batches to say); another run may differ by more."
        )
    for benchmark in record.benchmarks:
        lines += _server_notes(benchmark)
    if any("too-few-samples" in {each.code for each in benchmark.warnings} for benchmark in record.benchmarks):
        lines.append("–: too few queries or batches for that percentile (p50 needs 10, p90 64, p95 130, p99 662).")
    for number, started_at in enumerate(record.sessions, start=1):
        cells = [benchmark.cell for benchmark in record.benchmarks if benchmark.session == number]
        if len(record.sessions) > 1 and cells:
            lines.append(f"Measured in the session of {started_at}: {', '.join(cells)}.")
    lines += [f"Note: {warning.text}" for warning in record.warnings]
    return lines + _warnings(record.benchmarks)


def _server_notes(benchmark: Benchmark) -> list[str]:
    if benchmark.scenario != "server":
        return []
    lines = [f"Rate of {benchmark.cell}: {benchmark.rate_source}."]
    if (benchmark.latency_bound_source or "").startswith("ours"):
        lines.append(f"Bound of {benchmark.cell}: {benchmark.latency_bound_source}.")
    if not (benchmark.rate_source or "").startswith("given"):
        lines.append(
            f"To compare servers, pin both: --qps {benchmark.target_qps:.4g} --bound-ms {benchmark.latency_bound_ms:g}"
        )
    return lines


def plural(count: int, word: str) -> str:
    """Return the count with its word: 1 thread, 2 threads."""
    return f"{count} {word}" + ("" if count == 1 else "s")


def _warnings(benchmarks: tuple[Benchmark, ...]) -> list[str]:
    """Return one line per kind of warning: its worst case, and how many cells share it."""
    by_code: dict[str, list[tuple[float, str, str]]] = {}
    for benchmark in benchmarks:
        for warning in benchmark.warnings:
            by_code.setdefault(warning.code, []).append((abs(warning.value or 0.0), warning.text, benchmark.cell))
    lines = []
    for code, cases in by_code.items():
        if code == "too-few-samples":
            continue  # the table shows a dash, and one line above says why
        _, text, cell = max(cases)
        cells = len({case[2] for case in cases})
        shared = f"; worst of {cells} cells" if cells > 1 else ""
        lines.append(f"Warning: {text} ({cell}{shared})")
    return lines
