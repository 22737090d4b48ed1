"""A run record as a source: from its directory with samples, or alone, as it stands in a pod's log."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from pathlib import Path

import numpy as np

from gputax.errors import ResultsError
from gputax.plan.environment import EnvironmentName
from gputax.plan.metrics import METRICS
from gputax.plan.micro import OPERATIONS
from gputax.plan.notices import Notice
from gputax.results.documents.base import WarningRecord
from gputax.results.documents.run import Benchmark, RunRecord
from gputax.results.importers.conditions import record_conditions
from gputax.results.importers.source import CellSamples, Format, Source, SourceCell, printable, scenario_named, writable
from gputax.results.store import file_inside, read_samples


def source_of_record(record: RunRecord, path: str, kind: Format, directory: Path | None) -> Source:
    """Return the record as a source; `directory` is where its samples lie, None where there are none."""
    if not record.benchmarks:
        failed = f"; {len(record.failures)} cells failed" if record.failures else ""
        raise ResultsError(f"no cell was measured{failed}", where=path, next_step="finish the run, then compare")
    notices = []
    if not record.complete:
        notices.append(Notice("unfinished", f"the run is not finished: {len(record.benchmarks)} cells so far"))
    notices += [Notice("failed-cell", f"failed: {printable(failure.cell)}") for failure in record.failures]
    notices += [read_notice(warning) for warning in record.warnings]
    environment = printable(record.environment)
    return Source(
        path=path,
        format=kind,
        label=environment,
        cells=tuple(_cell(record, benchmark, directory) for benchmark in record.benchmarks),
        environment=environment,
        device=record.device,
        device_label=printable(record.device_label),
        fingerprint=writable(record.fingerprint),
        evidence=writable(record.evidence),
        notices=tuple(notices),
    )


def read_notice(warning: WarningRecord) -> Notice:
    """Return a warning of a file that may come from anywhere: cut to a length, without control characters."""
    return dataclasses.replace(warning.notice, text=printable(warning.text, 600))


def _cell(record: RunRecord, benchmark: Benchmark, directory: Path | None) -> SourceCell:
    scenario = scenario_named(benchmark.scenario)
    metrics, notices = _metrics(benchmark)
    reasons = [printable(reason) for reason in (benchmark.loadgen.invalid_reasons if benchmark.loadgen else ())]
    # A layer without evidence is no number (DESIGN.md); the bare machine has no layer to prove.
    proven = not EnvironmentName.parse(record.environment).layers or record.evidence.get("active") is True
    if not proven:
        reasons.append(f"nothing proves that {printable(record.environment)} was active")
    load = None
    if directory is not None:
        load = partial(_load_samples, directory, benchmark.samples_file, scenario)
    notices += [read_notice(warning) for warning in benchmark.warnings]
    return SourceCell(
        workload=printable(benchmark.workload),
        scenario=scenario,
        batch_size=benchmark.batch_size,
        tenants=benchmark.tenants,
        metrics=metrics,
        conditions=record_conditions(record, benchmark),
        valid=benchmark.valid and proven,
        invalid_reasons=tuple(reasons),
        claim=printable(benchmark.claim),
        notices=tuple(notices),
        load_samples=load,
    )


def _metrics(benchmark: Benchmark) -> tuple[dict[str, float], list[Notice]]:
    operation = OPERATIONS.get(benchmark.workload)
    bandwidth = operation.bandwidth_metric if operation is not None else None
    stored = {
        metric.name: getattr(benchmark, metric.stored)
        for metric in METRICS.values()
        if metric.stored != "bandwidth_gb_per_s" or metric.name == bandwidth
    }
    known = {name: METRICS[name].scale * value for name, value in stored.items() if value is not None}
    bad = {name: value for name, value in known.items() if not math.isfinite(value) or value < 0.0}
    notices = [Notice("left-out", f"left out: {name} is {value:g}") for name, value in bad.items()]
    return {name: value for name, value in known.items() if name not in bad}, notices


def _load_samples(directory: Path, name: str, scenario: str) -> CellSamples:
    """Read one cell's samples."""
    path = file_inside(directory, name).resolve()
    if not path.is_file():
        raise ResultsError("the samples file is missing", where=printable(str(path)))
    columns = read_samples(path)
    begin = "scheduled_ns" if scenario == "server" else "start_ns"
    wanted = (begin, "end_ns") if scenario == "server" else (begin, "end_ns", "samples")
    for column in wanted:
        if column not in columns:
            raise ResultsError(f"the samples have no column {column}", where=printable(str(path)))
        # A hole makes pyarrow hand out floats with NaN.
        if columns[column].dtype != np.int64:
            raise ResultsError(f"the column {column} has holes or no whole numbers", where=printable(str(path)))
    if len(columns["end_ns"]) == 0:
        raise ResultsError("the samples file has no rows", where=printable(str(path)))
    order = np.argsort(columns[begin], kind="stable")
    counts = columns["samples"] if "samples" in wanted else np.ones(len(order), dtype=np.int64)
    return CellSamples(columns[begin][order], columns["end_ns"][order], counts[order])
