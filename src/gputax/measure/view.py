"""What a run shows while it goes: a protocol, so that terminal, plain lines and tests look the same from below."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gputax.plan.cells import Cell
from gputax.results.documents.base import Failure


@dataclass(frozen=True)
class CellFigures:
    """What a view shows of a cell that has ended; of several tenants together."""

    cell: str
    device: str
    throughput_per_s: float
    p90_ms: float | None
    p99_ms: float | None
    valid: bool


class RunView(Protocol):
    """Receives the run's events in order."""

    def run_started(self, directory: str, cells: tuple[Cell, ...], resumed: int) -> None:
        """Begin; `resumed` cells were measured before."""
        ...

    def cell_started(self, cell: Cell, number: int) -> None:
        """Cell `number`, counted from 1, begins."""
        ...

    def phase(self, text: str) -> None:
        """Something within the cell begins."""
        ...

    def progress(self, done: int, total: int) -> None:
        """So many samples of the present load are done; a total of 0 is unknown."""
        ...

    def cell_ended(self, figures: CellFigures) -> None:
        """Show the cell's figures."""
        ...

    def cell_failed(self, failure: Failure) -> None:
        """Show why the cell has none."""
        ...


class SilentView:
    """Shows nothing."""

    def run_started(self, directory: str, cells: tuple[Cell, ...], resumed: int) -> None:
        """Show nothing."""

    def cell_started(self, cell: Cell, number: int) -> None:
        """Show nothing."""

    def phase(self, text: str) -> None:
        """Show nothing."""

    def progress(self, done: int, total: int) -> None:
        """Show nothing."""

    def cell_ended(self, figures: CellFigures) -> None:
        """Show nothing."""

    def cell_failed(self, failure: Failure) -> None:
        """Show nothing."""
