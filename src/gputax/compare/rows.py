"""One row per cell and metric: the numbers, the budget and the notices, before any verdict."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gputax.compare.matching import CellPair, compatible
from gputax.errors import ResultsError
from gputax.plan.budgets import Budget, Budgets
from gputax.plan.comparability import Difference, Rule, differences, unchecked
from gputax.plan.metrics import BATCHED, METRICS, OVER_BOUND_SHARE, Metric, judged_metrics
from gputax.plan.notices import Notice
from gputax.plan.tokens import TOKEN_SERIES
from gputax.plan.workloads import MICRO, is_micro
from gputax.results.documents.comparison import Spread
from gputax.results.importers.source import UNKNOWN, CellSamples, Source, SourceCell
from gputax.stats.estimates import Estimate, ThroughputLost
from gputax.stats.inputs import FloatArray
from gputax.stats.percentiles import floor_for
from gputax.stats.repeats import FEWEST_REPEATS, Repeats, borrowed_gap, borrowed_ratio, repeated_gap, repeated_ratio
from gputax.stats.spreads import fieller, mean_spread, percentile_spread, share_spread, spread_gap, spread_ratio
from gputax.stats.verdicts import Claim


@dataclass(frozen=True)
class Row:
    """One metric of one cell: base and other."""

    base_label: str
    other_label: str
    pair: CellPair
    metric: Metric
    compared: Compared
    budget: Budget
    differences: tuple[Difference, ...]
    notices: tuple[Notice, ...]
    decides: bool = True
    spread_source: str | None = None
    """The run whose repeats are the spread, if it is not that of the two sides."""

    @property
    def estimate(self) -> Estimate | None:
        """The value that is compared with the budget, in the budget's unit; None without an interval."""
        return self.compared.absolute if self.budget.unit == "ms" else self.compared.percent

    @property
    def claim(self) -> Claim | None:
        """What can be decided: an estimate whose interval covers how much runs differ."""
        return None if self.open_reason or self.estimate is None else Claim(self.estimate, self.budget.value)

    @property
    def open_reason(self) -> str:
        """Why no verdict is possible whatever the numbers are; empty if one is."""
        compared, repeats = self.compared, self.compared.repeats
        if compared.spread == "between repeats" and min(repeats) < FEWEST_REPEATS:
            return f"{repeats[0]} and {repeats[1]} repeats: a verdict needs at least {FEWEST_REPEATS} on each side"
        if compared.spread in ("between repeats", "from another run"):
            return ""
        if compared.base_value is None or compared.other_value is None or compared.overhead_absolute is None:
            return compared.obstacle or "one of the values is missing"
        if repeats == (1, 1):
            return "; ".join(filter(None, ("one run each: how much runs differ is not known", compared.obstacle)))
        if min(repeats) == 1:
            label = self.base_label if repeats[0] == 1 else self.other_label
            return f"{label} was measured once: how much its runs differ is not known"
        return compared.obstacle or "one of the values is missing"

    @property
    def blocking(self) -> tuple[str, ...]:
        """The differences that forbid the comparison."""
        return tuple(difference.text for difference in self.differences if difference.blocking)


@dataclass(frozen=True)
class CellRows:
    """The rows and notices of one pair of cells."""

    rows: tuple[Row, ...]
    notices: tuple[Notice, ...]
    """What was skipped, and why."""
    not_judged: tuple[dict[str, Any], ...]
    """Metrics that both sides have and that are not judged in this scenario."""


