"""`gputax client`: the tenant of a shared device, with its metrics for Prometheus."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gputax.cli.options import Verb, as_json, model_options, options, own, seconds, variable_options, words_given
from gputax.cli.progress import Line
from gputax.errors import UsageError, unknown_name
from gputax.plan.cells import Setup, absolute, device_named, precision_named
from gputax.plan.driver import chosen_engine, driver_choice, engine_note, refuse_driver_contradictions
from gputax.plan.engines import waiting_passively
from gputax.plan.options import TENANTS, declared
from gputax.plan.own_model import refuse_batch_of_own, refuse_own_model
from gputax.plan.techniques import SYNONYMS, TECHNIQUES
from gputax.plan.workloads import MICRO, OPERATIONS, WORKLOADS, workload_facts
from gputax.worker.halt import Halt

if TYPE_CHECKING:
    from types import FrameType

    from gputax.worker.tenant.client import Course, TenantPlan
    from gputax.worker.tenant.metrics import TenantMetrics
    from gputax.worker.tenant.tally import Tally

TECHNIQUE_VARIABLE = "GPUTAX_TECHNIQUE"
DRIVER_SONAME = "libcuda.so.1"
# The users' own tenant has one image; a few more keep one input from living in the processor's caches.
SAMPLES = 4
# One arrival in a microsecond: about what it takes to read the clock.
MOST_PER_S = 1_000_000
_RATES = f"e.g. --rate 20/s or --rate 0.5, at most {MOST_PER_S}/s; 5 in a minute are --rate 0.0833/s"
EXIT_INTERRUPTED = 130
LINE_EVERY_S = 10.0
LIVE_EVERY_S = 0.5
_TIMES_NS = {"us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


@click.command(cls=Verb)
@options(
    declared("workload", help=f"One of {', '.join(WORKLOADS)}, {MICRO}:OPERATION.", default="yolos-small"),
    declared("engine", help="onnx, torch, tinygrad, synthetic or driver, with :KEY=VALUE,… [default: onnx]"),
    declared("device"),
    declared("batch", help="Samples of one run."),
    declared("precision"),
    declared("threads"),
    declared("weights"),
    own(
        "port",
        "Port of /metrics; 0: any free port.",
        8000,
        least=0,
        most=65535,
        short=True,
        show_default=True,
        group=TENANTS,
    ),
    own("address", "Where /metrics listens.", "0.0.0.0", show_default=True, group=TENANTS),
    own("duration", "e.g. 90s or 10m. [default: until SIGTERM or Ctrl-C]", short=True, metavar="TIME"),
    own("warmup", "Warm-up seconds that are not counted.", 1.0, least=0, show_default=True),
    own("rate", "Poisson arrivals per second: 20/s, 0.5. [default: a closed loop]", short=True, metavar="R/s"),
    own("goodput", "Count inferences that finish within this time, e.g. 100ms.", short=True, metavar="TIME"),
    own(
        "technique",
        "How the device is shared: a label only.",
        metavar="NAME",
        variable=TECHNIQUE_VARIABLE,
        group=TENANTS,
    ),
    declared("seed", help="Seed of weights, inputs and arrivals."),
    as_json("Write the summary to stdout as JSON."),
)
@model_options
@variable_options
def client(port: int, address: str, goodput: str, as_json: bool, **chosen: Any) -> int:
    """Run inferences one after the other, and show their times at /metrics.

    Ends at SIGTERM or Ctrl-C after the running inference, with a summary; a second signal ends it at once. After ten
    failures in a row it ends with exit code 4.
    """
    plan = _plan(chosen)
    target_ns = time_ns(goodput, "--goodput") if goodput else 0
    if (code := _beside_its_driver(plan.setup)) is not None:
        return code
    if note := engine_note(plan.setup.engine, chosen["engine"]):
        click.echo(f"gputax: {note}", err=True)
    return run_client(plan, target_ns, address, port, as_json)


def _plan(chosen: dict[str, Any]) -> TenantPlan:
    device_named(chosen["device"])
    precision_named(chosen["precision"])
    if chosen["technique"] not in ("", *TECHNIQUES):
        raise unknown_name("technique", chosen["technique"], TECHNIQUES, SYNONYMS)
    own, batch = chosen["own"], chosen["batch"]
    workload = own.name if own.file else chosen["workload"]
    if workload not in OPERATIONS and workload.partition(":")[0] == MICRO:
        raise UsageError(f"a tenant runs one operation of {MICRO}", next_step=f"--workload {next(iter(OPERATIONS))}")
    workload_facts(workload)
    setup = Setup(
        workload,
        engine=waiting_passively(chosen_engine(workload, chosen["engine"], device=chosen["device"])),
        device=chosen["device"],
        precision=chosen["precision"],
        threads=chosen["threads"],
        weights=absolute(chosen["weights"]),
        sample_count=max(SAMPLES, batch),
        max_batch=batch,
        seed=chosen["seed"],
        own=own,
    )
    refuse_own_model(own, engine=setup.engine, weights=setup.weights, precision=setup.precision)
    refuse_batch_of_own(own, (batch,))
    refuse_driver_contradictions("bare", setup)
    duration_s = seconds(chosen["duration"], "--duration") if chosen["duration"] else 0.0
    if chosen["duration"] and not duration_s:
        raise UsageError(
            "--duration 0 leaves no time to measure",
            next_step="e.g. --duration 90s; without it the client runs until SIGTERM or Ctrl-C",
        )
    rate_per_s = _rate(chosen["rate"]) if chosen["rate"] else 0.0
    from gputax.worker.tenant.client import TenantPlan

    return TenantPlan(setup, batch, chosen["warmup"], duration_s, rate_per_s, chosen["technique"])


def time_ns(text: str, option: str) -> int:
    """Return the nanoseconds of `100ms`, `0.5s` or `250us`; a number without a unit says too little."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(us|µs|ms|s)", text.strip())
    value = round(float(found[1]) * _TIMES_NS[found[2]]) if found else 0
    if value <= 0:
        raise UsageError(f"{option} {text!r} is not a time above zero", next_step=f"e.g. {option} 100ms")
    return value


