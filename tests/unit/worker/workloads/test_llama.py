"""The decoder computes what its description says, with a cache and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from gputax.plan.language_models import DecoderSize
from gputax.worker.workloads import load_workload
from gputax.worker.workloads.llama import llama
from gputax.worker.workloads.weights import ensure, seeded_path
from gputax.worker.workloads.workload import Workload, seeded_state
from tests.builders import numpy_llama

SIZES = {
    "grouped": DecoderSize(layers=2, hidden=32, heads=4, kv_heads=2, intermediate=48, vocabulary=97, prompt=7),
    "one key for all": DecoderSize(layers=1, hidden=24, heads=3, kv_heads=1, intermediate=20, vocabulary=50, prompt=5),
    "a key for each": DecoderSize(layers=3, hidden=16, heads=2, kv_heads=2, intermediate=40, vocabulary=31, prompt=9),
}
# The oracle computes in float64. Measured: at most 1.5e-6; a wrong angle, mask, head or weight moves logits by 1e-2.
TOLERANCE = 1e-4


class Decoder:
    """A plain session, as anybody would write it."""

    def __init__(self, workload: Workload, size: DecoderSize) -> None:
        self.states, self.size = workload.states, size.filled()
        self.session = onnxruntime.InferenceSession(ensure(workload).path, providers=["CPUExecutionProvider"])

    def empty(self, batch: int) -> dict[str, Any]:
        shape = (batch, self.size.kv_heads, 0, self.size.width)
        return {state.input: np.zeros(shape, np.float32) for state in self.states}

    def run(self, ids: Any, past: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
        """Return logits, the next token, and the cache for the next run."""
        names = ["logits", "next_token", *(state.output for state in self.states)]
        logits, token, *cache = self.session.run(names, {"input_ids": ids, **past})
        return logits, token, dict(zip((state.input for state in self.states), cache, strict=True))


@pytest.mark.parametrize("name", SIZES)
def test_logits_are_those_of_the_description(name: str, models: Path) -> None:
    size = SIZES[name].filled()
    workload = llama(f"small-{size.heads}", size)
    weights = seeded_state(workload, 7)
    ids = workload.synthetic_inputs(3, 11)["input_ids"]
    found, token, _ = (decoder := Decoder(workload, size)).run(ids, decoder.empty(3))
    for row in range(3):
        expected = numpy_llama.logits(ids[row], weights, size)
        assert expected.std() > 0.3, "logits this flat would be equal for the wrong reasons"
        assert np.abs(found[row] - expected).max() < TOLERANCE
        assert token[row].tolist() == [int(np.argmax(expected))]


def test_cached_steps_equal_the_whole_text_at_once(models: Path) -> None:
    size = SIZES["grouped"]
    workload = llama("small-cached", size)
    decoder = Decoder(workload, size)
    text = workload.synthetic_inputs(2, 3)["input_ids"]
    _, token, cache = decoder.run(text, decoder.empty(2))
    for _ in range(6):
        text = np.concatenate([text, token], axis=1)
        logits, token, cache = decoder.run(token, cache)
        whole, _, whole_cache = decoder.run(text, decoder.empty(2))
        assert np.abs(logits - whole).max() < TOLERANCE
        for name, values in cache.items():
            assert np.abs(values - whole_cache[name]).max() < TOLERANCE
    mixed_up = {name: np.roll(values, int("value" in name), axis=2) for name, values in cache.items()}
    wrong, right = decoder.run(token, mixed_up)[0], decoder.run(token, cache)[0]
    assert np.abs(wrong - right).max() > 100 * TOLERANCE, "keys and values of different tokens must matter"


def test_the_prompt_may_come_in_parts(models: Path) -> None:
    size = SIZES["grouped"]
    workload = llama("small-parts", size)
    decoder = Decoder(workload, size)
    ids = workload.synthetic_inputs(1, 5)["input_ids"]
    whole, _, _ = decoder.run(ids, decoder.empty(1))
    _, _, cache = decoder.run(ids[:, :4], decoder.empty(1))
    rest, _, _ = decoder.run(ids[:, 4:], cache)
    assert np.abs(rest - whole).max() < TOLERANCE


def test_positions_stay_exact_in_half_precision(models: Path) -> None:
    size = DecoderSize(layers=1, hidden=32, heads=2, kv_heads=1, intermediate=32, vocabulary=64, prompt=700)
    workload = llama("small-half", size)
    ids = workload.synthetic_inputs(1, 5)["input_ids"]
    found = {}
    for precision, dtype in (("fp32", np.float32), ("fp16", np.float16)):
        session = onnxruntime.InferenceSession(ensure(workload, precision).path, providers=["CPUExecutionProvider"])
        past = {state.input: np.zeros((1, 1, 0, 16), dtype) for state in workload.states}
        found[precision] = session.run(["logits"], {"input_ids": ids, **past})[0].astype(np.float64)
    # In float16 the angle at position 700 would be wrong by a quarter of a radian.
    assert np.abs(found["fp16"] - found["fp32"]).max() < 0.02 * np.abs(found["fp32"]).max()


def test_sizes_are_in_the_name_and_so_are_other_files(models: Path) -> None:
    tiny, deeper = load_workload("llm-tiny"), load_workload("llm-tiny:layers=5")
    assert (tiny.name, deeper.name) == ("llm-tiny", "llm-tiny:layers=5")
    assert tiny.graph_version != deeper.graph_version
    assert tiny.parameter_count == 5_048_576
    assert seeded_path(deeper.name, "fp32", 7).parent.name == "llm-tiny-layers=5"