def cell_rows(
    base: Source, other: Source, pair: CellPair, budgets: Budgets, demanded: frozenset[str] = frozenset()
) -> CellRows:
    """Compare two cells by every metric that their scenario is judged by, or that a budget names.

    `demanded` are named by budgets and judged in no cell: they get a row in any scenario, if only with a reason.
    """
    found = differences(pair.base.conditions, pair.other.conditions)
    of_the_cell = _cell_notices(base, other, pair, found)
    scenario = pair.base.scenario if pair.base.scenario != UNKNOWN else pair.other.scenario
    asked = budgets.named(base.environment, other.environment)
    judged = judged_metrics(
        MICRO if is_micro(pair.base.workload) else scenario,
        (each for each in METRICS if each in asked),
        tokens=_has_tokens(pair.base) or _has_tokens(pair.other),
    )
    judged += tuple(name for name in METRICS if name in demanded and name not in judged)
    series = _both_series(base, other, pair) if _repeat_counts(pair) == (1, 1) else ""
    rows: list[Row] = []
    skipped: list[Notice] = []
    for name in judged:
        metric = METRICS[name]
        compared = _compared(metric, base, other, pair, series)
        budget = budgets.for_metric(base.environment, other.environment, name).at(_typical_ms(pair.base))
        named = name in asked
        if named and compared.base_value is None and not compared.obstacle:
            compared = Compared(None, None, obstacle=_absent(metric, base, other, scenario))
        meant_otherwise = _meant_otherwise(metric, pair)
        has_one = name in pair.base.metrics or name in pair.other.metrics
        if compared.base_value is None and not compared.refused and not named and not (meant_otherwise and has_one):
            if compared.obstacle:
                text = f"not judged: {metric.title} of {pair.base.title}: {compared.obstacle}"
                skipped.append(Notice("not-judged", text))
            continue
        notices = (*of_the_cell, *(Notice("statistics", text) for text in compared.notices))
        decides = named or not compared.refused
        unlike = (*found, *meant_otherwise)
        rows.append(Row(base.label, other.label, pair, metric, compared, budget, unlike, notices, decides))
    if not rows:
        skipped += of_the_cell  # no row would carry them
    return CellRows(tuple(rows), tuple(skipped), tuple(_not_judged(base, other, pair, judged)))


def _meant_otherwise(metric: Metric, pair: CellPair) -> tuple[Difference, ...]:
    """Return the difference of definition that forbids this metric: the same name for two times, or none if equal."""
    if metric.percentile is None and metric.name not in ("latency_mean", OVER_BOUND_SHARE.name):
        return ()
    a, b = pair.base.meant.get(metric.series), pair.other.meant.get(metric.series)
    if a is None or b is None or a.definition.key == b.definition.key:
        return ()
    return (Difference(Rule("definition", "two definitions under one name", ("compare",)), a.text, b.text),)


def _has_tokens(cell: SourceCell) -> bool:
    return any(METRICS[name].series in TOKEN_SERIES for name in cell.metrics if name in METRICS)


def with_spread_of(row: Row, history: Source) -> Row:
    """Return the row with the spread of another run of this machine, where it has none of its own and that fits."""
    compared, metric = row.compared, row.metric
    base, other = compared.base_value, compared.other_value
    cells = [cell for cell in history.cells if compatible(row.pair.base, cell)]
    if not row.open_reason or base is None or other is None or len(cells) != 1 or _elsewhere(row.pair, cells[0]):
        return row
    values = [each.metrics[metric.name] for each in cells[0].repeats if metric.name in each.metrics]
    if len(values) < FEWEST_REPEATS:
        return row
    if metric.name == OVER_BOUND_SHARE.name:
        share = borrowed_gap(base, other, compared.repeats, Repeats.of(values), "%")
        borrowed = dataclasses.replace(compared, percent=share, absolute=share)
    elif min(base, other, *values) <= 0.0:
        return row
    elif metric.loss == "throughput":
        times = Repeats.of([1.0 / value for value in values])
        added = borrowed_ratio(1.0 / base, 1.0 / other, compared.repeats, times)
        borrowed = dataclasses.replace(compared, percent=ThroughputLost(added))
    else:
        repeats = Repeats.of(values)
        ratio = borrowed_ratio(base, other, compared.repeats, repeats)
        gap = borrowed_gap(base, other, compared.repeats, repeats, "ms")
        borrowed = dataclasses.replace(compared, percent=ratio, absolute=gap)
    borrowed = dataclasses.replace(borrowed, spread="from another run", obstacle="")
    return dataclasses.replace(row, compared=borrowed, spread_source=history.path)


