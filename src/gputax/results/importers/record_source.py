"""Our own run record as a source: from its result directory with samples, or alone, from a pod's log."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gputax.errors import ResultsError
from gputax.plan.comparability import Value, conditions_of_facts
from gputax.plan.environment import EnvironmentName
from gputax.plan.metrics import METRICS
from gputax.plan.notices import Notice
from gputax.plan.token_tools import meant_by_gputax
from gputax.plan.tokens import REQUEST_COLUMNS, TOKEN_COLUMNS, TOKEN_QUERY
from gputax.plan.workloads import OPERATIONS, is_micro
from gputax.results.columns import STATUS, begin_column, succeeded
from gputax.results.documents.base import WarningRecord
from gputax.results.documents.run import RECORD_NAME, Benchmark, RepeatedBenchmark, RunRecord
from gputax.results.importers.source import (
    CellSamples,
    Format,
    Place,
    Source,
    SourceCell,
    device_name_of,
    scenario_named,
    writable,
)
from gputax.results.reading import RUN, checked
from gputax.results.store import file_inside, read_samples
from gputax.results.token_series import token_series
from gputax.text import printable


def source_of_record(record: RunRecord, path: str, kind: Format, directory: Path | None) -> Source:
    """Return the record as a source; `directory` contains its samples, None if there are none."""
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
        cells=tuple(_repeated(record, benchmark, directory) for benchmark in record.cells),
        environment=environment,
        device=record.device,
        device_label=printable(record.device_label),
        fingerprint=writable(record.fingerprint),
        evidence=writable(record.evidence),
        notices=tuple(notices),
        measured=printable(record.timestamp),
    )


def read_notice(warning: WarningRecord) -> Notice:
    """Return a warning from an untrusted file: truncated, without control characters."""
    return dataclasses.replace(warning.notice, text=printable(warning.text, 600))


def _repeated(record: RunRecord, benchmark: Benchmark, directory: Path | None) -> SourceCell:
    """Return a cell; the mean over its repeats carries each of them."""
    cell = _cell(record, benchmark, directory)
    if not isinstance(benchmark, RepeatedBenchmark):
        return cell
    repeats = [_cell(record, each, directory) for each in record.benchmarks if each.cell == benchmark.cell]
    notices = dict.fromkeys(notice for each in repeats for notice in each.notices)
    return dataclasses.replace(cell, repeats=tuple(repeats), notices=tuple(notices), load_samples=None)


def _cell(record: RunRecord, benchmark: Benchmark, directory: Path | None) -> SourceCell:
    scenario = scenario_named(benchmark.scenario)
    metrics, notices = _metrics(benchmark)
    reasons = [printable(reason) for reason in (benchmark.loadgen.invalid_reasons if benchmark.loadgen else ())]
    # A layer without evidence gives no valid number (DESIGN.md); the bare machine has no layer to prove.
    proven = not EnvironmentName.parse(record.environment).layers or record.evidence.get("active") is True
    if not proven:
        reasons.append(f"{printable(record.environment)} was not proven active")
    load = None
    if directory is not None:
        load = partial(_load_samples, directory, benchmark.samples_file, scenario, benchmark.tokens_file or "")
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
        disturbed=tuple(printable(reason) for reason in benchmark.disturbed),
        claim=printable(benchmark.claim),
        notices=tuple(notices),
        load_samples=load,
        at_s=_seconds(benchmark.started_at),
        meant=meant_by_gputax(scenario, benchmark.token_definitions),
    )


def _seconds(stamp: str) -> float | None:
    try:
        return datetime.datetime.fromisoformat(stamp).timestamp()
    except (ValueError, OverflowError):
        return None


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
    notices = [Notice("left-out", f"skipped: {name} is {value:g}") for name, value in bad.items()]
    return {name: value for name, value in known.items() if name not in bad}, notices


def _load_samples(directory: Path, name: str, scenario: str, tokens: str = "") -> CellSamples:
    """Read one cell's samples, and the times of its tokens if it has any."""
    begin = begin_column(scenario)
    wanted = (begin, "end_ns") if scenario == "server" else (begin, "end_ns", "samples")
    columns = _load_columns(directory, name, wanted, (STATUS, *REQUEST_COLUMNS))
    if tokens:
        columns |= _load_columns(directory, tokens, TOKEN_COLUMNS)
        rows = columns[TOKEN_QUERY]
        if rows.min() < 0 or rows.max() >= len(columns["end_ns"]):
            raise ResultsError("tokens of requests that the samples do not have", where=printable(tokens))
    # Failed requests are in no latency: what a record says and what is compared must be the same.
    good = np.flatnonzero(succeeded(columns))
    if len(good) == 0:
        raise ResultsError("no request succeeded", where=printable(name))
    order = good[np.argsort(columns[begin][good], kind="stable")]
    counts = columns["samples"] if "samples" in wanted else np.ones(len(columns["end_ns"]), dtype=np.int64)
    series = {each: values for each, values in token_series(scenario, columns).items() if values.size}
    if any(bool((values <= 0).any()) for values in series.values()):
        raise ResultsError("some tokens came before their request", where=printable(tokens or name))
    return CellSamples(columns[begin][order], columns["end_ns"][order], counts[order], series)


