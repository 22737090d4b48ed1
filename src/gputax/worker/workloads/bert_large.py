"""BERT-Large for question answering: 24 layers, sequence 384, start and end logits per token."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from gputax.worker.workloads.graph import (
    GraphWriter,
    LayerSize,
    attention_output,
    feed_forward,
    layer_norm,
    linear,
    self_attention,
)
from gputax.worker.workloads.workload import Array, TensorSpec, Workload, integers

# Added to the score of a masked token: its weight is exactly 0 after softmax, and float16 can represent it.
_MASKED = -10000.0
_EMBEDDING_STD = 0.02
_CLS, _SEP, _FIRST_WORD = 101, 102, 1000


@dataclass(frozen=True)
class BertSize:
    """The sizes that make BERT large; tests make it small."""

    layers: int = 24
    hidden: int = 1024
    heads: int = 16
    intermediate: int = 4096
    vocabulary: int = 30522
    positions: int = 512
    sequence: int = 384


def bert(name: str, size: BertSize) -> Workload:
    """Describe BERT for question answering, under the names of transformers' BertForQuestionAnswering."""
    graph = GraphWriter()
    layer_size = LayerSize(size.hidden, size.heads, size.intermediate)
    mask = _additive_mask(graph)
    hidden = _embeddings(graph, size)
    for index in range(size.layers):
        layer = f"bert.encoder.layer.{index}"
        attended = self_attention(graph, hidden, f"{layer}.attention.self", layer_size, mask)
        attended = attention_output(graph, attended, layer, layer_size)
        attended = graph.node("Add", attended, hidden, at=f"{layer}.attention.output")
        hidden = layer_norm(graph, attended, f"{layer}.attention.output.LayerNorm", size.hidden)
        widened = feed_forward(graph, hidden, layer, layer_size)
        widened = graph.node("Add", widened, hidden, at=f"{layer}.output")
        hidden = layer_norm(graph, widened, f"{layer}.output.LayerNorm", size.hidden)
    logits = linear(graph, hidden, "qa_outputs", size.hidden, 2)
    for index, output in enumerate(("output_start_logits", "output_end_logits")):
        graph.node("Gather", logits, graph.constant(index), at="qa_outputs", output=output, axis=2)
    tokens = (size.sequence,)
    return Workload(
        name,
        inputs=(
            TensorSpec("input_ids", tokens, "int64"),
            TensorSpec("input_mask", tokens, "int64", aliases=("attention_mask",)),
            TensorSpec("segment_ids", tokens, "int64", aliases=("token_type_ids",)),
        ),
        outputs=(
            TensorSpec("output_start_logits", tokens, aliases=("start_logits",)),
            TensorSpec("output_end_logits", tokens, aliases=("end_logits",)),
        ),
        graph=graph.graph(),
        draw_inputs=partial(_draw_inputs, size),
    )


def _additive_mask(graph: GraphWriter) -> str:
    """[batch, tokens] of ones and zeros to [batch, 1, 1, tokens] of 0 and a large negative number."""
    at = "bert.mask"
    mask = graph.node("Unsqueeze", "input_mask", graph.constant((1,)), at=at)
    mask = graph.node("Unsqueeze", mask, graph.constant((2,)), at=at)
    mask = graph.node("Cast", mask, at=at, to="float")
    mask = graph.node("Sub", graph.constant(1.0), mask, at=at)
    return graph.node("Mul", mask, graph.constant(_MASKED), at=at)


def _embeddings(graph: GraphWriter, size: BertSize) -> str:
    at = "bert.embeddings"

    def table(name: str, rows: int) -> str:
        return graph.parameter(f"{at}.{name}_embeddings.weight", (rows, size.hidden), std=_EMBEDDING_STD)

    words = graph.node("Gather", table("word", size.vocabulary), "input_ids", at=f"{at}.word")
    first, end, axis = graph.constant((0,)), graph.constant((size.sequence,)), graph.constant((0,))
    places = graph.node("Slice", table("position", size.positions), first, end, axis, at=f"{at}.position")
    segments = graph.node("Gather", table("token_type", 2), "segment_ids", at=f"{at}.token_type")
    summed = graph.node("Add", graph.node("Add", words, segments, at=at), places, at=at)
    return layer_norm(graph, summed, f"{at}.LayerNorm", size.hidden)


def _draw_inputs(size: BertSize, count: int, seed: int) -> dict[str, Array]:
    """[CLS] question [SEP] context [SEP] and padding, like a tokenised SQuAD sample."""
    place = np.arange(size.sequence)
    shortest = size.sequence // 3
    length = integers(seed, "input:length", count, shortest, size.sequence + 1)[:, None]
    question = integers(seed, "input:question", count, 3, 3 + size.sequence // 6)[:, None]
    first_word = min(_FIRST_WORD, size.vocabulary // 2)
    ids = integers(seed, "input:ids", count * size.sequence, first_word, size.vocabulary)
    ids = ids.reshape(count, size.sequence)
    ids[:, 0] = _CLS
    ids[(place == question - 1) | (place == length - 1)] = _SEP
    used = place < length
    return {
        "input_ids": np.where(used, ids, 0),
        "input_mask": used.astype(np.int64),
        "segment_ids": (used & (place >= question)).astype(np.int64),
    }


WORKLOAD = bert("bert-large", BertSize())
