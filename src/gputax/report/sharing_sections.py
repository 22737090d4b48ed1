"""The parts of a report that come from sharing experiments: tenants, neighbours, every cell; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gputax.report import wording
from gputax.report.charts.neighbours import neighbours_chart
from gputax.report.charts.tenants import AGGREGATE, JAIN, MEAN, P99, Measure, tenants_chart
from gputax.report.model import Chart, Section, Table, notes_once
from gputax.report.neighbour_tables import isolation_table, neighbours_table
from gputax.report.shared_points import Experiment, is_stand_in
from gputax.report.sharing_cells import cells_table, refused_table, tenants_table
from gputax.report.sharing_tables import (
    answer_table,
    fairness_table,
    mean_table,
    percentiles_table,
    pods_table,
    stand_in_note,
    throughput_table,
)

TENANTS_CAPTION = (
    "Pale bar: the 95 % interval over the repeats; one that is cut off is in the table. Points with the same number "
    "of tenants are drawn side by side."
)
NEIGHBOURS_CAPTION = (
    "The number in a cell is the slowdown; a stronger colour means more. In brackets, uncoloured and with a dashed "
    "edge: not distinguishable from no slowdown."
)
ANSWER_CHART = "sharing-latency"
NO_FIGURE = "Invalid cells are not in any figure or chart."


def sharing_section(experiments: Sequence[Experiment], known: Sequence[str], *, answered: bool) -> Section | None:
    """Return charts and tables by tenants; where they are the answer, its table and chart are shown there."""
    charts: list[Chart] = []
    tables: list[Table] = []
    for each in (each for each in experiments if each.points):
        own: list[Table | None] = [None if answered else answer_table(each), pods_table(each)]
        for chart, table in _figures_of(each, known):
            if chart is None or (answered and chart.name == ANSWER_CHART):
                own.append(table)
            else:
                charts.append(chart)
        tables += [table for table in (*own, refused_table(each)) if table is not None]
    if not tables and not charts:
        return None
    stripped, notes = notes_once(tuple(tables))
    told = [_stand_ins(experiments), *(_conditions(each) for each in experiments)]
    intro = "\n".join(text for text in told if text)
    return Section("sharing", "Tenants that share the device", intro, tuple(charts), stripped, notes)


def answer_chart(experiment: Experiment, known: Sequence[str]) -> tuple[Chart, ...]:
    """Return the mean latencies by tenants; their table is further down."""
    chart = _chart(ANSWER_CHART, experiment, MEAN, known, None)
    return () if chart is None else (chart,)


def _figures_of(experiment: Experiment, known: Sequence[str]) -> list[tuple[Chart | None, Table | None]]:
    """Return each chart with its table; where too little can be drawn, the table alone."""
    parts = (
        (ANSWER_CHART, MEAN, mean_table(experiment)),
        ("sharing-p99", P99, percentiles_table(experiment)),
        ("sharing-throughput", AGGREGATE, throughput_table(experiment)),
        ("sharing-fairness", JAIN, fairness_table(experiment)),
    )
    return [(_chart(name, experiment, measure, known, table), table) for name, measure, table in parts]


def _chart(
    name: str, experiment: Experiment, measure: Measure, known: Sequence[str], table: Table | None
) -> Chart | None:
    spec = tenants_chart(experiment, measure, known)
    title = experiment.titled(measure.title)
    return None if spec is None else Chart(name, title, spec, TENANTS_CAPTION, headline=True, table=table)


def _stand_ins(experiments: Sequence[Experiment]) -> str:
    names = dict.fromkeys(point.technique for each in experiments for point in each.points)
    found = [name for name in names if is_stand_in(name)]
    if not found:
        return ""
    return stand_in_note(found)


def _conditions(experiment: Experiment) -> str:
    """Return what the figures rest on: overlap, repeats, and what Prometheus says of them."""
    cells = [cell for cell in experiment.record.cells if cell.valid]
    if not cells:
        return ""
    repeats = sorted({row.repeats for _, row in experiment.measured}) or [0]
    count = f"{repeats[0]} to {repeats[-1]} repeats" if len(repeats) > 1 else wording.counted(repeats[0], "repeat")
    overlap = wording.number(100.0 * min(cell.overlap_share for cell in cells))
    text = f"{experiment.title}: {count}; all tenants ran together for at least {overlap} % of each cell's time."
    checks = [cell.cross_check.difference_percent for cell in cells if cell.cross_check is not None]
    if checks:
        worst = wording.number(max(abs(difference) for difference in checks))
        text += f" Prometheus, queried as users do, is within {worst} % of our mean ({len(checks)} cells)."
    refused = len(experiment.record.cells) - len(cells)
    return text + (f" {wording.counted(refused, 'cell')} not valid. {NO_FIGURE}" if refused else "")


def neighbours_section(experiments: Sequence[Experiment], *, answered: bool) -> Section | None:
    """Return the matrix of every measured tenant, and what became of isolation; the answer may hold the matrix."""
    charts: list[Chart] = []
    tables: list[Table] = []
    for each in experiments:
        for victim in () if answered else victims_of(each):
            chart, table = _heat_map(each, victim), neighbours_table(each, victim)
            charts += [replace(chart, table=table)] if chart is not None else []
            tables += [table] if chart is None else []
        isolated = isolation_table(each)
        tables += [isolated] if isolated is not None else []
    if not tables and not charts:
        return None
    stripped, notes = notes_once(tuple(tables))
    return Section("neighbours", "Neighbours and isolation", "", tuple(charts), stripped, notes)


def heat_maps(experiment: Experiment) -> tuple[Chart, ...]:
    """Return the matrix of every measured tenant, as the charts of the answer."""
    drawn = [_heat_map(experiment, victim) for victim in victims_of(experiment)]
    return tuple(chart for chart in drawn if chart is not None)


def victims_of(experiment: Experiment) -> list[str]:
    """Return the measured tenants, each once."""
    return list(dict.fromkeys(row.victim for row in experiment.record.neighbours))


def _heat_map(experiment: Experiment, victim: str) -> Chart | None:
    spec = neighbours_chart(experiment, victim)
    title = experiment.titled(f"slowdown of {victim} beside a neighbour")
    return None if spec is None else Chart("neighbours", title, spec, NEIGHBOURS_CAPTION, headline=True)


def tenants_section(experiments: Sequence[Experiment]) -> Section | None:
    """Return every cell and every tenant, folded."""
    tables = [table for each in experiments for table in (cells_table(each), tenants_table(each)) if table is not None]
    stripped, notes = notes_once(tuple(tables))
    title = "Every cell and every tenant"
    return Section("tenants", title, tables=stripped, notes=notes, folded=True) if tables else None
