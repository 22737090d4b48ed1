"""Notices of one cell of sharing: missing evidence, uneven service, other processes; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gputax.environments.environment import Evidence, unproven
from gputax.measure.share.group import Proof, Released
from gputax.plan.notices import Notice
from gputax.plan.techniques import TECHNIQUES, ShareCell, SharePlan
from gputax.stats.shared import Served, Window, jain_index
from gputax.text import digits
from gputax.worker.probes.disturbance import CELL_LIMITS, Limits, beyond, others_limit, reasons

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
    expected = _expected(cell)
    worst: dict[str, Notice] = {}
    for observation in released.observations:
        for notice in observation.notices:
            known = worst.get(notice.code)
            if notice.code not in expected and (known is None or abs(notice.value or 0) > abs(known.value or 0)):
                worst[notice.code] = notice
    return [*found, *worst.values()]
