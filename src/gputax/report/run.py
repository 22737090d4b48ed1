"""The parts of a report that come from runs: cells, throughput, latency, host and device; tables and sections, pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from gputax.plan.servers import TOO_MANY_FAILED
from gputax.plan.workloads import OPERATIONS, is_micro
from gputax.report import wording
from gputax.report.charts.run import latency_chart, telemetry_chart, throughput_chart
from gputax.report.distributions import Curve
from gputax.report.energy import with_energy
from gputax.report.grouping import Measured, chart_groups, compared, curves_of
from gputax.report.model import Cell, Chart, Column, Section, Table, notes_once, text_cell
from gputax.report.sources import ComparisonSource, RunSource, Telemetry
from gputax.results.documents.run import Benchmark, RepeatedBenchmark
from gputax.text import percent

CELL_COLUMNS = (
    Column("workload", "workload"),
    Column("scenario", "scenario"),
    Column("batch_size", "batch", align="right"),
    Column("throughput", "throughput", "samples/s", "right", interval=True),
    Column("latency_mean", "mean", "ms", "right"),
    Column("latency_p50", "p50", "ms", "right"),
    Column("latency_p90", "p90", "ms", "right"),
    Column("latency_p99", "p99", "ms", "right"),
    Column("samples", "samples", align="right"),
    Column("loadgen", "LoadGen"),
    Column("cell", "cell", hidden=True),
    Column("latency_p95", "p95", "ms", hidden=True),
    Column("environment", "environment", hidden=True),
    Column("tenants", "tenants", hidden=True),
    Column("device", "device", hidden=True),
    Column("engine", "engine", hidden=True),
    Column("precision", "precision", hidden=True),
    Column("threads", "threads", hidden=True),
    Column("claim", "claim", hidden=True),
    Column("directory", "directory", hidden=True),
)
MODEL_COLUMNS = (
    Column("cell", "cell"),
    Column("throughput", "throughput", "samples/s", "right", interval=True, short="samples/s"),
    Column("latency_mean", "mean", "ms", "right", short="mean ms", spare=2),
    Column("latency_p50", "p50", "ms", "right", short="p50 ms"),
    Column("latency_p90", "p90", "ms", "right", short="p90 ms", spare=1),
    Column("latency_p99", "p99", "ms", "right", short="p99 ms"),
    Column("samples", "samples", align="right", spare=3),
    Column("verdict", "LoadGen"),
)
OPERATION_COLUMNS = (
    Column("operation", "operation"),
    Column("does", "what one run does", spare=4),
    Column("throughput", "rate", "operations/s", "right", short="ops/s"),
    Column("latency_mean", "mean", "µs", "right", short="mean µs"),
    Column("latency_p50", "p50", "µs", "right", short="p50 µs"),
    Column("latency_p90", "p90", "µs", "right", short="p90 µs", spare=3),
    Column("latency_p99", "p99", "µs", "right", short="p99 µs"),
    Column("bandwidth", "bandwidth", "GB/s", "right", short="GB/s", spare=1),
    Column("runs", "runs", align="right", spare=2),
)
# Column of the series -> heading, unit, how it is summed up. Only what was sampled is shown.
TELEMETRY: dict[str, tuple[str, str, Callable[[Sequence[float]], float]]] = {
    "gpu_utilisation_percent": ("GPU busy", "%", lambda values: float(np.mean(values))),
    "sm_clock_mhz": ("lowest SM clock", "MHz", min),
    "gpu_temperature_c": ("hottest", "°C", max),
    "power_w": ("power", "W", lambda values: float(np.mean(values))),
    "gpu_memory_used_mb": ("GPU memory", "MB", max),
    "own_busy_percent": ("own CPU", "%", lambda values: float(np.mean(values))),
    "others_busy_percent": ("other processes", "%", lambda values: float(np.mean(values))),
    "steal_percent": ("stolen", "%", lambda values: float(np.mean(values))),
    "throttled_ms": ("throttled by quota", "ms", lambda values: values[-1]),
    "rss_mb": ("memory", "MB", max),
}
RATE_NOTE = "The interval of a throughput covers variation within one run, not from run to run."


def cells_table(run: RunSource, cells: Sequence[Measured]) -> Table:
    """Return the figures of one run's cells."""
    record = run.record
    label = cells[0].label if cells else record.environment
    notes = [f"Claim: {claim}." for claim in dict.fromkeys(cell.benchmark.claim for cell in cells)]
    if any(cell.scenario in ("offline", "saturate") for cell in cells):
        notes.append("Latency of offline and saturate is that of one batch.")
    if any(None in _percentiles(cell.benchmark) for cell in cells):
        notes.append(wording.floors_note())
    notes += served_notes(cells)
    rows = tuple(_cell_row(cell) for cell in cells)
    if any(row[3].low is not None for row in rows):
        notes.append(_repeats(cells) or RATE_NOTE)
    title = wording.on_device(label, [record.device_label])
    table = Table("cells", title, CELL_COLUMNS, rows, tuple(notes), console=_console_tables(title, run, cells))
    return with_energy(table, _energies(cells), "samples", shared=False)


