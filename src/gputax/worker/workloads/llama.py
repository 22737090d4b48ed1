"""A decoder in the manner of Llama: RMS norm, rotary positions, grouped keys and values, SwiGLU, and their cache."""

from __future__ import annotations

import math
from functools import partial

from gputax.plan.language_models import DecoderSize, decoder_size, language_model_name
from gputax.worker.workloads.graph import GraphWriter
from gputax.worker.workloads.workload import Array, StateSpec, TensorSpec, Workload, integers

ROTARY_BASE = 10000.0
NORM_EPSILON = 1e-6
# Added to the score of a later token: its weight is exactly 0 after softmax, and float16 can represent it.
_MASKED = -10000.0
# As in BERT's graph: sharp attention tells tokens apart, and damped branches keep each token's own part.
_QUERY_KEY_GAIN, _BRANCH_GAIN = 2.0, 0.3
_EXACT = "float32"
"""The type of positions and angles: in float16 a position of a thousand would turn by half a radian too much."""


def llama(name: str, size: DecoderSize) -> Workload:
    """Describe the decoder under the names of transformers' LlamaForCausalLM.

    One graph for both: the prompt with an empty cache, then one token at a time with the cache of the run before. Of
    the tokens of a run only the last one gets logits, as an answer needs no others.
    """
    size = size.filled()
    graph = GraphWriter()
    states = tuple(
        StateSpec(f"past.{index}.{part}", f"present.{index}.{part}", ("batch", size.kv_heads, "past", size.width),
                  ("batch", size.kv_heads, "total", size.width))
        for index in range(size.layers)
        for part in ("key", "value")
    )  # fmt: skip
    places = _Places(graph, size)
    table = graph.parameter("model.embed_tokens.weight", (size.vocabulary, size.hidden), std=1.0)
    hidden = graph.node("Gather", table, "input_ids", at="model.embed_tokens")
    for index in range(size.layers):
        layer = f"model.layers.{index}"
        normed = _rms_norm(graph, hidden, f"{layer}.input_layernorm", size.hidden)
        hidden = graph.node("Add", hidden, _attention(graph, normed, index, size, places), at=f"{layer}.self_attn")
        normed = _rms_norm(graph, hidden, f"{layer}.post_attention_layernorm", size.hidden)
        hidden = graph.node("Add", hidden, _swiglu(graph, normed, f"{layer}.mlp", size), at=f"{layer}.mlp")
    last = graph.node("Gather", hidden, graph.constant(-1), at="model.norm", axis=1)
    last = _rms_norm(graph, last, "model.norm", size.hidden)
    head = graph.parameter(
        "lm_head.weight", (size.vocabulary, size.hidden), std=1.0 / math.sqrt(size.hidden), transposed=True
    )
    logits = graph.node("MatMul", last, head, at="lm_head", output="logits")
    graph.node("ArgMax", logits, at="lm_head", output="next_token", axis=-1, keepdims=1)
    return Workload(
        name,
        inputs=(TensorSpec("input_ids", (size.prompt,), "int64", axes=("batch", "tokens")),),
        outputs=(TensorSpec("next_token", (1,), "int64"), TensorSpec("logits", (size.vocabulary,))),
        graph=graph.graph(),
        draw_inputs=partial(_draw_inputs, size),
        states=states,
    )


