"""`python -m bench.framework_stream ENGINE`: a framework's ResNet-50 with null kernels, direct and proxied in turn."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from bench.models import calls_between
from gputax import api
from gputax.environments.driver import SOFTWARE_DEVICE, native_part
from gputax.environments.proxy import SOCKET_VARIABLE, ProxyAddress, ProxyOptions, own_proxy
from gputax.measure.session import WorkerSession
from gputax.measure.view import SilentView
from gputax.places import environment_named
from gputax.plan.cells import Setup
from gputax.plan.driver import driver_choice

RESTARTS = 4
PAIRS = 25
RUNS_PER_SLOT = 20
WARM_RUNS = 30
CALLS_RUNS = 20
SETTINGS = {"soft_kernels": "null", "soft_memory_mb": 2048, "cuda_runtime": True}


def measured(engine: str, restarts: int = RESTARTS, pairs: int = PAIRS) -> dict[str, Any]:
    """Return pairs of times per inference for each restart, the starts, and the calls of one inference."""
    seen: dict[str, Any] = {"pairs_us": [], "starts_s": []}
    with (
        api.variables_set(api.variables_named(SETTINGS)),
        own_proxy(ProxyOptions(native_part(SOFTWARE_DEVICE)), os.environ) as address,
    ):
        for number in range(restarts):
            seen |= _restart(engine, address, number, pairs, seen)
    return seen


def _restart(engine: str, address: ProxyAddress, number: int, pairs: int, seen: Mapping[str, Any]) -> dict[str, Any]:
    order = ("direct", "proxied") if number % 2 else ("proxied", "direct")
    sessions: dict[str, WorkerSession] = {}
    starts_s: dict[str, float] = {}
    try:
        for side in order:
            sessions[side], starts_s[side] = _started(engine, side, address)
        for session in sessions.values():
            session.slot(1, runs=WARM_RUNS, first_run=1, dropped=0)
        times_us = [_pair(sessions, at) for at in range(pairs)]
        before = address.status()
        sessions["proxied"].slot(1, runs=CALLS_RUNS, first_run=1, dropped=0)
        calls = calls_between(before, address.status(), CALLS_RUNS)
        device = str(sessions["proxied"].facts["device_name"])
    finally:
        for session in sessions.values():
            session.end()
    return {
        "pairs_us": [*seen["pairs_us"], times_us],
        "starts_s": [*seen["starts_s"], (starts_s["direct"], starts_s["proxied"])],
        "device": device,
        "calls": calls["proxy_calls_per_inference_by_name"],
        "posted": calls["proxy_calls_per_inference_posted"],
        "answered": calls["proxy_calls_per_inference_answered"],
    }


def _started(engine: str, side: str, address: ProxyAddress) -> tuple[WorkerSession, float]:
    """Start a worker and run its first inference; return both the worker and how long that took."""
    setup = Setup("resnet50", engine=engine, device="software", sample_count=4, max_batch=1)
    variables = {SOCKET_VARIABLE: str(address.socket)} if side == "proxied" else {}
    begun = time.perf_counter()
    with api.variables_set(variables):
        name = "bare+proxy" if side == "proxied" else "bare"
        session = WorkerSession(environment_named(name, driver=driver_choice(setup)), setup, SilentView())
    session.slot(1, runs=1, first_run=0, dropped=0)
    return session, time.perf_counter() - begun


def _pair(sessions: Mapping[str, WorkerSession], number: int) -> tuple[float, float]:
    order = ("direct", "proxied") if number % 2 else ("proxied", "direct")
    times = {side: _slot_us(sessions[side]) for side in order}
    return times["direct"], times["proxied"]


def _slot_us(session: WorkerSession) -> float:
    """Return the median time of an inference in one slot."""
    slot = session.slot(1, runs=RUNS_PER_SLOT + 1, first_run=1, dropped=1)
    return float(np.median(slot.durations_ns)) / 1e3


if __name__ == "__main__":
    json.dump(measured(sys.argv[1]), sys.stdout)
