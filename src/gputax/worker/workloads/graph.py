"""Build a graph node by node, and the pieces that BERT (norm after each block) and YOLOS (norm before it) share."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from gputax.worker.workloads.workload import Attribute, Constant, Graph, Node, Parameter


class GraphWriter:
    """Collects nodes, constants and parameters in the order in which a workload describes itself."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._constants: dict[str, Constant] = {}
        self._parameters: dict[str, Parameter] = {}
        self._names: Counter[str] = Counter()

    def node(self, op: str, *inputs: str, at: str, output: str = "", **attributes: Attribute) -> str:
        """Add one operation and return the name of its output: `output`, or the place and the operation."""
        name = output or f"{at}/{op}"
        self._names[name] += 1
        if self._names[name] > 1:
            name = f"{name}_{self._names[name]}"
        self._nodes.append(Node(op, inputs, name, tuple(sorted(attributes.items()))))
        return name

    def parameter(
        self,
        name: str,
        shape: tuple[int, ...],
        *,
        std: float,
        mean: float = 0.0,
        transposed: bool = False,
        is_buffer: bool = False,
    ) -> str:
        """Declare a parameter and return its name."""
        if name in self._parameters:
            raise ValueError(f"parameter {name} is declared twice")
        self._parameters[name] = Parameter(name, shape, std, mean, transposed, is_buffer)
        return name

    def constant(self, values: tuple[int, ...] | int | float, *, exact: bool = False) -> str:
        """Declare a constant (equal ones are shared) and return its name; an `exact` float is float32 always."""
        kind = "float32" if exact else type(values).__name__
        name = f"constant/{kind}/{values}".replace(" ", "")
        self._constants[name] = Constant(name, values, exact)
        return name

    def graph(self) -> Graph:
        """Return the graph."""
        return Graph(tuple(self._nodes), tuple(self._constants.values()), tuple(self._parameters.values()))


LAYER_NORM_EPSILON = 1e-12
_BIAS_STD = 0.02
# Without these two, the seeded BERT-Large gives all tokens of a sample the same logits (their spread was
# 0.0005, with them 0.5): sharp attention distinguishes tokens, and damped branches preserve each token's own part.
_QUERY_KEY_GAIN = 2.0
_BRANCH_GAIN = 0.3


@dataclass(frozen=True)
class LayerSize:
    """The widths of one transformer layer."""

    hidden: int
    heads: int
    intermediate: int


def linear(graph: GraphWriter, x: str, name: str, width_in: int, width_out: int, gain: float = 1.0) -> str:
    """Multiply by the weight and add the bias; 1/sqrt(width_in) keeps the scale of the input."""
    std = gain / math.sqrt(width_in)
    weight = graph.parameter(f"{name}.weight", (width_out, width_in), std=std, transposed=True)
    bias = graph.parameter(f"{name}.bias", (width_out,), std=_BIAS_STD)
    return graph.node("Add", graph.node("MatMul", x, weight, at=name), bias, at=name)


def layer_norm(graph: GraphWriter, x: str, name: str, width: int) -> str:
    """Normalise the last axis."""
    weight = graph.parameter(f"{name}.weight", (width,), mean=1.0, std=0.05)
    bias = graph.parameter(f"{name}.bias", (width,), std=_BIAS_STD)
    return graph.node("LayerNormalization", x, weight, bias, at=name, axis=-1, epsilon=LAYER_NORM_EPSILON)


def gelu(graph: GraphWriter, x: str, at: str) -> str:
    """The exact Gelu, x/2 (1 + erf(x/sqrt 2)): opset 17 has no node for it, and engines fuse this pattern."""
    erf = graph.node("Erf", graph.node("Div", x, graph.constant(math.sqrt(2.0)), at=at), at=at)
    scaled = graph.node("Mul", x, graph.node("Add", erf, graph.constant(1.0), at=at), at=at)
    return graph.node("Mul", scaled, graph.constant(0.5), at=at)


def self_attention(graph: GraphWriter, x: str, name: str, size: LayerSize, mask: str = "") -> str:
    """Attend over all tokens; `mask` is added to the scores."""
    width = size.hidden // size.heads

    def heads(part: str, gain: float, *order: int) -> str:
        at = f"{name}.{part}"
        projected = linear(graph, x, at, size.hidden, size.hidden, gain)
        # 0 keeps the axis, so that batch and tokens stay free.
        split = graph.node("Reshape", projected, graph.constant((0, 0, size.heads, width)), at=at)
        return graph.node("Transpose", split, at=at, perm=order)

    query = heads("query", _QUERY_KEY_GAIN, 0, 2, 1, 3)
    key = heads("key", _QUERY_KEY_GAIN, 0, 2, 3, 1)
    value = heads("value", 1.0, 0, 2, 1, 3)
    scores = graph.node("MatMul", query, key, at=name)
    scores = graph.node("Div", scores, graph.constant(math.sqrt(width)), at=name)
    if mask:
        scores = graph.node("Add", scores, mask, at=name)
    weights = graph.node("Softmax", scores, at=name, axis=-1)
    mixed = graph.node("Transpose", graph.node("MatMul", weights, value, at=name), at=name, perm=(0, 2, 1, 3))
    return graph.node("Reshape", mixed, graph.constant((0, 0, size.hidden)), at=name)


def attention_output(graph: GraphWriter, x: str, name: str, size: LayerSize) -> str:
    """Project the attention output, ready to be added to the residual stream."""
    return linear(graph, x, f"{name}.attention.output.dense", size.hidden, size.hidden, _BRANCH_GAIN)


def feed_forward(graph: GraphWriter, x: str, name: str, size: LayerSize) -> str:
    """Widen, Gelu, narrow."""
    wide = linear(graph, x, f"{name}.intermediate.dense", size.hidden, size.intermediate)
    wide = gelu(graph, wide, f"{name}.intermediate")
    return linear(graph, wide, f"{name}.output.dense", size.intermediate, size.hidden, _BRANCH_GAIN)
