"""The document of a neighbour experiment as it grows, and its rows from the pairs of a victim; pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from gputax import __version__
from gputax.environments.environment import Described
from gputax.measure.fingerprint import claim_of, device_name_of, engine_of, host_of
from gputax.measure.neighbours.cell import CellResult
from gputax.measure.neighbours.slots import ORDER, NeighbourPair
from gputax.plan.cells import Cell, LoadPlan
from gputax.plan.claims import device_label
from gputax.plan.engines import DEFAULT_ENGINE
from gputax.plan.notices import Notice
from gputax.plan.techniques import AGGRESSORS, TECHNIQUES, AggressorKind, SharePlan, family_of
from gputax.results.documents.base import WarningRecord
from gputax.results.documents.sharing import Interval, IsolationRow, NeighbourRow, SharedFigure, SharingRecord
from gputax.stats.levels import restart_estimate
from gputax.stats.overheads import (
    LEAST_RESTARTS,
    NS_PER_MS,
    Blocks,
    mean_overhead,
    percentile_overhead,
    refusal,
)
from gputax.stats.pairs import paired_estimate
from gputax.text import digits

# Significance level for restarts that differ by more than chance: once in a hundred experiments.
RESTART_P = 0.01
PAIRS_FOR_ORDER = 4
# Of each end of a 95 % interval.
BOUND_RISK = 0.025


def neighbour_row(
    technique: str,
    victim: str,
    aggressor: AggressorKind,
    pairs: Sequence[NeighbourPair],
    notices: Sequence[Notice],
    *,
    reasons: Sequence[str] = (),
    errors: int = 0,
) -> NeighbourRow:
    """Return the slowdown with its interval; `reasons` against the evidence leave no number."""
    blocks = Blocks.of(
        [pair.alone_ns for pair in pairs], [pair.beside_ns for pair in pairs], [pair.restart for pair in pairs]
    )
    warnings = [WarningRecord(code="no-evidence", text=text) for text in reasons]
    warnings += map(WarningRecord.of, notices)
    slowdown, tail = SharedFigure(value=None), None
    if not reasons:
        slowdown, texts = _slowdown(blocks, pairs)
        tail = _tail(blocks)
        warnings += [WarningRecord(code="pairs", text=text) for text in texts]
    return NeighbourRow(
        technique=technique,
        victim=victim,
        aggressor=aggressor,
        pairs=len(pairs),
        alone_ms=float(blocks.a.latency_ns.mean()) / NS_PER_MS,
        beside_ms=float(blocks.b.latency_ns.mean()) / NS_PER_MS,
        slowdown_percent=slowdown,
        p99_slowdown_percent=tail,
        errors=errors,
        valid=not reasons,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _slowdown(blocks: Blocks, pairs: Sequence[NeighbourPair]) -> tuple[SharedFigure, tuple[str, ...]]:
    """Return the ratio of all requests' totals in percent, as a duet computes its mean, and what the pairs show."""
    if blocks.pairs < 2:
        percent = 100.0 * (float(blocks.b.latency_ns.mean() / blocks.a.latency_ns.mean()) - 1.0)
        return SharedFigure(value=percent), ("one pair has no interval: measure more restarts with --repeats",)
    ratio = mean_overhead(blocks).ratio
    return SharedFigure(value=ratio.value, ci95=_interval(ratio.one_sided(BOUND_RISK))), _pair_notices(pairs)


