"""Sources made by hand, with samples or without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gputax.compare.document import compare_sources
from gputax.plan.budgets import parse_budgets
from gputax.results.documents.comparison import Comparison
from gputax.results.importers.source import CellSamples, Source, SourceCell

Make = Callable[..., Any]
CONDITIONS: dict[str, Any] = {
    "workload": "resnet50", "scenario": "single-stream", "batch_size": 1, "tenants": 1, "counted": "samples",
    "device": "cpu", "device_name": "Test CPU", "engine": "onnx", "engine_version": "1.31.1", "threads": 2,
    "precision": "fp32", "weights_sha256": "ab",
}  # fmt: skip


def stream_samples(latency_ns: Any, samples: int = 1) -> CellSamples:
    """Rows one after the other without a pause."""
    latency = np.asarray(latency_ns, dtype=np.int64)
    end = np.cumsum(latency)
    return CellSamples(end - latency, end, np.full(latency.size, samples, dtype=np.int64))


def make_cell(
    latency_ns: Any = None, samples: int = 1, conditions: dict[str, Any] | None = None, **changes: Any
) -> SourceCell:
    values: dict[str, Any] = {
        "workload": "resnet50", "scenario": "single-stream", "batch_size": 1, "tenants": 1, "claim": "CPU number",
    }  # fmt: skip
    if latency_ns is not None:
        loaded = stream_samples(latency_ns, samples)
        values["load_samples"] = lambda: loaded
    values.update(changes)
    known = {**CONDITIONS, **{name: values[name] for name in ("workload", "scenario", "batch_size")}}
    return SourceCell(**{"conditions": {**known, **(conditions or {})}, **values})


def figures(latency_ns: Any, samples: int = 1) -> dict[str, float]:
    """The metrics that a record states for these latencies."""
    ms = np.sort(np.asarray(latency_ns, dtype=np.float64)) / 1e6
    found = {"throughput": 1e3 * samples / float(ms.mean()), "latency_mean": float(ms.mean())}
    for name, p, floor in (("p50", 0.5, 10), ("p90", 0.9, 64), ("p95", 0.95, 130), ("p99", 0.99, 662)):
        if ms.size >= floor:
            found[f"latency_{name}"] = float(ms[int(ms.size * p)])
    return found


def make_repeated(runs: Any, samples: int = 1, first_s: float = 0.0, **changes: Any) -> SourceCell:
    """A cell that was measured once for each of these runs, a minute apart."""
    repeats = tuple(
        make_cell(run, samples, metrics=figures(run, samples), at_s=first_s + 60.0 * number, **changes)
        for number, run in enumerate(runs)
    )
    return make_cell(None, **changes, repeats=repeats)


def make_source(label: str, *cells: SourceCell, **changes: Any) -> Source:
    values: dict[str, Any] = {
        "path": f"results/{label}", "format": "gputax", "environment": "bare", "device": "cpu",
        "device_label": "CPU (Test CPU), not a GPU",
    }  # fmt: skip
    return Source(label=label, cells=cells, **{**values, **changes})


@pytest.fixture
def cell() -> Callable[..., SourceCell]:
    return make_cell


@pytest.fixture
def repeated() -> Callable[..., SourceCell]:
    return make_repeated


@pytest.fixture
def source() -> Callable[..., Source]:
    return make_source


@pytest.fixture
def run() -> Callable[..., np.ndarray]:
    """Latencies in ns of one run with independent noise."""

    def make(mean_ms: float, count: int = 2000, sd: float = 0.05, seed: int = 1) -> np.ndarray:
        return np.random.default_rng(seed).lognormal(np.log(mean_ms * 1e6), sd, count).astype(np.int64)

    return make


@pytest.fixture
def compared(repeated: Make, source: Make, run: Make) -> Make:
    """Compare five repeats of 10 ms with five of `mean_ms`, in alternation."""

    def call(
        mean_ms: float = 10.0,
        *budgets: str,
        base: dict[str, Any] | None = None,
        other: dict[str, Any] | None = None,
        force: bool = False,
        count: int = 5000,
        repeats: tuple[int, int] = (5, 5),
    ) -> Comparison:
        first = repeated([run(10.0, count, 0.01, seed=n) for n in range(repeats[0])], **(base or {}))
        second = repeated(
            [run(mean_ms, count, 0.01, seed=100 + n) for n in range(repeats[1])], first_s=30.0, **(other or {})
        )
        return compare_sources(source("bare", first), [source("k8s", second)], parse_budgets(budgets), force=force)

    return call


@pytest.fixture
def single(cell: Make, source: Make, run: Make) -> Make:
    """Compare one run of 10 ms with one of `mean_ms`."""

    def call(
        mean_ms: float = 10.0,
        *budgets: str,
        base: dict[str, Any] | None = None,
        other: dict[str, Any] | None = None,
        count: int = 5000,
    ) -> Comparison:
        first = cell(run(10.0, count, 0.01, seed=1), **(base or {}))
        second = cell(run(mean_ms, count, 0.01, seed=2), **(other or {}))
        return compare_sources(source("bare", first), [source("k8s", second)], parse_budgets(budgets))

    return call
