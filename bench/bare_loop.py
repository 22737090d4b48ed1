"""The plain loop that people write by hand, in a process of its own: the other side of every ratio.

Speaks one line each way: `{"seconds": s, "dropped_runs": n}` in, `{"median_ns": n, "samples_per_s": r}` out. While it
waits it is idle.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any


def onnx_call(batch: int, threads: int, spin: int = 1) -> Callable[[], object]:
    """Return one `session.run` with the seeded ResNet-50 and the inputs that the worker uses too."""
    import onnxruntime

    from gputax.worker.workloads import load_workload
    from gputax.worker.workloads.weights import ensure

    workload = load_workload("resnet50")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", str(spin))
    session = onnxruntime.InferenceSession(str(ensure(workload).path), options, providers=["CPUExecutionProvider"])
    inputs = workload.synthetic_inputs(batch, 7)
    return lambda: session.run(None, inputs)


def torch_call(batch: int, threads: int) -> Callable[[], object]:
    """Return one eager forward pass, as in most hand-written benchmarks."""
    import torch
    import transformers

    from gputax.worker.engines.torch import build_module
    from gputax.worker.workloads import load_workload

    torch.set_num_threads(threads)
    module = build_module(transformers, torch, "resnet50", 7).eval()
    pixels = torch.from_numpy(load_workload("resnet50").synthetic_inputs(batch, 7)["pixel_values"])

    def call() -> object:
        with torch.no_grad():
            return module(pixel_values=pixels).logits

    return call


def synthetic_call(latency_us: int) -> Callable[[], object]:
    """Return one programmed delay."""
    from gputax.plan.engines import parse_engine
    from gputax.worker.engines.engine import EngineRequest
    from gputax.worker.engines.synthetic import SyntheticEngine

    options = parse_engine(f"synthetic:latency_us={latency_us}").options
    engine = SyntheticEngine(EngineRequest("resnet50", options, "cpu", "fp32", 1, 1))
    return lambda: engine.run(0, 1)


def _decoder(threads: int, spin: int) -> tuple[Any, Any, tuple[Any, ...], int]:
    """Return a session with the seeded language model, one prompt, its caches, and how many tokens to generate."""
    import onnxruntime

    from gputax.plan.language_models import decoder_size
    from gputax.worker.workloads import load_workload
    from gputax.worker.workloads.weights import ensure

    workload = load_workload("llm-tiny")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", str(spin))
    session = onnxruntime.InferenceSession(str(ensure(workload).path), options, providers=["CPUExecutionProvider"])
    return session, workload.synthetic_inputs(1, 7)["input_ids"], workload.states, decoder_size("llm-tiny").output


def _empty_cache(states: tuple[Any, ...]) -> dict[str, Any]:
    import numpy as np

    sizes = [[axis if isinstance(axis, int) else int(axis == "batch") for axis in state.axes] for state in states]
    return {state.input: np.zeros(size, np.float32) for state, size in zip(states, sizes, strict=True)}


def llm_call(batch: int, threads: int, spin: int = 1) -> Callable[[], object]:
    """Return one answer of the language model: `session.run` for each token, the caches as arrays."""
    session, ids, states, tokens = _decoder(threads, spin)
    names = ["next_token", *(state.output for state in states)]
    inputs, empty = [state.input for state in states], _empty_cache(states)

    def call() -> object:
        token, *cache = session.run(names, {"input_ids": ids, **empty})
        for _ in range(tokens - 1):
            token, *cache = session.run(names, {"input_ids": token, **dict(zip(inputs, cache, strict=True))})
        return token

    return call


def llm_bound_call(batch: int, threads: int, spin: int = 1) -> Callable[[], object]:
    """Return the same answer with the outputs of a step bound as the inputs of the next."""
    session, ids, states, tokens = _decoder(threads, spin)
    names = ["next_token", *(state.output for state in states)]
    inputs, empty = ["input_ids", *(state.input for state in states)], _empty_cache(states)

    def call() -> object:
        binding = session.io_binding()
        for name, values in {"input_ids": ids, **empty}.items():
            binding.bind_cpu_input(name, values)
        for step in range(tokens):
            for name in names:
                binding.bind_output(name, "cpu")
            session.run_with_iobinding(binding)
            outputs = binding.get_outputs()
            for name, value in zip(inputs, outputs, strict=True) if step < tokens - 1 else ():
                binding.bind_ortvalue_input(name, value)
        return outputs[0].numpy()

    return call


CALLS: dict[str, Callable[..., Callable[[], object]]] = {
    "onnx": onnx_call,
    "torch": torch_call,
    "llm": llm_call,
    "llm-bound": llm_bound_call,
    "synthetic": synthetic_call,
}


def timed(call: Callable[[], object], seconds: float, dropped_runs: int) -> list[int]:
    """Time calls for the given seconds, after some that are dropped."""
    for _ in range(dropped_runs):
        call()
    durations_ns = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter_ns()
        call()
        durations_ns.append(time.perf_counter_ns() - start)
    return durations_ns


def main(kind: str, *arguments: str) -> None:
    """Serve requests for loops until the pipe ends."""
    numbers = [int(word) for word in arguments]
    call = CALLS[kind](*numbers)
    batch = numbers[0] if kind != "synthetic" else 1
    call()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        durations_ns = timed(call, request["seconds"], request["dropped_runs"])
        rate = batch * len(durations_ns) * 1e9 / sum(durations_ns)
        print(json.dumps({"median_ns": statistics.median(durations_ns), "samples_per_s": rate}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
