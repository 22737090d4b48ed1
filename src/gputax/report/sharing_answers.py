"""What sharing experiments measured, as points (a technique with N tenants), and the answer that they give; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gputax.plan.techniques import TECHNIQUES
from gputax.report import wording
from gputax.report.model import Fact
from gputax.report.obtained_answer import obtained_answer
from gputax.report.sources import SharingSource
from gputax.results.documents.sharing import (
    IsolationRow,
    NeighbourRow,
    SharedCell,
    SharedFigure,
    SharedRow,
    SharingRecord,
)

# How `plan.sharing.ShareCell` names a cell: a failure has only this name.
CELL_NAME = re.compile(r"(.+)-t(\d+)-r\d+")
FOREIGN_MEMORY = "no foreign memory readable"
NOT_PROVEN = "nothing proves that the technique was active"


@dataclass(frozen=True)
class Point:
    """One technique with N tenants."""

    technique: str
    tenants: int
    row: SharedRow | None
    """None where no repeat counts."""
    reasons: tuple[str, ...] = ()
    """Why repeats of it do not count, or were not measured."""
    disturbed: bool = False
    """A repeat was measured on a disturbed machine, which the user did not accept: it is not ranked."""

    @property
    def label(self) -> str:
        """The technique for people."""
        return technique_title(self.technique)


@dataclass(frozen=True)
class Experiment:
    """One sharing document with the name that it has in this report."""

    title: str
    path: str
    record: SharingRecord
    points: tuple[Point, ...]

    @property
    def device(self) -> str:
        """The label that goes with every number of it."""
        return self.record.device_label

    @property
    def measured(self) -> tuple[tuple[Point, SharedRow], ...]:
        """The points that have figures."""
        return tuple((point, point.row) for point in self.points if point.row is not None)

    def titled(self, text: str) -> str:
        """Return the title of one of its tables or charts, with its device."""
        return wording.on_device(f"{self.title}: {text}", [self.device])


def technique_title(name: str) -> str:
    """Return a technique for people; a stand-in is never shown without that word."""
    if is_stand_in(name):
        return f"{name} (stand-in)"
    return TECHNIQUES[name].title if name in TECHNIQUES else name


def is_stand_in(name: str) -> bool:
    """Whether it runs the same experiment without a GPU instead of a GPU technique."""
    return name in TECHNIQUES and TECHNIQUES[name].stand_in


def fails_by_nature(row: IsolationRow) -> bool:
    """Whether a stand-in cannot keep this promise: its tenants are processes of one user, who may read them all."""
    return row.passed is False and is_stand_in(row.technique) and row.check == FOREIGN_MEMORY


def experiments_of(sources: Sequence[SharingSource]) -> tuple[Experiment, ...]:
    """Return every experiment, distinguished by its directory where workload, place and device are the same."""
    titles = [f"{source.record.workload} in {source.record.place}" for source in sources]
    keys = [(title, source.record.device_label) for title, source in zip(titles, sources, strict=True)]
    return tuple(
        Experiment(
            f"{title} ({_directory(source.path)})" if keys.count(key) > 1 else title,
            source.path,
            source.record,
            _points(source.record),
        )
        for title, key, source in zip(titles, keys, sources, strict=True)
    )


def techniques_of(experiments: Iterable[Experiment]) -> list[str]:
    """Return the labels of all techniques, in order, so that each keeps its colour."""
    return list(dict.fromkeys(point.label for each in experiments for point in each.points))


def cell_reasons(cell: SharedCell) -> tuple[str, ...]:
    """Return why a cell does not count."""
    if cell.valid:
        return ()
    reasons = cell.evidence.get("reasons")
    found = (
        [str(reason) for reason in reasons] if isinstance(reasons, list | tuple) else [str(reasons)] if reasons else []
    )
    found += [warning.text for warning in cell.warnings]
    return tuple(dict.fromkeys(found)) or (NOT_PROVEN,)


def neighbour_reason(row: NeighbourRow) -> str:
    """Return why a neighbour's row does not count; nothing for one that does."""
    texts = "; ".join(dict.fromkeys(warning.text for warning in row.warnings))
    return "" if row.valid else texts or NOT_PROVEN


def _directory(path: str) -> str:
    """Return the name of the directory that holds the document."""
    return (path.rsplit("/", 2)[:-1] or [path])[-1]


def _points(record: SharingRecord) -> tuple[Point, ...]:
    """Return what was measured or tried, by technique in the plan's order, then by tenants."""
    refused: dict[tuple[str, int], list[str]] = {}
    for cell in (each for each in record.cells if not each.situation):
        refused.setdefault((cell.technique, cell.tenants), []).extend(cell_reasons(cell))
    for failure in record.failures:
        found = CELL_NAME.fullmatch(failure.cell)
        if found:
            refused.setdefault((found[1], int(found[2])), []).append(f"failed: {failure.what}")
    rows = {(row.technique, row.tenants): row for row in record.rows if _counts(row, record.cells)}
    planned = record.plan.get("techniques")
    order = list(planned) if isinstance(planned, list | tuple) else []
    order += [technique for technique, _ in (*rows, *refused)]
    return tuple(
        Point(
            technique,
            tenants,
            row := rows.get((technique, tenants)),
            _once(refused.get((technique, tenants), ())),
            row is not None and bool(row.disturbed) and not record.accepts_disturbed,
        )
        for technique, tenants in sorted({*rows, *refused}, key=lambda key: (order.index(key[0]), key[1]))
    )