def _energies(cells: Sequence[Measured]) -> list[float | None]:
    return [cell.benchmark.joules_per_sample for cell in cells]


def _repeats(cells: Sequence[Measured]) -> str:
    """Return how many repeats the figures are means over; empty for a single run."""
    counts = sorted({cell.benchmark.repeats for cell in cells if isinstance(cell.benchmark, RepeatedBenchmark)})
    repeats = f"{' or '.join(map(str, counts))} repeats"
    return f"Means over {repeats}, each by a new worker; ±: 95 % interval over the repeats." if counts else ""


def _cell_row(cell: Measured) -> tuple[Cell, ...]:
    benchmark = cell.benchmark
    batch = f"{benchmark.batch_size}"
    if cell.scenario == "server":
        batch = f"≤{benchmark.batch_size} (mean {wording.number(benchmark.mean_batch_size)})"
    return (
        text_cell(benchmark.workload),
        text_cell(cell.scenario),
        Cell(batch, benchmark.batch_size),
        _rate_cell(benchmark.throughput_samples_per_sec, _rate_bounds(cell)),
        *(_figure(value) for value in (benchmark.latency_mean_ms, *_percentiles(benchmark))),
        Cell(f"{benchmark.samples:,}", benchmark.samples),
        _judgement(benchmark),
        text_cell(wording.cell_title(benchmark.workload, cell.scenario, benchmark.batch_size, benchmark.tenants)),
        _figure(benchmark.latency_p95_ms),
        text_cell(benchmark.environment),
        Cell("", benchmark.tenants),
        text_cell(cell.device_label),
        text_cell(benchmark.engine),
        text_cell(benchmark.precision),
        Cell("", benchmark.threads),
        text_cell(benchmark.claim),
        text_cell(cell.run.directory),
    )


def _console_tables(title: str, run: RunSource, cells: Sequence[Measured]) -> tuple[Table, ...]:
    """Return the same figures for a console: models in milliseconds, operations of micro in microseconds."""
    # Those of a program of the user's are its own business.
    known = {each for each in (cell.benchmark.threads for cell in cells) if each}
    threads = wording.joined(sorted(wording.counted(each, "thread") for each in known))
    title = f"{title}, {threads}" if threads else title
    models = [cell for cell in cells if not is_micro(cell.benchmark.workload)]
    operations = [cell for cell in cells if is_micro(cell.benchmark.workload)]
    found = []
    if models:
        rows = tuple(_model_row(cell) for cell in models)
        table = Table("cells", title, MODEL_COLUMNS, rows)
        found.append(with_energy(table, _energies(models), "samples", shared=False))
    if operations:
        rows = tuple(_operation_row(cell.benchmark) for cell in operations)
        table = Table("operations", title, OPERATION_COLUMNS, rows)
        found.append(with_energy(table, _energies(operations), "bandwidth", shared=False))
    notes = _console_notes(run, cells)
    return (*found[:-1], *(dataclasses.replace(last, notes=(*notes, *last.notes)) for last in found[-1:]))


