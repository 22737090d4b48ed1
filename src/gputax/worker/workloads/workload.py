"""A workload is plain data, free of any framework: tensors, parameters, graph nodes; its numbers are seeded."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Attribute: TypeAlias = int | float | str | tuple[int, ...]

OPSET = 17
FLOAT_TYPES: dict[str, str] = {"fp32": "float32", "fp16": "float16"}

# Part of every graph's version: raise it when parameter_values gives other numbers for the same seed.
SEEDING = 1


@dataclass(frozen=True)
class TensorSpec:
    """One input or output: shape without the batch axis, and its type in fp32."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    aliases: tuple[str, ...] = ()
    """Names of the same tensor in other people's files."""
    axes: tuple[str | int, ...] = field(default=(), repr=False)
    """All axes in the graph, by name where they are free; empty: a free batch axis and the shape."""

    def dtype_in(self, precision: str) -> str:
        """Return the type in that precision; identifiers and masks stay int64."""
        return FLOAT_TYPES[precision] if self.dtype == "float32" else self.dtype


@dataclass(frozen=True)
class StateSpec:
    """A tensor that a run leaves to the next one of the same request, such as a cache of keys."""

    input: str
    output: str
    axes: tuple[str | int, ...]
    axes_after: tuple[str | int, ...]


@dataclass(frozen=True)
class Parameter:
    """One tensor of weights: the transformers library's name and layout, and how its seeded values spread."""

    name: str
    shape: tuple[int, ...]
    std: float
    mean: float = 0.0
    transposed: bool = False
    """The graph uses [in, out] for MatMul while the library stores [out, in]."""
    is_buffer: bool = False
    """A running statistic, which the library does not count as a parameter."""

    @property
    def size(self) -> int:
        """The number of values."""
        return math.prod(self.shape)

    @property
    def graph_shape(self) -> tuple[int, ...]:
        """The shape in the graph."""
        return self.shape[::-1] if self.transposed else self.shape


@dataclass(frozen=True)
class Node:
    """One operation of the graph, in ONNX's vocabulary."""

    op: str
    inputs: tuple[str, ...]
    output: str
    attributes: tuple[tuple[str, Attribute], ...] = ()


@dataclass(frozen=True)
class Constant:
    """A number or a shape inside the graph; floats take the precision of the graph."""

    name: str
    values: tuple[int, ...] | int | float
    exact: bool = field(default=False, repr=False)
    """A float that stays float32 in every precision."""


@dataclass(frozen=True)
class Graph:
    """The operations in order, and everything they read besides the inputs."""

    nodes: tuple[Node, ...]
    constants: tuple[Constant, ...]
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True)
class Workload:
    """What runs on the device."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    graph: Graph
    draw_inputs: Callable[[int, int], dict[str, Array]]
    """(count, seed) to one array per input; sample i is the same whatever the count."""
    states: tuple[StateSpec, ...] = ()
    """What a run leaves to the next one; a model without has one run for each sample."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """All weights and running statistics, in the order of the graph."""
        return self.graph.parameters

    @property
    def parameter_count(self) -> int:
        """The number of trainable values, as the transformers library counts them."""
        return sum(parameter.size for parameter in self.parameters if not parameter.is_buffer)

    @property
    def graph_version(self) -> str:
        """A digest of everything that determines the file besides the seed, so it needs no manual update."""
        described = repr((SEEDING, OPSET, self.inputs, self.outputs, self.graph))
        if self.states:
            described += repr((self.states, [spec.axes for spec in self.inputs]))
        return hashlib.sha256(described.encode()).hexdigest()[:12]

    def synthetic_inputs(self, count: int, seed: int, precision: str = "fp32") -> dict[str, Array]:
        """Return `count` seeded samples: one contiguous array per input, samples along the first axis."""
        drawn = self.draw_inputs(count, seed)
        return {
            spec.name: np.ascontiguousarray(drawn[spec.name], dtype=spec.dtype_in(precision)) for spec in self.inputs
        }


_TICKS = 1 << 16
# A uniform distribution of width w has the standard deviation w / sqrt(12).
_WIDTH_PER_STD = math.sqrt(12.0)


def ticks(seed: int, key: str, count: int) -> npt.NDArray[np.uint16]:
    """Return `count` uniform 16-bit integers that depend only on seed and key."""
    # NumPy promises a stable stream for bit generators only, not for its distributions (NEP 19), and a normal
    # distribution goes through libm. Raw bits, 16 per number, keep the sha256 equal everywhere.
    digest = int.from_bytes(hashlib.sha256(key.encode()).digest()[:16], "little")
    generator = np.random.PCG64(np.random.SeedSequence([seed, digest]))
    words = generator.random_raw(-(-count // 4)).astype("<u8", copy=False)
    return words.view("<u2")[:count]


def integers(seed: int, key: str, count: int, low: int, high: int) -> npt.NDArray[np.int64]:
    """Return `count` integers of low <= x < high."""
    return low + (ticks(seed, key, count).astype(np.int64) * (high - low) >> 16)


def pixels(seed: int, count: int, height: int, width: int) -> npt.NDArray[np.float32]:
    """Return RGB images of uniform noise, in whole numbers 0..255."""
    noise = ticks(seed, "input:pixels", count * 3 * height * width) >> 8
    return noise.astype(np.float32).reshape(count, 3, height, width)


def parameter_values(parameter: Parameter, seed: int) -> npt.NDArray[np.float32]:
    """Return the parameter's seeded values in the transformers library's layout."""
    values = ticks(seed, parameter.name, parameter.size).astype(np.float32)
    values -= np.float32((_TICKS - 1) / 2)  # exact: 17 bits are enough
    values *= np.float32(parameter.std * _WIDTH_PER_STD / _TICKS)
    values += np.float32(parameter.mean)
    return values.reshape(parameter.shape)


def seeded_state(workload: Workload, seed: int) -> dict[str, Array]:
    """Return all parameters under the transformers library's names, ready for `load_state_dict`."""
    return {parameter.name: parameter_values(parameter, seed) for parameter in workload.parameters}
