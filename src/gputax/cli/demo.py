"""`gputax demo`: look at this machine, measure it in about five minutes, and show one screen."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gputax.cli.options import Verb, as_json, options
from gputax.errors import Interrupted, PreflightError, UsageError, WorkerError
from gputax.plan.options import declared

if TYPE_CHECKING:
    from gputax.measure.view import RunView
    from gputax.report.demo import DemoResults
    from gputax.results.documents.base import Document
    from gputax.results.documents.comparison import Comparison, Resolution
    from gputax.results.documents.run import RunRecord
    from gputax.results.documents.sharing import SharingRecord

EXIT_CELLS_FAILED, EXIT_INVALID = 4, 5
OPERATIONS = tuple(f"micro:{name}" for name in ("operation", "launch", "allocate", "copy-in-100MB", "copy-out-100MB"))
# Interpreted, ResNet-50 takes 11 to 16 s of a core; compiled about one. Slower than this, there are too few pairs.
SLOWEST_INFERENCE_S = 4.0
PROBED_RUNS = 3
SOFTWARE = ("bare", "bare+proxy", "software")
# The runtime whose cost is shown where it is: the one with a kernel of its own that needs no hardware for it.
SANDBOX = "runsc"
GVISOR = ("container", f"container:{SANDBOX}", "cpu")
# A kernel that takes 125 us and copies at 4.5 GB/s: about a small inference, and none of a GPU's numbers.
SOFTWARE_DEVICE: dict[str, Any] = {"soft_kernel_us": 125, "soft_copy_gbps": 4.5}


@dataclass(frozen=True)
class Sizes:
    """How long each part takes; tests take less."""

    suite: str = "quick"
    workload: str = "resnet50"
    engine: str = ""
    resolution_s: float = 15.0
    model_s: float = 60.0
    slowest_inference_s: float = SLOWEST_INFERENCE_S
    duet_s: float = 30.0
    runtime_s: float = 20.0
    tenants: tuple[int, ...] = (1, 3)
    repeats: int = 3
    window_s: float = 3.0
    warmup_s: float = 1.0
    proxy_window_s: float = 1.0
    proxy_warmup_s: float = 0.5


@click.command(cls=Verb)
@options(
    declared("out", help="Result directory. [default: results/DATE-TIME]"),
    declared("wait-quiet", short=True),
    as_json("Write all documents to stdout as one JSON object instead of the screen."),
)
def demo(out: str, wait_quiet: float, as_json: bool) -> int:
    """Measure this machine: a model behind the GPU proxy, inference, noise, tenants. About five minutes.

    A verdict is an answer and not a failure: exits with 0 also where a budget is exceeded or the machine was
    disturbed (the screen says so), with 5 if results are invalid.
    """
    return run_demo(out, as_json, Sizes(), wait_quiet)


def run_demo(out: str, as_json: bool, sizes: Sizes, wait_quiet: float = 0.0) -> int:
    """Measure, write the report, show the screen."""
    directory = Path(out) if out else Path("results") / time.strftime("%Y%m%d-%H%M%S")
    if directory.exists() and any(directory.iterdir()):
        raise UsageError("this directory holds results already", where=str(directory), next_step="another --out")
    if wait_quiet:
        from gputax.cli.progress import Progress, look_first

        with Progress(sys.stderr) as progress:
            look_first(progress, ("bare",), wait_quiet=wait_quiet, accept_disturbed=False)
    tour = Tour(directory, sizes)
    found = tour.results()
    page = tour.report()
    if as_json:
        click.echo(json.dumps(_document(found, directory, page), indent=2, ensure_ascii=False))
    else:
        _show(found, directory, page)
    return exit_code(found)


def exit_code(found: DemoResults) -> int:
    """Return 4 where cells failed, 5 where something is invalid; verdicts and walls are answers."""
    from gputax.cli.run import exit_code as run_code
    from gputax.cli.share import exit_code as share_code

    # A tour must not end with an error because the machine is busy; the screen labels what was disturbed.
    codes = {
        run_code(found.run, accept_disturbed=True),
        *(share_code(record, accept_disturbed=True) for record in found.sharing),
    }
    return next((code for code in (EXIT_CELLS_FAILED, EXIT_INVALID) if code in codes), 0)


class Tour:
    """The steps one after the other, with one line of progress."""

    def __init__(self, directory: Path, sizes: Sizes) -> None:
        from gputax.cli.progress import Line

        self._directory, self._sizes = directory, sizes
        self._line = Line(sys.stderr)
        self._steps = 8
        self._number, self._title = 0, ""

    def results(self) -> DemoResults:
        """Measure everything that can be measured here."""
        from gputax.environments.container import ready_runtime
        from gputax.environments.driver import BUILD, missing_parts
        from gputax.plan.options import EnvironmentOptions
        from gputax.report.demo import DemoResults

        missing = missing_parts()
        sandbox = ready_runtime(SANDBOX, EnvironmentOptions().image)
        self._steps += sandbox
        cores, warnings = self._machine()
        if missing:
            self._line.say(f"gputax: warning: skipped the GPU proxy: not built: {', '.join(missing)}. Next: {BUILD}")
            self._steps -= 3
            warnings = (*warnings, "GPU proxy skipped, native parts not built")
        model, note = (None, "") if missing else self._model()
        run = self._run()
        resolution = self._resolution()
        proxy = None if missing else self._proxy()
        runtime = self._runtime() if sandbox else None
        sharing = [self._share()]
        if not missing:
            sharing.append(self._tenants())
        return DemoResults(cores, warnings, run, resolution, proxy, tuple(sharing), model, note, runtime)

    def report(self) -> Path:
        """Write the page of all parts."""
        from gputax import api

        self._step("report")
        (page, *_) = api.report(self._directory, out=self._directory / "report.html")
        self._line.clear()
        return page

    def _step(self, title: str) -> None:
        self._number += 1
        self._title = f"[{self._number}/{self._steps}] {title}"
        self._line.show(self._title)

    def _live(self, text: str) -> None:
        """Show what a step does; a pipe gets one line for each step and no more."""
        if self._line.terminal and self._line.due(0.0):
            self._line.show(f"{self._title}: {text.strip()}")

    def _progress(self, max_time_s: float = 0.0) -> Any:
        from gputax.cli.progress import Progress

        return Progress(sys.stderr, max_time_s, self._live)

    def _machine(self) -> tuple[int, tuple[str, ...]]:
        from gputax.cli.doctor import examined
        from gputax.doctor.machine import diagnose, inspect_disk
        from gputax.plan.options import EnvironmentOptions
        from gputax.worker.workloads.model_store import models_folder

        self._step("looking at the machine")
        facts, findings = examined("bare", EnvironmentOptions(), "auto")
        findings += diagnose(facts, inspect_disk(models_folder(), self._directory))
        disturbing = ("stolen", "Other processes", "Load ", "governor", "quota")
        warnings = [each.title for each in findings if each.status != "ok" and any(w in each.title for w in disturbing)]
        failures = [each.title for each in findings if each.status == "fail"]
        allowance = facts.get("cpu_allowance") or {}
        return len(allowance.get("affinity") or ()), tuple(dict.fromkeys((*failures, *warnings)))

    def _run(self) -> RunRecord:
        from gputax import api

        self._step("inference")
        sizes = self._sizes
        cells = api.load_plan(sizes.suite, workloads=(sizes.workload,), engine=sizes.engine)
        return api.run(cells, out=self._directory / "run", view=self._progress())

    def _resolution(self) -> Resolution:
        from gputax import api

        self._step("noise floor: A against A")
        progress, sizes = self._progress(self._sizes.resolution_s), self._sizes
        found = api.resolution(
            workload=sizes.workload,
            engine=sizes.engine,
            max_time_s=sizes.resolution_s,
            say=progress.say,
            on_pair=progress.pair,
        )
        from gputax.results.documents.comparison import RESOLUTION_NAME
        from gputax.results.files import write_text

        write_text(self._directory / RESOLUTION_NAME, found.model_dump_json(indent=2) + "\n")
        return found

    def _model(self) -> tuple[Comparison | None, str]:
        """Measure a model behind the proxy, or say in one line why it is not."""
        from gputax.environments.driver import c_compiler

        self._step("a model behind the GPU proxy")
        if c_compiler() is None:
            return None, f"{self._sizes.workload} skipped: without a C compiler the software device is too slow."
        try:
            # The first start captures the model and compiles its kernels, both sides of the duet then read the caches.
            took_s = seconds_of_an_inference(self._sizes.workload, self._progress())
        except PreflightError as error:
            return None, f"{self._sizes.workload} skipped: {error.what}."
        if took_s > self._sizes.slowest_inference_s:
            return None, f"{self._sizes.workload} skipped: {took_s:.0f} s an inference on the software device here."
        return self._duet("model", (self._sizes.workload,), self._sizes.model_s, SOFTWARE, {}), ""

    def _proxy(self) -> Comparison:
        self._step("GPU proxy on the software device")
        chosen = {**SOFTWARE_DEVICE, "proxy_spin": "always"}
        return self._duet("proxy", OPERATIONS, self._sizes.duet_s, SOFTWARE, chosen)

    def _runtime(self) -> Comparison | None:
        """Measure the model under gVisor where it is installed; a sandbox that does not work ends no tour."""
        self._step("a container under gVisor")
        try:
            return self._duet("runtime", (self._sizes.workload,), self._sizes.runtime_s, GVISOR, {})
        except (PreflightError, WorkerError) as error:
            self._line.say(f"gputax: warning: skipped gVisor: {error.what}")
            return None

    def _duet(
        self, name: str, workloads: tuple[str, ...], max_time_s: float, sides: tuple[str, str, str],
        chosen: dict[str, Any],
    ) -> Comparison:  # fmt: skip
        from gputax import api
        from gputax.measure.duet.pairs import INTERRUPTED

        progress = self._progress(max_time_s)
        base, other, device = sides
        command = _command(
            f"duet {base} {other} --device {device}", chosen, workload=",".join(workloads), max_time=max_time_s
        )
        comparison = api.duet(
            base,
            other,
            device=device,
            workload=workloads,
            max_time_s=max_time_s,
            command=command,
            out=self._directory / name,
            say=progress.say,
            on_pair=progress.pair,
            **chosen,
        )
        if any(warning.code == INTERRUPTED for warning in comparison.warnings):
            raise Interrupted("interrupted; what was measured is kept", where=str(self._directory))
        return comparison

    def _share(self) -> SharingRecord:
        from gputax import api

        self._step("tenants that share the CPU")
        sizes = self._sizes
        plan = api.share_plan(
            workload=sizes.workload,
            engine=sizes.engine,
            tenants=sizes.tenants,
            repeats=sizes.repeats,
            window_s=sizes.window_s,
            warmup_s=sizes.warmup_s,
        )
        command = _command(
            f"share --workload {sizes.workload}", {}, tenants=",".join(map(str, sizes.tenants)), repeats=sizes.repeats,
            window=f"{sizes.window_s:g}s", warmup=f"{sizes.warmup_s:g}s",
        )  # fmt: skip
        return api.share(plan, out=self._directory / "share", optional=True, view=self._progress(), command=command)

    def _tenants(self) -> SharingRecord:
        from gputax import api

        self._step("tenants behind the GPU proxy")
        sizes = self._sizes
        plan = api.share_plan(
            techniques=("proxy",),
            device="software",
            tenants=sizes.tenants,
            repeats=sizes.repeats,
            window_s=sizes.proxy_window_s,
            warmup_s=sizes.proxy_warmup_s,
        )
        command = _command(
            "share --tech proxy --device software", SOFTWARE_DEVICE, tenants=",".join(map(str, sizes.tenants)),
            repeats=sizes.repeats, window=f"{sizes.proxy_window_s:g}s", warmup=f"{sizes.proxy_warmup_s:g}s",
        )  # fmt: skip
        return api.share(
            plan, out=self._directory / "tenants", view=self._progress(), command=command, **SOFTWARE_DEVICE
        )


def seconds_of_an_inference(workload: str, view: RunView) -> float:
    """Return how long an inference takes on the software device once its kernels are compiled.

    The first one compiles what is costly at once, the next ones what became costly: the shortest of a few counts.
    """
    from gputax.measure.session import WorkerSession
    from gputax.places import environment_named
    from gputax.plan.cells import Setup
    from gputax.plan.driver import driver_choice
    from gputax.plan.engines import DRIVER_MODEL_ENGINE

    setup = Setup(workload, engine=DRIVER_MODEL_ENGINE, device="software", sample_count=32, max_batch=1)
    session = WorkerSession(environment_named("bare", driver_choice(setup)), setup, view)
    try:
        return float(min(session.slot(1, runs=PROBED_RUNS, first_run=0, dropped=0).durations_ns)) / 1e9
    finally:
        session.end()


def _command(verb: str, variables: dict[str, Any], **more: object) -> str:
    """Return the command that measures one part alone."""
    words = ["gputax", *shlex.split(verb)]
    for key, value in (*variables.items(), *more.items()):
        words += [f"--{key.replace('_', '-')}", f"{value:g}" if isinstance(value, float) else str(value)]
    return shlex.join(words)


def _dumped(document: Document | None) -> Any:
    return None if document is None else document.model_dump(mode="json")


def _document(found: DemoResults, directory: Path, page: Path) -> dict[str, Any]:
    names = ("share", "tenants")
    return {
        "directory": str(directory),
        "report": str(page),
        "machine": {"cores": found.cores, "warnings": list(found.machine_warnings)},
        "resolution": _dumped(found.resolution),
        "model": _dumped(found.model),
        "run": _dumped(found.run),
        "proxy": _dumped(found.proxy),
        **({} if found.runtime is None else {"runtime": _dumped(found.runtime)}),
        **{name: _dumped(record) for name, record in zip(names, found.sharing, strict=False)},
    }


def _show(found: DemoResults, directory: Path, page: Path) -> None:
    from gputax.report.demo import demo_tables, headline, machine_lines
    from gputax.report.exporters.console_text import Screen

    screen = Screen(sys.stdout)
    screen.say(headline(found), "bold")
    for line in machine_lines(found):
        screen.say(line)
    for table in demo_tables(found):
        screen.say("")
        screen.table(table)
    screen.say("")
    screen.say(f"Report: {page}")
    container = shutil.which("docker") or shutil.which("podman")
    screen.say(f"Next: gputax {'duet bare container' if container else 'run --suite standard'}")
