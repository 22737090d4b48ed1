"""Measure one cell of sharing: tenants that start together, the window in which all ran, and what to say of it."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gputax.environments.environment import Evidence, unproven
from gputax.errors import CellError, ResultsError
from gputax.measure.energy import energy_of_device_j
from gputax.measure.share.asking import asking_tenants, obtained_memory
from gputax.measure.share.group import Proof, Released, TenantGroup
from gputax.measure.view import RunView
from gputax.plan.cells import Load
from gputax.plan.notices import Notice
from gputax.plan.servers import ERROR_BOUND, TOO_MANY_FAILED
from gputax.plan.shares import AskingPlan
from gputax.plan.techniques import TECHNIQUES, ShareCell, SharePlan
from gputax.plan.tokens import TOKENS, TPOT, TTFT
from gputax.plan.workloads import workload_facts
from gputax.results.columns import succeeded
from gputax.results.token_series import token_series
from gputax.sharing.place import SharedPlace, Switched, Tenant
from gputax.stats.shared import Served, TenantRuns, Window, common_window, jain_index, served, served_together
from gputax.text import digits
from gputax.worker.probes.disturbance import CELL_LIMITS, Limits, beyond, others_limit, reasons

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
    energy_j: float | None = None
    """Of the whole device in the window; None if it does not count it."""
    memory_bytes: tuple[int, ...] = ()
    """What each tenant could allocate, where shares of memory were asked for."""

    @property
    def valid(self) -> bool:
        """Whether the technique was proven; otherwise the cell is invalid."""
        proven = all(each.active for each in (self.evidence, *self.proof.evidences))
        return proven and not any(notice.code == TOO_MANY_FAILED for notice in self.notices)


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
    tenants = asking_tenants(place, plan, cell)
    view.phase(f"starting {cell.tenants} tenant{'s' if cell.tenants != 1 else ''}")
    group = TenantGroup(tenants, view, stall_timeout_s)
    try:
        released = _released(plan, cell, group, view)
        proof = group.proof()
        evidence = place.evidence(technique, proof.evidences, proof.described)
        facts = tuple(session.facts for session in group.sessions)
        group.close()
    finally:
        group.end()
    measured = judge(plan, cell, tenants, released, proof, evidence, facts, switched)
    if not any(tenant.asked and tenant.asked.memory for tenant in tenants):
        return measured
    view.phase("allocating memory")
    return dataclasses.replace(measured, memory_bytes=obtained_memory(tenants, cell.situation))


def _released(plan: SharePlan, cell: ShareCell, group: TenantGroup, view: RunView) -> Released:
    view.phase("first run of all tenants together")
    in_flight = plan.in_flight_of(cell) if isinstance(plan, AskingPlan) else ()
    first = group.release(Load("saturate", batch_size=plan.batch_size), in_flight=in_flight)
    # Of runs that overlap each takes as long as all that are in flight; one of them ends in a part of that.
    depths = in_flight or (1,) * len(first.observations)
    slowest_ns = max(
        int((each.columns["end_ns"] - each.columns["start_ns"]).max()) // depth
        for each, depth in zip(first.observations, depths, strict=True)
    )
    seconds = load_seconds(plan, len(group.tenants), slowest_ns)
    view.phase(stretched_text(plan, seconds, slowest_ns) or f"measuring for {digits(seconds, 3)} s")
    load = Load("saturate", batch_size=plan.batch_size, min_duration_s=seconds, expected_latency_ns=max(1, slowest_ns))
    return group.release(load, _Progress(len(group.tenants), seconds, view).update, in_flight)


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
    runs = [tenant_runs(each.columns) for each in released.observations]
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
        energy_j=energy_of_device_j([each.telemetry for each in released.observations], window.begin_ns, window.end_ns),
        ended_s=(window.end_ns + released.unix_ns) / 1e9,
    )


def tenant_runs(columns: Columns) -> TenantRuns:
    """Return the runs of one tenant; with tokens, their number, and the time of the first and of the others."""
    good = succeeded(columns)
    start_ns, end_ns, samples = (columns[name][good] for name in ("start_ns", "end_ns", "samples"))
    # Percentiles of gaps would need all gaps of a run; a run has one first token and one pace.
    values = {name: each for name, each in token_series("saturate", columns).items() if each.size == end_ns.size}
    series = {name: values[name] for name in (TTFT, TPOT) if name in values}
    tokens = columns[TOKENS][good] if TOKENS in columns else None
    return TenantRuns(start_ns, end_ns, samples, tokens, series)


def all_columns(runs: Sequence[TenantRuns], window: Window) -> Columns:
    """Return the runs of all tenants as one table, in the order of the tenants."""
    return {
        "tenant": np.concatenate([np.full(one.end_ns.size, number, np.int64) for number, one in enumerate(runs, 1)]),
        "start_ns": np.concatenate([one.start_ns for one in runs]),
        "end_ns": np.concatenate([one.end_ns for one in runs]),
        "samples": np.concatenate([one.samples for one in runs]),
        "kept": np.concatenate([window.holds(one).astype(np.int64) for one in runs]),
        **_token_columns(runs),
    }


def _token_columns(runs: Sequence[TenantRuns]) -> Columns:
    """Return each run's time to its first token and its time per further one, in ns; none without tokens."""
    if not all(one.series for one in runs):
        return {}
    return {
        f"{name}_ns": np.concatenate([one.series[name].astype(np.int64) for one in runs]) for name in runs[0].series
    }


