"""Every figure of `results/bench.json`, one function each."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.intervals import grouped_median_interval, median_interval
from bench.sides import BareLoop, sides, worker
from gputax.measure.run.cell import measure_cell
from gputax.measure.sizing import stream_load
from gputax.measure.summary import summarise
from gputax.measure.view import SilentView
from gputax.plan.cells import Cell, Load, LoadPlan
from gputax.results.importers.loadgen import parse_detail
from gputax.results.reading import RUN
from gputax.results.store import read_document
from gputax.worker.probes.limits import cpu_allowance

PAIRS = 8
# A run of seconds scatters by 5 % on shared cores.
OFFLINE_PAIRS = 20
BLOCK_S = 3.0
BLOCK_RUNS = 10
DROPPED_RUNS = 2
ROUNDS = 8
ROUND_S = 40.0
NOOP_SERVER_QPS = 50_000


def offline_efficiency() -> dict[str, Any]:
    """Samples per second of offline over the bare ONNX Runtime loop: ResNet-50, batch 8, same threads and input."""
    ratios = _offline_over("onnx", OFFLINE_PAIRS)
    return {
        "offline_efficiency": statistics.median(ratios),
        "offline_efficiency_ci95": median_interval(ratios),
        "offline_efficiency_pairs": ratios,
    }


def single_stream_overhead() -> dict[str, Any]:
    """LoadGen's own median of a 200 µs delay minus the bare loop's median of the same."""
    load = Load("single-stream", min_queries=5000, expected_latency_ns=100_000)
    with sides(worker("synthetic:latency_us=200"), BareLoop("synthetic", 200)) as (session, bare):
        pairs = _alternated(
            lambda: _loadgen_median_ns(session.apply(load).logs),
            lambda: bare.run(1.0)["median_ns"],
            lambda done: done < PAIRS,
        )
    differences = [(ours - theirs) / 1000 for ours, theirs in pairs]
    return {
        "single_stream_overhead_us": statistics.median(differences),
        "single_stream_overhead_us_ci95": median_interval(differences),
        "single_stream_overhead_pairs": differences,
    }


def single_stream_ratio() -> dict[str, Any]:
    """Median single-stream latency of ResNet-50 over the bare loop's, in short blocks, both processes new each round.

    Blocks of 3 s scatter by 10 % on shared cores, blocks of half a second follow the same weather. The first requests
    of a block find the other's data in the caches and are dropped on both sides. A process may have a luck of its own
    (where its memory lies), hence the rounds. Neither side's threads spin while it waits, or each would disturb the
    other at every change. LoadGen's own 4 µs beside our timestamps are `single_stream_overhead_us`.
    """
    rounds = [_stream_ratios(ROUND_S) for _ in range(ROUNDS)]
    return {
        "single_stream_ratio": statistics.median(ratio for ratios in rounds for ratio in ratios),
        "single_stream_ratio_ci95": grouped_median_interval(rounds),
        "single_stream_ratio_rounds": rounds,
    }


def _stream_ratios(seconds: float) -> list[float]:
    loop = BareLoop("onnx", 1, cpu_allowance().threads, 0)
    with sides(worker("onnx:spin=false", max_batch=1), loop) as (session, bare):
        call_ns = session.pilot(1).call_ns
        load = Load("single-stream", min_queries=BLOCK_RUNS + DROPPED_RUNS, expected_latency_ns=int(call_ns / 2))
        bare.run(1.0)
        end = time.monotonic() + seconds
        pairs = _alternated(
            lambda: _stream_median_ns(session.apply(load).columns),
            lambda: bare.run(BLOCK_RUNS * call_ns / 1e9, DROPPED_RUNS)["median_ns"],
            lambda done: time.monotonic() < end,
        )
    return [ours / theirs for ours, theirs in pairs]


def _stream_median_ns(columns: dict[str, Any]) -> float:
    latencies_ns = (columns["end_ns"] - columns["start_ns"])[DROPPED_RUNS:]
    return float(np.median(latencies_ns))


def no_op_rates() -> dict[str, Any]:
    """The floor: single-stream queries per second with an engine that does nothing, and 50,000/s server VALID."""
    session = worker("synthetic:latency_us=0")
    try:
        stream = Load("single-stream", min_queries=200_000, expected_latency_ns=1000)
        rates = [summarise("single-stream", session.apply(stream).columns).throughput_per_s for _ in range(3)]
        server = Load(
            "server",
            batch_size=32,
            min_queries=100_000,
            target_qps=NOOP_SERVER_QPS,
            bound_ns=15_000_000,
        )
        verdicts = []
        for _ in range(5):
            observation = session.apply(server)
            log = parse_detail(observation.logs["mlperf_log_detail.txt"])
            verdicts.append({"valid": log.valid, "p99_ms": (log.percentile_ns("99.00") or 0) / 1e6})
    finally:
        session.end()
    return {
        "noop_single_stream_qps": statistics.median(rates),
        "noop_server_qps": NOOP_SERVER_QPS,
        "noop_server_valid": sum(verdict["valid"] for verdict in verdicts) > len(verdicts) / 2,
        "noop_server_runs": verdicts,
    }


def server_peak_ratio() -> dict[str, Any]:
    """Highest valid server rate with batching over the same without: 4 ms + 0.2 ms per sample, 15 ms bound."""
    engine = "synthetic:latency_us=4000,per_sample_us=200"
    session = worker(engine)
    peaks = {}
    try:
        for batch in (1, 32):
            plan = LoadPlan(duration_s=0, min_samples=1000, find_peak=True, bound_ms=15.0)
            cell = Cell(session.setup, "server", batch, load=plan)
            peaks[batch] = measure_cell(session, cell, SilentView()).observation.load.target_qps
    finally:
        session.end()
    return {"server_peak_ratio": peaks[32] / peaks[1], "server_peak_qps": {str(key): peaks[key] for key in peaks}}


def vs_naive_torch() -> dict[str, Any]:
    """Offline samples per second over a plain eager torch loop, batch 8, where torch is installed."""
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError:
        return {"vs_naive_torch": None, "vs_naive_torch_why": "torch is not installed; `make test-torch` installs it"}
    ratios = _offline_over("torch", PAIRS // 2)
    return {
        "vs_naive_torch": statistics.median(ratios),
        "vs_naive_torch_why": None,
        "vs_naive_torch_pairs": ratios,
    }


def help_time() -> dict[str, Any]:
    """Milliseconds that `gputax --help` takes beyond an empty Python start."""
    more = [
        _wall_ms([sys.executable, "-m", "gputax", "--help"]) - _wall_ms([sys.executable, "-c", "pass"])
        for _ in range(15)
    ]
    return {"help_ms": statistics.median(more)}


def quick_run() -> dict[str, Any]:
    """Wall time and memory of `gputax run --suite quick`: coordinator and worker at their largest, added up."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "quick"
        started = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "gputax", "run", "--accept-disturbed", "--suite", "quick", "--out", str(out)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        coordinator_mb = 0.0
        while process.poll() is None:
            coordinator_mb = max(coordinator_mb, _resident_mb(process.pid))
            time.sleep(0.2)
        seconds = time.monotonic() - started
        worker_mb = 0.0
        for benchmark in read_document(RUN, out).benchmarks:
            telemetry = json.loads((out / benchmark.telemetry_file).read_text())
            worker_mb = max(worker_mb, *telemetry["rss_mb"])
    return {
        "quick_s": seconds,
        "quick_exit_code": process.returncode,
        "quick_peak_mb": coordinator_mb + worker_mb,
    }


