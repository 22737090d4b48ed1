"""One row per cell and metric: the numbers, the budget and what must be read with them, before any verdict."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from gputax.compare.estimates import Compared, TooFewSamples, with_samples, without_samples
from gputax.compare.matching import CellPair
from gputax.compare.series import CellSeries, cell_series
from gputax.errors import ResultsError
from gputax.plan.budgets import Budget, Budgets
from gputax.plan.comparability import Difference, differences, unchecked
from gputax.plan.metrics import METRICS, Metric, judged_metrics
from gputax.plan.micro import MICRO, is_micro
from gputax.plan.notices import Notice
from gputax.results.importers.source import UNKNOWN, Source, SourceCell
from gputax.stats.estimates import Estimate


@dataclass(frozen=True)
class Row:
    """One metric of one cell, base against other."""

    base_label: str
    other_label: str
    pair: CellPair
    metric: Metric
    compared: Compared
    budget: Budget
    differences: tuple[Difference, ...]
    notices: tuple[Notice, ...]
    decides: bool = True

    @property
    def estimate(self) -> Estimate | None:
        """What the budget is held against, in the budget's unit."""
        return self.compared.absolute if self.budget.unit == "ms" else self.compared.percent

    @property
    def blocking(self) -> tuple[str, ...]:
        """What forbids the comparison."""
        return tuple(difference.text for difference in self.differences if difference.blocking)


@dataclass(frozen=True)
class CellRows:
    """All that one pair of cells gives."""

    rows: tuple[Row, ...]
    notices: tuple[Notice, ...]
    """What was left out, and why."""
    not_judged: tuple[dict[str, Any], ...]
    """Metrics that both sides have and that this scenario is not judged by."""


def cell_rows(base: Source, other: Source, pair: CellPair, budgets: Budgets) -> CellRows:
    """Compare two cells by every metric that their scenario is judged by, or that a budget names."""
    found = differences(pair.base.conditions, pair.other.conditions)
    told = _cell_notices(base, other, pair, found)
    scenario = pair.base.scenario if pair.base.scenario != UNKNOWN else pair.other.scenario
    judged = judged_metrics(MICRO if is_micro(pair.base.workload) else scenario, budgets.metrics)
    series = _both_series(base, other, pair)
    rows: list[Row] = []
    left_out: list[Notice] = []
    for name in judged:
        metric = METRICS[name]
        compared = _compared(metric, base, other, pair, series)
        budget = budgets.for_metric(base.environment, other.environment, name)
        named = name in budgets.metrics
        if compared.base_value is None and not compared.refused and not named:
            if compared.obstacle:
                text = f"not judged: {metric.title} of {pair.base.title}: {compared.obstacle}"
                left_out.append(Notice("not-judged", text))
            continue
        notices = (*told, *(Notice("statistics", text) for text in compared.notices))
        decides = named or not compared.refused
        rows.append(Row(base.label, other.label, pair, metric, compared, budget, found, notices, decides))
    if not rows:
        left_out += told  # nothing else would carry them
    return CellRows(tuple(rows), tuple(left_out), tuple(_not_judged(base, other, pair, judged)))


def _both_series(base: Source, other: Source, pair: CellPair) -> tuple[CellSeries, CellSeries] | str:
    """Return the samples of both sides, or why there is no interval."""
    try:
        first = _series(base.label, pair.base)
        second = _series(other.label, pair.other)
    except ResultsError as error:
        return f"{error.what}: a difference, but no interval"
    return first, second


def _series(label: str, cell: SourceCell) -> CellSeries:
    if cell.load_samples is None:
        raise ResultsError(f"{label} has no samples")
    bound = cell.conditions.get("latency_bound_ms")
    try:
        return cell_series(cell.load_samples(), float(bound) if isinstance(bound, int | float) else None)
    except ResultsError as error:
        raise ResultsError(f"{label}: {error.what}") from error


def _compared(
    metric: Metric, base: Source, other: Source, pair: CellPair, series: tuple[CellSeries, CellSeries] | str
) -> Compared:
    obstacle = series if isinstance(series, str) else ""
    if not isinstance(series, str):
        try:
            return with_samples(metric, *series)
        except TooFewSamples as error:
            return Compared(None, None, obstacle=error.what, refused=True)
        except ResultsError as error:
            obstacle = f"{_named(error.what, base.label, other.label)}: no interval"
    values = [cell.metrics.get(metric.name) for cell in (pair.base, pair.other)]
    if values[0] is not None and values[1] is not None:
        return without_samples(metric, values[0], values[1], obstacle)
    if values[0] is None and values[1] is None:
        return Compared(None, None)
    return Compared(None, None, obstacle=f"only {base.label if values[1] is None else other.label} has it")


def _named(text: str, base: str, other: str) -> str:
    """The statistics know the sides as A and B; people know them by their labels."""
    return re.sub(r"^[AB](?=:)", lambda found: base if found[0] == "A" else other, text)


def _cell_notices(base: Source, other: Source, pair: CellPair, found: tuple[Difference, ...]) -> tuple[Notice, ...]:
    notices = []
    for source, cell in ((base, pair.base), (other, pair.other)):
        if not cell.valid:
            why = "; ".join(cell.invalid_reasons) or "the run says so itself"
            notices.append(Notice("invalid", f"{source.label}: INVALID: {why}"))
        notices += [
            Notice(notice.code, f"{source.label}: {notice.text}", notice.value)
            for notice in cell.notices
            if notice.code not in ("too-few-samples", "loadgen-invalid")
        ]
    noted = [difference.text for difference in found if not difference.blocking]
    if noted:
        notices.append(Notice("differs", f"differs, but does not forbid the comparison: {'; '.join(noted)}"))
    one_sided = unchecked(pair.base.conditions, pair.other.conditions)
    if one_sided:
        notices.append(Notice("unchecked", f"could not be checked, only one side tells: {', '.join(one_sided)}"))
    return tuple(notices)


def _not_judged(base: Source, other: Source, pair: CellPair, judged: tuple[str, ...]) -> list[dict[str, Any]]:
    return [
        {
            "cell": pair.base.title,
            "metric": name,
            "unit": metric.unit,
            "base": base.label,
            "other": other.label,
            "base_value": pair.base.metrics[name],
            "other_value": pair.other.metrics[name],
        }
        for name, metric in METRICS.items()
        if name not in judged and name in pair.base.metrics and name in pair.other.metrics
    ]