def _counts(row: SharedRow, cells: Sequence[SharedCell]) -> bool:
    """Whether a row is a figure: it has one, and not all cells under it are invalid."""
    own = [cell.valid for cell in cells if (cell.technique, cell.tenants) == (row.technique, row.tenants)]
    return wording.finite(row.mean_ms.value) is not None and (not own or any(own))


def _once(reasons: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(reasons))


LOWEST = "lowest"
ONLY = "the only figure"
HIGHER = "higher"
NOT_DISTINGUISHABLE = "not distinguishable"
NO_INTERVAL = "no interval"
DISTURBED = "DISTURBED"

SHARING_QUESTION = "What does a tenant get when the device is shared?"
NEIGHBOURS_QUESTION = "What does a neighbour cost a tenant?"
OBTAINED_QUESTION = "Is the share that was asked for the share that was obtained?"


def sharing_question(experiments: Sequence[Experiment]) -> str:
    """Return the question that the experiments answer."""
    if any(each.points for each in experiments):
        return SHARING_QUESTION
    return OBTAINED_QUESTION if any(each.record.obtained for each in experiments) else NEIGHBOURS_QUESTION


def sharing_answers(experiments: Sequence[Experiment], *, name_device: bool) -> list[Fact]:
    """Return a sentence for each experiment, and one more where it measured neighbours.

    The device is named where the report has several (else its title does), the place where there are more experiments.
    """
    found = []
    for each in experiments:
        place = each.title if len(experiments) > 1 else each.record.workload
        facts = [_sharing(each, place)] if each.points else []
        if each.record.obtained:
            facts.append(obtained_answer(each.record.obtained, place))
        if each.record.neighbours or each.record.isolation:
            facts.append(_neighbours(each, place))
        if each.record.failures and not facts:
            facts.append(Fact(f"{place}: nothing could be measured: {each.record.failures[0].what}", "fail"))
        found += [Fact(f"On {each.device}, {fact.text}", fact.tone) if name_device else fact for fact in facts]
    return found


def at_most_tenants(experiment: Experiment) -> tuple[Point, ...]:
    """Return the points at the largest number of tenants that has a figure, or that was tried at all."""
    tried = [point.tenants for point, _ in experiment.measured] or [point.tenants for point in experiment.points]
    return tuple(point for point in experiment.points if point.tenants == max(tried, default=0))


def ranked(points: Sequence[Point]) -> list[tuple[Point, SharedRow, str]]:
    """Return the points with figures by mean latency, each with its standing against the lowest."""
    known = [(point, point.row) for point in points if point.row is not None]
    known.sort(key=lambda each: each[1].mean_ms.value or 0.0)
    if any(point.disturbed for point, _ in known):
        return [(point, row, DISTURBED) for point, row in known]
    first = LOWEST if len(known) > 1 else ONLY
    return [
        (point, row, first if i == 0 else standing(row.mean_ms, known[0][1].mean_ms))
        for i, (point, row) in enumerate(known)
    ]


def standing(figure: SharedFigure, lowest: SharedFigure) -> str:
    """Return whether a mean is distinguishable from the lowest: not where their intervals overlap or are missing."""
    own, other = figure.ci95, lowest.ci95
    if own is None or other is None or own == (None, None) or other == (None, None):
        return NO_INTERVAL
    low, high = wording.finite(own[0]), wording.finite(other[1])
    return HIGHER if low is not None and high is not None and low > high else NOT_DISTINGUISHABLE


def _sharing(experiment: Experiment, place: str) -> Fact:
    points = at_most_tenants(experiment)
    order = ranked(points)
    missing = [point.label for point in points if point.row is None]
    if not order:
        return Fact(f"{place}: no technique has a valid figure ({wording.joined(missing)}).", "fail")
    tenants = wording.counted(points[0].tenants, "tenant")
    lost = f"; {wording.joined(missing)} {'has' if len(missing) == 1 else 'have'} no valid figure" if missing else ""
    most = max(point.tenants for point in experiment.points)
    if most > points[0].tenants:
        lost += f"; with {most} tenants no technique has a valid figure"
    if order[0][2] == DISTURBED:
        shown = wording.joined([_short(point, row) for point, row, _ in order])
        text = f"{tenants} of {place}: {shown}; undecided, the machine was disturbed{lost}."
        return Fact(text, "inconclusive")
    return Fact(f"{tenants} of {place}: {_compared(order)}{lost}.")