def _model_row(cell: Measured) -> tuple[Cell, ...]:
    benchmark = cell.benchmark
    judged = _judgement(benchmark)
    verdict, _, bound = judged.text.partition(" (")
    # Why cells were disturbed is said once below, and not for each of them.
    why = "" if benchmark.valid and benchmark.disturbed else judged.detail
    detail = "; ".join(filter(None, (why, bound.rstrip(")"))))
    rate = _rate_cell(benchmark.throughput_samples_per_sec, _rate_bounds(cell))
    return (
        text_cell(wording.cell_title(benchmark.workload, cell.scenario, benchmark.batch_size, benchmark.tenants)),
        rate,
        *(_figure(value) for value in (benchmark.latency_mean_ms, *_percentiles(benchmark))),
        Cell(f"{benchmark.samples:,}", benchmark.samples),
        dataclasses.replace(judged, text=verdict, detail=detail),
    )


def _operation_row(benchmark: Benchmark) -> tuple[Cell, ...]:
    latencies = (benchmark.latency_mean_ms, *_percentiles(benchmark))
    name = benchmark.workload + (" INVALID" if not benchmark.valid else " DISTURBED" if benchmark.disturbed else "")
    bandwidth = benchmark.bandwidth_gb_per_s
    return (
        text_cell(name, tone="fail" if not benchmark.valid else "inconclusive" if benchmark.disturbed else ""),
        text_cell(OPERATIONS[benchmark.workload].title if benchmark.workload in OPERATIONS else ""),
        _figure(benchmark.throughput_samples_per_sec),
        *(_figure(None if value is None else 1e3 * value) for value in latencies),
        Cell("") if bandwidth is None else _figure(bandwidth),
        Cell(f"{benchmark.queries:,}", benchmark.queries),
    )


def _console_notes(run: RunSource, cells: Sequence[Measured]) -> tuple[str, ...]:
    """Return what must be read with the figures, in one line each."""
    models = [cell for cell in cells if not is_micro(cell.benchmark.workload)]
    notes = [f"Claim: {claim}." for claim in dict.fromkeys(cell.benchmark.claim for cell in cells)]
    if any(cell.scenario in ("offline", "saturate") for cell in models):
        notes.append("Offline and saturate: latency of one batch.")
    if any(cell.benchmark.loadgen and not cell.benchmark.load.get("official") for cell in models):
        notes.append("VALID: LoadGen's verdict on this suite's own minimums.")
    if any(_rate_bounds(cell) is not None for cell in models):
        notes.append(_repeats(cells) or "±: 95 % interval within this run; another run may differ by more.")
    if any(None in _percentiles(cell.benchmark) for cell in cells):
        notes.append(wording.short_floors_note())
    notes += [_server_note(cell) for cell in models if cell.scenario == "server" and cell.benchmark.target_qps]
    notes += served_notes(cells)
    sessions = run.record.sessions
    for number, started_at in enumerate(sessions, start=1):
        own = [cell.benchmark.cell for cell in cells if cell.benchmark.session == number]
        if len(sessions) > 1 and own:
            notes.append(f"Measured in the session of {started_at}: {', '.join(own)}.")
    return tuple(notes)


def served_notes(cells: Sequence[Measured]) -> list[str]:
    """Return what cells with tokens or with a server have beside latencies, one line each, and the definitions."""
    notes = [note for cell in cells if (note := _served_note(cell))]
    said = {text: None for cell in cells for text in _definitions(cell.benchmark)}
    return [*notes, *said]