def _rate(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(/s)?", text.strip())
    if not found:
        raise UsageError(
            f"--rate {text!r} is not a rate per second: a plain number, with or without /s", next_step=_RATES
        )
    rate = float(found[1])
    if not rate:
        raise UsageError(f"--rate {text!r} is not a rate above zero", next_step=_RATES)
    if rate > MOST_PER_S:
        raise UsageError(f"--rate {text!r} is more than {MOST_PER_S}/s, the maximum", next_step=_RATES)
    return rate


def _beside_its_driver(setup: Setup) -> int | None:
    """Run this command again where the loader finds the driver that was asked for; None where it does already.

    The loader reads its path only when a program starts. Who has set that path, `gputax exec` for one, knows better:
    then the engine only checks that the device is the one that was asked for.
    """
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    if not driver_choice(setup).needed or any((Path(each) / DRIVER_SONAME).exists() for each in folders if each):
        return None
    from gputax.cli.exec import run_program
    from gputax.places import local_environment

    place = local_environment("bare", driver_choice(setup))
    with place.surroundings() as variables:
        if place.note:
            click.echo(f"gputax: {place.note}", err=True)
        if variables == dict(os.environ):
            return None
        code = run_program((sys.executable, "-m", "gputax", *words_given()), variables)
    return code if code >= 0 else 128 - code


def run_client(plan: TenantPlan, target_ns: int, address: str, port: int, as_json: bool) -> int:
    """Serve metrics, run the tenant until its end, print its summary; the summary comes before an error, too."""
    # Imported here: the library of the metrics takes 160 ms, which a wrong command line need not wait for.
    from gputax.report.tenant_summary import Summary, one_line
    from gputax.worker.tenant.client import Course
    from gputax.worker.tenant.metrics import MetricsServer, TenantMetrics
    from gputax.worker.tenant.tally import Tally

    metrics = TenantMetrics(Tally(target_ns))
    server = MetricsServer(metrics, address, port)  # before the model is loaded: a port in use is reported at once
    course, progress = Course(), TenantProgress()
    try:
        progress.say(f"metrics at {server.url}")
        with _signals() as signals:
            tenant = TenantThread(plan, metrics, course, signals, progress)
            tenant.start()
            try:
                while not signals.over.wait(progress.interval_s):
                    progress.show(metrics.tally, course)
            finally:  # also where nobody reads our stderr any more
                signals.halt.order()
                tenant.join()
        progress.clear()
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
    """The first signal requests a stop, the second ends the process: the engine may hang in a call."""

    def __init__(self) -> None:
        self.halt, self.over = Halt(), Halt()
        self.ended_by = "duration"

    def handle(self, number: int, frame: FrameType | None) -> None:
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
    before = {number: signal.signal(number, signals.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signals.halt.close()
        signals.over.close()


class TenantThread(threading.Thread):
    """Runs the tenant and keeps its exception for the main thread."""

    def __init__(
        self, plan: TenantPlan, metrics: TenantMetrics, course: Course, signals: Signals, progress: TenantProgress
    ) -> None:
        super().__init__(name="tenant", daemon=True)
        self._work = (plan, metrics, course, signals.halt, progress.say)
        self._over = signals.over
        self.error: BaseException | None = None

    def run(self) -> None:
        """Run to the end and signal that it has ended."""
        try:
            from gputax.worker.tenant.client import run_tenant

            run_tenant(*self._work)
        except BaseException as error:
            self.error = error
        finally:
            self._over.order()


class TenantProgress:
    """Progress on stderr: a line every ten seconds, or on a terminal one line that is rewritten."""

    def __init__(self) -> None:
        self._line = Line(sys.stderr)
        self.interval_s = LIVE_EVERY_S if self._line.terminal else LINE_EVERY_S
        self._older = self._newer = (0.0, 0, 0)
        self.clear = self._line.clear

    def say(self, text: str) -> None:
        """Write a line that stays."""
        self._line.say(f"gputax: {text}")

    def show(self, tally: Tally, course: Course) -> None:
        """Show how fast it was in the last seconds."""
        from gputax.report.tenant_summary import progress_line

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
