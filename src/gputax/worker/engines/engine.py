"""The interface of every engine: hold samples, run a range of them, report what actually ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from gputax.plan.own_model import OwnModel
from gputax.plan.own_program import OwnProgram
from gputax.worker.probes.processes import Use

Samples = Mapping[str, npt.NDArray[Any]]


class Engine(Protocol):
    """Executes a workload on rows of the samples it was given."""

    device: str
    """The device in use, read back after loading: `cpu`, `cuda` or `software`."""
    response_address: int
    """Address of the first output of the last run, for LoadGen's responses."""
    response_bytes: int
    """Bytes of that output per sample."""

    def facts(self) -> dict[str, Any]:
        """Return what was actually loaded: provider, threads, precision, versions."""
        ...

    def adapt_inputs(self, inputs: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Convert the workload's samples to the names, layout and type of this engine's model."""
        ...

    def load_samples(self, samples: Samples) -> None:
        """Set the rows for `run`; called before the first run and whenever their order changes."""
        ...

    def run(self, first: int, count: int) -> None:
        """Execute rows [first, first + count) and return when the device is done."""
        ...

    def close(self) -> None:
        """Release the device."""
        ...


@runtime_checkable
class RunsAProgram(Protocol):
    """An engine whose work is another program's: that one knows how long a run took, and rests between loads."""

    last_ns: int
    """The time of the last run."""

    @property
    def pids(self) -> Sequence[int]:
        """Its processes: those that run, or the last ones that ran."""
        ...

    def wake(self) -> None:
        """Let it run."""
        ...

    def rest(self) -> None:
        """Stop it."""
        ...

    def used(self) -> Use:
        """Return what it has used since its start."""
        ...


@contextmanager
def awake(engine: Engine) -> Iterator[RunsAProgram | None]:
    """Let an engine's program run inside; None for an engine that has none."""
    if not isinstance(engine, RunsAProgram):
        yield None
        return
    engine.wake()
    try:
        yield engine
    finally:
        engine.rest()


class InFlight(Protocol):
    """Runs that overlap, on one engine: they end in the order of their start, as far as its caller can tell."""

    def submit(self, first: int, count: int) -> None:
        """Start a run of rows [first, first + count); return without waiting for it."""
        ...

    def finish(self) -> None:
        """Wait for the oldest run that was not waited for."""
        ...

    def close(self) -> None:
        """Release what the runs needed; none may be in flight."""
        ...


@runtime_checkable
class KeepsInFlight(Protocol):
    """An engine that can start a run before the last one is done."""

    def in_flight(self, depth: int) -> InFlight:
        """Return what keeps up to `depth` runs in flight."""
        ...


@runtime_checkable
class Generates(Protocol):
    """An engine that answers token by token; all samples of a run get as many tokens, at the same times."""

    token_ns: npt.NDArray[np.int64]
    """When each token of the last run was there."""
    response_address: int
    response_bytes: int

    @property
    def tokens(self) -> int:
        """How many tokens each sample gets."""
        ...

    def generate(self, first: int, count: int, on_first: Callable[[], None]) -> None:
        """Do what `run` does; `on_first` is called as soon as the first tokens are there."""
        ...


@runtime_checkable
class GivesAnswers(Protocol):
    """An engine whose outputs can be read after a run."""

    def answers(self, count: int) -> dict[str, npt.NDArray[Any]]:
        """Return the outputs of the last run of `count` samples; a device that computes nothing has none."""
        ...


@runtime_checkable
class TimesItsCalls(Protocol):
    """An engine that can tell the time of a kernel from that of the calls around it."""

    def call_times(self) -> dict[str, float]:
        """Return `kernel_us` by the device's own clock, and `calls_us`: launch and wait, less the kernel."""
        ...


@dataclass(frozen=True)
class EngineRequest:
    """The request to load an engine."""

    workload: str
    options: Mapping[str, int | float | str | bool]
    device: str
    precision: str
    threads: int
    max_batch: int
    weights: str = ""
    seed: int = 7
    libcuda: str = ""
    own: OwnModel = field(default_factory=OwnModel)
    program: OwnProgram = field(default_factory=OwnProgram)


class NoResponse:
    """A zeroed output row for engines that compute nothing."""

    def __init__(self, max_batch: int) -> None:
        self.buffer = np.zeros(max_batch, dtype=np.int64)
        self.address = int(self.buffer.ctypes.data)
        self.bytes_per_sample = 8
