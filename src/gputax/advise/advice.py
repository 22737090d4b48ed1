"""Answer the question from the models: which technique, how many tenants, how certain, at what cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gputax.advise.models import Fitted, Refused, fit_or_refuse
from gputax.advise.ratios import RATE, Ratio, Unevenness, ratio_of, unevenness
from gputax.advise.rows import WORST_FIRST, Meets, Row, Scales, row
from gputax.advise.table import Table
from gputax.advise.targets import TOKEN_PERCENTILES, Question
from gputax.errors import ResultsError, UsageError


@dataclass(frozen=True)
class Considered:
    """A technique with its model, the ratios that convert it to the targets, and all its rows."""

    model: Fitted
    scales: Scales
    rows: tuple[Row, ...]

    @property
    def ratios(self) -> tuple[Ratio, ...]:
        """Ratio of percentile to mean, one per target."""
        return self.scales.ratios

    @property
    def uneven(self) -> tuple[Unevenness, ...]:
        """Ratio of the worst tenant to all tenants, for each target and for the rate."""
        return (*self.scales.uneven, self.scales.uneven_rate)

    @property
    def best(self) -> Row | None:
        """The row with the most tenants that meets the question."""
        return max((row for row in self.rows if row.meets == "yes"), key=lambda row: row.tenants, default=None)


@dataclass(frozen=True)
class Advice:
    """The answer and everything it is based on."""

    table: Table
    question: Question
    considered: tuple[Considered, ...]
    refused: tuple[Refused, ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows of all techniques."""
        return tuple(row for each in self.considered for row in each.rows)

    @property
    def meets(self) -> Meets:
        """The best verdict among all rows."""
        return max((row.meets for row in self.rows), key=WORST_FIRST.index, default="no")

    def best(self, *, measured: bool = False) -> Row | None:
        """Return the row with the most tenants that meets the question; on a tie, the highest throughput."""
        rows = [row for row in self.rows if row.meets == "yes" and (row.was_measured or not measured)]
        return max(rows, key=lambda row: (row.tenants, row.per_s), default=None)

    def likeliest(self) -> Row | None:
        """Return the best unsure row; rows whose value meets the question come first."""
        rows = [row for row in self.rows if row.meets == "unsure"]
        return max(rows, key=lambda row: (row.holds, row.tenants, row.per_s), default=None)

    def cheapest(self) -> Row | None:
        """Return the row that meets the question with the highest throughput over all tenants."""
        return max((row for row in self.rows if row.meets == "yes"), key=lambda row: row.per_s, default=None)

    def nearest(self) -> Row:
        """Return the row that misses the question by the smallest factor."""
        return min(self.rows, key=_miss)

    @property
    def named(self) -> tuple[Row, ...]:
        """The rows that the answer mentions; they must be shown with it."""
        best = self.best()
        if best is not None:
            found = [best, self.best(measured=True), self.cheapest()]
        else:
            found = [self.likeliest() or self.nearest()]
        return tuple(row for row in found if row is not None)


def _miss(row: Row) -> float:
    """Return the worst miss of a row as a factor."""
    return max(
        figure.limit / figure.decisive if figure.name == RATE else figure.decisive / figure.limit
        for figure in row.figures
    )


def advise(table: Table, question: Question, only: Sequence[int] = ()) -> Advice:
    """Fit every technique and judge each number of tenants."""
    _refuse_unmeasured(table, only)
    considered, refused = [], []
    for each in fit_or_refuse(table, only):
        if isinstance(each, Refused):
            refused.append(each)
            continue
        ratios, lacking = _ratios(each, question)
        if lacking:
            refused.append(Refused(each.technique, *_no_percentile(table, lacking, each.technique.name)))
            continue
        uneven = tuple(unevenness(each.series, target.statistic) for target in question.targets)
        scales = Scales(ratios, uneven, unevenness(each.series, RATE))
        considered.append(
            Considered(each, scales, tuple(row(each, scales, question, count) for count in _counts(each, question)))
        )
    if not considered:
        raise _nothing(table, refused)
    return Advice(table, question, tuple(considered), tuple(refused))


def _refuse_unmeasured(table: Table, only: Sequence[int]) -> None:
    measured = sorted({count for series in table.series for count in series.tenants})
    never = [count for count in only if count not in measured]
    if never and measured:
        given, listed = "published" if table.published else "measured", _and(measured)
        raise UsageError(
            f"--fit {','.join(map(str, only))}: {_and(never)} {'was' if len(never) == 1 else 'were'} never {given}; "
            f"{given}: {listed}",
            where=table.title,
            next_step=f"e.g. --fit {','.join(map(str, measured[:2]))}",
        )


def _and(counts: Sequence[int]) -> str:
    *others, last = map(str, counts)
    return f"{', '.join(others)} and {last}" if others else last


def _nothing(table: Table, refused: Sequence[Refused]) -> ResultsError | UsageError:
    if not refused:
        return ResultsError(
            "no valid cell to fit a model to", where=table.title, next_step="run gputax share until its cells are valid"
        )
    what = "; ".join(f"{each.technique.title}: {each.why}" for each in refused)
    if table.published and len({each.why for each in refused}) == 1:
        return UsageError(refused[0].why, where=table.title, next_step=refused[0].next_step)
    return ResultsError(f"no technique can be modelled: {what}", where=table.title, next_step=refused[0].next_step)


def _no_percentile(table: Table, statistic: str, technique: str) -> tuple[str, str]:
    if table.published:
        return f"the published data contain only means, so {statistic} cannot be estimated", "use --slo mean=..."
    runs = [run for series in table.series for point in series.points for run in point.runs]
    if statistic in TOKEN_PERCENTILES and not any(
        name in run.percentiles_ms for run in runs for name in TOKEN_PERCENTILES
    ):
        return f"the workload has no tokens, so {statistic} cannot be estimated", "gputax share --workload llm-tiny"
    return f"no run had enough samples for {statistic}", f"gputax share --tech {technique} with a longer --window"


def _ratios(model: Fitted, question: Question) -> tuple[tuple[Ratio, ...], str]:
    found = []
    for target in question.targets:
        ratio = ratio_of(model.series, target.statistic)
        if ratio is None:
            return (), target.statistic
        found.append(ratio)
    return tuple(found), ""


def _counts(model: Fitted, question: Question) -> range:
    """Return the numbers of tenants to judge: up to the measured or requested maximum, limited by capacity."""
    last = question.up_to or max(model.whole.tenants)
    return range(1, min(last, model.series.capacity or last) + 1)
