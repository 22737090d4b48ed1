"""How a run looks while it goes: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from gputax.measure.view import RunView
from gputax.plan.cells import Cell
from gputax.results.documents.run import Benchmark, Failure

LINE_INTERVAL_S = 10.0
# A cell's warm-up, pilot and probes beside its load, for the estimate of the time left.
CELL_OVERHEAD_S = 3.0


@contextmanager
def view_for(stream: TextIO) -> Iterator[RunView]:
    """Return the view that fits the stream."""
    if stream.isatty():
        from gputax.cli.live_view import LiveView

        with LiveView(stream) as view:
            yield view
    else:
        yield PlainView(stream)


class Clock:
    """Rate and time left of the present load and of the whole run."""

    def __init__(self) -> None:
        self._cells: tuple[Cell, ...] = ()
        self._number = 0
        self._taken_s = self._planned_s = 0.0
        """Of the cells that have ended: what they took, and what their plan alone let expect."""
        self._load_started = time.monotonic()
        self._cell_started = time.monotonic()

    def run_started(self, cells: tuple[Cell, ...]) -> None:
        """Know the plan."""
        self._cells, self._number = cells, 0
        self._taken_s = self._planned_s = 0.0

    def cell_started(self, number: int) -> None:
        """Start the cell's clock; the one before has ended, and its time tells what the next ones will take."""
        now_s = time.monotonic()
        if self._number:
            self._taken_s += now_s - self._cell_started
            self._planned_s += expected_s(self._cells[self._number - 1])
        self._number = number
        self._cell_started = self._load_started = now_s

    def phase_started(self) -> None:
        """Start the load's clock."""
        self._load_started = time.monotonic()

    def rate_per_s(self, done: int) -> float:
        """Return samples per second of the present load so far."""
        return done / max(time.monotonic() - self._load_started, 1e-3)

    def left_s(self, done: int, total: int) -> float:
        """Return the expected time to the end of the run: what cells took so far, starting included, for each left."""
        elapsed_s = time.monotonic() - self._load_started
        present_s = elapsed_s * (total - done) / done if 0 < done <= total else 0.0
        return present_s + self._stretch(present_s) * sum(expected_s(cell) for cell in self._cells[self._number :])

    def _stretch(self, present_s: float) -> float:
        """Return how much longer than planned cells take: those that ended, and as long as none has, the first."""
        if self._planned_s:
            return self._taken_s / self._planned_s
        if not self._number:
            return 1.0
        first_s = time.monotonic() - self._cell_started + present_s
        return max(1.0, first_s / expected_s(self._cells[self._number - 1]))


def expected_s(cell: Cell) -> float:
    """Return the least time of a cell, from its plan alone; a slow device needs longer for 64 queries or 5 batches."""
    return (cell.load.duration_s or cell.load.max_duration_s or 30.0) * 1.1 + CELL_OVERHEAD_S


def cell_title(cell: Cell) -> str:
    """Return the cell's name for people."""
    tenants = f", {cell.tenants} tenants" if cell.tenants != 1 else ""
    return f"{cell.setup.workload} {cell.scenario} batch {cell.batch_size} ({cell.environment}{tenants})"


def result_line(benchmark: Benchmark) -> str:
    """Return one cell's figures in one line."""
    p90 = "" if benchmark.latency_p90_ms is None else f", p90 {benchmark.latency_p90_ms:.4g} ms"
    p99 = "" if benchmark.latency_p99_ms is None else f", p99 {benchmark.latency_p99_ms:.4g} ms"
    mark = "" if benchmark.valid else "  INVALID"
    return f"{benchmark.throughput_samples_per_sec:.4g} samples/s{p90}{p99}  [{benchmark.device}]{mark}"


class PlainView:
    """One line per event, and one every ten seconds while a load runs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._clock = Clock()
        self._total = 0
        self._last_line = 0.0

    def _say(self, text: str) -> None:
        self._last_line = time.monotonic()
        print(text, file=self._stream, flush=True)

    def run_started(self, directory: str, cells: tuple[Cell, ...], resumed: int) -> None:
        """Say where results go."""
        self._total = len(cells)
        self._clock.run_started(cells)
        resumed_text = f", {resumed} of them measured before" if resumed else ""
        self._say(f"gputax: {len(cells)} cell{'s' if len(cells) != 1 else ''}{resumed_text} -> {directory}")

    def cell_started(self, cell: Cell, number: int) -> None:
        """Say which cell."""
        self._clock.cell_started(number)
        self._say(f"[{number}/{self._total}] {cell_title(cell)}")

    def phase(self, text: str) -> None:
        """Say what begins."""
        self._clock.phase_started()
        self._say(f"    {text}")

    def progress(self, done: int, total: int) -> None:
        """Say how far, now and then."""
        if time.monotonic() - self._last_line >= LINE_INTERVAL_S and total and done:
            percent = min(100.0, 100.0 * done / total)
            self._say(
                f"    {percent:3.0f} % of this cell, {self._clock.rate_per_s(done):.4g} samples/s, "
                f"the whole run about {self._clock.left_s(done, total):.0f} s more"
            )

    def cell_ended(self, benchmark: Benchmark) -> None:
        """Say the figures."""
        self._say(f"    {result_line(benchmark)}")

    def cell_failed(self, failure: Failure) -> None:
        """Say why not."""
        self._say(f"    FAILED: {failure.what}")
