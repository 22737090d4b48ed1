"""A cell is one measurement: workload x scenario x environment x tenants, with its setup and the worker's load."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from gputax.errors import unknown_name
from gputax.plan.engines import DEFAULT_ENGINE
from gputax.plan.own_model import OwnModel
from gputax.plan.own_program import OwnProgram

# The seeds of the MLPerf Inference 6.0 round, from LoadGen's built-in configuration.
QSL_SEED = 2085463073848966840
SAMPLE_INDEX_SEED = 2747215439041700203
SCHEDULE_SEED = 16159082839903944936
StrPath: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True)
class Load:
    """The load of one `measure` request."""

    scenario: str
    batch_size: int = 1
    min_duration_s: float = 0.0
    min_queries: int = 1
    expected_latency_ns: int = 1_000_000
    """Single- and multi-stream: LoadGen prepares queries for at most twice this speed."""
    expected_qps: float = 1.0
    """Offline: decides how many samples the single query contains."""
    target_qps: float = 1.0
    """Server: the rate of the Poisson arrivals."""
    bound_ns: int = 100_000_000
    """Server: the latency bound of a query; of its first token where there are tokens."""
    tpot_bound_ns: int = 0
    """Server with tokens: the bound of the time per further token."""
    percentile: float = 0.99
    max_wait_us: int = 0
    """Server: how long the batcher may delay a query to fill a batch."""
    seed_offset: int = 0
    """Added to the schedule and sample seeds, so that repeats get different arrivals."""
    accuracy_samples: int = 0
    """Offline in LoadGen's accuracy mode: the first so many samples, each once; 0: performance."""
    start_at_ns: int = 0
    """Saturate: wait for this time of the worker's monotonic clock, so that tenants of one machine start together."""
    in_flight: int = 1
    """Saturate: so many runs are started before the first is waited for, so that the device always has work."""

    def to_dict(self) -> dict[str, Any]:
        """Return the load as sent to the worker."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Load:
        """Rebuild a load received over the pipe."""
        return Load(**data)


Scenario = Literal["offline", "server", "single-stream", "multi-stream", "saturate"]
Device = Literal["auto", "cpu", "cuda", "software"]
Precision = Literal["fp32", "fp16"]
SCENARIOS: tuple[str, ...] = get_args(Scenario)
DEVICES: tuple[str, ...] = get_args(Device)
PRECISIONS: tuple[str, ...] = get_args(Precision)

# Common names for them. They are only suggested: gputax fails instead of falling back to another device.
DEVICE_SYNONYMS = {
    "gpu": "cuda",
    "nvidia": "cuda",
    "simulated": "software",
    "simulator": "software",
    "soft": "software",
    "host": "cpu",
}
PRECISION_SYNONYMS = {
    "float32": "fp32",
    "single": "fp32",
    "32": "fp32",
    "float16": "fp16",
    "half": "fp16",
    "16": "fp16",
}
SCENARIO_SYNONYMS = {"stream": "single-stream", "latency": "single-stream", "throughput": "offline", "batch": "offline"}
# Scenarios in which a query is one sample (or LoadGen's own eight), so that a batch size has no meaning.
UNBATCHED: tuple[str, ...] = ("single-stream", "multi-stream")
MULTI_STREAM_SAMPLES_PER_QUERY = 8


@dataclass(frozen=True)
class Setup:
    """What a worker must prepare before it can measure; equal setups may share one worker."""

    workload: str
    engine: str = DEFAULT_ENGINE
    device: str = "auto"
    precision: str = "fp32"
    threads: int = 0
    """0: as many as affinity and cgroup quota allow."""
    weights: str = ""
    """Path of the user's own ONNX file; empty for the seeded weights."""
    dataset: str = ""
    """An ImageNet-style folder; empty for seeded synthetic inputs."""
    sample_count: int = 64
    max_batch: int = 32
    seed: int = 7
    libcuda: str = ""
    """Path of the user's own driver library, for the engine `driver`; empty for the device's own."""
    own: OwnModel = dataclasses.field(default_factory=OwnModel)
    """The user's own model (`--model`), whose name is then the workload."""
    program: OwnProgram = dataclasses.field(default_factory=OwnProgram)
    """The user's own program (behind `--`), whose name is then the workload."""

    def to_dict(self) -> dict[str, Any]:
        """Return the setup as sent to the worker."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Setup:
        """Rebuild a setup received over the pipe, or read from a record; one of an earlier version has less."""
        own, program = OwnModel.from_dict(data.get("own", {})), OwnProgram.from_dict(data.get("program", {}))
        return Setup(**{**data, "own": own, "program": program})


@dataclass(frozen=True)
class LoadPlan:
    """How long and how much load one scenario applies, before the device's speed is known."""

    duration_s: float = 5.0
    min_samples: int = 64
    max_duration_s: float = 0.0
    """0: no limit. Otherwise the number of samples is reduced so that the load should end by then."""
    percentile: float = 0.99
    """Server and multi-stream: the percentile that LoadGen judges; MLPerf's is p99."""
    qps: float = 0.0
    """0: the tool finds the rate."""
    find_peak: bool = False
    bound_ms: float = 0.0
    """0: the workload's own bound."""
    max_wait_us: int = 0
    pilot_s: float = 1.0
    """How long each batch size is warmed up and its speed measured before the load."""
    official: bool = False
    """LoadGen's official minimums are met, so the result may use MLPerf's scenario names."""


