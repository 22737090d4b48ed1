"""Progress of a run: one protocol for the terminal, plain lines and tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gputax.plan.cells import Cell
from gputax.results.documents.base import Failure


@dataclass(frozen=True)
class CellFigures:
    """The figures that a view shows for a finished cell; of all tenants together."""

    cell: str
    device: str
    throughput_per_s: float
    p90_ms: float | None
    p99_ms: float | None
    valid: bool
    disturbed: bool = False


class RunView(Protocol):
    """Receives the run's events in order."""

    def run_started(self, directory: str, cells: tuple[Cell, ...], resumed: int) -> None:
        """Start; `resumed` cells were measured before."""
        ...

    def cell_started(self, cell: Cell, number: int) -> None:
        """Cell `number`, counted from 1, starts."""
        ...

    def phase(self, text: str) -> None:
        """A phase of the cell starts."""
        ...

    def progress(self, done: int, total: int) -> None:
        """Report the samples done in the current load; a total of 0 is unknown."""
        ...

    def cell_ended(self, figures: CellFigures) -> None:
        """Show the cell's figures."""
        ...

    def cell_failed(self, failure: Failure) -> None:
        """Show why the cell failed."""
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