def _served_note(cell: Measured) -> str:
    benchmark = cell.benchmark
    parts = []
    if benchmark.tokens is not None:
        parts += [
            f"TTFT p50/p90/p99 {_several(benchmark.ttft_p50_ms, benchmark.ttft_p90_ms, benchmark.ttft_p99_ms)} ms",
            f"TPOT {_several(benchmark.tpot_p50_ms, benchmark.tpot_p90_ms, benchmark.tpot_p99_ms)} ms",
            f"ITL p50/p99 {_several(benchmark.itl_p50_ms, benchmark.itl_p99_ms)} ms",
            f"{wording.number(benchmark.tokens_per_sec)} tokens/s",
        ]
    if benchmark.goodput_per_sec is not None:
        bounds = ", ".join(f"{name} ≤ {value:g} ms" for name, value in benchmark.goodput_bounds.items())
        parts.append(f"goodput {wording.number(benchmark.goodput_per_sec)}/s ({bounds})")
    if benchmark.error_rate is not None:
        parts.append(f"errors {percent(100.0 * benchmark.error_rate)}")
    title = wording.cell_title(benchmark.workload, cell.scenario, benchmark.batch_size, benchmark.tenants)
    return f"{title}: {'; '.join(parts)}." if parts else ""


def _several(*values: float | None) -> str:
    return " / ".join(wording.number(value) for value in values)


def _definitions(benchmark: Benchmark) -> list[str]:
    said = benchmark.token_definitions
    return (
        [f"TTFT: {said['ttft']}. TPOT: {said['tpot']}. ITL: {said['itl']}."]
        if {"ttft", "tpot", "itl"} <= set(said)
        else []
    )


def _server_note(cell: Measured) -> str:
    """Return the offered rate, where it comes from, and how to offer it to another server."""
    benchmark = cell.benchmark
    title = wording.cell_title(benchmark.workload, cell.scenario, benchmark.batch_size, benchmark.tenants)
    rate, source = benchmark.target_qps or 0.0, benchmark.rate_source or ""
    origin = "chosen, not a capacity" if source.startswith("chosen") else source
    text = (
        f"{title}: {wording.number(rate)}/s offered ({origin}), mean batch {wording.number(benchmark.mean_batch_size)}"
    )
    if (benchmark.latency_bound_source or "").startswith("ours"):
        text += f", bound {benchmark.latency_bound_source}"
    if source.startswith("given"):
        return f"{text}."
    return f"{text}; to compare, run the other with --like {cell.run.directory}."


def _rate_bounds(cell: Measured) -> tuple[float, float] | None:
    shape = cell.run.shapes.get(cell.benchmark.cell)
    return None if shape is None else shape.rate_ci95


def _rate_cell(rate: float, bounds: tuple[float, float] | None) -> Cell:
    if bounds is None or not rate > 0:
        return _figure(rate)
    half_percent = 50.0 * (bounds[1] - bounds[0]) / rate
    return Cell(f"{wording.number(rate)} ± {percent(half_percent)}", wording.finite(rate), *bounds)


def _figure(value: float | None) -> Cell:
    return Cell(wording.number(value), wording.finite(value))


def _percentiles(benchmark: Benchmark) -> tuple[float | None, ...]:
    return benchmark.latency_p50_ms, benchmark.latency_p90_ms, benchmark.latency_p99_ms


def _judgement(benchmark: Benchmark) -> Cell:
    if benchmark.loadgen is None and benchmark.valid:
        return _disturbed(benchmark) or text_cell("not used", tone="muted")
    text = "VALID" if benchmark.valid else "INVALID"
    if benchmark.latency_bound_ms is not None and benchmark.judged_percentile is not None:
        text += f" (p{100 * benchmark.judged_percentile:g} ≤ {benchmark.latency_bound_ms:g} ms)"
    if benchmark.valid:
        return _disturbed(benchmark, text) or text_cell(text)
    why = benchmark.loadgen.invalid_reasons if benchmark.loadgen else ()
    why += tuple(each.text for each in benchmark.warnings if each.code == TOO_MANY_FAILED)
    return text_cell(text, detail="; ".join(why), tone="fail")


