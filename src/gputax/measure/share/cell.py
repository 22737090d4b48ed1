"""Measure one cell of sharing: tenants that start together, and the window in which all of them ran."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gputax.environments.environment import Evidence
from gputax.errors import CellError, ResultsError
from gputax.measure.share.group import Proof, Released, TenantGroup
from gputax.measure.share.notices import cell_disturbed, cell_notices, stretched_text
from gputax.measure.view import RunView
from gputax.plan.cells import Load
from gputax.plan.notices import Notice
from gputax.plan.techniques import TECHNIQUES, ShareCell, SharePlan
from gputax.plan.workloads import workload_facts
from gputax.sharing.place import SharedPlace, Switched, Tenant
from gputax.stats.shared import Served, TenantRuns, Window, common_window, jain_index, served, served_together
from gputax.text import digits

Columns = dict[str, npt.NDArray[np.int64]]
# Tenants finish up to one run apart: with ten runs or more that is below a tenth of it. Their length is known from
# the first run, which is the slowest. A tenant so slow that this would take ten times the window gets fewer.
FEWEST_RUNS = 10
# A single tenant has no such gap; this is the minimum number of runs for a mean.
FEWEST_RUNS_ALONE = 5
MOST_EXTENDED = 10.0
# For the estimate of the time only, and rough: derived from one look at the two virtual cores of docs/method.md, where
# ResNet-50 takes about 55 ms on both, and a tenant of YOLOS-small about 2.5 s of one core before its first run.
GFLOP_PER_CORE_S = 75.0
START_CORE_S = 2.5


@dataclass(frozen=True)
class SharedMeasurement:
    """One cell's figures with everything needed to check them."""

    cell: ShareCell
    tenants: tuple[Tenant, ...]
    window: Window
    each: tuple[Served, ...]
    together: Served
    jain: float
    columns: Columns
    """All runs of all tenants, including dropped ones; `kept` marks those in the window."""
    proof: Proof
    evidence: Evidence
    facts: tuple[Mapping[str, Any], ...]
    switched: Switched
    notices: tuple[Notice, ...]
    disturbed: tuple[str, ...] = ()
    ended_s: float = 0.0
    """When the window ended, as Unix time."""

    @property
    def valid(self) -> bool:
        """Whether the technique was proven; otherwise the cell is invalid."""
        return all(each.active for each in (self.evidence, *self.proof.evidences))


def measure_shared_cell(
    plan: SharePlan,
    cell: ShareCell,
    place: SharedPlace,
    switched: Switched,
    view: RunView,
    stall_timeout_s: float = 0.0,
) -> SharedMeasurement:
    """Start the cell's tenants, release them and judge the results; all of them are stopped at the end."""
    technique = TECHNIQUES[cell.technique]
    tenants = place.tenants(technique, cell.tenants, plan.parts, plan.setup)
    view.phase(f"starting {cell.tenants} tenant{'s' if cell.tenants != 1 else ''}")
    group = TenantGroup(tenants, view, stall_timeout_s)
    try:
        released = _released(plan, group, view)
        proof = group.proof()
        evidence = place.evidence(technique, proof.evidences, proof.described)
        facts = tuple(session.facts for session in group.sessions)
        group.close()
    finally:
        group.end()
    return judge(plan, cell, tenants, released, proof, evidence, facts, switched)


def _released(plan: SharePlan, group: TenantGroup, view: RunView) -> Released:
    view.phase("first run of all tenants together")
    first = group.release(Load("saturate", batch_size=plan.batch_size))
    slowest_ns = max(int((each.columns["end_ns"] - each.columns["start_ns"]).max()) for each in first.observations)
    seconds = load_seconds(plan, len(group.tenants), slowest_ns)
    view.phase(stretched_text(plan, seconds, slowest_ns) or f"measuring for {digits(seconds, 3)} s")
    load = Load("saturate", batch_size=plan.batch_size, min_duration_s=seconds, expected_latency_ns=max(1, slowest_ns))
    return group.release(load, _Progress(len(group.tenants), seconds, view).update)