class _Places:
    """What every layer needs of the positions: the angles' cosine and sine, and which tokens are seen."""

    def __init__(self, graph: GraphWriter, size: DecoderSize) -> None:
        at = "model.positions"

        def length(tensor: str, axis: int) -> str:
            return graph.node("Gather", graph.node("Shape", tensor, at=at), graph.constant(axis), at=at)

        zero, one = graph.constant(0), graph.constant(1)
        past, tokens = length("past.0.key", 2), length("input_ids", 1)
        total = graph.node("Add", past, tokens, at=at)
        positions = graph.node("Range", past, total, one, at=at)
        rows = graph.node("Unsqueeze", positions, graph.constant((1,)), at=at)
        seen = graph.node("LessOrEqual", graph.node("Range", zero, total, one, at=at), rows, at=at)
        mask = graph.node("Where", seen, graph.constant(0.0), graph.constant(_MASKED), at=at)
        group = size.heads // size.kv_heads
        # The query heads that share a key are rows of one matrix: the mask is repeated for each of them.
        self.mask = graph.node("Concat", *[mask] * group, at=at, axis=0) if group > 1 else mask
        half = graph.node("Range", zero, graph.constant(size.width // 2), one, at=at)
        slope = graph.constant(-2.0 * math.log(ROTARY_BASE) / size.width, exact=True)
        frequency = graph.node("Mul", graph.node("Cast", half, at=at, to=_EXACT), slope, at=at)
        frequency = graph.node("Exp", frequency, at=at)
        angles = graph.node("Mul", graph.node("Cast", rows, at=at, to=_EXACT), frequency, at=at)
        self.cosine, self.sine = (
            graph.node("Cast", graph.node(op, angles, at=at), at=at, to="float") for op in ("Cos", "Sin")
        )


def _linear(graph: GraphWriter, x: str, name: str, width_in: int, width_out: int, gain: float = 1.0) -> str:
    weight = graph.parameter(f"{name}.weight", (width_out, width_in), std=gain / math.sqrt(width_in), transposed=True)
    return graph.node("MatMul", x, weight, at=name)


def _rms_norm(graph: GraphWriter, x: str, name: str, width: int) -> str:
    """Divide by the root of the mean square; ONNX Runtime fuses exactly this pattern into one kernel."""
    weight = graph.parameter(f"{name}.weight", (width,), mean=1.0, std=0.05)
    squares = graph.node("Pow", x, graph.constant(2.0), at=name)
    mean = graph.node("ReduceMean", squares, at=name, axes=(-1,), keepdims=1)
    root = graph.node("Sqrt", graph.node("Add", mean, graph.constant(NORM_EPSILON), at=name), at=name)
    return graph.node("Mul", graph.node("Div", x, root, at=name), weight, at=name)


def _attention(graph: GraphWriter, x: str, index: int, size: DecoderSize, places: _Places) -> str:
    name = f"model.layers.{index}.self_attn"
    group, width = size.heads // size.kv_heads, size.width
    query = _linear(graph, x, f"{name}.q_proj", size.hidden, size.heads * width, _QUERY_KEY_GAIN)
    query = graph.node("Reshape", query, graph.constant((0, 0, size.kv_heads, group, width)), at=name)
    query = _rotated(graph, graph.node("Transpose", query, at=name, perm=(0, 2, 3, 1, 4)), name, width, places)
    query = graph.node("Reshape", query, graph.constant((0, 0, -1, width)), at=name)

    def projected(part: str, gain: float) -> str:
        values = _linear(graph, x, f"{name}.{part}_proj", size.hidden, size.kv_heads * width, gain)
        values = graph.node("Reshape", values, graph.constant((0, 0, size.kv_heads, width)), at=name)
        return graph.node("Transpose", values, at=name, perm=(0, 2, 1, 3))

    def with_past(values: str, part: str) -> str:
        output = f"present.{index}.{part}"
        return graph.node("Concat", f"past.{index}.{part}", values, at=name, output=output, axis=2)

    key = with_past(_rotated(graph, projected("k", _QUERY_KEY_GAIN), name, width, places), "key")
    value = with_past(projected("v", 1.0), "value")
    scores = graph.node("MatMul", query, graph.node("Transpose", key, at=name, perm=(0, 1, 3, 2)), at=name)
    scores = graph.node("Div", scores, graph.constant(math.sqrt(width)), at=name)
    weights = graph.node("Softmax", graph.node("Add", scores, places.mask, at=name), at=name, axis=-1)
    mixed = graph.node("MatMul", weights, value, at=name)
    mixed = graph.node("Reshape", mixed, graph.constant((0, 0, group, -1, width)), at=name)
    mixed = graph.node("Transpose", mixed, at=name, perm=(0, 3, 1, 2, 4))
    mixed = graph.node("Reshape", mixed, graph.constant((0, 0, size.heads * width)), at=name)
    return _linear(graph, mixed, f"{name}.o_proj", size.heads * width, size.hidden, _BRANCH_GAIN)


def _rotated(graph: GraphWriter, x: str, at: str, width: int, places: _Places) -> str:
    """Turn each pair (i, i + width/2) by the angle of its position."""
    half, axis = width // 2, graph.constant((-1,))
    low = graph.node("Slice", x, graph.constant((0,)), graph.constant((half,)), axis, at=at)
    high = graph.node("Slice", x, graph.constant((half,)), graph.constant((width,)), axis, at=at)

    def turned(op: str, of_cosine: str, of_sine: str) -> str:
        cosine = graph.node("Mul", of_cosine, places.cosine, at=at)
        return graph.node(op, cosine, graph.node("Mul", of_sine, places.sine, at=at), at=at)

    return graph.node("Concat", turned("Sub", low, high), turned("Add", high, low), at=at, axis=-1)


def _swiglu(graph: GraphWriter, x: str, name: str, size: DecoderSize) -> str:
    gate = _linear(graph, x, f"{name}.gate_proj", size.hidden, size.intermediate)
    gate = graph.node("Mul", gate, graph.node("Sigmoid", gate, at=name), at=name)
    wide = graph.node("Mul", gate, _linear(graph, x, f"{name}.up_proj", size.hidden, size.intermediate), at=name)
    return _linear(graph, wide, f"{name}.down_proj", size.intermediate, size.hidden, _BRANCH_GAIN)


def _draw_inputs(size: DecoderSize, count: int, seed: int) -> dict[str, Array]:
    ids = integers(seed, "input:ids", count * size.prompt, 0, size.vocabulary)
    return {"input_ids": ids.reshape(count, size.prompt)}


def workload(name: str) -> Workload:
    """Return the language model of this name, e.g. `llm-tiny:layers=8`."""
    return llama(language_model_name(name), decoder_size(name))
