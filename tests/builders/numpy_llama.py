"""A decoder of Llama's kind in plain NumPy, written from its description: the oracle of our graph, without a cache."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from gputax.plan.language_models import DecoderSize

Floats = npt.NDArray[np.float64]
Weights = Mapping[str, npt.NDArray[np.float32]]


def logits(ids: npt.NDArray[np.int64], weights: Weights, size: DecoderSize) -> Floats:
    """Return the logits after the last token of one text; every number in float64."""
    x = weights["model.embed_tokens.weight"].astype(np.float64)[ids]
    for index in range(size.layers):
        layer = f"model.layers.{index}"
        x = x + _attention(_norm(x, weights[f"{layer}.input_layernorm.weight"]), weights, f"{layer}.self_attn", size)
        h = _norm(x, weights[f"{layer}.post_attention_layernorm.weight"])
        gate = h @ weights[f"{layer}.mlp.gate_proj.weight"].T
        up = h @ weights[f"{layer}.mlp.up_proj.weight"].T
        x = x + (gate / (1.0 + np.exp(-gate)) * up) @ weights[f"{layer}.mlp.down_proj.weight"].T
    found: Floats = _norm(x, weights["model.norm.weight"])[-1] @ weights["lm_head.weight"].T
    return found


def generated(ids: npt.NDArray[np.int64], count: int, weights: Weights, size: DecoderSize) -> list[int]:
    """Return the next tokens of a text, each the likeliest, by computing the whole text again for each."""
    text = list(map(int, ids))
    for _ in range(count):
        text.append(int(np.argmax(logits(np.array(text), weights, size))))
    return text[len(ids) :]


def _norm(x: Floats, weight: npt.NDArray[np.float32]) -> Floats:
    found: Floats = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6) * weight
    return found


def _attention(x: Floats, weights: Weights, name: str, size: DecoderSize) -> Floats:
    """Each head by itself, in a loop: nothing here shares a trick with the graph."""
    tokens, width = len(x), size.hidden // size.heads
    query = (x @ weights[f"{name}.q_proj.weight"].T).reshape(tokens, size.heads, width)
    key = (x @ weights[f"{name}.k_proj.weight"].T).reshape(tokens, size.kv_heads, width)
    value = (x @ weights[f"{name}.v_proj.weight"].T).reshape(tokens, size.kv_heads, width)
    mixed = np.zeros((tokens, size.heads, width))
    for head in range(size.heads):
        shared = head // (size.heads // size.kv_heads)
        for here in range(tokens):
            turned = _turned(query[here, head], here)
            scores = np.array([turned @ _turned(key[there, shared], there) for there in range(here + 1)])
            share = np.exp(scores / np.sqrt(width) - (scores / np.sqrt(width)).max())
            mixed[here, head] = (share / share.sum()) @ value[: here + 1, shared]
    found: Floats = mixed.reshape(tokens, -1) @ weights[f"{name}.o_proj.weight"].T
    return found


def _turned(vector: Floats, position: int) -> Floats:
    """Turn each pair of numbers, seen as a complex one, by its own angle."""
    half = len(vector) // 2
    angles = position / 10000.0 ** (np.arange(half) * 2 / len(vector))
    turned = (vector[:half] + 1j * vector[half:]) * np.exp(1j * angles)
    return np.concatenate([turned.real, turned.imag])
