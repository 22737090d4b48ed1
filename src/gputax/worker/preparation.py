"""Turn a setup into a loaded engine and its samples."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gputax.plan.cells import Setup
from gputax.plan.engines import ENGINES, parse_engine
from gputax.plan.notices import Notice
from gputax.worker.engines import load_engine
from gputax.worker.engines.engine import Engine, EngineRequest
from gputax.worker.probes.limits import cpu_allowance
from gputax.worker.samples import SampleArea

if TYPE_CHECKING:
    from gputax.worker.workloads.own_model import OwnNetwork

Say = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """A loaded engine, its samples, and the facts of both."""

    engine: Engine
    area: SampleArea
    facts: dict[str, Any]


def prepare(setup: Setup, say: Say) -> Prepared:
    """Load engine and samples; the requested setup is used, or an error says why not."""
    spec = parse_engine(setup.engine)
    threads = setup.threads or cpu_allowance().threads
    started_ns = time.perf_counter_ns()
    request = EngineRequest(
        workload=setup.workload,
        options=spec.options,
        device=setup.device,
        precision=setup.precision,
        threads=threads,
        max_batch=setup.max_batch,
        weights=setup.weights,
        seed=setup.seed,
        libcuda=setup.libcuda,
        own=setup.own,
        program=setup.program,
    )
    say(f"loading {setup.workload} with {spec.name}")
    engine = load_engine(spec.name, request)
    network = _own_network(spec.name, setup)
    wanted = network.sample_count(setup.sample_count, setup.max_batch) if network else setup.sample_count
    count = rounded_sample_count(wanted, setup.max_batch)
    say(f"preparing {count} samples")
    inputs = network.samples(count, setup.seed) if network else _inputs(spec.name, setup, count)
    area = SampleArea(engine.adapt_inputs(inputs), setup.max_batch)
    engine.load_samples(area.arrays)
    facts = {
        **engine.facts(),
        "device": engine.device,
        "workload": setup.workload,
        "sample_count": area.count,
        "samples": network.samples_text if network else f"dataset {setup.dataset}" if setup.dataset else "synthetic",
        "samples_sha256": _digest(area),
        "prepare_s": (time.perf_counter_ns() - started_ns) / 1e9,
    }
    facts.setdefault("notices", [])
    if setup.dataset:
        notice = _dataset_notice(setup.workload, setup.dataset, area.count)
        facts["notices"] = [*facts["notices"], notice.to_dict()]
    chooses = not (ENGINES[spec.name].says_nothing_of_devices or ENGINES[spec.name].asks_server or setup.program.words)
    if setup.device == "auto" and chooses:
        text = f"device auto chose {engine.device} ({facts['provider']})"
        facts["notices"] = [*facts["notices"], Notice("device-auto", text, None).to_dict()]
        say(text)
    return Prepared(engine, area, facts)


def _dataset_notice(workload: str, folder: str, count: int) -> Notice:
    from gputax.worker.workloads.dataset import dataset_size

    size, kind = dataset_size(workload, folder), "windows of text" if workload == "bert-large" else "images"
    repeated = f", repeated to {count}" if size < count else f", the first {count} used"
    return Notice("dataset", f"inputs are the {size} {kind} of {folder}{repeated}", float(size))


def _digest(area: SampleArea) -> str:
    """Return a digest of the inputs themselves: a folder with changed images is a different measurement."""
    digest = hashlib.sha256()
    for name in sorted(area.arrays):
        digest.update(np.ascontiguousarray(area.arrays[name][: area.count]).data)
    return digest.hexdigest()[:16]


def rounded_sample_count(wanted: int, max_batch: int) -> int:
    """Return a multiple of the largest batch, so that consecutive batches never wrap around."""
    return max(1, -(-wanted // max_batch)) * max_batch


def _own_network(engine: str, setup: Setup) -> OwnNetwork | None:
    """Return the user's own network, None for a built-in workload or an engine that computes nothing."""
    if not setup.own.file or not ENGINES[engine].runs_models:
        return None
    from gputax.worker.workloads.own_model import own_network

    return own_network(setup.own)


def _inputs(engine: str, setup: Setup, count: int) -> dict[str, Any]:
    if not ENGINES[engine].runs_models:
        return {"none": np.zeros((count, 1), dtype=np.int8)}
    from gputax.worker.workloads import load_workload

    if setup.dataset:
        from gputax.worker.workloads.dataset import load_dataset

        return load_dataset(setup.workload, setup.dataset, count)
    return load_workload(setup.workload).synthetic_inputs(count, setup.seed)
