"""The column of joules per inference: there if a device counted any, and then it says which did not; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gputax.report import wording
from gputax.report.model import Cell, Column, Table
from gputax.results.documents.sharing import SharedFigure
from gputax.text import digits

NOT_COUNTED = "not counted"
NOTE = "J per inference: the device's own energy counter, without the host"
NOT_COUNTED_NOTE = f"{NOT_COUNTED.capitalize()}: not counted by this device."
SHARED_NOTE = f"{NOTE}; the device's total over all tenants: which tenant used how much is not counted."


def with_energy(table: Table, energies: Sequence[SharedFigure | float | None], before: str, *, shared: bool) -> Table:
    """Return the table with the column in front of another one, or at the end; unchanged if nobody counted."""
    if all(energy is None for energy in energies):
        return table
    at = next((i for i, column in enumerate(table.columns) if column.key == before), len(table.columns))
    column = Column("joules", "energy", "J/inference", "right", interval=shared, short="J/inf")
    rows = tuple(
        (*row[:at], _cell(energy), *row[at:]) for row, energy in zip(table.rows, energies, strict=True)
    )  # fmt: skip
    notes = [SHARED_NOTE if shared else f"{NOTE}."]
    notes += [NOT_COUNTED_NOTE] if any(energy is None for energy in energies) else []
    columns = (*table.columns[:at], column, *table.columns[at:])
    return replace(table, columns=columns, rows=rows, notes=(*table.notes, *notes))


def _cell(energy: SharedFigure | float | None) -> Cell:
    if energy is None:
        return Cell(NOT_COUNTED, tone="muted")
    if not isinstance(energy, SharedFigure):
        return Cell(digits(energy, 3), energy)
    value = wording.finite(energy.value)
    low, high = energy.ci95 or (None, None)
    if value is None:
        return Cell(NOT_COUNTED, tone="muted")
    between = "" if low is None or high is None else f" ({digits(low, 3)} to {digits(high, 3)})"
    return Cell(f"{digits(value, 3)}{between}", value, low, high)
