"""An engine with known, programmable delays, to test the tool against a known truth."""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from gputax.errors import EngineError, PreflightError
from gputax.plan.language_models import decoder_size
from gputax.worker.engines.engine import EngineRequest, InFlight, NoResponse, Samples

# Waking from a sleep took up to 130 µs on a virtual machine, so the last stretch is polled. An empty poll takes
# 0.4 µs and leaves the GIL to others; `time.sleep(0)` does so too but took 28 to 110 µs (measured).
POLLED_NS = 300_000
_NOTHING = select.poll()
JITTER_TABLE = 4096


class SyntheticEngine:
    """Takes `latency_us + per_sample_us * count + jitter` per run and computes nothing."""

    device = "cpu"

    def __init__(self, request: EngineRequest) -> None:
        if request.device in ("cuda", "software"):
            raise PreflightError(
                f"the synthetic engine has no device {request.device}",
                next_step=f"drop --device {request.device}, or use another engine",
            )
        options = request.options
        self._base_ns = int(float(options["latency_us"]) * 1000)
        self._per_sample_ns = int(float(options["per_sample_us"]) * 1000)
        generator = np.random.default_rng(int(options["seed"]))
        jitter = generator.normal(0.0, float(options["jitter_us"]) * 1000, JITTER_TABLE)
        self._jitter_ns = [int(value) for value in jitter] if options["jitter_us"] else [0]
        self._fail_after = int(options["fail_after"])
        self._hang_after = int(options["hang_after"])
        self._faulty = bool(self._fail_after or self._hang_after)
        self._runs = 0
        self._request = request
        response = NoResponse(request.max_batch)
        self._response = response
        self.response_address = response.address
        self.response_bytes = response.bytes_per_sample

    def facts(self) -> dict[str, Any]:
        """Return the programmed delays, so that a synthetic number cannot pass for a real one."""
        return {
            "engine": "synthetic",
            "provider": "synthetic",
            "device_name": "programmed delay, no computation",
            "options": dict(self._request.options),
            "threads": 1,
            "precision": "none",
        }

    def adapt_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return them unchanged."""
        return inputs

    def load_samples(self, samples: Samples) -> None:
        """Need none."""

    def run(self, first: int, count: int) -> None:
        """Wait for the programmed time; with all delays zero, return at once."""
        delay_ns = self._delay_ns(count)
        if delay_ns > 0:
            wait_until_ns(time.perf_counter_ns() + delay_ns)

    def in_flight(self, depth: int) -> InFlight:
        """Return overlapping runs: the next one begins when the last one is done, as on a device with one queue."""
        return _Queue(self._delay_ns)

    def close(self) -> None:
        """Hold nothing."""

    def _delay_ns(self, count: int) -> int:
        self._runs += 1
        if self._faulty:
            self._misbehave()
        return self._base_ns + self._per_sample_ns * count + self._jitter_ns[self._runs % len(self._jitter_ns)]

    def _misbehave(self) -> None:
        if self._fail_after and self._runs > self._fail_after:
            raise EngineError(f"synthetic failure after {self._fail_after} runs, as programmed")
        if self._hang_after and self._runs > self._hang_after:
            time.sleep(3600.0)


class SyntheticDecoder(SyntheticEngine):
    """Its first token takes what a run of the synthetic engine takes, and each further one `token_us`."""

    def __init__(self, request: EngineRequest) -> None:
        super().__init__(request)
        self.tokens = decoder_size(request.workload).output
        self._token_ns = int(float(request.options["token_us"]) * 1000)
        self.token_ns = np.zeros(self.tokens, dtype=np.int64)

    def run(self, first: int, count: int) -> None:
        """Wait for all tokens."""
        self.generate(first, count, lambda: None)

    def generate(self, first: int, count: int, on_first: Callable[[], None]) -> None:
        """Wait for the first token, tell of it, and wait for the others; each at its own time, not after the last."""
        super().run(first, count)
        begin_ns = self.token_ns[0] = time.perf_counter_ns()
        on_first()
        for step in range(1, self.tokens):
            wait_until_ns(int(begin_ns) + step * self._token_ns)
            self.token_ns[step] = time.perf_counter_ns()


class _Queue:
    """Runs of a device that works on one after the other: each ends its own time after the one before it."""

    def __init__(self, delay_ns: Callable[[int], int]) -> None:
        self._delay_of = delay_ns
        self._ends: deque[int] = deque()
        self._last_ns = 0

    def submit(self, first: int, count: int) -> None:
        """Add a run behind the last one."""
        self._last_ns = max(self._last_ns, time.perf_counter_ns()) + self._delay_of(count)
        self._ends.append(self._last_ns)

    def finish(self) -> None:
        """Wait until the oldest run is over."""
        wait_until_ns(self._ends.popleft())

    def close(self) -> None:
        """Hold nothing."""


def wait_until_ns(deadline_ns: int) -> None:
    """Return at `deadline_ns` of the performance counter, to about a microsecond, leaving the GIL to others."""
    clock, poll = time.perf_counter_ns, _NOTHING.poll
    remaining_ns = deadline_ns - clock()
    if remaining_ns > POLLED_NS:
        time.sleep((remaining_ns - POLLED_NS) / 1e9)
    while clock() < deadline_ns:
        poll(0)