def _elsewhere(pair: CellPair, cell: SourceCell) -> bool:
    """Whether the cell is known to be of another machine or to differ in what forbids a comparison."""
    found = differences(pair.base.conditions, cell.conditions)
    return any(each.blocking or each.rule.field in SAME_MACHINE for each in found)


SAME_MACHINE = ("cpu_model", "usable_cpus", "gpu_uuid")


def _typical_ms(cell: SourceCell) -> float | None:
    """Return how long a request takes, as far as the source says."""
    names = ("latency_p50", "latency_mean", "latency_p90", "latency_p95", "latency_p99")
    return next((cell.metrics[name] for name in names if name in cell.metrics), None)


def _absent(metric: Metric, base: Source, other: Source, scenario: str) -> str:
    why = f"neither {base.label} nor {other.label} has it"
    if scenario in BATCHED and metric.unit == "ms":
        return f"{why}: requests of {scenario} are not timed one by one"
    return why


def _both_series(base: Source, other: Source, pair: CellPair) -> tuple[CellSeries, CellSeries] | str:
    """Return the samples of both sides, or why they give no interval."""
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
    counts = _repeat_counts(pair)
    if counts != (1, 1):
        return dataclasses.replace(_of_repeats(metric, base.label, other.label, pair), repeats=counts)
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


def _repeat_counts(pair: CellPair) -> tuple[int, int]:
    return len(pair.base.repeats) or 1, len(pair.other.repeats) or 1


def _of_repeats(metric: Metric, base_label: str, other_label: str, pair: CellPair) -> Compared:
    """Compare a metric by its value in each repeat; a side that was measured once has a value but no spread."""
    sides = []
    for label, cell in ((base_label, pair.base), (other_label, pair.other)):
        measured = cell.repeats or (cell,)
        values = [each.metrics[metric.name] for each in measured if metric.name in each.metrics]
        missing = len(measured) - len(values)
        if missing and metric.percentile is not None and all("latency_mean" in each.metrics for each in measured):
            floor = f"p{100 * metric.percentile:g} needs {floor_for(metric.percentile)} samples in each repeat"
            text = f"{floor}, {label} has fewer in {missing} of {len(measured)}"
            return Compared(None, None, obstacle=text, refused=True)
        if missing and values:
            return Compared(
                None, None, obstacle=f"{label} has no {metric.title} in {missing} of {len(measured)} repeats"
            )
        sides.append((values, [each.at_s for each in measured]))
    if not sides[0][0] or not sides[1][0]:
        both = not sides[0][0] and not sides[1][0]
        return Compared(
            None, None, obstacle="" if both else f"only {base_label if sides[0][0] else other_label} has it"
        )
    if min(len(sides[0][0]), len(sides[1][0])) == 1:
        means = [mean_over_repeats(metric, values) for values, _ in sides]
        return without_samples(metric, means[0], means[1], "")
    return over_repeats(metric, *(Repeats.of(values, at_s) for values, at_s in sides))


def _named(text: str, base: str, other: str) -> str:
    """Replace A and B, as the statistics name the sides, by their labels."""
    return re.sub(r"^[AB](?=:)", lambda found: base if found[0] == "A" else other, text)


def _cell_notices(base: Source, other: Source, pair: CellPair, found: tuple[Difference, ...]) -> tuple[Notice, ...]:
    notices = []
    for source, cell in ((base, pair.base), (other, pair.other)):
        if not cell.valid:
            why = "; ".join(cell.invalid_reasons) or "the run itself is marked INVALID"
            notices.append(Notice("invalid", f"{source.label}: INVALID: {why}"))
        if cell.disturbed:
            notices.append(Notice("disturbed", f"{source.label}: DISTURBED: {'; '.join(cell.disturbed)}"))
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
        notices.append(Notice("unchecked", f"not checked, because only one side reports it: {', '.join(one_sided)}"))
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


