"""How long a load runs, how many samples it needs, and at which rate a server's requests arrive."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gputax.errors import CellError
from gputax.plan.cells import MULTI_STREAM_SAMPLES_PER_QUERY, Cell, Load, LoadPlan
from gputax.plan.language_models import decoder_size
from gputax.plan.workloads import workload_facts
from gputax.results.columns import Columns
from gputax.stats.percentiles import floor_for
from gputax.text import digits

PILOT_CALLS = 3
# LoadGen generates queries for twice the hinted speed; half the pilot's latency leaves a fourfold reserve.
HINT_SHARE = 0.5
OFFLINE_RESERVE = 1.2
FEWEST_BATCHES = 5
# p90 needs 64 samples (LoadGen's early stopping); with fewer, no percentile is known.
FEWEST_QUERIES = 64
# If a single request takes longer than the whole bound, queueing needs several service times.
OWN_BOUND_MULTIPLE = 10
# In a slot, the first runs after the other side's turn find cold caches; how many are dropped is fixed by this rule
# alone. In a run of tens of milliseconds the cold part is minor (ResNet-50, 58 ms: the first of three -0.25 % ± 1.6
# against the second), but dropping it doubles the distance between the halves: ±0.62 % instead of ±0.35 % in the same
# time.
DROPPED_S = 0.001
MAX_DROPPED = 20
LONG_RUN_S = 0.03


@dataclass(frozen=True)
class Pilot:
    """The speed of one batch size in a short closed loop, which is also the warm-up; its samples are dropped."""

    batch_size: int
    call_ns: float
    p90_call_ns: float
    rate_per_s: float
    elapsed_s: float


@dataclass(frozen=True)
class Bound:
    """The latency bound of a server query and its origin; of its first token where there are tokens."""

    ms: float
    source: str
    tpot_ms: float = 0.0
    """The bound of the time per further token; 0 without tokens."""


def pilot_load(batch_size: int, seconds: float) -> Load:
    """Return the closed loop that warms up one batch size and measures its speed."""
    return Load("saturate", batch_size=batch_size, min_duration_s=seconds, min_queries=PILOT_CALLS)


def read_pilot(batch_size: int, columns: Columns) -> Pilot:
    """Read the speed from the pilot's later half, when caches and clocks have settled."""
    calls = columns["end_ns"] - columns["start_ns"]
    settled = calls[len(calls) // 2 :]
    call_ns = float(np.median(settled))
    return Pilot(
        batch_size=batch_size,
        call_ns=max(call_ns, 1.0),
        p90_call_ns=float(np.quantile(settled, 0.9)),
        rate_per_s=batch_size * 1e9 / max(float(settled.mean()), 1.0),
        elapsed_s=float(columns["end_ns"][-1] - columns["start_ns"][0]) / 1e9,
    )


def dropped_runs(call_s: float) -> int:
    """Return how many runs of each slot are dropped: one millisecond, at least one run, but none if runs are long."""
    if call_s >= LONG_RUN_S:
        return 0
    return min(MAX_DROPPED, max(1, math.ceil(DROPPED_S / call_s)))


def query_count(plan: LoadPlan, rate_per_s: float, fewest: int = FEWEST_QUERIES) -> int:
    """Return the number of queries: the plan's minimum, reduced if it would exceed the plan's time limit."""
    wanted = max(plan.min_samples, int(plan.duration_s * rate_per_s))
    if plan.max_duration_s:
        wanted = min(wanted, int(plan.max_duration_s * rate_per_s))
    return max(wanted, fewest)


def stream_load(cell: Cell, pilot: Pilot) -> Load:
    """Return the load of single-stream, multi-stream, offline or saturate."""
    plan = cell.load
    match cell.scenario:
        case "offline":
            # Sized by samples: with a minimum duration LoadGen calls a device INVALID that ran 10 % faster than its
            # pilot. Only official runs need the duration, and get a reserve. Whole batches, at least five.
            wanted = max(plan.min_samples, int(plan.duration_s * pilot.rate_per_s))
            batches = max(FEWEST_BATCHES, -(-wanted // cell.batch_size))
            return Load(
                "offline",
                batch_size=cell.batch_size,
                min_duration_s=plan.duration_s if plan.official else 0.0,
                min_queries=batches * cell.batch_size,
                expected_qps=pilot.rate_per_s * OFFLINE_RESERVE,
            )
        case "saturate":
            return Load(
                "saturate",
                batch_size=cell.batch_size,
                min_duration_s=plan.duration_s,
                # A plan with a limit also sets a number of runs; others are sized only by time.
                min_queries=max(PILOT_CALLS, min(plan.min_samples, int(plan.max_duration_s * 1e9 / pilot.call_ns))),
                expected_latency_ns=int(pilot.call_ns),
            )
    batch = MULTI_STREAM_SAMPLES_PER_QUERY if cell.scenario == "multi-stream" else 1
    # LoadGen judges single-stream by p90 and multi-stream by the plan's percentile; each has its own floor.
    fewest = FEWEST_QUERIES if batch == 1 else floor_for(plan.percentile)
    queries = query_count(plan, 1e9 / pilot.call_ns, fewest)
    return Load(
        cell.scenario,
        percentile=0.90 if batch == 1 else plan.percentile,
        batch_size=batch,
        min_duration_s=plan.duration_s if plan.official else 0.0,
        min_queries=queries,
        expected_latency_ns=max(1, int(pilot.call_ns * HINT_SHARE)),
    )


def server_load(cell: Cell, rate_per_s: float, bound: Bound, queries: int, seed_offset: int = 0) -> Load:
    """Return a server load of about `queries` queries at this rate."""
    plan = cell.load
    return Load(
        "server",
        batch_size=cell.batch_size,
        min_duration_s=plan.duration_s if plan.official else 0.0,
        min_queries=queries,
        target_qps=rate_per_s,
        bound_ns=int(bound.ms * 1e6),
        tpot_bound_ns=int(bound.tpot_ms * 1e6),
        percentile=plan.percentile,
        max_wait_us=plan.max_wait_us,
        seed_offset=seed_offset,
    )


def server_bound(cell: Cell, single: Pilot) -> Bound:
    """Return the bound in force: the user's, the workload's, or a stated multiple if the device cannot meet it."""
    facts = workload_facts(cell.setup.workload)
    single_ms = single.p90_call_ns / 1e6
    tpot_ms = _tpot_bound_ms(cell.setup.workload, facts.tpot_bound_ms, single_ms)
    if cell.load.bound_ms:
        return Bound(cell.load.bound_ms, "given on the command line or in the suite", tpot_ms)
    if single_ms <= facts.server_bound_ms:
        return Bound(facts.server_bound_ms, facts.bound_source, tpot_ms)
    why = (
        f"that alone exceeds the {facts.server_bound_ms:g} ms of {facts.bound_source}"
        if facts.server_bound_ms
        else "what is yours has no bound of its own: set one with --bound-ms"
    )
    return Bound(
        float(f"{OWN_BOUND_MULTIPLE * single_ms:.2g}"),  # two digits: a pilot is not more precise
        f"ours: {OWN_BOUND_MULTIPLE} x this device's single-request p90 ({digits(single_ms, 3)} ms), because {why}",
        tpot_ms,
    )


def _tpot_bound_ms(workload: str, bound_ms: float, single_ms: float) -> float:
    """Return the bound per further token: the workload's, or the same multiple of a token's share of one request."""
    if not bound_ms:
        return 0.0
    token_ms = single_ms / decoder_size(workload).output
    return bound_ms if token_ms <= bound_ms else float(f"{OWN_BOUND_MULTIPLE * token_ms:.2g}")


# At 70 % load a queue of constant service times stays short; above 80 % its tail grows without warning.
FIRST_SHARE = 0.7
STEP_DOWN = 0.75
MAX_STEPS = 6
GROW = 1.3
MAX_GROWTH_STEPS = 24
PROBES_PER_RATE = 3
PEAK_PRECISION = 1.05

# (rate_per_s, repeat) -> whether every condition was met at this rate
Probe = Callable[[float, int], bool]


@dataclass(frozen=True)
class RateSearch:
    """The rate that was found and every probe, for the record."""

    rate_per_s: float
    probes: tuple[tuple[float, bool], ...]
    first_failing_per_s: float | None = None


def find_rate(capacity_per_s: float, probe: Probe) -> RateSearch:
    """Step down from 70 % of the capacity until one probe holds."""
    probes: list[tuple[float, bool]] = []
    rate = FIRST_SHARE * capacity_per_s
    for _ in range(MAX_STEPS):
        holds = probe(rate, 0)
        probes.append((rate, holds))
        if holds:
            return RateSearch(rate, tuple(probes))
        rate *= STEP_DOWN
    raise CellError(
        f"no server rate down to {digits(rate / STEP_DOWN, 3)}/s kept the latency bound",
        next_step="raise the bound with --bound-ms, or give a rate with --qps",
    )


def find_peak(capacity_per_s: float, probe: Probe) -> RateSearch:
    """Return the highest rate that holds in the majority of repeated probes, bracketed to 5 %.

    LoadGen's own FindPeakPerformance judges each rate once; it returned a rate whose own run was INVALID.
    """
    probes: list[tuple[float, bool]] = []

    def holds(rate: float) -> bool:
        wins = losses = 0
        for repeat in range(PROBES_PER_RATE):
            won = probe(rate, repeat)
            probes.append((rate, won))
            wins, losses = wins + won, losses + (not won)
            if 2 * max(wins, losses) > PROBES_PER_RATE:
                break
        return wins > losses

    low, high = _bracket(FIRST_SHARE * capacity_per_s, holds)
    while high / low > PEAK_PRECISION:
        middle = (low * high) ** 0.5
        if holds(middle):
            low = middle
        else:
            high = middle
    return RateSearch(low, tuple(probes), high)


def _bracket(rate: float, holds: Callable[[float], bool]) -> tuple[float, float]:
    if holds(rate):
        for _ in range(MAX_GROWTH_STEPS):
            if not holds(rate * GROW):
                return rate, rate * GROW
            rate *= GROW
        raise CellError(f"the server kept the latency bound even at {digits(rate, 3)}/s, so no peak was found")
    for _ in range(MAX_GROWTH_STEPS):
        if holds(rate / GROW):
            return rate / GROW, rate
        rate /= GROW
    raise CellError("no server rate kept the latency bound", next_step="raise the bound with --bound-ms")
