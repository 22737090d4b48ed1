"""Tokens per second of the language model over the decoding loops that people write by hand."""

from __future__ import annotations

import statistics
from typing import Any

from bench.intervals import median_interval
from bench.sides import BareLoop
from gputax.measure.session import WorkerSession
from gputax.measure.summary import summarise
from gputax.measure.view import SilentView
from gputax.places import environment_named
from gputax.plan.cells import Load, Setup
from gputax.worker.probes.limits import cpu_allowance

WORKLOAD = "llm-tiny"
PAIRS = 60
BLOCK_S = 0.5
EXPECTED_LATENCY_NS = 5_000_000


def language_model() -> dict[str, Any]:
    """Tokens/s of single-stream with LoadGen over a plain loop of ONNX Runtime: the faster one of two.

    One loop feeds the outputs of a step to the next as arrays, the other binds them. Neither side spins while it waits,
    or each would disturb the other at every change.
    """
    threads = cpu_allowance().threads
    setup = Setup(WORKLOAD, engine="onnx:spin=false", device="cpu", max_batch=1)
    session = WorkerSession(environment_named("bare"), setup, SilentView())
    loops = [BareLoop(kind, 1, threads, 0) for kind in ("llm", "llm-bound")]
    pairs: list[tuple[float, list[float]]] = []
    try:
        queries = 8
        for number in range(PAIRS):
            order = (loops, [])[number % 2], ([], loops)[number % 2]
            before = [loop.run(BLOCK_S)["samples_per_s"] for loop in order[0]]
            load = Load("single-stream", min_queries=queries, expected_latency_ns=EXPECTED_LATENCY_NS)
            ours = summarise("single-stream", session.apply(load).columns)
            after = [loop.run(BLOCK_S)["samples_per_s"] for loop in order[1]]
            queries = max(8, round(ours.throughput_per_s * BLOCK_S))
            pairs.append((ours.throughput_per_s, before + after))
    finally:
        session.end()
        for loop in loops:
            loop.close()
    return tokens_ratio(pairs[1:])  # the first pair found the length of the blocks


def tokens_ratio(pairs: list[tuple[float, list[float]]]) -> dict[str, Any]:
    """Return our rate over each loop's, and over that of the faster; every request has as many tokens.

    The faster one is chosen over all pairs: in each pair by itself, the larger of two would win by noise alone.
    """
    plain, bound = ([ours / loops[kind] for ours, loops in pairs] for kind in range(2))
    ratios = min(plain, bound, key=statistics.median)
    return {
        "llm_tiny_tokens_ratio": statistics.median(ratios),
        "llm_tiny_tokens_ratio_ci95": median_interval(ratios),
        "llm_tiny_tokens_ratio_arrays": statistics.median(plain),
        "llm_tiny_tokens_ratio_bound": statistics.median(bound),
        "llm_tiny_tokens_ratio_pairs": ratios,
    }