def _disturbed(benchmark: Benchmark, verdict: str = "") -> Cell | None:
    """Return the label of a cell that was measured on a disturbed machine, behind LoadGen's verdict if there is one."""
    if not benchmark.disturbed:
        return None
    valid, opened, bound = verdict.partition(" (")
    return text_cell(
        " ".join(filter(None, (valid, "DISTURBED"))) + opened + bound,
        detail="; ".join(benchmark.disturbed),
        tone="inconclusive",
    )


def failures_table(run: RunSource, label: str) -> Table | None:
    """Return the cells of a run that could not be measured."""
    if not run.record.failures:
        return None
    columns = (Column("cell", "cell"), Column("what", "what happened"), Column("next", "what to do"))
    rows = tuple(
        (text_cell(failure.cell), text_cell(failure.what, tone="fail"), text_cell(failure.next))
        for failure in run.record.failures
    )
    return Table("failures", wording.on_device(f"{label}, not measured,", [run.record.device_label]), columns, rows)


def telemetry_table(run: RunSource, cells: Sequence[Measured]) -> Table | None:
    """Return one row per cell with what the host and the device did meanwhile."""
    series = {cell.benchmark.cell: run.telemetry[cell.benchmark.cell] for cell in cells
              if cell.benchmark.cell in run.telemetry}  # fmt: skip
    shown = [name for name in TELEMETRY if any(_known(each.get(name)) for each in series.values())]
    if not shown:
        return None
    columns = (
        Column("cell", "cell"),
        *(Column(name, TELEMETRY[name][0], TELEMETRY[name][1], "right") for name in shown),
    )
    rows = tuple((text_cell(cell), *(_summed_up(each, name) for name in shown)) for cell, each in series.items())
    title = wording.on_device(f"{cells[0].label}, while the load ran,", [run.record.device_label])
    return Table("telemetry", title, columns, rows, ("CPU shares are of all CPUs that the worker may use.",))


def _summed_up(series: Telemetry, name: str) -> Cell:
    values = _known(series.get(name))
    value = TELEMETRY[name][2](values) if values else None
    return Cell(wording.DASH if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.2g}", value)


def _known(values: Sequence[float | None] | None) -> list[float]:
    return [value for value in values or () if wording.finite(value) is not None and value is not None]


THROUGHPUT_CAPTION = "Pale bar: 95 % interval of the variation within the run."
UNPAIRED_CAPTION = " No verdict: the runs were not paired."
LATENCY_CAPTION = (
    "How slow the slowest requests are: p99 is what one request in a hundred exceeds. Each curve ends where there "
    "are too few samples to continue."
)
TELEMETRY_CAPTION = "Utilisation of the GPU, and of the CPUs that the worker may use."

RUN_COLUMNS = (
    Column("environment", "environment"),
    Column("device", "device", spare=2),
    Column("cells", "cells", align="right"),
    Column("valid", "valid", align="right"),
    Column("measured", "measured", spare=3),
    Column("directory", "directory"),
)


def runs_table(runs: Sequence[RunSource]) -> Table:
    """Return one row per run directory."""
    rows = []
    for run in runs:
        record = run.record
        valid = sum(benchmark.valid for benchmark in record.benchmarks)
        cells = f"{len(record.benchmarks)} of {len(record.cells_planned)}"
        rows.append(
            (
                text_cell(record.environment),
                text_cell(record.device_label),
                Cell(cells, len(record.benchmarks), tone="" if record.complete else "fail"),
                Cell(f"{valid}", valid, tone="" if valid == len(record.benchmarks) else "fail"),
                Cell(wording.moment(record.timestamp), record.timestamp),
                text_cell(run.directory),
            )
        )
    devices = [run.record.device_label for run in runs]
    return Table(
        "runs", wording.on_device("What was measured", devices), RUN_COLUMNS, tuple(rows), detail=len(runs) == 1
    )


