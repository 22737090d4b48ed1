"""What asking a server costs the client, how fast it can ask, and how well it finds programmed delays of tokens."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.intervals import median_interval
from gputax.measure.summary import Figures, summarise
from gputax.plan.cells import Load
from gputax.plan.engines import parse_engine
from gputax.worker.engines.engine import EngineRequest
from gputax.worker.engines.openai import OpenAiEngine
from gputax.worker.loads import requests

ROOT = Path(__file__).resolve().parent.parent
PAIRS, RUNS = 300, 20
RATES = (2_000, 2_500, 3_000, 4_000, 5_000, 6_000, 8_000)
RATE_S = 3.0
# A rate is held if this much of it is answered and the typical request leaves on time: the server is not the limit.
HELD, ON_TIME_MS = 0.98, 1.0
TTFT_MS, TPOT_MS, TOKENS, REQUESTS, RATE_PER_S = 200.0, 20.0, 20, 150, 6.0


@contextmanager
def model_server(*options: str) -> Iterator[str]:
    """Start the programmed server as a process of its own; it ends with its stdin."""
    words = [sys.executable, "-m", "tests.standins.model_server", *options]
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.communicate()


@contextmanager
def engine_of(url: str, options: str) -> Iterator[OpenAiEngine]:
    """Load the engine for this server."""
    spec = parse_engine(f"openai:{url},{options}")
    engine = OpenAiEngine(EngineRequest("server", spec.options, "auto", "fp32", 1, 1))
    try:
        yield engine
    finally:
        engine.close()


def applied(engine: OpenAiEngine, load: Load) -> tuple[Figures, dict[str, Any]]:
    """Apply a load and return its figures and columns."""
    recording = requests.recording_for(load)
    requests.apply(engine, load, recording)
    columns = recording.to_columns(streams=engine.streams)
    return summarise(load.scenario, columns), columns


def client_overhead(pairs: int = PAIRS) -> dict[str, Any]:
    """Return how much longer a request takes than the same bytes on a plain socket, in pairs of halves."""
    differences, plain_us = [], []
    with model_server() as url, engine_of(url, "output_tokens=1") as engine:
        data = engine.exchange._wires[0].data
        place = urlsplit(url)
        with socket.create_connection((place.hostname, place.port)) as plain:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(pairs):
                _, columns = applied(engine, Load("single-stream", min_queries=RUNS))
                measured = float(statistics.median(columns["end_ns"] - columns["start_ns"])) / 1e3
                base = statistics.median(plain_ns(plain, data) for _ in range(RUNS)) / 1e3
                plain_us.append(base)
                differences.append(measured - base)
    return {
        "openai_client_overhead_us": statistics.median(differences),
        "openai_client_overhead_us_ci95": median_interval(differences),
        "openai_plain_request_us": statistics.median(plain_us),
    }


def plain_ns(connection: socket.socket, data: bytes) -> int:
    """Send a request and read to the end of its stream, looking at nothing."""
    begun_ns = time.perf_counter_ns()
    connection.sendall(data)
    tail = b""
    while not tail.endswith(b"0\r\n\r\n"):
        tail = (tail + connection.recv(65536))[-16:]
    return time.perf_counter_ns() - begun_ns


def requests_per_s(rates: Sequence[int] = RATES) -> dict[str, Any]:
    """Return the highest rate of an open loop that one core of the client holds; the server has the other cores."""
    cores = sorted(os.sched_getaffinity(0))
    with model_server() as url, engine_of(url, "output_tokens=1") as engine:
        os.sched_setaffinity(0, cores[:1])
        try:
            found = []
            for rate in rates:
                load = Load("server", min_queries=int(rate * RATE_S), target_qps=float(rate))
                before_s = time.process_time()
                figures, columns = applied(engine, load)
                cpu_us = 1e6 * (time.process_time() - before_s) / figures.queries
                late_ms = float(statistics.median(columns["issued_ns"] - columns["scheduled_ns"])) / 1e6
                found.append(
                    {"rate": rate, "answered_per_s": figures.throughput_per_s, "late_p50_ms": late_ms, "cpu_us": cpu_us}
                )
                if figures.failed or figures.throughput_per_s < HELD * rate or late_ms > ON_TIME_MS:
                    break
        finally:
            os.sched_setaffinity(0, cores)
    held = [
        each["answered_per_s"]
        for each in found
        if each["answered_per_s"] >= HELD * each["rate"] and each["late_p50_ms"] <= ON_TIME_MS
    ]
    return {
        "openai_requests_per_s": max(held, default=0.0),
        "openai_cpu_us_per_request": min(each["cpu_us"] for each in found),
        "openai_rates": found,
    }


def token_errors() -> dict[str, Any]:
    """Return by which share the medians of TTFT and TPOT differ from what the server was programmed to."""
    with (
        model_server("--ttft-ms", str(TTFT_MS), "--tpot-ms", str(TPOT_MS)) as url,
        engine_of(url, f"output_tokens={TOKENS}") as engine,
    ):
        figures, _ = applied(engine, Load("server", min_queries=REQUESTS, target_qps=RATE_PER_S))
    assert figures.tokens is not None
    record = figures.tokens.record()
    return {
        "openai_ttft_error": abs(record["ttft_p50_ms"] / TTFT_MS - 1.0),
        "openai_tpot_error": abs(record["tpot_p50_ms"] / TPOT_MS - 1.0),
        "openai_ttft_p50_ms": record["ttft_p50_ms"],
        "openai_tpot_p50_ms": record["tpot_p50_ms"],
    }


if __name__ == "__main__":
    print(json.dumps({**client_overhead(), **requests_per_s(), **token_errors()}, indent=2))
