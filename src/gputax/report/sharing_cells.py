"""Tables of what a sharing experiment rests on: every cell and tenant, what does not count, and the evidence; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gputax.report import wording
from gputax.report.fingerprints import flattened
from gputax.report.model import Cell, Column, Table, text_cell
from gputax.report.shared_points import Experiment, cell_reasons, is_stand_in, technique_title
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
    told = [(cell.cell, "invalid", "; ".join(cell_reasons(cell)), "") for cell in record.cells if not cell.valid]
    told += [(failure.cell, "failed", failure.what, failure.next) for failure in record.failures]
    columns = (
        Column("cell", "cell"),
        Column("state", "state"),
        Column("what", "why"),
        Column("next", "what to do", hidden=not record.failures),
    )
    rows = tuple(
        (text_cell(cell), text_cell(state, tone="fail"), text_cell(why), text_cell(next_step))
        for cell, state, why, next_step in told
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
    told = (cell.aggregate_per_s, cell.jain) if cell.valid else (None, None)
    means = (None, None) if check is None else (check.ours_ms, check.prometheus_ms)
    return (
        text_cell(cell.cell),
        Cell("yes", True) if cell.valid else Cell("invalid", False, tone="fail"),
        number_cell(cell.window_s),
        number_cell(100.0 * cell.overlap_share),
        *(number_cell(value) for value in told),
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
    order = list(dict.fromkeys(fact for told in facts.values() for fact in told))
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
    told = list(values)
    more = f" … ({len(told)} values)" if len(told) > MOST_VALUES else ""
    return " / ".join(told[:MOST_VALUES]) + more if told else wording.DASH


def plan_table(experiment: Experiment) -> Table | None:
    """Return how the experiment was done: repeats, warm-up, window, seed, setup."""
    columns = (Column("setting", "setting"), Column("value", "value"))
    settings = flattened(experiment.record.plan)
    rows = tuple((text_cell(name), text_cell(value)) for name, value in settings.items() if name)
    return Table("sharing_settings", experiment.titled("settings"), columns, rows) if rows else None
