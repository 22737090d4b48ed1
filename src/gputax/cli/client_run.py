"""Run the tenant on a thread of its own while the main thread hears signals and shows progress."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click

from gputax.cli.client_summary import Summary, one_line, progress_line
from gputax.cli.progress import Line
from gputax.worker.halt import Halt
from gputax.worker.tenant.client import Course, TenantPlan, run_tenant
from gputax.worker.tenant.metrics import MetricsServer, TenantMetrics
from gputax.worker.tenant.tally import Tally

EXIT_INTERRUPTED = 130
LINE_EVERY_S = 10.0
LIVE_EVERY_S = 0.5


def run_client(plan: TenantPlan, target_ns: int, address: str, port: int, as_json: bool) -> int:
    """Serve metrics, run the tenant until its end, print its summary; the summary comes before an error, too."""
    metrics = TenantMetrics(Tally(target_ns))
    server = MetricsServer(metrics, address, port)  # before the model is loaded: a port in use is reported at once
    course, voice = Course(), Voice()
    try:
        voice.say(f"metrics at {server.url}")
        with _signals() as signals:
            tenant = TenantThread(plan, metrics, course, signals, voice)
            tenant.start()
            try:
                while not signals.over.wait(voice.interval_s):
                    voice.progress(metrics.tally, course)
            finally:  # also where nobody reads our stderr any more
                signals.halt.order()
                tenant.join()
        voice.clear()
        counts = metrics.tally.counts()
        if tenant.error is None or counts.runs:
            summary = Summary.of(plan, metrics.tally, course, server.url, signals.ended_by, tenant.error)
            click.echo(summary.to_json() if as_json else one_line(summary))
        if tenant.error is not None:
            raise tenant.error
    finally:
        server.close()
    return 0


class Signals:
    """The first signal orders a stop, the second ends the process: the engine may hang in a call that hears nothing."""

    def __init__(self) -> None:
        self.halt, self.over = Halt(), Halt()
        self.ended_by = "duration"

    def hear(self, number: int, frame: FrameType | None) -> None:
        """Stop after the running inference, or at once."""
        name = signal.Signals(number).name
        if self.halt.ordered:
            os.write(2, f"\ngputax: {name} again: ended at once, the running inference is lost\n".encode())
            os._exit(EXIT_INTERRUPTED)
        self.ended_by = name
        self.halt.order()
        os.write(2, f"\ngputax: {name}: stopping after the running inference; again ends at once\n".encode())


@contextmanager
def _signals() -> Iterator[Signals]:
    signals = Signals()
    before = {number: signal.signal(number, signals.hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signals.halt.close()
        signals.over.close()


class TenantThread(threading.Thread):
    """Runs the tenant and keeps what it throws for the main thread."""

    def __init__(
        self, plan: TenantPlan, metrics: TenantMetrics, course: Course, signals: Signals, voice: Voice
    ) -> None:
        super().__init__(name="tenant", daemon=True)
        self._work = (plan, metrics, course, signals.halt, voice.say)
        self._over = signals.over
        self.error: BaseException | None = None

    def run(self) -> None:
        """Run to the end, and tell that it is there."""
        try:
            run_tenant(*self._work)
        except BaseException as error:
            self.error = error
        finally:
            self._over.order()


class Voice:
    """Speaks on stderr: a line every ten seconds, or on a terminal one line that is rewritten."""

    def __init__(self) -> None:
        self._line = Line(sys.stderr)
        self.interval_s = LIVE_EVERY_S if self._line.terminal else LINE_EVERY_S
        self._older = self._newer = (0.0, 0, 0)
        self.clear = self._line.clear

    def say(self, text: str) -> None:
        """Say one thing for good."""
        self._line.say(f"gputax: {text}")

    def progress(self, tally: Tally, course: Course) -> None:
        """Say how fast it was in the last seconds."""
        if not course.started_ns:
            return
        counts, now_s = tally.counts(), time.perf_counter()
        if not self._newer[0]:
            self._older = self._newer = (course.started_ns / 1e9, 0, 0)
        # Between five and ten seconds back, so that a live line does not begin at zero again and again.
        recent = now_s - self._newer[0] < LINE_EVERY_S / 2
        then_s, runs, sum_ns = self._older if recent else self._newer
        if not recent:
            self._older, self._newer = self._newer, (now_s, counts.runs, counts.sum_ns)
        self._line.show(progress_line(counts, counts.runs - runs, counts.sum_ns - sum_ns, now_s - then_s))