def _pair_notices(pairs: Sequence[NeighbourPair]) -> tuple[str, ...]:
    """Return an effect of the order, a drift, a few pairs that dominate, and restarts that differ."""
    alone = [float(pair.alone_ns.mean()) for pair in pairs]
    beside = [float(pair.beside_ns.mean()) for pair in pairs]
    # Each restart has both orders; two pairs cannot show an effect of the order, so no notice is needed.
    order = [pair.beside_first for pair in pairs] if len(pairs) >= PAIRS_FOR_ORDER else None
    times_s = [pair.time_s for pair in pairs]
    texts = paired_estimate(alone, beside, b_first=order, time_s=times_s, resamples=0).notices
    labels = [pair.restart for pair in pairs]
    restarts = len(set(labels))
    if restarts < 2:
        return texts
    by_restart = restart_estimate(alone, beside, labels)
    if by_restart.p >= RESTART_P:
        return texts
    spread = (
        "the slowdown differs from one restart of the workers to the next "
        f"(sd {digits(by_restart.between_sd_percent, 2)} % between {restarts})"
    )
    few = f": the interval holds that only with {LEAST_RESTARTS} restarts, use --repeats {LEAST_RESTARTS}"
    return (*texts, spread + ("" if restarts >= LEAST_RESTARTS else few))


def _tail(blocks: Blocks) -> SharedFigure | None:
    """Return the slowdown of the pooled p99 if there are enough pairs and requests."""
    if refusal(blocks, 0.99):
        return None
    ratio = percentile_overhead(blocks, 0.99).ratio
    return SharedFigure(value=ratio.value, ci95=_interval(ratio.one_sided(BOUND_RISK)))


def _interval(bounds: tuple[float, float]) -> Interval:
    low, high = (bound if math.isfinite(bound) else None for bound in bounds)
    return low, high


# Three workers and their probes; used to estimate the remaining time.
ISOLATION_S = 5.0


def empty_neighbours(
    plan: SharePlan, victim: str, kinds: Sequence[str], plan_id: str, cells: tuple[str, ...], timestamp: str
) -> SharingRecord:
    """Return the record of an experiment that has measured nothing yet."""
    return SharingRecord(
        gputax_version=__version__,
        timestamp=timestamp,
        complete=False,
        plan_id=plan_id,
        plan={**dataclasses.asdict(two_tenants(plan)), "victim": victim, "aggressors": list(kinds)},
        cells_planned=cells,
        place=plan.place,
        workload=plan.setup.workload,
        device_label="nothing measured yet",
    )


def two_tenants(plan: SharePlan) -> SharePlan:
    """Return the plan with two tenants, whatever was requested."""
    return dataclasses.replace(plan, tenants=(2,))


def shown_cells(plan: SharePlan, victim: str, kinds: int) -> tuple[Cell, ...]:
    """Return the parts of the experiment as a view shows them: each kind of neighbour, then the isolation checks."""
    slots_s = len(ORDER) * plan.repeats * plan.window_s
    durations_s = [slots_s] * kinds + [ISOLATION_S]
    return tuple(
        Cell(plan.setup, victim, 1, TECHNIQUES[name].environment(plan.place), 2, LoadPlan(duration_s=seconds))
        for name in plan.techniques
        for seconds in durations_s
    )


def described_by(
    record: SharingRecord, facts: dict[str, Any], described: Described, cell: str, result: CellResult
) -> SharingRecord:
    """Add the victim's description of its place and device, and what the neighbour did."""
    device = str(facts["device"])
    neighbours = {**record.fingerprint.get("neighbours", {})}
    kind = cell.rpartition("-")[2]
    neighbours[cell] = {
        "about": AGGRESSORS[kind, family_of(device)].about,
        "facts": engine_of(result.aggressor_facts),
        "evidence": result.evidences[-1].to_dict() if result.evidences else {},
        "crashes": list(result.crash.ends) if result.crash else [],
    }
    return record.model_copy(
        update={
            "device": device,
            "device_label": device_label(device, device_name_of(described, facts)),
            "claim": claim_of(record.workload, "saturate", str(facts.get("engine", DEFAULT_ENGINE)), facts),
            "fingerprint": {
                "host": host_of(described),
                "gpus": described.gpus,
                "packages": described.packages,
                "victim": engine_of(facts),
                "neighbours": neighbours,
            },
        }
    )


def replaced_isolation(rows: Sequence[IsolationRow], new: IsolationRow) -> tuple[IsolationRow, ...]:
    """Return the rows with the new one replacing an older one of the same check."""
    kept = [row for row in rows if (row.technique, row.check) != (new.technique, new.check)]
    return (*kept, new)