@dataclass(frozen=True)
class Compared:
    """One metric of two cells; missing values are None."""

    base_value: float | None
    other_value: float | None
    overhead_percent: float | None = None
    overhead_absolute: float | None = None
    """In the metric's unit; positive is worse."""
    percent: Estimate | None = None
    absolute: Estimate | None = None
    obstacle: str = ""
    """Why the interval is missing, as text; empty if it is not."""
    notices: tuple[str, ...] = ()
    refused: bool = False
    """Whether the obstacle is that a percentile has too few samples."""
    spread: Spread | None = None
    """What the interval covers; None without an interval."""
    repeats: tuple[int, int] = (1, 1)


class TooFewSamples(ResultsError):
    """There are too few samples for this percentile."""


def with_samples(metric: Metric, base: CellSeries, other: CellSeries) -> Compared:
    """Compare a metric by the samples of both sides; the error says why they are not enough."""
    if metric.series in TOKEN_SERIES:
        return _of_tokens(metric, base, other)
    if metric.name == "throughput":
        return _throughput(base, other)
    if metric.name == "latency_mean":
        return _mean(base, other)
    if metric.name == OVER_BOUND_SHARE.name:
        return _share(base, other)
    if metric.percentile is not None:
        return _percentile(metric.percentile, base, other)
    raise ResultsError(f"{metric.name} cannot be computed from samples")


def mean_over_repeats(metric: Metric, values: Sequence[float]) -> float:
    """Return the mean over repeats; for a throughput one over the mean time per sample, as of the totals."""
    if metric.loss == "throughput" and all(value > 0.0 for value in values):
        return len(values) / sum(1.0 / value for value in values)
    return sum(values) / len(values)


def over_repeats(metric: Metric, base: Repeats, other: Repeats) -> Compared:
    """Compare a metric by its values in the repeats of both sides."""
    means = [mean_over_repeats(metric, side.values.tolist()) for side in (base, other)]
    counts = (base.values.size, other.values.size)
    if metric.name == OVER_BOUND_SHARE.name:
        share = repeated_gap(base, other, "%")
        return Compared(
            means[0], means[1], share.value, share.value, share, share, spread="between repeats", repeats=counts
        )
    if min(base.values.min(), other.values.min()) <= 0.0:
        return without_samples(metric, means[0], means[1], "a repeat has the value zero: no interval")
    if metric.loss == "throughput":
        times = [Repeats(1.0 / side.values, side.at_s) for side in (base, other)]
        lost = ThroughputLost(repeated_ratio(times[0], times[1]))
        return Compared(
            means[0], means[1], lost.value, means[0] - means[1], lost, spread="between repeats", repeats=counts
        )
    ratio, gap = repeated_ratio(base, other), repeated_gap(base, other, "ms")
    return Compared(means[0], means[1], ratio.value, gap.value, ratio, gap, spread="between repeats", repeats=counts)


def without_samples(metric: Metric, base: float, other: float, obstacle: str) -> Compared:
    """Compare two plain numbers: a difference but no interval, and no ratio with zero."""
    lost = metric.loss == "throughput"
    absolute = base - other if lost else other - base
    if metric.name == OVER_BOUND_SHARE.name:
        return Compared(base, other, absolute, absolute, obstacle=obstacle)
    if base == 0.0:
        why = "the base is zero, so the ratio is undefined" + (f"; {obstacle}" if obstacle else "")
        return Compared(base, other, None, absolute, obstacle=why)
    # 1 - new/old of a throughput, new/old - 1 of a time: both are the difference as a share of the base.
    return Compared(base, other, 100.0 * absolute / base, absolute, obstacle=obstacle)


def _throughput(base: CellSeries, other: CellSeries) -> Compared:
    added = fieller(base.time_per_sample_ns, other.time_per_sample_ns)
    lost = ThroughputLost(added)
    rates = [NS_PER_S / float(series.time_per_sample_ns.mean()) for series in (base, other)]
    return Compared(
        rates[0], rates[1], lost.value, rates[0] - rates[1], lost, notices=added.notices, spread="within one run"
    )


