"""The engine `neighbour`: a tenant that uses one kind of resource as much as it can; here on the processor."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import resource
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from gputax.errors import UsageError
from gputax.plan.techniques import AGGRESSORS, ENGINE, family_of
from gputax.worker.engines.engine import EngineRequest, NoResponse, Samples
from gputax.worker.probes.files import read_text


@dataclass(frozen=True)
class Work:
    """The work of one kind of neighbour: once per run, and at the end."""

    run: Callable[[], None]
    close: Callable[[], None]
    device: str
    facts: dict[str, Any]
    """At least `provider` and `threads`; for the CPU the worker's own description names the device."""


class NeighbourEngine:
    """Runs one kind of neighbour; one sample is one round of its work."""

    def __init__(self, request: EngineRequest) -> None:
        kind = str(request.options["kind"])
        if request.workload != f"{ENGINE}:{kind}":
            raise UsageError(
                f"the engine neighbour only disturbs others and cannot run {request.workload}",
                next_step=f"run gputax share --victim single-stream --aggressor {kind}",
            )
        crash_after_ms = int(request.options["crash_after_ms"])
        wanted = "cpu" if request.device == "auto" else request.device
        self._about = AGGRESSORS[kind, family_of(wanted)].about
        self._request = request
        self._work = _work(kind, wanted, request, crash_after_ms)
        self._run = self._work.run
        if kind != "crash":
            self._run()  # the first round touches its memory for the first time and takes up to 25 times as long
        self.device = self._work.device
        self._response = NoResponse(request.max_batch)
        self.response_address = self._response.address
        self.response_bytes = self._response.bytes_per_sample

    def facts(self) -> dict[str, Any]:
        """Return what the neighbour does, so that its numbers cannot pass for a workload's."""
        return {
            "engine": "neighbour",
            "about": self._about,
            "options": dict(self._request.options),
            "precision": "none",
            **self._work.facts,
        }

    def adapt_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return them unchanged."""
        return inputs

    def load_samples(self, samples: Samples) -> None:
        """Need none."""

    def run(self, first: int, count: int) -> None:
        """Do `count` rounds; each returns when its work is done."""
        for _ in range(count):
            self._run()

    def close(self) -> None:
        """Release threads, pipes and memory."""
        self._work.close()


def _work(kind: str, device: str, request: EngineRequest, crash_after_ms: int) -> Work:
    if family_of(device) == "cpu":
        return cpu_work(kind, request.threads, request.seed, crash_after_ms)
    from gputax.worker.engines.neighbour_driver import driver_work

    return driver_work(kind, device, request.seed, crash_after_ms)


Run = Callable[[], None]
PROVIDER = "neighbour on the CPU"
# OpenBLAS multiplies matrices of 64 x 64 with one thread (its limit is m*n*k = 2^18): so we choose the threads.
SIDE, PRODUCTS = 64, 256
COPY_BYTES = 100_000_000
PIECE_BYTES = 1 << 20
PIPE_BYTES = 1 << 20
TASKS_PER_RUN = 100
TIMES_THE_CACHE = 4
LEAST_STREAM_BYTES, MOST_STREAM_BYTES = 64 << 20, 512 << 20
CACHE_FILES = "sys/devices/system/cpu/cpu0/cache"
F_SETPIPE_SZ = 1031


def cpu_work(kind: str, threads: int, seed: int, crash_after_ms: int) -> Work:
    """Return the work of one kind with N threads; it runs only when called."""
    match kind:
        case "memory":
            return _memory(threads)
        case "copies":
            return _copies()
        case "launches":
            return _launches(threads)
    compute = _compute(threads, seed)
    if kind != "crash":
        return compute
    after_ns = crash_after_ms * 1_000_000
    return Work(crashing(compute.run, after_ns, segmentation_fault), compute.close, "cpu", compute.facts)


def _compute(threads: int, seed: int) -> Work:
    generator = np.random.default_rng(seed)
    stacks = [generator.random((2, PRODUCTS, SIDE, SIDE), dtype=np.float32) for _ in range(threads)]
    results = [np.empty((PRODUCTS, SIDE, SIDE), dtype=np.float32) for _ in range(threads)]

    def part(number: int) -> None:
        np.matmul(stacks[number][0], stacks[number][1], out=results[number])

    run, close = _in_threads(threads, part)
    return _cpu_work(run, close, threads, operations_per_run=threads * PRODUCTS * 2 * SIDE**3)


def _memory(threads: int) -> Work:
    size = stream_bytes() // threads
    pairs = [(np.ones(size // 16), np.empty(size // 16)) for _ in range(threads)]  # two arrays of 8-byte numbers each

    def part(number: int) -> None:
        source, target = pairs[number]
        np.multiply(source, 1.5, out=target)

    run, close = _in_threads(threads, part)
    return _cpu_work(run, close, threads, buffer_bytes=size * threads)


def _in_threads(threads: int, part: Callable[[int], None]) -> tuple[Run, Run]:
    """Return a function that runs parts 0..threads-1 in parallel, one of them here, and one that stops the threads."""
    if threads == 1:
        return lambda: part(0), lambda: None
    pool = ThreadPoolExecutor(threads - 1, thread_name_prefix="neighbour")

    def run() -> None:
        others = [pool.submit(part, number) for number in range(1, threads)]
        part(0)
        for other in others:
            other.result()

    return run, pool.shutdown


def _copies() -> Work:
    """Copy through the kernel, as a transfer to a device does, with a thread at each end of a pipe."""
    view, into = memoryview(b"\1" * COPY_BYTES), memoryview(bytearray(COPY_BYTES))
    read_end, write_end = _wide_pipe()

    def send() -> None:
        at = 0
        while at < COPY_BYTES:
            at += os.write(write_end, view[at : at + PIECE_BYTES])

    def run() -> None:
        sender = pool.submit(send)
        at = 0
        while at < COPY_BYTES:
            at += os.readv(read_end, [into[at : at + PIECE_BYTES]])
        sender.result()

    pool = ThreadPoolExecutor(1, thread_name_prefix="neighbour")

    def close() -> None:
        pool.shutdown()
        os.close(read_end)
        os.close(write_end)

    return _cpu_work(run, close, 2, bytes_per_run=COPY_BYTES)


def _wide_pipe() -> tuple[int, int]:
    read_end, write_end = os.pipe()
    with contextlib.suppress(OSError):  # if only the usual 64 KiB are allowed: more system calls for the same bytes
        fcntl.fcntl(write_end, F_SETPIPE_SZ, PIPE_BYTES)
    return read_end, write_end


def _launches(threads: int) -> Work:
    """Send a byte to each thread and wait for its reply, repeatedly: two wake-ups for almost no work."""
    count = max(2, threads)
    asks, answers = [os.pipe() for _ in range(count)], [os.pipe() for _ in range(count)]

    def serve(number: int) -> None:
        while os.read(asks[number][0], 1) == b"\1":
            os.write(answers[number][1], b"\1")

    served = [Thread(target=serve, args=(number,), name="neighbour", daemon=True) for number in range(count)]
    for thread in served:
        thread.start()

    def run() -> None:
        for _ in range(TASKS_PER_RUN // count):
            for ask in asks:
                os.write(ask[1], b"\1")
            for answer in answers:
                os.read(answer[0], 1)

    def close() -> None:
        for ask in asks:
            os.write(ask[1], b"\0")
        for thread in served:
            thread.join()
        for end in (end for pipe in (*asks, *answers) for end in pipe):
            os.close(end)

    return _cpu_work(run, close, count, tasks_per_run=TASKS_PER_RUN // count * count)


def stream_bytes(root: Path = Path("/")) -> int:
    """Return how much memory one round touches: four times the largest cache, within bounds."""
    sizes = [_cache_bytes(read_text(path) or "") for path in (root / CACHE_FILES).glob("index*/size")]
    return min(max(TIMES_THE_CACHE * max(sizes, default=0), LEAST_STREAM_BYTES), MOST_STREAM_BYTES)


def _cache_bytes(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    digits = text.rstrip("KMG")
    return int(digits) * units.get(text[len(digits) :], 1) if digits.isdigit() else 0


def crashing(run: Run, after_ns: int, crash: Run) -> Run:
    """Return `run`, but it crashes during its work a given time after its first call."""
    first_ns = 0

    def until_then() -> None:
        nonlocal first_ns
        now_ns = time.perf_counter_ns()
        first_ns = first_ns or now_ns
        if after_ns and now_ns - first_ns >= after_ns:
            crash()
        run()

    return until_then


def segmentation_fault() -> None:
    """Read address 0; the kernel kills this process without a core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(0)


def _cpu_work(run: Run, close: Run, threads: int, **sizes: Any) -> Work:
    return Work(run, close, "cpu", {"provider": PROVIDER, "threads": threads, **sizes})
