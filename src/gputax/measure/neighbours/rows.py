"""Turn pairs of a victim alone and next to a neighbour into a row of the document; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gputax.measure.neighbours.slots import NeighbourPair
from gputax.plan.neighbours import AggressorKind
from gputax.plan.notices import Notice
from gputax.results.documents.base import WarningRecord
from gputax.results.documents.sharing import Interval, NeighbourRow, SharedFigure
from gputax.stats.levels import restart_estimate
from gputax.stats.pairs import paired_estimate
from gputax.stats.tails import refusal, tail_estimate

# Significance level for restarts that differ by more than chance: once in a hundred experiments.
RESTART_P = 0.01
PAIRS_FOR_ORDER = 4


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
    """Return the slowdown with its interval; with `reasons` against the evidence there is no number."""
    alone = [float(pair.alone_ns.mean()) for pair in pairs]
    beside = [float(pair.beside_ns.mean()) for pair in pairs]
    warnings = [WarningRecord(code="no-evidence", text=text) for text in reasons]
    warnings += map(WarningRecord.of, notices)
    slowdown, tail = SharedFigure(value=None), None
    if not reasons:
        slowdown, texts = _slowdown(pairs, alone, beside)
        tail = _tail(pairs)
        warnings += [WarningRecord(code="pairs", text=text) for text in texts]
    return NeighbourRow(
        technique=technique,
        victim=victim,
        aggressor=aggressor,
        pairs=len(pairs),
        alone_ms=float(np.mean(alone)) / 1e6,
        beside_ms=float(np.mean(beside)) / 1e6,
        slowdown_percent=slowdown,
        p99_slowdown_percent=tail,
        errors=errors,
        valid=not reasons,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _slowdown(
    pairs: Sequence[NeighbourPair], alone: list[float], beside: list[float]
) -> tuple[SharedFigure, tuple[str, ...]]:
    """Return the mean log ratio in percent; if restarts differ more than their pairs, they are the replicates."""
    if len(pairs) < 2:
        percent = 100.0 * math.expm1(math.log(beside[0] / alone[0]))
        return SharedFigure(value=percent), ("one pair has no interval: measure more restarts with --repeats",)
    # Each restart has both orders; two pairs cannot show an effect of the order, so no notice is needed.
    order = [pair.beside_first for pair in pairs] if len(pairs) >= PAIRS_FOR_ORDER else None
    estimate = paired_estimate(alone, beside, b_first=order, time_s=[pair.time_s for pair in pairs])
    labels = [pair.restart for pair in pairs]
    if len(set(labels)) >= 2:
        by_restart = restart_estimate(alone, beside, labels)
        if by_restart.p < RESTART_P:
            text = (
                "the slowdown differs from one restart of the workers to the next "
                f"(sd {by_restart.between_sd_percent:.2g} % between {by_restart.restarts}): restarts are the replicates"
            )
            figure = SharedFigure(value=by_restart.overhead_percent, ci95=_interval(by_restart.ci95_percent))
            return figure, (*estimate.notices, text)
    return SharedFigure(value=estimate.overhead_percent, ci95=_interval(estimate.ci95_percent)), estimate.notices


def _tail(pairs: Sequence[NeighbourPair]) -> SharedFigure | None:
    """Return the slowdown of p99 if there are enough pairs and samples."""
    alone, beside = [pair.alone_ns for pair in pairs], [pair.beside_ns for pair in pairs]
    if refusal(alone, beside, 0.99):
        return None
    tail = tail_estimate(alone, beside, 0.99).overhead
    return SharedFigure(value=tail.value, ci95=_interval(tail.ci95))


def _interval(bounds: tuple[float, float]) -> Interval:
    low, high = (bound if math.isfinite(bound) else None for bound in bounds)
    return low, high