def _mean(base: CellSeries, other: CellSeries) -> Compared:
    estimate = fieller(base.latency_ns, other.latency_ns)
    spreads = [mean_spread(series.latency_ns, 1.0 / NS_PER_MS) for series in (base, other)]
    gap = spread_gap(spreads[0], spreads[1], "ms")
    return Compared(
        gap.base, gap.other, estimate.value, gap.value, estimate, gap, notices=estimate.notices,
        spread="within one run",
    )  # fmt: skip


def _percentile(p: float, base: CellSeries, other: CellSeries) -> Compared:
    return _percentile_of(p, (base.latency_ns, other.latency_ns), (base.ordered_ns, other.ordered_ns))


def _of_tokens(metric: Metric, base: CellSeries, other: CellSeries) -> Compared:
    values = [side.tokens_ns.get(metric.series) for side in (base, other)]
    if metric.percentile is None or values[0] is None or values[1] is None:
        raise ResultsError(f"{metric.title} has no single values on both sides")
    return _percentile_of(metric.percentile, (values[0], values[1]), (np.sort(values[0]), np.sort(values[1])))


def _percentile_of(p: float, values: tuple[FloatArray, FloatArray], ordered: tuple[FloatArray, FloatArray]) -> Compared:
    floor = floor_for(p)
    counts = (values[0].size, values[1].size)
    if min(counts) < floor:
        raise TooFewSamples(f"p{100 * p:g} needs {floor} samples on each side, there are {counts[0]} and {counts[1]}")
    spreads = [percentile_spread(values[each], ordered[each], p, 1.0 / NS_PER_MS) for each in (0, 1)]
    ratio, gap = spread_ratio(spreads[0], spreads[1]), spread_gap(spreads[0], spreads[1], "ms")
    return Compared(gap.base, gap.other, ratio.value, gap.value, ratio, gap, spread="within one run")


def _share(base: CellSeries, other: CellSeries) -> Compared:
    if base.bound_ms is None or other.bound_ms is None:
        raise ResultsError("the source has no latency bound")
    late = [(side.latency_ns > (side.bound_ms or math.inf) * NS_PER_MS).astype(np.float64) for side in (base, other)]
    gap = spread_gap(share_spread(late[0]), share_spread(late[1]), "%")
    # Percentage points are the unit of both the metric and its budget.
    return Compared(gap.base, gap.other, gap.value, gap.value, gap, gap, spread="within one run")


NS_PER_MS = 1e6
NS_PER_S = 1e9


@dataclass(frozen=True)
class CellSeries:
    """Latencies in the order of measurement, and the time from one completion to the next."""

    latency_ns: FloatArray
    time_per_sample_ns: FloatArray
    """One per row; their mean is exactly the run's time over its samples, that is one over the throughput."""
    bound_ms: float | None = None
    """Server only: a query above this is late."""
    tokens_ns: Mapping[str, FloatArray] = dataclasses.field(default_factory=dict)
    """What tokens add, by series: one value per request, or per gap between two tokens."""

    @cached_property
    def ordered_ns(self) -> FloatArray:
        """The latencies sorted, once for all percentiles."""
        return np.sort(self.latency_ns)


def cell_series(samples: CellSamples, bound_ms: float | None) -> CellSeries:
    """Return the series, or raise with the number of impossible samples."""
    latency_ns = samples.latency_ns
    bad = int(np.count_nonzero(latency_ns <= 0))
    if bad:
        raise ResultsError(f"{bad} of {latency_ns.size} samples have a latency of zero or less")
    if int(samples.samples.min()) < 1:
        raise ResultsError("some rows contain no sample")
    ends = np.sort(samples.end_ns)
    gaps = np.diff(ends, prepend=samples.begin_ns.min()).astype(np.float64)
    # Rows may hold unequal batches, so the gaps are scaled by the mean batch and not each by its own.
    per_sample = gaps * (latency_ns.size / float(samples.samples.sum()))
    return CellSeries(latency_ns.astype(np.float64), per_sample, bound_ms, samples.series_ns)