@dataclass(frozen=True)
class Cell:
    """One measurement of the plan."""

    setup: Setup
    scenario: str
    batch_size: int
    environment: str = "bare"
    tenants: int = 1
    load: LoadPlan = dataclasses.field(default_factory=LoadPlan)

    @property
    def id(self) -> str:
        """A name that is unique in its run and safe as a file name."""
        parts = [self.setup.workload, self.scenario, f"b{self.batch_size}", self.environment]
        if self.tenants != 1:
            parts.append(f"t{self.tenants}")
        return "-".join(parts).replace(":", "_").replace("/", "_")

    def to_dict(self) -> dict[str, Any]:
        """Return the whole cell as plain data, equal to what is read back from JSON."""
        return dataclasses.asdict(self, dict_factory=_as_in_json)


def _as_in_json(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields}


@dataclass(frozen=True)
class Repetition:
    """One of the measurements of a cell, each by a new worker."""

    cell: Cell
    repeat: int = 1

    @property
    def name(self) -> str:
        """A name that is unique in its run and safe as a file name; the first repeat has the cell's own."""
        return repetition_name(self.cell.id, self.repeat)


def repetition_name(cell: str, repeat: int) -> str:
    """Return the name of one repeat of a cell."""
    return cell if repeat == 1 else f"{cell}-r{repeat}"


def repetitions(cells: Sequence[Cell], repeats: int = 1) -> tuple[Repetition, ...]:
    """Return all measurements of a plan: every cell once, then every cell again, in an order of its own each round.

    The order of a round depends on the seed and its number alone, so that more repeats can be added later.
    """
    found = [Repetition(cell) for cell in cells]
    for repeat in range(2, repeats + 1):
        order = random.Random(f"{cells[0].setup.seed}/{repeat}")
        found += [Repetition(cell, repeat) for cell in order.sample(list(cells), len(cells))]
    return tuple(found)


def device_named(name: str, devices: Iterable[str] = DEVICES) -> str:
    """Return the device, or raise with the valid ones."""
    known = tuple(devices)
    if name not in known:
        raise unknown_name("device", name, known, DEVICE_SYNONYMS)
    return name


def precision_named(name: str) -> str:
    """Return the precision, or raise with the valid ones."""
    if name not in PRECISIONS:
        raise unknown_name("precision", name, PRECISIONS, PRECISION_SYNONYMS)
    return name


def scenario_named(name: str, kind: str = "scenario", scenarios: Iterable[str] = SCENARIOS) -> str:
    """Return the scenario, also by LoadGen's spelling (`SingleStream`) and that of JSON keys (`single_stream`)."""
    known = tuple(scenarios)
    letters = "".join(letter for letter in name.lower() if letter.isalpha())
    for each in known:
        if each.replace("-", "") == letters:
            return each
    raise unknown_name(kind, name, known, SCENARIO_SYNONYMS)


def absolute(path: StrPath) -> str:
    """Return an absolute path, because a worker may start elsewhere; `official` is a keyword, not a path."""
    text = str(path)
    return str(Path(text).expanduser().resolve()) if text and text != "official" else text


def plan_id(cells: tuple[Cell, ...]) -> str:
    """Return a short name for exactly these cells, so that an interrupted run can be resumed."""
    text = json.dumps([cell.to_dict() for cell in cells], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