def load_seconds(plan: SharePlan, tenants: int, slowest_ns: int) -> float:
    """Return how long the tenants run: as requested, or longer if a run is slow."""
    asked_s = plan.warmup_s + plan.window_s
    runs = FEWEST_RUNS if tenants > 1 else FEWEST_RUNS_ALONE
    return min(max(asked_s, plan.warmup_s + runs * slowest_ns / 1e9), MOST_EXTENDED * asked_s)


def expected_seconds(plan: SharePlan, cell: ShareCell, cores: float) -> float:
    """Estimate how long a cell takes: its tenants' start, their first run, the load, and the run that ends last.

    Only a stand-in is that predictable, because its tenants share the cores of this machine. On a GPU a run is short
    against the window; starting pods and switching the device are not in the estimate.
    """
    technique = TECHNIQUES[cell.technique]
    if not technique.stand_in:
        return plan.warmup_s + plan.window_s
    threads = plan.setup.threads or max(1, int(cores) // plan.parts)
    of_each = cores / plan.parts if technique.bound == "slice" else cores / cell.tenants
    pace = min(float(threads), of_each)
    run_s = plan.batch_size * workload_facts(plan.setup.workload).gflop / GFLOP_PER_CORE_S / pace
    return START_CORE_S / min(1.0, of_each) + run_s + load_seconds(plan, cell.tenants, round(run_s * 1e9)) + run_s / 2


class _Progress:
    """Adds up the progress of the tenants; the total is estimated from the time."""

    def __init__(self, tenants: int, seconds: float, view: RunView) -> None:
        self._done = [0] * tenants
        self._seconds, self._view = seconds, view
        self._started = time.monotonic()
        self._lock = threading.Lock()

    def update(self, number: int, done: int) -> None:
        """Take one tenant's count; called concurrently from the tenants' threads."""
        with self._lock:
            self._done[number] = done
            together = sum(self._done)
            elapsed_s = max(1e-3, time.monotonic() - self._started)
            self._view.progress(together, max(together, round(together * self._seconds / elapsed_s)))


def judge(
    plan: SharePlan,
    cell: ShareCell,
    tenants: Sequence[Tenant],
    released: Released,
    proof: Proof,
    evidence: Evidence,
    facts: tuple[Mapping[str, Any], ...],
    switched: Switched,
) -> SharedMeasurement:
    """Return the cell's figures from its tenants' results; pure."""
    runs = [
        TenantRuns(each.columns["start_ns"], each.columns["end_ns"], each.columns["samples"])
        for each in released.observations
    ]
    try:
        window = common_window(runs, released.release_ns, plan.warmup_s)
        each = tuple(served(one, window) for one in runs)
        together = served_together(runs, window)
    except ResultsError as error:
        raise CellError(error.what, where=cell.id, next_step="use a longer --window or fewer tenants") from error
    return SharedMeasurement(
        cell=cell,
        tenants=tuple(tenants),
        window=window,
        each=each,
        together=together,
        jain=jain_index([one.throughput_per_s for one in each]),
        columns=all_columns(runs, window),
        proof=proof,
        evidence=evidence,
        facts=facts,
        switched=switched,
        notices=cell_notices(plan, cell, released, proof, evidence, facts, window, each),
        disturbed=cell_disturbed(cell, released),
        ended_s=(window.end_ns + released.unix_ns) / 1e9,
    )


def all_columns(runs: Sequence[TenantRuns], window: Window) -> Columns:
    """Return the runs of all tenants as one table, in the order of the tenants."""
    return {
        "tenant": np.concatenate([np.full(one.end_ns.size, number, np.int64) for number, one in enumerate(runs, 1)]),
        "start_ns": np.concatenate([one.start_ns for one in runs]),
        "end_ns": np.concatenate([one.end_ns for one in runs]),
        "samples": np.concatenate([one.samples for one in runs]),
        "kept": np.concatenate([window.holds(one).astype(np.int64) for one in runs]),
    }