def throughput_section(cells: Sequence[Measured], known: Sequence[str]) -> Section | None:
    """Return throughput by environment; a single cell has nothing to compare with."""
    charts = []
    several = len({cell.label for cell in cells}) > 1
    caption = THROUGHPUT_CAPTION + (UNPAIRED_CAPTION if several else "")
    for (title, device), group in chart_groups(cells).items():
        spec = throughput_chart(f"{title}: throughput", device, group, known)
        if spec is not None:
            name = wording.on_device(f"{title}: throughput", [device])
            charts.append(Chart("throughput", name, spec, caption))
    heading = "Throughput by environment" if several else "Throughput by batch size"
    return Section("throughput", heading, charts=tuple(charts)) if charts else None


def latency_section(
    cells: Sequence[Measured], comparisons: Sequence[ComparisonSource], known: Sequence[str]
) -> Section | None:
    """Return the latency distributions of the runs, and of both sides of every duet."""
    charts = []
    for (title, device), group in chart_groups(cells).items():
        whole = f"{title}: {_latency_of(group[0][1].scenario)}"
        charts += _latency_charts(whole, (device,), curves_of(group), known)
    for source in comparisons:
        sides = source.comparison.sides
        curves = {side.label: curve for side, curve in zip(sides, source.curves, strict=False) if curve is not None}
        for cell, scenario in dict.fromkeys((row.cell, row.metric.scenario) for row in compared([source])):
            devices = tuple(dict.fromkeys(side.device_label for side in sides))
            charts += _latency_charts(f"{cell}: {_latency_of(scenario)}, in pairs", devices, curves, known)
    return Section("latency", "Latency distributions", charts=tuple(charts)) if charts else None


def _latency_of(scenario: str) -> str:
    return "latency of a batch" if scenario in ("offline", "saturate") else "latency"


def _latency_charts(
    title: str, devices: Sequence[str], curves: Mapping[str, Curve], known: Sequence[str]
) -> list[Chart]:
    spec = latency_chart(title, devices, curves, known)
    return [] if spec is None else [Chart("latency", wording.on_device(title, devices), spec, LATENCY_CAPTION)]


def cells_section(runs: Sequence[RunSource], cells: Sequence[Measured]) -> Section | None:
    """Return the figures of every cell, and the cells that failed."""
    tables = []
    for run in runs:
        own = [cell for cell in cells if cell.run is run]
        if own:
            tables.append(cells_table(run, own))
        failures = failures_table(run, own[0].label if own else run.record.environment)
        if failures is not None:
            tables.append(failures)
    stripped, notes = notes_once(tuple(tables))
    return Section("cells", "Every measured cell", tables=stripped, notes=notes) if tables else None


def telemetry_section(runs: Sequence[RunSource], cells: Sequence[Measured]) -> Section | None:
    """Return what the host and the device did meanwhile."""
    charts, tables = [], []
    for run in runs:
        own = [cell for cell in cells if cell.run is run]
        table = telemetry_table(run, own) if own else None
        if table is not None:
            tables.append(table)
        for cell in own:
            series = run.telemetry.get(cell.benchmark.cell)
            title = (
                f"{cell.label}: {wording.cell_title(cell.benchmark.workload, cell.scenario, cell.benchmark.batch_size)}"
            )
            spec = None if series is None else telemetry_chart(title, cell.device_label, series)
            if spec is not None:
                charts.append(
                    Chart("telemetry", wording.on_device(title, [cell.device_label]), spec, TELEMETRY_CAPTION)
                )
    if not charts and not tables:
        return None
    stripped, notes = notes_once(tuple(tables))
    return Section("telemetry", "Telemetry", "", tuple(charts), stripped, notes, folded=True, small=True)


def series_labels(cells: Sequence[Measured], comparisons: Sequence[ComparisonSource]) -> list[str]:
    """Return every label that a chart uses, in order, so that each keeps its colour."""
    labels = [label for group in chart_groups(cells).values() for label, _ in group]
    labels += [side.label for source in comparisons for side in source.comparison.sides]
    return list(dict.fromkeys(labels))
