"""A workload is plain data: its tensors, its parameters and the nodes of its graph, free of any framework."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
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

    def dtype_in(self, precision: str) -> str:
        """Return the type in that precision; identifiers and masks stay int64."""
        return FLOAT_TYPES[precision] if self.dtype == "float32" else self.dtype


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
        return hashlib.sha256(described.encode()).hexdigest()[:12]

    def synthetic_inputs(self, count: int, seed: int, precision: str = "fp32") -> dict[str, Array]:
        """Return `count` seeded samples: one contiguous array per input, samples along the first axis."""
        drawn = self.draw_inputs(count, seed)
        return {
            spec.name: np.ascontiguousarray(drawn[spec.name], dtype=spec.dtype_in(precision)) for spec in self.inputs
        }