def _resident_mb(pid: int) -> float:
    """Return the largest resident size that the process has had."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def _offline_over(loop: str, pairs: int) -> list[float]:
    """Return our offline samples per second over a bare loop's, batch 8, pair by pair."""
    with sides(worker("onnx"), BareLoop(loop, 8, cpu_allowance().threads)) as (session, bare):
        cell = Cell(session.setup, "offline", 8, load=LoadPlan(duration_s=BLOCK_S))
        load = stream_load(cell, session.pilot(8))
        bare.run(1.0)
        measured = _alternated(
            lambda: summarise("offline", session.apply(load).columns).throughput_per_s,
            lambda: bare.run(BLOCK_S)["samples_per_s"],
            lambda done: done < pairs,
        )
    return [ours / theirs for ours, theirs in measured]


def _alternated(
    ours: Callable[[], float], theirs: Callable[[], float], more: Callable[[int], bool]
) -> list[tuple[float, float]]:
    """Run both sides, in alternating order so that drift cancels, while `more` pairs are wanted."""
    pairs: list[tuple[float, float]] = []
    while more(len(pairs)):
        if len(pairs) % 2:
            second, first = theirs(), ours()
            pairs.append((first, second))
        else:
            pairs.append((ours(), theirs()))
    return pairs


def _loadgen_median_ns(logs: dict[str, str]) -> float:
    median = parse_detail(logs["mlperf_log_detail.txt"]).percentile_ns("50.00")
    assert median is not None
    return median


def _wall_ms(words: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - started) * 1000