def _compared(order: Sequence[tuple[Point, SharedRow, str]]) -> str:
    point, row, _ = order[0]
    best = _named(point, row)
    figure = wording.measured(row.mean_ms.value, row.mean_ms.ci95, "ms")
    if len(order) == 1:
        return f"{best} has a mean latency of {figure}{_growth(row)}"
    same = [_short(each, other) for each, other, how in order[1:] if how == NOT_DISTINGUISHABLE]
    higher = [_short(each, other) for each, other, how in order[1:] if how == HIGHER]
    unknown = [_short(each, other) for each, other, how in order[1:] if how == NO_INTERVAL]
    parts = [f"{best} has the lowest mean latency, {figure}{'' if same or unknown else _growth(row)}"]
    if same:
        parts.append(f"{wording.joined(same)} {'is' if len(same) == 1 else 'are'} {NOT_DISTINGUISHABLE} from it")
    if higher:
        parts.append(f"{wording.joined(higher)} {'is' if len(higher) == 1 else 'are'} slower")
    if unknown:
        parts.append(f"{wording.joined(unknown)} cannot be ranked without an interval")
    return "; ".join(parts)


def _named(point: Point, row: SharedRow) -> str:
    """Return the technique with what it entitles each tenant to, in one pair of brackets."""
    if not row.entitlement:
        return point.label
    if point.label.endswith(")"):
        return f"{point.label[:-1]}, each tenant {row.entitlement})"
    return f"{point.label} (each tenant {row.entitlement})"


def _short(point: Point, row: SharedRow) -> str:
    return f"{_named(point, row)} with {wording.number(row.mean_ms.value)} ms"


def _growth(row: SharedRow) -> str:
    """Return how it compares with one tenant, where there are more."""
    value = wording.finite(row.slowdown.value)
    return "" if value is None or row.tenants == 1 else f", {wording.number(value)} times that of one tenant"


def _neighbours(experiment: Experiment, place: str) -> Fact:
    record = experiment.record
    known = [row for row in record.neighbours if row.valid and wording.finite(row.slowdown_percent.value) is not None]
    rows = [row for row in known if record.accepts_disturbed or not row.disturbed]
    techniques = dict.fromkeys(row.technique for row in rows)
    worst = {name: _worst([row for row in rows if row.technique == name]) for name in techniques}
    texts = [text for text in worst.values() if text]
    silent = [technique_title(name) for name, text in worst.items() if not text]
    parts = [f"slowed most {wording.joined(texts)}"] if texts else []
    parts += [f"no measurable slowdown under {wording.joined(silent)}"] if silent else []
    parts += [f"{len(known) - len(rows)} undecided, the machine was disturbed"] if len(known) > len(rows) else []
    if record.neighbours and not known:
        parts.append("no valid figure")
    text, failed = _isolation(experiment)
    parts += [text] if text else []
    broken = failed or (record.neighbours and not known)
    return Fact(f"{place} beside a neighbour: {'; '.join(parts)}.", "fail" if broken else "")


def _worst(rows: Sequence[NeighbourRow]) -> str:
    """Return the largest slowdown that is one; a larger figure whose interval holds none may be chance."""
    certain = [row for row in rows if slower(row.slowdown_percent)]
    if not certain:
        return ""
    worst = max(certain, key=lambda row: row.slowdown_percent.value or 0.0)
    cost = wording.overhead(worst.slowdown_percent.value, worst.slowdown_percent.ci95, "%")
    return f"by {worst.aggressor} under {technique_title(worst.technique)}, {cost}"


def slower(figure: SharedFigure) -> bool:
    """Whether the whole interval lies above no slowdown."""
    low, _ = wording.known_bounds(figure.ci95, "%")
    return low is not None and low > 0.0


def slowed(figure: SharedFigure) -> bool | None:
    """Whether the interval excludes no slowdown at all; None where there is none."""
    low, high = wording.known_bounds(figure.ci95, "%")
    if low is None and high is None:
        return None
    return (low is not None and low > 0.0) or (high is not None and high < 0.0)


def _isolation(experiment: Experiment) -> tuple[str, int]:
    """Return what became of the promises of isolation, and how many were broken that could have been kept."""
    rows = experiment.record.isolation
    natural = {row.technique for row in rows if fails_by_nature(row)}
    text, failed = _held([row.passed for row in rows if not fails_by_nature(row)])
    parts = [text] if text else []
    if natural:
        parts.append(f"memory is not isolated, by nature of the stand-in{'s' if len(natural) > 1 else ''}")
    return "; ".join(parts), failed


def _held(checks: Sequence[bool | None]) -> tuple[str, int]:
    tried, failed = [passed for passed in checks if passed is not None], checks.count(False)
    if not checks:
        return "", 0
    untried = f", {len(checks) - len(tried)} not tried" if len(tried) < len(checks) else ""
    if failed:
        return f"isolation is broken in {failed} of {wording.counted(len(tried), 'check')}{untried}", failed
    return (f"isolation held in {wording.counted(len(tried), 'check')}{untried}" if tried else "isolation not tried"), 0
