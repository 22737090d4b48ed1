"""How much load a cell gets: from the plan and the device's speed, measured by a pilot."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gputax.measure.summary import Columns
from gputax.plan.cells import MULTI_STREAM_SAMPLES_PER_QUERY, Cell, LoadPlan
from gputax.plan.load import Load
from gputax.plan.workloads import workload_facts
from gputax.stats.percentiles import floor_for

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
    """The latency bound of a server query and its origin."""

    ms: float
    source: str


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
        percentile=plan.percentile,
        max_wait_us=plan.max_wait_us,
        seed_offset=seed_offset,
    )


def server_bound(cell: Cell, single: Pilot) -> Bound:
    """Return the bound in force: the user's, the workload's, or a stated multiple if the device cannot meet it."""
    if cell.load.bound_ms:
        return Bound(cell.load.bound_ms, "given on the command line or in the suite")
    facts = workload_facts(cell.setup.workload)
    single_ms = single.p90_call_ns / 1e6
    if single_ms <= facts.server_bound_ms:
        return Bound(facts.server_bound_ms, facts.bound_source)
    return Bound(
        float(f"{OWN_BOUND_MULTIPLE * single_ms:.2g}"),  # two digits: a pilot is not more precise
        f"ours: {OWN_BOUND_MULTIPLE} x this device's single-request p90 ({single_ms:.1f} ms), because that alone "
        f"exceeds the {facts.server_bound_ms:g} ms of {facts.bound_source}",
    )
