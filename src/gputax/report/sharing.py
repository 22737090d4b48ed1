"""The parts of a report that come from sharing experiments: sections, and the tables that they rest on; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gputax.report import wording
from gputax.report.charts.sharing import AGGREGATE, JAIN, MEAN, P99, Measure, neighbours_chart, tenants_chart
from gputax.report.fingerprints import flattened
from gputax.report.model import Cell, Chart, Column, Section, Table, notes_once, text_cell
from gputax.report.neighbour_tables import isolation_table, neighbours_table
from gputax.report.sharing_answers import Experiment, cell_reasons, is_stand_in, technique_title
from gputax.report.sharing_tables import (
    answer_table,
    fairness_table,
    mean_table,
    percentiles_table,
    pods_table,
    stand_in_note,
    throughput_table,
)
from gputax.results.documents.sharing import SharedCell, TenantResult

CELL_COLUMNS = (
    Column("cell", "cell"),
    Column("valid", "valid"),
    Column("window_s", "window", "s", "right"),
    Column("overlap_percent", "overlap", "%", "right"),
    Column("aggregate", "together", "inferences/s", "right"),
    Column("jain", "fairness", align="right"),
    Column("switched_s", "switch", "s", "right"),
    Column("ours_ms", "our mean", "ms", "right"),
    Column("prometheus_ms", "Prometheus", "ms", "right"),
    Column("difference_percent", "difference", "%", "right"),
    Column("device", "device", hidden=True),
)
PROMETHEUS = ("ours_ms", "prometheus_ms", "difference_percent")
TENANT_COLUMNS = (
    Column("cell", "cell"),
    Column("tenant", "tenant", align="right"),
    Column("entitlement", "may use"),
    Column("inferences", "inferences", align="right"),
    Column("throughput", "throughput", "inferences/s", "right"),
    Column("mean", "mean", "ms", "right"),
    Column("p50", "p50", "ms", "right"),
    Column("p90", "p90", "ms", "right"),
    Column("p99", "p99", "ms", "right"),
    Column("errors", "errors", align="right"),
    Column("valid", "cell valid", hidden=True),
    Column("technique", "technique", hidden=True),
    Column("tenants", "tenants", hidden=True),
    Column("repeat", "repeat", hidden=True),
    Column("stand_in", "stand-in", hidden=True),
    Column("threads", "threads", hidden=True),
    Column("device", "device", hidden=True),
    Column("directory", "document", hidden=True),
)
# 1, 3, 5 and 7 tenants of three techniques, five times, are 240: 200 KB of the page's 2 MB.
MOST_ROWS = 400
MOST_VALUES = 4
# Of one process or one moment: they say nothing of the technique.
VOLATILE = ("pid", "pids", "cgroup")
OVERLAP_NOTE = (
    "Window: the time after the warm-up in which all tenants ran; only this counts. Overlap: the part of the cell's "
    "time in which all tenants ran."
)
EVIDENCE_NOTE = (
    "Of the valid cells, if there are any. Several values: it differed between cells or tenants; "
    f"at most {MOST_VALUES} are shown."
)


def refused_table(experiment: Experiment) -> Table | None:
    """Return the cells that count for nothing, and why."""
    record = experiment.record
    problems = [(cell.cell, "invalid", "; ".join(cell_reasons(cell)), "") for cell in record.cells if not cell.valid]
    problems += [(failure.cell, "failed", failure.what, failure.next) for failure in record.failures]
    columns = (
        Column("cell", "cell"),
        Column("state", "state"),
        Column("what", "why"),
        Column("next", "what to do", hidden=not record.failures),
    )
    rows = tuple(
        (text_cell(cell), text_cell(state, tone="fail"), text_cell(why), text_cell(next_step))
        for cell, state, why, next_step in problems
    )
    title = experiment.titled("cells that do not count")
    # On the screen of the verb, the warnings say the same.
    return Table("failures", title, columns, rows, detail=True) if rows else None


def cells_table(experiment: Experiment) -> Table | None:
    """Return every cell: how long all tenants ran together, and what Prometheus said of the same window."""
    cells = experiment.record.cells
    if not cells:
        return None
    checked = [cell.cross_check for cell in cells if cell.cross_check is not None]
    kept = [i for i, column in enumerate(CELL_COLUMNS) if checked or column.key not in PROMETHEUS]
    rows = tuple(tuple(row[i] for i in kept) for row in (_cell_row(cell, experiment.device) for cell in cells))
    notes = [OVERLAP_NOTE, *(f"Prometheus was asked: {query}" for query in dict.fromkeys(c.query for c in checked))]
    columns = tuple(CELL_COLUMNS[i] for i in kept)
    return _long_table("shared_cells", experiment.titled("every cell"), columns, rows, notes)


def _cell_row(cell: SharedCell, device: str) -> tuple[Cell, ...]:
    """Return one cell; of one that does not count no figure is shown."""
    check = cell.cross_check if cell.valid else None
    values = (cell.aggregate_per_s, cell.jain) if cell.valid else (None, None)
    means = (None, None) if check is None else (check.ours_ms, check.prometheus_ms)
    return (
        text_cell(cell.cell),
        Cell("yes", True) if cell.valid else Cell("invalid", False, tone="fail"),
        number_cell(cell.window_s),
        number_cell(100.0 * cell.overlap_share),
        *(number_cell(value) for value in values),
        number_cell(cell.switched_s),
        *(number_cell(value) for value in means),
        _difference(None if check is None else check.difference_percent),
        text_cell(device),
    )


def _difference(percent: float | None) -> Cell:
    value = wording.finite(percent)
    return Cell(wording.DASH if value is None else wording.signed(value, 2), value)


def tenants_table(experiment: Experiment) -> Table | None:
    """Return every tenant of every cell that counts."""
    rows = tuple(
        _tenant_row(experiment, cell, tenant)
        for cell in experiment.record.cells
        if cell.valid
        for tenant in cell.results
    )
    if not rows:
        return None
    notes = [wording.floors_note()] if any(cell.text == wording.DASH for row in rows for cell in row) else []
    return _long_table("tenants", experiment.titled("every tenant"), TENANT_COLUMNS, rows, notes)


def _long_table(
    name: str, title: str, columns: tuple[Column, ...], rows: tuple[tuple[Cell, ...], ...], notes: list[str]
) -> Table:
    """Return a table of which people see the beginning."""
    if len(rows) > MOST_ROWS:
        notes.append(f"The first {MOST_ROWS:,} of {len(rows):,} rows; the report as JSON has all of them.")
    return Table(name, title, columns, rows, tuple(notes), MOST_ROWS)


def _tenant_row(experiment: Experiment, cell: SharedCell, tenant: TenantResult) -> tuple[Cell, ...]:
    figures = (tenant.throughput_per_s, tenant.mean_ms, tenant.p50_ms, tenant.p90_ms, tenant.p99_ms)
    return (
        text_cell(cell.cell),
        Cell(f"{tenant.tenant}", tenant.tenant),
        text_cell(tenant.entitlement),
        Cell(f"{tenant.inferences:,}", tenant.inferences),
        *(number_cell(figure) for figure in figures),
        Cell(f"{tenant.errors:,}", tenant.errors, tone="fail" if tenant.errors else ""),
        Cell("", cell.valid),
        text_cell(cell.technique),
        Cell("", cell.tenants),
        Cell("", cell.repeat),
        Cell("", is_stand_in(cell.technique)),
        Cell("", tenant.threads),
        text_cell(experiment.device),
        text_cell(experiment.path),
    )


def number_cell(value: float | None) -> Cell:
    """Return a bare number, a dash where there is none."""
    return Cell(wording.number(value), wording.finite(value))


def evidence_table(experiment: Experiment) -> Table | None:
    """Return what proved each technique and the limits that it really set, one column per technique."""
    names = list(dict.fromkeys(cell.technique for cell in experiment.record.cells))
    facts = {name: _facts([cell for cell in experiment.record.cells if cell.technique == name]) for name in names}
    order = list(dict.fromkeys(fact for each in facts.values() for fact in each))
    if not order:
        return None
    columns = (
        Column("fact", "fact"), *(Column(f"technique_{i + 1}", technique_title(name)) for i, name in enumerate(names)),
    )  # fmt: skip
    rows = tuple(
        (text_cell(fact), *(text_cell(_values(facts[name].get(fact, ()))) for name in names)) for fact in order
    )  # fmt: skip
    title = experiment.titled("evidence and effective limits")
    return Table("sharing_evidence", title, columns, rows, (EVIDENCE_NOTE,))


def _facts(cells: Sequence[SharedCell]) -> dict[str, list[str]]:
    """Return every value that a fact had, over all cells of a technique and their tenants."""
    found: dict[str, list[str]] = {}
    for cell in [cell for cell in cells if cell.valid] or cells:
        for path, data in (("", cell.evidence), *(("tenant", tenant.evidence) for tenant in cell.results)):
            for fact, value in _flat(data, path).items():
                known = found.setdefault(fact, []) if value not in ("", wording.DASH) else [value]
                if value not in known:
                    known.append(value)
    return found


def _flat(data: Mapping[str, Any], path: str) -> dict[str, str]:
    kept = {key: value for key, value in data.items() if key not in VOLATILE}
    return flattened(kept, path) if kept else {}


def _values(values: Iterable[str]) -> str:
    listed = list(values)
    more = f" … ({len(listed)} values)" if len(listed) > MOST_VALUES else ""
    return " / ".join(listed[:MOST_VALUES]) + more if listed else wording.DASH


def plan_table(experiment: Experiment) -> Table | None:
    """Return how the experiment was done: repeats, warm-up, window, seed, setup."""
    columns = (Column("setting", "setting"), Column("value", "value"))
    settings = flattened(experiment.record.plan)
    rows = tuple((text_cell(name), text_cell(value)) for name, value in settings.items() if name)
    return Table("sharing_settings", experiment.titled("settings"), columns, rows) if rows else None


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
    texts = [_stand_ins(experiments), *(_conditions(each) for each in experiments)]
    intro = "\n".join(text for text in texts if text)
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