def _load_columns(
    directory: Path, name: str, wanted: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, npt.NDArray[np.int64]]:
    """Return the columns of one file; those that are there must be whole."""
    path = file_inside(directory, name).resolve()
    if not path.is_file():
        raise ResultsError("the samples file is missing", where=printable(str(path)))
    columns = read_samples(path)
    for column in (*wanted, *(each for each in optional if each in columns)):
        if column not in columns:
            raise ResultsError(f"the samples have no column {column}", where=printable(str(path)))
        # With missing values pyarrow returns floats with NaN.
        if columns[column].dtype != np.int64:
            raise ResultsError(f"the column {column} has missing or non-integer values", where=printable(str(path)))
    if len(columns[wanted[0]]) == 0:
        raise ResultsError("the samples file has no rows", where=printable(str(path)))
    return {each: columns[each] for each in (*wanted, *optional) if each in columns}


_GPU_FIELDS = {
    "gpu_uuid": "uuid",
    "gpu_driver": "driver_version",
    "gpu_sm_clock_max_mhz": "sm_clock_max_mhz",
    "gpu_memory_clock_max_mhz": "memory_clock_max_mhz",
    "gpu_power_limit_w": "power_limit_w",
    "gpu_ecc": "ecc",
    "gpu_mig": "mig",
    "gpu_pcie_width": "pcie_width",
}


def record_conditions(record: RunRecord, benchmark: Benchmark) -> dict[str, Value]:
    """Return all conditions that the record knows; unknown ones are omitted."""
    fingerprint = record.fingerprint
    facts = _at(fingerprint, "setups", benchmark.workload)
    found: dict[str, Any] = {
        **(conditions_of_facts(facts) if isinstance(facts, Mapping) else {}),
        "workload": benchmark.workload,
        "scenario": scenario_named(benchmark.scenario),
        "batch_size": benchmark.batch_size,
        "tenants": benchmark.tenants,
        "counted": "operations" if is_micro(benchmark.workload) else "samples",
        "device": benchmark.device,
        "device_name": device_name_of(record.gpu_info.name),
        # The options are listed one by one; those of the synthetic engine are the difference that a test injects.
        "engine": benchmark.engine.partition(":")[0],
        "provider": benchmark.provider,
        "precision": benchmark.precision,
        "threads": benchmark.threads,
        "weights": benchmark.weights,
        "weights_sha256": benchmark.weights_sha256,
        "target_qps": benchmark.target_qps,
        "latency_bound_ms": benchmark.latency_bound_ms,
        "judged_percentile": benchmark.judged_percentile,
        "seed_offset": benchmark.load.get("seed_offset"),
        "max_wait_us": benchmark.load.get("max_wait_us") if benchmark.target_qps is not None else None,
        "loadgen_version": _version(benchmark.loadgen.version if benchmark.loadgen else None),
        "gputax_version": record.gputax_version,
        "usable_cpus": _at(fingerprint, "cpu_allowance", "threads"),
        "quota_cpus": _at(fingerprint, "cpu_allowance", "quota_cpus"),
        "governors": _joined(_at(fingerprint, "host", "governors")),
        **{name: _at(fingerprint, "host", name) for name in ("kernel", "distribution", "hypervisor")},
    }
    if benchmark.device != "cpu":  # for a CPU, the device's name is already the model
        found["cpu_model"] = _at(fingerprint, "host", "cpu_model")
    if benchmark.device == "cuda":
        found |= _gpu_conditions(fingerprint.get("gpus"))
    return {name: _clean(value) for name, value in found.items() if isinstance(value, str | int | float | bool)}


def _gpu_conditions(gpus: Any) -> dict[str, Any]:
    used = gpus[0] if isinstance(gpus, list) and gpus and isinstance(gpus[0], Mapping) else {}
    return {name: used.get(key) for name, key in _GPU_FIELDS.items()}


def _at(data: Any, *keys: str) -> Any:
    """Follow keys down; a fingerprint is free-form, so any level may have another type."""
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def _joined(names: Any) -> str | None:
    return ", ".join(map(str, names)) if isinstance(names, list) and names else None


def _version(text: str | None) -> str | None:
    """Return `6.0.17` of `6.0.17 @ d6147c7eb7`."""
    return text.split()[0] if text and text.split() else None


def _clean(value: Value) -> Value:
    return printable(value) if isinstance(value, str) else value


def record_place(place: Place) -> Place | None:
    """Return the JSON document at this place or in it; None if there is none."""
    if not place.is_directory:
        return place if isinstance(place.data, dict) else None
    path = place.path / RECORD_NAME
    return Place(path) if path.is_file() else None


def recognises(place: Place) -> bool:
    """Whether there is a document with a schema version: the older files have none."""
    document = record_place(place)
    if document is None:
        return False
    if not isinstance(document.data, dict):
        raise ResultsError("not a run record: not a JSON object", where=document.name, next_step="measure again")
    return "schema_version" in document.data


def read(place: Place) -> Source:
    """Read record and samples."""
    document = record_place(place)
    assert document is not None
    if {"kind", "sides"} <= set(document.data):
        raise ResultsError(
            "this is a comparison, not a result",
            where=document.name,
            next_step="gputax report shows it; compare needs measured results",
        )
    record = checked(RUN, document.data, document.name)
    return source_of_record(record, place.name, "gputax", document.path.parent)
