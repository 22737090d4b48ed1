"""The parts of a report that come from runs: throughput, latency, cells, telemetry; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gputax.report import wording
from gputax.report.charts.latency import latency_chart
from gputax.report.charts.telemetry import telemetry_chart
from gputax.report.charts.throughput import throughput_chart
from gputax.report.distributions import Curve
from gputax.report.grouping import Measured, chart_groups, compared, curves_of
from gputax.report.model import Cell, Chart, Column, Section, Table, notes_once, text_cell
from gputax.report.run_tables import cells_table, failures_table, telemetry_table
from gputax.report.sources import ComparisonSource, RunSource

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
