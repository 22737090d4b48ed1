"""From rows to judged metrics: all judged together, and none passes on an invalid or unequal measurement; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gputax.compare.rows import Row
from gputax.plan.comparability import Value
from gputax.results.documents.base import WarningRecord
from gputax.results.documents.comparison import ComparedMetric
from gputax.results.importers.source import UNKNOWN, SourceCell
from gputax.stats.estimates import Estimate
from gputax.stats.verdicts import Claim, Judgement, judge_all, not_comparable

TWO_SIDED = 0.025


def judged_rows(rows: Sequence[Row], force: bool) -> tuple[ComparedMetric, ...]:
    """Judge every row; those that can be decided share the risk by Holm's rule."""
    claims = {
        number: Claim(row.estimate, row.budget.value)
        for number, row in enumerate(rows)
        if row.estimate is not None and not row.blocking
    }
    decided = dict(zip(claims, judge_all(list(claims.values())), strict=True))
    return tuple(_metric(row, _verdict(row, decided.get(number)), force) for number, row in enumerate(rows))


def _verdict(row: Row, decided: Judgement | None) -> Judgement:
    if row.blocking:
        return not_comparable(row.blocking)
    if decided is None:
        return Judgement("inconclusive", row.compared.obstacle or "one of the values is missing")
    base_valid, other_valid = row.pair.base.valid, row.pair.other.valid
    if decided.verdict == "pass" and not (base_valid and other_valid):
        label, cell = (row.base_label, row.pair.base) if not base_valid else (row.other_label, row.pair.other)
        return Judgement("inconclusive", f"{_invalid(label, cell)}, so it cannot pass; {decided.reason}")
    if decided.verdict == "fail" and not base_valid:
        return Judgement("inconclusive", f"{_invalid(row.base_label, row.pair.base)}; {decided.reason}")
    return decided


def _invalid(label: str, cell: SourceCell) -> str:
    why = "; ".join(cell.invalid_reasons)
    return f"{label} is INVALID" + (f" ({why})" if why else "")


def _metric(row: Row, judgement: Judgement, force: bool) -> ComparedMetric:
    base, other, compared = row.pair.base, row.pair.other, row.compared
    shown = force or judgement.verdict != "not comparable"
    return ComparedMetric(
        workload=base.workload if base.workload != UNKNOWN else other.workload,
        scenario=base.scenario if base.scenario != UNKNOWN else other.scenario,
        batch_size=base.batch_size if base.batch_size is not None else other.batch_size,
        metric=row.metric.name,
        unit=_unit(row),
        base=row.base_label,
        other=row.other_label,
        base_value=_finite(compared.base_value) if shown else None,
        other_value=_finite(compared.other_value) if shown else None,
        overhead_percent=_finite(compared.overhead_percent) if shown else None,
        ci95_percent=_interval(compared.percent) if shown else None,
        overhead_absolute=_finite(compared.overhead_absolute) if shown else None,
        ci95_absolute=_interval(compared.absolute) if shown else None,
        budget=row.budget.value,
        budget_unit=row.budget.unit,
        budget_source=row.budget.source,
        verdict=judgement.verdict,
        reason=judgement.reason,
        decides=row.decides,
        paired=False,
        differences=row.blocking,
        claim=_claim(row),
        warnings=tuple(
            WarningRecord(code=notice.code, text=notice.text, value=_finite(notice.value)) for notice in row.notices
        ),
    )


def _unit(row: Row) -> str:
    counted: set[Value | None] = {cell.conditions.get("counted") for cell in (row.pair.base, row.pair.other)}
    if row.metric.name != "throughput" or counted == {None}:
        return row.metric.unit
    # Of two things that are counted neither names the row.
    return "/s" if None not in counted and len(counted) > 1 else f"{next(each for each in counted if each)}/s"


def _claim(row: Row) -> str:
    claims = {row.base_label: row.pair.base.claim, row.other_label: row.pair.other.claim}
    if len(set(claims.values())) == 1:
        return row.pair.base.claim
    return "; ".join(f"{label}: {claim}" for label, claim in claims.items() if claim)


def _interval(estimate: Estimate | None) -> tuple[float | None, float | None] | None:
    if estimate is None:
        return None
    low, high = estimate.one_sided(TWO_SIDED)
    # A ratio is always above -100 %: that bound says nothing.
    known = _finite(low) if estimate.unit != "%" or low > -100.0 else None, _finite(high)
    return None if known == (None, None) else known


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
