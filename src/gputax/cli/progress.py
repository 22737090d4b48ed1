"""Progress on stderr for every verb: plain lines, or on a terminal one line that is rewritten."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TextIO

from gputax.plan.cells import Cell
from gputax.text import milliseconds, number

if TYPE_CHECKING:
    from gputax.measure.duet.pairs import DuetRounds
    from gputax.measure.view import CellFigures
    from gputax.plan.options import EnvironmentOptions
    from gputax.results.documents.base import Failure

# Four updates a second are enough for eyes and cost the measured process nothing.
LIVE_INTERVAL_S = 0.25
RUN_INTERVAL_S, PAIR_INTERVAL_S, WAIT_INTERVAL_S = 10.0, 5.0, 30.0
# A cell's warm-up, pilot and probes beside its load, for the estimate of the time left.
CELL_OVERHEAD_S = 3.0
BAR = 24


class Line:
    """The line at the bottom: rewritten on a terminal, elsewhere written now and then."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.terminal = stream.isatty()
        self._last_s = 0.0

    def say(self, text: str) -> None:
        """Leave one line for good."""
        self._last_s = time.monotonic()
        print(f"\x1b[K{text}" if self.terminal else text, file=self._stream, flush=True)

    def due(self, interval_s: float) -> bool:
        """Whether the live line may be written again; `interval_s` is that of plain lines."""
        return time.monotonic() - self._last_s >= (LIVE_INTERVAL_S if self.terminal else interval_s)

    def show(self, text: str) -> None:
        """Write the live line; a terminal cuts what does not fit, because a second line could not be rewritten."""
        self._last_s = time.monotonic()
        if self.terminal:
            import shutil

            text = text[: shutil.get_terminal_size().columns - 1]
        print(text, end="\x1b[K\r" if self.terminal else "\n", file=self._stream, flush=True)

    def clear(self) -> None:
        """Take the live line away."""
        if self.terminal:
            print("\x1b[K", end="\r", file=self._stream, flush=True)


class Progress:
    """What run, duet, share and client show while they go."""

    def __init__(self, stream: TextIO, max_time_s: float = 0.0, live: Callable[[str], None] | None = None) -> None:
        """`live` takes every text instead of the stream: one step of something larger shows it in its own line."""
        self.line = Line(stream)
        self._live = live
        self._clock = Clock()
        self._total, self._title, self._what = 0, "", ""
        self._max_time_s = max_time_s

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.line.clear()

    def say(self, text: str) -> None:
        """Begin something new."""
        self._say(f"gputax: {text}", text)

    def run_started(self, directory: str, cells: tuple[Cell, ...], resumed: int) -> None:
        """Say where results go."""
        self._total = len(cells)
        self._clock.run_started(cells)
        resumed_text = f", {resumed} of them measured before" if resumed else ""
        text = f"{len(cells)} cell{'s' if len(cells) != 1 else ''}{resumed_text} -> {directory}"
        self._say(f"gputax: {text}", text)

    def cell_started(self, cell: Cell, number: int) -> None:
        """Say which cell."""
        self._clock.cell_started(number)
        self._title = f"[{number}/{self._total}] {cell_title(cell)}"
        if self.line.terminal or self._live:
            self._show(self._title)
        else:
            self.line.say(self._title)

    def phase(self, text: str) -> None:
        """Say what begins."""
        self._clock.phase_started()
        if self._live or (self.line.terminal and self._title):
            self._show(f"{self._title}  {text}")
        else:
            self.line.say(f"    {text}")

    def progress(self, done: int, total: int) -> None:
        """Say how far, now and then."""
        if not total or not done or not (self._live or self.line.due(RUN_INTERVAL_S)):
            return
        share = min(1.0, done / total)
        rate, left = (
            f"{number(self._clock.rate_per_s(done))} samples/s",
            f"{self._clock.left_s(done, total):.0f} s more",
        )
        if self.line.terminal or self._live:
            bar = ("#" * round(share * BAR)).ljust(BAR, ".") if not self._live else ""
            self._show(f"{self._title}  {bar} {100 * share:.0f} %  {rate}  whole run {left}".replace("   ", "  "))
        else:
            self.line.show(f"    {100 * share:3.0f} % of this cell, {rate}, the whole run about {left}")

    def cell_ended(self, figures: CellFigures) -> None:
        """Say the figures."""
        text = result_line(figures)
        if not self._live:
            self.line.say(f"{figures.cell}: {text}" if self.line.terminal else f"    {text}")

    def cell_failed(self, failure: Failure) -> None:
        """Say why not."""
        if not self._live:
            self.line.say(
                f"{failure.cell}: FAILED: {failure.what}" if self.line.terminal else f"    FAILED: {failure.what}"
            )

    def pair(self, rounds: DuetRounds, elapsed_s: float) -> None:
        """Show how far it is; not the overhead, because nobody should stop on what it seems to show."""
        if not (self._live or self.line.due(PAIR_INTERVAL_S)):
            return
        self._show(
            f"    {rounds.pairs} pairs, {rounds.rounds} restarts, {elapsed_s:.0f} s of at most {self._max_time_s:.0f} s"
        )

    def waiting(self, text: str) -> None:
        """Say what is waited for, now and then."""
        if self._live or self.line.due(WAIT_INTERVAL_S):
            self._show(f"gputax: {text}")

    def _say(self, text: str, short: str) -> None:
        if self._live:
            self._live(short)
        else:
            self.line.say(text)

    def _show(self, text: str) -> None:
        (self._live or self.line.show)(text)


def look_first(
    progress: Progress,
    environments: Iterable[str],
    *,
    wait_quiet: float,
    accept_disturbed: bool,
    options: EnvironmentOptions | None = None,
) -> None:
    """Look at the machine before the first measurement; who accepts a disturbed one is not told that it is."""
    if accept_disturbed and not wait_quiet:
        return
    from gputax.measure.quiet import look_before

    look_before(environments, 60.0 * wait_quiet, progress.say, progress.waiting, options)


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


def result_line(figures: CellFigures) -> str:
    """Return one cell's figures in one line."""
    p90 = "" if figures.p90_ms is None else f", p90 {milliseconds(figures.p90_ms)}"
    p99 = "" if figures.p99_ms is None else f", p99 {milliseconds(figures.p99_ms)}"
    mark = ("" if figures.valid else "  INVALID") + ("  DISTURBED" if figures.disturbed else "")
    return f"{number(figures.throughput_per_s)} samples/s{p90}{p99}  [{figures.device}]{mark}"
