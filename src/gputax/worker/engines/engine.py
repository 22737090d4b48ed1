"""The interface of every engine: hold samples, run a range of them, report what actually ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

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


class NoResponse:
    """A zeroed output row for engines that compute nothing."""

    def __init__(self, max_batch: int) -> None:
        self.buffer = np.zeros(max_batch, dtype=np.int64)
        self.address = int(self.buffer.ctypes.data)
        self.bytes_per_sample = 8
