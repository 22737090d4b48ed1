"""The live view on a terminal: the present cell, percent, rate and time left; finished cells scroll up."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from gputax.cli.views import Clock, cell_title, result_line
from gputax.plan.cells import Cell
from gputax.results.documents.run import Benchmark, Failure


class LiveView:
    """One bar; four updates a second are enough for eyes and cost the measured process nothing."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream, highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[detail]}"),
            console=self._console,
            refresh_per_second=4,
            transient=True,
        )
        self._clock = Clock()
        self._task: TaskID | None = None
        self._total = 0

    def __enter__(self) -> LiveView:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def run_started(self, directory: str, cells: tuple[Cell, ...], resumed: int) -> None:
        """Say where results go."""
        self._total = len(cells)
        self._clock.run_started(cells)
        resumed_text = f", {resumed} measured before" if resumed else ""
        self._progress.console.print(
            f"[bold]gputax[/bold]: {len(cells)} cell{'s' if len(cells) != 1 else ''}{resumed_text} → {directory}"
        )

    def cell_started(self, cell: Cell, number: int) -> None:
        """Begin a new bar."""
        self._clock.cell_started(number)
        if self._task is not None:
            self._progress.remove_task(self._task)
        title = f"[{number}/{self._total}] {cell_title(cell)}".replace("[", "\\[")
        self._task = self._progress.add_task(title, total=None, detail="starting")

    def phase(self, text: str) -> None:
        """Show what begins."""
        self._clock.phase_started()
        if self._task is not None:
            self._progress.update(self._task, total=None, completed=0, detail=text)

    def progress(self, done: int, total: int) -> None:
        """Move the bar."""
        if self._task is None or not total or not done:
            return
        left_s = self._clock.left_s(done, total)
        rate = f"{self._clock.rate_per_s(done):.4g} samples/s"
        detail = f"{min(100, 100 * done // total)} %  {rate}  whole run {left_s:.0f} s more"
        self._progress.update(self._task, total=total, completed=done, detail=detail)

    def cell_ended(self, benchmark: Benchmark) -> None:
        """Leave the figures above the bar."""
        mark = "[green]✓[/green]" if benchmark.valid else "[red]✗[/red]"
        line = result_line(benchmark).replace("[", "\\[")
        self._progress.console.print(f"{mark} {benchmark.cell}: {line}")

    def cell_failed(self, failure: Failure) -> None:
        """Leave the cause above the bar."""
        self._progress.console.print(f"[red]✗ {failure.cell}: FAILED[/red]: ", end="")
        self._progress.console.print(failure.what, markup=False)