ENOUGH_OVERLAP = 0.9
EVEN_JAIN = 0.95
# Tenants load each other's CPUs: this is under test and not a disturbance.
EXPECTED = {"busy-neighbours", "gpu-shared"}


def cell_notices(
    plan: SharePlan,
    cell: ShareCell,
    released: Released,
    proof: Proof,
    evidence: Evidence,
    facts: Sequence[Mapping[str, Any]],
    window: Window,
    each: Sequence[Served],
) -> tuple[Notice, ...]:
    """Return all notices of the cell."""
    return (
        *_notices(cell, released, window, proof, evidence),
        *_unshared_cores(plan, cell, proof, facts),
        *_uneven(each),
        *_stretched(plan, released),
        *_foreign_load(cell, released),
    )


def stretched_text(plan: SharePlan, seconds: float, slowest_ns: int) -> str:
    """Return why the tenants run longer than requested; empty if they do not."""
    window_s, run_s = seconds - plan.warmup_s, slowest_ns / 1e9
    if window_s <= plan.window_s * (1.0 + 1e-9):
        return ""
    runs = int(window_s / run_s + 1e-9)
    fit = f"{runs} runs fit" if runs != 1 else "1 run fits"
    longer = f"measuring for {digits(window_s, 3)} s instead of {plan.window_s:g} s"
    return f"a run takes {digits(run_s, 2)} s: {longer}, so that {fit}"


def _unshared_cores(
    plan: SharePlan, cell: ShareCell, proof: Proof, facts: Sequence[Mapping[str, Any]]
) -> Iterator[Notice]:
    """Warn if even the most tenants leave cores idle: on a large machine they never compete."""
    cores = len(proof.described[0].affinity)
    threads = sum(int(each.get("threads") or 0) for each in facts)
    technique = TECHNIQUES[cell.technique]
    on_all_cores = technique.stand_in and technique.bound == "none"
    if on_all_cores and cell.tenants == max(plan.tenants) and threads <= cores:
        text = f"{threads} threads of all tenants on {cores} cores: they share caches and memory, not cores"
        yield Notice("cores-not-shared", f"{text}; --threads or --tenants would change that", float(cores - threads))


def _uneven(each: Sequence[Served]) -> Iterator[Notice]:
    """Name the tenants that got the most and the least: a mean over all runs is dominated by the fast tenant."""
    rates = [one.throughput_per_s for one in each]
    jain = jain_index(rates)
    if jain >= EVEN_JAIN:
        return
    best, worst = max(rates), min(rates)
    yield Notice(
        "uneven-tenants",
        f"tenants were served unevenly (Jain {jain:.2g}): tenant {rates.index(best) + 1} got {digits(best, 3)}/s, "
        f"tenant {rates.index(worst) + 1} {digits(worst, 3)}/s, a factor of {digits(best / worst, 2)}",
        best / worst,
    )


def _stretched(plan: SharePlan, released: Released) -> Iterator[Notice]:
    load = released.observations[0].load
    text = stretched_text(plan, load.min_duration_s, load.expected_latency_ns)
    if text:
        yield Notice("window-stretched", text, load.min_duration_s)


