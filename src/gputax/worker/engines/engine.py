"""The interface that every engine fills: hold samples, run a range of them, tell what really ran."""

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
    """Where the first output of the last run lies, for LoadGen's responses."""
    response_bytes: int
    """Bytes of that output per sample."""

    def facts(self) -> dict[str, Any]:
        """Tell what was really loaded: provider, threads, precision, versions."""
        ...

    def adapt_inputs(self, inputs: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Bring the workload's samples into the names, layout and type that this engine's model takes."""
        ...

    def load_samples(self, samples: Samples) -> None:
        """Take the rows that `run` will be asked for; called before the first run and whenever their order changed."""
        ...

    def run(self, first: int, count: int) -> None:
        """Execute rows [first, first + count) and return when the device is done."""
        ...

    def close(self) -> None:
        """Give the device back."""
        ...


@dataclass(frozen=True)
class EngineRequest:
    """What an engine is asked to load."""

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
