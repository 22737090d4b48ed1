"""Tables of a sharing experiment: the answer, the figures behind each chart, and the users' own table; pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gputax.plan.tokens import TPOT, TTFT
from gputax.report import wording
from gputax.report.energy import with_energy
from gputax.report.model import Cell, Column, Table, text_cell
from gputax.report.sharing_answers import (
    DISTURBED,
    NOT_DISTINGUISHABLE,
    Experiment,
    Point,
    at_most_tenants,
    is_stand_in,
    ranked,
)
from gputax.results.documents.sharing import SharedFigure, SharedRow
from gputax.text import digits, percent

TECHNIQUE = Column("technique", "technique")
TENANTS = Column("tenants", "tenants", align="right")
ENTITLEMENT = Column("entitlement", "each may use", short="may use", spare=2)
REPEATS = Column("repeats", "repeats", align="right", spare=3)
MEAN = Column("mean", "mean", "ms", "right", interval=True, short="mean ms")
P50 = Column("p50", "p50", "ms", "right", interval=True, short="p50 ms")
P90 = Column("p90", "p90", "ms", "right", interval=True, short="p90 ms")
P99 = Column("p99", "p99", "ms", "right", interval=True, short="p99 ms")
WORST = Column("worst_tenant_mean", "slowest tenant's mean", "ms", "right", interval=True, short="slowest ms")
SLOWDOWN = Column("slowdown", "slowdown", "×", "right", interval=True, short="slowdown")
AGGREGATE = Column("aggregate", "all tenants together", "inferences/s", "right", interval=True, short="together/s")
JAIN = Column("jain", "fairness, Jain", align="right", interval=True, short="fairness", spare=1)
FIGURES: dict[str, Callable[[SharedRow], SharedFigure]] = {
    "mean": lambda row: row.mean_ms,
    "p50": lambda row: row.p50_ms,
    "p90": lambda row: row.p90_ms,
    "p99": lambda row: row.p99_ms,
    "worst_tenant_mean": lambda row: row.worst_tenant_mean_ms,
    "slowdown": lambda row: row.slowdown,
    "aggregate": lambda row: row.aggregate_per_s,
    "jain": lambda row: row.jain,
}
# A narrow console drops p50 first, then p90, fairness and p99.
CONSOLE_FIGURES = (
    MEAN,
    SLOWDOWN,
    replace(AGGREGATE, short="all/s"),
    replace(JAIN, spare=2),
    replace(P50, spare=4),
    replace(P90, spare=3),
    replace(P99, spare=1),
)
# For programs: where each row is from, what it is worth, and the share as a number.
ORIGIN = (
    Column("stand_in", "stand-in", hidden=True),
    Column("reason", "reason", hidden=True),
    Column("entitlement_share", "share", hidden=True),
    Column("workload", "workload", hidden=True),
    Column("place", "place", hidden=True),
    Column("device", "device", hidden=True),
    Column("directory", "document", hidden=True),
)
HEAD = (TECHNIQUE, TENANTS, ENTITLEMENT)
ANSWER_FIGURES = (P99, SLOWDOWN, AGGREGATE, JAIN)
ANSWER_COLUMNS = (
    TECHNIQUE,
    ENTITLEMENT,
    MEAN,
    Column("standing", "against the lowest", spare=3),
    P99,
    SLOWDOWN,
    replace(AGGREGATE, title="together"),
    replace(JAIN, title="fairness"),
)
# Their intervals are in the tables of the charts: this one would be too wide.
SHORT = ("slowdown", "jain")

INTERVAL_NOTE = "In brackets: the 95 % interval over the repeats; every repeat starts new tenants."
ENTITLEMENT_NOTE = (
    "Each may use: the most that one tenant gets of the device. With few tenants, techniques that grant unequal "
    "parts are hard to compare."
)
SLOWDOWN_NOTE = "Slowdown: mean latency divided by that of one tenant with the same technique."
STANDING_NOTE = f"{NOT_DISTINGUISHABLE.capitalize()}: its interval overlaps that of the lowest mean."
TOKENS_NOTE = (
    "Tokens of all tenants, the median of the repeats. ttft: from the start of a run to its first token; tpot: (last - "
    "first token) / (tokens - 1)."
)
FAIRNESS_NOTE = "Jain's index of the tenants' throughputs: 1 means equal shares, 1/N that one tenant has everything."
# Unit, its sign, how many of it a millisecond is, and the smallest mean in milliseconds that reads well in it.
TIME_UNITS: tuple[tuple[str, str, float, float], ...] = (
    ("seconds", "s", 1e-3, 1.0),
    ("milliseconds", "ms", 1.0, 0.1),
    ("microseconds", "µs", 1e3, 0.0),
)


def answer_table(experiment: Experiment) -> Table:
    """Return every technique at the most tenants, the lowest mean first."""
    points = at_most_tenants(experiment)
    order = ranked(points)
    rows = [_answer_row(point, standing) for point, _, standing in order]
    rows += [_answer_row(point, wording.DASH) for point in points if point.row is None]
    notes = [ENTITLEMENT_NOTE, INTERVAL_NOTE, SLOWDOWN_NOTE]
    notes += token_notes(experiment)
    notes += [STANDING_NOTE] if any(standing == NOT_DISTINGUISHABLE for _, _, standing in order) else []
    notes += [wording.floors_note()] if any(wording.finite(row.p99_ms.value) is None for _, row, _ in order) else []
    title = f"{experiment.title}, {wording.counted(points[0].tenants, 'tenant')},"
    # A single figure has nothing to be compared with.
    columns = tuple(
        replace(column, hidden=len(order) < 2) if column.key == "standing" else column for column in ANSWER_COLUMNS
    )
    table = Table("sharing_answer", wording.on_device(title, [experiment.device]), columns, tuple(rows), tuple(notes))
    return replace(table, console=(_console_table(experiment, order),))


def _console_table(experiment: Experiment, order: Sequence[tuple[Point, SharedRow, str]]) -> Table:
    """Return every technique with every number of tenants, one line each."""
    word = "Pods" if experiment.record.place == "k8s" else "tenants"
    labels = {point.technique: _group(experiment, point.technique) for point in experiment.points}
    rows = tuple(
        (text_cell(labels[point.technique]), Cell(f"{point.tenants}", point.tenants), *_console_figures(point))
        for point in experiment.points
    )
    columns = (TECHNIQUE, replace(TENANTS, title=word), *CONSOLE_FIGURES)
    title = wording.on_device(f"{experiment.title},", [experiment.device])
    table = Table("sharing_answer", title, columns, rows, _console_notes(experiment, order), grouped=True)
    energies = [point.row.joules_per_inference if point.row else None for point in experiment.points]
    return with_energy(table, [_value(energy) for energy in energies], "jain", shared=True)


def token_notes(experiment: Experiment) -> list[str]:
    """Return one line for each technique and number of tenants with tokens: the median of its repeats."""
    notes = []
    for point in experiment.points:
        cells = [
            cell.tokens
            for cell in experiment.record.cells
            if cell.valid and cell.tokens and (cell.technique, cell.tenants) == (point.technique, point.tenants)
        ]
        if cells:
            notes.append(f"{point.label}, {wording.counted(point.tenants, 'tenant')}: {_token_text(cells)}.")
    return [*notes, TOKENS_NOTE] if notes else []


def _token_text(cells: Sequence[Mapping[str, float | None]]) -> str:
    """Return rate, first tokens and pace; a percentile that a repeat is too short for has a dash."""

    def typical(key: str) -> str:
        known = [value for cell in cells if (value := cell.get(key)) is not None]
        return digits(statistics.median(known), 3) if len(known) == len(cells) else wording.DASH

    def percentiles(series: str) -> str:
        shown = (f"{name} {typical(f'{series}_{name}_ms')}" for name in ("p50", "p90", "p99"))
        return f"{series} {', '.join(shown)} ms"

    times = [percentiles(series) for series in (TTFT, TPOT)]
    return "; ".join([f"{typical('tokens_per_sec')} tokens/s together", *times])


def _value(energy: SharedFigure | None) -> SharedFigure | None:
    """Return the figure without its interval, which a console has no room for."""
    return None if energy is None else SharedFigure(value=energy.value)


def _group(experiment: Experiment, technique: str) -> str:
    """Return a technique with what it entitles each tenant to, where that is the same for every number of them."""
    points = [point for point in experiment.points if point.technique == technique]
    entitlements = {point.row.entitlement for point in points if point.row is not None}
    known = entitlements.pop() if len(entitlements) == 1 else ""
    return f"{points[0].label}, each may use {known}" if known else points[0].label


def _console_figures(point: Point) -> tuple[Cell, ...]:
    if point.row is None:
        # The reasons are among the warnings below.
        return (Cell("invalid", tone="fail"), *(Cell(wording.DASH) for _ in CONSOLE_FIGURES[1:]))
    figures = {column.key: FIGURES[column.key](point.row) for column in CONSOLE_FIGURES}
    cells = {key: figure_cell(figure, with_interval=False) for key, figure in figures.items()}
    cells["slowdown"] = _slowdown_cell(point.row.slowdown)
    if point.tenants == 1:
        cells["jain"] = Cell("")  # nobody to be unfair to
    return tuple(cells.values())


def _slowdown_cell(figure: SharedFigure) -> Cell:
    """Return e.g. `1.57× (1.42 to 1.73)`; of one tenant it is 1 by definition and has no interval."""
    value, low, high = scaled(figure)
    if value is None:
        return Cell(wording.DASH)
    interval = "" if low is None or high is None else f" ({digits(low, 3)} to {digits(high, 3)})"
    return Cell(f"{digits(value, 3)}×{interval}", value, low, high)


def _console_notes(experiment: Experiment, order: Sequence[tuple[Point, SharedRow, str]]) -> tuple[str, ...]:
    """Return what must be read with the answer, in one line each."""
    record, valid = experiment.record, [cell for cell in experiment.record.cells if cell.valid]
    notes = [f"Claim: {record.claim}."] if record.claim else []
    threads = sorted({result.threads for cell in valid for result in cell.results if result.threads})
    if threads and record.device == "cpu" and not any("thread" in row.entitlement for _, row, _ in order):
        notes.append(f"Threads per tenant: {', '.join(map(str, threads))}.")
    repeats = sorted({row.repeats for _, row in experiment.measured})
    if repeats:
        count = f"{repeats[0]} to {repeats[-1]} repeats" if len(repeats) > 1 else wording.counted(repeats[0], "repeat")
        together = "all/s: inferences of all tenants together."
        notes.append(f"Slowdown: against one tenant, with its 95 % interval over {count}; {together}")
    notes += token_notes(experiment)
    # A claim of ours says it already.
    stand_ins = [name for name in dict.fromkeys(point.technique for point in experiment.points) if is_stand_in(name)]
    if stand_ins and "stand-in" not in record.claim:
        notes.append(stand_in_note(stand_ins))
    checks = [abs(cell.cross_check.difference_percent) for cell in valid if cell.cross_check is not None]
    if checks:
        cells = wording.counted(len(checks), "cell")
        notes.append(f"Prometheus ({cells}) differs from these means by at most {percent(max(checks))}.")
    if any(wording.finite(row.p99_ms.value) is None for _, row, _ in order):
        notes.append(wording.short_floors_note())
    return tuple(notes)


def stand_in_note(techniques: Sequence[str]) -> str:
    """Return what a stand-in is."""
    verb = "is a stand-in" if len(techniques) == 1 else "are stand-ins"
    return f"{wording.joined(techniques)} {verb}: the same experiment on a CPU, not a GPU sharing technique."


def _answer_row(point: Point, standing: str) -> tuple[Cell, ...]:
    technique, _, entitlement = _head(point)
    return (
        technique,
        entitlement,
        *_figures(point, (MEAN,)),
        text_cell(standing, tone="inconclusive" if standing in (NOT_DISTINGUISHABLE, DISTURBED) else ""),
        *_figures(point, ANSWER_FIGURES, first=Cell(wording.DASH), short=SHORT),
    )


def mean_table(experiment: Experiment) -> Table:
    """Return the means, the slowest tenant and the slowdown; for programs with all other figures beside them."""
    shown, hidden = (MEAN, WORST, SLOWDOWN), (P50, P90, P99, AGGREGATE, JAIN)
    columns = (*HEAD, *shown, REPEATS, *(replace(column, hidden=True) for column in hidden), *ORIGIN)
    rows = tuple(
        (
            *_head(point),
            *_figures(point, shown),
            _repeats(point),
            *_figures(point, hidden, first=Cell("")),
            *_origin(experiment, point),
        )
        for point in experiment.points
    )
    claim = experiment.record.claim
    notes = [ENTITLEMENT_NOTE, INTERVAL_NOTE, SLOWDOWN_NOTE, *([f"Claim: {claim}."] if claim else [])]
    title = experiment.titled("mean latency of an inference")
    return Table("sharing", title, columns, rows, tuple(notes), detail=True)


def percentiles_table(experiment: Experiment) -> Table | None:
    """Return the percentiles; None where too few samples refuse all of them."""
    columns = (P50, P90, P99)
    known = [wording.finite(FIGURES[column.key](row).value) for _, row in experiment.measured for column in columns]
    if all(value is None for value in known):
        return None
    notes = (INTERVAL_NOTE, wording.floors_note()) if None in known else (INTERVAL_NOTE,)
    return _plain_table("sharing_percentiles", "percentiles of latency", experiment, columns, notes)


def throughput_table(experiment: Experiment) -> Table:
    """Return what all tenants together got done."""
    title = "throughput of all tenants together"
    table = _plain_table("sharing_throughput", title, experiment, (AGGREGATE,), (INTERVAL_NOTE,))
    energies = [point.row.joules_per_inference if point.row else None for point in experiment.points]
    return with_energy(table, energies, "", shared=True)


def fairness_table(experiment: Experiment) -> Table | None:
    """Return the fairness; a tenant that is alone has nobody to be unfair to."""
    shared = replace(experiment, points=tuple(point for point in experiment.points if point.tenants > 1))
    if not shared.points:
        return None
    return _plain_table("sharing_fairness", "fairness", shared, (JAIN,), (FAIRNESS_NOTE, INTERVAL_NOTE))


def _plain_table(
    name: str, title: str, experiment: Experiment, columns: tuple[Column, ...], notes: tuple[str, ...]
) -> Table:
    # Why it is invalid is said beside the means.
    invalid = Cell("invalid", tone="fail")
    rows = tuple((*_head(point), *_figures(point, columns, first=invalid)) for point in experiment.points)
    return Table(name, experiment.titled(title), (*HEAD, *columns), rows, notes, detail=True)


def pods_table(experiment: Experiment) -> Table | None:
    """Return the table that users know: a row per technique, a column per number of Pods or tenants, means."""
    counts = sorted({point.tenants for point in experiment.points}, reverse=True)
    if not experiment.measured:
        return None
    means = [wording.finite(row.mean_ms.value) or 0.0 for _, row in experiment.measured]
    name, sign, scale, _ = next(unit for unit in TIME_UNITS if min(means) >= unit[3])
    # Where it is not the users' own unit, every heading says so.
    shown = "" if sign == "s" else sign
    word = "Pod" if experiment.record.place == "k8s" else "tenant"
    columns = tuple(
        Column(f"pods_{count}", wording.counted(count, word), shown, align="right", interval=True) for count in counts
    )
    places = {(point.label, point.tenants): point for point in experiment.points}
    labels = list(dict.fromkeys(point.label for point in experiment.points))
    rows = tuple(
        (text_cell(label), *(_time(places.get((label, count)), scale) for count in counts)) for label in labels
    )  # fmt: skip
    notes = [_entitlements(experiment, label) for label in labels]
    title = experiment.titled(f"mean inference time in {name} by number of {word}s")
    table = Table("pods", title, (TECHNIQUE, *columns), rows, tuple(note for note in notes if note), detail=True)
    return replace(table, console=(replace(table, notes=()),))


def _time(point: Point | None, scale: float) -> Cell:
    if point is None:
        return Cell(wording.DASH)
    if point.row is None:
        return invalid_cell(point)
    value, low, high = scaled(point.row.mean_ms, scale)
    return Cell(wording.number(value), value, low, high)


def _entitlements(experiment: Experiment, label: str) -> str:
    """Return what a technique entitles a tenant to, once for all numbers of Pods that share it."""
    by_text: dict[str, list[str]] = {}
    for point, row in experiment.measured:
        if point.label == label and row.entitlement:
            by_text.setdefault(row.entitlement, []).append(f"{point.tenants}")
    if len(by_text) == 1:
        return f"{label}: each may use {next(iter(by_text))}."
    shares = "; ".join(f"{text} with {wording.joined(counts)}" for text, counts in by_text.items())
    return f"{label}: each may use {shares}." if shares else ""


def figure_cell(figure: SharedFigure, *, with_interval: bool = True) -> Cell:
    """Return a figure with its interval in brackets; its unit is in the heading."""
    value, low, high = scaled(figure)
    interval = wording.between((low, high)) if with_interval else ""
    text = wording.number(value)
    return Cell(f"{text} ({interval})" if interval and text != wording.DASH else text, value, low, high)


def scaled(figure: SharedFigure, scale: float = 1.0) -> tuple[float | None, float | None, float | None]:
    """Return value and bounds in another unit; what is not a number is None."""
    value, low, high = (wording.finite(each) for each in (figure.value, *(figure.ci95 or (None, None))))
    return _times(value, scale), _times(low, scale), _times(high, scale)


def _times(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def invalid_cell(point: Point) -> Cell:
    """Return the cell of an invalid figure, with the reasons."""
    return Cell("invalid", detail="; ".join(point.reasons), tone="fail")


def _head(point: Point) -> tuple[Cell, ...]:
    entitlement = Cell(wording.DASH) if point.row is None else text_cell(point.row.entitlement)
    return Cell(point.label, point.technique), Cell(f"{point.tenants}", point.tenants), entitlement


def _figures(
    point: Point, columns: Sequence[Column], *, first: Cell | None = None, short: Sequence[str] = ()
) -> tuple[Cell, ...]:
    """Return the figures of these columns; a point that has none says so in the first, by default with its reasons."""
    if point.row is None:
        return (first or invalid_cell(point), *(Cell(wording.DASH) for _ in columns[1:]))
    found = [(column.key, FIGURES[column.key](point.row)) for column in columns]
    return tuple(figure_cell(figure, with_interval=key not in short) for key, figure in found)


def _repeats(point: Point) -> Cell:
    return Cell(wording.DASH) if point.row is None else Cell(f"{point.row.repeats}", point.row.repeats)


def _origin(experiment: Experiment, point: Point) -> tuple[Cell, ...]:
    share = None if point.row is None else wording.finite(point.row.entitlement_share)
    record = experiment.record
    return (
        Cell("", is_stand_in(point.technique)),
        text_cell("; ".join(point.reasons)),
        Cell("", share),
        text_cell(record.workload),
        text_cell(record.place),
        text_cell(experiment.device),
        text_cell(experiment.path),
    )