def _foreign_load(
    cell: ShareCell, released: Released, limit: float = Limits().others_percent_of_core
) -> Iterator[Notice]:
    """Warn if processes other than the tenants used their cores: total use minus the tenants' own use.

    A single tenant's worker already reports this. A GPU proxy is neither a tenant nor foreign, so only the stand-ins,
    which use nothing but the cores, are judged.
    """
    if cell.tenants == 1 or not TECHNIQUES[cell.technique].stand_in:
        return
    percent = foreign_percent_of_core([each.telemetry for each in released.observations])
    if percent is not None and percent > limit:
        text = f"Processes other than the tenants used {percent:.0f} % of one core on the tenants' CPUs"
        reason = "they take cache and CPU time from the measurement."
        yield Notice("foreign-load", f"{text} (limit {limit:g} %): {reason}", percent)


def cell_disturbed(cell: ShareCell, released: Released) -> tuple[str, ...]:
    """Return why the machine was not quiet enough: what any tenant met beyond the limits, and load of other processes.

    What tenants do to each other is under test, and so is what the technique does by design.
    """
    expected = _expected(cell)
    telemetries = [each.telemetry for each in released.observations]
    found = [notice for series in telemetries for notice in beyond(series, CELL_LIMITS, expected)]
    worst = {notice.code: notice for notice in sorted(found, key=lambda each: abs(each.value or 0.0))}
    cpus = (telemetries[0].get("allowed_cpus") or [1])[0]
    return reasons((*worst.values(), *_foreign_load(cell, released, others_limit(CELL_LIMITS, cpus or 1))))


def _expected(cell: ShareCell) -> set[str]:
    return (EXPECTED if cell.tenants > 1 else set()) | set(TECHNIQUES[cell.technique].expected_notices)


def foreign_percent_of_core(telemetries: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the load of other processes on the tenants' common CPUs; None if a tenant does not report it."""
    busy: list[float] = []
    own: list[float] = []
    for series in telemetries:
        try:
            span_ms = (series["time_ns"][-1] - series["time_ns"][0]) / 1e6
            busy.append(100.0 * series["busy_ms"][-1] / span_ms)
            own.append(100.0 * series["own_cpu_ms"][-1] / span_ms)
        except (KeyError, IndexError, TypeError, ZeroDivisionError):
            return None
    return max(0.0, sum(busy) / len(busy) - sum(own)) if busy else None


def _failed_requests(released: Released) -> Iterator[Notice]:
    """Say how many requests to a server failed; they are in no figure."""
    good = [succeeded(each.columns) for each in released.observations]
    total, failed = sum(each.size for each in good), sum(int((~each).sum()) for each in good)
    if failed:
        rate = failed / total
        code, mark = (TOO_MANY_FAILED, "INVALID: ") if rate > ERROR_BOUND else ("requests-failed", "")
        yield Notice(code, f"{mark}{failed} of {total} requests failed ({digits(100 * rate, 2)} %)", 100 * rate)


def _notices(cell: ShareCell, released: Released, window: Window, proof: Proof, evidence: Evidence) -> list[Notice]:
    found: list[Notice] = []
    reasons = [*evidence.reasons, *(unproven(proof.evidences) if evidence.active else ())]
    if not evidence.active or reasons:
        text = "; ".join(reasons) or "no evidence was found"
        found.append(Notice("no-evidence", f"INVALID: {cell.technique} was not active: {text}"))
    if evidence.warning:
        found.append(Notice("technique", evidence.warning))
    if window.overlap_share < ENOUGH_OVERLAP:
        text = (
            f"all tenants ran together for {100 * window.overlap_share:.0f} % of the cell's time; the rest is dropped"
        )
        found.append(Notice("little-overlap", text, window.overlap_share))
    found += _failed_requests(released)
    expected = _expected(cell)
    worst: dict[str, Notice] = {}
    for observation in released.observations:
        for notice in observation.notices:
            known = worst.get(notice.code)
            if notice.code not in expected and (known is None or abs(notice.value or 0) > abs(known.value or 0)):
                worst[notice.code] = notice
    return [*found, *worst.values()]
