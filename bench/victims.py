"""What a tenant notices of a hostile one: its p99 beside each kind of attacker over its p99 alone, in alternation.

The victim is `native/tests/op_bench.c` behind the proxy, on a software device of about 140 µs an operation; none of
these figures is a GPU's. Victim and attacker share the machine's cores, so a part of each ratio is what the kernel's
scheduler does with more processes than cores.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from bench.attackers import ATTACKERS
from bench.intervals import median_interval
from bench.proxy import THROTTLED, connected, run_operations
from gputax.environments.driver import LIBVGPU, SOFTWARE_DEVICE, native_part
from gputax.environments.proxy import SOCKET_VARIABLE, ProxyAddress, ProxyOptions, own_proxy

PAIRS = 5
BLOCK_S = 0.8
P99_FLOOR = 662  # samples below which the tool refuses a p99
KEY = "proxy_victim_p99_ratio"

ENDED_S = 20.0


@dataclass(frozen=True)
class Block:
    """What a victim measured in one stretch."""

    operations: int
    p99_us: float


def proxy_victims() -> dict[str, Any]:
    """Return the ratio for each kind of attacker, and the worst of them."""
    pairs: dict[str, list[tuple[Block, Block]]] = {}
    with own_proxy(
        ProxyOptions(native_part(SOFTWARE_DEVICE), memory_mb=256, call_s=1, identity="process"),
        {**os.environ, **THROTTLED},
    ) as address:
        for kind in ATTACKERS:
            pairs[kind] = [_pair(address, kind, beside_first=bool(number % 2)) for number in range(PAIRS)]
    return victim_figures(pairs)


def victim_figures(pairs: Mapping[str, Sequence[tuple[Block, Block]]]) -> dict[str, Any]:
    """Return the keys of the figure; a kind without enough operations for a p99 has None, and then so has the worst."""
    found: dict[str, Any] = {}
    medians: list[float | None] = []
    for kind, measured in pairs.items():
        enough = [
            (alone, beside) for alone, beside in measured if min(alone.operations, beside.operations) >= P99_FLOOR
        ]
        ratios = [beside.p99_us / alone.p99_us for alone, beside in enough]
        complete = len(ratios) == len(measured)
        medians.append(statistics.median(ratios) if complete else None)
        found[f"{KEY}_{kind}"] = medians[-1]
        found[f"{KEY}_{kind}_ci95"] = median_interval(ratios) if complete else None
        found[f"proxy_victim_p99_us_{kind}"] = statistics.median(beside.p99_us for _, beside in measured)
        found[f"proxy_victim_operations_{kind}"] = min(beside.operations for _, beside in measured)
    alone_us = [alone.p99_us for measured in pairs.values() for alone, _ in measured]
    known = [median for median in medians if median is not None]
    return {
        KEY: max(known) if known and len(known) == len(medians) else None,
        "proxy_victim_p99_us_alone": statistics.median(alone_us),
        **found,
    }


def _pair(address: ProxyAddress, kind: str, beside_first: bool) -> tuple[Block, Block]:
    if beside_first:
        beside = _beside(address, kind)
        return _measure(address), beside
    alone = _measure(address)
    return alone, _beside(address, kind)


def _measure(address: ProxyAddress) -> Block:
    measured = run_operations(LIBVGPU, connected(address, "shm"), BLOCK_S, "op")["op"]
    return Block(measured["count"], measured["p99_us"])


def _beside(address: ProxyAddress, kind: str) -> Block:
    with _attacked(address, kind):
        return _measure(address)


@contextmanager
def _attacked(address: ProxyAddress, kind: str) -> Iterator[None]:
    """Have the proxy attacked; afterwards nothing of the attacker is left."""
    words = [sys.executable, "-m", "bench.attackers", kind, str(address.socket), str(native_part(LIBVGPU))]
    variables = {**os.environ, SOCKET_VARIABLE: str(address.socket)}
    with subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, start_new_session=True) as attacker:
        assert attacker.stdout
        assert attacker.stdout.readline() == b"on\n", f"the attacker {kind} did not start"
        try:
            yield
            assert attacker.poll() is None, f"the attacker {kind} ended by itself with {attacker.returncode}"
        finally:
            os.killpg(attacker.pid, signal.SIGKILL)
    until = time.monotonic() + ENDED_S
    while tenants := address.status()["tenants"]:
        for each in tenants:
            with suppress(Exception):
                address.evict(each["id"])
        assert time.monotonic() < until, f"tenants are left of the attacker {kind}: {tenants}"
        time.sleep(0.02)
