"""The older `benchmark_results.json`, without schema version and samples, as a source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gputax.errors import ResultsError
from gputax.plan.claims import device_label
from gputax.plan.comparability import Value
from gputax.plan.metrics import METRICS
from gputax.plan.notices import Notice
from gputax.results.importers.quantities import COUNTED, TIME_FACTOR
from gputax.results.importers.record_source import record_place
from gputax.results.importers.source import (
    UNKNOWN,
    Findings,
    Place,
    Source,
    SourceCell,
    device_name_of,
    label_of,
    scenario_named,
    workload_named,
    writable,
)
from gputax.text import printable

CLAIM = "as an older file gives it, without samples; what was measured cannot be checked"
_LATENCY = re.compile(r"(?:latency_(mean|avg|p50|p90|p95|p99)|(?:mean|avg)_latency)_(ms|us|ns|s)")
_THROUGHPUT = re.compile(r"throughput_([a-z]+)_per_sec")


def recognises(place: Place) -> bool:
    """Whether there is a list of benchmarks in a document without a schema version."""
    document = record_place(place)
    return document is not None and isinstance(document.data.get("benchmarks"), list)


def read(place: Place) -> Source:
    """Read every entry that has a scenario and a number."""
    document = record_place(place)
    assert document is not None
    data = document.data
    gpu = data.get("gpu_info")
    name = str(gpu.get("name") or "") if isinstance(gpu, Mapping) else ""
    # Only the CUDA version shows that the name is a GPU's; older files had a name even without a GPU.
    device = "cuda" if name and isinstance(gpu, Mapping) and gpu.get("cuda_version") else None
    shared: dict[str, Value] = {"device_name": device_name_of(name)} if name else {}
    if device:
        shared["device"] = device
    cells = tuple(_cell(entry, shared) for entry in data["benchmarks"] if isinstance(entry, Mapping))
    cells = tuple(cell for cell in cells if cell.metrics or cell.notices)
    if not any(cell.metrics for cell in cells):
        raise ResultsError("no benchmark in this file has a known metric", where=document.name)
    return Source(
        path=place.name,
        format="older-json",
        label=label_of(place.path),
        cells=cells,
        device=device,
        device_label=device_label(device or "device not said", printable(name)) if name else Source.device_label,
        fingerprint={"gpu_info": writable(gpu)} if isinstance(gpu, Mapping) else {},
        notices=(Notice("older-file", "an older file, without samples or fingerprint"),),
    )


def _cell(entry: Mapping[str, Any], shared: Mapping[str, Value]) -> SourceCell:
    scenario = scenario_named(str(entry.get("scenario") or UNKNOWN))
    workload = workload_named(str(entry.get("workload") or entry.get("model") or UNKNOWN))
    batch = entry.get("batch_size")
    batch = batch if isinstance(batch, int) and not isinstance(batch, bool) else None
    findings = Findings()
    counted = _add_metrics(findings, entry)
    known = {"scenario": scenario, "workload": workload}
    conditions: dict[str, Value | None] = {
        **shared,
        **{name: value for name, value in known.items() if value != UNKNOWN},
        "batch_size": batch,
        "counted": counted,
    }
    return SourceCell(
        workload=workload,
        scenario=scenario,
        batch_size=batch,
        metrics=findings.metrics,
        conditions=conditions,
        claim=CLAIM,
        notices=tuple(findings.notices),
    )


def _add_metrics(findings: Findings, entry: Mapping[str, Any]) -> str | None:
    """Read every key that names a metric and its unit; returns the unit that the throughput counts."""
    counted = None
    for key, value in entry.items():
        latency, rate = _LATENCY.fullmatch(str(key)), _THROUGHPUT.fullmatch(str(key))
        number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
        if value is None:
            continue
        if latency:
            which = {"avg": "mean", None: "mean"}.get(latency[1], latency[1])
            factor = TIME_FACTOR[latency[2]]
            findings.add(f"latency_{which}", None if number is None else number * factor, printable(str(key)))
        elif rate and rate[1] in COUNTED:
            counted = COUNTED[rate[1]]
            findings.add("throughput", number, str(key))
    assert set(findings.metrics) <= set(METRICS)
    return counted
